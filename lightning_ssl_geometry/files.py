"""Files that a kill or a full disk leaves whole: written beside and renamed, or appended to in one write."""

__all__ = ["append", "replacing", "set_aside", "unfinished"]

import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """Open a file beside `path` for writing, and rename it to `path` at the end.

    A reader sees the old file or the new one. If the body or the disk fails, `path` stays as it was, and the file
    beside it is removed. Folders on the way are made.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a" / "x.txt"
    >>> with replacing(path) as file:
    ...     _ = file.write(b"whole")
    >>> path.read_text(), len(list(path.parent.iterdir()))
    ('whole', 1)
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


def append(path: Path, text: str) -> None:
    """Append text to an existing file in one write; where only a part fits the disk, that part is taken back.

    Raises:
        OSError: If the disk is full.
    """
    data = text.encode()
    descriptor = os.open(path, os.O_WRONLY | os.O_APPEND)
    try:
        size = os.fstat(descriptor).st_size
        if os.write(descriptor, data) < len(data):
            os.ftruncate(descriptor, size)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    finally:
        os.close(descriptor)


def set_aside(path: Path, why: str = "unreadable") -> Path:
    """Rename `x.csv` to `x.csv.unreadable-1`, or the next number that is free, and return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def unfinished(path: Path) -> list[Path]:
    """List what :func:`replacing` left beside `path` in processes that were killed."""
    return sorted(path.parent.glob(f".{path.name}.{'[0-9a-f]' * 32}.part"))
