"""Dot plots."""

__all__ = ["Dot", "dots"]

from collections.abc import Sequence
from dataclasses import dataclass
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
    shortened,
    write,
    x_axis,
)
from lightning_ssl_geometry.plots.style import COLORS, TEXT, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NO_CAPTION = Caption()
_SHARE, _OF_SIZE = 0.5, 0.2  # least part of the possible values, or of the greatest value, that an axis shows
_LEAST, _ROW, _LABEL, _TEXT = 96.0, 22.0, 0.45 * WIDTH, 0.3 * WIDTH  # of the axes, a row, its texts, in pixels


@dataclass(frozen=True)
class Dot:
    """One row of a dot plot.

    Attributes:
        label: Text on the left.
        value: Position of the dot.
        spread: Half the length of the error bar. NaN: no bar.
        text: Text on the right.
        color: A key of `COLORS`.
        tip: Tooltip of the dot.
        bounds: Least and greatest possible value. A longer error bar is cut there.
        before: An earlier value, drawn as a ring. NaN: none.
        interval: Ends of the error bar, in place of `spread`, if they are not equally far from the value.
    """

    label: str
    value: float
    spread: float
    text: str
    color: str = "muted"
    tip: str = ""
    bounds: tuple[float, float] = (-np.inf, np.inf)
    before: float = np.nan
    interval: tuple[float, float] | None = None

    @property
    def bar(self) -> Floats:
        """Lower and upper end of the error bar. Without a bar, both ends equal `value`."""
        low, high = self.bounds
        if self.interval is not None and np.isfinite(self.interval).all():
            return np.array(self.interval).clip(low, high)
        spread = 0.0 if np.isnan(self.spread) else self.spread
        return np.array([self.value - spread, self.value + spread]).clip(min(low, self.value), max(high, self.value))


def dots(groups: Sequence[tuple[str, Sequence[Dot]]], *, xlabel: str, caption: Caption = _NO_CAPTION) -> "Figure":
    """Draw a dot plot with one row per value. Raise a ValueError if no value is finite.

    `groups` are pairs of a heading (or "") and the rows below it. `xlabel` is the name of the horizontal axis.
    """
    every = [dot for _, rows in groups for dot in rows]
    earlier = [np.array([dot.before]) for dot in every if np.isfinite(dot.before)]
    values = finite_values([*(dot.bar for dot in every), *earlier], "groups")
    rows = sum(len(rows) + bool(heading) for heading, rows in groups)
    figure, (axes,) = canvas()
    x_axis(axes, xlabel, _wide_enough(padded(values, 0.1), every))
    axes.set(ylim=(rows - 0.4, -0.6), yticks=[])
    axes.grid(visible=True, axis="x", color=COLORS["grid"], linewidth=0.8)
    headings, row = [], 0
    for heading, members in groups:
        headings += [(row, heading)] if heading else []
        row += bool(heading)
        for number, dot in enumerate(members, start=row):
            _dot(axes, number, dot)
        row += len(members)
    arrange(figure, [axes], caption, left=0, right=0, tall=max(_LEAST, _ROW * rows))
    for place, heading in headings:
        write(
            axes,
            heading,
            (0, place),
            offset=(-axes.bbox.x0, 0),
            color=COLORS["muted"],
            coords=("axes fraction", "data"),
            ha="left",
        )
    _thin_ticks(axes)
    return figure


def _wide_enough(limits: tuple[float, float], rows: Sequence[Dot]) -> tuple[float, float]:
    # an axis that shows a small part of what is possible makes small differences look large
    low, high = min(dot.bounds[0] for dot in rows), max(dot.bounds[1] for dot in rows)
    possible = high - low if np.isfinite(high - low) else max(map(abs, limits))
    missing = max(0.0, (_SHARE if np.isfinite(high - low) else _OF_SIZE) * possible - (limits[1] - limits[0]))
    least, most = limits[0] - missing / 2, limits[1] + missing / 2
    shift = max(0.0, min(low, limits[0]) - least) - max(0.0, most - max(high, limits[1]))
    return (least + shift, most + shift) if missing else limits


def _thin_ticks(axes: "Axes") -> None:
    ticks, labels = axes.get_xticks(), [label.get_text() for label in axes.get_xticklabels()]
    if sum(0.6 * TEXT * (len(label) + 1.5) for label in labels) > axes.bbox.width:
        axes.set_xticks(ticks[::2], labels[::2])


def _dot(axes: "Axes", row: int, dot: Dot) -> None:
    value, color = np.array([dot.value]), COLORS[dot.color]
    write(
        axes,
        shortened(dot.label, _LABEL),
        (0, row),
        offset=(-8, 0),
        color=COLORS["ink"],
        coords=("axes fraction", "data"),
    )
    write(axes, shortened(dot.text, _TEXT), (1, row), offset=(8, 0), color=color, coords=("axes fraction", "data"))
    if np.ptp(dot.bar) > 0:
        axes.plot(dot.bar, [row, row], color=color, linewidth=1.6)
    if np.isfinite(dot.before):
        axes.plot([dot.before], [row], "o", markersize=6, color=COLORS["muted"], markerfacecolor="none")
    axes.plot(value, [row], "o", markersize=8, color=color)
    put_tips(axes, value, np.array([float(row)]), texts=[dot.tip] if dot.tip and drawable(value).all() else [])
