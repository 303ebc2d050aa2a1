"""Diagnostics of content (shared by the views of a sample) and style (not shared) (Rusak et al. 2022)."""

__all__ = ["DimensionTemperature", "GradientSpectrum", "LossTerms", "OutputWeights"]

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from lightning_ssl_geometry.checks import at_least, shaped
from lightning_ssl_geometry.cost import Cost
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
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_ALL = ("rotation", "scale", "translation", "permutation")
_term = partial(
    Quantity,
    paper=RUSAK,
    where="Table 1",
    invariances=("permutation",),
    comparable=("width",),
    chart=Chart("loss_terms", "Alignment and uniformity terms of the loss", "nats"),
)
_weight = partial(Quantity, paper=RUSAK, where="Fig. 4", bounds=(0.0, None), of_weights=True)
_SPLIT = Chart("output_weights_split", "Weights in and outside of the subvector", "mean absolute weight")
_of_gradient = partial(Quantity, paper=RUSAK, bounds=(0.0, None))
_of_directions = partial(_of_gradient, where="Prop. 2", invariances=_ALL)


class _OldSettings(InfoNCESwitches, total=False):
    temperature: float | Sequence[float]


class GradientSpectrum(Moments):
    """Spectrum of the gradient of InfoNCE for a linear encoder on h, and the content dimensions (Rusak et al. 2022).

    Observes the first two views of h, with D dimensions. Sigma_x is the covariance of the first view. Sigma_x~ is the
    covariance of the difference between the views. Results:

    - `singular_values` (D,), descending: the singular values of Sigma_x - Sigma_x~ (Eq. 5 of Rusak et al.).
    - `ratio` (D,), ascending: variance of the difference divided by the variance of the first view, per direction. A
      ratio is 0 for exact content and 2 for independent views. Directions without variance give NaN, at the end.
    - `content_dimension`, from 0 to D - 1 (Prop. 2): the number of ratios before their largest jump, as a factor.

    All results are NaN if all rows of h are equal up to rounding, or one is not finite. Memory: O(D^2). An update costs
    O(N D^2) for N samples, `compute` O(D^3). Equations: :func:`functional.gradient_spectrum`,
    :func:`functional.content_dimension`.

    Args:
        min_ratio: Smallest jump, > 1, that separates content from style. Without such a jump, `content_dimension` is 0.
        eps: Ratios below `eps` > 0 are rounding errors and count as `eps`.
    """

    section = "content_style"
    quantities: ClassVar[dict[str, Quantity]] = {
        "singular_values": _of_gradient(
            title="Spectrum of the gradient",
            text="Singular values of the gradient of InfoNCE for a linear encoder on these representations: their "
            "covariance minus that of the differences between views.",
            low="Directions that differ between the views (style), which learn slowly.",
            high="Directions that the views share (content); a cliff stands between content and style.",
            where="Eq. 5",
            invariances=("rotation", "translation", "permutation"),
            chart=Chart("gradient_spectrum", "Spectrum of the gradient", "singular value"),
            picture=Picture("spectrum"),
        ),
        "ratio": _of_directions(
            title="Change between views, by direction",
            text="Along each direction, the variance of the difference between views divided by the variance of the "
            "representations, in ascending order.",
            low="At 0: a direction of exact content.",
            high="At 2: the views have nothing in common in this direction.",
            chart=Chart("gradient_ratio", "Change between views, by direction", "change over variance"),
            xlabel="direction",
        ),
        "content_dimension": _of_directions(
            title="Content dimensions in the gradient",
            text="How many directions come before the steepest rise of the change between views.",
            low="At 0: no direction stands out as content.",
            high="Many directions are the same in both views.",
            cap="D",
            comparable=("temperature", "batch size", "method"),
            chart=Chart("content_dimension", "Content dimensions in the gradient", "directions"),
        ),
    }

    matrices = 2
    change: Tensor

    def __init__(self, min_ratio: float = 10.0, eps: float = 1e-6) -> None:
        super().__init__(center=True)
        content_count(torch.ones(1), min_ratio=min_ratio, eps=eps)  # checks `min_ratio` and `eps`
        self.min_ratio = min_ratio
        self.eps = eps
        self.add_sums("change", shape=(0, 0))

    def update(self, h: Tensor) -> None:
        """Add `h` (V, N, D) for V >= 2 views of N samples. Only the first two views are used."""
        views = by_sample("h", h, views=2)
        super().update(views[:, 0])
        difference = in_float64(views[:, 0]) - in_float64(views[:, 1])
        change = difference.T @ difference
        self.change = change if not self.change.numel() else self.change + change

    def compute(self) -> dict[str, Tensor]:
        self.require(self.rows, "samples", least=2)
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
        if not (marginal + conditional).isfinite().all():
            return "`h` is not finite"
        return None if marginal.trace() > len(marginal) * self.noise() else "`h` is one point but for rounding"


