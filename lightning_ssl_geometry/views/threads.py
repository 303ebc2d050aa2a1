"""Operations that may be too short to be shared out among cores."""

__all__ = ["one_thread", "threads_sleep"]

import os
from collections.abc import Iterator
from contextlib import contextmanager

import torch


def threads_sleep(device: torch.device) -> bool:
    """Return whether the threads of operations on a device sleep between two operations.

    They do so on a CPU with `OMP_WAIT_POLICY=passive`. To wake one takes as long as an operation on half a megabyte.
    """
    return device.type == "cpu" and os.environ.get("OMP_WAIT_POLICY", "").lower() == "passive"


@contextmanager
def one_thread(wanted: bool = True) -> Iterator[None]:
    """Context manager in which operations of this thread use one thread, if `wanted`. Results do not change."""
    threads = torch.get_num_threads()
    if not wanted or threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
