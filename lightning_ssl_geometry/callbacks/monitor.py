"""GeometryMonitor: any number of diagnostics, fed from one observation per step."""

__all__ = ["GeometryMonitor", "Stage"]

import copy
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, get_args

import lightning as L
import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks.arrays import SEEN, ArrayFiles
from lightning_ssl_geometry.callbacks.calibration import calibrated
from lightning_ssl_geometry.callbacks.failures import OnError
from lightning_ssl_geometry.callbacks.filling import Filling
from lightning_ssl_geometry.callbacks.loaders import on_device, one_pass, validation_loader
from lightning_ssl_geometry.callbacks.names import check_name
from lightning_ssl_geometry.callbacks.quantities_file import meaning
from lightning_ssl_geometry.callbacks.readout import Readout, Seen
from lightning_ssl_geometry.callbacks.run_callback import run_files
from lightning_ssl_geometry.callbacks.stage import Stage, StageCallback
from lightning_ssl_geometry.diagnostics.diagnostic import preferred
from lightning_ssl_geometry.diagnostics.standard import STANDARD_RENAME, standard_diagnostics
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.feed import by_key, check_rename, feed, result_name, space_of
from lightning_ssl_geometry.observe.host import Observer
from lightning_ssl_geometry.observe.padding import without_repeats
from lightning_ssl_geometry.observe.taps import ViewLayout
from lightning_ssl_geometry.observe.undisturbed import undisturbed


