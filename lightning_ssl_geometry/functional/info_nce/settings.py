"""What temperatures and views of InfoNCE may be, for the functions and for the modules."""

__all__ = [
    "check_length",
    "check_temperature",
    "check_views",
    "temperature_range",
    "without_negatives",
]

import math
from collections.abc import Sequence

import torch
from torch import Tensor


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
