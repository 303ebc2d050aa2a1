"""Draw named points: one quantity against another, with a point per run or group."""

__all__ = ["Point", "points"]

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
    write,
    x_axis,
    y_axis,
)
from lightning_ssl_geometry.plots.style import COLORS, TALL

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_NO_CAPTION = Caption()
_LINE, _LETTER = 11.0, 5.6  # of a label, in pixels
_NEAR = 12.0  # a label that is farther from its point has a line to it
_PLACES = [(dx, dy) for dy in (0.0, 10.0, -10.0) for dx in (8.0, -8.0)]
_PLACES += [(dx, dy) for far in range(18, 90, 12) for dy in (far, -far) for dx in (8.0, -8.0, 30.0, -30.0)]
_ORDERS = 20
_Box = tuple[float, float, float, float]


@dataclass(frozen=True)
class Point:
    """One point.

    Attributes:
        label: Text beside the point, or "".
        x: Horizontal coordinate.
        y: Vertical coordinate.
        color: A key of `COLORS`.
    """

    label: str
    x: float
    y: float
    color: str = "blue"


def points(
    found: Sequence[Point],
    *,
    xlabel: str,
    ylabel: str,
    colors: Sequence[tuple[str, str]] = (),
    caption: Caption = _NO_CAPTION,
) -> "Figure":
    """Draw points with their names; points that are not finite are left out.

    A name stands where it covers nothing, with a line to its point if that is far. It is left out if there is no place.

    Args:
        found: At least one finite point.
        xlabel: Below the axis.
        ylabel: Above the axis.
        colors: Pairs (key of `COLORS`, meaning), written at the right.
        caption: Title and notes of the figure.

    Raises:
        ValueError: If there is nothing to draw.
    """
    drawn = [point for point in found if drawable(np.array([point.x, point.y])).all()]
    x = finite_values([np.array([point.x for point in drawn])], "points")
    y = np.array([point.y for point in drawn])
    figure, (axes,) = canvas()
    y_axis(axes, y, ylabel, None, log=False, pad=0.14)
    x_axis(axes, xlabel, padded(x, 0.14))
    for point in drawn:
        axes.plot(point.x, point.y, "o", markersize=7, color=COLORS[point.color])
    arrange(figure, [axes], caption, tall=1.4 * TALL)
    places = [(float(a), float(b)) for a, b in axes.transData.transform(np.stack([x, y], 1))]
    inside = (float(axes.bbox.x0), float(axes.bbox.x1) + (0.0 if colors else 90.0))
    offsets = _offsets(places, [len(point.label) * _LETTER for point in drawn], inside)
    for point, offset in zip(drawn, offsets, strict=True):
        if offset is None or not point.label:
            continue
        if abs(offset[1]) > _NEAR:
            line(axes, (point.x, point.y), offset, COLORS["muted"])
        write(axes, point.label, (point.x, point.y), offset, COLORS[point.color], ("data", "data"))
    for row, (color, meaning) in enumerate(colors):
        write(axes, meaning, (1, 1), (8, -8 - 16.0 * row), COLORS[color])
    return figure


def line(axes: "Axes", at: tuple[float, float], offset: tuple[float, float], color: str) -> None:
    """Draw a thin line from a point to the text `offset` pixels from it."""
    axes.annotate(
        "",
        at,
        offset,
        textcoords="offset points",
        arrowprops={"arrowstyle": "-", "color": color, "linewidth": 0.6, "shrinkA": 0, "shrinkB": 4},
    )


def _offsets(
    places: Sequence[tuple[float, float]], widths: Sequence[float], inside: tuple[float, float]
) -> list[tuple[float, float] | None]:
    """Find an offset for each label at which it covers no point, other label or axis; None if there is none.

    Labels are placed one after the other. Of some orders, the one is taken whose labels are nearest to their points.
    """
    generator, count = np.random.default_rng(0), len(places)
    orders = [range(count), *(generator.permutation(count).tolist() for _ in range(_ORDERS))]
    found = [_placed(order, places, widths, inside) for order in orders]
    nearest = min(found, key=lambda chosen: sum(chosen))
    return [_PLACES[place] if place < len(_PLACES) else None for place in nearest]


def _placed(
    order: Sequence[int],
    places: Sequence[tuple[float, float]],
    widths: Sequence[float],
    inside: tuple[float, float],
) -> list[int]:
    """Place labels in an order. Return, for each, a place in `_PLACES`, or twice their number if none is free."""
    high = 1e9
    taken = [(x - 4, x + 4, y - 4, y + 4) for x, y in places]
    taken += [(-high, inside[0], -high, high), (inside[1], high, -high, high)]
    chosen = [0] * len(places)
    for number in order:
        others = taken[:number] + taken[number + 1 :]
        boxes = (_box(*places[number], widths[number], offset) for offset in _PLACES)
        free = (
            (place, box)
            for place, box in enumerate(boxes)
            if not any(_overlap(_wider(box, _PLACES[place]), other) for other in others)
        )
        place, box = next(free, (2 * len(_PLACES), None))
        chosen[number] = place
        taken += [] if box is None else [box]
    return chosen


def _box(x: float, y: float, width: float, offset: tuple[float, float]) -> _Box:
    dx, dy = offset
    low = x + dx if dx > 0 else x + dx - width
    return low, low + width, y + dy - _LINE / 2, y + dy + _LINE / 2


def _wider(box: _Box, offset: tuple[float, float]) -> _Box:
    """Keep a label that is far from its point away from other points, to which it would seem to belong."""
    pad = 12.0 if abs(offset[1]) > _NEAR else 0.0
    return box[0] - pad, box[1] + pad, box[2], box[3]


def _overlap(a: _Box, b: _Box) -> bool:
    return a[0] < b[1] and b[0] < a[1] and a[2] < b[3] and b[2] < a[3]
