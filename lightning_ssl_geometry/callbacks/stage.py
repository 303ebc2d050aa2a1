"""StageCallback: base class of the monitor and the probes."""

__all__ = ["StageCallback"]

from abc import abstractmethod
from typing import Any, ClassVar

import lightning as L

from lightning_ssl_geometry.callbacks.failures import Failures, OnError
from lightning_ssl_geometry.callbacks.loops import EvaluationCallback, Stage, Step
from lightning_ssl_geometry.callbacks.order import Turn, put_in_order
from lightning_ssl_geometry.callbacks.rehearsal import Rehearsal
from lightning_ssl_geometry.callbacks.run_callback import starts_anew
from lightning_ssl_geometry.observe.host import Observer
from lightning_ssl_geometry.observe.undisturbed import undisturbed


class StageCallback(EvaluationCallback):
    """Base of the monitor and the probes. It gets h, z, labels and other tensors of each step.

    Before the first step of a fit, all monitors and probes of the Trainer are tried on one batch (:class:`Rehearsal`).
    A fit from step 0 resets the callback.

    Args:
        observer: Returns the tensors of a step by name (the observation).
        on_error: What happens if a step fails after another step of the stage has succeeded: see :class:`Failures`.
    """

    turn: ClassVar[Turn] = Turn.OBSERVES
    looks_itself = False  # whether it runs the validation of a module without `validation_step`

    def __init__(self, observer: Observer, on_error: OnError) -> None:
        super().__init__()
        self.observer = observer
        self.failures = Failures(on_error)
        self.rehearsal = Rehearsal(self)
        self._epoch_begun = False

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of this callback in messages."""

    @abstractmethod
    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        """Try an observation without lasting effects. Returns the names that will be logged, or raises a ValueError."""

    @abstractmethod
    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Handle the start of an epoch, or of a validation or test."""

    @abstractmethod
    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        """Handle the observation of a step: h, z, label and others by name."""

    def miss(self, stage: Stage, trainer: L.Trainer) -> None:
        """Handle a step that failed on this rank, while the other ranks are in :meth:`see`."""

    def start_clean(self) -> None:
        """Forget the state of an earlier fit."""

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        """Whether a batch of a stage is observed."""
        return self.watches(stage)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register forward hooks on the model."""
        super().setup(trainer, pl_module, stage)
        self.observer.attach(pl_module)
        self.failures.restart()
        self.rehearsal.restart()
        self._epoch_begun = False
        put_in_order(trainer, self)
        if starts_anew(trainer, stage):
            self.start_clean()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the forward hooks."""
        self.observer.detach()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Try one validation batch."""
        super().on_train_start(trainer, pl_module)
        self.rehearsal.validation(trainer, pl_module)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin an epoch, or raise an error of the previous epoch."""
        self.failures.raise_pending()
        self._begin_epoch(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Try the first batch of the fit, and prepare for a step."""
        if not self._epoch_begun:
            self._begin_epoch(trainer, pl_module)
        self.rehearsal.training(trainer, pl_module, batch, batch_idx=batch_idx)
        if self.wants("train", batch_idx):
            self.open()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any) -> None:
        """Pass a step to :meth:`take`."""
        taken = Step(*step, **named)
        super().on_train_batch_end(trainer, pl_module, taken.outputs, batch=taken.batch, batch_idx=taken.batch_idx)
        if self.wants("train", taken.batch_idx):
            self.take("train", trainer, taken)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the results of the epoch."""
        if not self._epoch_begun:  # the fit was resumed after the last batch of the epoch
            self._begin_epoch(trainer, pl_module)
        self._epoch_begun = False
        self.end_pass("train", trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Raise an error of the last epoch."""
        super().on_fit_end(trainer, pl_module)
        self.failures.raise_pending()

    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Number samples from 0 again, and forget earlier failures."""
        self.observer.restart(stage)
        self.failures.begin(stage)
        if self.watches(stage):
            self.begin(stage, trainer, pl_module)

    def open(self) -> None:
        """Start to record the outputs of hooked submodules."""
        self.observer.open()

    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        """Make the observation of a step, and pass it to :meth:`see`. If that fails, call :meth:`miss`."""
        failed, seen = True, None
        with self.failures.caught(trainer, self.title, stage):
            seen = step.own(self.observation_of(step.outputs, step.batch, trainer=trainer, stage=stage))
            failed = False
        if failed:
            self.miss(stage, trainer)
        elif seen is not None:
            self.see(stage, trainer, seen, batch_idx=step.batch_idx)

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        """Check the outputs of a step of Lightning's sanity check."""
        self.rehearsal.sanity_check(trainer, step)

    def observation_of(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """Return the observation of a step. With `augment`, views are made and passed through the module first."""
        if self.observer.augment is None:
            return self.observer.close(outputs, batch, trainer, stage=stage)
        with undisturbed(trainer.lightning_module):
            return self.observer.look(trainer.lightning_module, batch, trainer, stage=stage)

    def _begin_epoch(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._epoch_begun = True
        self.begin_pass("train", trainer, pl_module)
