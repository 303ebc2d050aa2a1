"""Measurements: the diagnostics of all stages of a run, from the tensors of its steps to the files of its results."""

__all__ = ["Measurements", "Recorder", "refuse_misspelt"]

import copy
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from typing import Any, Protocol

import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import named
from lightning_ssl_geometry.diagnostics.card import bins_of
from lightning_ssl_geometry.diagnostics.diagnostic import TooWideError, keeps_first, preferred
from lightning_ssl_geometry.diagnostics.shared_work import shared_work
from lightning_ssl_geometry.diagnostics.standard import (
    STANDARD_RENAME,
    standard_diagnostics,
    tower_diagnostics,
    tower_rename,
)
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.measuring.failures import Failures, diagnostic_named
from lightning_ssl_geometry.measuring.left_out import TooWide, leave_out, without_pictures
from lightning_ssl_geometry.measuring.readout import Readout, Rows, Seen
from lightning_ssl_geometry.observe.batch_keys import near
from lightning_ssl_geometry.observe.feed import by_key, check_rename, feed, result_name, space_in, space_of
from lightning_ssl_geometry.observe.host import Observer
from lightning_ssl_geometry.observe.moment import Moment
from lightning_ssl_geometry.observe.undisturbed import random_state_kept
from lightning_ssl_geometry.recording.arrays import SEEN, ArrayFiles
from lightning_ssl_geometry.recording.names import check_name
from lightning_ssl_geometry.recording.quantities_file import meaning, misnamed
from lightning_ssl_geometry.types import SAMPLE_AXIS

_OBSERVED = {"h", "z", "encoder", "projector"}


class Recorder(Protocol):
    """What :class:`Measurements` needs of its owner: a name for messages, and the run's record of descriptions."""

    @property
    def title(self) -> str:
        """Name of the owner in messages."""

    def check(self, entries: Mapping[str, Declared | None]) -> None:
        """Raise a ValueError if somebody else describes one of the names in `entries` differently."""

    def declare(self, entries: Mapping[str, Declared]) -> None:
        """Add descriptions of logged names to the record."""


