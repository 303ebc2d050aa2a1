"""Read the folder of a run."""

__all__ = ["EVALUATIONS", "Run", "read_run"]

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.report.files import Reads, is_there, plain
from lightning_ssl_geometry.report.history import Resumption, is_resumed, read_logs, with_earlier
from lightning_ssl_geometry.report.located import Located
from lightning_ssl_geometry.report.logs import MOST_DRAWN, Floats, Readouts, Series, Snapshot, without_firsts
from lightning_ssl_geometry.report.records import (
    Evaluation,
    Layers,
    read_config,
    read_evaluations,
    read_info,
    read_layers,
    told_of,
)
from lightning_ssl_geometry.report.seen import few_rows, without_seen

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

    from lightning_ssl_geometry.report.drawn import Drawings

EVALUATIONS = "linear_evaluation.csv".removesuffix(".csv")
_OF_A_RUN = ("metrics.csv", "geometry", "run.json")
_NO_SCALARS = "metrics.csv is missing: no scalars over training (Lightning's CSVLogger or ours writes it)."
_NO_ARRAYS = "geometry/ holds no arrays: no spectra (diagnostics of GeometryMonitor that compute arrays write them)."
_NO_RECORD = "run.json is missing: model, data, seed, versions and status are not known from it."
_NO_CONFIG = "config.yaml is missing, which ssl-geometry writes: settings are not known."


@dataclass(frozen=True, eq=False, repr=False)
class Run(Located):
    """The contents of a run's files. A resumed run includes the scalars and arrays of its earlier folders.

    At the end of a notebook's cell, a run shows its page. :meth:`figure` returns one figure, and :meth:`to_frame` the
    numbers. Where a path is expected, a run is the path of its folder: `run / "report.html"`, `Path(run)`, `str(run)`
    and `read_run(run)` work.

    Attributes:
        folder: Folder of the files.
        name: Name of the folder. If this is `version_*`, it begins with the name of the parent folder.
        scalars: metrics.csv, by logged name, such as `val/loss`.
        arrays: geometry/*.csv and *.npy, by logged name, such as `train/log_spectrum_h`.
        evaluations: linear_evaluation.csv.
        info: run.json.
        config: Text of config.yaml.
        notes: One sentence for each thing that is missing or could not be read.
        steps_per_epoch: Estimated from the logged steps. None if all logs are from one epoch.
        snapshots: geometry/*.npz, the latest arrays with several axes, by logged name.
        firsts: geometry/*.first.npz, the first values of some of these arrays.
        layers: layers.csv.
        seen: geometry/<stage>/rows_seen.csv, by stage: numbers of samples and views, and dimensions of h and z, over
            time.
        resumed: The resumptions from checkpoints, from first to last.
        declared: geometry/quantities.json, descriptions by logged name.
    """

    folder: Path
    name: str
    scalars: Mapping[str, Series] = field(default_factory=dict)
    arrays: Mapping[str, Readouts] = field(default_factory=dict)
    evaluations: tuple[Evaluation, ...] = ()
    info: Mapping[str, object] = field(default_factory=dict)
    config: str | None = None
    notes: tuple[str, ...] = ()
    steps_per_epoch: float | None = None
    snapshots: Mapping[str, Snapshot] = field(default_factory=dict)
    firsts: Mapping[str, Snapshot] = field(default_factory=dict)
    layers: Layers | None = None
    seen: Mapping[str, Readouts] = field(default_factory=dict)
    resumed: tuple[Resumption, ...] = ()
    declared: Mapping[str, Declared] = field(default_factory=dict)

    @property
    def is_diagnosis(self) -> bool:
        """Whether a model was diagnosed without training."""
        return self.info.get("kind") == "diagnosis"

    @property
    def time_unit(self) -> str:
        """Unit of :meth:`time`: `epochs`, or `steps` if the run has at most one epoch."""
        return "epochs" if self.steps_per_epoch else "steps"

    def time(self, of: Series | Readouts) -> Floats:
        """Return the training time of each value, (R,), in epochs or steps."""
        return of.done / self.steps_per_epoch if self.steps_per_epoch else of.done

    def figures(self) -> "dict[str, Figure]":
        """Return all figures of the page by name. They are drawn at the first call.

        A UserWarning names figures that cannot be drawn.
        """
        from lightning_ssl_geometry.report.notebook import with_picture
        from lightning_ssl_geometry.report.page import figures

        return {name: with_picture(figure) for name, figure in figures(self, drawings=self._drawings).items()}

    def figure(self, name: str) -> "Figure":
        """Return one figure of the page, such as `run.figure("test_spectrum_h")`. `savefig` of the figure saves it.

        Raises:
            ValueError: If the run has no figure of this name. The message suggests similar names.
        """
        from lightning_ssl_geometry.report.notebook import named

        return named(self.figures(), name)

    def to_frame(self, *, vectors: bool = False) -> "DataFrame":
        """Return the numbers of the run as a pandas DataFrame, with one row per value.

        The columns are:

        - `stage`: "train", "val", "test", "probe", or "".
        - `name`: The logged name without stage and key, such as "bound".
        - `key`: The name of the result if a diagnostic has several, such as "upper", else "".
        - `epoch`: Counted from 0. NaN if unknown.
        - `step`: Number of optimizer steps done. It is 0 in a diagnosis.
        - `value`: The value. It may be NaN or infinite.

        Args:
            vectors: Whether to add the vectors, such as spectra. They have one row for each entry and time. The column
                `position` then counts the entries of a vector from 0, and is missing for scalars.

        Raises:
            ModuleNotFoundError: If pandas is not installed.
        """
        from lightning_ssl_geometry.report.frame import frame

        return frame(self, vectors)

    @cached_property
    def _drawings(self) -> "Drawings":
        from lightning_ssl_geometry.report.drawn import Drawings

        return Drawings()

    def __repr__(self) -> str:
        from lightning_ssl_geometry.report.notebook import in_short

        return in_short(self)

    def _repr_html_(self) -> str:
        from lightning_ssl_geometry.report.notebook import framed
        from lightning_ssl_geometry.report.page import page_of

        return framed(page_of(self, self._drawings))


