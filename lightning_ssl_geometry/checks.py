"""Functions such as `positive(tau=tau)`, which raise a ValueError if an argument is invalid."""

__all__ = [
    "at_least",
    "embeddings",
    "finite",
    "floating",
    "inside",
    "integer",
    "integers",
    "named",
    "one_of",
    "positive",
    "rows",
    "shaped",
    "switch",
]

import math
from collections.abc import Mapping, Sequence
from numbers import Integral

import torch
from torch import Tensor


def at_least(least: float, **arguments: float) -> None:
    """Raise a ValueError if a number is smaller than `least` or NaN."""
    for name, value in arguments.items():
        if not value >= least:
            raise ValueError(f"Expected `{name}` >= {least}, but got {value}.")


def integer(least: int, **arguments: object) -> None:
    """Raise a ValueError if an argument is below `least`, or no integer of Python or numpy. A bool is no integer."""
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"Expected `{name}` to be an integer >= {least}, but got {value!r}.")


def named(kind: type, **arguments: object) -> None:
    """Raise a ValueError if an argument is not a dict whose values are instances of `kind`."""
    for argument, held in arguments.items():
        if not isinstance(held, Mapping):
            raise ValueError(
                f"Expected `{argument}` to be a dict of names and {kind.__name__}s, but got a {type(held).__name__}."
            )
        for name, value in held.items():
            if not isinstance(value, kind):
                got = f"of type {type(value).__name__}"
                if isinstance(value, type):
                    got = f"the class {value.__name__}"
                    got += f": say {value.__name__}()" if issubclass(value, kind) else ""
                raise ValueError(f"Expected `{argument}` to hold {kind.__name__}s, but {name!r} is {got}.")


def positive(**arguments: float) -> None:
    """Raise a ValueError if a number is NaN or not above 0."""
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(f"Expected `{name}` > 0, but got {value}.")


def inside(interval: str, **arguments: float) -> None:
    """Raise a ValueError if a number is NaN or outside of an interval.

    Args:
        interval: The interval, such as "[0, 1)". A square bracket includes the bound, a round bracket excludes it.
        arguments: The numbers.
    """
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    if high == math.inf:
        said = f"{'>=' if interval[0] == '[' else '>'} {interval[1:-1].split(',')[0]} and finite"
    else:
        said = f"in {interval}"
    for name, value in arguments.items():
        above = value >= low if interval[0] == "[" else value > low
        below = value <= high if interval[-1] == "]" else value < high
        if not (above and below):
            raise ValueError(f"Expected `{name}` {said}, but got {value}.")


def one_of(choices: Sequence[object], **arguments: object) -> None:
    """Raise a ValueError if an argument is not among `choices`."""
    for name, value in arguments.items():
        if value not in choices:
            raise ValueError(f"Expected `{name}` to be one of {tuple(choices)}, but got {value!r}.")


def shaped(axes: str, sizes: Mapping[str, int] | None = None, **arguments: Tensor) -> None:
    """Raise a ValueError if a tensor has the wrong shape.

    Args:
        axes: Names of the axes, such as "V, N, D". A number in place of a name is a required size. Axes of the same
            name must have the same size.
        sizes: Maps names of axes to their required sizes. None: no sizes are required.
        arguments: The tensors.

    >>> import torch
    >>> shaped("N,", {"N": 3}, label=torch.ones(2))
    Traceback (most recent call last):
    ...
    ValueError: Expected `label` of shape (N,), N = 3, but got (2,).
    """
    names = [name.strip() for name in axes.split(",") if name.strip()]
    known = dict(sizes or {}) | {name: int(name) for name in names if name.isdigit()}
    for argument, value in arguments.items():
        found = dict(zip(names, value.shape, strict=False)) | known
        if tuple(value.shape) != tuple(found.get(name) for name in names):
            sizes_said = {name: known[name] for name in names if name in known and not name.isdigit()}
            said = "".join(f", {name} = {size}" for name, size in sizes_said.items())
            raise ValueError(f"Expected `{argument}` of shape ({axes}){said}, but got {tuple(value.shape)}.")
        known = found


def rows(least: int, **arguments: Tensor) -> None:
    """Raise a ValueError if the first axis of a tensor has fewer than `least` entries."""
    noun = "row" if least == 1 else "rows"
    for name, value in arguments.items():
        if len(value) < least:
            raise ValueError(f"Expected `{name}` of at least {least} {noun}, but got {len(value)}.")


def floating(**arguments: Tensor) -> None:
    """Raise a ValueError if a tensor does not have a floating point dtype."""
    for name, value in arguments.items():
        if not value.is_floating_point():
            raise ValueError(f"Expected `{name}` of a float dtype, but got {value.dtype}.")


def integers(**arguments: Tensor) -> None:
    """Raise a ValueError if a tensor does not have an integer dtype. Bool does not count."""
    for name, value in arguments.items():
        if value.is_floating_point() or value.is_complex() or value.dtype == torch.bool:
            raise ValueError(f"Expected `{name}` of an integer dtype, but got {value.dtype}.")


def embeddings(*axes: str, **arguments: Tensor) -> None:
    """Raise an error if an argument is no tensor of floats with one of the given numbers of axes.

    This is a TypeError for a numpy array or another type, and a ValueError for a wrong dtype or number of axes.

    Args:
        axes: Names of the axes, such as "N, D". In "..., D", the dots stand for any number of axes.
        arguments: The tensors.
    """
    for name, value in arguments.items():
        if not isinstance(value, Tensor):
            kind = type(value).__name__
            hint = f" Use `torch.from_numpy({name})`." if kind == "ndarray" else ""
            raise TypeError(f"Expected `{name}` to be a torch.Tensor, but got a {kind}.{hint}")
        if not value.is_floating_point():
            raise ValueError(f"Expected `{name}` of a float dtype, but got {value.dtype}. Use `{name}.float()`.")
        if not any(value.ndim == n or (more and value.ndim > n) for n, more in map(_count, axes)):
            said = " or ".join(f"({each})" for each in axes)
            raise ValueError(f"Expected `{name}` of shape {said}, but got {tuple(value.shape)}.")


def _count(axes: str) -> tuple[int, bool]:
    names = axes.split(", ")
    return len(names) - ("..." in names), "..." in names


def finite(**arguments: Tensor) -> None:
    """Raise a ValueError if a tensor holds NaN or an infinite number."""
    for name, value in arguments.items():
        if bad := int((~value.isfinite()).sum()):
            raise ValueError(f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not.")


def switch(**arguments: object) -> None:
    """Raise a ValueError if an argument is not a bool. The string "false" is not a bool."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")
