"""NaN for results that do not exist, with a warning that says why."""

__all__ = ["UndefinedWarning", "directions", "undefined", "why_undefined"]

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.prints import rank_zero_warn

from lightning_ssl_geometry.precision import float64_device, in_float64, unit_directions


class UndefinedWarning(UserWarning):
    """A result is NaN because it is undefined for the observed data, such as the direction of a zero vector."""


def undefined(metric: Metric, reason: str, like: Tensor | None = None) -> Tensor:
    """Return NaN with the shape, dtype and device of `like`, or a float64 scalar. Warn on rank 0, once per `reason`."""
    said: set[str] = metric.__dict__.setdefault("_undefined", set())
    if reason not in said:
        said.add(reason)
        rank_zero_warn(f"{type(metric).__name__} is NaN: {reason}.", category=UndefinedWarning, stacklevel=3)
    if like is not None:
        return torch.full_like(like, torch.nan)
    return torch.full((), torch.nan, dtype=torch.float64, device=float64_device(metric.device))


def why_undefined(metric: Metric) -> list[str]:
    """Return the reasons that :func:`undefined` got for this Metric so far, in alphabetical order."""
    return sorted(metric.__dict__.get("_undefined", ()))


def directions(metric: Metric, rows: Tensor, name: str = "z") -> Tensor:
    """Scale rows (..., P) to unit length in float64, without overflow. A row of 0 stays 0.

    If all rows are 0 or a value is not finite, return NaN and let `metric` warn about `name`.
    """
    rows = in_float64(rows)
    if not rows.isfinite().all():
        return undefined(metric, f"`{name}` is not finite", like=rows)
    if not rows.any():
        return undefined(metric, f"all of `{name}` is 0, which has no direction", like=rows)
    return unit_directions(rows)
