"""Write files that stay complete if the process is killed or the disk is full."""

__all__ = ["append", "replacing", "set_aside", "unfinished"]

import errno
import glob
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4


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


def append(path: Path, text: str) -> None:
    """Append text to an existing file. If the disk is full, raise an OSError and leave the file unchanged."""
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
    """Rename a file to the first free name of `x.csv.{why}-1`, `x.csv.{why}-2`, ..., and return the new path."""
    number = 1
    while (aside := path.with_name(f"{path.name}.{why}-{number}")).exists():
        number += 1
    path.rename(aside)
    return aside


def unfinished(path: Path) -> list[Path]:
    """List the temporary files that :func:`replacing` left behind for `path` when its process was killed."""
    return sorted(path.parent.glob(f".{glob.escape(path.name)}.{'[0-9a-f]' * 32}.part"))
