"""Observations as mappings from the arguments of `update` to values: their samples, parts and changes."""

__all__ = ["Observation", "Sampled"]

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

Observation = Mapping[str, Any]
_AXES = {"h": 1, "z": 1, "latent": 1, "content": None, "temperature": None}  # others: 0
SPACES = ("h", "z", "h_image", "z_image")


class Sampled:
    """An observation of N samples that can be divided, put into another order and changed.

    Tensors and modules are copied, in float64.

    Args:
        observation: Maps arguments of `update` to tensors, lists or tuples of tensors, modules, and other values.
        axes: Maps arguments to the axis of the samples, or to None for values without samples. By default, the axis is
            1 for `h` (V, N, D), `z` (V, N, P) and `latent` (V, N, d), and 0 for others. `content` and `temperature`
            have no samples.

    Attributes:
        values: The values by name.
        count: N, or 0 if no value has samples, such as a network alone.
    """

    def __init__(self, observation: Observation, axes: Mapping[str, int | None] | None = None) -> None:
        self._axes = _AXES | {name: 0 for name in SPACES[:2] if _rows(observation.get(name))} | dict(axes or {})
        self.values = {name: _in(torch.float64, value) for name, value in observation.items()}
        sizes = {name: self._size(name, value) for name, value in self.values.items()}
        found = {name: size for name, size in sizes.items() if size is not None}
        self.count = next(iter(found.values()), 0)
        if wrong := {name: size for name, size in found.items() if size != self.count}:
            raise ValueError(
                f"Expected `observation` with {self.count} samples of each tensor, as `{next(iter(found))}` has, but "
                f"got {wrong}. Name the axis of the samples in `axes`, or None for a tensor without samples."
            )

    def rows(self, order: Tensor) -> dict[str, Any]:
        """Return the values of the samples at the positions `order`."""
        return {name: self._moved(name, value, order) for name, value in self.values.items()}

    def changed(self, spaces: tuple[str, ...], change: Callable[[Tensor], Tensor]) -> dict[str, Any]:
        """Return the values with a change of each of the tensors that are named in `spaces`."""
        return {name: change(value) if name in spaces else value for name, value in self.values.items()}

    def in_dtype(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return the values with tensors and copies of modules in another floating type."""
        return {name: _in(dtype, value) for name, value in self.values.items()}

    def _axis(self, name: str) -> int | None:
        return self._axes.get(name, 0)

    def _size(self, name: str, value: Any) -> int | None:
        first = value[0] if isinstance(value, list | tuple) and value else value
        axis = self._axis(name)
        if not isinstance(first, Tensor) or axis is None or not first.ndim:
            return None
        return first.shape[axis]

    def _moved(self, name: str, value: Any, order: Tensor) -> Any:
        axis = self._axis(name)
        if isinstance(value, list | tuple):
            return type(value)(self._moved(name, each, order) for each in value)
        if axis is None or not isinstance(value, Tensor) or not value.ndim:
            return value
        return value.index_select(axis, order.to(value.device))


def _rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2


def _in(dtype: torch.dtype, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_in(dtype, each) for each in value)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(dtype)
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(dtype if value.is_floating_point() else value.dtype, copy=True)
