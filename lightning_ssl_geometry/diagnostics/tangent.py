"""Whether the projector keeps the directions between views and between samples (Cosentino et al. 2022)."""

__all__ = [
    "AugmentationRank",
    "NullSpaceFraction",
    "UnexplainedVariance",
    "is_linear_projector",
    "isotropic",
    "projector_weight",
]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import Moments, SampledRows, Standing, by_sample
from lightning_ssl_geometry.diagnostics.neighbors import has_neighbors
from lightning_ssl_geometry.diagnostics.spectrum import rank_or_nan
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.functional.tangent import column_space, share_outside
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_of_augmentations = partial(
    Quantity,
    paper=COSENTINO,
    where="Prop. 4.2",
    bounds=(0, None),
    invariances=("rotation", "translation", "permutation"),
)
_share = partial(Quantity, paper=COSENTINO, bounds=(0, 1), comparable=("temperature", "batch size"))
_missed = partial(_share, invariances=("scale", "permutation"), better="low", label="unexplained")
_NULL_SPACE = Chart("null_space", "Augmentations ignored by the projector", "share")
_UNEXPLAINED = Chart("unexplained_variance", "Unexplained variance", "share")
_UNEXPLAINED_TAU = Chart("unexplained_variance_tau", "Unexplained variance at a threshold", "share")


def isotropic(where: str, chart: Chart) -> Quantity:
    """Describe a baseline as a Quantity: the share of random directions that a projector ignores."""
    return Quantity(
        title="Isotropic",
        text="What directions drawn at random would give: 1 - rank / D. Only a distance from it is the work of "
        "training.",
        low="The projector has nearly full rank, at the threshold where there is one.",
        high="The projector has collapsed.",
        paper=COSENTINO,
        where=where,
        bounds=(0, 1),
        chart=chart,
        label="isotropic",
        baseline=True,
    )


class AugmentationRank(Moments):
    """Rank and spectrum of the augmentation directions h2 - h1 (Cosentino et al. 2022, Proposition 4.2).

    h1 and h2 are the first two views of a sample. Results for n samples with D dimensions: `rank` in [0, min(n, D)],
    and `singular_values` (D,), divided by sqrt(n). An update of N samples costs O(N D^2), `compute` O(D^3).

    Args:
        tau: The rank counts the singular values that reach this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
    """

    section = "augmentations"
    quantities: ClassVar[dict[str, Quantity]] = {
        "rank": _of_augmentations(
            title="Rank of the augmentations",
            text="How many directions of h the augmentations move in: the rank of v = h2 - h1.",
            low="The encoder maps augmentations onto few directions: the projector can ignore them and keep its rank.",
            high="Augmentations move h in nearly all directions: a projector cannot ignore them and keep its rank.",
            cap="min(N, D)",
            comparable=("temperature", "batch size"),
            chart=Chart("augmentation_rank", "Rank of the augmentations", "directions"),
        ),
        "singular_values": _of_augmentations(
            title="Spectrum of the augmentations",
            text="Singular values of the augmentation directions v = h2 - h1.",
            low="Low values early on, a steep fall: few directions carry the augmentations.",
            high="High values to the end: the augmentations move h in all directions.",
            chart=Chart("augmentation_spectrum", "Spectrum of the augmentations", "singular value"),
            picture=Picture("spectrum"),
        ),
    }

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative") -> None:
        super().__init__()
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode

    def update(self, h: Tensor) -> None:
        """Add `h` (V, N, D) for V >= 2 views of N samples. Only the first two views are used."""
        self.add_differences(by_sample("h", h, views=2))

    def compute(self) -> dict[str, Tensor]:
        sigma = self.singular_values()
        rank = rank_or_nan(singular_values_rank(sigma, self.tau, mode=self.mode), sigma)
        return {"rank": rank, "singular_values": sigma}


class NullSpaceFraction(Moments):
    """Share of the augmentation directions h2 - h1 that a linear projector ignores (Cosentino et al. 2022, Prop. 4.1).

    h1 and h2 are the first two views of a sample, with D dimensions. Results in [0, 1]: `fraction` is the share.
    `isotropic` is the share for random directions, 1 - rank / D, with the rank of the projector. At a `fraction` of 1,
    all directions lie in the projector's null space. `fraction` is NaN if the views coincide up to rounding. The
    weights must not change between updates. An update of N samples costs O(N D^2), `compute` O(D^2 P) for P outputs.

    Args:
        tau: The projector's null space has the directions with singular values below this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
    """

    section = "augmentations"
    quantities: ClassVar[dict[str, Quantity]] = {
        "fraction": _share(
            title="Augmentations ignored",
            text="Share of the augmentation directions v = h2 - h1 in the null space of the projector.",
            low="Near 0: the projector sees all that augmentations do.",
            high="Near 1: the projector ignores what augmentations do, so that the invariance term can be as low as "
            "possible.",
            where="Prop. 4.1",
            null="isotropic",
            invariances=("scale", "translation", "permutation"),
            chart=_NULL_SPACE,
            label="ignored",
        ),
        "isotropic": isotropic("Prop. 4.1", _NULL_SPACE),
    }

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative") -> None:
        super().__init__()
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode
        self.projector = Standing()

    def update(self, h: Tensor, projector: nn.Module) -> None:  # type: ignore[override]
        """Add the projector and `h` (V, N, D) for V >= 2 views of N samples. Only the first two views are used."""
        projector_weight(projector)  # checks that it is linear
        self.projector.hold(projector)
        self.add_differences(by_sample("h", h, views=2))

    def compute(self) -> dict[str, Tensor]:
        basis = column_space(projector_weight(self.projector.module()), self.tau, mode=self.mode)
        moment = self.outer.to(basis.device)
        if self.rounding < moment.trace() < torch.inf:
            fraction = share_outside(moment, basis)
        else:
            fraction = undefined(self, "the views of `h` coincide but for rounding, or are not finite")
        return {"fraction": fraction, "isotropic": moment.new_tensor(1 - basis.shape[1] / basis.shape[0])}


