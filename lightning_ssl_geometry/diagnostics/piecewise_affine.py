"""Rank, linear regions and unexplained variance of a non-linear projector at the samples (Cosentino et al. 2022)."""

__all__ = ["JacobianRank", "LinearRegions", "LocalUnexplainedVariance"]

import copy
from collections.abc import Sequence
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, by_sample, evaluating, first_view
from lightning_ssl_geometry.diagnostics.tangent import between_samples, centered, displacements, isotropic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.piecewise_affine import affine_map, linear_regions, unexplained_squares
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_UNEXPLAINED = Chart("local_unexplained_variance", "Unexplained variance, per linear region", "share")
_UNEXPLAINED_TAU = Chart(
    "local_unexplained_variance_tau", "Unexplained variance at a threshold, per linear region", "share"
)
_quantity = partial(Quantity, paper=COSENTINO, invariances=("permutation",), comparable=("temperature", "batch size"))
_jacobian = partial(_quantity, where="Eq. 11", bounds=(0, None))
_regions = partial(
    _quantity,
    text="Distinct linear pieces of the projector that the samples fall into.",
    where="Eq. 11, Fig. 8",
)
_missed = partial(_quantity, where="Eq. 10 and 11", bounds=(0, 1), better="low", label="unexplained")
_CHUNK = 32  # maps (D, P) in memory at once


class _AroundSamples(SampledRows):
    def __init__(self, columns: Sequence[str], contrast_size: int, seed: int) -> None:
        super().__init__(columns, contrast_size, seed)
        self.projector = Standing()

    def observe(self, projector: nn.Module, index: Tensor | None, **columns: Tensor) -> None:
        self.projector.hold(projector)
        self.offer(index, **columns)

    def network(self) -> nn.Module:
        """Return the projector. In half precision, return a copy in float32: only its weights are then rounded."""
        projector = self.projector.module()
        half = any(each.dtype in (torch.bfloat16, torch.float16) for each in projector.parameters())
        return copy.deepcopy(projector).float() if half else projector

    def known(self, column: str) -> tuple[Tensor, float]:
        rows = self.rows()[column]
        if rows.isfinite().all():
            return rows, 1.0
        return rows.nan_to_num(posinf=0.0, neginf=0.0), float(undefined(self, f"`{column}` is not finite"))


class _AroundRepresentations(_AroundSamples):
    def __init__(self, contrast_size: int, seed: int) -> None:
        super().__init__(("h",), contrast_size, seed)

    @by_position("projector")
    def update(self, h: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D), `index` (N,) and the projector. Only the first of the V views is used."""
        self.observe(projector, index, h=first_view("h", h))


class JacobianRank(_AroundRepresentations):
    """Mean numerical rank and mean spectrum of the projector's Jacobian at the samples (Cosentino et al. 2022, Eq. 2).

    Observes the first view of h, with D dimensions, and the projector, which maps h to P dimensions of z. Results,
    averaged over samples: `rank` in [0, min(D, P)], and `singular_values` (min(D, P),) in descending order. A rank of 0
    means that the projector is dead or saturated. For a linear projector, `rank` equals :class:`ProjectorRank`. Both
    are NaN if h is not finite. The weights must not change between updates. Memory: O(contrast_size D). `compute` costs
    P backward passes and O(D P min(D, P)) per sample. Equation: :func:`functional.piecewise_affine.affine_map`.

    Args:
        tau: The rank counts the singular values that reach this threshold.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N D^3 + N D F", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "rank": _jacobian(
            title="Rank of the projector's Jacobian",
            text="How many directions of h the projector passes on around a sample; the mean over samples. Of a "
            "linear projector it is the rank of W.",
            low="The projector discards most directions of h around the samples.",
            high="Up to min(D, P): the projector passes on as many directions as its shape allows.",
            cap="min(D, P)",
            chart=Chart("jacobian_rank", "Rank of the projector's Jacobian", "directions"),
        ),
        "singular_values": _jacobian(
            title="Spectrum of the projector's Jacobian",
            text="Singular values of the projector's Jacobian at a sample; the mean over samples.",
            low="Directions of h that the projector discards around the samples.",
            high="Directions that the projector passes on.",
            chart=Chart("jacobian_spectrum", "Spectrum of the projector's Jacobian", "singular value"),
            picture=Picture("spectrum"),
        ),
    }

    def __init__(self, tau: float = 1e-2, mode: RankMode = "relative", contrast_size: int = 256, seed: int = 0) -> None:
        super().__init__(contrast_size, seed)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        self.tau = tau
        self.mode: RankMode = mode

    def compute(self) -> dict[str, Tensor]:
        (h, known), projector = self.known("h"), self.network()
        with evaluating(projector):
            maps = (affine_map(projector, rows)[0] for rows in h.split(_CHUNK))
            sigma = torch.cat([torch.linalg.svdvals(in_float64(weight)) for weight in maps])
        rank = in_float64(singular_values_rank(sigma, self.tau, mode=self.mode))
        return {"rank": known * rank.mean(), "singular_values": known * sigma.mean(0)}


