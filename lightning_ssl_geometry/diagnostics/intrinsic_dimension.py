"""Intrinsic dimension of representations (Facco et al. 2017; Levina & Bickel 2004)."""

__all__ = ["IntrinsicDimension"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics.accumulate import SampledRows
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.intrinsic_dimension import (
    distances_mle_dimension,
    distances_two_nn_dimension,
    neighbor_distances,
)
from lightning_ssl_geometry.papers import FACCO, LEVINA
from lightning_ssl_geometry.quantity import Chart, Quantity

_CHART = Chart("intrinsic_dimension", "Intrinsic dimension", "dimensions")
_dimension = partial(
    Quantity,
    low="The representations lie near a manifold of few dimensions, which may be curved.",
    high="They fill many dimensions around each point.",
    bounds=(0, None),
    invariances=("rotation", "scale", "translation", "permutation"),
    comparable=("temperature", "batch size"),
    chart=_CHART,
)
_ROWS = 512  # whose distances to all others are in memory at once
_LEAST = 20  # N ratios tell d to d / sqrt(N - 2)


class IntrinsicDimension(SampledRows):
    """Dimension of the cloud that `contrast_size` representations form, by two estimators.

    Observes h and index; of several views the first, as the views of one sample would be its nearest neighbours. At
    least 0, not bounded by D: low means that the representations lie near a thin, possibly curved, manifold, high that
    they fill many dimensions around each point. `two_nn` looks at two neighbours, `mle` at `neighbors`: the first is
    noisier and sees finer scales. Both are too small in many dimensions, where a sample would have to grow
    exponentially; part of the value is `contrast_size`.
    Representations that coincide, as those of two blank crops do, count as one point, also where only rounding tells
    them apart: the dimension is that of the distinct ones. NaN below 20 of these, where the standard error of `two_nn`
    is above d / 4, where all are one point but for rounding, or where one is not finite; `mle` also where there are no
    more than `neighbors`.
    O(contrast_size D) memory, O(contrast_size^2 D) to compute, in tiles.
    Equations: :func:`lightning_ssl_geometry.functional.two_nn_dimension`,
    :func:`lightning_ssl_geometry.functional.mle_dimension`.

    Args:
        neighbors: Of `mle`, from 2 to contrast_size - 1.
        discard: As in the function of `two_nn`.
        contrast_size: As in :class:`SampledRows`.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: If an argument is out of range; in `update`, if shapes do not fit; in `compute`, if fewer than 2
            samples were seen.
    """

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {
        "two_nn": _dimension(
            title="Intrinsic dimension, TwoNN",
            text="Dimension of the cloud that the representations form, from the distances to their two nearest "
            "neighbours. It underestimates high dimensions, the more so the fewer the samples.",
            paper=FACCO,
            label="TwoNN",
            headline=True,
        ),
        "mle": _dimension(
            title="Intrinsic dimension, MLE",
            text="Dimension of the cloud that the representations form, by maximum likelihood over more neighbours "
            "than TwoNN takes: smoother, and on a coarser scale.",
            paper=LEVINA,
            where="Eq. 8",
            label="MLE",
        ),
    }

    def __init__(self, neighbors: int = 20, discard: float = 0.1, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h",), contrast_size, seed)
        if not 2 <= neighbors < contrast_size:
            wanted = f"from 2 to {contrast_size - 1}, one less than `contrast_size`"
            raise ValueError(f"Expected `neighbors` {wanted}, but got {neighbors}.")
        if not 0 < discard < 1:
            raise ValueError(f"Expected `discard` in (0, 1), but got {discard}.")
        self.neighbors = neighbors
        self.discard = discard

    def update(self, h: Tensor, index: Tensor) -> None:
        """Offer samples: h (V, N, D), or (N, D) for one view, and the position of each in its data set, index (N,)."""
        self.offer(index, h=h[0] if h.ndim == 3 else h)

    def compute(self) -> dict[str, Tensor]:
        """Compute the scalars `two_nn` and `mle`."""
        h = self.rows()["h"]
        if not h.isfinite().all():
            return dict.fromkeys(("two_nn", "mle"), undefined(self, "`h` is not finite"))
        if all_alike(h[:, None]):
            return dict.fromkeys(("two_nn", "mle"), undefined(self, "all of `h` is one point but for rounding"))
        distance = self._distances(h) if len(h) >= _LEAST else None
        if distance is None or (distance[:, 0] <= _lost(h)).any():  # rare: finding equal points costs as much again
            distinct = _distinct(h)
            if len(distinct) < _LEAST:
                reason = f"{len(distinct)} distinct points of `h` are too few, at least {_LEAST} are needed"
                return dict.fromkeys(("two_nn", "mle"), undefined(self, reason))
            distance = self._distances(distinct)
        return {"two_nn": distances_two_nn_dimension(distance, discard=self.discard), "mle": self._mle(distance)}

    def _distances(self, h: Tensor) -> Tensor:
        return neighbor_distances(h, max(2, min(self.neighbors, len(h) - 1)))

    def _mle(self, distance: Tensor) -> Tensor:
        if distance.shape[1] < self.neighbors:
            return undefined(self, f"{len(distance)} distinct points of `h` are no more than `neighbors`")
        return distances_mle_dimension(distance)


def _distinct(h: Tensor) -> Tensor:
    """Rows (N, D) without those that coincide with an earlier one but for the rounding of float32."""
    h = h.double()
    lost = _lost(h)
    order, first = torch.arange(len(h), device=h.device), []
    for rows in order.split(_ROWS):
        near = torch.cdist(h[rows], h) <= lost[rows, None]
        first.append(~(near & (order < rows[:, None])).any(dim=1))
    return h[torch.cat(first)]


def _lost(h: Tensor) -> Tensor:
    """Distance (N,) within which rounding to float32 may put a row that is equal to a row of `h` (N, D)."""
    return 1e-6 * h.double().abs().amax(dim=1)
