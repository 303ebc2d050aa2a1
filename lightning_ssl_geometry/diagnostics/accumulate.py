"""The two things that diagnostics accumulate over batches and ranks: second moments, and a capped sample of rows."""

__all__ = ["Moments", "SampledRows"]

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.functional.counter import counter_hash


class Moments(Metric):
    """Base: the second moments of rows, exact over any number of batches in D x D memory.

    It keeps n, the sum of h and the sum of h h^T in float64, which add over batches and ranks; an update costs
    O(N D^2). A subclass computes from :meth:`singular_values`.

    Args:
        center: Subtract the mean row.
    """

    full_state_update = False
    rows: Tensor
    total: Tensor
    outer: Tensor

    def __init__(self, center: bool = False) -> None:
        super().__init__()
        self.center = center
        self.add_state("rows", torch.zeros((), dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("total", torch.zeros(0, dtype=torch.float64), dist_reduce_fx="sum")
        self.add_state("outer", torch.zeros(0, 0, dtype=torch.float64), dist_reduce_fx="sum")

    def update(self, h: Tensor) -> None:
        """Add rows: h (V, N, D) or (N, D)."""
        h = h.reshape(-1, h.shape[-1]).double()
        if not self.outer.numel():
            self.total = h.new_zeros(h.shape[-1])
            self.outer = h.new_zeros(h.shape[-1], h.shape[-1])
        self.rows += len(h)
        self.total += h.sum(0)
        self.outer += h.T @ h

    def singular_values(self) -> Tensor:
        """Singular values of all rows seen, divided by sqrt(n): (D,), float64, descending.

        They come from the D x D moments, so one below 1e-8 of the largest is rounding.

        Raises:
            ValueError: If no row was seen.
        """
        if not self.rows:
            raise ValueError(f"Expected {type(self).__name__} to have observed rows, but got none.")
        mean = self.total / self.rows
        moments = self.outer / self.rows - (torch.outer(mean, mean) if self.center else 0.0)
        return torch.linalg.eigvalsh(moments).flip(0).clamp(min=0).sqrt()  # rounding may give -1e-17


class SampledRows(Metric):
    """Base: the same `contrast_size` samples however they arrive, for quantities that contrast samples.

    It keeps the samples whose hash of (seed, index) is smallest: a choice that does not depend on batches, order or
    ranks, and counts a repeated sample once. A subclass computes from :meth:`sample`.

    Args:
        contrast_size: Number of samples kept, >= 2; with fewer observed, all of them are kept.
        seed: Another seed chooses other samples.

    Raises:
        ValueError: If `contrast_size` < 2.
    """

    full_state_update = False
    kept: list[Tensor]
    key: list[Tensor]

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__()
        if contrast_size < 2:
            raise ValueError(f"Expected `contrast_size` >= 2, but got {contrast_size}.")
        self.contrast_size = contrast_size
        self.seed = seed
        self.add_state("kept", [], dist_reduce_fx="cat")  # lists of at most one tensor: their length may differ
        self.add_state("key", [], dist_reduce_fx="cat")  # between ranks, which a tensor state's may not

    def update(self, z: Tensor, index: Tensor) -> None:
        """Offer samples: z (V, N, P), and the position of each in its data set, index (N,)."""
        if z.ndim != 3 or index.shape != z.shape[1:2]:
            raise ValueError(
                f"Expected `z` of shape (V, N, P) and `index` of (N,), but got {tuple(z.shape)}, {tuple(index.shape)}."
            )
        rows, key = self._smallest([*self.kept, z.transpose(0, 1)], [*self.key, counter_hash(self.seed, index)])
        self.kept, self.key = [rows], [key]

    def sample(self) -> Tensor:
        """Views of the kept samples, (V, n, P), in an order that does not depend on their arrival.

        Raises:
            ValueError: If fewer than 2 samples were seen.
        """
        if not len(self.kept):
            raise ValueError(f"Expected {type(self).__name__} to have observed at least 2 samples, but got none.")
        rows, _ = self._smallest([dim_zero_cat(self.kept)], [dim_zero_cat(self.key)])
        if len(rows) < 2:
            raise ValueError(f"Expected {type(self).__name__} to have observed at least 2 samples, but got 1.")
        return rows.transpose(0, 1)

    def _smallest(self, rows: list[Tensor], keys: list[Tensor]) -> tuple[Tensor, Tensor]:
        key, order = torch.cat(keys).sort(stable=True)
        first = torch.ones_like(key, dtype=torch.bool)
        first[1:] = key[1:] != key[:-1]
        chosen = first.nonzero()[: self.contrast_size, 0]
        return torch.cat(rows)[order[chosen]], key[chosen]
