"""Samples of a data set in one file, which is memory-mapped during a run."""

__all__ = ["about_writing", "key_of", "mapped_tensors"]

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any
from uuid import uuid4

import torch
from torch import Tensor

_FORMAT = 1  # of the file; with another number, it is written again


def key_of(*values: Any) -> str:
    """Return a hash of values that JSON can write, and of the format of the decoded file."""
    return hashlib.sha256(json.dumps([_FORMAT, *values]).encode()).hexdigest()


def mapped_tensors(path: Path, key: str, make: Callable[[], dict[str, Tensor]], remedy: str) -> dict[str, Tensor]:
    """Return the tensors in the file `path`, memory-mapped. If it was not written with this `key`, write it first.

    `key` is a result of :func:`key_of`. `make` returns the tensors. An OSError is raised if the file cannot be written,
    or if a file is there that this function did not write. The message ends with `remedy`.
    """
    if os.path.lexists(path) and not _is_decoded(path):
        raise FileExistsError(
            f"Expected {path} to be a file of decoded samples, which may be replaced, but another or a broken file is "
            f"there. {remedy} If you do not need the file, delete it."
        )
    return _mapped(path, key, make, remedy=remedy)


@contextmanager
def about_writing(path: Path, remedy: str) -> Iterator[None]:
    """Make an error of writing to `path` an OSError that says what it was, and ends with `remedy`."""
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError where the disk is full
        raise OSError(f"Expected to write the decoded samples to {path}, but got: {error}. {remedy}") from error


def _mapped(path: Path, key: str, make: Callable[[], dict[str, Tensor]], remedy: str) -> dict[str, Tensor]:
    if (found := _load(path, key)) is None:
        _write(path, key, make, remedy=remedy)
        found = _load(path, key)
    if found is None:
        raise OSError(f"Expected {path} as it was written, but another process wrote other samples there. {remedy}")
    return found


def _is_decoded(path: Path) -> bool:
    return path.is_file() and (not path.stat().st_size or isinstance(_held(path).get("key"), str))


def _load(path: Path, key: str) -> dict[str, Tensor] | None:
    decoded = _held(path)
    return decoded if decoded.pop("key", None) == key else None


def _held(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        held = torch.load(path, weights_only=True, mmap=True)
    except Exception:  # a broken file may raise anything, even a TypeError
        return {}
    return held if isinstance(held, dict) else {}


def _write(path: Path, key: str, make: Callable[[], dict[str, Tensor]], *, remedy: str) -> None:
    part = path.with_name(f".{path.name}.{uuid4().hex}.part")
    try:
        with about_writing(path, remedy):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.touch()  # fails before the images are decoded
        made = make()  # its errors are those of the data set
        with about_writing(path, remedy):
            torch.save({"key": key} | made, part)
            part.replace(path)
    finally:
        with suppress(NotADirectoryError):
            part.unlink(missing_ok=True)
