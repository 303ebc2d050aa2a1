"""The logs of a run as numpy arrays: scalars from metrics.csv, and arrays from the folder geometry."""

__all__ = ["FIRST", "MOST_DRAWN", "Readouts", "Series", "Snapshot", "floats", "read_arrays", "read_scalars",
           "read_snapshots", "without_firsts"]  # fmt: skip

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.report.files import Table, attempt, listed, plain, read_npz, read_records, read_table

_MOST_SCALARS, _MOST_SAMPLES = 1_000, 20_000
FIRST = ".first"  # ends the name of a file with the first array of a run
MOST_DRAWN = 1e100  # beyond it, arithmetic on an axis overflows
_MOST_STEP = 2**53  # as many steps float64 counts one by one
_PROBED = "probe/"  # begins the names of what is looked at before training, too
Floats = NDArray[np.float64]
_Array = TypeVar("_Array", "Readouts", "Snapshot")


@dataclass(frozen=True)
class _OverTime:
    name: str
    epoch: Floats
    step: Floats

    @property
    def columns(self) -> dict[str, Any]:
        return {each.name: getattr(self, each.name) for each in fields(self) if each.name != "name"}

    def rows(self, kept: NDArray[np.bool_] | NDArray[np.intp]) -> Self:
        return replace(self, **{name: values[kept] for name, values in self.columns.items()})


@dataclass(frozen=True)
class Series(_OverTime):
    """One scalar at R times of training, in order of time.

    Attributes:
        name: The logged name with its stage, such as `val/loss`.
        epoch: (R,), counted from 0. NaN if unknown.
        step: (R,), index of the optimizer step, counted from 0.
        value: (R,), may contain NaN and infinities.
        done: (R,), number of optimizer steps done: `step + 1`, or 0 for a value before training. If several optimizers
            take a step in each batch, as many times this number.
    """

    value: Floats
    done: Floats = field(default_factory=lambda: np.empty(0))

    def __post_init__(self) -> None:
        if len(self.done) != len(self.step):
            object.__setattr__(self, "done", self.step + 1)

    @property
    def finite(self) -> NDArray[np.bool_]:
        """Whether each value is finite, (R,)."""
        return np.isfinite(self.value)

    @property
    def drawable(self) -> bool:
        """Whether at least one value is small enough to be drawn."""
        return bool((np.abs(self.value) < MOST_DRAWN / 100).any())


@dataclass(frozen=True)
class Readouts(_OverTime):
    """One vector of length K at R times of training.

    Attributes:
        name: The logged name with its stage, such as `train/log_spectrum_h`.
        epoch: (R,), counted from 0.
        step: (R,), number of optimizer steps done.
        values: (R, K).
    """

    values: Floats

    @property
    def done(self) -> Floats:
        """Number of optimizer steps done, (R,)."""
        return self.step

    @property
    def finite_rows(self) -> "Readouts | None":
        """The rows that contain a finite number, or None."""
        kept = np.flatnonzero(np.isfinite(self.values).any(axis=1))
        return self.rows(kept) if len(kept) else None


@dataclass(frozen=True)
class Snapshot:
    """The last value of an array with several axes, after `step` optimizer steps."""

    name: str
    epoch: float
    step: float
    values: Floats


def read_scalars(path: Path) -> tuple[dict[str, Series], list[str]]:
    """Return the scalars in metrics.csv of Lightning's CSVLogger by name, and sentences on problems."""
    table, notes = read_table(path, path.name)
    if not table.rows:
        return {}, notes
    if "step" in table.columns:
        step = floats(table.column("step"))
    else:
        notes.append(f"{path.name} has no column `step`; its rows are counted instead.")
        step = np.arange(float(len(table.rows)))
    epoch = floats(table.column("epoch")) if "epoch" in table.columns else np.full(len(step), np.nan)
    epoch = _filled_epochs(step, np.where(_countable(epoch), epoch, np.nan))
    names = [name for name in table.columns if name not in ("step", "epoch")]
    if len(names) > _MOST_SCALARS:
        notes.append(f"{path.name} has {len(names):,} scalars; only the first {_MOST_SCALARS:,} were read.")
    scalars: dict[str, Series] = {}
    unreadable, untrained = 0, _untrained(table, epoch, step)
    for name in names[:_MOST_SCALARS]:
        cells = [cell.strip() for cell in table.column(name)]
        value = floats(cells)
        kept = (np.isfinite(value) | _meant(cells)) & _countable(step)
        unreadable += sum(map(bool, cells)) - int(kept.sum())
        if kept.any():
            before = untrained & name.startswith(_PROBED)
            scalars[name] = _by_time(
                Series(name, epoch, step, value=value, done=np.where(before, 0.0, step + 1)).rows(kept)
            )
    if unreadable:
        notes.append(f"{path.name}: left out cells that are not numbers or have no step, {unreadable} in all.")
    return _plain_names(scalars), notes