class LinearRegions(_AroundRepresentations):
    """Number of linear regions of a piecewise affine projector that contain a sample (Cosentino et al. 2022, Eq. 11).

    In a region, the projector is one affine map. Observes the first view of h, with D dimensions, and the projector.
    Results for n samples: `visited`, from 1 to n, is the number of regions, and `fraction` is visited / n. The weights
    must not change between updates. Memory: O(n D). `compute` costs a forward pass and a sort of n activation patterns.
    Equation: :func:`functional.piecewise_affine.linear_regions`.

    Args:
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N D + N F", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "visited": _regions(
            title="Linear regions visited",
            low="1: the projector is linear on these samples.",
            high="Up to the number of samples: the projector adapts to each.",
            bounds=(1, None),
            cap="N",
            chart=Chart("linear_regions_visited", "Linear regions visited", "regions"),
        ),
        "fraction": _regions(
            title="Linear regions",
            text="Distinct linear pieces of the projector that the samples fall into, per sample.",
            low="The projector acts as a few linear maps.",
            high="Near 100%: each sample has a piece of its own.",
            bounds=(0, 1),
            percent=True,
            chart=Chart("linear_regions", "Linear regions of the projector", "regions per sample"),
        ),
    }

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(contrast_size, seed)

    def compute(self) -> dict[str, Tensor]:
        (h, known), projector = self.known("h"), self.network()
        with evaluating(projector):
            visited = known * (in_float64(linear_regions(projector, h).max()) + 1)
        return {"visited": visited, "fraction": visited / len(h)}


class LocalUnexplainedVariance(_AroundSamples):
    """Share of the displacements h2 - h* outside the span of the projector's Jacobian (Cosentino et al. 2022, Eq. 10).

    h1 and h2 are the two views of a sample, with D dimensions. The hardest negative h* is the view of another sample
    with the most similar z. The embeddings z have P dimensions. The Jacobian is computed at h1. Results in [0, 1]:
    `full` is the share outside the span of all directions of the Jacobian. `tau` uses only the directions with singular
    values that reach the threshold. Each has two baselines: with `_between_samples`, the share of the displacement of
    h1 from the h1 of another sample, which is drawn once; with `_isotropic`, 1 - mean rank / D. All results are NaN if
    all embeddings are equal. For a linear projector and the same samples, `full` and `tau` equal those of
    :class:`UnexplainedVariance`. The weights must not change between updates. Memory: O(contrast_size (D + P)).
    `compute` costs O(contrast_size^2 P), and for each of the `samples` P backward passes and O(D P min(D, P)).
    Equation: :func:`functional.piecewise_affine.local_unexplained_variance`.

    Args:
        tau: Threshold of the singular values.
        mode: Unit of `tau`: "absolute", "relative" to the largest value, or "cumulative" share of the sum of squares.
        contrast_size: Number of samples kept, >= 2. Negatives come from these samples.
        samples: Number of the kept samples, >= 1, for which displacement and Jacobian are computed.
        seed: Determines which samples are kept.
    """

    section = "augmentations"
    cost = Cost(update="n D + N D", compute="N^2 D + D^3 + D F", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "full": _missed(
            title="Unexplained variance, per region",
            text="Share of the displacements h2 - h* that the projector misses, with the linear map of the region in "
            "which each sample lies.",
            low="The local maps span the displacements of their own samples.",
            high="Near 1: the local maps miss the displacements. Above the value between samples: they prefer other "
            "directions in which samples differ.",
            null="full_between_samples",
            chart=_UNEXPLAINED,
        ),
        "full_between_samples": between_samples("Eq. 10 and 11", _UNEXPLAINED),
        "full_isotropic": isotropic("Eq. 10 and 11", _UNEXPLAINED),
        "tau": _missed(
            title="Unexplained variance at a threshold, per region",
            text="Share of the displacements h2 - h* outside those directions of the local maps whose singular values "
            "reach a threshold.",
            low="The directions that count span the displacements.",
            high="Near 1: the directions that count miss the displacements. Far above the value of all directions: the "
            "local maps need their faint directions.",
            null="tau_between_samples",
            chart=_UNEXPLAINED_TAU,
        ),
        "tau_between_samples": between_samples("Eq. 10 and 11", _UNEXPLAINED_TAU),
        "tau_isotropic": isotropic("Eq. 10 and 11", _UNEXPLAINED_TAU),
    }

    def __init__(
        self,
        tau: float = 1e-2,
        mode: RankMode = "relative",
        contrast_size: int = 1024,
        samples: int = 256,
        seed: int = 0,
    ) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        singular_values_rank(torch.ones(1), tau, mode=mode)  # checks `tau` and `mode`
        at_least(1, samples=samples)
        self.tau = tau
        self.mode: RankMode = mode
        self.samples = samples

    @by_position("projector")
    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None, *, projector: nn.Module) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, `index` (N,) and the projector."""
        self.observe(projector, index, h=by_sample("h", h, views=2)[:, :2], z=by_sample("z", z, views=2)[:, :2])

    def compute(self) -> dict[str, Tensor]:
        rows, projector = self.rows(), self.network()
        delta = displacements(self, rows["h"], rows["z"])[: self.samples]
        if not rows["h"].isfinite().all():
            return dict.fromkeys(self.quantities, undefined(self, "`h` is not finite"))
        if not delta.any():  # displacements of the other samples are not 0; the ratio of these is 0 / 0
            undefined(self, "all displacements in `h` are 0")
        h, rounding = centered(rows["h"][:, 0])
        between = (h - h.roll(1, 0))[: self.samples]  # rows are in the order of a hash
        if not between.square().sum() > rounding:
            between = undefined(self, "all rows of `h` coincide but for rounding", like=between)
        parts = []
        with evaluating(projector):
            for rows_of in torch.arange(len(delta), device=delta.device).split(_CHUNK):
                weight, _ = affine_map(projector, rows["h"][rows_of, 0])
                squares, rank = unexplained_squares(delta[rows_of], weight, [None, self.tau], mode=self.mode)
                others, _ = unexplained_squares(between[rows_of], weight, [None, self.tau], mode=self.mode)
                parts.append((squares, others, rank))
        squares, others, rank = (torch.cat(part, 1) for part in zip(*parts, strict=True))  # (2, samples)
        shares, nulls = squares.sum(1) / delta.square().sum(), others.sum(1) / between.square().sum()
        random = 1 - in_float64(rank).mean(1) / delta.shape[1]
        found: dict[str, Tensor] = {}
        for name, *values in zip(("full", "tau"), shares, nulls, random, strict=True):
            found |= dict(zip((name, f"{name}_between_samples", f"{name}_isotropic"), values, strict=True))
        return found
