"""Numbers for samples whose index in the data set is unknown."""

__all__ = ["RowNumbers"]

import torch
from torch import Tensor

from lightning_ssl_geometry.distributed import rank, world_size


class RowNumbers:
    """Numbers the samples of a Metric as they come, if `update` gets no `index`.

    Sample k of rank r has the number k R + r, for R ranks and k = 0, 1, ... So no two ranks share a number. A data
    loader without shuffling gives every sample the same number on one rank and on several.
    """

    def __init__(self) -> None:
        self._count = 0
        self._given: bool | None = None  # None: there was no update

    @property
    def used(self) -> bool:
        """Whether the samples were numbered."""
        return self._given is False

    def of(self, index: Tensor | None, samples: Tensor) -> Tensor:
        """Return `index`, or the numbers (N,) of the next N `samples` (N, ...) if `index` is None.

        If an earlier update had an index and this one has none, or the other way round, raise a ValueError.
        """
        if self._given is (index is None):
            raise ValueError("Expected `index` in every update or in none, but got both. Call `reset` in between.")
        self._given = index is not None
        if index is not None:
            return index
        first, self._count = self._count, self._count + len(samples)
        return torch.arange(first, self._count, device=samples.device) * world_size() + rank()

    def forget(self) -> None:
        """Begin to count anew."""
        self._count, self._given = 0, None
