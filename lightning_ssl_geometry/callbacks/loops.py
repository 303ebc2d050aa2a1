"""EvaluationCallback: handles Lightning's validation and test loops by the same methods."""

__all__ = ["EvaluationCallback", "Stage", "Step"]

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, Literal, NamedTuple

import lightning as L

from lightning_ssl_geometry.callbacks.run_callback import RunCallback
from lightning_ssl_geometry.observe.padding import without_repeats

Stage = Literal["train", "val", "test", "probe"]


class Step(NamedTuple):
    """The outputs and the batch of a step of one of Lightning's loops, and the batch's position in the loaders.

    `loaders` serves to leave out the samples that a sampler repeats. In training it is None, since the model is trained
    on the repeated samples as well.
    """

    outputs: Any
    batch: Any
    batch_idx: int
    dataloader_idx: int = 0
    loaders: Any = None

    def own(self, observation: Mapping[str, Any]) -> dict[str, Any] | None:
        """Return `observation` without the samples that a distributed sampler repeats; None if no sample is left."""
        if self.loaders is None:
            return dict(observation)
        return without_repeats(observation, self.loaders, self.batch_idx, dataloader_idx=self.dataloader_idx)


class EvaluationCallback(RunCallback, ABC):
    """Base for callbacks that treat validation and test alike: a start, steps, and an end."""

    @abstractmethod
    def watches(self, stage: str) -> bool:
        """Whether this callback observes the steps of a stage, such as "val"."""

    @abstractmethod
    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """React to the start of a pass over the batches of any stage, also of a stage that is not observed."""

    @abstractmethod
    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        """React to a step of an observed stage."""

    @abstractmethod
    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the results at the end of a pass. All ranks call this method, also ranks without a batch."""

    def open(self) -> None:
        """Prepare for a step of an observed stage."""

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        """React to a step of Lightning's sanity check, which does not count as a validation."""

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
        """Pass a step to :meth:`take`, or in Lightning's sanity check to :meth:`take_sanity_check`."""
        self._take("val", trainer, Step(*step, **named))

    def on_test_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any) -> None:
        """Pass a step of a test to :meth:`take`."""
        self._take("test", trainer, Step(*step, **named))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a validation."""
        if not trainer.sanity_checking:
            self.end_pass("val", trainer, pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a test."""
        self.end_pass("test", trainer, pl_module)

    def end_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Call :meth:`end`, if the stage is observed."""
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
