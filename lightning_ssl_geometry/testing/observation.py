"""Observations as mappings from the arguments of `update` to values: their samples, parts and changes."""

__all__ = ["Observation", "Sampled", "named_in_update"]

import copy
import inspect
from collections.abc import Callable, Collection, Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.checks import dense
from lightning_ssl_geometry.types import SAMPLE_AXIS

Observation = Mapping[str, Any]
_AXES = {"h": 1, "z": 1, "latent": 1, "content": None, "temperature": None}  # others: 0
SPACES = ("h", "z", "h_image", "z_image")
_WEIGHTS = ("weight", "weights")


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
        self.count, self.has_samples = next(iter(found.values()), 0), bool(found)
        if wrong := {name: size for name, size in found.items() if size != self.count}:
            raise ValueError(
                f"Expected `observation` with {self.count} samples of each tensor, as `{next(iter(found))}` has, but "
                f"got {wrong}. Name the axis of the samples in `axes`, or None for a tensor without samples."
            )

    def rows(self, order: Tensor) -> dict[str, Any]:
        """Return the values of the samples at the positions `order`."""
        return {name: self._moved(name, value, order) for name, value in self.values.items()}

    @property
    def vectors(self) -> tuple[str, ...]:
        """Names of the values with one vector per sample or per view: those of SPACES, and others of one's own.

        Others are tensors or lists of tensors (N, D) or (V, N, D) whose names this package does not use, except weights
        and rows that are distributions or their logarithms.
        """
        return tuple(name for name, value in self.values.items() if self._has_vectors(name, value))

    def changed(self, names: Collection[str], change: Callable[[Tensor, int], Tensor]) -> dict[str, Any]:
        """Return the values, with change(tensor, its axis of the samples) in place of each tensor in `names`."""

        def of(name: str, value: Any) -> Any:
            if isinstance(value, list | tuple):
                return type(value)(of(name, each) for each in value)
            axis = self._axis(name)
            return value if axis is None else change(value, axis % value.ndim)

        return {name: of(name, value) if name in names else value for name, value in self.values.items()}

    def anew(self, values: Observation) -> "Sampled":
        """Return an observation of other values with the same axes."""
        return Sampled(values, self._axes)

    def in_dtype(self, dtype: torch.dtype) -> dict[str, Any]:
        """Return the values with tensors and copies of modules in another floating type."""
        return {name: _in(dtype, value) for name, value in self.values.items()}

    @property
    def has_free_width(self) -> bool:
        """Whether the width of the spaces may change, since no network and no other number depends on it."""
        others = [value for name, value in self.values.items() if name not in SPACES]
        tensors = [each for value in others for each in (value if isinstance(value, list | tuple) else [value])]
        free = all(isinstance(each, Tensor) and not each.is_floating_point() for each in tensors)
        return free and any(name in SPACES for name in self.values)

    def resized(self, rows: int, width: int) -> "Sampled":
        """Return an observation of `rows` samples, drawn again with noise, and of vectors (..., width) if that is free.

        The indices of the samples are 0 to rows - 1.
        """
        found = self.rows(torch.arange(rows) % self.count if self.count else torch.arange(0))
        for name in SPACES:
            if isinstance(vectors := found.get(name), Tensor):
                columns = torch.arange(width if self.has_free_width else vectors.shape[-1]) % vectors.shape[-1]
                noise = torch.randn(*vectors.shape[:-1], len(columns), generator=torch.Generator().manual_seed(7))
                found[name] = vectors[..., columns.to(vectors.device)] + noise.to(vectors)
        if "index" in found:
            found["index"] = torch.arange(rows, device=found["index"].device)
        return Sampled(found, self._axes)

    def _has_vectors(self, name: str, value: Any) -> bool:
        found, axis = value if isinstance(value, list | tuple) else [value], self._axis(name)
        if not found or axis is None or not all(isinstance(each, Tensor) for each in found):
            return False
        if name in SPACES:
            return True
        own = name not in SAMPLE_AXIS and name not in _WEIGHTS
        return own and all(_is_of_vectors(each) and axis % each.ndim != each.ndim - 1 for each in found)

    def _axis(self, name: str) -> int | None:
        return self._axes.get(name, 0)

    def _size(self, name: str, value: Any) -> int | None:
        axis = self._axis(name)
        found = value if isinstance(value, list | tuple) else [value]
        found = [each for each in found if isinstance(each, Tensor) and each.ndim]
        if axis is None or not found:
            return None
        if not all(-each.ndim <= axis < each.ndim for each in found):
            raise ValueError(f"Expected `{name}` with the samples on axis {axis}, but got {tuple(found[0].shape)}.")
        if len(sizes := {each.shape[axis] for each in found}) > 1:
            raise ValueError(f"Expected `{name}` with tensors of equally many samples, but got {sorted(sizes)}.")
        return sizes.pop()

    def _moved(self, name: str, value: Any, order: Tensor) -> Any:
        axis = self._axis(name)
        if isinstance(value, list | tuple):
            return type(value)(self._moved(name, each, order) for each in value)
        if axis is None or not isinstance(value, Tensor) or not value.ndim:
            return value
        return value.index_select(axis, order.to(value.device))


