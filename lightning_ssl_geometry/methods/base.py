"""SSLModule, the base class of all methods."""

__all__ = ["BATCH_SIZE", "CONTRASTIVE_LOSS", "LOSS", "ONCE_BY_POSITION", "SSLModule", "SSLSettings", "loss_or"]

import math
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, ClassVar, Literal, Self, TypedDict

import lightning as L
import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.types import OptimizerLRScheduler
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _NormBase
from torch.nn.parameter import is_lazy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import inside, integer, switch
from lightning_ssl_geometry.methods.chunks import batch_norm_of, in_chunks
from lightning_ssl_geometry.methods.schedule import warmup_cosine
from lightning_ssl_geometry.papers import SIMCLR
from lightning_ssl_geometry.quantity import TREND_OF_LOSS, Chart, Quantity
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.settings import all_named
from lightning_ssl_geometry.types import COLUMNS, Batch, Observation

LOSS = Quantity(
    title="Loss",
    text="The loss that training lowers.",
    low="Training does well on these data, by its own measure.",
    high="Training does badly on these data, by its own measure.",
    better="low",
    chart=Chart("loss", "Loss", "loss"),
    headline=True,
    verdicts=TREND_OF_LOSS,
)
CONTRASTIVE_LOSS = replace(
    LOSS,
    text="The contrastive loss that training lowers. Compare runs only at the same temperature and batch size.",
    low="The views of a sample find each other among all others.",
    high="Near the logarithm of the number of negatives: samples are not told apart.",
    paper=SIMCLR,
    comparable_at="batch_size",
    remark="Mean batch size {batch_size}.",
)
BATCH_SIZE = Quantity(
    title="Batch size",
    text="Number of samples in a batch of all processes, averaged over samples. A contrastive loss depends on it.",
    shown=False,
)

ONCE_BY_POSITION = ("optimizer", "lr_scheduler", "warmup_epochs", "exclude_norm_and_bias")  # names of settings

_CLASS = "ssl_geometry_class"
_SPACES: tuple[Literal["h", "z", "fibers", "h_image", "z_image", "temperature"], ...] = (
    "h",
    "z",
    "fibers",
    "h_image",
    "z_image",
    "temperature",
)


class SSLSettings(TypedDict, total=False):
    """The arguments of :class:`SSLModule` except the networks."""

    optimizer: OptimizerCallable | None
    lr_scheduler: LRSchedulerCallable | None
    warmup_epochs: float
    exclude_norm_and_bias: bool
    chunk_size: int | None


