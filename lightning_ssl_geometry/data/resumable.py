"""What DataModules share whose batches are functions of (seed, epoch, position): where training is, and resuming it."""

__all__ = ["ResumableDataModule", "check_training_size"]

from abc import ABC, abstractmethod
from typing import Any

import lightning as L
from torch import nn

from lightning_ssl_geometry.data.loader import BatchLoader, BatchSource, GlobalBatchSampler
from lightning_ssl_geometry.deprecation import deprecated


def check_training_size(size: int) -> None:
    """Refuse a training set of one sample, which a contrastive loss has nothing to contrast with; an empty one is none.

    Raises:
        ValueError: If it has one sample.

    >>> check_training_size(1)
    Traceback (most recent call last):
    ValueError: Expected at least 2 training samples, but got 1, which has no others to be contrasted with.
    """
    if size == 1:
        raise ValueError("Expected at least 2 training samples, but got 1, which has no others to be contrasted with.")


class ResumableDataModule(L.LightningDataModule, ABC):
    """Base: a subclass says in :meth:`training_loader` what to train on, and a resumed run continues there.

    On one machine that is to the last bit; another processor rounds otherwise, and so would train on from there.

    Args:
        batch_size: Samples per process.
        seed: Of the order, and of what else a subclass draws.
        saved: What a checkpoint is to hold, and to bring back, beside the place in training; None: nothing.

    Raises:
        ValueError: If `batch_size` is not positive.
    """

    def __init__(self, batch_size: int, seed: int, saved: nn.Module | None = None) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"Expected `batch_size` >= 1, but got {batch_size}.")
        self.batch_size = batch_size
        self.seed = seed
        self._saved = saved
        self._training: BatchLoader | None = None
        self._resumed: dict[str, int] | None = None

    @abstractmethod
    def training_loader(self) -> BatchLoader:
        """Make the loader of an epoch's batches."""

    def clean_dataloader(self, split: str) -> BatchLoader:
        """Call `unaugmented_dataloader`, the new name of this method."""
        deprecated(f"`{type(self).__name__}.clean_dataloader`", "`unaugmented_dataloader`")
        return self.unaugmented_dataloader(split)  # type: ignore[attr-defined]

    def train_dataloader(self) -> BatchLoader:
        """Batches for training, from where a checkpoint left it."""
        self._training = self.training_loader()
        if self._resumed is not None:
            self._training.load_state_dict(self._resumed)
            self._resumed = None
        return self._training

    def state_dict(self) -> dict[str, Any]:
        """The place in training. Lightning saves the loader's too, but loses it where it asks early for its length."""
        state: dict[str, Any] = {} if self._training is None else {"training": self._training.state_dict()}
        return state if self._saved is None else state | {"saved": self._saved.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Bring back what was saved, and let the next training loader begin there where the run is one of training."""
        if self._saved is not None:
            self._saved.load_state_dict(state_dict["saved"])
        if self.trainer is not None and self.trainer.state.fn == "fit":
            self._resumed = state_dict.get("training")

    @property
    def _overfits(self) -> bool:
        """Whether the Trainer wants the same batches in every epoch."""
        return self.trainer is not None and self.trainer.overfit_batches > 0  # type: ignore[attr-defined]

    def _batches(self, source: BatchSource, size: int, shuffle: bool = False, drop_last: bool = False) -> BatchLoader:
        """Make this rank's loader of batches of a source with `size` samples."""
        if (trainer := self.trainer) is None:
            return BatchLoader(source, GlobalBatchSampler(size, self.batch_size, shuffle, drop_last, self.seed))
        world_size, rank = trainer.world_size, trainer.global_rank
        sampler = GlobalBatchSampler(size, self.batch_size, shuffle, drop_last, self.seed, world_size, rank)
        progress = trainer.fit_loop.epoch_loop.batch_progress
        return BatchLoader(source, sampler, lambda: progress.current.processed)  # type: ignore[attr-defined]