def read_arrays(folder: Path) -> tuple[dict[str, Readouts], list[str]]:
    """Return the vectors in geometry/<stage>/<name>.csv (columns epoch, step, 0, 1, ...), and sentences on problems.

    Long vectors are in <name>.npy (records of `epoch`, `step` and `values`). If there are both, the NPY file is read.
    """
    if not folder.is_dir():
        raise ValueError("it is no folder")
    short, notes = _read_each(folder, ".csv", _read_array)
    long, more = _read_each(folder, ".npy", _read_records)
    both = [f"geometry/{plain(name)}.csv was left out: there is a {plain(name)}.npy." for name in long if name in short]
    return short | long, [*notes, *more, *both]


def read_snapshots(folder: Path) -> tuple[dict[str, Snapshot], list[str]]:
    """Return the arrays in geometry/<stage>/<name>.npz (`values`, `epoch` and `step`), and sentences on problems."""
    return _read_each(folder, ".npz", _read_snapshot)


def without_firsts(snapshots: Mapping[str, Snapshot]) -> tuple[dict[str, Snapshot], dict[str, Snapshot]]:
    """Separate the latest arrays and the first arrays of a run, both by logged name."""
    firsts = {name.removesuffix(FIRST): each for name, each in snapshots.items() if name.endswith(FIRST)}
    return {name: each for name, each in snapshots.items() if not name.endswith(FIRST)}, firsts


def _read_each(
    folder: Path, ending: str, read: Callable[[Path, str, str], tuple[_Array | None, list[str]]]
) -> tuple[dict[str, _Array], list[str]]:
    arrays: dict[str, _Array] = {}
    found, notes = listed(folder, ending)
    for path, name in found:
        shown = f"geometry/{plain(name)}{ending}"
        held, more = attempt(shown, lambda: read(path, name, shown))  # noqa: B023
        array, said = held or (None, [])
        notes += more + said
        if array is not None:
            values, said = _huge_as_infinite(array.values, shown)
            notes += said
            arrays[name] = replace(array, values=values)
    return arrays, notes


def _huge_as_infinite(values: Floats, shown: str) -> tuple[Floats, list[str]]:
    if not np.isfinite(values).any():
        return values, [f"{shown} holds no finite number."]
    huge = np.isfinite(values) & (np.abs(values) > MOST_DRAWN)
    if not huge.any():
        return values, []
    said = f"{shown} has values beyond ±{MOST_DRAWN:.0e}, {huge.sum():,} in all; they are shown as infinite."
    return np.where(huge, np.copysign(np.inf, values), values), [said]


def _read_snapshot(path: Path, name: str, _: str) -> tuple[Snapshot, list[str]]:
    held = read_npz(path, ("epoch", "step", "values"))
    for key in ("epoch", "step"):
        if held[key].ndim or not _countable(held[key].astype(np.float64)):
            raise ValueError(f"its `{key}` is not one number >= 0")
    if (values := held["values"]).ndim < 2 or not values.size:
        raise ValueError(f"its `values` have the shape {values.shape} instead of two axes or more")
    if len(values) > _MOST_SAMPLES:
        raise ValueError(f"its `values` have {len(values):,} rows, and no more than {_MOST_SAMPLES:,} are read")
    with np.errstate(over="ignore"):  # of 80 bits
        return Snapshot(name, float(held["epoch"]), float(held["step"]), values=values.astype(np.float64)), []