class SSLModule(L.LightningModule):
    """Base class of the methods. A subclass implements :meth:`step`, which computes the loss.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        optimizer: Makes the optimizer from parameter groups. None: the method's own, or AdamW with learning rate 1e-3.
        lr_scheduler: Makes a scheduler that is stepped once per epoch. None: the method's own, or a linear warm-up and
            then a cosine to zero over all optimizer steps of the run.
        warmup_epochs: Length of the warm-up in epochs, a number >= 0. It must be 0 with an `lr_scheduler`.
        exclude_norm_and_bias: Whether biases and weights of normalisation (parameters with one axis) have no weight
            decay, as in SimCLR. With timm's LARS, they also have no trust ratio.
        chunk_size: Number of rows (images times views), at least 1, that go through the backbone at a time in training.
            The activations of one chunk are in memory at a time, so a large batch needs the memory of a small one, and
            the backbone runs twice (GradCache, Gao et al. 2021). Loss and gradient are those of the whole batch, unless
            the backbone has batch norm, which takes its statistics from each chunk, or a state that it changes in
            each call, such as a counter. None: the whole batch at once.

    Raises:
        ValueError: If `backbone` or `projector` is not a module with a `forward`, or `warmup_epochs` or `chunk_size` is
            out of range.
    """

    section: ClassVar[str] = "learning"
    quantities: ClassVar[Mapping[str, Quantity]] = {"loss": LOSS}
    default_optimizer: ClassVar[OptimizerCallable] = staticmethod(partial(torch.optim.AdamW, lr=1e-3))
    default_lr_scheduler: ClassVar[LRSchedulerCallable | None] = None  # warm-up and cosine

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        warmup_epochs: float = 0.0,
        exclude_norm_and_bias: bool = True,
        *,
        chunk_size: int | None = None,
    ) -> None:
        super().__init__()
        for name, network in (("backbone", backbone), ("projector", projector)):
            if type(network) is nn.Module:
                raise ValueError(f"Expected `{name}` to be a module with a `forward`, but got {network!r}.")
            if not isinstance(network, nn.Module):
                raise ValueError(
                    f"Expected `{name}` to be a torch.nn.Module, but got a {type(network).__name__}. Give the module "
                    "itself (`load_from_checkpoint` builds none that a checkpoint names, unless weights_only=False)."
                )
        inside("[0, inf)", warmup_epochs=warmup_epochs)
        lr_scheduler = lr_scheduler or type(self).default_lr_scheduler
        if warmup_epochs and lr_scheduler is not None:
            raise ValueError(f"Expected `warmup_epochs` = 0 beside `lr_scheduler`, but got {warmup_epochs}.")
        self.backbone = backbone
        self.projector = projector
        self.optimizer = optimizer or type(self).default_optimizer
        self.lr_scheduler = lr_scheduler
        self.warmup_epochs = warmup_epochs
        switch(exclude_norm_and_bias=exclude_norm_and_bias)
        self.exclude_norm_and_bias = exclude_norm_and_bias
        self.chunk_size: int | None = None
        if chunk_size is not None:
            integer(1, chunk_size=chunk_size)
            self.chunk_size = int(chunk_size)

    @classmethod
    def load_from_checkpoint(
        cls,
        checkpoint_path: str | Path | IO[bytes],
        map_location: Any = None,
        hparams_file: str | Path | None = None,
        strict: bool | None = None,
        weights_only: bool | None = None,
        **kwargs: Any,
    ) -> Self:
        """Build the module from `kwargs`, and load the weights of a checkpoint.

        `kwargs` are arguments of the module, and must contain the networks. Missing arguments are taken from the
        checkpoint if their values are plain, such as numbers. Use `weights_only=False` for trusted files only, as it
        can run code from the file. The other arguments are those of Lightning.
        """
        if weights_only is not False:
            weights_only = True  # Lightning's default for a URL is False
            kwargs["_instantiator"] = None  # Lightning's own imports the classes that the hyper-parameters name
        load = super().load_from_checkpoint
        with all_named(cls):
            return load(
                checkpoint_path,
                map_location,
                hparams_file=hparams_file,
                strict=strict,
                weights_only=weights_only,
                **kwargs,
            )

    @abstractmethod
    def step(self, batch: Batch) -> Observation:
        """Return `loss`, `h` (V, N, D), `z` (V, N, P), and further entries for diagnostics."""

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to representations h (N, D)."""
        return self.backbone(x)

    def features(self, x: Tensor) -> Tensor:
        """Map rows x (N, ...) through the backbone, in chunks of `chunk_size` rows in training."""
        if self.chunk_size is None or not self.training:
            y: Tensor = self.backbone(x)
            return y
        return in_chunks(self.backbone, x, self.chunk_size)

    def embed(self, views: tuple[Tensor, ...]) -> tuple[Tensor, Tensor]:
        """Map V views (N, ...) to h (V, N, D) and z (V, N, P). All views go through the networks as one batch."""
        h = self.features(torch.cat(views))
        if h.ndim != 2:
            raise ValueError(f"Expected `backbone` to return (N, D), but got shape {tuple(h.shape)}.")
        z = self.project(h)
        return h.unflatten(0, (len(views), -1)), z.unflatten(0, (len(views), -1))

    def project(self, h: Tensor) -> Tensor:
        """Map h (N, D) to z (N, P). Raise a ValueError if the projector expects a different D."""
        try:
            return self.projector(h)
        except RuntimeError as error:
            first = next((module for module in self.projector.modules() if isinstance(module, nn.Linear)), None)
            if first is None or h.ndim != 2 or first.in_features == h.shape[1]:
                raise
            raise ValueError(
                f"Expected `projector` to take D = {h.shape[1]}, which {type(self.backbone).__name__} as `backbone` "
                f"returns, but got {type(self.projector).__name__}, which takes {first.in_features}."
            ) from error

    def observe(self, batch: Batch) -> Observation:
        """Return the result of :meth:`step` with detached tensors, and add entries for the diagnostics.

        The added entries are `encoder` (this module), `projector`, and the batch's `label`, `index` and other
        `types.COLUMNS`. In eval mode, `views`, `image` and `h_image` are also added. `h_image` is the representation of
        `image`.
        """
        observation: Observation = {"encoder": self, "projector": self.projector, **self.step(batch)}
        for space in _SPACES:
            if space in observation:
                observation[space] = observation[space].detach()
        for name in COLUMNS:
            if name in batch:
                observation[name] = batch[name]
        if not self.training:
            observation["views"] = batch["views"]
        if "image" in batch and not self.training:
            observation["image"] = batch["image"]
            if "h_image" not in observation:
                with torch.no_grad():
                    observation["h_image"] = self(batch["image"].clone())  # a network may change its input
        return observation

    def descend(self, observation: Observation, batch: Batch) -> Observation:
        """Return the observation. Methods with manual optimization override this to take optimizer steps."""
        return observation

    def on_fit_start(self) -> None:
        if self.chunk_size is not None and (layer := batch_norm_of(self.backbone)):
            rank_zero_warn(
                f"With `chunk_size`, batch norm takes its statistics from each chunk of {self.chunk_size} rows, so the "
                f"training is another than that of whole batches. The backbone has {type(layer).__name__}. "
                "Group norm, such as SmallCNN(norm='group'), has no statistics of a batch."
            )

    def training_step(self, batch: Batch, batch_idx: int) -> Observation:
        """Return the observation of the batch, and log the loss as `train/loss`."""
        observation = self.descend(self.observe(batch), batch)
        local = len(batch["views"][0])
        n = distributed.total(local, self.device)
        self._log_loss(observation, "train", n)
        self._log_scores(observation, "train", local=local, n=n)
        return observation

    def validation_step(self, batch: Batch, batch_idx: int) -> Observation:
        """Return the observation of the batch, and log the loss as `val/loss`."""
        return self._evaluation_step(batch, "val")

    def test_step(self, batch: Batch, batch_idx: int) -> Observation:
        """Return the observation of the batch, and log the loss as `test/loss`."""
        return self._evaluation_step(batch, "test")

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return h (N, D) of the batch's `image`."""
        return self(batch["image"])

    def project_image(self, h: Tensor, batch: Batch) -> Tensor | None:
        """Return z (N, P) of the batch's `image`, or None if an image has no z.

        h (N, D) is the result of :meth:`predict_step`. `ssl-geometry predict` writes both to a file.
        """
        return self.project(h)

    def configure_optimizers(self) -> OptimizerLRScheduler:
        optimizer = self.optimizer(self._parameter_groups())
        if self.lr_scheduler is not None:
            return {"optimizer": optimizer, "lr_scheduler": self.lr_scheduler(optimizer)}
        scheduler = warmup_cosine(optimizer, *self._schedule_steps())
        return {"optimizer": optimizer, "lr_scheduler": {"scheduler": scheduler, "interval": "step"}}

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        checkpoint[_CLASS] = type(self).__name__

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        """Raise a ValueError if another class saved the checkpoint."""
        found = checkpoint.get(_CLASS, "a class of another package")
        if found != type(self).__name__:
            raise ValueError(f"Expected a checkpoint of {type(self).__name__}, but got one of {found}.")

    def _evaluation_step(self, batch: Batch, stage: str) -> Observation:
        observation = self.observe(batch)
        # The loss is that of the global batch already, so it is weighted by that batch's size and not synchronised.
        local = len(batch["views"][0])
        n = distributed.total(local, self.device)
        self._log_loss(observation, stage, n)
        self._log_scores(observation, stage, local=local, n=n)
        return observation

    def _log_loss(self, observation: Observation, stage: str, n: int) -> None:
        self.log(f"{stage}/loss", observation["loss"], prog_bar=True, on_step=False, on_epoch=True, batch_size=n)
        if "batch_size" in self.quantities:
            self.log(f"{stage}/batch_size", self._filled(n), on_step=False, on_epoch=True, batch_size=n)

    def _log_scores(self, observation: Observation, stage: str, *, local: int, n: int) -> None:
        # the mean over the samples of all processes; Lightning's own weights round the number of samples
        scores = observation.get("scores", {})
        if not scores:
            return
        own = self._filled(local)
        *totals, everywhere = distributed.all_reduce_sum(
            torch.stack([*(own * s.detach() for s in scores.values()), own])
        )
        for name, total in zip(scores, totals, strict=True):
            self.log(f"{stage}/{name}", total / everywhere, on_step=False, on_epoch=True, batch_size=n)

    def _filled(self, value: float) -> Tensor:
        # a number to be logged: made on the GPU, for Lightning would copy it there and wait
        return torch.full(
            (), value, dtype=torch.promote_types(torch.get_default_dtype(), torch.float32), device=self.device
        )

    def _parameter_groups(self, *modules: nn.Module) -> list[dict[str, Any]]:
        parameters = [p for module in modules or (self,) for p in module.parameters() if p.requires_grad]
        if not self.exclude_norm_and_bias:
            return [{"params": parameters}]
        lazy = _lazy_weights(modules or (self,))
        weights = {id(p) for p in parameters if p.ndim > 1} | set(map(id, lazy))
        groups: list[dict[str, Any]] = [
            {"params": [p for p in parameters if id(p) in weights]},
            {"params": [p for p in parameters if id(p) not in weights], "weight_decay": 0.0},
        ]
        return [group for group in groups if group["params"]]

    def _uniform(self, batch: Batch, like: Tensor, size: int, *, seed: int, stream: tuple[int, ...] = ()) -> Tensor:
        if "index" not in batch:
            return torch.rand(len(like), size, device=like.device)
        epoch = self.current_epoch if self.training else 0
        return counter_uniform(seed, epoch, *stream, batch["index"].to(like.device), size=size)

    def _steps_of_an_epoch(self) -> int:
        batches = self.trainer.num_training_batches
        if batches == float("inf"):
            raise ValueError(
                f"Expected `warmup_epochs` 0 for a training set without a length, but got {self.warmup_epochs}: nobody "
                "knows how many steps an epoch has."
            )
        return math.ceil(batches / self.trainer.accumulate_grad_batches)  # Lightning steps after an epoch's last batch

    def _schedule_steps(self) -> tuple[int, int]:
        total = self.trainer.estimated_stepping_batches
        if total == float("inf"):
            raise ValueError("Expected `max_epochs` or `max_steps` of the Trainer for a cosine schedule, but got none.")
        if self.trainer.train_dataloader is None:  # with `max_steps` alone nobody has asked for the length of an epoch
            self.trainer.fit_loop.setup_data()
        warmup = round(self.warmup_epochs * self._steps_of_an_epoch()) if self.warmup_epochs else 0
        if self.trainer.fast_dev_run:  # type: ignore[attr-defined]
            warmup = min(warmup, int(total))  # a trial of a few batches is shorter than any warm-up
        return warmup, int(total)


def loss_or(default: Callable[[], nn.Module], loss: nn.Module | None) -> nn.Module:
    """Return the loss of a method, or the default for None. Raise a ValueError if it is nothing that can be called."""
    if loss is None:
        return default()
    if isinstance(loss, type) or not callable(loss):
        got = f"the class {loss.__name__}" if isinstance(loss, type) else repr(loss)
        raise ValueError(f"Expected `loss` to be a module or None, but got {got}.")
    return loss


def _lazy_weights(modules: Sequence[nn.Module]) -> list[nn.Parameter]:
    """The weights of linear layers and convolutions whose shape the first batch decides."""
    return [
        parameter
        for module in modules
        for layer in module.modules()
        if not isinstance(layer, _NormBase)
        for name, parameter in layer.named_parameters(recurse=False)
        if is_lazy(parameter) and name != "bias"
    ]
