"""Batches as slices of indices: one order for any number of processes, and a loader that resumes within an epoch."""

__all__ = ["BatchLoader", "GlobalBatchSampler"]

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, DistributedSampler

from lightning_ssl_geometry.functional.counter import counter_hash


class GlobalBatchSampler(DistributedSampler):
    """This rank's part of each global batch, as a tensor of positions.

    The order is a function of (seed, epoch). Global batch s is a slice of it, and rank r takes every world_size-th
    position from the r-th on: 1 process with batch size B and 2 with B / 2 see the same global batches. Nothing is
    padded or repeated. With `drop_last`, batches are full and the tail of the order waits for another epoch;
    without, the order is cut into balanced batches, so that every rank has as many of them, none empty.

    It is a DistributedSampler so that Lightning neither replaces it nor forgets to set its epoch.

    Args:
        size: Number of samples in the set.
        batch_size: Samples per process and batch, at most.
        shuffle: Draw an order for each epoch; else that of the set.
        drop_last: Only full batches.
        seed: Of the order.
        world_size: Number of processes.
        rank: This one's.

    Raises:
        ValueError: If the set is too small for one full global batch, or for a sample on every rank in each batch.
    """

    def __init__(
        self,
        size: int,
        batch_size: int,
        shuffle: bool = False,
        drop_last: bool = False,
        seed: int = 0,
        world_size: int = 1,
        rank: int = 0,
    ) -> None:
        super().__init__(range(size), world_size, rank, shuffle, seed, drop_last)  # type: ignore[arg-type]
        self.size = size
        self.global_batch_size = batch_size * world_size
        self.start = 0
        if drop_last and size < self.global_batch_size:
            raise ValueError(
                f"Expected `batch_size` x processes of at most {size}, the number of samples, "
                f"but got {batch_size} x {world_size}. Lower it, or set `drop_last` to False."
            )
        if size // len(self) < world_size:
            raise ValueError(f"Expected at least one sample per process and batch, but got {size} for {world_size}.")

    def __len__(self) -> int:
        """Number of batches."""
        return self.size // self.global_batch_size if self.drop_last else -(-self.size // self.global_batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield positions, from batch `start` on; the next pass begins at batch 0 again."""
        start, self.start = self.start, 0
        order = self._order()
        if self.drop_last:
            batches = order[: len(self) * self.global_batch_size].split(self.global_batch_size)
        else:
            batches = order.tensor_split(len(self))
        for batch in batches[start:]:
            yield batch[self.rank :: self.num_replicas]

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(int(counter_hash(self.seed, self.epoch)) & ((1 << 63) - 1))
        return torch.randperm(self.size, generator=generator)


class BatchLoader(DataLoader):
    """A DataLoader over whole batches whose place in the epoch is saved in Lightning's checkpoints.

    Args:
        dataset: Indexed by a tensor of positions.
        sampler: Yields such tensors.
    """

    def __init__(self, dataset: Dataset, sampler: GlobalBatchSampler) -> None:
        super().__init__(dataset, batch_size=None, sampler=sampler)
        self._order = sampler
        self._yielded = 0

    def __iter__(self) -> Iterator[Any]:  # type: ignore[override]
        """Yield batches, counting them."""
        self._yielded = self._order.start
        for batch in super().__iter__():
            self._yielded += 1
            yield batch

    def state_dict(self) -> dict[str, int]:
        """The number of batches of this epoch that were handed out."""
        return {"batches": self._yielded % len(self)}

    def load_state_dict(self, state: dict[str, int]) -> None:
        """Begin the next pass behind them."""
        self._order.start = state["batches"]
