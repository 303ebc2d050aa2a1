"""Ranks and spectra of representations, and of the projector's weights."""

__all__ = ["EffectiveRank", "LogSpectrum", "ProjectorRank", "rank_or_nan"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import Moments, evaluating
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.spectrum import (
    RankMode,
    matrix_singular_values,
    singular_values_effective_rank,
    singular_values_rank,
)
from lightning_ssl_geometry.papers import COSENTINO, DIRECTCLR, RANKME
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity, Verdict

_rank = partial(
    Quantity,
    paper=COSENTINO,
    where="Eq. 2, Fig. 1",
    bounds=(0, None),
    comparable=("rows", "views", "temperature", "batch size"),
)
_of_projector = partial(_rank, of_weights=True, parts=True)
_THRESHOLDS: tuple[tuple[RankMode, float], ...] = (
    *(("relative", 0.1), ("relative", 0.01), ("relative", 0.001)),
    *(("cumulative", 0.9), ("cumulative", 0.99)),
)


class EffectiveRank(Moments):
    """Effective rank of the rows of h. With the defaults, it is RankMe (singular values, uncentred, eps = 1e-7).

    Observes h, the representations of N samples with D dimensions. The value is in [1, D]. It is NaN if all rows are 0
    up to rounding. With `center`, it is also NaN if all rows are equal up to rounding. An update costs O(N D^2),
    `compute` O(D^3). Equation: :func:`functional.effective_rank`.

    Args:
        center: Whether to subtract the mean of the rows.
        eps: Added to the normalised singular values, to avoid log(0) in their entropy.
    """

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Effective rank",
            picks="high",  # RankMe
            text="Exponential of the entropy of the singular values: how many directions are used.",
            low="Near 1: nearly all rows lie along one direction (dimensional collapse).",
            high="Up to the number of dimensions: all directions are used alike.",
            paper=RANKME,
            where="Eq. 1 and 2",
            bounds=(1, None),
            cap="min(V * N, D)",
            invariances=("rotation", "scale", "permutation"),
            comparable=("temperature", "batch size"),
            chart=Chart(
                "effective_rank",
                "Effective rank",
                "directions",
                remark="Embeddings usually use fewer directions than representations: the projector drops what the "
                "loss asks it to ignore.",
            ),
            headline=True,
            verdicts=(
                Verdict(
                    says="The rows of {space} lie nearly along one of {D} directions (effective rank {value}): "
                    "collapse in whole, or a mean that outweighs all differences between the rows.",
                    when="value < 1.5",
                    given="D > 1 and N > 1",
                    source="Eq. 1: 1 only if all rows lie along one direction; rounded to whole directions",
                    paper=RANKME,
                    topic="all rows along one direction",
                ),
            ),
        )
    }

    def __init__(self, center: bool = False, eps: float = 1e-7) -> None:
        super().__init__(center)
        self.eps = eps

    def compute(self) -> Tensor:
        sigma = self.singular_values()
        if not sigma.any():
            return undefined(self, f"all of `h` is {'one row' if self.center else '0'} but for rounding")
        return singular_values_effective_rank(sigma, eps=self.eps)


class LogSpectrum(Moments):
    """Logarithms of the singular values of h / sqrt(n), for n samples h (n, D) (Cosentino et al. 2022, Fig. 4 and 9).

    The result (D,) is descending. Singular values below about 1e-7 times the norm of h are rounding errors and give
    -inf. An update of N samples costs O(N D^2), `compute` O(D^3). Equation: :func:`functional.log_singular_values`.

    Args:
        center: Whether to subtract the mean of the rows.
    """

    section = "spectra"
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Spectrum",
            text="Singular values of the rows, in order, divided by the square root of the number of rows.",
            low="Low values early on, a steep fall or a cliff: few directions carry variance.",
            high="High values up to the last index: all directions carry variance.",
            paper=COSENTINO,
            where="Fig. 4 and 9",
            invariances=("rotation", "permutation"),
            chart=Chart("spectrum", "Spectrum", "singular value"),
            picture=Picture("spectrum", logarithm=True),
            verdicts=(
                Verdict(
                    says="{space} leaves {zeros} of its {entries} dimensions unused: as many singular values are 0 up "
                    "to rounding (collapse in part).",
                    when="zeros > 0",
                    given="N > entries and entries - zeros > 1",
                    source="Sec. 3; from more samples than dimensions",
                    paper=DIRECTCLR,
                    topic="unused dimensions",
                ),
                Verdict(
                    says="Whether {space} has collapsed in part cannot be said: {V * N} rows span at most {V * N} of "
                    "its {entries} dimensions.",
                    when="V * N < entries",
                    source="a matrix of n rows has at most n singular values that are not 0",
                ),
            ),
        )
    }

    def compute(self) -> Tensor:
        return self.singular_values().log()


