"""Checks of InfoNCE's temperatures and views."""

__all__ = ["check_views", "temperature_range", "without_negatives"]

import math
from collections.abc import Sequence

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import floating, shaped


def temperature_range(
    temperature: float | Sequence[float] | Tensor, dimensions: int | None = None
) -> tuple[float, float]:
    """Return the smallest and the largest temperature; the call waits for the GPU if they are on it.

    Raises a ValueError unless `temperature` is one number or `dimensions` numbers, all > 0 and finite.
    """
    if isinstance(temperature, str | bool):
        raise ValueError(f"Expected `temperature` to be a number or P numbers, but got {temperature!r}.")
    if isinstance(temperature, int | float):
        smallest = largest = temperature
    else:
        try:
            tau = torch.as_tensor(temperature).detach()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ValueError(f"Expected `temperature` to be a number or P numbers, but got {temperature!r}.") from error
        if tau.ndim > 1 or tau.numel() == 0:
            raise ValueError(f"Expected `temperature` to be a number or P numbers, but got shape {tuple(tau.shape)}.")
        smallest, largest = torch.stack(tau.aminmax()).tolist()
        if tau.ndim == 1 and dimensions not in (None, len(tau)):
            expected = f"P = {dimensions} values, one per dimension"
            raise ValueError(f"Expected `temperature` with {expected}, but got {len(tau)}.")
    if not 0 < smallest <= largest < math.inf:
        worst = largest if smallest > 0 else smallest
        raise ValueError(f"Expected `temperature` > 0 and finite, but got {worst}.")
    return smallest, largest


def check_views(z1: Tensor, z2: Tensor, least: int) -> None:
    """Raise a ValueError unless both views have float dtypes and the same shape (N, P) with N >= `least`."""
    shaped("N, P", z1=z1, z2=z2)
    floating(z1=z1, z2=z2)
    if len(z1) < least:
        reason = " (a single sample has no negatives, so the denominator is empty)" if len(z1) == 1 else ""
        raise ValueError(f"Expected `z1` and `z2` with N >= {least} samples, but got {len(z1)}{reason}.")


def without_negatives(positive: Tensor) -> Tensor:
    """Return 0 with gradient 0, the loss of a sample without negatives; NaN if its logit `positive` is not finite."""
    return 0 * positive + 0.0  # not -0
