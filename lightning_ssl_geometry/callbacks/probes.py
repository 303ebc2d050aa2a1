"""Online probes: what the representation knows of the labels, while it is trained without them."""

__all__ = ["KNNProbe", "LinearProbe"]

import itertools
from abc import ABC, abstractmethod
from typing import Any

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from lightning.pytorch.utilities import rank_zero_warn
from lightning.pytorch.utilities.model_helpers import is_overridden
from torch import Tensor, nn
from torch.nn.functional import cross_entropy
from torchmetrics.classification import MulticlassAccuracy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.batches import BatchKeys
from lightning_ssl_geometry.callbacks.observer import Observer, on_device, undisturbed, validation_loader
from lightning_ssl_geometry.callbacks.repeats import without_repeats
from lightning_ssl_geometry.callbacks.taps import ViewLayout
from lightning_ssl_geometry.functional.knn import knn_predict


class _Probe(L.Callback, ABC):
    """Base: observes h and the label, and scores predictions on the validation set.

    The validation set of a host that has no `validation_step` is passed through it at the end of each epoch, as
    :class:`GeometryMonitor` does for its stage "probe".

    Args:
        name: Logged as `val/{name}_accuracy`.
        num_classes: None: the DataModule's `num_classes`.
        taps, views, batch_keys: As in :class:`GeometryMonitor`; taps must have "h", batch_keys "label". Where nothing
            but images is validated, "image" stands for "views".
    """

    def __init__(
        self,
        name: str,
        num_classes: int | None,
        taps: dict[str, str] | None,
        views: ViewLayout,
        batch_keys: BatchKeys | None,
    ) -> None:
        super().__init__()
        if num_classes is not None and num_classes < 2:
            raise ValueError(f"Expected `num_classes` >= 2, but got {num_classes}.")
        self.name = name
        self.num_classes = num_classes
        self.observer = Observer(taps, views, batch_keys, finite=False, one_view=True)
        self._accuracy: MulticlassAccuracy | None = None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register the hooks, find the number of classes, and go before the callbacks that read the accuracy."""
        self.observer.attach(pl_module)
        trainer.callbacks = [self, *(callback for callback in trainer.callbacks if callback is not self)]  # type: ignore[attr-defined]
        if self.num_classes is None:
            found = getattr(getattr(trainer, "datamodule", None), "num_classes", None)
            if found is None:
                raise ValueError(
                    f"Expected `num_classes` for {type(self).__name__}: no DataModule says it. Give it to the probe."
                )
            self.num_classes = int(found)
        self._accuracy = MulticlassAccuracy(self.num_classes, average="micro")

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the hooks."""
        self.observer.detach()

    def on_train_batch_start(self, *_: Any) -> None:
        """Begin to observe a step."""
        self.observer.open()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Learn from the step's representations and labels."""
        h, label = self._labelled(self.observer.close(outputs, batch, trainer, "train"), check=batch_idx == 0)
        self._learn(h, label, pl_module)

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a validation."""
        assert self._accuracy is not None
        self._accuracy.to(pl_module.device).reset()

    def on_validation_batch_start(self, *_: Any) -> None:
        """Begin to observe a step."""
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
        """Score the predictions from the images without augmentation where the step has them, else from view 1."""
        observation = self.observer.close(outputs, batch, trainer, "val")
        if trainer.sanity_checking or not self._ready():
            return
        self._score(without_repeats(observation, trainer.val_dataloaders, batch_idx, dataloader_idx))

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the accuracy."""
        assert self._accuracy is not None
        if self._accuracy.update_called:
            pl_module.log(f"val/{self.name}_accuracy", self._accuracy.compute(), prog_bar=True)
            self._accuracy.reset()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Pass the validation set of a host that has no `validation_step` through it."""
        if is_overridden("validation_step", pl_module):
            return
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = validation_loader(trainer)
            if loader is None:
                rank_zero_warn(f"{type(self).__name__} is not scored: the Trainer was given no validation set.")
                return
            self.on_validation_epoch_start(trainer, pl_module)
            self.observer.restart("val")
            last = 1 if trainer.fast_dev_run else None  # type: ignore[attr-defined]
            for place, batch in enumerate(itertools.islice(loader, last)):
                observation = self.observer.look(pl_module, on_device(batch, trainer), trainer, "val")
                self._score(without_repeats(observation, loader, place))
        self.on_validation_epoch_end(trainer, pl_module)

    def _score(self, observation: dict[str, Any] | None) -> None:
        if observation is None:
            return
        h, label = self._labelled(observation, check=True)
        assert self._accuracy is not None
        with torch.inference_mode():
            self._accuracy.update(self._predict(observation.get("h_image", h[0]).float()), label)

    def _labelled(self, observation: dict[str, Any], check: bool) -> tuple[Tensor, Tensor]:
        """Take h and the labels out; check their range, for which an accelerator is waited for, if asked to."""
        missing = [name for name in ("h", "label") if name not in observation]
        if missing:
            raise ValueError(
                f"Expected `{missing[0]}` for {type(self).__name__}, but the step has only "
                f"{', '.join(sorted(observation)) or 'nothing'}. Return it, or name it in `taps` or `batch_keys`."
            )
        label = observation["label"]
        if check and (int(label.max()) >= (self.num_classes or 0) or int(label.min()) < 0):
            raise ValueError(f"Expected labels from 0 to {(self.num_classes or 0) - 1}, but got {int(label.max())}.")
        return observation["h"], label

    @abstractmethod
    def _ready(self) -> bool:
        """Whether anything was learned yet."""

    @abstractmethod
    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None:
        """Take in the representations h (V, N, D) of a training step, and their labels (N,)."""

    @abstractmethod
    def _predict(self, h: Tensor) -> Tensor:
        """Predict the classes of h (N, D)."""


class LinearProbe(_Probe):
    """A linear classifier on the detached representation, trained along: `val/linear_probe_accuracy`.

    Its weights and its optimizer's live here, not in the module: the host's training and checkpoint keys are the
    same with and without it, and a resumed run goes on with them. Every view of a training batch is a sample.
    The mean over the global batch is descended. Its loss is logged as `train/linear_probe_loss`.

    Args:
        num_classes: None: the DataModule's `num_classes`.
        optimizer: Makes the optimizer; Adam with learning rate 1e-2 by default.
        taps: For a model that is not ours: {"h": dotted name of the backbone}.
        views: As in :class:`GeometryMonitor`.
        batch_keys: As in :class:`GeometryMonitor`, such as {"label": 1}.
    """

    def __init__(
        self,
        num_classes: int | None = None,
        optimizer: OptimizerCallable | None = None,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
    ) -> None:
        super().__init__("linear_probe", num_classes, taps, views, batch_keys)
        self.optimizer = optimizer or _adam
        self._head: nn.Linear | None = None
        self._descent: torch.optim.Optimizer | None = None
        self._restored: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        """Weights and optimizer state; empty before the first step."""
        if self._head is None or self._descent is None:
            return self._restored
        return {"head": self._head.state_dict(), "optimizer": self._descent.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        """Keep them until the first step, when the device is known."""
        self._restored, self._head = state_dict, None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Build the classifier from a checkpoint's state, if there is one."""
        if self._restored:
            self._build(self._restored["head"]["weight"].shape[1], pl_module.device)

    def _ready(self) -> bool:
        return self._head is not None

    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None:
        if self._head is None:
            self._build(h.shape[-1], h.device)
        assert self._head is not None
        assert self._descent is not None
        total = distributed.all_reduce_sum(torch.tensor(len(label), device=h.device))
        with torch.enable_grad(), torch.autocast(h.device.type, enabled=False):
            logits = self._head(h.flatten(0, 1).float())
            loss = cross_entropy(logits, label.repeat(len(h)), reduction="sum") / (total * len(h))
            self._descent.zero_grad()
            loss.backward()
        for parameter in self._head.parameters():
            assert parameter.grad is not None
            parameter.grad = distributed.all_reduce_sum(parameter.grad)  # ranks may have batches of different sizes
        self._descent.step()
        loss = distributed.all_reduce_sum(loss.detach())
        pl_module.log("train/linear_probe_loss", loss, on_step=False, on_epoch=True, batch_size=int(total))

    def _predict(self, h: Tensor) -> Tensor:
        assert self._head is not None
        with torch.autocast(h.device.type, enabled=False):
            return self._head(h).argmax(-1)

    def _build(self, features: int, device: torch.device) -> None:
        assert self.num_classes is not None
        with torch.random.fork_rng([]):  # the host's random numbers stay as they were
            torch.manual_seed(0)  # and all ranks begin alike
            head = nn.Linear(features, self.num_classes)
        self._head = head.to(device)
        self._descent = self.optimizer(self._head.parameters())
        if self._restored:
            self._head.load_state_dict(self._restored["head"])
            self._descent.load_state_dict(self._restored["optimizer"])
            self._restored = {}


