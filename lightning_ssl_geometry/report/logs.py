"""What a run logged over training: scalars of Lightning's metrics.csv and the arrays beside it, as numpy arrays."""

__all__ = ["Readouts", "Series", "Snapshot", "floats", "read_arrays", "read_rows", "read_scalars", "read_snapshots"]

import csv
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Series:
    """One scalar over training, in order of steps; of several values at one step, the last logged.

    Attributes:
        name: As logged, with its stage: `val/loss`.
        epoch: (R,), counted from 0 as Lightning does; NaN where unknown.
        step: (R,), the optimizer step at which it was logged.
        value: (R,); NaN and infinities as they were logged.
    """

    name: str
    epoch: Floats
    step: Floats
    value: Floats

    @property
    def finite(self) -> NDArray[np.bool_]:
        """(R,): where the value is a finite number."""
        return np.isfinite(self.value)


@dataclass(frozen=True)
class Readouts:
    """One array over training, a row per readout.

    Attributes:
        name: With its stage: `train/log_spectrum_h`.
        epoch: (R,), counted from 0.
        step: (R,), optimizer steps done.
        values: (R, K).
    """

    name: str
    epoch: Floats
    step: Floats
    values: Floats


@dataclass(frozen=True)
class Snapshot:
    """The latest readout of an array with several axes, such as images.

    Attributes:
        name: With its stage: `val/policy_maps_image`.
        epoch: Counted from 0.
        step: Optimizer steps done.
        values: With two axes or more.
    """

    name: str
    epoch: float
    step: float
    values: Floats


def read_rows(path: Path, shown: str) -> tuple[list[dict[str, str]], list[str]]:
    """Read a CSV file that may still be written, or whose writer was interrupted.

    Args:
        path: The file.
        shown: What notes call it.

    Returns:
        Its rows, by column, and notes on what was left out: a last line without its end, rows of another length.
    """
    text = path.read_bytes().decode("utf-8", errors="replace").replace("\0", "")
    if not text.strip():
        return [], [f"{shown} is empty."]
    whole, end, rest = text.rpartition("\n")
    notes = [f"{shown} ends in an incomplete line, which was left out."] if rest.strip() else []
    try:
        lines = list(csv.reader(io.StringIO(whole + end, newline="")))
    except csv.Error as error:
        return [], [f"{shown} could not be read: {error}."]
    if not lines:
        return [], [*notes, f"{shown} has no complete line."]
    header, *body = lines
    rows = [dict(zip(header, line, strict=True)) for line in body if len(line) == len(header)]
    if odd := sum(0 < len(line) != len(header) for line in body):
        notes.append(f"{shown}: left out rows of another length than the header, {odd} of {len(body)}.")
    if not rows:
        notes.append(f"{shown} has a header and no rows.")
    return rows, notes


def read_scalars(path: Path) -> tuple[dict[str, Series], list[str]]:
    """Read metrics.csv as Lightning's CSVLogger writes it: sparse rows, an empty cell where nothing was logged.

    Returns:
        The series by name, in the order of the columns, and notes on what was left out.
    """
    rows, notes = read_rows(path, path.name)
    if not rows:
        return {}, notes
    if "step" not in rows[0]:
        notes.append(f"{path.name} has no column `step`; its rows are counted instead.")
        rows = [row | {"step": str(number)} for number, row in enumerate(rows)]
    step, epoch = (floats([row.get(key, "") for row in rows]) for key in ("step", "epoch"))
    epoch = _filled_epochs(step, epoch)
    scalars: dict[str, Series] = {}
    unreadable = 0
    for name in [key for key in rows[0] if key not in ("step", "epoch")]:
        cells = [row[name].strip() for row in rows]
        value = floats(cells)
        kept = (np.isfinite(value) | _meant(cells)) & _countable(step)
        unreadable += sum(map(bool, cells)) - int(kept.sum())
        if kept.any():
            scalars[name] = _by_step(name, epoch[kept], step[kept], value[kept])
    if unreadable:
        notes.append(f"{path.name}: left out cells that are not numbers or have no step, {unreadable} in all.")
    return _plain_names(scalars), notes


