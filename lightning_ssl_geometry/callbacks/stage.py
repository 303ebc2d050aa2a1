"""StageCallback: what the monitor and the probes share of Lightning's hooks, errors and rehearsal."""

__all__ = ["Stage", "StageCallback"]

from abc import ABC, abstractmethod
from typing import Any, Literal

import lightning as L

from lightning_ssl_geometry.callbacks.failures import Failures, OnError
from lightning_ssl_geometry.callbacks.rehearsal import Rehearsal
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, starts_anew
from lightning_ssl_geometry.observe.host import Observer
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed

Stage = Literal["train", "val", "test", "probe"]


class StageCallback(RunCallback, ABC):
    """Base: each of Lightning's loops is a stage that begins, sees observations and ends.

    Before the first step of a fit, all such callbacks of the Trainer are rehearsed together on one batch of each stage:
    see :class:`Rehearsal`. A fit starts clean; what a checkpoint brings is loaded after that.

    Args:
        observer: Turns a step into an observation.
        on_error: What a failure does once the stage was observed without an error: see :class:`Failures`.
    """

    def __init__(self, observer: Observer, on_error: OnError) -> None:
        super().__init__()
        self.observer = observer
        self.failures = Failures(on_error)
        self.rehearsal = Rehearsal(self)
        self._epoch_begun = False

    looks_itself = False  # at the validation set of a host that has no `validation_step`

    @property
    @abstractmethod
    def title(self) -> str:
        """What messages call this callback."""

    @abstractmethod
    def watches(self, stage: str) -> bool:
        """Whether this callback observes the steps of a stage."""

    @abstractmethod
    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        """Take in one observation without keeping anything of it, and return the names that will be logged.

        Raises:
            ValueError: If the observation lacks what is needed.
        """

    @abstractmethod
    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a pass over the batches of a stage."""

    @abstractmethod
    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        """Take in what was observed of a step."""

    @abstractmethod
    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log what the pass gave; all ranks are here, also those that had no batch."""

    def miss(self, stage: Stage, trainer: L.Trainer) -> None:
        """Take part in what :meth:`see` exchanges between ranks, where the observation failed on this one."""

    def start_clean(self) -> None:
        """Forget what another fit left."""

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        """Whether a batch of a stage is observed."""
        return self.watches(stage)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register the hooks, and go before the callbacks that read what is logged here."""
        super().setup(trainer, pl_module, stage)
        self.observer.attach(pl_module)
        self.failures.restart()
        self.rehearsal.restart()
        self._epoch_begun = False
        trainer.callbacks = [self, *(callback for callback in trainer.callbacks if callback is not self)]  # type: ignore[attr-defined]
        if starts_anew(trainer, stage):
            self.start_clean()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the hooks."""
        self.observer.detach()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Rehearse the validation."""
        super().on_train_start(trainer, pl_module)
        self.rehearsal.validation(trainer, pl_module)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin an epoch; an error that was postponed until the last one's checkpoints were saved is raised here."""
        self.failures.raise_pending()
        self._begin_epoch(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin to observe a step, after a rehearsal of the first; Lightning resumes an epoch without its start."""
        if not self._epoch_begun:
            self._begin_epoch(trainer, pl_module)
        self.rehearsal.training(trainer, pl_module, batch, batch_idx)
        if self.wants("train", batch_idx):
            self.observer.open()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """See what the step returned or passed through the taps."""
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if self.wants("train", batch_idx):
            self._observe("train", trainer, outputs, batch, None, batch_idx)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End an epoch."""
        if not self._epoch_begun:  # resumed behind its last batch
            self._begin_epoch(trainer, pl_module)
        self._epoch_begun = False
        self._end("train", trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise an error that was postponed until the last checkpoints were saved."""
        super().on_fit_end(trainer, pl_module)
        self.failures.raise_pending()

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a validation."""
        self._begin("val", trainer, pl_module)

    def on_validation_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Begin to observe a step."""
        if self.watches("val"):
            self.observer.open()

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """See what the step returned or passed through the taps; Lightning's sanity check is a rehearsal."""
        if trainer.sanity_checking:
            self.rehearsal.sanity_check(trainer, outputs, batch)
        else:
            self._observe("val", trainer, outputs, batch, trainer.val_dataloaders, batch_idx, dataloader_idx)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a validation."""
        if not trainer.sanity_checking:
            self._end("val", trainer, pl_module)

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a test."""
        self._begin("test", trainer, pl_module)

    def on_test_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Begin to observe a step."""
        if self.watches("test"):
            self.observer.open()

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """See what the step returned or passed through the taps."""
        self._observe("test", trainer, outputs, batch, trainer.test_dataloaders, batch_idx, dataloader_idx)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """End a test."""
        self._end("test", trainer, pl_module)

    def observation_of(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """End to observe a step; where the observer makes views, look at the batch anew."""
        if self.observer.augment is None:
            return self.observer.close(outputs, batch, trainer, stage)
        with undisturbed(trainer.lightning_module):
            return self.observer.look(trainer.lightning_module, batch, trainer, stage)

    def _begin_epoch(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._epoch_begun = True
        self._begin("train", trainer, pl_module)

    def _begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.observer.restart(stage)
        self.failures.begin(stage)
        if self.watches(stage):
            self.begin(stage, trainer, pl_module)

    def _end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.watches(stage):
            self.end(stage, trainer, pl_module)

    def _observe(
        self,
        stage: Stage,
        trainer: L.Trainer,
        outputs: Any,
        batch: Any,
        loaders: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if not self.watches(stage):
            return
        failed, seen = True, None
        with self.failures.caught(trainer, self.title, stage):
            seen = self.observation_of(outputs, batch, trainer, stage)
            seen = seen if loaders is None else without_repeats(seen, loaders, batch_idx, dataloader_idx)
            failed = False
        if failed:
            self.miss(stage, trainer)
        elif seen is not None:
            self.see(stage, trainer, seen, batch_idx)
