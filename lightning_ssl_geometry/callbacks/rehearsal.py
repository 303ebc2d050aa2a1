"""Rehearsal: checks callbacks on one training and one validation batch, so that wrong settings fail early."""

__all__ = ["Rehearsal"]

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_info

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.host_copy import HostCopy
from lightning_ssl_geometry.callbacks.loaders import (
    first_batches,
    has_validation,
    is_repeatable,
    on_device,
    validation_loader,
)
from lightning_ssl_geometry.callbacks.loops import Step
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.run_callback import now
from lightning_ssl_geometry.measuring.failures import DiagnosticError
from lightning_ssl_geometry.observe.host import NotFiniteError
from lightning_ssl_geometry.observe.undisturbed import random_state_kept, undisturbed

if TYPE_CHECKING:
    from lightning_ssl_geometry.callbacks.stage import StageCallback

_HOST = "the module itself"


class Rehearsal:
    """Checks monitors and probes on one training batch and one validation batch before the first step of a fit.

    A copy of the LightningModule takes one step on each batch. The callbacks use the outputs to check hooks, labels,
    views, diagnostics and logged names. The module, the loaders and the random state do not change. If a copy cannot
    take the step, the first step of the module itself is checked instead.

    Args:
        callback: The monitor or probe that starts the check. All monitors and probes of its Trainer are checked.
    """

    def __init__(self, callback: "StageCallback") -> None:
        self.callback = callback
        self.done: set[str] = set()

    def restart(self) -> None:
        """Allow another check in the next run of the Trainer."""
        self.done = set()

    def training(self, trainer: L.Trainer, host: L.LightningModule, batch: Any, batch_idx: int) -> None:
        """Check the callbacks on a training step that a copy of the module takes. Only the first call has an effect."""
        if callbacks := _to_try(trainer, self.callback, "train"):
            _rehearse(trainer, host, "train", batch=batch, batch_idx=batch_idx, callbacks=callbacks)

    def validation(self, trainer: L.Trainer, host: L.LightningModule) -> None:
        """Check the callbacks on the first validation batch, unless Lightning's sanity check has done so."""
        if trainer.limit_val_batches == 0 or not (callbacks := _to_try(trainer, self.callback, "val")):
            return
        stepped = has_validation(host)
        callbacks = [each for each in callbacks if stepped or each.looks_itself]
        with random_state_kept(), _validating(trainer):
            loader = validation_loader(trainer)
            batches = list(first_batches(loader, 1)) if loader is not None and is_repeatable(loader) else []
            ready = torch.tensor(len(batches), device=host.device)
            if int(distributed.all_reduce_sum(ready)) < distributed.world_size():  # a step may wait for all ranks
                return
            batch = on_device(batches[0], trainer)
            if stepped:
                _rehearse(trainer, host, "val", batch=batch, batch_idx=0, callbacks=callbacks)
            else:
                _look(trainer, host, batch, callbacks=callbacks)

    def sanity_check(self, trainer: L.Trainer, step: Step) -> None:
        """Check the callback on the outputs of a step of Lightning's sanity check."""
        if self.callback.watches("val") and "val" not in self.done:
            self.done.add("val")
            _try_outputs(trainer, "val", step, callbacks=[self.callback], logged=set())


def _to_try(trainer: L.Trainer, asking: "StageCallback", stage: str) -> list["StageCallback"]:
    from lightning_ssl_geometry.callbacks.stage import StageCallback

    if stage in asking.rehearsal.done:
        return []
    everyone = callbacks_of(trainer, StageCallback)  # type: ignore[type-abstract]
    for callback in everyone:
        callback.rehearsal.done.add(stage)
    return [each for each in everyone if each.watches(stage) or (stage == "train" and each.observer.uncalled)]


def _rehearse(
    trainer: L.Trainer,
    host: L.LightningModule,
    stage: str,
    *,
    batch: Any,
    batch_idx: int,
    callbacks: list["StageCallback"],
) -> None:
    for callback in callbacks:
        callback.observer.open(of_copies=True)
    taken = _step_of_copy(trainer, host, stage, batch=batch, batch_idx=batch_idx)
    if taken is None:
        for callback in callbacks:
            callback.observer.cancel()
        return
    outputs, logged = taken
    _try_outputs(trainer, stage, Step(outputs, batch, batch_idx), callbacks=callbacks, logged=logged)


def _look(trainer: L.Trainer, host: L.LightningModule, batch: Any, *, callbacks: list["StageCallback"]) -> None:
    for callback in callbacks:
        with _errors_named(callback, "val"), undisturbed(host):
            callback.rehearse(callback.observer.look(host, batch, now(trainer), stage="val"), "val")
        callback.observer.restart("val")


def _step_of_copy(
    trainer: L.Trainer, host: L.LightningModule, stage: str, *, batch: Any, batch_idx: int
) -> tuple[Any, set[str]] | None:
    twin = None
    try:
        twin = HostCopy(trainer, host)
        if not twin.can_step(stage):
            return None
        if stage == "val":
            twin.module.eval()
        with twin.apart():
            return twin.step(batch, batch_idx, stage), twin.logged
    except Exception as error:  # in the module's own code, or an attribute cannot be copied
        why = type(error).__name__ if twin else error  # a step that fails says more when the module itself takes it
        rank_zero_info(f"The {stage} step is not rehearsed on a copy ({why}): the first one is checked instead.")
        return None


def _try_outputs(
    trainer: L.Trainer, stage: str, step: Step, *, callbacks: list["StageCallback"], logged: set[str]
) -> None:
    owner = dict.fromkeys(logged, _HOST)
    for callback in callbacks:
        callback.hold()
    for callback in callbacks:
        for name in sorted(_rehearsed(callback, trainer, stage, step=step)):
            if name in owner:
                raise ValueError(
                    f"Expected each name to be logged once, but {owner[name]} and {callback.title} both log {name!r}. "
                    "Give the callback a `name` of its own, or the diagnostic another."
                )
            owner[name] = callback.title


def _rehearsed(callback: "StageCallback", trainer: L.Trainer, stage: str, *, step: Step) -> set[str]:
    names: set[str] = set()
    with _errors_named(callback, stage):
        if not callback.watches(stage):  # it is here to see whether the step calls what other stages do not
            callback.observer.cancel()
            callback.observer.refuse_uncalled()
            return names
        seen = callback.observation_of(step.outputs, step.batch, trainer=trainer, stage=stage)
        names = callback.rehearse(seen, stage)
        callback.failures.prove(stage)
    callback.observer.restart(stage)
    return names


@contextmanager
def _errors_named(callback: "StageCallback", stage: str) -> Iterator[None]:
    try:
        yield
    except NotFiniteError as error:  # wrong settings are not the cause
        if callback.failures.on_error == "raise":
            raise ValueError(_message(callback, stage, error)) from error
    except DiagnosticError as error:
        raise ValueError(_message(callback, stage, error.__cause__, diagnostic=f", {error}")) from error.__cause__
    except Exception as error:
        raise ValueError(_message(callback, stage, error)) from error


def _message(callback: "StageCallback", stage: str, error: BaseException | None, diagnostic: str = "") -> str:
    text = str(error) if isinstance(error, ValueError) else f"{type(error).__name__}: {error}"
    return f"{callback.title}{diagnostic}, stage {stage!r}, before the first step: {text}"


@contextmanager
def _validating(trainer: L.Trainer) -> Iterator[None]:
    trainer.validating = True
    try:
        yield
    finally:
        trainer.training = True