class GeometryMonitor(StageCallback):
    """Observe the geometry of a model while it trains.

    A diagnostic is a torchmetrics Metric; the arguments of its `update` say what it observes: h (V, N, D), z
    (V, N, P), label, index, projector, ...; one with a default is handed over where it is there.
    Scalars are logged as `{stage}/{name}` through the module, before `EarlyStopping` and `ModelCheckpoint` look; a
    Metric that computes a dict is logged as `{stage}/{name}_{key}`.
    One-dimensional results (spectra) are appended, one row per readout, to `geometry/{stage}/{name}.csv` in the
    run's folder; of those with more axes (images), the latest is `geometry/{stage}/{name}.npz`. How many samples and
    views each readout rests on is in `geometry/{stage}/rows_seen.csv`, and what each result means, by its logged name,
    in `geometry/quantities.json`: the `quantities` of its Metric, or where that has none, its class. Training is the
    same, bit for bit on one machine, with and without the monitor.

    Before the first step, one batch of each stage passes through a copy of the host (:class:`Rehearsal`): settings that
    do not fit are an error then, not after the first epoch.

    Args:
        diagnostics: Name -> Metric; None for the standard set, without the diagnostics that do not apply to
            the host's projector.
        rename: Name of a diagnostic -> {argument of its `update`: what it gets}, such as
            {"effective_rank_z": {"h": "z"}}.
        stages: Where to observe. "train": training batches, from the step's own outputs, read out at the end of the
            epoch. "val", "test": every batch of those loops. "probe": a fixed set, `probe_size` samples of the
            validation set per process, in eval mode: before the first step of training (logged at step 0), and at
            the end of training epochs. It is the stage that compares one network over training on the same samples.
            Before the first step, a batch norm that has seen no batch is given the statistics of training batches for
            that readout (:func:`calibrated`): it would be the identity.
        every_n_steps: Observe every n-th training batch, the first of an epoch included. None: as many as leave at
            least max(4 D, 1,024) rows, where the epoch has them, and at least every 50th: see :class:`Filling`. With
            fewer rows than dimensions, ranks are bounded by the rows.
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
        name: Goes into all that this monitor logs and writes: `{stage}/{name}/{diagnostic}`. Two monitors of one model
            need different names where they have stages and diagnostics in common.
        on_error: What happens when a diagnostic fails, or h or z are not finite, in a stage that was observed without
            an error before. "warn": its readout is NaN, a warning says which diagnostic failed, where and why, and
            training goes on, since it is worth more than a readout. "raise": the fit ends with that error after the
            epoch's checkpoints are saved, an evaluation ends at once. Errors in the rehearsal are always raised.

    Attributes:
        seen: Stage -> the number of samples of all ranks, and of views, that the latest readout rests on.

    Raises:
        ValueError: If an argument is out of range, `rename` names no argument of a diagnostic's `update`, or a name has
            a separator of paths; before training, if a diagnostic observes what is not there, a tap names no submodule
            or never fires, shapes do not fit, or a name is logged by somebody else, too; later as `on_error` says.
    """

    def __init__(
        self,
        diagnostics: dict[str, Metric] | None = None,
        rename: dict[str, dict[str, str]] | None = None,
        stages: Sequence[Stage] = ("train", "val", "test"),
        every_n_steps: int | None = None,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
        probe_size: int = 1024,
        probe_every_n_epochs: int = 1,
        augment: nn.Module | None = None,
        name: str | None = None,
        on_error: OnError = "warn",
    ) -> None:
        if augment is not None and not taps:
            raise ValueError(
                "Expected `taps` beside `augment`: the modules of this package get views in their batches."
            )
        super().__init__(Observer(taps, views, batch_keys, augment=augment), on_error)
        self._standard = diagnostics is None
        if diagnostics is None:
            diagnostics, rename = standard_diagnostics(), STANDARD_RENAME | (rename or {})
        for stage in stages:
            if stage not in get_args(Stage):
                raise ValueError(f"Expected `stages` to be of {get_args(Stage)}, but got {stage!r}.")
        for argument, value in {"probe_size": probe_size, "probe_every_n_epochs": probe_every_n_epochs}.items():
            if value < 1:
                raise ValueError(f"Expected `{argument}` >= 1, but got {value}.")
        for given in diagnostics:
            check_name("diagnostics", given)
        if name is not None:
            check_name("name", name)
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
        self._spaces: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._readout = Readout(self.title, self.failures)
        self._probe_loader: Any = None
        self._files: ArrayFiles | None = None
        self._refused: set[str] = set()  # names that another callback logs with another meaning

    @property
    def title(self) -> str:
        """What messages call this monitor."""
        return "GeometryMonitor" + (f" {self.name!r}" if self.name else "")

    @property
    def every_n_steps(self) -> int | None:
        """Every how many training steps one is observed; None: as many as fill a sample."""
        return self.filling.every_n_steps

    @every_n_steps.setter
    def every_n_steps(self, value: int | None) -> None:
        self.filling = Filling(value)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Register the hooks, and go before the callbacks that read what is logged here."""
        super().setup(trainer, pl_module, stage)
        self._probe_loader = None
        self._spaces, self._refused = {}, set()
        self._readout.restart()
        projector = getattr(pl_module, "projector", None)  # a tapped one is asked when it is observed
        known = projector if isinstance(projector, nn.Module) else None
        wanted = standard_diagnostics(known).keys() if self._standard else self._diagnostics.keys()
        for each, metrics in self._metrics.items():
            kept = {name: metrics.get(name) or copy.deepcopy(self._diagnostics[name]) for name in self._diagnostics}
            self._metrics[each] = {name: metric for name, metric in kept.items() if name in wanted}
        _refuse_twins(trainer)
        self._files = ArrayFiles(run_files(trainer), trainer.loggers)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Remove the hooks."""
        super().teardown(trainer, pl_module, stage)
        self._probe_loader = None

    def start_clean(self) -> None:
        """Forget what diagnostics keep beyond a readout, such as what CKADrift compares with."""
        self._metrics = {stage: copy.deepcopy(self._diagnostics) for stage in self._metrics}

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin the run's history; a run from the start looks at the probe set once before its first step.

        Raises:
            ValueError: If a file that is to be written is there already, of another run.
        """
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, arrays=self._names())
        if "probe" in self._metrics and trainer.global_step == 0:
            with calibrated(trainer, pl_module):
                self._probe(trainer, pl_module)
                scalars = {name: value.item() for name, value in self._results("probe", trainer)}
            for logger in trainer.loggers:  # nothing that is logged here by the module would keep its step
                logger.log_metrics(scalars | {"epoch": 0}, step=0)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read out and log the epoch, and the probe set where it is its turn."""
        super().on_train_epoch_end(trainer, pl_module)
        done = trainer.current_epoch + 1
        if "probe" in self._metrics and (done % self.probe_every_n_epochs == 0 or done == trainer.max_epochs):
            self._probe(trainer, pl_module)
            self.end("probe", trainer, pl_module)

    def watches(self, stage: str) -> bool:
        """Whether the stage is one of `stages`."""
        return stage in self._metrics

    def wants(self, stage: Stage, batch_idx: int) -> bool:
        """Whether a batch of a stage is observed."""
        return self.watches(stage) and (stage != "train" or self.filling.wants(batch_idx))

    def rehearse(self, observation: dict[str, Any], stage: str) -> set[str]:
        """Feed copies of the diagnostics, and return the names that they log."""
        names: set[str] = set()
        entries: dict[str, Declared | None] = {}
        tensors = (value for value in observation.values() if isinstance(value, Tensor))
        device = next((value.device for value in tensors), torch.device("cpu"))
        for name, metric in self._metrics[stage].items():  # type: ignore[index]
            trial = copy.deepcopy(metric).to(device)
            trial.distributed_available_fn = lambda: False  # this rank's batch alone
            feed(trial, observation, self._renamed(metric, name, observation), name, stage)
            names.add(name)
            computed: Any = {}
            with suppress(Exception):  # one batch may be too little to compute from
                computed = trial.compute()
            found = by_key(computed)
            self._refuse_equal(name, named := {result_name(name, key) for key in found} - {name}, names)
            names |= named
            entries |= self._meanings(stage, name, found)
        self.check(entries)
        return {self._logged(stage, name) for name in names}

    def _refuse_equal(self, name: str, results: set[str], others: set[str]) -> None:
        """Refuse results of two diagnostics that would be logged under one name."""
        if equal := results & (others - {name} | (self._diagnostics.keys() - {name})):
            raise ValueError(
                f"Expected each name to be logged once, but {name!r} and another diagnostic log {min(equal)!r}. "
                "Give them other names in `diagnostics`."
            )

    def begin(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin an epoch or a pass."""
        self._seen[stage] = Seen(0, 0)
        if stage == "train":
            self.filling.begin(trainer.num_training_batches)
        for metric in self._metrics[stage].values():
            metric.to(pl_module.device)
            metric.reset()

    def see(self, stage: Stage, trainer: L.Trainer, observation: dict[str, Any], batch_idx: int) -> None:
        """Feed the diagnostics."""
        space = observation.get("h", observation.get("z"))
        if isinstance(space, Tensor) and space.ndim > 1:
            before = self._seen.get(stage, Seen(0, 0))
            self._seen[stage] = Seen(before.samples + space.shape[1], len(space))
            if stage == "train":
                self.filling.saw(space)
        spaces = {name: observation[name] for name in ("h", "z") if isinstance(observation.get(name), Tensor)}
        self._widths |= {(stage, name): value.shape[-1] for name, value in spaces.items()}
        for name, metric in self._metrics[stage].items():
            if self.failures.failed(stage, name):
                continue
            with self.failures.caught(trainer, self.title, stage, name):
                rename = self._renamed(metric, name, observation)
                feed(metric, observation, rename, name, stage)
                if (stage, name) not in self._spaces:
                    self._spaces[stage, name] = _space(space_of(metric, rename, observation), observation)
        self.failures.prove(stage)

    def end(self, stage: Stage, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Read out and log."""
        for name, value in self._results(stage, trainer):
            pl_module.log(name, value.float(), batch_size=1)  # each is logged once, whatever the batches

    def _renamed(self, metric: Metric, name: str, observation: Mapping[str, Any]) -> dict[str, str]:
        preferences = {argument: what for argument, what in preferred(metric).items() if what in observation}
        return preferences | self._rename.get(name, {})

    def _names(self) -> list[str]:
        """Names of all diagnostics with their stages."""
        return [self._logged(stage, name) for stage, metrics in self._metrics.items() for name in metrics]

    def _logged(self, stage: str, name: str) -> str:
        return "/".join(part for part in (stage, self.name, name) if part)

    def _results(self, stage: Stage, trainer: L.Trainer) -> list[tuple[str, Tensor]]:
        """Compute and reset what was observed: scalars are returned, arrays written, and what both mean."""
        found, self.seen[stage] = self._readout(self._metrics[stage], stage, self._seen.get(stage, Seen(0, 0)), trainer)
        assert self._files is not None
        moment = (trainer.current_epoch, trainer.global_step)
        self._declare(stage, found, trainer)
        results = {result_name(name, key): value for name, by in found.items() for key, value in by.items()}
        results = {name: value for name, value in results.items() if self._logged(stage, name) not in self._refused}
        for name, value in results.items():
            if value.ndim:
                with self.failures.caught(trainer, self.title, stage, name):
                    self._files.append(self._logged(stage, name), *moment, value)
        if self.seen[stage].samples:
            widths = [self._widths.get((stage, space), "") for space in ("h", "z")]
            self._files.append_seen(self._logged(stage, SEEN), *moment, [*self.seen[stage], *widths])
        return [(self._logged(stage, name), value) for name, value in results.items() if not value.ndim]

    def _declare(self, stage: Stage, found: Mapping[str, Mapping[str, Tensor]], trainer: L.Trainer) -> None:
        """Write what results mean that were computed here for the first time.

        What another callback declared differently is not logged under that name, from here on.
        """
        entries: dict[str, Declared] = {}
        for name, results in found.items():
            said = {} if self.failures.failed(stage, name) else self._meanings(stage, name, results)
            for logged, entry in said.items():
                if logged in self._refused:
                    continue
                self._refused.add(logged)
                with self.failures.caught(trainer, self.title, stage, name, lost="It is not logged under that name"):
                    self.check({logged: entry})
                    self._refused.remove(logged)
                entries |= {logged: entry} if entry and logged not in self._refused else {}
        self.declare(entries)

    def _meanings(self, stage: str, name: str, results: Iterable[str]) -> dict[str, Declared | None]:
        """Find what a diagnostic declares of its results, by their logged names; None where it declares nothing."""
        metric = self._diagnostics[name]
        space, width = self._spaces.get((stage, name)) or (space_of(metric, self._rename.get(name, {})), None)
        found = {key: meaning(metric, key, space, width) for key in results}
        return {self._logged(stage, result_name(name, key)): entry for key, entry in found.items()}

    def _probe(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._begin("probe", trainer, pl_module)
        chosen: Sequence[int] = range(1)
        with undisturbed(pl_module):  # the host's `val_dataloader` may draw random numbers
            loader = self._probe_set(trainer)
            for place, batch in enumerate(one_pass(loader)):
                if place not in chosen:
                    continue
                rows = 0
                with self.failures.caught(trainer, self.title, "probe"):
                    observation = self.observer.look(pl_module, on_device(batch, trainer), trainer, "probe")
                    rows = observation["z" if "z" in observation else "h"].shape[1]
                    if (seen := without_repeats(observation, loader, place)) is not None:
                        self.see("probe", trainer, seen, place)
                if place == 0:
                    chosen = _spread(loader, -(-self.probe_size // max(rows, 1)))
                if place == chosen[-1]:
                    break

    def _probe_set(self, trainer: L.Trainer) -> Any:
        """Find its loader, once for a fit: a host may choose another set at each call."""
        if self._probe_loader is None:
            self._probe_loader = validation_loader(trainer)
        if self._probe_loader is None:
            raise ValueError("Expected a validation set for the stage 'probe', but the Trainer has none.")
        return self._probe_loader


def _space(name: str, observation: Mapping[str, Any]) -> tuple[str, int | None]:
    """A space with its width, where it is a tensor."""
    value = observation.get(name)
    return name, value.shape[-1] if isinstance(value, Tensor) and value.ndim > 1 else None


def _refuse_twins(trainer: L.Trainer) -> None:
    """Refuse two monitors that would log or write the same names."""
    owner: dict[str, GeometryMonitor] = {}
    for monitor in (callback for callback in trainer.callbacks if isinstance(callback, GeometryMonitor)):  # type: ignore[attr-defined]
        for name in monitor._names():
            if owner.setdefault(name, monitor) is not monitor:
                raise ValueError(
                    f"Expected each name to be logged once, but two monitors log {name!r}. Give one of them a `name`, "
                    "such as GeometryMonitor(name='teacher')."
                )


def _spread(loader: Any, count: int) -> Sequence[int]:
    """Places of `count` batches at equal spaces, the first included: data sets may be sorted, by class for example."""
    try:
        length = len(loader)
    except TypeError:  # of an iterable data set nobody knows: then the first ones
        return range(count)
    return range(length) if count >= length else [place * length // count for place in range(count)]