class Measurements:
    """Computes diagnostics of every stage of a run, and writes vectors and larger arrays to the run's folder.

    A stage is "train", "val", "test" or "probe". Between :meth:`begin` and :meth:`read_out`, :meth:`see` gets the
    tensors of each step. A diagnostic may draw random numbers: the global random states are the same after each of
    these methods as before. :class:`GeometryMonitor` calls these methods from Lightning's hooks, and
    :class:`GeometryLoop` from a training loop without Lightning.

    Args:
        owner: The callback or loop that logs the results.
        observer: Its observer, which knows what the model and the batches lack.
        failures: Its failures.
        diagnostics: Name -> Metric. Each stage gets copies. None: the standard set.
        rename: Name of a diagnostic -> {argument of its `update`: name of the tensor}.
        stages: The observed stages.
        name: Part of all logged names, or None.
    """

    def __init__(
        self,
        owner: Recorder,
        observer: Observer,
        failures: Failures,
        *,
        diagnostics: dict[str, Metric] | None,
        rename: Mapping[str, dict[str, str]],
        stages: Sequence[str],
        name: str | None = None,
    ) -> None:
        self._standard = diagnostics is None
        if diagnostics is None:
            diagnostics = tower_diagnostics(observer.towers)
            rename = {**STANDARD_RENAME, **tower_rename(observer.towers), **rename}
        named(Metric, diagnostics=diagnostics)
        check_name("diagnostics", *diagnostics)
        check_name("name", *([] if name is None else [name]))
        check_rename(diagnostics, rename)
        self.owner = owner
        self.observer = observer
        self.failures = failures
        self.name = name
        self.diagnostics = diagnostics
        self.rename = dict(rename)
        self.rows: dict[str, Rows] = {}  # of the last readout
        self._metrics: dict[str, dict[str, Metric]] = {stage: copy.deepcopy(diagnostics) for stage in stages}
        self._rows: dict[str, Rows] = {}  # since then, on this rank
        self._widths: dict[tuple[str, str], int] = {}
        self._readout = Readout(owner.title, failures)
        self.start(None)

    def start(self, files: ArrayFiles | None) -> None:
        """Prepare for a run that writes its arrays to `files`. None: this run has no files yet."""
        self._files = files
        self._spaces: dict[tuple[str, str], tuple[str, int | None]] = {}
        self._left_out: dict[str, set[str]] = {}  # stage -> diagnostics that its steps do not show enough for
        self._warned: set[str] = set()
        self._told: set[str] = set()  # diagnostics whose descriptions and results have different names
        self._refused: set[str] = set()  # names that somebody else logs with another meaning
        self._readout.restart()

    def apply_to(self, model: nn.Module, observed: Iterable[str] | None = None) -> None:
        """Of the standard set, compute only the diagnostics that apply to a model.

        Those that do not apply to its attribute `projector` are left out. `observed` are the names among "h", "z",
        "encoder" and "projector" that observations have. Diagnostics of others are left out. None: unknown.
        """
        projector = getattr(model, "projector", None)  # one named in `taps` is checked later, at the first step
        known = projector if isinstance(projector, nn.Module) else None
        unfit = standard_diagnostics().keys() - standard_diagnostics(known).keys() if self._standard else set()
        lacking = _OBSERVED - set(observed) if self._standard and observed is not None else set()
        wanted = [name for name in self.diagnostics if name not in unfit]
        names = [name for name in wanted if not lacking & self.needed(name, {})]
        for stage, metrics in self._metrics.items():
            self._metrics[stage] = {name: metrics.get(name) or copy.deepcopy(self.diagnostics[name]) for name in names}

    def needed(self, name: str, observation: Mapping[str, Any]) -> set[str]:
        """Return the names of the tensors and modules without which a diagnostic cannot be updated."""
        metric = self.diagnostics[name]
        rename = self.renamed(metric, name, observation)
        return {rename.get(argument, argument) for argument in _required(metric)}

    def forget(self) -> None:
        """Forget the state of all diagnostics."""
        self._metrics = {stage: copy.deepcopy(self.diagnostics) for stage in self._metrics}

    def watches(self, stage: str) -> bool:
        """Whether a stage is observed."""
        return stage in self._metrics

    @property
    def stages(self) -> list[str]:
        """The observed stages."""
        return list(self._metrics)

    @property
    def seen(self) -> dict[str, Seen]:
        """Stage -> the numbers of samples and views of its last readout, on all ranks."""
        return {stage: Seen(rows.samples, rows.views) for stage, rows in self.rows.items()}

    def of(self, stage: str) -> Mapping[str, Metric]:
        """Return the diagnostics of a stage by name."""
        return self._metrics[stage]

    def names(self) -> list[str]:
        """Return the logged names of all diagnostics of all stages. A diagnostic may log several results under it."""
        return [self.logged(stage, name) for stage, metrics in self._metrics.items() for name in metrics]

    def declared(self) -> set[str]:
        """Return the logged names of all results that the diagnostics of all stages declare, and of the diagnostics."""
        return {
            self.logged(stage, result_name(name, key))
            for stage, metrics in self._metrics.items()
            for name, metric in metrics.items()
            for key in ("", *getattr(metric, "quantities", {}))
        }

    def logged(self, stage: str, name: str) -> str:
        """Return the logged name of a diagnostic or a result, such as "val/effective_rank_h"."""
        return "/".join(part for part in (stage, self.name, name) if part)

    def renamed(self, metric: Metric, name: str, observation: Mapping[str, Any]) -> dict[str, str]:
        """Return which tensors of a step the arguments of a diagnostic's `update` get, where their names differ."""
        preferences = {argument: what for argument, what in preferred(metric).items() if what in observation}
        return preferences | self.rename.get(name, {})

    def warn_once(self, message: str) -> None:
        """Give a warning, unless this run has given it before."""
        if message not in self._warned:
            self._warned.add(message)
            rank_zero_warn(message)

    @random_state_kept()
    def begin(self, stage: str, device: torch.device) -> None:
        """Reset the diagnostics of a stage, and move them to a device."""
        self._rows[stage] = Rows()
        self._left_out.pop(stage, None)
        for metric in self._metrics[stage].values():
            metric.to(device)
            metric.reset()

    @random_state_kept()
    @shared_work()
    def see(self, stage: str, moment: Moment, observation: dict[str, Any]) -> None:
        """Update the diagnostics of a stage with the tensors of a step: h, z, label and others by name."""
        earlier = views = 0
        if (space := space_in(observation)) is not None:
            before = self._rows.get(stage, Rows())
            views_z = len(z) if isinstance(z := observation.get("z"), Tensor) and z.ndim > 1 else 0
            self._rows[stage] = Rows(before.samples + space.shape[1], len(space), views_z)
            earlier, views = before.views or len(space), len(space)
        spaces = {name: observation[name] for name in ("h", "z") if isinstance(observation.get(name), Tensor)}
        self._widths |= {(stage, name): value.shape[-1] for name, value in spaces.items()}
        left_out, wide = self._lacking(stage, observation), TooWide()
        for name, metric in self._metrics[stage].items():
            if name in left_out or self.failures.failed(stage, name):
                continue
            with self.failures.caught(moment, self.owner.title, stage, diagnostic=name), wide.caught(name, metric):
                rename = self._require(metric, name, observation, stage=stage)
                with _of_constant_views(stage, earlier, views):
                    self._feed(metric, observation, rename, name=name, stage=stage)
                if (stage, name) not in self._spaces:
                    self._spaces[stage, name] = _space(space_of(metric, rename, observation), observation)
        wide.leave_out(self, left_out)
        self.failures.prove(stage)

    @random_state_kept()
    def read_out(self, stage: str, moment: Moment, device: torch.device) -> dict[str, Tensor]:
        """Compute the diagnostics of a stage on all ranks, write the arrays, and return the scalars by logged name."""
        seen = self._rows.get(stage, Rows())
        metrics = self._metrics[stage]
        found, self.rows[stage], source = self._readout(metrics, stage, moment, seen=seen, device=device)
        if source:  # rank 0, which writes the files, had no step
            spaces, widths = distributed.broadcast((self._spaces, self._widths), source)
            self._spaces, self._widths = spaces | self._spaces, widths | self._widths
        assert self._files is not None
        self._declare(stage, found, moment)
        results = {result_name(name, key): value for name, by in found.items() for key, value in by.items()}
        firsts = {result_name(name, key) for name in found for key in keeps_first(metrics[name])}
        bins = {result_name(name, key): bounds for name, by in found.items() for key in by
                if (bounds := bins_of(metrics[name], key))}  # fmt: skip
        results = {name: value for name, value in results.items() if self.logged(stage, name) not in self._refused}
        for name, value in results.items():
            if value.ndim:
                with self.failures.caught(moment, self.owner.title, stage, diagnostic=name, lost="It is not written"):
                    first, within = name in firsts, bins.get(name)
                    self._files.append(self.logged(stage, name), *moment, values=value, first=first, bins=within)
        if self.rows[stage].samples:
            widths = [self._widths.get((stage, space), "") for space in ("h", "z")]
            samples, views, views_z = self.rows[stage]
            counts = [samples, views, *widths, views_z or ""]
            self._files.append_seen(self.logged(stage, SEEN), *moment, counts=counts)
        return {self.logged(stage, name): value for name, value in results.items() if not value.ndim}

    @random_state_kept()
    def trial(self, stage: str, observation: dict[str, Any]) -> set[str]:
        """Try the diagnostics of a stage on copies with the tensors of one step. Returns the names that will be logged.

        Raises a ValueError if a tensor is missing, if a diagnostic cannot process the tensors, or if a name would be
        logged twice.
        """
        names: set[str] = set()
        entries: dict[str, Declared | None] = {}
        tensors = (value for value in observation.values() if isinstance(value, Tensor))
        device = next((value.device for value in tensors), torch.device("cpu"))
        left_out, wide = self._lacking(stage, observation), TooWide()
        for name, metric in self._metrics[stage].items():
            if name in left_out:
                continue
            copied = copy.deepcopy(metric).to(device)
            copied.distributed_available_fn = lambda: False  # this rank's batch alone
            rename = self._require(metric, name, observation, stage=stage)
            computed: Any = {}
            with diagnostic_named(name, metric), wide.caught(name, metric):
                self._feed(copied, observation, rename, name=name, stage=stage)
                with suppress(Exception):  # one batch may be too little to compute from
                    computed = copied.compute()
                found = by_key(computed)
            if name in wide.found:
                continue
            names.add(name)
            self._refuse_equal(name, results := {result_name(name, key) for key in found} - {name}, names)
            names |= results
            entries |= self._meanings(stage, name, found)
            self._tell_misnamed(name, found)
        wide.leave_out(self, left_out)
        self.owner.check(entries)
        return {self.logged(stage, name) for name in names}

    def _lacking(self, stage: str, observation: dict[str, Any]) -> set[str]:
        # decided at the first step of an epoch or pass: a later step that shows less is a failure
        if stage not in self._left_out:
            apart = self._of_joint_towers(stage, observation)
            apart |= without_pictures(self, stage, observation)
            self._left_out[stage] = apart | leave_out(self, stage, observation, known=apart)
        return self._left_out[stage]

    def _of_joint_towers(self, stage: str, observation: Mapping[str, Any]) -> set[str]:
        silent = {name.partition(".")[0] for name in self.observer.silent}
        missing = self.observer.towers.keys() - observation.keys() - silent
        if not self._standard or not missing:
            return set()
        metrics = self._metrics[stage]
        found = [name for name, metric in metrics.items() if missing & self._read(name, metric, observation)]
        if said := [name for name in found if not getattr(metrics[name], "optional", False)]:
            self.warn_once(
                f"{self.owner.title} leaves {', '.join(said)} out, since the towers in `taps` return vectors of "
                "different widths. Each tower has diagnostics of its own."
            )
        return set(found)

    def _read(self, name: str, metric: Metric, observation: Mapping[str, Any]) -> set[str]:
        rename = self.renamed(metric, name, observation)
        return {rename.get(argument, argument) for argument in inspect.signature(metric.update).parameters}

    def _refuse_equal(self, name: str, results: set[str], others: set[str]) -> None:
        if equal := results & (others - {name} | (self.diagnostics.keys() - {name})):
            raise ValueError(
                f"Expected each name to be logged once, but {name!r} and another diagnostic log {min(equal)!r}. "
                "Give them other names in `diagnostics`."
            )

    def _require(self, metric: Metric, name: str, observation: Mapping[str, Any], *, stage: str) -> dict[str, str]:
        rename = self.renamed(metric, name, observation)
        for argument in _required(metric):
            self.observer.require(rename.get(argument, argument), observation, stage)
        return rename

    def _feed(
        self, metric: Metric, observation: Mapping[str, Any], rename: dict[str, str], *, name: str, stage: str
    ) -> None:
        try:
            feed(metric, observation, rename, name=name, stage=stage)
        except TooWideError:
            raise
        except ValueError as error:
            if where := self.observer.tapped(error):
                raise ValueError(f"{error}{where}") from error
            raise

    def _tell_misnamed(self, name: str, results: Iterable[str]) -> None:
        if name not in self._told and (message := misnamed(self.diagnostics[name], results)):
            self._told.add(name)
            rank_zero_warn(message)

    def _declare(self, stage: str, found: Mapping[str, Mapping[str, Tensor]], moment: Moment) -> None:
        entries: dict[str, Declared] = {}
        for name, results in found.items():
            said = {}
            if not self.failures.failed(stage, name) or self._readout.knows(stage, name):
                said = self._meanings(stage, name, results)
            if not self.failures.failed(stage, name):
                self._tell_misnamed(name, results)
            for logged, entry in said.items():
                if logged in self._refused:
                    continue
                self._refused.add(logged)  # not logged unless the check below passes
                lost = "It is not logged under that name"
                with self.failures.caught(moment, self.owner.title, stage, diagnostic=name, lost=lost):
                    self.owner.check({logged: entry})
                    self._refused.remove(logged)
                if entry and logged not in self._refused:
                    entries[logged] = replace(entry, undefined=self._readout.reasons(stage, name))
        self.owner.declare(entries)

    def _meanings(self, stage: str, name: str, results: Iterable[str]) -> dict[str, Declared | None]:
        metric = self.diagnostics[name]
        rename = self.rename.get(name, {})
        space, width = self._spaces.get((stage, name)) or (space_of(metric, rename), None)
        found = {key: meaning(metric, key, space=space, width=width, rename=rename) for key in results}
        return {self.logged(stage, result_name(name, key)): entry for key, entry in found.items()}


