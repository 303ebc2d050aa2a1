"""Checks of arguments: one wording for each kind, "Expected `name` ..., but got ...."."""

__all__ = ["at_least", "one_of", "positive", "shaped", "switch"]

from collections.abc import Sequence

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


def positive(**arguments: float) -> None:
    """Check that numbers are above 0.

    Raises:
        ValueError: If one is not, or is NaN.

    >>> positive(temperature=0.5)
    """
    for name, value in arguments.items():
        if not value > 0:
            raise ValueError(f"Expected `{name}` > 0, but got {value}.")


def one_of(choices: Sequence[object], **arguments: object) -> None:
    """Check that arguments are among choices.

    Raises:
        ValueError: If one is not.

    >>> one_of(("relative", "absolute"), mode="relative")
    """
    for name, value in arguments.items():
        if value not in choices:
            raise ValueError(f"Expected `{name}` to be one of {tuple(choices)}, but got {value!r}.")


def shaped(axes: str, **arguments: Tensor) -> None:
    """Check how many axes tensors have.

    Args:
        axes: Their names, such as "V, N, D".
        arguments: The tensors.

    Raises:
        ValueError: If one has another number of axes.

    >>> import torch
    >>> shaped("N, D", h=torch.ones(2, 3))
    """
    for name, value in arguments.items():
        if value.ndim != axes.count(",") + 1:
            raise ValueError(f"Expected `{name}` of shape ({axes}), but got {tuple(value.shape)}.")


def switch(**arguments: object) -> None:
    """Check that arguments are bools: the string "false" would count as true.

    Raises:
        ValueError: If one is not.

    >>> switch(gather=True)
    """
    for name, value in arguments.items():
        if not isinstance(value, bool):
            raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")
