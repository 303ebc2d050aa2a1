"""Vectors at every readout of training, which an enlarged figure shows: thin lines from early to late."""

__all__ = ["MOST_READOUTS", "in_order_of_time", "places", "readouts_in_words"]

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightning_ssl_geometry.plots import Curve, ramp

MOST_READOUTS = 16  # lines of a figure; of more readouts, so many are drawn at even distances


def in_order_of_time(readouts: Sequence[Curve], tips: int) -> list[Curve]:
    """Color the lines of readouts from early to late. Each has no label and at most `tips` tips."""
    return [replace(line, label="", color=color, dash="solid", spread=None, tips=_thinned(line.tips, tips))
            for line, color in zip(readouts, ramp(len(readouts)), strict=False)]  # fmt: skip


def readouts_in_words(count: int) -> str:
    """Say how many of `count` readouts an enlarged figure draws.

    >>> readouts_in_words(8), readouts_in_words(100)
    ('all 8 readouts', '16 of 100 readouts')
    """
    return f"all {count} readouts" if count <= MOST_READOUTS else f"{MOST_READOUTS} of {count} readouts"


def places(count: int, most: int) -> set[int]:
    """Return at most `most` places of `count` at even distances, including the first and the last.

    >>> sorted(places(5, 3))
    [0, 2, 4]
    """
    return set(np.linspace(0, count - 1, min(most, count)).astype(int).tolist())


def _thinned(tips: Sequence[str], most: int) -> list[str]:
    kept = places(len(tips), most)
    return [tip if place in kept else "" for place, tip in enumerate(tips)]  # "" is no tip