def read_run(run: str | os.PathLike[str]) -> Run:
    """Read a run's folder, or the newest `version_*` in it. A run that was read before is read again.

    The folder of a run has metrics.csv, geometry/ or run.json. Missing, damaged and too large files are skipped, and
    the attribute `notes` names them. No code in a file is run.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it is not the folder of a run.
    """
    folder, notes = _locate(Path(run))
    reads, record = Reads(folder, notes), Reads(folder)
    info = record.of("run.json", read_info, {}, missing=_NO_RECORD)
    notes += told_of(info)
    logs, history, more = with_earlier(folder, read_logs(reads))
    arrays, seen = without_seen(logs.arrays)
    snapshots, firsts = without_firsts(logs.snapshots)
    notes += [] if logs.scalars or is_there(folder / "metrics.csv") else [_NO_SCALARS]
    notes += [*([] if arrays or logs.declared else [_NO_ARRAYS]), *more]
    evaluations: tuple[Evaluation, ...] = reads.of(f"{EVALUATIONS}.csv", read_evaluations, ())
    notes += record.notes
    layers = reads.of("layers.csv", read_layers, None)
    ours = str(info.get("command")).startswith("ssl-geometry")  # only the command writes its config
    config, configured = reads.of("config.yaml", read_config, (None, {}), missing=_NO_CONFIG if ours else "")
    delayed = {name for name, each in logs.declared.items() if each.quantity.delayed}
    whole = {name: _without_first_nan(series) if name in delayed else series for name, series in logs.scalars.items()}
    scalars = _in_optimizer_steps(whole, arrays)
    notes += _odd_values(scalars, logs.declared)
    within = [entry for entry in history.resumed if entry.within_epoch]
    notes += [f"Resumed within epoch {entry.epoch:,.0f}: results of its training batches are from those after step "
              f"{entry.step:,.0f}." for entry in within]  # fmt: skip
    made = Run(
        folder, _name(folder), scalars, arrays=arrays, evaluations=evaluations, info=info | configured | info,
        config=config, notes=tuple(notes), steps_per_epoch=_steps_per_epoch(scalars, arrays), layers=layers, seen=seen,
        snapshots=snapshots, firsts=firsts, resumed=history.resumed, declared=logs.declared,
    )  # fmt: skip
    return replace(made, notes=(*made.notes, *few_rows(made)))


