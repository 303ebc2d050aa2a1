"""RunFiles: writes the files of a run, and records which run wrote them.

The record is the file `history.json`. It has the id of the run, the names of its files, and the checkpoints from which
it was resumed. Only this run, or a run that resumes it, changes or removes these files. Checkpoints also hold the id,
the folder and the file names.
"""

__all__ = ["HISTORY", "RunFiles", "same"]

import csv
import glob
import io
import json
import os
import zipfile
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path, PurePath
from typing import Any, BinaryIO, NamedTuple
from uuid import uuid4

import numpy as np
from lightning.pytorch.utilities import rank_zero_warn
from numpy.typing import NDArray

from lightning_ssl_geometry.files import (
    append,
    append_rows,
    read_rows,
    replacing,
    rows_kind,
    set_aside,
    unfinished,
    write_rows,
)

HISTORY = "history.json"


class RunFiles:
    """Writes the files of a run into its folder, on rank 0. Without a folder, nothing is written.

    A file-system error, such as a full disk, gives one warning per file. Training goes on, and the file keeps its
    contents.

    Args:
        folder: The run's own folder, or None.
        writes: Whether this rank writes.
        quiet: Give no warning if there is no folder.
    """

    def __init__(self, folder: Path | None, writes: bool = True, quiet: bool = False) -> None:
        self.place(folder, writes)
        self.quiet = quiet or not writes
        self.run = uuid4().hex
        self.names: set[str] = set()
        self.resumed: list[dict[str, Any]] = []
        self._announced: dict[str, Any] | None = None
        self._warned: set[str] = set()
        self._waiting: dict[str, tuple[str, str]] = {}  # file -> header and rows
        self._waiting_records: dict[str, list[NDArray[np.void]]] = {}
        self._superseded: Path | None = None
        self.fitted = False  # whether a fit has begun to write here: a validation before it is no part of a fit

    def place(self, folder: Path | None, writes: bool) -> None:
        """Set the run's own folder, before the first file is written."""
        self.folder = folder
        self.writes = writes and folder is not None

    def path(self, name: str) -> Path:
        """Return the path of a file in the folder, such as "geometry/val/log_spectrum_h.csv"."""
        assert self.folder is not None
        return self.folder / name

    def check(self, *names: str, arrays: Iterable[str] = ()) -> None:
        """Raise a ValueError if one of these files exists and another run wrote it.

        `names` are names of files in the run's folder. `arrays` are names of results, such as "val/log_spectrum_h", and
        their files are checked, too.
        """
        found = [file for array in arrays for file in self._array_files(array)]
        for name in (*names, *found):
            if self._foreign(name):
                raise ValueError(f"Expected `{name}` to be this run's to write, but {self._why_foreign(name)}")

    def _array_files(self, name: str) -> list[str]:
        if not self.writes:
            return []
        stage, _, own = name.rpartition("/")
        folder = self.path(f"geometry/{stage}")
        found = [*folder.glob(f"{glob.escape(own)}.*"), *folder.glob(f"{glob.escape(own)}_*.[cn][sp][vzy]")]
        return sorted(path.relative_to(self.path("")).as_posix() for path in found)

    @contextmanager
    def replacing(self, name: str) -> Iterator[BinaryIO]:
        """Yield a buffer. After the block, its contents replace the file, unless another run wrote the file."""
        memory = io.BytesIO()
        yield memory
        if self._may_write(name):
            with self.or_warn(name):
                self.claim(name)
                with replacing(self.path(name)) as file:
                    file.write(memory.getbuffer())

    def append(self, name: str, header: Sequence[object], row: Sequence[object]) -> None:
        """Append a row to a CSV file, or create the file with the header and the row.

        If the disk is full, the next call writes the row. Raises a ValueError if the number of columns has changed.
        """
        if not self._may_write(name):
            return
        path, first, line = self.path(name), _line(header), _line(row)
        if path.exists():
            with path.open() as file:
                width = file.readline().count(",") + 1
            if width != len(header):
                raise ValueError(f"Expected {width} columns in {path}, as in earlier rows, but got {len(header)}.")
        waiting = self._waiting.get(name, (first, ""))
        self._waiting[name] = waiting[0], waiting[1] + line
        self._append_waiting(name)

    def append_record(self, name: str, record: NDArray[np.void]) -> None:
        """Append a record of :func:`~lightning_ssl_geometry.files.row` to an NPY file, or create the file.

        If the disk is full, the next call writes the record. Raises a ValueError if the number of values has changed.
        """
        if not self._may_write(name):
            return
        path, width = self.path(name), record["values"].shape[1]
        if path.exists() and (kind := rows_kind(path)) != record.dtype:
            raise ValueError(f"Expected {kind['values'].shape[0]} values in {path}, as earlier, but got {width}.")
        self._waiting_records.setdefault(name, []).append(record)
        self._append_waiting(name)

    def write_waiting(self) -> None:
        """Write the rows and records that a full disk has refused, if it takes them now."""
        for name in (*self._waiting, *self._waiting_records):
            self._append_waiting(name)

    def _append_waiting(self, name: str) -> None:
        path = self.path(name)
        with self.or_warn(name):
            self.claim(name)
            if name in self._waiting_records:
                append_rows(path, np.concatenate(self._waiting_records[name]))
                del self._waiting_records[name]
                return
            header, rows = self._waiting[name]
            if path.exists():
                append(path, rows)
            else:
                with replacing(path) as whole:
                    whole.write((header + rows).encode())
            del self._waiting[name]

    def own(self, name: str) -> None:
        """Record that this run's logger writes a file. Raises a ValueError if another run wrote it."""
        self.check(name)
        with self.or_warn(name):
            self.claim(name)

    def claim(self, *names: str) -> None:
        """Record that this run writes these files."""
        if self.writes and not self.names.issuperset(names):
            self.names.update(names)
            try:
                self.save()
            except OSError:
                self.names.difference_update(names)
                raise

    def save(self) -> None:
        """Write `history.json`."""
        record = {"run": self.run, "files": sorted(self.names), "resumed": self.resumed}
        with replacing(self.path(HISTORY)) as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())

    def note_resumption(self, entry: dict[str, Any], begun: bool) -> None:
        """Record a resumption from a checkpoint. It replaces one that was noted and has not `begun` to train."""
        self._drop_announced()
        self.resumed.append(entry)
        self._announced = None if begun else entry
        self.fitted = self.fitted or begun
        with self.or_warn(HISTORY):
            self.save()

    def start_anew(self) -> None:
        """Move all that an earlier fit wrote to `geometry/`, and forget a resumption that has not begun.

        What a validation before the first fit has written stays.
        """
        if self._drop_announced():
            with self.or_warn(HISTORY):
                self.save()
        if self.fitted:
            self.rewind(0)
        self.fitted = True

    def _drop_announced(self) -> bool:
        dropped, self._announced = self._announced, None
        self.resumed = [entry for entry in self.resumed if entry is not dropped]
        return dropped is not None

    def adopt(self, state: Mapping[str, Any]) -> None:
        """Take over the id and files of the run that saved `state` in a checkpoint, if that run used this folder."""
        if not self.writes or not same(Path(state["folder"]), self.folder):
            return
        record = self._record()
        if record is None or record["run"] == state["run"]:
            self.run = state["run"]
            self.names |= {name for name in (*state["files"], *(record["files"] if record else [])) if _is_inside(name)}
            self.resumed, self._announced = list(record["resumed"]) if record else [], None
            if record is None:
                self.save()

    def rewind(self, step: int, epoch: int | None = None, read: Collection[int] | None = None) -> None:
        """Move files that were written to `geometry/` after the optimizer step `step` to a folder `superseded-*`.

        From a CSV or NPY file, only the rows after `step` are moved. If `step` is 0, all files are moved. If `epoch` is
        given, results of this and later epochs are moved instead, whatever their step. If `read` is given, results of
        exactly this step stay if their epoch is one of these. An unreadable file is renamed, with a warning.
        """
        until = _Until(step, epoch, read)
        for name in sorted(self.names) if self.writes else []:
            path = self.path(name)
            for left in unfinished(path):
                left.unlink()
            if name.startswith("geometry/") and path.exists():
                try:
                    rewind = {".csv": _rewind_rows, ".npy": _rewind_records, ".npz": _rewind_array}.get(
                        path.suffix, _rewind_whole
                    )
                    rewind(path, until, partial(self.aside, name))
                except (ValueError, KeyError, EOFError, OSError) as error:
                    aside = set_aside(path)
                    rank_zero_warn(f"{path} could not be read: {error}. It is now {aside}; the run goes on without it.")

    def aside(self, name: str) -> Path:
        """Return the path in the folder `superseded-*` to which :meth:`rewind` moves a file or its rows."""
        if self._superseded is None:
            number = 1
            while self.path(f"superseded-{number}").exists():
                number += 1
            self._superseded = self.path(f"superseded-{number}")
        return self._superseded / name

    def reopen(self) -> None:
        """Prepare for another fit, with a new folder `superseded-*`."""
        self._superseded = None
        self.write_waiting()
        self._waiting.clear()
        self._waiting_records.clear()

    def _record(self) -> dict[str, Any] | None:
        path = self.path(HISTORY)
        if not path.exists():
            return None
        try:
            record = json.loads(path.read_bytes())
            return {"run": record["run"], "files": list(record["files"]), "resumed": list(record["resumed"])}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            aside = set_aside(path)
            rank_zero_warn(f"{path} could not be read: {error}. It is now {aside}; the run goes on without it.")
            return None

    @contextmanager
    def or_warn(self, name: str) -> Iterator[None]:
        """Turn a file-system error in the block into a warning. There is at most one warning per file."""
        try:
            yield
        except OSError as error:
            if name not in self._warned:
                self._warned.add(name)
                rank_zero_warn(
                    f"{self.path(name)} cannot be written now: {error}. The training goes on, and what was written "
                    "before stays. Later failures of this file are not reported."
                )

    def _foreign(self, name: str) -> bool:
        return self.writes and name not in self.names and self.path(name).exists()

    def _why_foreign(self, name: str) -> str:
        return (
            f"{self.path(name)} is there already, and neither this run nor one that it resumes wrote it. Give the "
            "logger another `version` or `name`, resume from the checkpoint of the run that is there, or move the file."
        )

    def _may_write(self, name: str) -> bool:
        if self._foreign(name) and name not in self._warned:
            self._warned.add(name)
            rank_zero_warn(f"`{name}` of this run is not kept: {self._why_foreign(name)}")
        if self.folder is None and not self.quiet:
            self.quiet = True
            rank_zero_warn(
                f"{name}, and whatever else callbacks write to a run's folder, is not kept: the Trainer has no logger, "
                "so the run has no folder. Give it one, such as `logger=ResumableCSVLogger('runs')`."
            )
        return self.writes and not self._foreign(name)


