"""Numbers for samples whose index in the data set is unknown."""

__all__ = ["RowNumbers"]

from torch import Tensor

from lightning_ssl_geometry.distributed import unique_numbers


class RowNumbers:
    """Numbers the samples of a Metric as they come, if `update` gets no `index`.

    The numbers are those of :func:`lightning_ssl_geometry.distributed.unique_numbers`: no two ranks share a number.
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
        return unique_numbers(first, len(samples), samples.device)

    def require(self) -> None:
        """Take an update without an index for an error until the next call of `forget`."""
        self._given = True

    def forget(self) -> None:
        """Begin to count anew."""
        self._count, self._given = 0, None
