"""Functions such as `positive(tau=tau)`, which raise a ValueError if an argument is invalid."""

__all__ = [
    "at_least",
    "class_numbers",
    "counts",
    "dense",
    "embeddings",
    "finite",
    "floating",
    "indexed",
    "inside",
    "integer",
    "integers",
    "listed",
    "named",
    "one_of",
    "pathlike",
    "positive",
    "rows",
    "scalars",
    "seed",
    "shaped",
    "switch",
    "whole",
]

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from numbers import Integral
from operator import ge, gt, le, lt
from os import PathLike
from typing import Any

import torch
from torch import Tensor


def at_least(least: float, **arguments: float) -> None:
    """Raise a ValueError if a number is smaller than `least` or NaN."""
    for name, value in arguments.items():
        if isinstance(value, bool) or not _holds(partial(ge, value, least)):
            raise ValueError(f"Expected `{name}` >= {least}, but got {_number(value)}.")


def integer(least: int, **arguments: object) -> None:
    """Raise a ValueError if an argument is below `least`, or no integer of Python or numpy. A bool is no integer."""
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or value < least:
            raise ValueError(f"Expected `{name}` to be an integer >= {least}, but got {value!r}.")


def whole(least: int, **arguments: float) -> None:
    """Raise a ValueError if a number is below `least`, or no integer of Python or numpy. A bool is no integer."""
    at_least(least, **arguments)
    integer(least, **arguments)


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
        if isinstance(value, bool) or not _holds(partial(gt, value, 0)):
            raise ValueError(f"Expected `{name}` > 0, but got {_number(value)}.")


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
        above = partial(ge if interval[0] == "[" else gt, value, low)
        below = partial(le if interval[-1] == "]" else lt, value, high)
        if isinstance(value, bool) or not (_holds(above) and _holds(below)):
            raise ValueError(f"Expected `{name}` {said}, but got {_number(value)}.")


def ascending(least: int, **arguments: object) -> None:
    """Raise a ValueError if an argument is no list of at least `least` positive, finite numbers in ascending order."""
    for name, value in arguments.items():
        listed(**{name: value})
        held = [float(each) if _is_real(each) else math.nan for each in value]  # type: ignore[attr-defined]
        if len(held) < least or not all(0 < a < b for a, b in itertools.pairwise([*held, math.inf])):
            raise ValueError(f"Expected `{name}` > 0, at least {least}, ascending, but got {value}.")


def _holds(compared: Callable[[], object]) -> bool:
    try:
        return bool(compared())
    except TypeError:  # a text, None, a list
        return False


def _number(value: object) -> str:
    return f"{value!r}, which is no number" if isinstance(value, str | bytes | bool) else str(value)


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


def scalars(**arguments: object) -> None:
    """Raise a ValueError if an argument is not a dict of names and real numbers. A tensor of one number is a number."""
    for argument, held in arguments.items():
        if not isinstance(held, Mapping):
            raise ValueError(f"Expected `{argument}` to be a dict of names and numbers, but got {_said(held)}.")
        for name, value in held.items():
            if not isinstance(name, str):
                raise ValueError(f"Expected `{argument}` to have texts as names, but got {name!r}.")
            if not _is_real(value):
                remedy = "Leave it out." if value is None else "Give one number, such as a mean."
                raise ValueError(
                    f"Expected `{argument}` to hold real numbers, but {name!r} is {_said(value)}. {remedy}"
                )


def _is_real(value: Any) -> bool:
    if isinstance(value, str | bytes | complex) or "complex" in str(getattr(value, "dtype", "")):
        return False
    try:
        float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return False
    return True


def _said(value: Any) -> str:
    if isinstance(value, Tensor):
        return f"a tensor of shape {tuple(value.shape)}, {value.dtype}"
    said = repr(value)
    return said if len(said) <= 40 else f"a {type(value).__name__}"


def counts(number: int, **arguments: object) -> None:
    """Raise a ValueError if an argument is no list of `number` positive integers."""
    for name, value in arguments.items():
        listed(**{name: value})
        held = list(value)  # type: ignore[call-overload]
        if len(held) != number or not all(_is_count(each) for each in held):
            raise ValueError(f"Expected `{name}` to be {number} positive integers, but got {value!r}.")


