"""Choose the number of threads for operations that may be too short to be shared out among cores."""

__all__ = ["threads_for"]

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch

_FEW_PIXELS = 1 << 19  # of a chunk: benchmarks/README.md has the times


@contextmanager
def threads_for(pixels: int, device: torch.device) -> Iterator[None]:
    """Use one thread for operations on a chunk with few pixels, if waking another one takes longer than it helps.

    This is so on a CPU with `OMP_WAIT_POLICY=passive`: OpenMP's threads then sleep between two operations, and to wake
    them takes as long as an operation on half a megabyte. Results do not change.

    Args:
        pixels: Number of pixels of all views of a chunk, per channel.
        device: Where the operations run.
    """
    threads = torch.get_num_threads()
    if device.type != "cpu" or threads == 1 or pixels > _FEW_PIXELS or not _sleeping():
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def _sleeping() -> bool:
    return os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"
