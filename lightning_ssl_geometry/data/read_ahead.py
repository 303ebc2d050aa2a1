"""Ask the system to read rows of a memory-mapped tensor from the disk before they are needed."""

__all__ = ["read_ahead"]

import ctypes
import mmap
from functools import cache
from typing import Any

from torch import Tensor

_LOOKED_AT = 16  # rows; if the system has them, it is taken to have the others, for to ask for all of them takes time


def read_ahead(mapped: Tensor, rows: Tensor) -> None:
    """Begin to read the rows (n,) of a contiguous memory-mapped tensor (M, ...), and return at once.

    Without this, a row in random order is only read when it is touched, and the disk has one request at a time. Nothing
    happens if the first rows are in memory, or on Windows, which has no such call.
    """
    if not len(rows) or not hasattr(mmap, "MADV_WILLNEED"):
        return
    size, first = mapped[0].nbytes, mapped.data_ptr()
    places = [_pages(first + row * size, size) for row in rows.tolist()]
    if all(_in_memory(start, length) for start, length in places[:_LOOKED_AT]):
        return
    for start, length in places:
        _system().madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), mmap.MADV_WILLNEED)  # a hint: it may fail


def _pages(start: int, size: int) -> tuple[int, int]:
    """Return the start of the first page, and the bytes from there to the end."""
    page = start - start % mmap.PAGESIZE
    return page, start + size - page


def _in_memory(start: int, length: int) -> bool:
    pages = ctypes.create_string_buffer(-(-length // mmap.PAGESIZE))
    failed = _system().mincore(ctypes.c_void_p(start), ctypes.c_size_t(length), pages)
    return not failed and all(byte & 1 for byte in pages.raw)


@cache
def _system() -> Any:
    return ctypes.CDLL(None)