def _read_array(path: Path, name: str, shown: str) -> tuple[Readouts | None, list[str]]:
    table, notes = read_table(path, shown)
    if not table.rows:
        return None, notes
    if table.columns[:2] != ("epoch", "step") or len(table.columns) < 3:
        return None, [*notes, f"{shown} has no columns epoch, step, 0, 1, ...; it was left out."]
    values = np.stack([floats(row) for row in table.rows])
    return _in_order(Readouts(name, values[:, 0], values[:, 1], values=values[:, 2:]), shown, notes)


def _read_records(path: Path, name: str, shown: str) -> tuple[Readouts | None, list[str]]:
    rows = read_records(path)
    if not len(rows):
        return None, [f"{shown} has no rows."]
    epoch, step, values = (rows[key].astype(np.float64) for key in ("epoch", "step", "values"))
    return _in_order(Readouts(name, epoch, step, values=values), shown, [])


def _in_order(found: Readouts, shown: str, notes: list[str]) -> tuple[Readouts | None, list[str]]:
    kept = _countable(found.step)
    if not kept.all():
        notes.append(f"{shown}: left out rows without a step, {(~kept).sum()} of {len(kept)}.")
    if not kept.any():
        return None, notes
    found = found.rows(kept)
    found = found.rows(np.argsort(found.step, kind="stable"))
    found = found.rows(_last_of_each(found.step))
    return replace(found, epoch=np.where(_countable(found.epoch), found.epoch, np.nan)), notes


def _plain_names(scalars: dict[str, Series]) -> dict[str, Series]:
    # Lightning logs `x_step` and `x_epoch` if `x` is logged on steps and epochs: `x_epoch` becomes `x`
    plain = {name: name.removesuffix("_epoch") for name in scalars if name.endswith("_epoch")}
    plain = {name: base for name, base in plain.items() if f"{base}_step" in scalars and base not in scalars}
    return {plain.get(name, name): replace(series, name=plain.get(name, name)) for name, series in scalars.items()}


def floats(cells: Sequence[str]) -> Floats:
    """Parse cells as numbers. A cell that is not a number becomes NaN."""
    return np.array([_number(cell) if cell else np.nan for cell in cells], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _meant(cells: Sequence[str]) -> NDArray[np.bool_]:
    return np.array([cell.lower().lstrip("+-") in ("nan", "inf", "infinity") for cell in cells])


def _filled_epochs(step: Floats, epoch: Floats) -> Floats:
    # callbacks may log only the step: take the epoch of the next row that has one
    known = np.flatnonzero(np.isfinite(epoch) & np.isfinite(step))
    if not len(known):
        return epoch
    order = known[np.argsort(step[known], kind="stable")]
    position = np.searchsorted(step[order], step).clip(max=len(order) - 1)
    return np.where(np.isfinite(epoch), epoch, epoch[order][position])


def _countable(step: Floats) -> NDArray[np.bool_]:
    return (step >= 0) & (step < _MOST_STEP)


def _untrained(table: Table, epoch: Floats, step: Floats) -> NDArray[np.bool_]:
    # Rows of step 0 with values of the stage `probe` only. If the first epoch has one step, rows from its end look the
    # same; then only the first value of a column counts.
    first = np.zeros(len(step), dtype=bool)
    probed: list[int] = []
    others: list[int] = []
    for place, name in enumerate(table.columns):
        if name not in ("epoch", "step"):
            (probed if name.startswith(_PROBED) else others).append(place)
    one_step, seen = not ((epoch == 0) & (step > 0)).any(), set[int]()
    for row in np.flatnonzero(step == 0).tolist():
        held = {place for place in probed if table.rows[row][place].strip()}
        alone = held and not any(table.rows[row][place].strip() for place in others)
        first[row] = bool(alone) and not (one_step and held & seen)
        seen |= held
    return first


def _by_time(series: Series) -> Series:
    order = np.argsort(series.done, kind="stable")
    return series.rows(order[_last_of_each(series.done[order])])


def _last_of_each(ordered: Floats) -> NDArray[np.bool_]:
    return np.append(ordered[1:] != ordered[:-1], True)  # a resumed run may log a step twice
