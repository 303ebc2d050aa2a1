"""GeometryMonitor: computes diagnostics of a model during training."""

__all__ = ["GeometryMonitor", "Stage"]

import copy
import inspect
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Unpack, get_args

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks.arrays import SEEN, ArrayFiles
from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.callbacks.failures import OnError
from lightning_ssl_geometry.callbacks.filling import Filling
from lightning_ssl_geometry.callbacks.loaders import on_device, one_pass, spread_batches, validation_loader
from lightning_ssl_geometry.callbacks.loops import Stage
from lightning_ssl_geometry.callbacks.names import check_name
from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.quantities_file import meaning, misnamed
from lightning_ssl_geometry.callbacks.readout import Readout, Seen
from lightning_ssl_geometry.callbacks.rehearsal import diagnostic_named
from lightning_ssl_geometry.callbacks.run_callback import run_files
from lightning_ssl_geometry.callbacks.stage import StageCallback
from lightning_ssl_geometry.checks import at_least, named, one_of
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.diagnostic import preferred
from lightning_ssl_geometry.diagnostics.standard import (
    STANDARD_RENAME,
    standard_diagnostics,
    tower_diagnostics,
    tower_rename,
)
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.observe.batch_keys import near
from lightning_ssl_geometry.observe.feed import by_key, check_rename, feed, result_name, space_of
from lightning_ssl_geometry.observe.host import Host, HostSettings, Observer
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.undisturbed import undisturbed
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import SAMPLE_AXIS