def same(folder: Path | None, other: Path | None) -> bool:
    """Whether both paths lead to the same folder. False if one of them is None."""
    return folder is not None and other is not None and folder.resolve() == other.resolve()


def _is_inside(name: str) -> bool:
    path = PurePath(name)
    return not path.is_absolute() and ".." not in path.parts


def _line(cells: Sequence[object]) -> str:
    text = io.StringIO()
    csv.writer(text, lineterminator="\n").writerow(cells)
    return text.getvalue()


class _Until(NamedTuple):
    step: int
    epoch: int | None
    read: Collection[int] | None

    def keeps(self, epoch: int, step: int) -> bool:
        """Whether results of an epoch and a step are kept."""
        if self.read is not None:
            return step < self.step or (step == self.step and epoch in self.read)
        return 0 < self.step >= step if self.epoch is None else epoch < self.epoch

    @property
    def is_start(self) -> bool:
        """Whether nothing is kept."""
        return not self.read and not (self.step if self.epoch is None else self.epoch)


def _rewind_rows(path: Path, until: _Until, aside: Callable[[], Path]) -> None:
    text = path.read_text()
    whole, _, rest = text.rpartition("\n")
    header, *rows = whole.split("\n") if whole else [""]
    if not header.startswith("epoch,step,"):
        raise ValueError("expected a header epoch,step,...")
    rows = [row for row in rows if row.count(",") == header.count(",")]
    early = [until.keeps(*map(int, row.split(",")[:2])) for row in rows]
    kept = [row for row, is_early in zip(rows, early, strict=True) if is_early]
    later = [row for row, is_early in zip(rows, early, strict=True) if not is_early]
    if not later and not rest:
        return
    if later:
        with replacing(aside()) as file:
            file.write("".join(f"{line}\n" for line in [header, *later]).encode())
    if kept:
        with replacing(path) as file:
            file.write("".join(f"{line}\n" for line in [header, *kept]).encode())
    else:
        path.unlink()


def _rewind_records(path: Path, until: _Until, aside: Callable[[], Path]) -> None:
    with path.open("rb") as file:
        rows = read_rows(file)
    early = np.array([until.keeps(int(row["epoch"]), int(row["step"])) for row in rows], dtype=bool)
    if early.all() and len(rows):
        return
    if not early.all():
        write_rows(aside(), rows[~early])
    if early.any():
        write_rows(path, rows[early])
    else:
        path.unlink()


def _rewind_array(path: Path, until: _Until, aside: Callable[[], Path]) -> None:
    try:
        with path.open("rb") as raw, np.load(raw) as file:
            kept = until.keeps(int(file["epoch"]), int(file["step"]))
    except zipfile.BadZipFile as error:
        raise ValueError(str(error)) from error
    if not kept:
        _move(path, aside)


def _rewind_whole(path: Path, until: _Until, aside: Callable[[], Path]) -> None:
    if until.is_start:
        _move(path, aside)


def _move(path: Path, aside: Callable[[], Path]) -> None:
    to = aside()
    to.parent.mkdir(parents=True, exist_ok=True)
    os.replace(path, to)
