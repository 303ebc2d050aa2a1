"""Online probes: classifiers that learn labels from h while the model trains without labels."""

__all__ = ["KNNProbe", "LinearProbe"]

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import lightning as L
import torch
from lightning.pytorch.cli import OptimizerCallable
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.loops import Stage
from lightning_ssl_geometry.callbacks.probe import Probe, ProbeSettings
from lightning_ssl_geometry.checks import at_least, positive
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.knn import knn_predict
from lightning_ssl_geometry.papers import SIMCLR, WU
from lightning_ssl_geometry.quantity import CHANCE, CLASSIFIER_LOSS, Quantity
from lightning_ssl_geometry.settings import passed_on


class LinearProbe(Probe):
    """A linear classifier that learns labels from h while the model trains. It has no effect on the model.

    It logs `val/linear_probe_accuracy` and `train/linear_probe_loss`. The loss is the mean over all views of all
    samples of the global batch. Training skips samples with an h that is not finite. In validation, one such sample
    makes the accuracy NaN. Weights and optimizer state are saved in checkpoints. Each new fit starts a new classifier.
    A resumed fit continues with the saved one.

    Args:
        num_classes: Number of classes. None: the DataModule's `num_classes`.
        optimizer: Makes the optimizer from the parameters. None: Adam with learning rate 1e-2.
        name: Prefix of the logged names. Two probes of one model need different names.
        **settings: The arguments `on_error`, `host`, `taps`, `view_layout` and `batch_keys` of :class:`Probe`. A model
            of another package needs `taps`, such as {"h": "backbone"}, and `batch_keys`, such as {"label": 1}.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "accuracy": replace(
            Probe.quantities["accuracy"],
            title="Linear probe",
            text="Accuracy of a linear classifier that is trained on h beside the network. It has no effect on the "
            "network.",
            low="Near chance: classes are not linearly separable in h, or the classifier has not caught up with h yet.",
            high="Classes are linearly separable in h.",
            paper=SIMCLR,
            label="linear",
        ),
        "chance": CHANCE,
        "loss": replace(
            CLASSIFIER_LOSS,
            title="Loss of the linear probe",
            text="The cross entropy of the linear classifier on the training set.",
        ),
    }

    default_name = "linear_probe"
    scalars: ClassVar[Mapping[str, tuple[str, ...]]] = {"train": ("loss",), "val": ("accuracy", "chance")}

    @by_position("taps", "view_layout", "batch_keys", "name", "on_error")
    @passed_on
    def __init__(
        self,
        num_classes: int | None = None,
        optimizer: OptimizerCallable | None = None,
        *,
        name: str = "linear_probe",
        **settings: Unpack[ProbeSettings],
    ) -> None:
        super().__init__(name, num_classes, **settings)
        self.optimizer = optimizer or _adam
        self._head: nn.Linear | None = None
        self._descent: torch.optim.Optimizer | None = None
        self._restored: dict[str, Any] = {}

    def state_dict(self) -> dict[str, Any]:
        if self._head is None or self._descent is None:
            return self._restored
        return {"head": self._head.state_dict(), "optimizer": self._descent.state_dict()}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._restored, self._head = state_dict, None

    def start_clean(self) -> None:
        self._head, self._descent, self._restored = None, None, {}

    def miss(self, stage: Stage, trainer: L.Trainer) -> None:
        if stage == "train" and self._head is not None:  # the other ranks wait for this rank's gradients
            weight = self._head.weight
            h = weight.new_zeros(1, 0, weight.shape[1])
            self._learn(h, torch.zeros(0, dtype=torch.int64, device=weight.device), trainer.lightning_module)

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().begin(stage, trainer, pl_module)
        if self._restored:
            self._build(self._restored["head"]["weight"].shape[1], pl_module.device)

    def _ready(self) -> bool:
        return self._head is not None

    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None:
        if self._head is None:
            self._build(h.shape[-1], h.device)
        assert self._head is not None
        assert self._descent is not None
        rows, target = h.flatten(0, 1).float(), label.repeat(len(h))
        counted = torch.isfinite(rows).all(1) & self._is_class(target)
        total = distributed.all_reduce_sum(counted.sum()).clamp(min=1)
        with torch.enable_grad(), torch.autocast(h.device.type, enabled=False):
            logits = self._head(torch.where(counted[:, None], rows, 0.0))
            loss = (cross_entropy(logits, target.where(counted, 0), reduction="none") * counted).sum() / total
            self._descent.zero_grad()
            loss.backward()
        for parameter in self._head.parameters():
            assert parameter.grad is not None
            parameter.grad = distributed.all_reduce_sum(parameter.grad)  # ranks may have batches of different sizes
        self._descent.step()
        loss = distributed.all_reduce_sum(loss.detach())
        n = distributed.total(len(label), h.device)
        pl_module.log(f"train/{self.name}_loss", loss, on_step=False, on_epoch=True, batch_size=n)

    def _predict(self, h: Tensor) -> Tensor:
        assert self._head is not None
        with torch.autocast(h.device.type, enabled=False):
            return self._head(h).argmax(-1)

    def _build(self, features: int, device: torch.device) -> None:
        with torch.random.fork_rng([]):  # the host's random numbers stay as they were
            torch.manual_seed(0)  # and all ranks get the same weights
            head = nn.Linear(features, self._classes)
        self._head = head.to(device)
        self._descent = self.optimizer(self._head.parameters())
        if self._restored:
            self._head.load_state_dict(self._restored["head"])
            self._descent.load_state_dict(self._restored["optimizer"])
            self._restored = {}


class KNNProbe(Probe):
    """Predicts labels by a weighted vote of the nearest neighbours in cosine similarity (Wu et al., 2018).

    It logs `val/knn_probe_accuracy`. The neighbours are from a bank, which holds h of the first view of the last
    `bank_size` training samples, over all ranks. The bank is emptied at the start of each epoch. It takes bank_size x D
    float32 numbers on the training device, where D is the dimension of h. During a validation, the bank takes twice as
    many, and the predictions take chunk_size x bank_size numbers.

    Args:
        k: Number of neighbours, >= 1. If the bank has fewer samples, all of them vote.
        temperature: A vote has the weight exp(similarity / temperature), > 0.
        bank_size: Number of samples in the bank, >= 1.
        chunk_size: Number of validation samples that are compared with the bank at once, >= 1.
        num_classes: Number of classes. None: the DataModule's `num_classes`.
        name: Prefix of the logged names. Two probes of one model need different names.
        **settings: The arguments `on_error`, `host`, `taps`, `view_layout` and `batch_keys` of :class:`Probe`. If h is
            not finite in the validation, the accuracy is NaN. Such training samples have no vote.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "accuracy": replace(
            Probe.quantities["accuracy"],
            title="kNN",
            text="Accuracy of a vote among the nearest neighbours in h. Nothing is trained for it.",
            low="Near chance: which samples are neighbours has little to do with the classes.",
            high="Neighbours are of the same class.",
            paper=WU,
            label="kNN",
        ),
        "chance": CHANCE,
    }

    default_name = "knn_probe"

    @by_position("taps", "view_layout", "batch_keys", "name", "on_error")
    @passed_on
    def __init__(
        self,
        k: int = 20,
        temperature: float = 0.07,
        bank_size: int = 10_000,
        chunk_size: int = 1024,
        num_classes: int | None = None,
        *,
        name: str = "knn_probe",
        **settings: Unpack[ProbeSettings],
    ) -> None:
        super().__init__(name, num_classes, **settings)
        at_least(1, k=k, bank_size=bank_size, chunk_size=chunk_size)
        positive(temperature=temperature)
        self.k = k
        self.temperature = temperature
        self.bank_size = bank_size
        self.chunk_size = chunk_size
        self._bank: list[tuple[Tensor, Tensor]] = []
        self._gathered: tuple[Tensor, Tensor] | None = None

    def start_clean(self) -> None:
        self._bank, self._gathered = [], None

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        self._bank = []  # of another network

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().begin(stage, trainer, pl_module)
        if stage == "train":
            self._bank.clear()
        else:
            self._gathered = self._gather(pl_module.device)

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().end(stage, trainer, pl_module)
        if stage == "val":
            self._gathered = None

    def _gather(self, device: torch.device) -> tuple[Tensor, Tensor] | None:
        width = self._bank[0][0].shape[1] if self._bank else 0
        widths = distributed.gather(torch.tensor([width], device=device))
        if not (most := int(widths.max())):
            return None
        h = torch.cat([h for h, _ in self._bank]) if self._bank else torch.zeros(0, most, device=device)
        empty = torch.zeros(0, dtype=torch.int64, device=device)
        label = torch.cat([label.long() for _, label in self._bank]) if self._bank else empty
        h, label = distributed.gather(h), distributed.gather(label)
        known = self._is_class(label) & torch.isfinite(h).all(1)
        return (h[known], label[known]) if known.any() else None

    def _ready(self) -> bool:
        return self._gathered is not None

    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None:
        self._bank.append((h[0].to(torch.float32, copy=True), label.clone()))  # a view would keep all views alive
        size = self.bank_size // distributed.world_size()
        while sum(len(rows) for _, rows in self._bank) - len(self._bank[0][1]) >= size:
            self._bank.pop(0)

    def _predict(self, h: Tensor) -> Tensor:
        assert self._gathered is not None
        bank, label = self._gathered
        k = min(self.k, len(label))
        return knn_predict(
            h, bank, label, num_classes=self._classes, k=k, temperature=self.temperature, chunk_size=self.chunk_size
        )


def _adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-2)
