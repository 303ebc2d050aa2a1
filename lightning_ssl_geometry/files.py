"""Write files that stay whole if the process is killed or the disk is full."""

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
    """Open a temporary file beside `path` for writing, and rename it to `path` at the end.

    A reader sees either the old file or the new one. If the `with` block raises or the disk is full, `path` stays as it
    was and the temporary file is removed. Missing folders are made.
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
    """Append text to the existing file `path` in one write; if the disk is full, write nothing and raise an OSError."""
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
    """Rename `x.csv` to `x.csv.unreadable-1` (the word is `why`), or to the next free number; return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def unfinished(path: Path) -> list[Path]:
    """List the temporary files beside `path` that :func:`replacing` left when its process was killed."""
    return sorted(path.parent.glob(f".{path.name}.{'[0-9a-f]' * 32}.part"))
