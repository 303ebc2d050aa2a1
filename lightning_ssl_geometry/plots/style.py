"""Colours, dashes and sizes that all figures share."""

__all__ = ["BOTTOM", "COLORS", "DASHES", "HEIGHT", "LEFT", "RAMP", "RIGHT", "TALL", "TEXT", "TOP", "WIDTH", "Dash",
           "Floats", "ramp"]  # fmt: skip

from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Dash = Literal["solid", "dashed", "dashdot", "dotted"]

COLORS = {
    "ink": "#24292f",
    "muted": "#5b646e",
    "grid": "#e4e7eb",
    "blue": "#0b63b0",
    "orange": "#b3500a",
    "green": "#1a7658",
    "violet": "#7a3fb5",
    "red": "#b42335",
}
RAMP = ("#8d939e", "#8881a2", "#836fa7", "#7e5cac", "#7a4ab0", "#7538b4", "#7026b9")  # early to late
DASHES: dict[str, Any] = {"solid": "-", "dashed": (0, (5, 2)), "dashdot": (0, (5, 2, 1, 2)), "dotted": (0, (1, 1.8))}

WIDTH, HEIGHT, TEXT = 380.0, 236.0, 10.5
LEFT, RIGHT, TOP, BOTTOM = 46.0, 104.0, 26.0, 38.0
TALL = HEIGHT - TOP - BOTTOM  # of the axes


def ramp(count: int) -> list[str]:
    """Return `count` colours for times of training, from early to late."""
    return [RAMP[round(position)] for position in np.linspace(0, len(RAMP) - 1, count)] if count > 1 else [RAMP[-1]]
