"""Intrinsic dimension of representations (Facco et al. 2017; Levina & Bickel 2004)."""

__all__ = ["IntrinsicDimension"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, first_view
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.intrinsic_dimension import (
    distances_mle_dimension,
    distances_two_nn_dimension,
    neighbor_distances,
)
from lightning_ssl_geometry.papers import FACCO, LEVINA
from lightning_ssl_geometry.precision import in_float64
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
_ROWS = 512  # rows whose distances to all others are in memory at once
_LEAST = 20  # the standard error of d from N ratios is d / sqrt(N - 2)


class IntrinsicDimension(SampledRows):
    """Intrinsic dimension of `contrast_size` representations, by two estimators.

    Observes the first view of h, with D dimensions, and the index of each sample in the data set. `two_nn` (Facco et
    al. 2017) uses the distances to the two nearest neighbours. `mle` (Levina & Bickel 2004) uses the distances to
    `neighbors` nearest neighbours. The estimates are >= 0 and can exceed D. They are too low for few samples and a high
    dimension. Representations that coincide up to rounding count as one point. The estimates are NaN if h is not finite
    or fewer than 20 points are distinct. `mle` is also NaN if at most `neighbors` points are distinct. Memory:
    O(contrast_size D). `compute` costs O(contrast_size^2 D). Equations: :func:`functional.two_nn_dimension`,
    :func:`functional.mle_dimension`.

    Args:
        neighbors: Number of nearest neighbours that `mle` uses, from 2 to contrast_size - 1.
        discard: Share of the points, in (0, 1), that `two_nn` leaves out: those with the largest distance ratios.
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
    """

    section = "ranks"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
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
        inside(f"[2, {contrast_size})", neighbors=neighbors)
        inside("(0, 1)", discard=discard)
        self.neighbors = neighbors
        self.discard = discard

    def update(self, h: Tensor, index: Tensor | None = None) -> None:
        """Add `h` (V, N, D) or (N, D) for V views of N samples, and `index` (N,), their indices in the data set."""
        # the views of one sample would be its nearest neighbours
        self.offer(index, h=first_view("h", h))

    def compute(self) -> dict[str, Tensor]:
        h = self.rows()["h"]
        if not h.isfinite().all():
            return dict.fromkeys(("two_nn", "mle"), undefined(self, "`h` is not finite"))
        if all_alike(h[:, None]):
            return dict.fromkeys(("two_nn", "mle"), undefined(self, "all of `h` is one point but for rounding"))
        distance = self._distances(h) if len(h) >= _LEAST else None
        if distance is None or (distance[:, 0] <= _lost(h)).any():  # rare: finding equal points is slow
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
    """Return the rows of `h` (N, D) without repeats. Rows that are equal up to rounding in float32 are repeats."""
    h = in_float64(h)
    lost = _lost(h)
    order, first = torch.arange(len(h), device=h.device), []
    for rows in order.split(_ROWS):
        near = torch.cdist(h[rows], h) <= lost[rows, None]
        first.append(~(near & (order < rows[:, None])).any(dim=1))
    return h[torch.cat(first)]


def _lost(h: Tensor) -> Tensor:
    # below this distance, float32 cannot tell two rows apart
    return 1e-6 * in_float64(h).abs().amax(dim=1)
