"""Read the files of a run, up to a maximum size. A problem gives a sentence on the page (a note), not an error."""

__all__ = [
    "Reads",
    "Table",
    "attempt",
    "is_there",
    "listed",
    "plain",
    "read_npz",
    "read_records",
    "read_table",
    "read_text",
]

import csv
import io
import math
import os
import stat
import zipfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.files import read_rows

_Result = TypeVar("_Result")

_MOST_TABLE_BYTES = 64 * 2**20
_MOST_CELLS = 16_000_000
_MOST_COLUMNS = 20_000
_MOST_VALUES = 2**24  # of one array in an NPZ file
_MOST_NPZ_BYTES = 256 * 2**20
_MOST_FILES = 2_000  # in geometry/
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)  # those of numpy; others may ask for any amount of memory
_KINDS = (
    (stat.S_ISDIR, "a folder"),
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
)


@dataclass(frozen=True)
class Table:
    """A CSV file: unique column names, and rows of equal length."""

    columns: tuple[str, ...] = ()
    rows: Sequence[Sequence[str]] = ()

    def column(self, name: str) -> list[str]:
        """Return the cells of a column."""
        place = self.columns.index(name)
        return [row[place] for row in self.rows]

    def by_column(self, most: int) -> Iterator[dict[str, str]]:
        """Return the first `most` rows, each as a dict from column names to cells."""
        return (dict(zip(self.columns, row, strict=True)) for row in islice(self.rows, most))


def attempt(shown: str, read: Callable[[], _Result]) -> tuple[_Result | None, list[str]]:
    """Call `read` and return its result and []. If it fails, return None and a list with a sentence about `shown`."""
    try:
        return read(), []
    except Exception as error:  # a file may hold anything; the others are still to be shown
        return None, [f"{shown} could not be read: {_reason(error)}."]


@dataclass(frozen=True)
class Reads:
    """Reads the files of a folder, and collects sentences about problems in `notes`."""

    folder: Path
    notes: list[str] = field(default_factory=list)

    def of(self, name: str, read: Callable[[Path], tuple[Any, list[str]]], without: Any, missing: str = "") -> Any:
        """Read the file `name`. If that fails, return `without`. If there is no file, add `missing` to `notes`."""
        path = self.folder / name
        if not is_there(path):
            self.notes.extend([missing] if missing else [])
            return without
        found, more = attempt(name, lambda: read(path))
        held, said = (without, []) if found is None else found
        self.notes.extend([*more, *said])
        return held


def plain(text: object, most: int = 200) -> str:
    r"""Put a text in one line of at most `most` characters. Characters that UTF-8 cannot encode become "?".

    >>> plain("a\nb\udcff"), plain("abcdef", 4)
    ('a b?', 'abc…')
    """
    line = " ".join(str(text).encode("utf-8", errors="replace").decode("utf-8").split())
    return line if len(line) <= most else f"{line[: most - 1]}…"


def is_there(path: Path) -> bool:
    """Whether a path exists, or is a broken link."""
    return os.path.lexists(path)


def listed(folder: Path, ending: str) -> tuple[list[tuple[Path, str]], list[str]]:
    """Return (path, name) pairs of the files below a folder that end in `ending`, sorted, and sentences on problems."""
    found = sorted(folder.rglob(f"*{ending}"))
    named = [(path, path.relative_to(folder).with_suffix("").as_posix()) for path in found[:_MOST_FILES]]
    more = [f"{folder.name}/ holds {len(found):,} files *{ending}; only the first {_MOST_FILES:,} were read."]
    return named, more if len(found) > _MOST_FILES else []


def read_text(path: Path, shown: str, most: int) -> tuple[str, list[str]]:
    """Return the first `most` bytes of a UTF-8 file as text, and sentences on problems."""
    with _opened(path) as file:
        held = file.read(most + 1)
    notes = [f"{shown} is larger than {_size(most)}; what is behind that was left out."] if len(held) > most else []
    held = held[:most]
    try:
        text = held.decode("utf-8-sig")  # spreadsheets put a mark before the first column
    except UnicodeDecodeError:
        text = held.decode("utf-8", errors="replace")
        if text[:-1].count("\N{REPLACEMENT CHARACTER}") or not notes:  # not only the letter that was cut at the end
            notes.append(f"{shown} has bytes that are not UTF-8; they are shown as \N{REPLACEMENT CHARACTER}.")
    if "\0" in text:
        notes.append(f"{shown} has NUL bytes, {text.count(chr(0)):,} in all; they were left out.")
        text = text.replace("\0", "")
    return text, notes