@contextmanager
def _of_constant_views(stage: str, earlier: int, views: int) -> Iterator[None]:
    try:
        yield
    except RuntimeError as error:  # of torch, for rows that do not fit to the earlier ones
        if earlier == views:
            raise
        raise ValueError(
            f"Expected the same number of views in all steps of the stage {stage!r}, but got {views} after {earlier}. "
            "Pass as many views in each step, or use another stage."
        ) from error


def _required(metric: Metric) -> dict[str, None]:
    parameters = inspect.signature(metric.update).parameters.items()
    return {argument: None for argument, each in parameters if each.default is inspect.Parameter.empty}


def _space(name: str, observation: Mapping[str, Any]) -> tuple[str, int | None]:
    value = observation.get(name)
    return name, value.shape[-1] if isinstance(value, Tensor) and value.ndim > 1 else None


def refuse_misspelt(together: Sequence[Measurements]) -> None:
    """Raise a ValueError if `taps` or `batch_keys` has a name that no diagnostic reads and that is near to another.

    `together` are all measurements of a run, since they may share one host.
    """
    read = {
        each.renamed(metric, name, SAMPLE_AXIS).get(argument, argument)
        for each in together
        for name, metric in each.diagnostics.items()
        for argument in inspect.signature(metric.update).parameters
    }
    for each in together:
        taps = each.observer.taps
        given = [("taps", name) for name in (taps.taps if taps else ())]
        given += [("batch_keys", key.rpartition("/")[2]) for key in each.observer.reader.batch_keys]
        for argument, name in given:
            likely = near(name, read | set(SAMPLE_AXIS))
            if likely and name not in read | SAMPLE_AXIS.keys():
                raise ValueError(
                    f"Expected `{argument}` of {each.owner.title} to name what a diagnostic observes, but none "
                    f"observes {name!r}.{likely}"
                )
