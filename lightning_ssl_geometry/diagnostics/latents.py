"""How well the layers of a network predict the true latents of synthetic data (Rusak et al. 2022, Figure 1)."""

__all__ = ["LatentR2", "check_content", "fitted_half", "r2_or_nan"]

from collections import Counter, OrderedDict
from collections.abc import Callable, Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit_rows
from torchmetrics import Metric

from lightning_ssl_geometry.checks import shaped
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import evaluating, first_view
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.row_numbers import RowNumbers
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.latent_r2 import moments_r2, row_moments
from lightning_ssl_geometry.introspection import layer_outputs
from lightning_ssl_geometry.papers import RUSAK
from lightning_ssl_geometry.quantity import Chart, Quantity
from lightning_ssl_geometry.random import counter_hash

_r2 = partial(
    Quantity,
    paper=RUSAK,
    where="Fig. 1",
    bounds=(None, 1.0),
    invariances=("permutation",),
    comparable=("temperature", "batch size", "method"),
    better="high",
)
_by_layer = partial(
    _r2,
    high="Near 1: a linear map from the layer finds these latents.",
    chart=Chart("latent_r2_by_layer", "R² of content and style by layer", "adjusted R²"),
    xlabel="layer, from the input (0) to z",
)
_of_z = partial(_r2, chart=Chart("latent_r2_z", "R² of content and style in z", "adjusted R²"), headline=True)
_of_h = partial(_r2, chart=Chart("latent_r2_h", "R² of content and style in h", "adjusted R²"))

_STREAM = 0x1A7E27  # makes the draws differ from others by (seed, index)
_ENCODER, _PROJECTOR = "encoder", "projector"


