"""Paths through the plane."""

__all__ = ["trajectory"]

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots.canvas import (
    Caption,
    arrange,
    canvas,
    drawable,
    finite_values,
    padded,
    put_tips,
    spaced,
    write,
    x_axis,
    y_axis,
)
from lightning_ssl_geometry.plots.line import Curve
from lightning_ssl_geometry.plots.style import COLORS, Floats, ramp

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_MOMENTS = 120


def trajectory(
    x: Floats, y: Floats, *, xlabel: str, ylabel: str, ends: tuple[str, str], tips: Sequence[str] = ()
) -> "Figure":
    """Draw a path through R points with the coordinates x and y, each (R,), coloured from early to late.

    At most 120 of the points are drawn. `ends` are the names of the first and the last point. `tips` are R tooltip
    texts, or none. A ValueError is raised if no point is finite, or lengths differ.
    """
    from matplotlib.collections import LineCollection

    Curve("", x, y, tips=tips)  # checks the lengths
    rows = spaced(np.flatnonzero(drawable(x) & drawable(y)), _MOST_MOMENTS)
    x, y = finite_values([x[rows]], "points"), y[rows]
    figure, (axes,) = canvas()
    y_axis(axes, y, ylabel, floor=None, log=False, pad=0.14)
    x_axis(axes, xlabel, padded(x, 0.14))
    colors = ramp(len(x))
    steps = [*pairwise(np.column_stack([x, y]))]
    axes.add_collection(LineCollection(steps, colors=colors[1:], linewidths=2, capstyle="projecting"), autolim=False)
    for number in range(1, len(x) - 1) if len(x) <= 40 else ():
        axes.plot(x[number], y[number], "o", markersize=4, color=colors[number])
    if len(x) > 1:
        axes.plot(x[0], y[0], "o", markersize=7, color=colors[0], markerfacecolor="white", markeredgewidth=1.8)
    axes.plot(x[-1], y[-1], "o", markersize=7.5, color=colors[-1])
    _name_ends(axes, x, y, ends=ends, colors=colors)
    put_tips(axes, x, y, texts=[tips[row] for row in rows] if tips else [])
    arrange(figure, [axes], Caption(), right=20)
    return figure


def _name_ends(axes: "Axes", x: Floats, y: Floats, ends: tuple[str, str], colors: Sequence[str]) -> None:
    for number, text in [(0, ends[0]), (-1, ends[1])] if len(x) > 1 else [(-1, ends[1])]:
        left, up = x[number] > np.mean(axes.get_xlim()), y[number] > np.mean(axes.get_ylim())
        color = COLORS["muted"] if number == 0 else colors[-1]
        write(
            axes,
            text,
            (x[number], y[number]),
            offset=(-9 if left else 9, 11 if up else -11),
            color=color,
            coords=("data", "data"),
        )
