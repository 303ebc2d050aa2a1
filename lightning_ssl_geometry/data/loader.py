"""Batches as slices of indices: one order for any number of processes, and a loader that resumes within an epoch."""

__all__ = ["BatchLoader", "GlobalBatchSampler"]

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from lightning_ssl_geometry.random import counter_hash


class GlobalBatchSampler(DistributedSampler[Tensor]):
    """This rank's part of each global batch, as a tensor of positions.

    The order is a function of (seed, epoch). Global batch s is a slice of it, and rank r takes every world_size-th
    position from the r-th on: 1 process with batch size B and 2 with B / 2 see the same global batches. Nothing is
    padded or repeated. With `drop_last`, batches are full and the tail of the order waits for another epoch;
    without, the order is cut into balanced batches, so that every rank has as many of them, none empty.

    It is a DistributedSampler so that Lightning does not replace it in a DataLoader either.

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

    >>> [batch.tolist() for batch in GlobalBatchSampler(7, batch_size=2, world_size=2, rank=1)]
    [[1, 3], [5]]
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
        self._lag = 0
        if drop_last and size < self.global_batch_size:
            raise ValueError(
                f"Expected `batch_size` x processes of at most {size}, the number of samples, "
                f"but got {batch_size} x {world_size}. Lower it, or set `drop_last` to False."
            )
        if size < world_size or size // len(self) < world_size:
            raise ValueError(
                f"Expected a sample for each of {world_size} processes in every batch, but {size} samples in batches "
                f"of at most {batch_size} x {world_size} leave a process without. Raise `batch_size` or the set's size."
            )

    def __len__(self) -> int:
        """Number of batches."""
        return self.size // self.global_batch_size if self.drop_last else -(-self.size // self.global_batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        """Yield the positions of each batch."""
        order = self._order()
        if self.drop_last:
            batches = order[: len(self) * self.global_batch_size].split(self.global_batch_size)
        else:
            batches = order.tensor_split(len(self))
        for batch in batches:
            yield batch[self.rank :: self.num_replicas]

    def set_epoch(self, epoch: int) -> None:
        """Choose the order; Lightning calls this at the start of each epoch."""
        super().set_epoch(epoch - self._lag)

    def recount(self, epoch: int) -> None:
        """Let the epoch that was set last be `epoch`, and the later ones follow on it."""
        self._lag += self.epoch - epoch
        self.epoch = epoch

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(int(counter_hash(self.seed, self.epoch)) & ((1 << 63) - 1))
        return torch.randperm(self.size, generator=generator)


class BatchSource(Protocol):
    """What a tensor of positions picks a batch from."""

    def __getitem__(self, positions: Tensor, /) -> dict[str, Any]:
        """The samples at these positions."""


class BatchLoader:
    """Yields whole batches, and the `epoch` that they belong to; its place in training is saved by Lightning.

    Not a torch DataLoader: that draws from the global random state at every pass, Lightning advises to give it
    workers, which would slow a slice down, and would cut it into single positions under `overfit_batches`.

    How far an epoch was trained is asked of the Trainer, at the checkpoint and again at the first batch after a
    resume: a batch may have been handed out that was not trained when the run was interrupted, and Lightning counts
    an epoch that `max_steps` cut short as a whole one but resumes in its middle.

    Args:
        source: Indexed by a tensor of positions.
        sampler: Yields such tensors.
        trained: Says how many batches of the current epoch were trained; None: as many as were handed out.

    Attributes:
        sampler: As given; Lightning sets its epoch.
        repeatable: Whether a pass beside Lightning's changes nothing: batches are a function of the epoch.
    """

    repeatable = True

    def __init__(
        self, source: BatchSource, sampler: GlobalBatchSampler, trained: Callable[[], int] | None = None
    ) -> None:
        self.sampler = sampler
        self.batch_sampler = None  # Lightning asks for it where there is a sampler
        self._source = source
        self._trained = trained or self._handed_out
        self._epoch = 0
        self._handed = 0
        self._resumed_at: int | None = None

    def __len__(self) -> int:
        """Number of batches of a whole epoch."""
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of the sampler's epoch; those that were left, at first after a resume."""
        self._handed = 0 if self._resumed_at is None else self._resume(self._resumed_at)
        self._epoch = self.sampler.epoch
        for positions in islice(self.sampler, self._handed, None):
            self._handed += 1
            yield self._source[positions] | {"epoch": self._epoch}

    def state_dict(self) -> dict[str, int]:
        """The epoch that was begun last, and how many of its batches were trained."""
        return {"epoch": self._epoch, "batches": self._trained() if self._resumed_at is None else self._resumed_at}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Let the next pass take up a saved epoch, or the one after it, as the Trainer says by then."""
        self._epoch, self._resumed_at = state_dict["epoch"], state_dict["batches"]
        self._handed = self._resumed_at if self._resumed_at < len(self) else 0

    def _resume(self, saved: int) -> int:
        self._resumed_at, start = None, self._trained()
        # The Trainer's count begins anew where it holds the saved epoch to be complete.
        self.sampler.recount(self._epoch if start == saved else self._epoch + 1)
        return start

    def _handed_out(self) -> int:
        return self._handed
