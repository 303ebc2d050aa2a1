"""A copy of the host, for steps that change neither the host, nor its optimizers, nor its logs."""

__all__ = ["HostCopy"]

import copy
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers.logger import DummyLogger
from lightning.pytorch.utilities.signature_utils import is_param_in_hook_signature
from torch import nn

from lightning_ssl_geometry.observe.undisturbed import random_state_kept


class HostCopy:
    """A deep copy of a LightningModule whose steps can be called outside the Trainer's loops.

    Weights, buffers and Python attributes are copied; the Trainer is shared. Logs of the copy reach no logger. Forward
    hooks of the host's submodules are called for the copy, too, so taps see its tensors. State outside the module, such
    as a counter in its file, is not copied and counts one step more. Compiled code keeps the weights that it was
    compiled with. A compiled host can therefore only be its own copy (`in_place`); :meth:`apart` restores its weights
    and buffers.

    Args:
        trainer: The host's.
        host: The module. A ValueError if a part of it is compiled and `in_place` is false; an attribute that cannot be
            copied raises its own error.
        in_place: Take the steps of a compiled host on the host itself.

    Attributes:
        module: The copy.
        logged: Names that the copy logged.
    """

    def __init__(self, trainer: L.Trainer, host: L.LightningModule, in_place: bool = False) -> None:
        compiled = any(map(_is_compiled, host.modules()))
        if compiled and not in_place:
            raise ValueError(f"Expected a {type(host).__name__} that is not compiled.")
        self.trainer = trainer
        self.host = host
        self.module = host if compiled else copy.deepcopy(host, _shared(trainer, host))
        self.module.trainer = trainer  # a copy has none
        self.logged: set[str] = set()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Take steps inside this block, without their warnings; afterwards the host has its old values.

        A function that holds the host itself may change the buffers of a copied host, or with `in_place` its weights.
        """
        in_place = self.module is self.host
        tensors = [*self.host.buffers(), *(self.host.parameters() if in_place else ())]
        kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
        self.module.__dict__["log"] = self._log
        try:
            with _trainer_kept(self.trainer), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            del self.module.__dict__["log"]
            with torch.no_grad():
                for tensor, version, value in kept:
                    if in_place or tensor._version != version:  # compiled code counts no versions
                        tensor.copy_(value)

    def step(self, batch: Any, batch_idx: int, stage: str) -> Any:
        """Return the outputs of a step on a copy of the batch, without an optimizer step; random state is kept."""
        name = "training_step" if stage == "train" else "validation_step"
        method = getattr(self.module, name)
        context = self._context(stage)
        arguments = [batch_idx] if is_param_in_hook_signature(method, "batch_idx", min_args=2) else []
        with random_state_kept(self.module), context, torch.set_grad_enabled(stage == "train"):
            return method(copy.deepcopy(batch), *arguments)

    def training_pass(self, batch: Any, batch_idx: int) -> None:
        """Pass a training batch through the copy: by `step` of our methods, else by the host's training step.

        A ValueError if the host has manual optimization and is none of our methods.
        """
        if callable(getattr(self.module, "observe", None)):
            with self._context("train"), torch.no_grad():
                self.module.step(batch)  # type: ignore[operator]
        elif self.can_step("train"):
            self.step(batch, batch_idx, "train")
        else:
            raise ValueError("Expected a host with automatic optimization, whose training step changes no weights.")

    def can_step(self, stage: str) -> bool:
        """Whether the stage's step works outside the loops: not with manual optimization, and not on an iterator."""
        if stage != "train":
            return not is_param_in_hook_signature(self.module.validation_step, "dataloader_iter", explicit=True)
        by_hand = not self.module.automatic_optimization
        return not (by_hand or is_param_in_hook_signature(self.module.training_step, "dataloader_iter", explicit=True))

    def _context(self, stage: str) -> AbstractContextManager[Any]:
        plugin = self.trainer.precision_plugin
        return plugin.train_step_context() if stage == "train" else plugin.val_step_context()

    def _log(self, name: str, *_: Any, **settings: Any) -> None:
        self.logged.add(name)
        if settings.get("on_step") and settings.get("on_epoch"):
            self.logged |= {f"{name}_step", f"{name}_epoch"}


def _shared(trainer: L.Trainer, host: nn.Module) -> dict[int, Any]:
    """Return the objects that a deep copy shares: the Trainer and optimizer makers, which are found by identity."""
    makers = [value for module in host.modules() for value in vars(module).values() if isinstance(value, partial)]
    return {id(each): each for each in (trainer, *makers)}


def _is_compiled(module: nn.Module) -> bool:
    named = hasattr(module, "_orig_mod") or getattr(module, "_compiler_ctx", None) is not None
    return named or getattr(module, "_compiled_call_impl", None) is not None


@contextmanager
def _trainer_kept(trainer: L.Trainer) -> Iterator[None]:
    """Restore what a step may change in the Trainer: learning rates, schedules, `should_stop`; loggers get nothing."""
    groups = [[{**group, "params": None} for group in optimizer.param_groups] for optimizer in trainer.optimizers]
    schedules = [(each.scheduler, copy.deepcopy(each.scheduler.state_dict())) for each in trainer.lr_scheduler_configs]
    loggers, should_stop = trainer.loggers, trainer.should_stop
    trainer.loggers = [DummyLogger() for _ in loggers]
    try:
        yield
    finally:
        trainer.loggers, trainer.should_stop = loggers, should_stop
        for optimizer, kept in zip(trainer.optimizers, groups, strict=True):
            for group, values in zip(optimizer.param_groups, kept, strict=True):
                group.update({name: value for name, value in values.items() if name != "params"})
        for schedule, state in schedules:
            schedule.load_state_dict(state)
