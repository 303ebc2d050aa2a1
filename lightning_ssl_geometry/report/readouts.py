"""Vectors at every readout of training, which an enlarged figure shows: thin lines from early to late."""

__all__ = ["MOST_READOUTS", "at_places", "in_order_of_time", "readouts_in_words"]

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightning_ssl_geometry.plots import Curve, ramp

MOST_READOUTS = 16  # lines of a figure; of more readouts, so many are drawn at even distances


def in_order_of_time(readouts: Sequence[Curve], tips: int) -> list[Curve]:
    """Color the lines of readouts from early to late. Each has no label and at most `tips` tips."""
    return [replace(line, label="", color=color, dash="solid", spread=None, tips=at_places(line.tips, tips))
            for line, color in zip(readouts, ramp(len(readouts)), strict=False)]  # fmt: skip


def readouts_in_words(count: int) -> str:
    """Say how many of `count` readouts an enlarged figure draws.

    >>> readouts_in_words(8), readouts_in_words(100)
    ('all 8 readouts', '16 of 100 readouts')
    """
    return f"all {count} readouts" if count <= MOST_READOUTS else f"{MOST_READOUTS} of {count} readouts"


def at_places(tips: Sequence[str], most: int) -> list[str]:
    """Keep at most `most` of the tips, at even distances. The others become "", which is no tip.

    >>> at_places(["a", "b", "c", "d", "e"], 3)
    ['a', '', 'c', '', 'e']
    """
    kept = set(np.linspace(0, len(tips) - 1, min(most, len(tips))).astype(int).tolist())
    return [tip if place in kept else "" for place, tip in enumerate(tips)]