def _is_count(value: object) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool) and int(value) >= 1


def seed(**arguments: object) -> None:
    """Raise a ValueError if an argument is not an integer that fits into 64 bits with a sign."""
    for name, value in arguments.items():
        if not isinstance(value, Integral) or isinstance(value, bool) or not -(2**63) <= int(value) < 2**63:
            raise ValueError(f"Expected `{name}` to be an integer between -2**63 and 2**63 - 1, but got {value!r}.")


def listed(**arguments: object) -> None:
    """Raise a ValueError if an argument has no order of its own, or is a single text."""
    for name, value in arguments.items():
        sequence = hasattr(value, "__len__") and hasattr(value, "__getitem__")
        if not sequence or isinstance(value, str | bytes | Mapping):
            raise ValueError(f"Expected `{name}` to be a list, but got {_said(value)}.")


def pathlike(**arguments: object) -> None:
    """Raise a ValueError if an argument is no path: no text and no :class:`pathlib.Path`."""
    for name, value in arguments.items():
        if not isinstance(value, str | PathLike):
            raise ValueError(f"Expected `{name}` to be a path, but got {_said(value)}.")


def dense(**arguments: Tensor) -> None:
    """Raise a ValueError if a tensor is sparse, quantized or nested, or has no values."""
    for name, value in arguments.items():
        said = remedy = ""
        if value.is_nested:
            said, remedy = "a nested one", "Make all rows equally long."
        elif value.is_meta:
            said, remedy = 'one on the device "meta", which has no values', "Load its values first."
        elif value.is_quantized:
            said, remedy = "a quantized one", f"Use `{name}.dequantize()`."
        elif value.layout != torch.strided:
            said, remedy = f"one of layout {value.layout}", f"Use `{name}.to_dense()`."
        if said:
            raise ValueError(f"Expected `{name}` to be a dense tensor, but got {said}. {remedy}")


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
    """Raise an error if an argument is no tensor of floats with one of the given numbers of axes, and with columns.

    This is a TypeError for a numpy array or another type. It is a ValueError for a wrong dtype, a wrong number of axes,
    or a last axis without entries.

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
        if value.ndim > 1 and not value.shape[-1]:
            raise ValueError(f"Expected `{name}` of at least 1 column, but got shape {tuple(value.shape)}.")


def _count(axes: str) -> tuple[int, bool]:
    names = axes.split(", ")
    return len(names) - ("..." in names), "..." in names


def indexed(index: Tensor, **columns: Tensor) -> None:
    """Raise a ValueError if `index` does not have the shape (N,), or a column does not have N rows."""
    for name, column in columns.items():
        if index.ndim != 1 or column.shape[:1] != index.shape:
            shapes = f"{tuple(column.shape)}, {tuple(index.shape)}"
            raise ValueError(f"Expected `{name}` with N rows and `index` of shape (N,), but got {shapes}.")


def finite(**arguments: Tensor) -> None:
    """Raise a ValueError if a tensor holds NaN or an infinite number."""
    for name, value in arguments.items():
        if bad := int((~value.isfinite()).sum()):
            raise ValueError(f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not.")


def class_numbers(name: str, label: Any) -> Tensor:
    """Return `label` if it is an integer tensor (N,), else raise a ValueError. `name` is its name in the message."""
    expected = f"Expected `{name}` as class numbers, an integer tensor (N,), but got"
    if not isinstance(label, Tensor):
        what = f"a {type(label).__name__}"
        if isinstance(label, Sequence) and len(label):
            what += f" of {type(label[0]).__name__}"
        raise ValueError(f"{expected} {what}. Number the classes in the data set.")
    if label.ndim != 1:
        fix = "Of one-hot labels, hand over `label.argmax(1)`; several labels per sample are not supported."
        raise ValueError(f"{expected} shape {tuple(label.shape)}. {fix}")
    if label.is_floating_point() or label.is_complex():
        raise ValueError(f"{expected} {label.dtype}. Hand over `label.long()` if these are classes.")
    return label


def switch(**arguments: object) -> None:
    """Raise a ValueError if an argument is not a bool. The string "false" is not a bool."""
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")