def named_in_update(metric: Metric, observation: Any, axes: Any) -> set[str]:
    """Return the arguments that `metric.update` needs. Raise a ValueError if it cannot get them by name."""
    for argument, given in (("observation", observation), ("axes", {} if axes is None else axes)):
        if not isinstance(given, Mapping):
            raise ValueError(f"Expected `{argument}` to be a dict, but got a {type(given).__name__}.")
    if unknown := (axes or {}).keys() - observation.keys():
        raise ValueError(f"Expected `axes` with keys of `observation`, but got {sorted(unknown)}.")
    for name, axis in (axes or {}).items():
        if axis is not None and (not isinstance(axis, int) or isinstance(axis, bool)):
            raise ValueError(f"Expected `axes` with an integer or None for {name!r}, but got {axis!r}.")
    parameters = inspect.signature(metric.update).parameters
    named = {name: each for name, each in parameters.items() if each.kind in (each.POSITIONAL_OR_KEYWORD,
                                                                             each.KEYWORD_ONLY)}  # fmt: skip
    needed = {name for name, each in named.items() if each.default is each.empty}
    if not needed and not named.keys() & observation.keys():
        raise ValueError(
            f"Expected `observation` with an argument of `{type(metric).__name__}.update` "
            f"{inspect.signature(metric.update)}, which gets its values by name, but got {sorted(observation)}."
        )
    for name in (name for name in named if name in observation):
        value = observation[name]
        for each in value if isinstance(value, list | tuple) else [value]:
            if type(each).__module__ == "numpy":
                raise ValueError(f"Expected `{name}` as a tensor, but got a numpy {type(each).__name__}.")
            if isinstance(each, Tensor):
                dense(**{name: each})
    return needed


def _rows(value: Any) -> bool:
    return isinstance(value, Tensor) and value.ndim == 2


def _is_of_vectors(value: Tensor) -> bool:
    if not (value.is_floating_point() and value.ndim in (2, 3) and value.shape[-1] > 1):
        return False
    sums = (value if bool((value >= 0).all()) else value.exp()).sum(-1)
    return not torch.allclose(sums, torch.ones_like(sums), atol=1e-3)  # no distributions


def _in(dtype: torch.dtype, value: Any) -> Any:
    if isinstance(value, list | tuple):
        return type(value)(_in(dtype, each) for each in value)
    if isinstance(value, nn.Module):
        return copy.deepcopy(value).to(dtype)
    if not isinstance(value, Tensor):
        return value
    return value.detach().to(dtype if value.is_floating_point() else value.dtype, copy=True)
