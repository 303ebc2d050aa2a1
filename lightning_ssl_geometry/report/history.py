"""The history of a run that was resumed in another folder."""

__all__ = ["History", "Logs", "Resumption", "is_resumed", "read_history", "read_logs", "with_earlier"]

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lightning_ssl_geometry.manifest import FILE, Declared, read_manifest
from lightning_ssl_geometry.report.files import Reads, plain, read_text
from lightning_ssl_geometry.report.logs import (
    FIRST,
    Readouts,
    Series,
    Snapshot,
    read_arrays,
    read_scalars,
    read_snapshots,
)

_FILE, _MANIFEST = "history.json", f"geometry/{FILE}"
_MOST_BYTES = 2**24
_Log = TypeVar("_Log", Series, Readouts)


@dataclass(frozen=True)
class Resumption:
    """One resumption of a run from a checkpoint."""

    folder: str | None  # of the earlier part, relative to the resumed run's folder
    run: str | None  # id of the earlier part in its history.json
    step: float  # number of optimizer steps done at the checkpoint
    logged: float  # step of the first scalars that the resumed run logged
    epoch: float  # of the checkpoint, counted from 0
    time: str  # date and time in ISO format
    within_epoch: bool = False  # results on training batches of this epoch are then from its later batches only


@dataclass(frozen=True)
class History:
    """The content of history.json: the id of the run, and its resumptions from first to last."""

    run: str | None = None
    resumed: tuple[Resumption, ...] = ()

    @property
    def earlier(self) -> Resumption | None:
        """The first resumption from another folder, or None."""
        return next((each for each in self.resumed if each.folder != "."), None)


def read_history(folder: Path) -> tuple[History, list[str]]:
    """Return the content of history.json, and sentences on problems."""
    path = folder / _FILE
    if not path.is_file():
        return History(), []
    try:
        record = json.loads(read_text(path, _FILE, _MOST_BYTES)[0])
        return History(_text(record["run"]), tuple(map(_resumption, record["resumed"]))), []
    except (OSError, ArithmeticError, ValueError, TypeError, LookupError, AttributeError, RecursionError) as error:
        return History(), [f"{_FILE} could not be read: {type(error).__name__}. An earlier part is not known."]


def is_resumed(folder: Path) -> bool:
    """Whether the folder's run was resumed from a checkpoint."""
    return bool(read_history(folder)[0].resumed)


class Logs(NamedTuple):
    """All logs in one folder, by logged name: scalars, vectors over training, larger arrays and descriptions."""

    scalars: dict[str, Series]
    arrays: dict[str, Readouts]
    snapshots: dict[str, Snapshot]
    declared: dict[str, Declared]


def read_logs(reads: Reads, missing: str = "") -> Logs:
    """Read the logs in a folder. `missing` is the text after the name of a missing file in `reads.notes`."""
    scalars, geometry = (f"{name}{missing}" if missing else "" for name in ("metrics.csv", "geometry"))
    return Logs(
        reads.of("metrics.csv", read_scalars, {}, missing=scalars),
        reads.of("geometry", read_arrays, {}, missing=geometry),
        reads.of("geometry", read_snapshots, {}),
        declared=reads.of(_MANIFEST, _read_declared, {}),
    )


def _read_declared(path: Path) -> tuple[dict[str, Declared], list[str]]:
    text, notes = read_text(path, _MANIFEST, _MOST_BYTES)
    found, more = read_manifest(text)
    return found, notes + more


def with_earlier(folder: Path, own: Logs) -> tuple[Logs, History, list[str]]:
    """Join a folder's logs with the logs from before its run was resumed. Also return sentences on problems."""
    history, notes = read_history(folder)
    parts, seen, place, current = [(own, history.earlier)], {folder.resolve()}, folder, history
    while (entry := current.earlier) is not None:
        place, problem = _earlier_folder(place, entry, seen)
        if problem:
            notes.append(f"Resumed at step {entry.step:,.0f}: the history before is not shown, because {problem}.")
            break
        seen.add(place)
        current, unread = read_history(place)
        reads, own_start = Reads(place), current.earlier
        trained = own_start is None or own_start.step < entry.step  # a part without a step has no files to miss
        parts.append((read_logs(reads, missing=" is missing." if trained else ""), own_start))
        notes += [f"Earlier part {place.name}: {note}" for note in unread + list(dict.fromkeys(reads.notes))]
    joined = parts.pop()[0]
    while parts:
        logs, later = parts.pop()
        assert later is not None
        joined = Logs(
            _join_scalars(joined.scalars, logs.scalars, later.logged),
            _join_arrays(joined.arrays, logs.arrays, later.step),
            _join_snapshots(joined.snapshots, logs.snapshots, later.step),
            declared=joined.declared | logs.declared,
        )
    return joined, history, notes


def _earlier_folder(folder: Path, entry: Resumption, seen: set[Path]) -> tuple[Path, str | None]:
    if entry.folder is None:
        return folder, "its checkpoint does not say which folder it is of"
    try:
        place = (folder / entry.folder).resolve()
        exists = place.is_dir()
    except (OSError, ValueError, RuntimeError):  # such as a name that is too long, or has a NUL
        return folder, f"`{plain(entry.folder, 60)}` is no name of a folder"
    if place in seen:
        return place, f"{place} would go on from itself"
    if not exists:
        return place, f"{place} does not exist"
    found = read_history(place)[0].run
    if found is not None and entry.run is not None and found != entry.run:
        return place, f"{place} holds another run"
    return place, None


def _join_scalars(earlier: Mapping[str, Series], own: Mapping[str, Series], logged: float) -> dict[str, Series]:
    joined = dict(own)
    for name, series in earlier.items():
        kept = (series.step < logged) | (name.startswith("test/") & (series.step <= logged))
        if kept.any():
            joined[name] = _joined(series.rows(kept), own.get(name))
    return joined


def _join_arrays(earlier: Mapping[str, Readouts], own: Mapping[str, Readouts], step: float) -> dict[str, Readouts]:
    joined = dict(own)
    for name, array in earlier.items():
        kept = array.step <= step
        fits = name not in own or own[name].values.shape[1] == array.values.shape[1]
        if kept.any() and fits:
            joined[name] = _joined(array.rows(kept), own.get(name))
    return joined


def _join_snapshots(earlier: Mapping[str, Snapshot], own: Mapping[str, Snapshot], step: float) -> dict[str, Snapshot]:
    kept = {name: each for name, each in earlier.items() if each.step <= step}
    return kept | dict(own) | {name: each for name, each in kept.items() if name.endswith(FIRST)}


def _joined(earlier: _Log, own: _Log | None) -> _Log:
    if own is None:
        return earlier
    before = earlier.rows(~np.isin(earlier.done, own.done)).columns  # at equal times, the later part counts
    both: dict[str, Any] = {name: np.concatenate([before[name], values]) for name, values in own.columns.items()}
    whole = replace(own, **both)
    return whole.rows(np.argsort(whole.done, kind="stable"))


def _resumption(entry: Mapping[str, Any]) -> Resumption:
    step, epoch = float(entry["step"]), float(entry["epoch"])
    folder, run, time = _text(entry["from"]), _text(entry["run"]), str(entry.get("time", ""))
    return Resumption(
        folder,
        run,
        step,
        logged=float(entry["logged"]),
        epoch=epoch,
        time=time,
        within_epoch=entry.get("within_epoch") is True,
    )


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None
