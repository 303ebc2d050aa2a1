"""Probe: base class of classifiers that learn labels from h during training."""

__all__ = ["Probe", "ProbeSettings"]

import copy
from abc import abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import lightning as L
import torch
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torchmetrics.classification import MulticlassAccuracy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.loaders import has_validation, on_device, validation_batches, validation_loader
from lightning_ssl_geometry.callbacks.loops import Stage
from lightning_ssl_geometry.callbacks.run_callback import now
from lightning_ssl_geometry.callbacks.stage import StageCallback
from lightning_ssl_geometry.checks import at_least, class_numbers
from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.measuring.failures import OnError
from lightning_ssl_geometry.observe.host import Host, Observer, TapSettings, one_host
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.quantity import CHANCE, CLASSIFIER_ACCURACY, Quantity, Verdict
from lightning_ssl_geometry.recording.names import check_name
from lightning_ssl_geometry.settings import passed_on


class ProbeSettings(TapSettings, total=False):
    """Keyword arguments of :class:`Probe`, except its name and the number of classes."""

    on_error: OnError
    host: Host | None


__getattr__ = old_names(__name__, {"PROBE_ACCURACY": "lightning_ssl_geometry.quantity.CLASSIFIER_ACCURACY"})


class Probe(StageCallback):
    """Base of classifiers that learn labels from h during training. They are scored on the validation set.

    If the module has no `validation_step`, the probe passes the validation set through the module after each epoch.

    The accuracy of always naming the most frequent class is logged beside it, as `val/{name}_chance`.

    Args:
        name: The accuracy is logged as `val/{name}_accuracy`.
        num_classes: Number of classes. None: the DataModule's `num_classes`.
        on_error: What happens if a step fails. "warn": the accuracy is NaN, with a warning. "raise": the fit ends with
            the error after the epoch's checkpoints are saved. An error before the first successful step of training or
            validation is always raised at once. There is one exception: with "warn", an h that is not finite only gives
            a warning.
        host: For a model of another package: a :class:`Host`. Callbacks may share it. `taps` must name "h", and
            `batch_keys` "label". If the validation set has images and no views, `batch_keys` names "image" instead of
            "views". Probes do not use `augment`: they observe the views or the image of the model's own step.
        **places: `taps`, `view_layout` and `batch_keys` of :class:`Host`, in place of `host`.
    """

    section: ClassVar[str] = "probes"
    quantities: ClassVar[dict[str, Quantity]] = {  # the keys of `{name}_{key}`
        "accuracy": replace(
            CLASSIFIER_ACCURACY,
            null="chance",
            verdicts=(
                Verdict(
                    says="{title} is not above chance: {value} of {N} samples are right, and {chance} if the most "
                    "frequent class is always named.",
                    when="value <= chance + 2.326 * sqrt(chance * (1 - chance) / N)",
                    given="N * chance * (1 - chance) >= 9",  # else the approximation is poor
                    source="one-sided binomial test at 1%",
                    topic="a probe at chance",
                ),
            ),
        ),
        "chance": CHANCE,
    }

    default_name: str
    looks_itself = True
    scalars: ClassVar[Mapping[str, tuple[str, ...]]] = {
        "val": ("accuracy", "chance")
    }  # stage -> keys of `{name}_{key}`

    @passed_on
    def __init__(
        self,
        name: str,
        num_classes: int | None,
        *,
        on_error: OnError = "warn",
        host: Host | None = None,
        **places: Unpack[TapSettings],
    ) -> None:
        known = one_host(host, Host(augment=None, **places))
        own = copy.copy(known)
        own.augment = None
        super().__init__(Observer(own, finite=False, one_view=True), on_error)
        if num_classes is not None:
            at_least(2, num_classes=num_classes)
        check_name("name", name)
        self.name = name
        self.num_classes = num_classes
        self._classes = num_classes or 0
        self._accuracy: MulticlassAccuracy | None = None
        self._finite = torch.tensor(True)
        self._counts = torch.zeros(0, dtype=torch.int64)  # scored samples of each class
        self._left_out = torch.tensor(0)

    @property
    def title(self) -> str:
        return f"{type(self).__name__} {self.name!r}"

    @property
    def state_key(self) -> str:
        return type(self).__qualname__ if self.name == self.default_name else self.title

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        data = getattr(trainer, "datamodule", None)
        found = self.num_classes or getattr(data, "num_classes", None)
        if found is None:
            who = "no DataModule says it." if data is None else f"{type(data).__name__} does not say it. Has it labels?"
            raise ValueError(f"Expected `num_classes` for {type(self).__name__}: {who} Give it to the probe.")
        self._classes = int(found)
        self._accuracy = MulticlassAccuracy(self._classes, average="micro")

    def logs(self) -> dict[str, str]:
        return {name: key for stage in self.scalars for name, key in self._logged(stage).items()}

    @property
    def part(self) -> str:
        return "" if self.name == self.default_name else self.name

    def watches(self, stage: str) -> bool:
        return stage in ("train", "val")

    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        self._labelled(observation, check=True)
        return set(self._logged(stage))

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if stage == "val":
            assert self._accuracy is not None
            self._accuracy.to(pl_module.device).reset()
            self._finite = torch.tensor(True, device=pl_module.device)
            self._counts = torch.zeros(self._classes, dtype=torch.int64, device=pl_module.device)
        else:
            self._left_out = torch.tensor(0, device=pl_module.device)

    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        h: Tensor | None = None
        with self.failures.caught(now(trainer), self.title, stage):
            if stage == "train":
                h, label = self._labelled(observation, check=batch_idx == 0)
            elif self._ready():
                self._score(observation)
        if stage == "train" and h is None:
            self.miss(stage, trainer)
        elif h is not None:
            self._left_out = self._left_out + (~self._is_class(label)).sum()
            self._learn(h, label, trainer.lightning_module)
        self.failures.prove(stage)

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if stage != "val":
            self._tell_left_out(trainer)
            return
        assert self._accuracy is not None
        failed = self.failures.failed("val") or not bool(self._finite)
        status = torch.tensor([int(self._accuracy.update_called), int(failed)], device=pl_module.device)
        saw, broken = distributed.all_reduce_sum(status).tolist()
        if saw or broken:
            self._accuracy._update_count += 1  # a rank without a batch takes part in the sum
            accuracy = self._accuracy.compute()
            pl_module.log(
                f"val/{self.name}_accuracy", accuracy * (torch.nan if broken else 1.0), prog_bar=True, batch_size=1
            )
            if "chance" in self.scalars.get("val", ()):
                counts = distributed.all_reduce_sum(self._counts).float()
                pl_module.log(f"val/{self.name}_chance", counts.max() / counts.sum(), batch_size=1)
        elif trainer.state.fn != TrainerFn.FITTING:
            rank_zero_warn(f"{self.title} is not scored: it has learned nothing from a training of this network.")
        self._accuracy.reset()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        if has_validation(pl_module):
            return
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = validation_loader(trainer)
            if loader is None:
                rank_zero_warn(f"{type(self).__name__} is not scored: the Trainer was given no validation set.")
                return
            self.on_validation_epoch_start(trainer, pl_module)
            for place, batch in enumerate(validation_batches(trainer, loader)):
                with self.failures.caught(now(trainer), self.title, "val"):
                    observation = self.observer.look(pl_module, on_device(batch, trainer), now(trainer), stage="val")
                    if (seen := without_repeats(observation, loader, place)) is not None:
                        self._score(seen)
        self.on_validation_epoch_end(trainer, pl_module)

    def _logged(self, stage: str) -> dict[str, str]:
        return {f"{stage}/{self.name}_{key}": key for key in self.scalars.get(stage, ())}

    def _score(self, observation: dict[str, Any]) -> None:
        h, label = self._labelled(observation, check=True)
        h = observation.get("h_image", h[0]).float()
        assert self._accuracy is not None
        with torch.inference_mode():
            self._finite = self._finite & torch.isfinite(h).all()
            self._accuracy.update(self._predict(h), label)
            self._counts = self._counts + label.bincount(minlength=self._classes)

    def _labelled(self, observation: dict[str, Any], check: bool) -> tuple[Tensor, Tensor]:
        missing = [name for name in ("h", "label") if name not in observation]
        if missing:
            raise ValueError(
                f"Expected `{missing[0]}` for {type(self).__name__}, but the step has "
                f"{'only ' + ', '.join(sorted(observation)) if observation else 'nothing to observe'}. "
                "Return it, or name it in `taps` or `batch_keys`."
            )
        label = class_numbers("label", observation["label"])
        if check and len(label):  # this waits for the GPU
            low, high = (int(bound) for bound in label.aminmax())
            if low < 0 or high >= self._classes:
                wrong = low if low < 0 else high
                fix = "" if wrong < 0 else f" Say `num_classes={wrong + 1}` or more."
                raise ValueError(f"Expected labels from 0 to {self._classes - 1}, but got {wrong}.{fix}")
        return observation["h"], label

    def _is_class(self, label: Tensor) -> Tensor:
        return (label >= 0) & (label < self._classes)

    def _tell_left_out(self, trainer: L.Trainer) -> None:
        if count := int(self._left_out):
            lost = "The results are of the other samples"
            with self.failures.caught(now(trainer), self.title, "train", lost=lost):
                raise ValueError(
                    f"Expected labels from 0 to {self._classes - 1}, but {count} of the epoch are others; "
                    "they were left out."
                )

    @abstractmethod
    def _ready(self) -> bool: ...

    @abstractmethod
    def _learn(self, h: Tensor, label: Tensor, pl_module: L.LightningModule) -> None: ...

    @abstractmethod
    def _predict(self, h: Tensor) -> Tensor: ...
