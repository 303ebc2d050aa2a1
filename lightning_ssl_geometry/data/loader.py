"""A sampler with the same global batches for any number of processes, and a loader that can resume in mid-epoch."""

__all__ = ["BatchLoader", "GlobalBatchSampler"]

from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.utils.data import DistributedSampler

from lightning_ssl_geometry.random import counter_hash

_IN_WORDS = {"samples": "{} training samples", "global_batch": "`batch_size` x processes = {}", "seed": "`seed` = {}"}


class GlobalBatchSampler(DistributedSampler[Tensor]):  # Lightning replaces a sampler of another class
    """Yields this process's part of each global batch, as a tensor of positions in the data set.

    The order of the positions depends only on (seed, epoch). A global batch is a slice of this order. Rank r takes
    every `world_size`-th position of the slice, beginning with the r-th. So 1 process with batch size 8 and 2 processes
    with batch size 4 see the same global batches. No position is repeated. Without `drop_last`, the batches have nearly
    equal sizes.

    Args:
        size: Number of samples in the data set.
        batch_size: Largest number of samples per process and batch.
        shuffle: Whether to draw a new order in each epoch. False: the order of the data set.
        drop_last: Whether to leave out the last positions if they do not fill a global batch.
        seed: Seed of the order.
        world_size: Number of processes.
        rank: Index of this process.

    Raises:
        ValueError: If there are too few samples for a full global batch, or if a process would get a batch without
            samples.

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
        super().__init__(range(size), world_size, rank, shuffle=shuffle, seed=seed, drop_last=drop_last)  # type: ignore[arg-type]
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
        return self.size // self.global_batch_size if self.drop_last else -(-self.size // self.global_batch_size)

    def __iter__(self) -> Iterator[Tensor]:
        order = self._order()
        if self.drop_last:
            batches = order[: len(self) * self.global_batch_size].split(self.global_batch_size)
        else:
            batches = order.tensor_split(len(self))
        for batch in batches:
            yield batch[self.rank :: self.num_replicas]

    def set_epoch(self, epoch: int) -> None:
        super().set_epoch(epoch - self._lag)

    def recount(self, epoch: int) -> None:
        """Give the current epoch the number `epoch`, and count later epochs from there."""
        self._lag += self.epoch - epoch
        self.epoch = epoch

    def _order(self) -> Tensor:
        if not self.shuffle:
            return torch.arange(self.size)
        generator = torch.Generator().manual_seed(int(counter_hash(self.seed, self.epoch)) & ((1 << 63) - 1))
        return torch.randperm(self.size, generator=generator)


class BatchSource(Protocol):
    """Maps a tensor of positions to a batch. It may have a method `announce`, which gets them a batch earlier."""

    def __getitem__(self, positions: Tensor, /) -> dict[str, Any]: ...


class BatchLoader:
    """Yields batches, each with the number of its `epoch`, and can resume in mid-epoch.

    Args:
        source: Maps a tensor of positions to a batch.
        sampler: Yields tensors of positions. Lightning sets its epoch.
        trained: Returns the number of batches of the current epoch that the network was trained on. After an
            interruption, it can be smaller than the number of batches yielded. None: the number of batches yielded.
    """

    # A torch DataLoader would draw from the global random state in every pass. For that, Lightning would recommend
    # workers, and under `overfit_batches` it would split batches into single positions.

    repeatable = True  # batches are functions of the epoch, so a second pass beside Lightning's changes nothing

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
        self._saved: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self.sampler)

    def __iter__(self) -> Iterator[dict[str, Any]]:
        """Yield the batches of an epoch. After a resume, skip the batches that were already trained on."""
        self._handed = 0 if self._resumed_at is None else self._resume(self._resumed_at)
        self._epoch = self.sampler.epoch
        for positions in self._announced(islice(self.sampler, self._handed, None)):
            self._handed += 1
            yield self._source[positions] | {"epoch": self._epoch}

    def _announced(self, batches: Iterator[Tensor]) -> Iterator[Tensor]:
        announce = getattr(self._source, "announce", None)
        if announce is None:
            yield from batches
            return
        before: Tensor | None = None
        for positions in batches:
            announce(positions)
            if before is not None:
                yield before
            before = positions
        if before is not None:
            yield before

    def state_dict(self) -> dict[str, int]:
        """Return the current epoch and the number of its batches that the network was trained on."""
        done = self._trained() if self._resumed_at is None else self._resumed_at
        return {"epoch": self._epoch, "batches": done} | self._order()

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        """Continue the saved epoch in the next pass. If the Trainer counts this epoch as complete, begin a new one.

        The next pass raises a ValueError if the saved epoch had other batches, so that samples would be repeated or
        missed.
        """
        self._saved = state_dict
        self._epoch, self._resumed_at = state_dict["epoch"], state_dict["batches"]
        self._handed = self._resumed_at if self._resumed_at < len(self) else 0

    def _order(self) -> dict[str, int]:
        sampler = self.sampler
        return {"samples": sampler.size, "global_batch": sampler.global_batch_size, "seed": sampler.seed}

    def _resume(self, saved: int) -> int:
        self._resumed_at, start = None, self._trained()
        # The Trainer's count is 0 if it regards the saved epoch as complete, also one that `max_steps` cut short.
        if start == saved > 0:
            self._refuse_other_batches()
        self.sampler.recount(self._epoch if start == saved else self._epoch + 1)
        return start

    def _refuse_other_batches(self) -> None:
        for name, value in self._order().items():
            if (saved := self._saved.get(name, value)) != value:  # earlier versions saved none
                expected = _IN_WORDS[name].format(saved)
                raise ValueError(
                    f"Expected {expected} in the rest of the epoch of a checkpoint, but got {value}. After the epoch's "
                    "end, it can be changed."
                )

    def _handed_out(self) -> int:
        return self._handed
