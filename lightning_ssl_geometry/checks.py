"""Checks of arguments: one wording for each kind, "Expected `name` ..., but got ...."."""

__all__ = ["at_least", "finite", "floating", "inside", "integer", "one_of", "positive", "shaped", "switch"]

import math
from collections.abc import Mapping, Sequence

from torch import Tensor


def at_least(least: float, **arguments: float) -> None:
    """Check that numbers are not below a bound.

    Raises:
        ValueError: If one is, or is NaN.

    >>> at_least(1, probe_size=1024)
    """
    for name, value in arguments.items():
        if not value >= least:
            raise ValueError(f"Expected `{name}` >= {least}, but got {value}.")


def integer(least: int, **arguments: object) -> None:
    """Check that arguments are whole numbers, not below a bound.

    Raises:
        ValueError: If one is below it, or is no int.

    >>> integer(1, num_views=2)
    """
    for name, value in arguments.items():
        if not isinstance(value, int) or isinstance(value, bool) or value < least:
            raise ValueError(f"Expected `{name}` to be an integer >= {least}, but got {value!r}.")


def positive(**arguments: float) -> None:
    """Check that numbers are above 0.

    Raises:
        ValueError: If one is not, or is NaN.

    >>> positive(temperature=0.5)
    """
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(f"Expected `{name}` > 0, but got {value}.")


def inside(interval: str, **arguments: float) -> None:
    """Check that numbers are in an interval.

    Args:
        interval: Such as "[0, 1)": a square bracket includes the bound, a round one excludes it; "(0, inf)" are the
            finite numbers above 0.
        arguments: The numbers.

    Raises:
        ValueError: If one is outside, or is NaN.

    >>> inside("(0, 1]", share=1.0)
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
    """Check that arguments are among choices.

    Raises:
        ValueError: If one is not.

    >>> one_of(("relative", "absolute"), mode="relative")
    """
    for name, value in arguments.items():
        if value not in choices:
            raise ValueError(f"Expected `{name}` to be one of {tuple(choices)}, but got {value!r}.")


def shaped(axes: str, sizes: Mapping[str, int] | None = None, **arguments: Tensor) -> None:
    """Check the shapes of tensors.

    Args:
        axes: Names of the axes, such as "V, N, D"; a number stands for itself. An axis has one size in all tensors.
        sizes: Axis -> its size, where it is known before.
        arguments: The tensors.

    Raises:
        ValueError: If one has another number of axes, or an axis of another size.

    >>> import torch
    >>> shaped("N, D", h=torch.ones(2, 3), z=torch.ones(2, 3))
    >>> shaped("N,", {"N": 3}, label=torch.ones(2))
    Traceback (most recent call last):
    ...
    ValueError: Expected `label` of shape (N,), N = 3, but got (2,).
    """
    names = [name.strip() for name in axes.split(",") if name.strip()]
    known = dict(sizes or {}) | {name: int(name) for name in names if name.isdigit()}
    for argument, value in arguments.items():
        fits = value.ndim == len(names)
        if not fits or any(known.get(name, size) != size for name, size in zip(names, value.shape, strict=True)):
            said = "".join(f", {name} = {known[name]}" for name in names if name in known and not name.isdigit())
            raise ValueError(f"Expected `{argument}` of shape ({axes}){said}, but got {tuple(value.shape)}.")
        known |= dict(zip(names, value.shape, strict=True))


def floating(**arguments: Tensor) -> None:
    """Check that tensors hold floating point numbers.

    Raises:
        ValueError: If one does not.

    >>> import torch
    >>> floating(h=torch.ones(2, 3))
    """
    for name, value in arguments.items():
        if not value.is_floating_point():
            raise ValueError(f"Expected `{name}` of a float dtype, but got {value.dtype}.")


def finite(**arguments: Tensor) -> None:
    """Check that tensors hold no NaN and no infinite number.

    Raises:
        ValueError: If one does.

    >>> import torch
    >>> finite(h=torch.ones(2, 3))
    """
    for name, value in arguments.items():
        if bad := int((~value.isfinite()).sum()):
            raise ValueError(f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not.")


def switch(**arguments: object) -> None:
    """Check that arguments are bools: the string "false" would count as true.

    Raises:
        ValueError: If one is not.

    >>> switch(gather=True)
    """
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")