class LatentR2(Diagnostic):
    r"""Adjusted R^2 of a linear map from each layer's output to content and to style latents, on held-out samples.

    For synthetic data, with known latents. The map is fitted on a random half of the samples. R^2 <= 1 is computed on
    the other half. Results: `content` (L,) and `style` (L,) are the mean R^2 over the latents of each kind for L
    layers. Those for h and z are also separate results, such as `content_h`. A layer of width D needs about 10 D
    samples. With fewer, R^2 is lower or NaN. It is also NaN if a number is not finite. The networks run in eval mode.
    Their weights should stay constant. Memory: 16 (1 + D + d)^2 bytes per layer for d latents. An update of N samples
    costs a forward pass and O(N D^2) per layer, `compute` O(D^3) per layer. Equation: :func:`functional.latent_r2`.

    Args:
        layers: Dotted names of submodules of the encoder ("backbone.0") and of the projector ("projector.0"), each
            called once in a pass. None: all modules without children that are called once and return (N, D') or
            (N, C, H, W). Feature maps are averaged over their pixels. The image, h and z are always observed.
        normalize: Add z / \|z\|_2 as the last layer, for a loss that normalises z.
        seed: Determines on which half of the samples the map is fitted.

    Attributes:
        layer_names: Names of the observed layers, in the order of the results: "image", ..., "h", ..., "z".
    """

    section = "content_style"
    cost = Cost(update="n D^2 + n F", compute="D^3", memory="D^2")
    quantities: ClassVar[dict[str, Quantity]] = {
        "content": _by_layer(
            title="R² of content by layer",
            text="How well a linear map from each layer predicts the content latents, which the views share, on "
            "samples that it was not fitted on. Layer 0 is the input, the last one the end of the projector.",
            low="Near 0: the layer has lost content, hides it from a linear map, or is too wide for so few samples.",
            label="content",
        ),
        "style": _by_layer(
            title="R² of style by layer",
            text="How well a linear map from each layer predicts the style latents, which differ between the views, "
            "on samples that it was not fitted on.",
            low="Near 0: the layer has lost style. Where this falls from layer to layer and content stays high, the "
            "layers suppress style.",
            label="style",
        ),
        "content_z": _of_z(
            title="R² of content in z",
            text="How well a linear map of z predicts the content latents on samples that it was not fitted on.",
            low="Near 0: content is gone from z, or hidden from a linear map.",
            high="Near 1: a linear map of z finds content.",
            label="content",
        ),
        "style_z": _of_z(
            title="R² of style in z",
            text="How well a linear map of z predicts the style latents on samples that it was not fitted on.",
            low="Near 0: style is gone from z, or hidden from a linear map.",
            high="Near 1: a linear map finds style, and so training keeps it.",
            label="style",
        ),
        "content_h": _of_h(
            title="R² of content in h",
            text="How well a linear map of h predicts the content latents on samples that it was not fitted on.",
            low="Near 0: content is gone from h, or hidden from a linear map.",
            high="Near 1: a linear map of h finds content.",
            label="content",
        ),
        "style_h": _of_h(
            title="R² of style in h",
            text="How well a linear map of h predicts the style latents on samples that it was not fitted on.",
            low="Near 0: style is gone from h, or hidden from a linear map.",
            high="Near 1: a linear map finds style. If it does not find style in z, the projector is what drops it.",
            label="style",
        ),
    }

    full_state_update = False
    moments: Tensor

    def __init__(self, layers: Sequence[str] | None = None, normalize: bool = False, seed: int = 0) -> None:
        super().__init__()
        self.layers = None if layers is None else list(layers)
        self.normalize = normalize
        self.seed = seed
        self.numbers = RowNumbers()
        self.layer_names: tuple[str, ...] = ()
        self._places: dict[str, str] = {}
        self._widths: tuple[int, ...] = ()
        self._content = torch.zeros(0, dtype=torch.bool)
        self.add_sums("moments", shape=(2, 0))

    @by_position("encoder", "projector")
    def update(
        self,
        image: Tensor,
        latent: Tensor,
        content: Tensor,
        index: Tensor | None = None,
        *,
        encoder: nn.Module,
        projector: nn.Module | None = None,
    ) -> None:
        """Add images (N, C, H, W) or (N, D), their latents, `index` (N,) and the networks.

        `latent` (V, N, d) holds the d latents of V views. The latents of the first view generated the images. `content`
        (d,) is true for content latents. `encoder` maps images to h, and `projector` maps h to z.
        """
        latent = first_view("latent", latent)
        check_content(latent, content, len(image))
        index = self.numbers.of(index, image)
        shaped("N,", {"N": len(image)}, index=index)
        if self.moments.numel() and not torch.equal(content.cpu(), self._content):
            raise ValueError("Expected `content` to be the same in every update, but got another.")
        parts = {_ENCODER: encoder} | ({_PROJECTOR: projector} if projector is not None else {})
        network = nn.Sequential(OrderedDict(parts))
        with evaluating(network), torch.no_grad():
            features = self._features(network, image)
        sides = [1 + h.shape[1] + latent.shape[1] for h in features.values()]
        self.afford(max(h.shape[1] for h in features.values()), *sides, *sides, argument="layers")
        fit = fitted_half(self.seed, index)
        halves = [half.nonzero()[:, 0] for half in (fit, ~fit)]  # a mask would make each layer wait for a GPU
        sums = [torch.cat([row_moments(h[rows], latent[rows]).flatten() for h in features.values()]) for rows in halves]
        if not self.moments.numel():
            self.layer_names, self._content = tuple(features), content.cpu()
            self._widths = tuple(h.shape[1] for h in features.values())
        self.moments = torch.stack(sums) + (self.moments if self.moments.numel() else 0)

    def compute(self) -> dict[str, Tensor]:
        self.require(self._halves()[0][:, 0, 0].sum() if self.moments.numel() else 0, "samples")
        layers = zip(self._halves(), self._widths, strict=True)
        r2 = torch.stack([r2_or_nan(self, halves[0], halves[1], dim=width) for halves, width in layers])  # (L, d)
        found: dict[str, Tensor] = {}
        for kind, chosen in (("content", self._content), ("style", ~self._content)):
            if chosen.any():
                found[kind] = r2[:, chosen.to(r2.device)].mean(1)
                places = {name: self.layer_names.index(name) for name in ("h", "z") if name in self.layer_names}
                found |= {f"{kind}_{name}": found[kind][place] for name, place in places.items()}
        return found

    def _halves(self) -> list[Tensor]:  # of each layer (2, 1 + D + d, 1 + D + d)
        sides = [1 + width + len(self._content) for width in self._widths]
        return [
            moments.unflatten(1, (side, side))
            for moments, side in zip(self.moments.split([side**2 for side in sides], dim=1), sides, strict=True)
        ]

    def _features(self, network: nn.Module, image: Tensor) -> dict[str, Tensor]:
        if not self.moments.numel():
            self._places = _places(network, self.layers, image[:1])
        with layer_outputs(network, list(self._places.values())) as run:
            outputs = run(image)
        found = {"image": image} | {name: outputs[place] for name, place in self._places.items()}
        if self.normalize and "z" in found:
            found["z_normalized"] = unit_rows(found["z"], dim=1)
        return {name: _pooled(name, output, len(image)) for name, output in found.items()}


