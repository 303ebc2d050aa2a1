"""Computations in float64 on every device: where a device has no float64, as Apple's MPS, they run on the CPU."""

__all__ = [
    "float64_device",
    "in_float64",
    "keeping_float64",
    "keeping_integers",
    "supports_float64",
    "unit_directions",
    "without_autocast",
]

from collections.abc import Callable
from contextlib import ExitStack
from functools import wraps
from typing import ParamSpec, TypeVar

import torch
from torch import Tensor

P = ParamSpec("P")
T = TypeVar("T")


def without_autocast(function: Callable[P, T]) -> Callable[P, T]:
    """Let a function compute in the dtypes of its tensors, also if it is called inside autocast."""

    @wraps(function)
    def called(*args: P.args, **kwargs: P.kwargs) -> T:
        devices = {value.device.type for value in (*args, *kwargs.values()) if isinstance(value, Tensor)}
        with ExitStack() as stack:
            for device in devices:
                stack.enter_context(torch.autocast(device, enabled=False))
            return function(*args, **kwargs)

    return called


def supports_float64(device: torch.device) -> bool:
    """Return whether a device has float64. MPS (Apple) has not, and some of Intel's XPUs have not.

    >>> supports_float64(torch.device("cpu")), supports_float64(torch.device("mps"))
    (True, False)
    """
    if device.type == "xpu":
        return bool(torch.xpu.get_device_properties(device).has_fp64)
    return device.type != "mps"


def float64_device(device: torch.device) -> torch.device:
    """Return the device for float64 tensors that belong to `device`: this device, or the CPU if it has no float64."""
    return device if supports_float64(device) else torch.device("cpu")


def in_float64(x: Tensor) -> Tensor:
    """Cast a tensor to float64, with gradient. If its device has no float64, the result is on the CPU."""
    return x.to(float64_device(x.device)).double()


def keeping_integers(move: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Change the argument of `nn.Module._apply` so that integers keep their dtype, such as the keys of samples."""

    @wraps(move)
    def kept(x: Tensor) -> Tensor:
        if x.is_floating_point() or x.is_complex() or move(x.new_empty(0)).dtype == x.dtype:
            return move(x)
        return x.to(move(x.new_empty(0)).device)

    return kept


def keeping_float64(move: Callable[[Tensor], Tensor]) -> Callable[[Tensor], Tensor]:
    """Change the argument of `nn.Module._apply` so that float64 tensors do not move to a device without float64.

    A module's `to`, `cuda`, `half` and so on call `_apply` with a function that maps each tensor to its new device and
    dtype.
    """

    @wraps(move)  # torchmetrics recognises `half`, `float` and so on by the name of the function
    def kept(x: Tensor) -> Tensor:
        if x.dtype != torch.float64 or supports_float64(move(x.new_empty(0, dtype=torch.float32)).device):
            return move(x)
        return x

    return kept


def unit_directions(rows: Tensor) -> Tensor:
    """Scale rows (..., P) to unit length in float64, without overflow. A row of 0 stays 0."""
    rows = in_float64(rows)
    largest = rows.abs().amax(dim=-1, keepdim=True)
    rows = rows / largest.where(largest != 0, 1)
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length.where(length != 0, 1)