class LossTerms(SampledEmbeddings):
    """InfoNCE of `contrast_size` samples, split into alignment and uniformity (Rusak et al. 2022, Table 1).

    Observes the first two views of z, with P dimensions, and the index of each sample in the data set. `align` is minus
    the mean similarity of the two views of a sample. `uniform` is the mean log-sum-exp of the similarities to the first
    views of the other samples. `total` is their sum. For a loss that normalises z, all results are NaN if all
    embeddings are 0 or one is not finite. Memory: O(contrast_size P). `compute` costs O(contrast_size^2 P). Equation:
    :func:`functional.alignment_uniformity_terms`.

    Args:
        loss: A loss such as `InfoNCELoss(form="CL_ICA")`. Its temperatures must be fixed, and its anchors and negatives
            must come from view 1, else a ValueError is raised. None: temperature 1 and the form `RUSAK` without the
            positive pair in the denominator, a loss without lower bound.
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
        **old: Deprecated: `temperature` and the other settings of the loss.
    """

    section = "content_style"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "total": _term(
            title="Both terms of the loss",
            text="The sum of the alignment and the uniformity term, which is InfoNCE. By default, its denominator "
            "does not contain the positive pair.",
            low="Views agree and samples are spread; a representation that has collapsed to content can have a lower "
            "value than the true latents.",
            high="Views disagree, or samples coincide.",
            better="low",
            label="both",
        ),
        "align": _term(
            title="Alignment term",
            text="Minus the mean similarity of the two views, divided by the temperature.",
            low="The views of a sample agree.",
            high="The views of a sample are far apart.",
            label="alignment",
        ),
        "uniform": _term(
            title="Uniformity term",
            text="For each sample, the exponentials of its similarities to all other samples are summed. This is the "
            "mean of the logarithms of these sums.",
            low="Samples are spread.",
            high="Samples coincide: with squared distances, the value is then the logarithm of the number of "
            "other samples.",
            label="uniformity",
        ),
    }

    views = 2

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
        z = in_float64(self.pairs())
        z1, z2 = directions(self, z) if self.form.normalize else z
        terms = alignment_uniformity_terms(z1, z2, temperature=self.temperature, form=self.form)
        return {name: term.mean() for name, term in terms._asdict().items()}


def _one_sided(loss: InfoNCELoss | None, old: _OldSettings) -> tuple[float | tuple[float, ...] | Tensor, InfoNCEForm]:
    if old:
        if loss is not None:
            raise ValueError(f"Expected `loss` alone, but got {', '.join(f'`{name}`' for name in old)} beside it.")
        loss = InfoNCELoss(**{"temperature": 1.0, "form": ONE_SIDED, **old})  # type: ignore[arg-type]
        deprecated("Settings of the loss of `LossTerms`", f"`loss=InfoNCELoss({loss.extra_repr()})`")
    if loss is None:
        return 1.0, ONE_SIDED
    if isinstance(loss.temperature, nn.Module | nn.Parameter) or loss.mode != "distance":
        raise ValueError(f"Expected `loss` with fixed temperatures and mode='distance', but got {loss}.")
    check_split(loss.form)
    return loss.temperature, loss.form