def r2_or_nan(metric: Metric, fit: Tensor, score: Tensor, dim: int) -> Tensor:
    """Return `moments_r2(fit, score, dim)`, or NaN, with a warning, if the samples are too few, equal or not finite."""
    try:
        found = moments_r2(fit, score, dim)
    except ValueError as error:  # the shapes fit: the samples are too few, or not finite
        return undefined(metric, f"half of the samples cannot be used ({error})", like=fit[0, 1 + dim :])
    return undefined(metric, "no latent differs between the samples", like=found) if found.isnan().all() else found


def check_content(latent: Tensor, content: Tensor, n: int) -> None:
    """Raise a ValueError unless `latent` has the shape (n, d) and `content` holds d booleans."""
    shaped("N, d", {"N": n}, latent=latent)
    shaped("d,", {"d": latent.shape[1]}, content=content)
    if content.dtype != torch.bool:
        raise ValueError(f"Expected `content` of booleans, but got {content.dtype}.")


def fitted_half(seed: int, index: Tensor) -> Tensor:
    """Return a bool mask (N,) of the samples to fit on. `index` (N,) holds their indices in the data set."""
    return counter_hash(seed, _STREAM, index) >= 0


def _places(network: nn.Module, layers: Sequence[str] | None, x: Tensor) -> dict[str, str]:
    """Return {name of a layer: its dotted path in `network`}, in the order of the calls."""
    inner = _leaves(network) if layers is None else [_place(network, name) for name in layers]
    parts = {_ENCODER: "h", _PROJECTOR: "z"}
    calls = _calls(network, list(dict.fromkeys([*inner, *(name for name, _ in network.named_children())])), x)
    if layers is not None and (missed := set(inner) - {place for place, _ in calls}):
        raise ValueError(f"Expected `layers` that are called in a pass, but {sorted(missed)[0]!r} was not.")
    if layers is None:
        counts = Counter(place for place, _ in calls)
        calls = [(place, h) for place, h in calls if place in parts or (counts[place] == 1 and _is_layer(h, len(x)))]
    found: dict[str, str] = {}
    for i, (place, output) in enumerate(calls):
        if place in parts and i and calls[i - 1][0] not in parts and output is calls[i - 1][1]:
            found.popitem()  # the last layer's output is h or z itself
        found[parts.get(place, place.removeprefix(f"{_ENCODER}."))] = place
    return found


def _leaves(network: nn.Module) -> list[str]:
    idle = (nn.Identity, nn.Dropout)
    return [name for name, m in network.named_modules() if not any(m.children()) and not isinstance(m, idle)]


def _place(network: nn.Module, name: str) -> str:
    place = name if name.split(".")[0] == _PROJECTOR else f"{_ENCODER}.{name}"
    if place not in dict(network.named_modules(remove_duplicate=False)):
        raise ValueError(f"Expected `layers` to name submodules of the encoder or the projector, but got {name!r}.")
    return place


def _calls(network: nn.Module, names: Sequence[str], x: Tensor) -> list[tuple[str, object]]:
    calls: list[tuple[str, object]] = []
    modules = dict(network.named_modules(remove_duplicate=False))

    def catch(name: str) -> Callable[..., None]:
        return lambda module, inputs, output: calls.append((name, output))

    handles = [modules[name].register_forward_hook(catch(name)) for name in names]
    try:
        network(x)
    finally:
        for handle in handles:
            handle.remove()
    return calls


def _is_layer(output: object, rows: int) -> bool:
    return isinstance(output, Tensor) and output.is_floating_point() and _has_rows(output, rows)


def _has_rows(output: Tensor, rows: int) -> bool:
    return output.ndim in (2, 4) and len(output) == rows


def _pooled(name: str, output: Tensor, rows: int) -> Tensor:
    if not _has_rows(output, rows):
        raise ValueError(
            f"Expected `{name}` of shape (N, D) or (N, C, H, W), N = {rows}, but got {tuple(output.shape)}."
        )
    return output if output.ndim == 2 else output.mean((2, 3))
