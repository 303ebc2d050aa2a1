"""A history in several parts: a run that was resumed in another folder goes on from the earlier part's rows."""

__all__ = ["MANIFEST", "History", "Logs", "Resumption", "is_resumed", "read_declared", "read_history", "with_earlier"]

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from lightning_ssl_geometry.manifest import FILE, Declared, read_manifest
from lightning_ssl_geometry.report.files import attempt, is_there, read_text
from lightning_ssl_geometry.report.logs import (
    Floats,
    Readouts,
    Series,
    Snapshot,
    read_arrays,
    read_scalars,
    read_snapshots,
)

_FILE = "history.json"
MANIFEST = f"geometry/{FILE}"
_MOST_BYTES = 2**24


@dataclass(frozen=True)
class Resumption:
    """Where a run went on from a checkpoint.

    Attributes:
        folder: Of the earlier part: "." for the run's own, else a path from there; None if it is not known.
        run: Name of the earlier part in its history.json, None if it has none.
        step: Optimizer steps done.
        logged: Step of the first scalars that the resumed run logged itself.
        epoch: Epoch of the checkpoint, counted from 0.
        time: When, in ISO form.
        within_epoch: Whether batches of the epoch were still to come: what was observed of that epoch's training
            batches is of the later ones alone.
    """

    folder: str | None
    run: str | None
    step: float
    logged: float
    epoch: float
    time: str
    within_epoch: bool = False


@dataclass(frozen=True)
class History:
    """What history.json says.

    Attributes:
        run: The run's own name.
        resumed: Its resumptions, the earliest first.
    """

    run: str | None = None
    resumed: tuple[Resumption, ...] = ()

    @property
    def earlier(self) -> Resumption | None:
        """The resumption by which the run came from another folder."""
        return next((each for each in self.resumed if each.folder != "."), None)


def read_history(folder: Path) -> tuple[History, list[str]]:
    """Read history.json, and notes on why it is not known."""
    path = folder / _FILE
    if not path.is_file():
        return History(), []
    try:
        record = json.loads(path.read_bytes().decode("utf-8", errors="replace"))
        return History(_text(record["run"]), tuple(map(_resumption, record["resumed"]))), []
    except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        return History(), [f"{_FILE} could not be read: {type(error).__name__}. An earlier part is not known."]


def is_resumed(folder: Path) -> bool:
    """Whether a folder continues a run, even if nothing was logged there yet."""
    return bool(read_history(folder)[0].resumed)


class Logs(NamedTuple):
    """What one folder holds: scalars, arrays, the latest readouts of arrays with more axes, and what these mean."""

    scalars: dict[str, Series]
    arrays: dict[str, Readouts]
    snapshots: dict[str, Snapshot]
    declared: dict[str, Declared]


def read_declared(path: Path) -> tuple[dict[str, Declared], list[str]]:
    """Read geometry/quantities.json, and notes on what was left out of it.

    Raises:
        OSError: If it cannot be opened.
        RecursionError: If it is nested too deeply.
        ValueError: If it is no file, or no JSON.
    """
    text, notes = read_text(path, MANIFEST, _MOST_BYTES)
    found, more = read_manifest(text)
    return found, notes + more


def with_earlier(folder: Path, own: Logs) -> tuple[Logs, History, list[str]]:
    """Join a folder's logs with those of the folders that its run was resumed from, however many.

    Returns:
        The logs of the whole run, the folder's history, and notes on which part is missing.
    """
    history, notes = read_history(folder)
    parts, seen, place, current = [(own, history.earlier)], {folder.resolve()}, folder, history
    while (entry := current.earlier) is not None:
        place, problem = _place(place, entry, seen)
        if problem:
            notes.append(f"Resumed at step {entry.step:,.0f}: the history before is not shown, because {problem}.")
            break
        seen.add(place)
        current, unread = read_history(place)
        logs, more = _read(place)
        parts.append((logs, current.earlier))
        notes += [f"Earlier part {place.name}: {note}" for note in unread + more]
    joined = parts.pop()[0]
    while parts:
        logs, later = parts.pop()
        assert later is not None
        joined = Logs(
            _join_scalars(joined.scalars, logs.scalars, later.logged),
            _join_arrays(joined.arrays, logs.arrays, later.step),
            _join_snapshots(joined.snapshots, logs.snapshots, later.step),
            joined.declared | logs.declared,
        )
    return joined, history, notes


