"""Draw stills of a film: points on the circle or the sphere at several moments of training."""

__all__ = ["Still", "seen", "stills"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from draw_clouds import CLASSES
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.canvas import Caption, canvas, put, stretch, write
from lightning_ssl_geometry.plots.style import BOTTOM, COLORS, TOP, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_GAP, _ROW, _FAR = 6.0, 22.0, 1.22  # in pixels; half the side of a panel
_TURN, _LIFT = np.radians(50.0), np.radians(25.0)  # of the eye, about the third axis and above the plane of the others
_VIEW = np.array(  # right, up and towards the eye
    [
        [-np.sin(_TURN), np.cos(_TURN), 0.0],
        [-np.sin(_LIFT) * np.cos(_TURN), -np.sin(_LIFT) * np.sin(_TURN), np.cos(_LIFT)],
        [np.cos(_LIFT) * np.cos(_TURN), np.cos(_LIFT) * np.sin(_TURN), np.sin(_LIFT)],
    ]
)
_OUTSIDE = 1.07  # radius from which arrows on the circle start; the points would hide them
_ARROW: dict[str, Any] = {
    "angles": "xy",
    "scale_units": "xy",
    "scale": 1,
    "width": 0.006,
    "headwidth": 3.5,
    "zorder": 2,
}
_NO_CAPTION = Caption()


@dataclass(frozen=True)
class Still:
    """One moment.

    Attributes:
        title: Text above the still, such as "iteration 15".
        z: (n, 2) or (n, 3), points about the unit sphere.
        label: (n,), the class of each, from 0 to 9.
        arrow: (n, 2) or (n, 3), a vector at each point, drawn to scale, on the circle from a little outside of it.
            None: no arrows.
    """

    title: str
    z: Floats
    label: NDArray[np.int64]
    arrow: Floats | None = None


def stills(rows: Sequence[tuple[str, Sequence[Still]]], *, caption: Caption = _NO_CAPTION) -> "Figure":
    """Draw rows of moments, on the unit circle or, seen from above its equator, the unit sphere.

    On a sphere, points on the far side are paler.

    Args:
        rows: (title, its stills), at least one of each.
        caption: Title and notes of the figure.

    Raises:
        ValueError: If there is nothing to draw, a value is not finite, or shapes or labels do not fit.
    """
    _check(rows)
    side = (WIDTH - _GAP * (most := max(len(row) for _, row in rows)) + _GAP) / max(most, 3)
    tall = 2 * _ROW + side
    figure, cells = canvas(sum(len(row) for _, row in rows), bare=True)
    above, free = stretch(figure, TOP + len(rows) * tall + BOTTOM - _ROW, caption) + TOP, iter(cells)
    for down, (title, row) in enumerate(rows):
        for right, still in enumerate(row):
            put(axes := next(free), right * (side + _GAP), above + down * tall + _ROW, side, side)
            if right == 0:
                write(axes, title, (0, 1), (0, 6 + _ROW), COLORS["ink"], ha="left")
            write(axes, still.title, (0, 1), (0, 6), COLORS["muted"], ha="left")
            _draw(axes, still)
    return figure


def seen(points: Floats) -> Floats:
    """Where points (n, 3) are in the picture, (n, 2), seen as the sphere is."""
    flat: Floats = points @ _VIEW[:2].T
    return flat


def _draw(axes: "Axes", still: Still) -> None:
    axes.set(xlim=(-_FAR, _FAR), ylim=(-_FAR, _FAR))
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(turn), np.sin(turn), color=COLORS["grid"], linewidth=1.2, zorder=1)
    z, arrow, near = still.z, still.arrow, np.ones(len(still.z), bool)
    start = _OUTSIDE * z
    if z.shape[1] == 3:
        _equator(axes, turn)
        near = z @ _VIEW[2] >= 0
        z, arrow = seen(z), None if arrow is None else seen(arrow)
        start = z
    colors = np.array(CLASSES)[still.label]
    order = np.random.default_rng(0).permutation(len(z))  # in the order of the classes, the last would hide the others
    for side, alpha in ((order[~near[order]], 0.25), (order[near[order]], 0.85)):
        axes.scatter(z[side, 0], z[side, 1], s=6, c=colors[side], alpha=alpha, linewidths=0, zorder=3)
        if arrow is not None and len(side):
            axes.quiver(*start[side].T, *arrow[side].T, color=colors[side], alpha=alpha, **_ARROW)


def _equator(axes: "Axes", turn: Floats) -> None:
    circle = np.stack([np.cos(turn), np.sin(turn), np.zeros_like(turn)], 1)
    away = circle @ _VIEW[2] < 0
    x, y = _VIEW[:2] @ circle.T
    for hidden, dash in ((away, (0, (2, 2))), (~away, "-")):
        axes.plot(np.where(hidden, x, np.nan), y, color=COLORS["grid"], linewidth=0.9, linestyle=dash, zorder=1)


def _check(rows: Sequence[tuple[str, Sequence[Still]]]) -> None:
    if not rows or not all(row for _, row in rows):
        raise ValueError("Expected `rows` with a still in each, but got none.")
    shapes = {still.z.shape[1:] for _, row in rows for still in row}
    if len(shapes) > 1 or shapes - {(2,), (3,)}:
        raise ValueError(f"Expected points (n, 2) or (n, 3) throughout, but got {sorted(shapes)} behind n.")
    for still in (still for _, row in rows for still in row):
        drawn = [still.z, *([] if still.arrow is None else [still.arrow])]
        if not len(still.z) or any(part.shape != still.z.shape or not np.isfinite(part).all() for part in drawn):
            raise ValueError(f"Expected points, and arrows of their shape, all finite, in the still {still.title!r}.")
        if still.label.shape != still.z.shape[:1] or not 0 <= still.label.min() <= still.label.max() < len(CLASSES):
            raise ValueError(f"Expected a label from 0 to {len(CLASSES) - 1} for each point of {still.title!r}.")
