"""Content and style: gradients, terms of the loss, temperatures and weights (Rusak et al. 2022)."""

__all__ = ["DimensionTemperature", "GradientSpectrum", "LossTerms", "OutputWeights"]

from collections.abc import Sequence
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_ssl_geometry.deprecation import by_position, deprecated
from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledEmbeddings, by_sample
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.adaptive_temperature import (
    content_count,
    covariances_gradient_spectrum,
    variance_ratios,
)
from lightning_ssl_geometry.functional.info_nce.forms import InfoNCEForm, InfoNCESwitches
from lightning_ssl_geometry.functional.info_nce.terms import ONE_SIDED, alignment_uniformity_terms, check_split
from lightning_ssl_geometry.introspection import submodule
from lightning_ssl_geometry.losses.info_nce import InfoNCELoss
from lightning_ssl_geometry.papers import RUSAK
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_TERMS = Chart("loss_terms", "Alignment and uniformity terms of the loss", "nats")
_SPLIT = Chart("output_weights_split", "Weights in and outside of the subvector", "mean absolute weight")


class _OldSettings(InfoNCESwitches, total=False):
    temperature: float | Sequence[float]


class GradientSpectrum(Moments):
    """Singular values of a linear InfoNCE gradient on the representations, and the content dimensions (Eq. 5, Prop. 2).

    Observes h, its first two views: of the embeddings, `GeometryMonitor(rename={"gradient_spectrum": {"h": "z"}})`.
    `singular_values` (D,) descending are those of Sigma_x - Sigma_x~, the covariance of the first view less that of
    the differences: directions that differ little between the views (content) have the larger ones, up to their
    variance. `ratio` (D,) ascending is Sigma_x~ relative to Sigma_x: 0 for exact content, 2 where the views are
    independent, NaN for directions without variance, which stand last. `content_dimension` is where it grows most, 0
    for no such place. All are NaN where h is one point but for rounding, or not finite. Streams: O(D^2) memory,
    O(N D^2) per update, O(D^3) to compute.
    Equations: :func:`lightning_ssl_geometry.functional.gradient_spectrum` and
    :func:`lightning_ssl_geometry.functional.content_dimension`.

    Args:
        min_ratio: As in :func:`lightning_ssl_geometry.functional.content_dimension`.
        eps: As in :func:`lightning_ssl_geometry.functional.content_dimension`.

    Raises:
        ValueError: If an argument is out of range; in `update`, if h has fewer than two views; in `compute`, if fewer
            than two samples were seen.
    """

    section = "content_style"
    quantities: ClassVar[dict[str, Quantity]] = {
        "singular_values": Quantity(
            title="Spectrum of the gradient",
            text="Singular values of the gradient of InfoNCE for a linear encoder on these representations: their "
            "covariance minus that of the differences between views.",
            low="Directions that differ between the views (style), which learn slowly.",
            high="Directions that the views share (content); a cliff stands between content and style.",
            paper=RUSAK,
            where="Eq. 5",
            bounds=(0.0, None),
            invariances=("rotation", "translation", "permutation"),
            chart=Chart("gradient_spectrum", "Spectrum of the gradient", "singular value"),
            picture=Picture("spectrum"),
        ),
        "ratio": Quantity(
            title="Change between views, by direction",
            text="Along each direction, the variance of the difference between views divided by the variance of the "
            "representations, in ascending order.",
            low="At 0: a direction of exact content.",
            high="At 2: the views have nothing in common in this direction.",
            paper=RUSAK,
            where="Prop. 2",
            bounds=(0.0, None),
            invariances=("rotation", "scale", "translation", "permutation"),
            chart=Chart("gradient_ratio", "Change between views, by direction", "change over variance"),
            xlabel="direction",
        ),
        "content_dimension": Quantity(
            title="Content dimensions in the gradient",
            text="How many directions come before the steepest rise of the change between views.",
            low="At 0: no direction stands out as content.",
            high="Many directions are the same in both views.",
            paper=RUSAK,
            where="Prop. 2",
            bounds=(0.0, None),
            cap="D",
            invariances=("rotation", "scale", "translation", "permutation"),
            comparable=("temperature", "batch size", "method"),
            chart=Chart("content_dimension", "Content dimensions in the gradient", "directions"),
        ),
    }

    change: Tensor

    def __init__(self, min_ratio: float = 10.0, eps: float = 1e-6) -> None:
        super().__init__(center=True)
        content_count(torch.ones(1), min_ratio=min_ratio, eps=eps)  # checks both
        self.min_ratio = min_ratio
        self.eps = eps
        self.add_state("change", torch.zeros(0, 0, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, h: Tensor) -> None:
        """Add pairs: h (V, N, D) with V >= 2."""
        views = by_sample("h", h, views=2)
        super().update(views[:, 0])
        difference = views[:, 0].double() - views[:, 1].double()
        change = difference.T @ difference
        self.change = change if not self.change.numel() else self.change + change

    def compute(self) -> dict[str, Tensor]:
        """Compute `singular_values`, `ratio` and `content_dimension`."""
        if self.rows < 2:
            seen = int(self.rows) or "none"
            raise ValueError(f"Expected GradientSpectrum to have observed at least 2 samples, but got {seen}.")
        mean = self.total / self.rows
        marginal, conditional = self.outer / self.rows - torch.outer(mean, mean), self.change / self.rows
        if (reason := self._reason(marginal, conditional)) is not None:
            nothing = undefined(self, reason, like=mean)
            return {"singular_values": nothing, "ratio": nothing, "content_dimension": nothing.sum()}
        spectrum = covariances_gradient_spectrum(marginal, conditional)
        ratio = variance_ratios(marginal, conditional)
        return {
            "singular_values": spectrum,
            "ratio": pad(ratio, (0, len(mean) - len(ratio)), value=torch.nan),
            "content_dimension": content_count(ratio, min_ratio=self.min_ratio, eps=self.eps),
        }

    def _reason(self, marginal: Tensor, conditional: Tensor) -> str | None:
        """Why there is no spectrum, if there is none."""
        if not (marginal + conditional).isfinite().all():
            return "`h` is not finite"
        return None if marginal.trace() > len(marginal) * self.noise() else "`h` is one point but for rounding"


class LossTerms(SampledEmbeddings):
    """InfoNCE of `contrast_size` samples, split into alignment and uniformity (Table 1).

    Observes z, its first two views, and index. `align` is minus the mean similarity of the pairs, lower where the views
    agree; `uniform` the mean log-sum-exp of the similarities to the other first views, lower where samples are spread,
    log(n - 1) where all coincide at squared distance 0; `total` is their sum. They are the loss that trains the model
    only where `loss` is that loss. Where it normalises, NaN where all of z is 0. O(contrast_size P) memory,
    O(contrast_size^2 P) to compute, in tiles.
    Equation: :func:`lightning_ssl_geometry.functional.alignment_uniformity_terms`.

    Args:
        loss: A loss whose anchors are view 1 and whose negatives are of view 1, with fixed temperatures, such as
            `InfoNCELoss(form="CL_ICA")`. None: temperature 1, `RUSAK` without the positive in the denominator, which
            can fall below any number.
        contrast_size: As in :class:`SampledRows`; it is the N of the loss, and part of its value.
        seed: As in :class:`SampledRows`.
        **old: Deprecated: `temperature` and the switches of the loss.

    Raises:
        ValueError: If an argument is out of range, or the loss is another one; in `compute`, if there are fewer than
            two views or the loss has temperatures of another length than P.
    """

    section = "content_style"
    quantities: ClassVar[dict[str, Quantity]] = {
        "total": Quantity(
            title="Both terms of the loss",
            text="The sum of the alignment and the uniformity term, which is InfoNCE. The positive pair is not in "
            "its denominator unless it is told to be.",
            low="Views agree and samples are spread; a representation that has collapsed to content can have a lower "
            "value than the true latents.",
            high="Views disagree, or samples coincide.",
            paper=RUSAK,
            where="Table 1",
            invariances=("permutation",),
            comparable=("width",),
            better="low",
            chart=_TERMS,
            label="both",
        ),
        "align": Quantity(
            title="Alignment term",
            text="Minus the mean similarity of the two views, divided by the temperature.",
            low="The views of a sample agree.",
            high="The views of a sample are far apart.",
            paper=RUSAK,
            where="Table 1",
            invariances=("permutation",),
            comparable=("width",),
            chart=_TERMS,
            label="alignment",
        ),
        "uniform": Quantity(
            title="Uniformity term",
            text="The mean over samples of the logarithm of a sum: that of the exponential similarities to the other "
            "samples.",
            low="Samples are spread.",
            high="Samples coincide: for squared distances it is then the logarithm of the number of the others.",
            paper=RUSAK,
            where="Table 1",
            invariances=("permutation",),
            comparable=("width",),
            chart=_TERMS,
            label="uniformity",
        ),
    }

    @by_position(
        *("temperature", "normalize", "similarity", "positive_in_denominator", "include_self", "contrast_size", "seed")
    )
    def __init__(
        self,
        *,
        loss: InfoNCELoss | None = None,
        contrast_size: int = 1024,
        seed: int = 0,
        **old: Unpack[_OldSettings],
    ) -> None:
        super().__init__(contrast_size, seed)
        self.temperature, self.form = _one_sided(loss, old)

    def compute(self) -> dict[str, Tensor]:
        """Compute `align`, `uniform` and `total`."""
        z = self.sample().double()
        if len(z) < 2:
            raise ValueError(f"Expected `z` of at least 2 views for LossTerms, but got {len(z)}.")
        z1, z2 = directions(self, z[:2]) if self.form.normalize else z[:2]
        terms = alignment_uniformity_terms(z1, z2, self.temperature, self.form)
        return {name: term.mean() for name, term in terms._asdict().items()}


def _one_sided(loss: InfoNCELoss | None, old: _OldSettings) -> tuple[float | tuple[float, ...] | Tensor, InfoNCEForm]:
    """Temperatures and form of a loss that splits into terms."""
    if old:
        if loss is not None:
            raise ValueError(f"Expected `loss` alone, but got {', '.join(f'`{name}`' for name in old)} beside it.")
        loss = InfoNCELoss(**{"temperature": 1.0, "form": ONE_SIDED, **old})  # type: ignore[arg-type]
        deprecated("Settings of the loss of `LossTerms`", f"`loss=InfoNCELoss({loss.extra_repr()})`", stacklevel=5)
    if loss is None:
        return 1.0, ONE_SIDED
    if isinstance(loss.temperature, nn.Module | nn.Parameter) or loss.mode != "distance":
        raise ValueError(f"Expected `loss` with fixed temperatures and mode='distance', but got {loss}.")
    check_split(loss.form)
    return loss.temperature, loss.form


class DimensionTemperature(Diagnostic):
    """The temperature of each dimension of the embeddings, of the last update.

    Observes temperature (P,), of a method that has one per dimension. Lower ones weigh the differences of their
    dimensions more: those of content are below those of style. O(P).
    """

    section = "content_style"
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            of_weights=True,
            title="Temperature of each dimension",
            text="The temperature that the loss has for each dimension of the embedding.",
            low="The loss gives this dimension more weight. Dimensions of content should have low temperatures.",
            high="The loss gives this dimension less weight. Dimensions of style, in which views differ, should have "
            "high temperatures.",
            paper=RUSAK,
            where="Prop. 3",
            bounds=(0.0, None),
            chart=Chart("temperatures", "Temperature of each dimension", "temperature"),
            xlabel="dimension of z",
        )
    }

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.temperature: Tensor | None = None

    def update(self, temperature: Tensor) -> None:
        """Take a copy of the temperatures, (P,)."""
        if temperature.ndim != 1:
            raise ValueError(f"Expected `temperature` of shape (P,), but got {tuple(temperature.shape)}.")
        self.temperature = temperature.detach().clone()

    def compute(self) -> Tensor:
        """Give them back, (P,)."""
        if self.temperature is None:
            raise ValueError("Expected DimensionTemperature to have observed temperatures, but got none.")
        return self.temperature

    def reset(self) -> None:
        """Forget them."""
        super().reset()
        self.temperature = None