class GeometryMonitor(StageCallback):
    """Compute diagnostics of a model during training. On one machine, they change no bit of the training.

    A diagnostic is a torchmetrics Metric. The argument names of its `update` say which tensors of a step it gets.
    Examples are `label`, `index`, `projector`, and the representations `h` (V, N, D) and embeddings `z` (V, N, P) of V
    views of N samples. A scalar is logged as `{stage}/{name}`, or as `{stage}/{name}_{key}` if the Metric returns a
    dict. All other results are written to the folder `geometry` of the run. A vector is appended to
    `{stage}/{name}.csv`, and a larger array replaces `{stage}/{name}.npz`. `{stage}/rows_seen.csv` has the numbers of
    observed samples and views. `quantities.json` describes the results. Before the first step, one training and one
    validation batch are tried on a copy of the model, so that wrong settings fail early.

    Args:
        diagnostics: Name -> Metric. None: the standard set, as far as it applies to the model's projector.
        rename: Name of a diagnostic -> {argument of its `update`: name of the tensor}, such as {"effective_rank_z":
            {"h": "z"}}.
        stages: Where to observe. "train": training steps, with results at the end of each epoch. "val", "test": every
            batch of the validation or test. "probe": the same validation samples each time, in eval mode, before the
            first step (logged at step 0) and after epochs. Before the first step, new batch norms get statistics of
            training batches (:func:`calibrated`).
        every_n_steps: Observe every n-th training batch of an epoch, including the first. None: :class:`Filling`
            chooses n <= 50 such that an epoch has at least max(4 D, 1,024) rows, if possible. A row is one view of one
            sample. The rank of h cannot exceed the number of rows.
        probe_size: Number of "probe" samples per process, rounded up to whole batches. They are evenly spread over the
            validation set.
        probe_every_n_epochs: Observe "probe" after every n-th epoch, and after the last.
        name: Part of all logged names: `{stage}/{name}/{diagnostic}`. Monitors that share stages and diagnostics need
            different names.
        on_error: What happens if a diagnostic fails, or if h or z is not finite. "warn": the result is NaN, with a
            warning. "raise": the error ends a fit after the epoch's checkpoints are saved, and a validation or test at
            once. If a diagnostic fails before the first successful step of a stage, the error is always raised at once.
        **host: For a model of another package: `taps`, `view_layout`, `batch_keys` and `augment` of
            :class:`lightning_ssl_geometry.observe.host.Host`. They say where h, z, labels and views are. The stage
            "probe" takes the views or images that `batch_keys` names. If `augment` is given, all stages use its views.

    Attributes:
        seen: Stage -> number of samples on all ranks and number of views, for the latest results.

    Raises:
        ValueError: If `diagnostics` is not a dict of Metrics, an argument is out of range, `rename` names an unknown
            argument, or a name has a path separator. Before training, if a diagnostic lacks an input, a submodule in
            `taps` does not exist or is never called, a name in `taps` or `batch_keys` is misspelt, shapes do not match,
            or a name is logged twice.
    """

    @by_position(
        "taps", "view_layout", "batch_keys", "probe_size", "probe_every_n_epochs", "augment", "name", "on_error"
    )
    @passed_on
    def __init__(
        self,
        diagnostics: dict[str, Metric] | None = None,
        rename: dict[str, dict[str, str]] | None = None,
        stages: Sequence[Stage] = ("train", "val", "test"),
        every_n_steps: int | None = None,
        *,
        probe_size: int = 1024,
        probe_every_n_epochs: int = 1,
        name: str | None = None,
        on_error: OnError = "warn",
        **host: Unpack[HostSettings],
    ) -> None:
        super().__init__(Observer(Host(**host)), on_error)
        if self.observer.augment is not None and self.observer.taps is None:
            raise ValueError(
                "Expected `taps` beside `augment`: the modules of this package get views in their batches."
            )
        for stage in stages:
            one_of(get_args(Stage), stages=stage)
        at_least(1, probe_size=probe_size, probe_every_n_epochs=probe_every_n_epochs)
        self._standard = diagnostics is None
        if diagnostics is None:
            diagnostics = standard_diagnostics() | tower_diagnostics(self.observer.towers)
            rename = STANDARD_RENAME | tower_rename(self.observer.towers) | (rename or {})
        named(Metric, diagnostics=diagnostics)
        check_name("diagnostics", *diagnostics)
        check_name("name", *([] if name is None else [name]))
        check_rename(diagnostics, rename or {})
        self.name = name
        self.filling = Filling(every_n_steps)
        self.probe_size = probe_size
        self.probe_every_n_epochs = probe_every_n_epochs
        self._rename = rename or {}
        self._diagnostics = diagnostics
        self._metrics: dict[Stage, dict[str, Metric]] = {stage: copy.deepcopy(diagnostics) for stage in stages}
        self.seen: dict[str, Seen] = {}
        self._seen: dict[str, Seen] = {}
        self._widths: dict[tuple[str, str], int] = {}
        self._readout = Readout(self.title, self.failures)
        self._begin_run(None)

    @property
    def title(self) -> str:
        return "GeometryMonitor" + (f" {self.name!r}" if self.name else "")

    @property
    def every_n_steps(self) -> int | None:
        """The argument `every_n_steps`."""
        return self.filling.every_n_steps

    @every_n_steps.setter
    def every_n_steps(self, value: int | None) -> None:
        self.filling = Filling(value)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._begin_run(ArrayFiles(run_files(trainer), trainer.loggers))
        self._readout.restart()
        projector = getattr(pl_module, "projector", None)  # one named in `taps` is checked later, at the first step
        known = projector if isinstance(projector, nn.Module) else None
        unfit = standard_diagnostics().keys() - standard_diagnostics(known).keys() if self._standard else set()
        wanted = self._diagnostics.keys() - unfit
        for each, metrics in self._metrics.items():
            kept = {name: metrics.get(name) or copy.deepcopy(self._diagnostics[name]) for name in self._diagnostics}
            self._metrics[each] = {name: metric for name, metric in kept.items() if name in wanted}
        _refuse_twins(trainer)
        _refuse_misspelt(trainer)

    def _begin_run(self, files: ArrayFiles | None) -> None:
        self._files = files
        self._probe_loader: Any = None
        self._spaces: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._told_apart = False
        self._told: set[str] = set()  # diagnostics whose descriptions and results have different names
        self._refused: set[str] = set()  # names that another callback logs with another meaning

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().teardown(trainer, pl_module, stage)
        self._probe_loader = None

    def start_clean(self) -> None:
        self._metrics = {stage: copy.deepcopy(self._diagnostics) for stage in self._metrics}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, arrays=self._names())
        if "probe" in self._metrics and trainer.global_step == 0:
            with calibrated(trainer, pl_module):
                self._probe(trainer, pl_module)
                scalars = {name: value.item() for name, value in self._results("probe", trainer)}
            for logger in trainer.loggers:  # a log by the module would get another step here
                logger.log_metrics(scalars | {"epoch": 0}, step=0)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        done = trainer.current_epoch + 1
        if "probe" in self._metrics and (done % self.probe_every_n_epochs == 0 or done == trainer.max_epochs):
            self._probe(trainer, pl_module)
            self.end("probe", trainer, pl_module)

    def watches(self, stage: str) -> bool:
        return stage in self._metrics

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        return self.watches(stage) and (stage != "train" or self.filling.wants(batch_idx))

    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        names: set[str] = set()
        entries: dict[str, Declared | None] = {}
        tensors = (value for value in observation.values() if isinstance(value, Tensor))
        device = next((value.device for value in tensors), torch.device("cpu"))
        for name, metric in self._observing(stage, observation):
            trial = copy.deepcopy(metric).to(device)
            trial.distributed_available_fn = lambda: False  # this rank's batch alone
            rename = self._require(metric, name, observation, stage=stage)
            computed: Any = {}
            with diagnostic_named(name, metric):
                self._feed(trial, observation, rename, name=name, stage=stage)
                with suppress(Exception):  # one batch may be too little to compute from
                    computed = trial.compute()
                found = by_key(computed)
            names.add(name)
            self._refuse_equal(name, results := {result_name(name, key) for key in found} - {name}, names)
            names |= results
            entries |= self._meanings(stage, name, found)
            self._tell_misnamed(name, found)
        self.check(entries)
        return {self._logged(stage, name) for name in names}

    def _refuse_equal(self, name: str, results: set[str], others: set[str]) -> None:
        if equal := results & (others - {name} | (self._diagnostics.keys() - {name})):
            raise ValueError(
                f"Expected each name to be logged once, but {name!r} and another diagnostic log {min(equal)!r}. "
                "Give them other names in `diagnostics`."
            )

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._seen[stage] = Seen(0, 0)
        if stage == "train":
            self.filling.begin(trainer.num_training_batches)
        for metric in self._metrics[stage].values():
            metric.to(pl_module.device)
            metric.reset()

    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        space = observation.get("h", observation.get("z"))
        if isinstance(space, Tensor) and space.ndim > 1:
            before = self._seen.get(stage, Seen(0, 0))
            self._seen[stage] = Seen(before.samples + space.shape[1], len(space))
            if stage == "train":
                self.filling.saw(space)
        spaces = {name: observation[name] for name in ("h", "z") if isinstance(observation.get(name), Tensor)}
        self._widths |= {(stage, name): value.shape[-1] for name, value in spaces.items()}
        for name, metric in self._observing(stage, observation):
            if self.failures.failed(stage, name):
                continue
            with self.failures.caught(trainer, self.title, stage, diagnostic=name):
                rename = self._require(metric, name, observation, stage=stage)
                self._feed(metric, observation, rename, name=name, stage=stage)
                if (stage, name) not in self._spaces:
                    self._spaces[stage, name] = _space(space_of(metric, rename, observation), observation)
        self.failures.prove(stage)

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        for name, value in self._results(stage, trainer):
            pl_module.log(name, value.float(), batch_size=1)  # one value, which Lightning must not weigh by batches

    def _observing(self, stage: str, observation: Mapping[str, Any]) -> list[tuple[str, Metric]]:
        metrics = self._metrics[stage]  # type: ignore[index]
        if not self._standard or not (missing := self.observer.towers.keys() - observation.keys()):
            return list(metrics.items())
        left_out = [name for name, each in metrics.items() if missing & self._read(each, name, observation)]
        if left_out and not self._told_apart:
            self._told_apart = True
            rank_zero_warn(
                f"{self.title} leaves {', '.join(left_out)} out, since the towers in `taps` return vectors of "
                "different widths. Each tower has diagnostics of its own."
            )
        return [(name, metric) for name, metric in metrics.items() if name not in left_out]

    def _read(self, metric: Metric, name: str, observation: Mapping[str, Any]) -> set[str]:
        rename = self._renamed(metric, name, observation)
        return {rename.get(argument, argument) for argument in inspect.signature(metric.update).parameters}

    def _renamed(self, metric: Metric, name: str, observation: Mapping[str, Any]) -> dict[str, str]:
        preferences = {argument: what for argument, what in preferred(metric).items() if what in observation}
        return preferences | self._rename.get(name, {})

    def _require(self, metric: Metric, name: str, observation: Mapping[str, Any], *, stage: str) -> dict[str, str]:
        rename = self._renamed(metric, name, observation)
        for argument, parameter in inspect.signature(metric.update).parameters.items():
            if parameter.default is inspect.Parameter.empty:
                self.observer.require(rename.get(argument, argument), observation, stage)
        return rename

    def _feed(
        self, metric: Metric, observation: Mapping[str, Any], rename: dict[str, str], *, name: str, stage: str
    ) -> None:
        try:
            feed(metric, observation, rename, name=name, stage=stage)
        except ValueError as error:
            if where := self.observer.tapped(error):
                raise ValueError(f"{error}{where}") from error
            raise

    def _tell_misnamed(self, name: str, results: Iterable[str]) -> None:
        if name not in self._told and (message := misnamed(self._diagnostics[name], results)):
            self._told.add(name)
            rank_zero_warn(message)

    def _names(self) -> list[str]:
        return [self._logged(stage, name) for stage, metrics in self._metrics.items() for name in metrics]

    def _logged(self, stage: str, name: str) -> str:
        return "/".join(part for part in (stage, self.name, name) if part)

    def _results(self, stage: Stage, trainer: L.Trainer) -> list[tuple[str, Tensor]]:
        found, self.seen[stage] = self._readout(
            self._metrics[stage], stage, trainer, seen=self._seen.get(stage, Seen(0, 0))
        )
        assert self._files is not None
        moment = (trainer.current_epoch, trainer.global_step)
        self._declare(stage, found, trainer)
        results = {result_name(name, key): value for name, by in found.items() for key, value in by.items()}
        results = {name: value for name, value in results.items() if self._logged(stage, name) not in self._refused}
        for name, value in results.items():
            if value.ndim:
                with self.failures.caught(trainer, self.title, stage, diagnostic=name):
                    self._files.append(self._logged(stage, name), *moment, values=value)
        if self.seen[stage].samples:
            widths = [self._widths.get((stage, space), "") for space in ("h", "z")]
            self._files.append_seen(self._logged(stage, SEEN), *moment, counts=[*self.seen[stage], *widths])
        return [(self._logged(stage, name), value) for name, value in results.items() if not value.ndim]

    def _declare(self, stage: Stage, found: Mapping[str, Mapping[str, Tensor]], trainer: L.Trainer) -> None:
        entries: dict[str, Declared] = {}
        for name, results in found.items():
            said = {}
            if not self.failures.failed(stage, name):
                said = self._meanings(stage, name, results)
                self._tell_misnamed(name, results)
            for logged, entry in said.items():
                if logged in self._refused:
                    continue
                self._refused.add(logged)  # not logged unless the check below passes
                with self.failures.caught(
                    trainer, self.title, stage, diagnostic=name, lost="It is not logged under that name"
                ):
                    self.check({logged: entry})
                    self._refused.remove(logged)
                entries |= {logged: entry} if entry and logged not in self._refused else {}
        self.declare(entries)

    def _meanings(self, stage: str, name: str, results: Iterable[str]) -> dict[str, Declared | None]:
        metric = self._diagnostics[name]
        space, width = self._spaces.get((stage, name)) or (space_of(metric, self._rename.get(name, {})), None)
        found = {key: meaning(metric, key, space=space, width=width) for key in results}
        return {self._logged(stage, result_name(name, key)): entry for key, entry in found.items()}

    def _probe(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.begin_pass("probe", trainer, pl_module)
        chosen: Sequence[int] = range(1)
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = self._probe_set(trainer)
            for place, batch in enumerate(one_pass(loader)):
                if place not in chosen:
                    continue
                rows = 0
                with self.failures.caught(trainer, self.title, "probe"):
                    observation = self.observer.look(pl_module, on_device(batch, trainer), trainer, stage="probe")
                    rows = observation["z" if "z" in observation else "h"].shape[1]
                    if (seen := without_repeats(observation, loader, place)) is not None:
                        self.see("probe", trainer, seen, batch_idx=place)
                if place == 0:
                    chosen = spread_batches(loader, -(-self.probe_size // max(rows, 1)))
                if place == chosen[-1]:
                    break

    def _probe_set(self, trainer: L.Trainer) -> Any:
        if self._probe_loader is None:
            self._probe_loader = validation_loader(trainer)
        if self._probe_loader is None:
            raise ValueError("Expected a validation set for the stage 'probe', but the Trainer has none.")
        return self._probe_loader


def _space(name: str, observation: Mapping[str, Any]) -> tuple[str, int | None]:
    value = observation.get(name)
    return name, value.shape[-1] if isinstance(value, Tensor) and value.ndim > 1 else None


def _refuse_twins(trainer: L.Trainer) -> None:
    owner: dict[str, GeometryMonitor] = {}
    for monitor in callbacks_of(trainer, GeometryMonitor):
        for name in monitor._names():
            if owner.setdefault(name, monitor) is not monitor:
                raise ValueError(
                    f"Expected each name to be logged once, but two monitors log {name!r}. Give one of them a `name`, "
                    "such as GeometryMonitor(name='teacher')."
                )


def _refuse_misspelt(trainer: L.Trainer) -> None:
    monitors = callbacks_of(trainer, GeometryMonitor)
    metrics = [
        (metric, each._renamed(metric, name, SAMPLE_AXIS))
        for each in monitors
        for name, metric in each._diagnostics.items()
    ]
    read = {
        rename.get(argument, argument)
        for metric, rename in metrics
        for argument in inspect.signature(metric.update).parameters
    }
    for monitor in monitors:
        taps = monitor.observer.taps
        given = [("taps", name) for name in (taps.taps if taps else ())]
        given += [("batch_keys", key.rpartition("/")[2]) for key in monitor.observer.reader.batch_keys]
        for argument, name in given:
            likely = near(name, read | set(SAMPLE_AXIS))
            if likely and name not in read | SAMPLE_AXIS.keys():
                raise ValueError(
                    f"Expected `{argument}` of {monitor.title} to name what a diagnostic observes, but none observes "
                    f"{name!r}.{likely}"
                )