def _place(folder: Path, entry: Resumption, seen: set[Path]) -> tuple[Path, str | None]:
    """Find the folder of an earlier part; and why it cannot be taken."""
    if entry.folder is None:
        return folder, "its checkpoint does not say which folder it is of"
    place = (folder / entry.folder).resolve()
    if place in seen:
        return place, f"{place} would go on from itself"
    if not place.is_dir():
        return place, f"{place} does not exist"
    found = read_history(place)[0].run
    if found is not None and entry.run is not None and found != entry.run:
        return place, f"{place} holds another run"
    return place, None


def _read(folder: Path) -> tuple[Logs, list[str]]:
    notes: list[str] = []

    def of(name: str, read: Callable[[Path], tuple[Any, list[str]]]) -> Any:
        if not is_there(folder / name):
            notes.append(f"{name} is missing.")
            return {}
        found, more = attempt(name, lambda: read(folder / name))
        held, said = found or ({}, [])
        notes.extend([*more, *said])
        return held

    logs = Logs(
        of("metrics.csv", read_scalars),
        of("geometry", read_arrays),
        of("geometry", read_snapshots),
        of(MANIFEST, read_declared) if is_there(folder / MANIFEST) else {},
    )
    return logs, list(dict.fromkeys(notes))


def _join_scalars(earlier: Mapping[str, Series], own: Mapping[str, Series], logged: float) -> dict[str, Series]:
    """Put the earlier part's values from before the step `logged` before the own ones.

    Values of a test after as many steps are kept, too.
    """
    joined = dict(own)
    for name, series in earlier.items():
        kept = (series.step < logged) | (name.startswith("test/") & (series.step <= logged))
        if kept.any():
            joined[name] = _joined(series.rows(kept), own.get(name))
    return joined


def _join_arrays(earlier: Mapping[str, Readouts], own: Mapping[str, Readouts], step: float) -> dict[str, Readouts]:
    """Put the earlier part's readouts up to `step` before the own ones; where widths differ, the own ones alone."""
    joined = dict(own)
    for name, array in earlier.items():
        kept = array.step <= step
        fits = name not in own or own[name].values.shape[1] == array.values.shape[1]
        if kept.any() and fits:
            rows = replace(array, epoch=array.epoch[kept], step=array.step[kept], values=array.values[kept])
            joined[name] = _joined_arrays(rows, own.get(name))
    return joined


def _join_snapshots(earlier: Mapping[str, Snapshot], own: Mapping[str, Snapshot], step: float) -> dict[str, Snapshot]:
    """Take the earlier part's latest readouts where there is no own one yet."""
    return {name: each for name, each in earlier.items() if each.step <= step} | dict(own)


def _joined(earlier: Series, own: Series | None) -> Series:
    if own is None:
        return earlier
    before = earlier.rows(~np.isin(earlier.done, own.done))
    both = zip(
        (before.epoch, before.step, before.value, before.done), (own.epoch, own.step, own.value, own.done), strict=True
    )
    whole = Series(own.name, *(np.append(*each) for each in both))
    return whole.rows(np.argsort(whole.done, kind="stable"))


def _joined_arrays(earlier: Readouts, own: Readouts | None) -> Readouts:
    if own is None:
        return earlier
    before = ~np.isin(earlier.step, own.step)
    step: Floats = np.append(earlier.step[before], own.step)
    order = np.argsort(step, kind="stable")
    epoch = np.append(earlier.epoch[before], own.epoch)
    return Readouts(own.name, epoch[order], step[order], np.concatenate([earlier.values[before], own.values])[order])


def _resumption(entry: Mapping[str, Any]) -> Resumption:
    step, epoch = float(entry["step"]), float(entry["epoch"])
    folder, run, time = _text(entry["from"]), _text(entry["run"]), str(entry.get("time", ""))
    return Resumption(folder, run, step, float(entry["logged"]), epoch, time, entry.get("within_epoch") is True)


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
