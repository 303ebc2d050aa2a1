"""Moment: when a step of a training is taken."""

__all__ = ["Moment"]

from typing import NamedTuple


class Moment(NamedTuple):
    """When a step of a training is taken.

    Attributes:
        epoch: Number of the epoch, from 0.
        step: Number of optimizer steps done.
    """

    epoch: int
    step: int

    def __str__(self) -> str:
        return f"step {self.step} (epoch {self.epoch})"
