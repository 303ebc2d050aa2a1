"""What the arguments of InfoNCE may be: every ValueError of the loss, for the function and for the module."""

__all__ = [
    "check_length",
    "check_settings",
    "check_switch",
    "check_temperature",
    "check_views",
    "temperature_range",
    "without_negatives",
]

import math
from collections.abc import Sequence

import torch
from torch import Tensor


def check_settings(
    temperature: float | Sequence[float] | Tensor,
    *,
    normalize: bool,
    positive_in_denominator: bool,
    symmetric: bool,
    negatives: str,
    include_self: bool,
    joint: bool,
    denominator: str,
    similarity: str,
    p: float,
    power: bool,
    eps: float,
    block_size: int | None,
) -> None:
    """Raise a ValueError that names the first argument that is out of its range or contradicts another."""
    check_temperature(temperature)
    check_switch("normalize", normalize)
    check_switch("positive_in_denominator", positive_in_denominator)
    check_switch("symmetric", symmetric)
    check_switch("include_self", include_self)
    check_switch("joint", joint)
    check_switch("power", power)
    _check_choice("negatives", negatives, ("both", "same", "other"))
    _check_choice("denominator", denominator, ("sum", "mean"))
    _check_choice("similarity", similarity, ("dot", "distance"))
    if joint and not symmetric:
        raise ValueError("Expected `symmetric` = True where `joint` sums over both anchors, but got False.")
    if not 1 <= p < math.inf:
        raise ValueError(f"Expected `p` with 1 <= p < inf, but got {p}.")
    if similarity == "dot" and p != 2:
        raise ValueError(f"Expected `p` = 2 where `similarity` is 'dot', which has no norm, but got {p}.")
    if similarity == "dot" and not power:
        raise ValueError("Expected `power` = True where `similarity` is 'dot', which has no norm, but got False.")
    if not eps >= 0:
        raise ValueError(f"Expected `eps` >= 0, but got {eps}.")
    if block_size is not None and block_size < 1:
        raise ValueError(f"Expected `block_size` >= 1 or None, but got {block_size}.")


def check_switch(name: str, value: bool) -> None:
    """Raise a ValueError unless a switch is a bool."""
    if not isinstance(value, bool):  # the string "false" is true
        raise ValueError(f"Expected `{name}` to be True or False, but got {value!r}.")


def check_temperature(temperature: float | Sequence[float] | Tensor) -> None:
    """Raise a ValueError unless every temperature is positive and finite.

    >>> check_temperature(-1.0)
    Traceback (most recent call last):
    ValueError: Expected `temperature` > 0 and finite, but got -1.0.
    """
    smallest, largest = temperature_range(temperature)
    if not 0 < smallest <= largest < math.inf:
        worst = largest if smallest > 0 else smallest
        raise ValueError(f"Expected `temperature` > 0 and finite, but got {worst}.")


def temperature_range(temperature: float | Sequence[float] | Tensor) -> tuple[float, float]:
    """The smallest and the largest of one temperature or several; waits for the device where they are a tensor."""
    if isinstance(temperature, int | float):
        return temperature, temperature
    tau = torch.as_tensor(temperature).detach()
    if tau.ndim > 1 or tau.numel() == 0:
        raise ValueError(f"Expected `temperature` to be a number or P numbers, but got the shape {tuple(tau.shape)}.")
    smallest, largest = torch.stack(tau.aminmax()).tolist()
    return smallest, largest


def check_views(z1: Tensor, z2: Tensor, least: int) -> None:
    """Raise a ValueError unless both views are (N, P), of a float dtype, with N >= `least`."""
    if z1.ndim != 2:
        raise ValueError(f"Expected `z1` of shape (N, P), but got {tuple(z1.shape)}.")
    if z2.shape != z1.shape:
        raise ValueError(f"Expected `z2` of the same shape as `z1`, {tuple(z1.shape)}, but got {tuple(z2.shape)}.")
    for name, z in (("z1", z1), ("z2", z2)):
        if not z.is_floating_point():
            raise ValueError(f"Expected `{name}` of a float dtype, but got {z.dtype}.")
    if len(z1) < least:
        reason = " (a single one has no negatives, and the denominator is empty)" if len(z1) == 1 else ""
        raise ValueError(f"Expected `z1` and `z2` with N >= {least} samples, but got {len(z1)}{reason}.")


def without_negatives(positive: Tensor) -> Tensor:
    """Compute InfoNCE of one sample whose positive is all of the denominator: log(1) = 0, with gradient 0.

    Args:
        positive: (1,), the logit of the pair, with gradient; NaN or infinite, so is the loss NaN.

    >>> without_negatives(torch.tensor([-3.0]))
    tensor(0.)
    """
    return 0 * positive.mean() + 0.0  # not -0


def check_length(temperature: float | Sequence[float] | Tensor, dimensions: int) -> None:
    """Raise a ValueError unless the temperature is one number or one per dimension."""
    shape = torch.as_tensor(temperature).shape
    if shape not in ((), (dimensions,)):
        raise ValueError(f"Expected `temperature` with P = {dimensions} values, one per dimension, but got {shape[0]}.")


def _check_choice(name: str, value: str, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ValueError(f"Expected `{name}` to be one of {', '.join(map(repr, choices))}, but got {value!r}.")
