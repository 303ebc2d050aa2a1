"""Errors of settings whose tensors do not fit into the memory."""

__all__ = ["within_memory"]

import os
from contextlib import AbstractContextManager
from typing import Any

from torch import Tensor
from torch.overrides import TorchFunctionMode


def within_memory() -> AbstractContextManager[Any]:
    """Return a context manager in which a CPU tensor larger than the machine's memory raises a ValueError."""
    return _WithinMemory()


class _WithinMemory(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
        known = all(name in getattr(os, "sysconf_names", {}) for name in names)
        self.limit = os.sysconf(names[0]) * os.sysconf(names[1]) if known else float("inf")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.device.type == "cpu" and result.nbytes > self.limit:
            raise ValueError(
                f"Expected tensors that fit into {self.limit / 2**30:.0f} GiB of memory, but got one of shape "
                f"{tuple(result.shape)}."
            )
        return result
