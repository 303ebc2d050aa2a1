"""GeometryMonitor: any number of diagnostics, fed from one observation per step."""

__all__ = ["GeometryMonitor", "Stage"]

import copy
import inspect
from collections.abc import Sequence
from typing import Any, Literal, get_args

import lightning as L
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks.arrays import ArrayFiles
from lightning_ssl_geometry.callbacks.batches import BatchKeys
from lightning_ssl_geometry.callbacks.feed import feed, named_results
from lightning_ssl_geometry.callbacks.observer import Observer, on_device, run_folder, undisturbed, validation_loader
from lightning_ssl_geometry.callbacks.repeats import without_repeats
from lightning_ssl_geometry.callbacks.taps import ViewLayout
from lightning_ssl_geometry.diagnostics.standard import STANDARD_RENAME, standard_diagnostics

Stage = Literal["train", "val", "test", "probe"]


class GeometryMonitor(L.Callback):
    """Observe the geometry of a model while it trains.

    A diagnostic is a torchmetrics Metric; the arguments of its `update` say what it observes: h (V, N, D), z
    (V, N, P), label, index, projector, ...; one with a default is handed over where it is there.
    Scalars are logged as `{stage}/{name}` through the module, before `EarlyStopping` and `ModelCheckpoint` look; a
    Metric that computes a dict is logged as `{stage}/{name}_{key}`.
    One-dimensional results (spectra) are appended, one row per readout, to `geometry/{stage}/{name}.csv` in the
    run's folder; of those with more axes (images), the latest is `geometry/{stage}/{name}.npz`. Training is the same,
    bit for bit on one machine, with and without the monitor.

    Args:
        diagnostics: Name -> Metric; None for the standard set, without the projector's rank where that has no
            `torch.nn.Linear`.
        rename: Name of a diagnostic -> {argument of its `update`: what it gets}, such as
            {"effective_rank_z": {"h": "z"}}.
        stages: Where to observe. "train": training batches, from the step's own outputs, read out at the end of the
            epoch. "val", "test": every batch of those loops. "probe": a fixed set, `probe_size` samples of the
            validation set per process, in eval mode: before the first step of training (logged at step 0), and at
            the end of training epochs. It is the stage that compares one network over training on the same samples.
        every_n_steps: Observe every n-th training batch, the first of an epoch included.
        taps: For a model that is not ours: name of the observation -> dotted name of the submodule, such as
            {"h": "backbone", "z": "projection_head", "projector": "projection_head"}. Where the monitor passes views
            through the host itself (stage "probe", `augment`), it calls "encoder" and "projector" if both are named,
            else the host, or if that has no `forward`, what h and z name.
        views: How the host's two views pass through a tapped submodule: "calls" (one call each), "halves" or
            "interleaved" (one call on 2N rows).
        batch_keys: What to take from the host's batch: name -> key, position or dotted path, such as {"label": 1}; the
            stage "probe" takes "views" (the place of a list of views, or a list of places), or "image". Where the
            batches of a stage differ from the others, its name goes before: {"label": 1, "val/label": "label"}.
        augment: Makes two views of the batch's `image` where a tapped host's batches have one: called with
            (image, index, epoch), such as :class:`lightning_ssl_geometry.views.SimCLRViews` for images in [0, 1], or
            :class:`lightning_ssl_geometry.views.NormalizedViews`. The monitor then passes them through the host
            itself, in eval mode, in all stages, beside the host's own step.
        probe_size: Size of the probe set, up to whole batches, which are taken at equal spaces over the validation set.
        probe_every_n_epochs: Look at the probe set at the end of every n-th epoch, and of the last one.

    Raises:
        ValueError: If an argument is out of range; in training, if a diagnostic observes what is not there, a tap
            names no submodule or never fires, shapes do not fit, or h or z are not finite.
    """

    def __init__(
        self,
        diagnostics: dict[str, Metric] | None = None,
        rename: dict[str, dict[str, str]] | None = None,
        stages: Sequence[Stage] = ("train", "val", "test"),
        every_n_steps: int = 50,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
        probe_size: int = 1024,
        probe_every_n_epochs: int = 1,
        augment: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self._standard = diagnostics is None
        if diagnostics is None:
            diagnostics, rename = standard_diagnostics(), STANDARD_RENAME | (rename or {})
        for stage in stages:
            if stage not in get_args(Stage):
                raise ValueError(f"Expected `stages` to be of {get_args(Stage)}, but got {stage!r}.")
        counts = {"every_n_steps": every_n_steps, "probe_size": probe_size}
        for name, value in (counts | {"probe_every_n_epochs": probe_every_n_epochs}).items():
            if value < 1:
                raise ValueError(f"Expected `{name}` >= 1, but got {value}.")
        if unknown := [name for name in rename or {} if name not in diagnostics]:
            raise ValueError(f"Expected `rename` to name one of {sorted(diagnostics)}, but got {unknown[0]!r}.")
        self.every_n_steps = every_n_steps
        self.probe_size = probe_size
        self.probe_every_n_epochs = probe_every_n_epochs
        if augment is not None and not taps:
            raise ValueError(
                "Expected `taps` beside `augment`: the modules of this package get views in their batches."
            )
        self.observer = Observer(taps, views, batch_keys, augment=augment)
        self._rename = rename or {}
        self._metrics: dict[Stage, dict[str, Metric]] = {stage: copy.deepcopy(diagnostics) for stage in stages}
        self._left_out: dict[Stage, Metric] = {}
        self._probe_loader: Any = None
        self._files: ArrayFiles | None = None

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register the hooks, and go before the callbacks that read what is logged here."""
        self.observer.attach(pl_module)
        self._probe_loader = None
        if self._standard and not _has_linear(pl_module):
            self._left_out = {each: metrics.pop("projector") for each, metrics in self._metrics.items()}
        trainer.callbacks = [self, *(callback for callback in trainer.callbacks if callback is not self)]  # type: ignore[attr-defined]
        folder = run_folder(trainer)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._files = ArrayFiles(folder / "geometry", trainer.loggers)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the hooks, and take back what this host had no use for."""
        self.observer.detach()
        self._probe_loader = None
        for each, metric in self._left_out.items():
            self._metrics[each]["projector"] = metric
        self._left_out = {}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Forget rows that an earlier run left in the folder, but those up to the step that a checkpoint brought.

        A run from the start looks at the probe set once before its first step.
        """
        if self._files:
            self._files.keep_until(trainer.global_step)
        if "probe" in self._metrics and trainer.global_step == 0:
            self._probe(trainer, pl_module)
            scalars = {name: value.item() for name, value in self._results("probe", trainer)}
            for logger in trainer.loggers:  # nothing that is logged here by the module would keep its step
                logger.log_metrics(scalars | {"epoch": 0}, step=0)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin an epoch."""
        self._reset("train", pl_module)

    def on_train_batch_start(
        self, trainer: L.Trainer, pl_module: L.LightningModule, batch: Any, batch_idx: int
    ) -> None:
        """Begin to observe every n-th step."""
        if "train" in self._metrics and batch_idx % self.every_n_steps == 0:
            self.observer.open()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Feed the diagnostics with what the step returned or passed through the taps."""
        if "train" in self._metrics and batch_idx % self.every_n_steps == 0:
            self._update("train", self._observed(outputs, batch, trainer, "train"))

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read out and log."""
        self._read_out("train", trainer, pl_module)
        done = trainer.current_epoch + 1
        if "probe" in self._metrics and (done % self.probe_every_n_epochs == 0 or done == trainer.max_epochs):
            self._probe(trainer, pl_module)
            self._read_out("probe", trainer, pl_module)

    def on_validation_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a validation."""
        self._reset("val", pl_module)

    def on_validation_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Begin to observe a step."""
        self._open_evaluation("val", trainer)

    def on_validation_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Feed the diagnostics."""
        self._close_evaluation("val", trainer, outputs, batch, trainer.val_dataloaders, batch_idx, dataloader_idx)

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read out and log."""
        if not trainer.sanity_checking:
            self._read_out("val", trainer, pl_module)

    def on_test_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a test."""
        self._reset("test", pl_module)

    def on_test_batch_start(self, trainer: L.Trainer, *_: Any) -> None:
        """Begin to observe a step."""
        self._open_evaluation("test", trainer)

    def on_test_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        """Feed the diagnostics."""
        self._close_evaluation("test", trainer, outputs, batch, trainer.test_dataloaders, batch_idx, dataloader_idx)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read out and log."""
        self._read_out("test", trainer, pl_module)

    def _open_evaluation(self, stage: Stage, trainer: L.Trainer) -> None:
        if stage in self._metrics and not trainer.sanity_checking:
            self.observer.open()

    def _close_evaluation(
        self,
        stage: Stage,
        trainer: L.Trainer,
        outputs: Any,
        batch: Any,
        loaders: Any,
        batch_idx: int,
        dataloader_idx: int,
    ) -> None:
        if stage not in self._metrics or trainer.sanity_checking:
            return
        observation = self._observed(outputs, batch, trainer, stage)
        self._update(stage, without_repeats(observation, loaders, batch_idx, dataloader_idx))

    def _observed(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: Stage) -> dict[str, Any]:
        """End to observe a step; with `augment`, look at the batch anew."""
        if self.observer.augment is None:
            return self.observer.close(outputs, batch, trainer, stage)
        with undisturbed(trainer.lightning_module):
            return self.observer.look(trainer.lightning_module, batch, trainer, stage)

    def _reset(self, stage: Stage, pl_module: L.LightningModule) -> None:
        self.observer.restart(stage)
        for metric in self._metrics.get(stage, {}).values():
            metric.to(pl_module.device)
            metric.reset()

    def _update(self, stage: Stage, observation: dict[str, Any] | None) -> None:
        if observation is None:
            return
        for name, metric in self._metrics[stage].items():
            rename = self._rename.get(name, {})
            if "fibers" in observation and {"h", "projector"} <= inspect.signature(metric.update).parameters.keys():
                rename = {"h": "fibers"} | rename  # what this projector maps to z
            feed(metric, observation, rename, name, stage)

    def _read_out(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for name, value in self._results(stage, trainer):
            pl_module.log(name, value.float())

    def _results(self, stage: Stage, trainer: L.Trainer) -> list[tuple[str, Tensor]]:
        """Compute and reset what was observed: scalars are returned, arrays written."""
        results = named_results(self._metrics.get(stage, {}))
        for name, value in results.items():
            if value.ndim and self._files:
                self._files.append(f"{stage}/{name}", trainer.current_epoch, trainer.global_step, value)
        return [(f"{stage}/{name}", value) for name, value in results.items() if not value.ndim]

    def _probe(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._reset("probe", pl_module)
        chosen: Sequence[int] = range(1)
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = self._probe_set(trainer)
            for place, batch in enumerate(loader):
                if place not in chosen:
                    continue
                observation = self.observer.look(pl_module, on_device(batch, trainer), trainer, "probe")
                self._update("probe", without_repeats(observation, loader, place))
                if place == 0:
                    rows = observation["z" if "z" in observation else "h"].shape[1]
                    chosen = _spread(loader, -(-self.probe_size // rows))
                if place == chosen[-1]:
                    break

    def _probe_set(self, trainer: L.Trainer) -> Any:
        """Find its loader, once for a fit: a host may choose another set at each call."""
        if self._probe_loader is None:
            self._probe_loader = validation_loader(trainer)
        if self._probe_loader is None:
            raise ValueError("Expected a validation set for the stage 'probe', but the Trainer has none.")
        return self._probe_loader


def _has_linear(host: nn.Module) -> bool:
    """Whether the host's own projector has weights; a tapped one is asked when it is observed."""
    projector = getattr(host, "projector", None)
    return not isinstance(projector, nn.Module) or any(isinstance(m, nn.Linear) for m in projector.modules())


def _spread(loader: Any, count: int) -> Sequence[int]:
    """Places of `count` batches at equal spaces, the first included: data sets may be sorted, by class for example."""
    try:
        length = len(loader)
    except TypeError:  # of an iterable data set nobody knows: then the first ones
        return range(count)
    return range(length) if count >= length else [place * length // count for place in range(count)]