def _locate(folder: Path) -> tuple[Path, list[str]]:
    if not folder.exists():
        raise FileNotFoundError(f"Expected `run` to be the folder of a run, but {folder} does not exist.")
    if not folder.is_dir():
        raise ValueError(f"Expected `run` to be the folder of a run, but {folder} is a file.")
    if _is_run(folder):
        return folder, []
    versions = sorted((child for child in folder.glob("version_*") if _is_run(child)), key=_version)
    if versions:
        others = [f"This is {versions[-1].name}, the newest of {len(versions)} versions in {folder.name}."]
        return versions[-1], others if len(versions) > 1 else []
    found = sorted(child.name for child in folder.iterdir())
    holds = ", ".join(found[:8]) + (", ..." if len(found) > 8 else "") if found else "nothing"
    deeper = sorted(path.parent for path in [*folder.glob("*/metrics.csv"), *folder.glob("*/*/metrics.csv")])
    hint = f" Runs further down: {', '.join(map(str, deeper[:3]))}." if deeper else ""
    raise ValueError(
        f"Expected `run` to hold metrics.csv or geometry/, or at least run.json, itself or in a folder version_*, but "
        f"{folder} holds {holds}.{hint}"
    )


def _is_run(folder: Path) -> bool:
    return any(is_there(folder / name) for name in _OF_A_RUN) or is_resumed(folder)


def _version(folder: Path) -> tuple[int, str]:
    number = folder.name.removeprefix("version_")
    return (int(number) if number.isascii() and number.isdigit() else -1, folder.name)


def _name(folder: Path) -> str:
    folder = folder.resolve()
    return f"{folder.parent.name}/{folder.name}" if folder.name.startswith("version_") else folder.name


def _without_first_nan(series: Series) -> Series:  # a comparison with an earlier time has no first value
    return series if series.finite[0] or not series.finite.any() else series.rows(np.arange(1, len(series.step)))


def _odd_values(scalars: Mapping[str, Series], declared: Mapping[str, Declared]) -> list[str]:
    meanings = []
    for name, each in declared.items():
        if before := " and ".join(plain(earlier, 200) for earlier in each.earlier[:3]):
            meanings.append(
                f"{plain(name, 200)} has two meanings: it was {before} in an earlier part of this run, and is "
                f"{plain(each.in_words, 200)} in the latest. Figures show all its values with the latest meaning."
            )
    lost, huge = [], []
    for series in scalars.values():
        if len(bad := np.flatnonzero(~series.finite)):
            rows = f"{len(bad)} of {len(series.value)} rows"
            where = f"epoch {series.epoch[bad[0]]:g}, step {series.step[bad[0]]:g}"
            known = declared.get(series.name)
            why = "; ".join(plain(reason, 200).rstrip(".") for reason in known.undefined[:3]) if known else ""
            lost.append(f"{series.name} is not a finite number in {rows}, first at {where}{why and f': {why}'}.")
        if count := int((np.abs(series.value[series.finite]) > MOST_DRAWN).sum()):
            huge.append(f"{series.name} has values beyond ±{MOST_DRAWN:.0e}, {count:,} in all; figures leave them out.")
    return meanings + lost + huge


def _in_optimizer_steps(scalars: Mapping[str, Series], arrays: Mapping[str, Readouts]) -> Mapping[str, Series]:
    # With several optimizers, Lightning counts batches for scalars, and for geometry/ the steps of all optimizers.
    batches, steps = _steps_per_epoch(scalars), _steps_per_epoch(arrays)
    count = steps / batches if batches and steps else 1.0
    if count < 2 or not count.is_integer():
        return scalars
    return {name: replace(series, done=count * series.done) for name, series in scalars.items()}


def _steps_per_epoch(*logs: Mapping[str, Series] | Mapping[str, Readouts]) -> float | None:
    first: dict[float, float] = {}
    last: dict[float, float] = {}
    for item in (item for log in logs for item in log.values()):
        for epoch, done in zip(item.epoch, item.done, strict=True):
            if np.isfinite(epoch) and done > 0:
                first[float(epoch)] = min(float(done), first.get(float(epoch), np.inf))
                last[float(epoch)] = max(float(done), last.get(float(epoch), 0.0))
    if len(last) < 2:
        return None
    # the least number for which each logged step is within its logged epoch
    least = float(np.ceil(max(done / (epoch + 1) for epoch, done in last.items())))
    if all(done > least * epoch for epoch, done in first.items()):
        return least
    # else the median number of steps between the ends of two successive epochs
    last |= {-1.0: 0.0}  # before training
    epochs = np.array(sorted(last))
    growth = np.sort(np.diff([last[epoch] for epoch in epochs]) / np.diff(epochs))
    pace = float(growth[len(growth) // 2])  # the larger of two in the middle
    return pace if pace > 0 else None
