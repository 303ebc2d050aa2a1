"""Values that cannot be had: NaN, and the reason said once, never a plausible number."""

__all__ = ["UndefinedWarning", "directions", "undefined", "unit_directions"]

import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.prints import rank_zero_warn


class UndefinedWarning(UserWarning):
    """A value of a diagnostic is NaN since what it observed has none, as a cloud that is one point has no dimension."""


def undefined(metric: Metric, reason: str, like: Tensor | None = None) -> Tensor:
    """Say why a Metric has no value, once for each reason in its life and on the first rank, and return NaN.

    Args:
        metric: Whose value it is.
        reason: What was observed, as the end of a sentence.
        like: Of the shape of the value; None for a scalar.

    Returns:
        NaN, float64 on the device of the Metric, or of the shape, dtype and device of `like`.
    """
    said: set[str] = metric.__dict__.setdefault("_undefined", set())
    if reason not in said:
        said.add(reason)
        rank_zero_warn(f"{type(metric).__name__} is NaN: {reason}.", category=UndefinedWarning, stacklevel=3)
    if like is not None:
        return torch.full_like(like, torch.nan)
    return torch.full((), torch.nan, dtype=torch.float64, device=metric.device)


def directions(metric: Metric, rows: Tensor, name: str = "z") -> Tensor:
    """Scale the rows of an observation to unit length, whatever their scale: no square overflows or vanishes.

    Args:
        metric: Whose observation it is.
        rows: (..., P), any float dtype.
        name: What it observes them as.

    Returns:
        float64 of that shape. A row of 0 stays 0; all are NaN, and the reason is said, where all rows are 0 or a value
        is not finite.
    """
    rows = rows.double()
    if not rows.isfinite().all():
        return undefined(metric, f"`{name}` is not finite", like=rows)
    if not rows.any():
        return undefined(metric, f"all of `{name}` is 0, which has no direction", like=rows)
    return unit_directions(rows)


def unit_directions(rows: Tensor) -> Tensor:
    """Scale rows (..., P) to unit length in float64, through their largest value; a row of 0 stays 0."""
    rows = rows.double()
    largest = rows.abs().amax(dim=-1, keepdim=True)
    rows = rows / largest.where(largest != 0, 1)
    length = torch.linalg.vector_norm(rows, dim=-1, keepdim=True)
    return rows / length.where(length != 0, 1)