class UnexplainedVariance(SampledRows):
    """Share of the displacements h2 - h* that a linear projector ignores (Cosentino et al. 2022, Eq. 10, Fig. 7).

    h2 is the second view of a sample, with D dimensions. The hardest negative h* is the view of another sample with the
    most similar z. The embeddings z have P dimensions. Results in [0, 1]: `full` is the share outside the span of all
    directions of the projector's weight. `tau` uses only the directions with singular values that reach the threshold.
    `full_isotropic` and `tau_isotropic` are baselines for random displacements, 1 - rank / D. With fewer samples than
    D, the results describe only these samples. All results are NaN if all embeddings have the same direction. The
    weights must not change between updates. Memory: O(contrast_size (D + P)). `compute` costs
    O(contrast_size^2 P + contrast_size D^2). For non-linear projectors, use :class:`LocalUnexplainedVariance`.

    Args:
        tau: Threshold of the singular values.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        contrast_size: Number of samples kept, >= 2. With more samples, negatives are harder.
        seed: Determines which samples are kept.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N^2 D + N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "full": _missed(
            title="Unexplained variance",
            text="Share of the displacements h2 - h* outside the column space of the projector's W, with h* the vector "
            "of the hardest negative.",
            low="The projector spans the displacements. A trained one should lie below the isotropic value.",
            high="Near 1: the projector misses the displacements.",
            where="Eq. 10, Fig. 7",
            null="full_isotropic",
            chart=_UNEXPLAINED,
            headline=True,
        ),
        "full_isotropic": isotropic("Eq. 10", _UNEXPLAINED),
        "tau": _missed(
            title="Unexplained variance at a threshold",
            text="Share of the displacements h2 - h* outside those directions of W whose singular values reach a "
            "threshold.",
            low="The directions of W that count span the displacements.",
            high="Near 1: the directions that count miss the displacements. Far above the value of all directions: W "
            "needs its faint directions.",
            where="Eq. 10",
            null="tau_isotropic",
            chart=_UNEXPLAINED_TAU,
        ),
        "tau_isotropic": isotropic("Eq. 10", _UNEXPLAINED_TAU),
    }

    def __init__(
        self, tau: float = 1e-2, mode: RankMode = "relative", contrast_size: int = 1024, seed: int = 0
    ) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode
        self.projector = Standing()

    @by_position("projector")
    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, `index` (N,) and the projector."""
        projector_weight(projector)  # checks that it is linear
        self.projector.hold(projector)
        self.offer(index, h=by_sample("h", h, views=2), z=by_sample("z", z, views=2))

    def compute(self) -> dict[str, Tensor]:
        weight = projector_weight(self.projector.module())
        delta = displacements(self, **self.rows())
        found: dict[str, Tensor] = {}
        for name, tau in (("full", None), ("tau", self.tau)):
            basis = column_space(weight, tau, mode=self.mode)
            found[name] = delta[0, 0] if delta.isnan().any() else share_outside(delta.T @ delta, basis)
            found[f"{name}_isotropic"] = delta.new_tensor(1 - basis.shape[1] / len(basis))
        return found


def displacements(metric: Metric, h: Tensor, z: Tensor) -> Tensor:
    """Return the second view of each sample minus its hardest negative h*: (N, D), float64.

    h* is the view, in `h` (N, V, D), of another sample with the most similar embedding in `z` (N, V, P). If all
    embeddings have one direction, all displacements are 0 or a value is not finite, warn and return NaN.
    """
    h, z = in_float64(h), directions(metric, z)
    if not has_neighbors(metric, z):
        return torch.full_like(h[:, 1], torch.nan)
    index, view, _ = hardest_negative(z[:, 0], z[:, 1])
    delta = h[:, 1] - h[index, view]
    if not delta.isfinite().all() or not delta.any():
        return undefined(metric, "all displacements in `h` are 0, or one is not finite", like=delta)
    return delta


def is_linear_projector(projector: nn.Module) -> bool:
    """Return whether a module has one `torch.nn.Linear` and no other layers than Identity or Dropout."""
    acting = [m for m in projector.modules() if not any(m.children()) and not isinstance(m, nn.Identity | nn.Dropout)]
    return [isinstance(module, nn.Linear) for module in acting] == [True]


def projector_weight(projector: nn.Module) -> Tensor:
    """Return the weight W (D, P) of a linear projector z = W^T h + b, detached. For others, raise a ValueError."""
    if not is_linear_projector(projector):
        raise ValueError(
            f"Expected `projector` to be one torch.nn.Linear, but got {type(projector).__name__}, which has no single "
            "W. For other projectors: ProjectorRank (by layer), JacobianRank, LinearRegions, LocalUnexplainedVariance."
        )
    (layer,) = (module for module in projector.modules() if isinstance(module, nn.Linear))
    return layer.weight.detach().T
