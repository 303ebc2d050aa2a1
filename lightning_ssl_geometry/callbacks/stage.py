"""StageCallback: base class of the monitor and the probes."""

__all__ = ["StageCallback"]

from abc import abstractmethod
from typing import Any, ClassVar

import lightning as L

from lightning_ssl_geometry.callbacks.loops import EvaluationCallback, Stage, Step, hold_all
from lightning_ssl_geometry.callbacks.order import Turn, callbacks_of, put_in_order
from lightning_ssl_geometry.callbacks.rehearsal import Rehearsal
from lightning_ssl_geometry.callbacks.run_callback import now, starts_anew
from lightning_ssl_geometry.measuring.failures import Failures, OnError
from lightning_ssl_geometry.observe.host import Observer


class StageCallback(EvaluationCallback):
    """Base of the monitor and the probes. It gets h, z, labels and other tensors of each step.

    These tensors by name are called the observation of the step. Before the first step of a fit, all monitors and
    probes are checked on one batch (:class:`Rehearsal`). A fit from step 0 resets the callback.

    Args:
        observer: Collects the observation of a step.
        on_error: What happens if a step fails: see :class:`Failures`.
    """

    turn: ClassVar[Turn] = Turn.OBSERVES
    looks_itself = False  # whether it runs the validation of a module without `validation_step`

    def __init__(self, observer: Observer, on_error: OnError) -> None:
        super().__init__()
        self.observer = observer
        self.failures = Failures(on_error)
        self.rehearsal = Rehearsal(self)
        self._epoch_begun = False
        self._epoch_ended: int | None = None

    @property
    @abstractmethod
    def title(self) -> str:
        """Name of this callback in messages."""

    @abstractmethod
    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        """Check the settings with the observation of one step, without changing the callback.

        Returns the names that will be logged. Raises a ValueError if a setting is wrong.
        """

    @abstractmethod
    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Reset the results of a stage, at the start of an epoch, a validation or a test."""

    @abstractmethod
    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        """Process the observation of a step: h, z, label and others by name."""

    def miss(self, stage: Stage, trainer: L.Trainer) -> None:
        """React to a step that failed on this rank. This method is called instead of :meth:`see`."""

    def start_clean(self) -> None:
        """Forget the state of an earlier fit."""

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        """Whether a batch of a stage is observed."""
        return self.watches(stage)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self.observer.attach(pl_module, trainer.precision_plugin)
        self.failures.restart(postpones=stage == "fit")
        self.rehearsal.restart()
        self._epoch_begun = False
        self._epoch_ended = None
        put_in_order(trainer, self)
        if starts_anew(trainer, stage):
            self.start_clean()

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.observer.detach()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.rehearsal.validation(trainer, pl_module)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.failures.raise_pending()
        self._begin_epoch(trainer, pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        if not self._epoch_begun:
            self._begin_epoch(trainer, pl_module)
        self.rehearsal.training(trainer, pl_module, batch, batch_idx=batch_idx)
        if self.wants("train", batch_idx):
            self.open()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: L.LightningModule, *step: Any, **named: Any) -> None:
        hold_all(trainer)
        taken = Step(*step, **named)
        super().on_train_batch_end(trainer, pl_module, taken.outputs, batch=taken.batch, batch_idx=taken.batch_idx)
        if self.wants("train", taken.batch_idx):
            self.take("train", trainer, taken)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        # Those of all others, too, before the first of them takes its time after the epoch, and may be interrupted:
        # a fit that goes on does not train this epoch again.
        for each in callbacks_of(trainer, StageCallback):  # type: ignore[type-abstract]
            each.end_epoch(trainer, pl_module)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception=exception)
        self.observer.detach()  # `teardown` is not called then, and the hooks would hold what the model does later

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        self.failures.raise_pending()

    def begin_pass(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.observer.restart(stage)
        self.failures.begin(stage)
        if self.watches(stage):
            self.begin(stage, trainer, pl_module)

    def open(self) -> None:
        self.observer.open()

    def hold(self) -> None:
        self.observer.hold()

    def take(self, stage: Stage, trainer: L.Trainer, step: Step) -> None:
        failed, seen = True, None
        with self.failures.caught(now(trainer), self.title, stage):
            seen = step.own(self.observation_of(step.outputs, step.batch, trainer=trainer, stage=stage))
            failed = False
        if failed:
            self.miss(stage, trainer)
        elif seen is not None:
            self.see(stage, trainer, seen, batch_idx=step.batch_idx)

    def take_sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        self.rehearsal.sanity_check(trainer, step)

    def observation_of(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """Return the observation of a step. If `augment` is given, this passes its views through the model."""
        host = trainer.lightning_module
        return self.observer.of_step(host, outputs, batch, moment=now(trainer), stage=stage)

    def end_epoch(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the results of the training steps of this epoch, once."""
        if self._epoch_ended == trainer.current_epoch:
            return
        self._epoch_ended = trainer.current_epoch
        if not self._epoch_begun:  # the fit was resumed after the last batch of the epoch
            self._begin_epoch(trainer, pl_module)
        self._epoch_begun = False
        self.end_pass("train", trainer, pl_module)

    def _begin_epoch(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._epoch_begun = True
        self.begin_pass("train", trainer, pl_module)
