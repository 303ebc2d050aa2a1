"""EvaluationCallback: base class that handles validation and test by the same methods."""

__all__ = ["EvaluationCallback", "Stage", "Step"]

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import lightning as L

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
    """Base of callbacks that handle validation and test by the same methods."""

    @abstractmethod
    def watches(self, stage: str) -> bool:
        """Whether this callback observes a stage, such as "val"."""

    @abstractmethod
    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Handle the start of a pass over the batches, even of a stage that is not observed."""

    @abstractmethod
    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        """Handle a step of an observed stage."""

    @abstractmethod
    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the results at the end of a pass. All ranks call this method, even ranks without a batch."""

    def open(self) -> None:
        """Prepare for a step of an observed stage."""

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        """Handle a step of Lightning's sanity check."""

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a validation."""
        self.begin_pass("val", trainer, pl_module)

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a test."""
        self.begin_pass("test", trainer, pl_module)

    def on_validation_batch_start(self, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        """Prepare for a step of a validation."""
        self._open("val")

    def on_test_batch_start(self, trainer: L.Trainer, *_: Any, **__: Any) -> None:
        """Prepare for a step of a test."""
        self._open("test")

    def on_validation_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any
    ) -> None:
        """Pass a step to :meth:`take`, or to :meth:`take_sanity_check`."""
        self._take("val", trainer, Step(*step, **named))

    def on_test_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any) -> None:
        """Pass a step to :meth:`take`."""
        self._take("test", trainer, Step(*step, **named))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a validation."""
        if not trainer.sanity_checking:
            self.end_pass("val", trainer, pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a test."""
        self.end_pass("test", trainer, pl_module)

    def end_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call :meth:`end` if the stage is observed."""
        if self.watches(stage):
            self.end(stage, trainer, pl_module)

    def _open(self, stage: Stage) -> None:
        if self.watches(stage):
            self.open()

    def _take(self, stage: Stage, trainer: L.Trainer, taken: Step) -> None:
        loaders = trainer.test_dataloaders if stage == "test" else trainer.val_dataloaders
        step = taken._replace(loaders=loaders)
        if trainer.sanity_checking:
            self.take_sanity_check(trainer, step)
        elif self.watches(stage):
            self.take(stage, trainer, step)
