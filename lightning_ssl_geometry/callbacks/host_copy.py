"""A copy of a LightningModule that can take steps without effect on the original."""

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

from lightning_ssl_geometry.either_lightning import either
from lightning_ssl_geometry.observe.undisturbed import random_state_kept


class HostCopy:
    """A deep copy of a LightningModule, whose steps can be called outside the Trainer's loops.

    The copy has its own weights, buffers and Python attributes. It shares the Trainer, but its logs reach no logger.
    Forward hooks of the original are also called for the copy. Objects outside the module, such as a global counter,
    are not copied. A compiled module cannot be copied. If `in_place` is true, the steps of a compiled module are called
    on the module itself, and :meth:`apart` restores its weights and buffers.

    Args:
        trainer: The Trainer of the module.
        host: The module. A ValueError is raised if a part of it is compiled and `in_place` is false. If an attribute
            cannot be copied, the error of `copy.deepcopy` is raised.
        in_place: Use the module itself instead of a copy if it is compiled.

    Attributes:
        module: The copy, or the compiled module itself.
        logged: Names that the copy logged.
    """

    def __init__(self, trainer: L.Trainer, host: L.LightningModule, in_place: bool = False) -> None:
        compiled = any(map(_is_compiled, host.modules()))
        if compiled and not in_place:
            raise ValueError(f"Expected a {type(host).__name__} that is not compiled.")
        self.trainer = trainer
        self.host = host
        self.module = host if compiled else copy.deepcopy(host, _shared_by_copies(trainer, host))
        self.module.trainer = trainer  # a deep copy has no Trainer
        self.logged: set[str] = set()

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Suppress warnings in this block. Afterwards, restore the buffers, the weights and the Trainer's state."""
        in_place = self.module is self.host
        tensors = [*self.host.buffers(), *(self.host.parameters() if in_place else ())]
        kept = [(tensor, tensor._version, tensor.detach().clone()) for tensor in tensors]
        logging = [each for each in self.module.modules() if isinstance(each, either(L.LightningModule))]
        for each in logging:  # a submodule may log, too
            each.__dict__["log"] = self._log
        try:
            with _trainer_kept(self.trainer), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                yield
        finally:
            for each in logging:
                del each.__dict__["log"]
            with torch.no_grad():
                for tensor, version, value in kept:
                    if in_place or tensor._version != version:  # compiled code does not raise `_version`
                        tensor.copy_(value)

    def step(self, batch: Any, batch_idx: int, stage: str) -> Any:
        """Call a step of the copied module on a copy of the batch, and return its outputs.

        If `stage` is "train", this is the training step, otherwise the validation step. No optimizer step is made.
        """
        name = "training_step" if stage == "train" else "validation_step"
        method = getattr(self.module, name)
        context = self._context(stage)
        arguments = [batch_idx] if is_param_in_hook_signature(method, "batch_idx", min_args=2) else []
        if stage != "train" and is_param_in_hook_signature(method, "dataloader_idx", explicit=True, min_args=3):
            arguments += [0]
        with random_state_kept(), context, torch.set_grad_enabled(stage == "train"):
            return method(copy.deepcopy(batch), *arguments)

    def training_pass(self, batch: Any, batch_idx: int) -> None:
        """Pass a training batch through the copied module. Raises a ValueError if this is not possible."""
        if callable(getattr(self.module, "observe", None)):
            with self._context("train"), torch.no_grad():
                self.module.step(batch)  # type: ignore[operator]
        elif self.can_step("train"):
            self.step(batch, batch_idx, "train")
        else:
            raise ValueError("Expected a host with automatic optimization, whose training step changes no weights.")

    def can_step(self, stage: str) -> bool:
        """Whether the step of a stage can be called. It cannot if it takes `dataloader_iter` or optimizes manually."""
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


def _shared_by_copies(trainer: L.Trainer, host: nn.Module) -> dict[int, Any]:
    # partial objects make optimizers
    makers = [value for module in host.modules() for value in vars(module).values() if isinstance(value, partial)]
    return {id(each): each for each in (trainer, *makers)}


def _is_compiled(module: nn.Module) -> bool:
    named = hasattr(module, "_orig_mod") or getattr(module, "_compiler_ctx", None) is not None
    return named or getattr(module, "_compiled_call_impl", None) is not None


@contextmanager
def _trainer_kept(trainer: L.Trainer) -> Iterator[None]:
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
