"""AlternatingModule, the base class of methods with several optimizers."""

__all__ = ["AlternatingModule", "Part"]

from abc import abstractmethod
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Unpack

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.core.optimizer import LightningOptimizer
from lightning.pytorch.strategies import DDPStrategy, ParallelStrategy
from lightning.pytorch.utilities.types import OptimizerLRScheduler, OptimizerLRSchedulerConfig
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.optim.lr_scheduler import ReduceLROnPlateau

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.methods.base import SSLModule, SSLSettings
from lightning_ssl_geometry.methods.schedule import warmup_cosine
from lightning_ssl_geometry.settings import passed_on


@dataclass(frozen=True)
class Part:
    """Modules that one optimizer trains.

    Attributes:
        modules: The modules whose parameters the optimizer changes.
        optimizer: Makes the optimizer from parameter groups.
        lr_scheduler: Makes a scheduler stepped once per epoch. None: warm-up and cosine, stepped once per batch.
        grad_clip: Largest norm of the gradient. Larger gradients are scaled down. None: no limit.
    """

    modules: tuple[nn.Module, ...]
    optimizer: OptimizerCallable
    lr_scheduler: LRSchedulerCallable | None
    grad_clip: float | None


class AlternatingModule(SSLModule):
    """Base class of methods with several optimizers. All of them take a step on every batch.

    A subclass implements :meth:`parts`. Its `descend` calls :meth:`take_step` for each part, and then
    :meth:`step_schedulers`. `global_step` counts each batch once. Several processes need the strategy "ddp". The
    Trainer's `gradient_clip_val` and `accumulate_grad_batches` cannot be used.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid. It is raised when training begins if several processes use another
            strategy than DDP, or if a scheduler needs a metric.
    """

    @passed_on
    def __init__(self, backbone: nn.Module, projector: nn.Module, **settings: Unpack[SSLSettings]) -> None:
        super().__init__(backbone, projector, **settings)
        self.automatic_optimization = False

    @abstractmethod
    def parts(self) -> list[Part]:
        """Return one :class:`Part` for each optimizer, in the order of the optimizer steps."""

    def take_step(self, loss: Tensor, place: int) -> None:
        """Take a step of the optimizer of `parts()[place]` to lower a loss."""
        optimizer = self._optimizers[place]
        self._backward(loss, optimizer)
        if place == 0:
            optimizer.step()
            torch.clear_autocast_cache()  # else Lightning before 2.5.6 would show the next part the old weights
        else:  # not by LightningOptimizer.step: that is what the Trainer counts, and a batch counts once
            self.trainer.strategy.optimizer_step(optimizer.optimizer, _nothing)

    def step_schedulers(self) -> None:
        """Step the per-batch schedulers. After the last batch of an epoch, also step the per-epoch schedulers."""
        # Lightning saves no checkpoint before this, because `descend` is part of the training step.
        ended = ("step", "epoch") if self.trainer.is_last_batch else ("step",)
        for interval in ended:
            for config in self.trainer.lr_scheduler_configs:
                if config.interval == interval:
                    config.scheduler.step()  # type: ignore[call-arg]

    def configure_optimizers(self) -> OptimizerLRScheduler:
        strategy = self.trainer.strategy
        if isinstance(strategy, ParallelStrategy) and not isinstance(strategy, DDPStrategy):
            wanted = "the Trainer's strategy to be 'ddp' or one device"
            raise ValueError(f"Expected {wanted}, but got {type(strategy).__name__}.")
        return tuple(self._optimization(part) for part in self.parts())

    def on_before_optimizer_step(self, optimizer: Optimizer) -> None:
        # The loss scaling of half precision is already undone.
        clip = self.parts()[self.trainer.optimizers.index(optimizer)].grad_clip
        self.clip_gradients(optimizer, gradient_clip_val=clip, gradient_clip_algorithm="norm")

    @property
    def _optimizers(self) -> list[LightningOptimizer]:
        found = self.optimizers()
        return found if isinstance(found, list) else [found]

    def _backward(self, loss: Tensor, optimizer: LightningOptimizer) -> None:
        strategy = self.trainer.strategy  # DDP itself would wait for the gradients of all parameters
        optimizer.zero_grad()
        with strategy.block_backward_sync() if isinstance(strategy, DDPStrategy) else nullcontext():
            self.manual_backward(loss)
        distributed.average_gradients(p for group in optimizer.param_groups for p in group["params"])

    def _optimization(self, part: Part) -> OptimizerLRSchedulerConfig:
        made = part.optimizer(self._parameter_groups(*part.modules))
        own = part.lr_scheduler
        scheduler = warmup_cosine(made, *self._schedule_steps()) if own is None else own(made)
        if isinstance(scheduler, ReduceLROnPlateau):
            raise ValueError("Expected a scheduler that needs no metric, but got ReduceLROnPlateau.")
        interval = "step" if own is None else "epoch"
        return {"optimizer": made, "lr_scheduler": {"scheduler": scheduler, "interval": interval}}


def _nothing() -> None:
    pass  # the closure of an optimizer step whose gradient is already computed
