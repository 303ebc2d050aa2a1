"""EvaluationCallback: base class whose methods get the steps of both validation and test."""

__all__ = ["EvaluationCallback", "Stage", "Step", "hold_all"]

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import lightning as L
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import RunCallback
from lightning_ssl_geometry.observe.padding import without_repeats

Stage = Literal["train", "val", "test", "probe"]


class Step(NamedTuple):
    """Outputs, batch and position of one step of a Lightning loop."""

    outputs: Any
    batch: Any
    batch_idx: int
    dataloader_idx: int = 0
    loaders: Any = None  # None in training, which keeps the samples that a sampler repeats

    def own(self, observation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return `observation` without the samples that a distributed sampler repeats, or None if none is left."""
        if self.loaders is None:
            return dict(observation)
        return without_repeats(observation, self.loaders, self.batch_idx, dataloader_idx=self.dataloader_idx)


class EvaluationCallback(RunCallback, ABC):
    """Base of callbacks that observe the steps of both validation and test.

    A stage is "val" or "test". :meth:`begin_pass` is called at the start of each stage. The other methods are called if
    :meth:`watches` is true for the stage. :meth:`open` is called before each step, :meth:`take` after each step, and
    :meth:`end` after the last step. Of several dataloaders of a stage, only the first is observed, as in the stage
    "probe". One warning says so.
    """

    _told_of_others = False

    @abstractmethod
    def watches(self, stage: str) -> bool:
        """Whether this callback observes a stage, such as "val"."""

    @abstractmethod
    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Prepare for the batches of a stage. This method is called even if :meth:`watches` is false."""

    @abstractmethod
    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        """Process the outputs and the batch of one step."""

    @abstractmethod
    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the results of a stage. This method is called on all ranks, even on ranks without a batch."""

    def open(self) -> None:
        """Prepare to observe the next step."""

    def hold(self) -> None:
        """Record nothing more until :meth:`take`: other callbacks may call the model after the step."""

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        """Process the outputs and the batch of one step of Lightning's sanity check."""

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.begin_pass("val", trainer, pl_module)

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.begin_pass("test", trainer, pl_module)

    def on_validation_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._open("val", dataloader_idx)

    def on_test_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int, dataloader_idx: int = 0
    ) -> None:
        self._open("test", dataloader_idx)

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any
    ) -> None:
        self._take("val", trainer, Step(*step, **named))

    def on_test_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any) -> None:
        self._take("test", trainer, Step(*step, **named))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_validation_epoch_end(trainer, pl_module)
        if not trainer.sanity_checking:
            self.end_pass("val", trainer, pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_epoch_end(trainer, pl_module)
        self.end_pass("test", trainer, pl_module)

    def end_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call :meth:`end` if this callback observes the stage."""
        if self.watches(stage):
            self.end(stage, trainer, pl_module)

    def _open(self, stage: Stage, dataloader_idx: int) -> None:
        if self.watches(stage) and dataloader_idx == 0:
            self.open()

    def _take(self, stage: Stage, trainer: L.Trainer, taken: Step) -> None:
        hold_all(trainer)
        loaders = trainer.test_dataloaders if stage == "test" else trainer.val_dataloaders
        step = taken._replace(loaders=loaders)
        if step.dataloader_idx > 0:
            self._tell_of_others(stage)
        elif trainer.sanity_checking:
            self.take_sanity_check(trainer, step)
        elif self.watches(stage):
            self.take(stage, trainer, step)

    def _tell_of_others(self, stage: Stage) -> None:
        if self.watches(stage) and not self._told_of_others:
            self._told_of_others = True
            rank_zero_warn(
                f"{type(self).__name__}, stage {stage!r}: only the first of several dataloaders is observed. Put "
                "another one first, or pass it alone to `Trainer.validate` or `Trainer.test`."
            )


def hold_all(trainer: L.Trainer) -> None:
    """Let no callback record what another one does after a step, such as a pass of its own views."""
    for each in callbacks_of(trainer, EvaluationCallback):  # type: ignore[type-abstract]
        each.hold()
