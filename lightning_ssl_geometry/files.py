"""Write files that stay complete if the process is killed or the disk is full."""

__all__ = [
    "append",
    "append_rows",
    "read_rows",
    "refuse_other_files",
    "replacing",
    "row",
    "rows_kind",
    "set_aside",
    "unfinished",
    "write_rows",
]

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

import numpy as np
from numpy.typing import ArrayLike, NDArray

_HEADER = 256  # bytes before the first record of an NPY file of ours: the number of records can grow within


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a temporary file for writing. At the end of the `with` block, rename it to `path`.

    So a reader sees either the complete old file or the complete new file. If the block raises an error, `path` does
    not change. Missing folders are created.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    beside = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with beside.open("xb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        os.replace(beside, path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise


def refuse_other_files(path: Path, begins: str) -> None:
    """Raise a FileExistsError if there is a file that this package did not write: one whose head lacks `begins`.

    Raises:
        FileExistsError: Also if `path` is a folder.
        NotADirectoryError: If one of its folders is a file.
    """
    for folder in path.parents:
        if folder.is_file():
            raise NotADirectoryError(f"Expected a folder {folder}, but it is a file.")
    if path.is_dir():
        raise FileExistsError(f"Expected no folder {path}: a file of this name is to be written.")
    try:
        with path.open("rb") as file:
            head = file.read(2_000)
    except FileNotFoundError:
        return
    if head and begins.encode() not in head:
        raise FileExistsError(f"Expected no file {path}, or one of an earlier command, but it is another one.")


def append(path: Path, text: str) -> None:
    """Append text to an existing file. If the disk is full, raise an OSError and leave the file unchanged."""
    data = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        _write_all(descriptor, data, path, end=os.fstat(descriptor).st_size)
    finally:
        os.close(descriptor)


def _write_all(descriptor: int, data: bytes, path: Path, *, end: int) -> None:
    if os.write(descriptor, data) < len(data):
        os.ftruncate(descriptor, end)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))


def row(epoch: int, step: int, values: ArrayLike) -> NDArray[np.void]:
    """Return one record (1,) of an NPY file: `epoch`, `step` and the vector `values`, which becomes float32."""
    vector = np.asarray(values, dtype="<f4")
    found = np.empty(1, _kind(len(vector)))
    found["epoch"], found["step"], found["values"] = epoch, step, vector
    return found


def write_rows(path: Path, rows: NDArray[np.void]) -> None:
    """Write records of :func:`row` to an NPY file, in place of what is there."""
    with replacing(path) as file:
        file.write(_header(rows.dtype, len(rows)) + rows.tobytes())


def append_rows(path: Path, rows: NDArray[np.void]) -> None:
    """Append records of :func:`row` to an NPY file, or create it.

    The header, which has the number of records, is written last. So a killed process leaves the records that were there
    before. If the disk is full, an OSError is raised, and the file has these, too.
    """
    if not path.exists():
        write_rows(path, rows)
        return
    with path.open("r+b", buffering=0) as file:
        kind, count = _read_header(file)
        end = _HEADER + count * kind.itemsize
        file.truncate(end)  # what a killed process left behind
        file.seek(end)
        _write_all(file.fileno(), rows.tobytes(), path, end=end)
        file.seek(0)
        os.write(file.fileno(), _header(kind, count + len(rows)))


def rows_kind(path: Path) -> np.dtype[np.void]:
    """Return the type of the records of an NPY file. Raise a ValueError if the file is none of :func:`append_rows`."""
    with path.open("rb") as file:
        return _read_header(file)[0]


def read_rows(file: BinaryIO) -> NDArray[np.void]:
    """Read the whole records of an NPY file of :func:`append_rows`. Raise a ValueError for other files."""
    kind, count = _read_header(file)
    file.seek(_HEADER)
    return np.frombuffer(file.read(count * kind.itemsize), kind)


def _kind(length: int) -> np.dtype[np.void]:
    return np.dtype([("epoch", "<i8"), ("step", "<i8"), ("values", "<f4", (length,))])


def _header(kind: np.dtype[np.void], count: int) -> bytes:
    about = repr({"descr": np.lib.format.dtype_to_descr(kind), "fortran_order": False, "shape": (count,)})
    magic = np.lib.format.magic(1, 0) + (_HEADER - 10).to_bytes(2, "little")
    return magic + about.encode().ljust(_HEADER - 11) + b"\n"


def _read_header(file: BinaryIO) -> tuple[np.dtype[np.void], int]:  # the type of the records, and how many are whole
    file.seek(0)
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError("it is no NPY file of version 1")
    shape, _, kind = np.lib.format.read_array_header_1_0(file)
    names = kind.names == ("epoch", "step", "values")
    if file.tell() != _HEADER or len(shape) != 1 or not names or kind != _kind(*kind["values"].shape[:1] or (0,)):
        raise ValueError("it has no records of `epoch`, `step` and `values`")
    size: int = os.fstat(file.fileno()).st_size
    return kind, min(shape[0], max(size - _HEADER, 0) // kind.itemsize)


def set_aside(path: Path, why: str = "unreadable") -> Path:
    """Rename a file to the first free name of `x.csv.{why}-1`, `x.csv.{why}-2`, ..., and return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def unfinished(path: Path) -> list[Path]:
    """List the temporary files that :func:`replacing` left behind for `path` when its process was killed."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}.part"))