def read_arrays(folder: Path) -> tuple[dict[str, Readouts], list[str]]:
    """Read geometry/<stage>/<name>.csv: the columns epoch, step, 0, 1, 2, ..., a row per readout.

    Returns:
        The arrays by name, and notes on what was left out.
    """
    arrays: dict[str, Readouts] = {}
    notes: list[str] = []
    for path in sorted(folder.rglob("*.csv")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        array, more = _read_array(path, name)
        notes += more
        if array is not None:
            arrays[name] = array
    return arrays, notes


def read_snapshots(folder: Path) -> tuple[dict[str, Snapshot], list[str]]:
    """Read geometry/<stage>/<name>.npz: `values`, `epoch` and `step`.

    Returns:
        The arrays by name, and notes on what was left out.
    """
    snapshots: dict[str, Snapshot] = {}
    notes: list[str] = []
    for path in sorted(folder.rglob("*.npz")):
        name = path.relative_to(folder).with_suffix("").as_posix()
        try:
            with path.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
                epoch, step = float(file["epoch"]), float(file["step"])
                values = file["values"].astype(np.float64)
        except (OSError, ValueError, TypeError, KeyError, EOFError, zipfile.BadZipFile) as error:
            notes.append(f"geometry/{name}.npz could not be read: {type(error).__name__}.")
            continue
        snapshots[name] = Snapshot(name, epoch, step, values)
    return snapshots, notes


def _read_array(path: Path, name: str) -> tuple[Readouts | None, list[str]]:
    shown = f"geometry/{name}.csv"
    rows, notes = read_rows(path, shown)
    if not rows:
        return None, notes
    if list(rows[0])[:2] != ["epoch", "step"] or len(rows[0]) < 3:
        return None, [*notes, f"{shown} has no columns epoch, step, 0, 1, ...; it was left out."]
    table = np.stack([floats(list(row.values())) for row in rows])
    kept = _countable(table[:, 1])
    if not kept.all():
        notes.append(f"{shown}: left out rows without a step, {(~kept).sum()} of {len(kept)}.")
    if not kept.any():
        return None, notes
    table = table[kept][np.argsort(table[kept, 1], kind="stable")]
    table = table[_last_of_each(table[:, 1])]
    return Readouts(name, table[:, 0], table[:, 1], table[:, 2:]), notes


def _plain_names(scalars: dict[str, Series]) -> dict[str, Series]:
    """Call `x_epoch` `x` where `x_step` is there too: so Lightning names what is logged both ways."""
    plain = {name: name.removesuffix("_epoch") for name in scalars if name.endswith("_epoch")}
    plain = {name: base for name, base in plain.items() if f"{base}_step" in scalars and base not in scalars}
    return {plain.get(name, name): replace(series, name=plain.get(name, name)) for name, series in scalars.items()}


def floats(cells: Sequence[str]) -> Floats:
    """Parse cells; NaN for what is not a number."""
    return np.array([_number(cell) if cell else np.nan for cell in cells], dtype=np.float64)


def _number(cell: str) -> float:
    try:
        return float(cell)
    except ValueError:
        return np.nan


def _meant(cells: Sequence[str]) -> NDArray[np.bool_]:
    """Where NaN or an infinity was logged, as opposed to nothing."""
    return np.array([cell.lower().lstrip("+-") in ("nan", "inf", "infinity") for cell in cells])


def _filled_epochs(step: Floats, epoch: Floats) -> Floats:
    """Give a row without an epoch that of the next row with one: callbacks may log a step alone."""
    known = np.flatnonzero(np.isfinite(epoch) & np.isfinite(step))
    if not len(known):
        return epoch
    order = known[np.argsort(step[known], kind="stable")]
    position = np.searchsorted(step[order], step).clip(max=len(order) - 1)
    return np.where(np.isfinite(epoch), epoch, epoch[order][position])


def _countable(step: Floats) -> NDArray[np.bool_]:
    return np.abs(step) < 2**53  # not so for NaN


def _by_step(name: str, epoch: Floats, step: Floats, value: Floats) -> Series:
    order = np.argsort(step, kind="stable")
    order = order[_last_of_each(step[order])]
    return Series(name, epoch[order], step[order], value[order])


def _last_of_each(ordered: Floats) -> NDArray[np.bool_]:
    """Mark the last of equal neighbours: a resumed run logs some steps again."""
    return np.append(ordered[1:] != ordered[:-1], True)