class OutputWeights(Diagnostic):
    """Mean absolute weight of each output of a layer, of the last update (Appendix E, Fig. 4).

    Observes encoder. Outputs that no loss looks at are driven to 0 by weight decay: with DirectCLR, those of the last
    convolution past the subvector that is contrasted. The paper's figure has the sum over the inputs, which is the
    mean times their number. `weight` (out,), and with `split` the scalars `used`, the mean over the first `split`
    outputs, and `unused`, over the others. Independent of N.

    Args:
        layer: Dotted name, in the encoder, of a convolution or linear layer, such as "backbone.layer4.2.conv3".
        split: Dimension of the subvector; None: there is none.

    Raises:
        ValueError: If `split` < 1; in `update`, if the encoder has no such layer, it has no weight of two or more axes,
            or `split` leaves no outputs.
    """

    section = "content_style"
    quantities: ClassVar[dict[str, Quantity]] = {
        "weight": Quantity(
            of_weights=True,
            title="Weights of the outputs",
            text="Mean absolute weight of each output channel of a layer.",
            low="Near 0: weight decay has shut this output down, since no loss looks at it.",
            high="This output is in use.",
            paper=RUSAK,
            where="Fig. 4",
            bounds=(0.0, None),
            chart=Chart("output_weights", "Weights of the outputs", "mean absolute weight"),
            xlabel="output channel",
        ),
        "used": Quantity(
            of_weights=True,
            title="Weights inside of the subvector",
            text="Mean absolute weight of the outputs that the loss looks at.",
            low="Near 0: weight decay has shut these outputs down, although the loss looks at them.",
            high="These outputs are in use.",
            paper=RUSAK,
            where="Fig. 4",
            bounds=(0.0, None),
            chart=_SPLIT,
            label="inside",
        ),
        "unused": Quantity(
            of_weights=True,
            title="Weights outside of the subvector",
            text="Mean absolute weight of the outputs that the loss does not look at.",
            low="Near 0: weight decay has shut these outputs down.",
            high="As high as inside of the subvector: weight decay has not shut these outputs down yet.",
            paper=RUSAK,
            where="Fig. 4",
            bounds=(0.0, None),
            chart=_SPLIT,
            label="outside",
        ),
    }

    full_state_update = False

    def __init__(self, layer: str, split: int | None = None) -> None:
        super().__init__()
        if split is not None and split < 1:
            raise ValueError(f"Expected `split` >= 1 or None, but got {split}.")
        self.layer = layer
        self.split = split
        self.weight: Tensor | None = None

    def update(self, encoder: nn.Module) -> None:
        """Take the layer's weights, (out, in, ...)."""
        weight = _named(encoder, self.layer)
        if self.split is not None and self.split >= len(weight):
            raise ValueError(f"Expected `split` < {len(weight)}, the outputs of {self.layer!r}, but got {self.split}.")
        self.weight = weight.detach().double().abs().flatten(1).mean(dim=1)

    def compute(self) -> dict[str, Tensor]:
        """Compute `weight` and, with `split`, `used` and `unused`."""
        if self.weight is None:
            raise ValueError("Expected OutputWeights to have observed an encoder, but got none.")
        if self.split is None:
            return {"weight": self.weight}
        used, unused = self.weight[: self.split].mean(), self.weight[self.split :].mean()
        return {"weight": self.weight, "used": used, "unused": unused}

    def reset(self) -> None:
        """Forget the weights."""
        super().reset()
        self.weight = None


def _named(encoder: nn.Module, layer: str) -> Tensor:
    """The weight of a submodule."""
    module = submodule(encoder, layer, "layer")
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.ndim < 2:
        raise ValueError(f"Expected `layer` to have a weight (out, in, ...), but got {type(module).__name__}.")
    return weight