def read_table(path: Path, shown: str) -> tuple[Table, list[str]]:
    """Return a CSV file without its incomplete rows, and sentences on problems."""
    text, notes = read_text(path, shown, _MOST_TABLE_BYTES)
    if not text.strip():
        return Table(), [*notes, f"{shown} is empty."]
    end = text.rfind("\n") + 1
    notes += [f"{shown} ends in an incomplete line, which was left out."] if text[end:].strip() else []
    lines, more = _lines(text[:end], shown)
    notes += more
    if not lines:
        return Table(), [*notes, f"{shown} has no complete line."]
    header, *body = lines
    places = {name: place for place, name in enumerate(header)}
    if len(places) < len(header):
        twice = plain(next(name for place, name in enumerate(header) if places[name] != place), 40)
        notes.append(f"{shown} has several columns of one name, such as {twice!r}; the last of them was read.")
    rows = [line for line in body if len(line) == len(header)]
    if odd := sum(0 < len(line) != len(header) for line in body):
        notes.append(f"{shown}: left out rows of another length than the header, {odd} of {len(body)}.")
    if not rows:
        notes.append(f"{shown} has a header and no rows.")
    if len(places) < len(header):
        rows = [[row[place] for place in places.values()] for row in rows]
    return Table(tuple(places), rows), notes


def read_npz(path: Path, names: Sequence[str]) -> dict[str, NDArray[Any]]:
    """Read numeric arrays from an NPZ file, by name. Raise a ValueError if the file or an array is too large."""
    with _opened(path) as file:
        _within_limit(file)
        with zipfile.ZipFile(file) as archive:
            return {name: _member(archive, name) for name in names}


def read_records(path: Path) -> NDArray[np.void]:
    """Read records `epoch`, `step` and `values` from an NPY file. Raise a ValueError if it is too large or another."""
    with _opened(path) as file:
        _within_limit(file)
        return read_rows(file)


def _within_limit(file: io.BufferedReader) -> None:
    if (size := os.fstat(file.fileno()).st_size) > _MOST_NPZ_BYTES:
        raise ValueError(f"it has {_size(size)}, and no more than {_size(_MOST_NPZ_BYTES)} are read")


def _opened(path: Path) -> io.BufferedReader:
    try:
        mode = path.stat().st_mode
    except FileNotFoundError as error:
        raise ValueError("it is a link to nothing" if path.is_symlink() else "it is not there any more") from error
    if not stat.S_ISREG(mode):  # a pipe would block, and opening a device may have side effects
        raise ValueError(f"it is {next((name for is_of, name in _KINDS if is_of(mode)), 'no file')}")
    descriptor = os.open(path, os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0))
    file = os.fdopen(descriptor, "rb")
    if not stat.S_ISREG(os.fstat(descriptor).st_mode):  # it was replaced meanwhile
        file.close()
        raise ValueError("it is no file")
    return file


def _lines(text: str, shown: str) -> tuple[list[list[str]], list[str]]:
    lines: list[list[str]] = []
    cells = 0
    try:
        for line in csv.reader(_narrow(io.StringIO(text, newline=""))):
            if (cells := cells + len(line)) > _MOST_CELLS:
                left = f"{shown} has more than {_MOST_CELLS:,} cells; rows behind {len(lines):,} were left out."
                return lines, [left]
            lines.append(line)
    except csv.Error as error:
        raise ValueError(str(error)) from error
    return lines, []


def _narrow(lines: io.StringIO) -> Iterator[str]:
    for line in lines:
        if line.count(",") >= _MOST_COLUMNS:
            raise ValueError(f"a line has {line.count(',') + 1:,} columns, and no more than {_MOST_COLUMNS:,} are read")
        yield line


def _member(archive: zipfile.ZipFile, name: str) -> NDArray[Any]:
    try:
        about = archive.getinfo(f"{name}.npy")
    except KeyError:
        raise ValueError(f"it has no array `{name}`") from None
    if about.compress_type not in _METHODS:
        raise ValueError(f"`{name}` is compressed as numpy does not")
    with archive.open(about) as file:
        _refuse_large(name, file)
    with archive.open(about) as file:
        return np.lib.format.read_array(file, allow_pickle=False)


def _refuse_large(name: str, file: Any) -> None:  # reads the header only, before memory is allocated
    version = np.lib.format.read_magic(file)
    if version not in ((1, 0), (2, 0)):
        raise ValueError(f"it is of version {version[0]}.{version[1]} of numpy's format")
    read = np.lib.format.read_array_header_1_0 if version == (1, 0) else np.lib.format.read_array_header_2_0
    try:
        shape, _, dtype = read(file)
    except (ValueError, TypeError, RecursionError, MemoryError) as error:
        raise ValueError("it has a header that is none of numpy's format") from error
    if dtype.hasobject:
        raise ValueError(f"`{name}` holds pickled Python objects, which are not read: reading them could run any code")
    if dtype.kind not in "fiub" or dtype.itemsize > 16:
        raise ValueError(f"`{name}` holds {plain(dtype, 40)} instead of numbers")
    count = math.prod(shape)
    if count > _MOST_VALUES or len(shape) > 32:
        raise ValueError(f"`{name}` declares {count:,} values, and no more than {_MOST_VALUES:,} are read")


def _reason(error: Exception) -> str:
    if isinstance(error, ValueError) and not isinstance(error, UnicodeError):
        return plain(str(error).rstrip("."))
    if isinstance(error, zipfile.BadZipFile):
        return "it is no NPZ file, or a broken one"
    if isinstance(error, OSError) and error.strerror:
        return plain(error.strerror)
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return type(error).__name__


def _size(size: int) -> str:
    return f"{size / 2**20:,.0f} MiB" if size >= 2**20 else f"{size / 2**10:,.0f} KiB"
