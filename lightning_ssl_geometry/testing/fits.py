"""A method with its data, and short fits of it, as the contracts of `check_method` get them."""

__all__ = ["QUIET", "Fit", "MethodCase", "same_weights", "silent"]

import copy
import logging
import signal
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor

QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "max_epochs": 2,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


@contextmanager
def silent() -> Iterator[None]:
    """Silence what Lightning logs about devices, limits and checkpoints."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


@contextmanager
def _interruptible(trainer: L.Trainer) -> Iterator[None]:
    """Raise a KeyboardInterrupt where Lightning ends the process and ignores further ones."""
    handler = signal.getsignal(signal.SIGINT)
    try:
        yield
    except SystemExit as error:
        if not trainer.interrupted:
            raise
        signal.signal(signal.SIGINT, handler)
        raise KeyboardInterrupt from error


class Fit(NamedTuple):
    """A fit that has ended."""

    module: L.LightningModule
    trainer: L.Trainer


class MethodCase:
    """A method with its data, and its fits.

    Args:
        module: The LightningModule, which stays untrained: each fit trains a copy.
        datamodule: The data of the fits.
        folder: Where the fits write.
    """

    callbacks: Callable[[], Iterable[L.Callback]] | None = None
    settings: Mapping[str, Any] = QUIET

    def __init__(self, module: L.LightningModule, datamodule: L.LightningDataModule, folder: Path) -> None:
        for argument, given, kind in (
            ("module", module, L.LightningModule),
            ("datamodule", datamodule, L.LightningDataModule),
        ):
            if not isinstance(given, kind):
                raise ValueError(f"Expected `{argument}` to be a {kind.__name__}, but got {given!r}.")
        if any(each.is_meta for each in (*module.parameters(), *module.buffers())):
            raise ValueError('Expected `module` with weights, but got some on the device "meta".')
        self.name, self.folder = type(module).__name__, folder
        self.module, self.datamodule = module, datamodule

    def fit(self, *callbacks: L.Callback, change: Any = None, resume: Path | None = None, **settings: Any) -> Fit:
        """Fit a copy from the seed 0. `change` is called with the copy before the fit."""
        L.seed_everything(0, verbose=False)
        module, data = copy.deepcopy(self.module), copy.deepcopy(self.datamodule)
        if change:
            change(module)
        with warnings.catch_warnings(), silent():
            warnings.simplefilter("ignore")
            given = {**self.settings, **settings} | {"default_root_dir": self.folder, "callbacks": list(callbacks)}
            trainer = L.Trainer(**given)
            with _interruptible(trainer):
                trainer.fit(module, datamodule=data, ckpt_path=resume)
        return Fit(module, trainer)

    @cached_property
    def plain(self) -> Fit:
        """A fit without any change."""
        return self.fit()

    def begin(self) -> None:
        """Fit once, without any contract."""
        assert self.plain.trainer.global_step, "Its fit ended without a step of an optimizer."

    def renew(self) -> None:
        """Do nothing: each fit trains copies."""

    def resumed(self, epoch: int, batch: int) -> Fit:
        """Save a checkpoint after a batch of an epoch, end the fit there, and go on with it."""
        path = self.folder / f"{epoch}-{batch}.ckpt"
        ended = _EndAfter(path, epoch, batch)
        with suppress(_EndedError):
            self.fit(ended)
        return self.fit(resume=path)


class _EndedError(Exception):
    """A fit was ended in the middle on purpose."""


class _EndAfter(L.Callback):
    """Save a checkpoint after a training batch, or after an epoch if `batch` is -1, and raise an error there."""

    def __init__(self, path: Path, epoch: int, batch: int) -> None:
        self.path, self.epoch, self.batch = path, epoch, batch

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == (self.epoch, self.batch):
            self._end(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch, -1) == (self.epoch, self.batch):
            trainer.should_stop = True

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.batch == -1:
            self._end(trainer)

    def _end(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.path)
        raise _EndedError


def same_weights(found: L.LightningModule, expected: L.LightningModule, when: str) -> None:
    """Raise an AssertionError unless all weights and buffers are the same, bit by bit."""
    ours, theirs = found.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys(), f"The state has other keys {when}: {sorted(ours.keys() ^ theirs.keys())}."
    wrong = [name for name, value in theirs.items() if isinstance(value, Tensor) and not torch.equal(ours[name], value)]
    assert not wrong, f"{len(wrong)} of {len(theirs)} weights and buffers differ {when}, such as {wrong[0]!r}."