class ProjectorRank(Diagnostic):
    """Numerical rank and singular values of the projector's weights (Cosentino et al. 2022, Eq. 2 and Fig. 1).

    Observes a projector with one or several linear layers. Results at the last update, for a layer with D inputs and P
    outputs: `rank` in [0, min(D, P)], `singular_values` (min(D, P),) and `thresholds` (5,). Since the paper gives no
    threshold, `thresholds` holds the ranks for other ones: relative 0.1, 0.01 and 0.001, and cumulative 0.9 and 0.99.
    With several layers, each key ends with the name of a layer. Cost: O(D P min(D, P)).

    Args:
        tau: The rank counts the singular values that reach this threshold, by default 1% of the largest.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
    """

    section = "ranks"
    cost = Cost(update="D^2", compute="D^3", memory="D^2")
    quantities: ClassVar[dict[str, Quantity]] = {
        "rank": _of_projector(
            title="Projector rank",
            text="How many singular values of the projector's weight W reach a threshold. Where there are several "
            "linear layers, each has a W of its own; only linear layers are counted.",
            low="W passes on few directions. Strong augmentations lead there.",
            high="Up to the smaller side of W: it passes on as many directions as its shape allows.",
            cap="min(D, P)",  # for a single linear layer; the widths of inner layers are not known here
            chart=Chart("projector_rank", "Projector rank", "directions"),
            headline=True,
        ),
        "thresholds": _of_projector(
            title="Projector rank at other thresholds",
            text="The rank of W at five thresholds, as the paper gives none. 'max' counts the singular values that "
            "reach a share of the largest; '% of sum', how many of the largest make up a share of the sum of squares.",
            low="W passes on few directions.",
            high="Up to the smaller side of W: it passes on as many directions as its shape allows.",
            chart=Chart("projector_thresholds", "Projector rank at other thresholds", "directions"),
            picture=Picture(
                "components",
                names=tuple(
                    f"max \N{MULTIPLICATION SIGN} {tau:g}" if mode == "relative" else f"{100 * tau:g}% of sum"
                    for mode, tau in _THRESHOLDS
                ),
            ),
        ),
        "singular_values": _of_projector(
            title="Spectrum of the projector",
            text="Singular values of the projector's weight W.",
            low="Directions that W discards. Where W has fewer outputs than inputs, it also discards all directions "
            "beyond the last index.",
            high="Directions that the projector passes on.",
            where="Eq. 2",
            comparable=(),
            chart=Chart("projector_spectrum", "Spectrum of the projector", "singular value"),
            picture=Picture("spectrum"),
            section="spectra",
        ),
    }
    full_state_update = False

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative") -> None:
        super().__init__()
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode
        self.weights: dict[str, Tensor] = {}

    @classmethod
    def applies_to(cls, projector: nn.Module) -> bool:
        """Return whether the projector has a `torch.nn.Linear`."""
        return any(isinstance(module, nn.Linear) for module in projector.modules())

    def update(self, projector: nn.Module) -> None:
        """Copy the weights of all linear layers. If there is no linear layer, raise a ValueError."""
        layers = {name: layer for name, layer in projector.named_modules() if isinstance(layer, nn.Linear)}
        if not layers:
            raise ValueError(f"Expected `projector` to hold a torch.nn.Linear, but got {type(projector).__name__}.")
        names = [f"_{name.replace('.', '_')}" for name in layers] if len(layers) > 1 else [""]
        with evaluating(projector):  # in training mode, reading a weight with spectral norm would change it
            weights = [layer.weight.detach().clone() for layer in layers.values()]
        self.weights = dict(zip(names, weights, strict=True))

    def compute(self) -> dict[str, Tensor]:
        self.require(len(self.weights), "a projector")
        spectra = {name: self._spectrum(in_float64(weight)) for name, weight in self.weights.items()}
        ranks = {
            f"rank{name}": rank_or_nan(singular_values_rank(sigma, self.tau, mode=self.mode), sigma)
            for name, sigma in spectra.items()
        }
        thresholds = {f"thresholds{name}": _at_thresholds(sigma) for name, sigma in spectra.items()}
        return ranks | thresholds | {f"singular_values{name}": sigma for name, sigma in spectra.items()}

    def reset(self) -> None:
        super().reset()
        self.weights = {}

    def _spectrum(self, weight: Tensor) -> Tensor:
        if not weight.isfinite().all():
            return undefined(
                self, "a weight of `projector` is not finite", like=weight[0, :1].expand(min(weight.shape))
            )
        return matrix_singular_values(weight)


def rank_or_nan(rank: Tensor, sigma: Tensor) -> Tensor:
    """Return `rank`, or NaN if one of the singular values `sigma` is NaN."""
    return sigma.new_tensor(torch.nan) if sigma.isnan().any() else rank


def _at_thresholds(sigma: Tensor) -> Tensor:
    ranks = [singular_values_rank(sigma, tau, mode=mode) for mode, tau in _THRESHOLDS]
    return torch.stack([rank_or_nan(rank, sigma).to(sigma) for rank in ranks])