class DimensionTemperature(Diagnostic):
    """Temperature of each of the P dimensions of the embeddings at the last update.

    Only for losses that have one temperature >= 0 per dimension. The result has shape (P,). Cost: O(P).
    """

    section = "content_style"
    cost = Cost(update="D", compute="D", memory="D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
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
            of_weights=True,
        )
    }

    full_state_update = False

    def __init__(self) -> None:
        super().__init__()
        self.temperature: Tensor | None = None

    def update(self, temperature: Tensor) -> None:
        """Copy the temperatures (P,)."""
        shaped("P,", temperature=temperature)
        self.temperature = temperature.detach().clone()

    def compute(self) -> Tensor:
        if self.temperature is None:
            raise ValueError("Expected DimensionTemperature to have observed temperatures, but got none.")
        return self.temperature

    def reset(self) -> None:
        super().reset()
        self.temperature = None


class OutputWeights(Diagnostic):
    """Mean absolute weight of each output of a layer at the last update (Rusak et al. 2022, Appendix E, Fig. 4).

    If no loss depends on an output, weight decay drives its weights to 0. `weight` (outputs,) has one value >= 0 per
    output. If `split` is given, `used` is the mean of the first `split` values, and `unused` the mean of the others.
    The paper plots the sum over inputs instead of the mean. The cost does not depend on the number of samples.

    Args:
        layer: Dotted name of a layer of the encoder, such as "backbone.layer4.2.conv3". Its weight needs >= 2 axes.
        split: Number of first outputs that the loss uses, >= 1 and fewer than all. None: the loss uses all outputs.
    """

    section = "content_style"
    cost = Cost(update="F", compute="D", memory="D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "weight": _weight(
            title="Weights of the outputs",
            text="Mean absolute weight of each output channel of a layer.",
            low="Near 0: weight decay has shut this output down, since no loss looks at it.",
            high="This output is in use.",
            chart=Chart("output_weights", "Weights of the outputs", "mean absolute weight"),
            xlabel="output channel",
        ),
        "used": _weight(
            title="Weights inside of the subvector",
            text="Mean absolute weight of the outputs that the loss looks at.",
            low="Near 0: weight decay has shut these outputs down, although the loss looks at them.",
            high="These outputs are in use.",
            chart=_SPLIT,
            label="inside",
        ),
        "unused": _weight(
            title="Weights outside of the subvector",
            text="Mean absolute weight of the outputs that the loss does not look at.",
            low="Near 0: weight decay has shut these outputs down.",
            high="As high as inside of the subvector: weight decay has not shut these outputs down yet.",
            chart=_SPLIT,
            label="outside",
        ),
    }

    full_state_update = False

    def __init__(self, layer: str, split: int | None = None) -> None:
        super().__init__()
        if split is not None:
            at_least(1, split=split)
        self.layer = layer
        self.split = split
        self.weight: Tensor | None = None

    def update(self, encoder: nn.Module) -> None:
        """Read the weight (outputs, inputs, ...) of the chosen layer of the encoder."""
        weight = _named(encoder, self.layer)
        if self.split is not None and self.split >= len(weight):
            raise ValueError(f"Expected `split` < {len(weight)}, the outputs of {self.layer!r}, but got {self.split}.")
        self.weight = in_float64(weight.detach()).abs().flatten(1).mean(dim=1)

    def compute(self) -> dict[str, Tensor]:
        if self.weight is None:
            raise ValueError("Expected OutputWeights to have observed an encoder, but got none.")
        if self.split is None:
            return {"weight": self.weight}
        used, unused = self.weight[: self.split].mean(), self.weight[self.split :].mean()
        return {"weight": self.weight, "used": used, "unused": unused}

    def reset(self) -> None:
        super().reset()
        self.weight = None


def _named(encoder: nn.Module, layer: str) -> Tensor:
    module = submodule(encoder, layer, "layer")
    weight = dict(module.named_parameters(recurse=False)).get("weight")
    if weight is None or weight.ndim < 2:
        raise ValueError(f"Expected `layer` to have a weight (out, in, ...), but got {type(module).__name__}.")
    return weight