class KNNProbe(_Probe):
    """A weighted k-nearest-neighbour vote by cosine similarity (Wu et al. 2018): `val/knn_probe_accuracy`.

    The bank holds first views of the epoch's training samples, the last `bank_size` of them over all ranks; no
    further forward pass. It is emptied at the start of each epoch. Memory, in float32 on the training device: bank_size
    x D, the same again during a validation, and chunk_size x bank_size while predicting.

    Args:
        k: Number of neighbours, >= 1; the whole bank if that is smaller.
        temperature: Votes weigh exp(similarity / temperature).
        bank_size: Samples kept.
        chunk_size: Validation samples compared at once.
        num_classes: None: the DataModule's `num_classes`.
        taps: As in :class:`LinearProbe`.
        views: As in :class:`GeometryMonitor`.
        batch_keys: As in :class:`GeometryMonitor`.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        k: int = 20,
        temperature: float = 0.07,
        bank_size: int = 10_000,
        chunk_size: int = 1024,
        num_classes: int | None = None,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
    ) -> None:
        super().__init__("knn_probe", num_classes, taps, views, batch_keys)
        for name, value in {"k": k, "bank_size": bank_size, "chunk_size": chunk_size}.items():
            if value < 1:
                raise ValueError(f"Expected `{name}` >= 1, but got {value}.")
        if not temperature > 0:
            raise ValueError(f"Expected `temperature` > 0, but got {temperature}.")
        self.k = k
        self.temperature = temperature
        self.bank_size = bank_size
        self.chunk_size = chunk_size
        self._bank: list[tuple[Tensor, Tensor]] = []
        self._gathered: tuple[Tensor, Tensor] | None = None

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Empty the bank."""
        self._bank.clear()

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Gather the bank from all ranks."""
        super().on_validation_epoch_start(trainer, pl_module)
        if self._bank:
            h, label = (torch.cat(part) for part in zip(*self._bank, strict=True))
            self._gathered = distributed.gather(h), distributed.gather(label)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Log the accuracy, and let the gathered bank go."""
        super().on_validation_epoch_end(trainer, pl_module)
        self._gathered = None

    def _ready(self) -> bool:
        return self._gathered is not None

    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None:
        self._bank.append((h[0].to(torch.float32, copy=True), label.clone()))  # a view would keep all views alive
        size = self.bank_size // distributed.world_size()
        while sum(len(rows) for _, rows in self._bank) - len(self._bank[0][1]) >= size:
            self._bank.pop(0)

    def _predict(self, h: Tensor) -> Tensor:
        assert self._gathered is not None
        assert self.num_classes is not None
        bank, label = self._gathered
        k = min(self.k, len(label))
        return knn_predict(
            h, bank, label, self.num_classes, k, temperature=self.temperature, chunk_size=self.chunk_size
        )


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)
