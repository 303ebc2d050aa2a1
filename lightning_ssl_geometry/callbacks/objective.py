"""Objective: finds the log of the loss that a training descends, or logs it."""

__all__ = ["Objective"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import lightning as L
import torch
from torch import Tensor

from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.quantity import TREND_OF_LOSS, Quantity

_NAME = "train/objective"
_TOLERANCE = 1e-2  # of an epoch's mean: Lightning weighs batches by their sizes, this class does not
_MEANING = Quantity(
    title="Objective",
    text="The loss that training descends: the mean over the steps of an epoch of the value that training_step "
    "returns. The model's own code does not log it once per epoch.",
    better="low",
    verdicts=TREND_OF_LOSS,
)


class Objective:
    """Compares the loss that `training_step` returns with the logs of the first epoch.

    Attributes:
        name: The logged name whose value is the loss, such as "train_loss". Before the first epoch has ended, or if
            `training_step` returns no loss, it is None. If no log is the loss, or an epoch has too few steps for
            `log_every_n_steps` to log it, it is "train/objective", and :meth:`end_epoch` logs the mean of each epoch
            under this name.
        title: The name that the model gives to its loss, if it logs it too rarely. Else "Objective".
    """

    def __init__(self) -> None:
        self.name: str | None = None
        self.title = _MEANING.title
        self._last = self._total = torch.zeros(())
        self._steps = 0

    @property
    def is_own(self) -> bool:
        """Whether the loss is logged by :meth:`end_epoch`."""
        return self.name == _NAME

    def meanings(self) -> dict[str, Declared]:
        """Return the description of `train/objective`."""
        return {
            _NAME: Declared(
                quantity=replace(_MEANING, title=self.title),
                section="learning",
                diagnostic="RunReport",
                key="objective",
            )
        }

    def see(self, outputs: Any, accumulated: int) -> None:
        """Take the result of a training step. Lightning has divided its loss by `accumulated` batches."""
        if self.name is not None and not self.is_own:
            return
        loss = outputs.get("loss") if isinstance(outputs, Mapping) else outputs
        if isinstance(loss, Tensor) and loss.numel() == 1:
            self._last = loss.detach().float().reshape(()) * accumulated
            self._total = self._last + (self._total if self._steps else 0)
            self._steps += 1

    def end_epoch(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Look for the loss among the logs at the end of the first epoch. All ranks must call this method."""
        if self.name is None:
            found = self._among(trainer.callback_metrics) if self._steps else None
            few = trainer.num_training_batches < trainer.log_every_n_steps  # type: ignore[attr-defined]
            if found is not None and few and not self._is_of_epoch(found, trainer.callback_metrics):
                self.title, found = found.removeprefix("train/"), None
            self.name = trainer.strategy.broadcast(found or (_NAME if self._steps else None))
        if self.is_own and self._steps:
            pl_module.log(_NAME, self._total / self._steps, sync_dist=True, batch_size=1)
        self._steps = 0

    def _is_of_epoch(self, name: str, metrics: Mapping[str, Tensor]) -> bool:
        """Whether a log is a mean over the epoch, which is written at its end."""
        return f"{name}_epoch" in metrics or name.endswith("_epoch") or float(metrics[name]) != float(self._last)

    def _among(self, metrics: Mapping[str, Tensor]) -> str | None:
        mean, last = float(self._total / self._steps), float(self._last)
        scored = []
        for name, value in metrics.items():
            if name.endswith("_step") and name.removesuffix("_step") in metrics:
                continue  # Lightning logs its mean, too
            off = min(_distance(float(value), last), _distance(float(value), mean))
            if off <= _TOLERANCE and "val" not in name:
                scored.append(("loss" not in name.lower(), off, name))
        return min(scored)[-1] if scored else None


def _distance(value: float, loss: float) -> float:
    return abs(value - loss) / max(abs(loss), 1e-12)
