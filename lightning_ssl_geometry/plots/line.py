"""Line plots: scalars over training, spectra over their index, histograms over their bins."""

__all__ = ["Curve", "curves"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.canvas import (
    LEAST,
    Caption,
    arrange,
    canvas,
    drawable,
    finite_values,
    named_axis,
    put_tips,
    shortened,
    spaced,
    swatch,
    write,
    x_axis,
    y_axis,
)
from lightning_ssl_geometry.plots.style import COLORS, DASHES, RAMP, TALL, Dash, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_TIPS, _MOST_POINTS = 60, 600
_BESIDE, _LINE = 165.0, 13.0  # the longest label, and the height of one, in pixels
_PALE = RAMP[:3]  # whose contrast is enough for lines, and not for texts
_NO_CAPTION = Caption()


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: Text at the end of the line.
        x: Positions of R points, (R,), ascending.
        y: Heights of the points, (R,). A value that is not finite, or beyond 1e100, is a gap with a cross below it.
        color: A key of `COLORS`, or a colour of `RAMP`.
        dash: "solid", "dashed", "dashdot" or "dotted".
        faint: Draw a thin line in the background, without a label.
        tips: R tooltip texts, or none. A point whose text is "" has no tooltip.
        spread: Half the height of a band around the line, (R,). NaN: a gap in the band. None: no band.
        factor: Draw the band from y / spread to y * spread instead.
        bounds: Least and greatest possible value. A wider band is cut there.
        stepped: Draw a histogram: y[r] is the height from x[r] to x[r + 1].
    """

    label: str
    x: Floats
    y: Floats
    color: str = "blue"
    dash: Dash = "solid"
    faint: bool = False
    tips: Sequence[str] = ()
    spread: Floats | None = None
    stepped: bool = False
    factor: bool = False
    bounds: tuple[float, float] = (-np.inf, np.inf)

    def __post_init__(self) -> None:
        if self.x.shape != self.y.shape or self.x.ndim != 1:
            raise ValueError(f"Expected `x` and `y` of one shape (R,), but got {self.x.shape} and {self.y.shape}.")
        if self.tips and len(self.tips) != len(self.x):
            raise ValueError(f"Expected `tips` for all {len(self.x)} points or none, but got {len(self.tips)}.")
        if self.spread is not None and self.spread.shape != self.x.shape:
            raise ValueError(f"Expected `spread` of shape {self.x.shape} as `x`, but got {self.spread.shape}.")
        if self.color not in COLORS and self.color not in RAMP:
            raise ValueError(f"Expected `color` to be one of {', '.join(COLORS)}, but got {self.color!r}.")
        if self.dash not in DASHES:
            raise ValueError(f"Expected `dash` to be one of {', '.join(DASHES)}, but got {self.dash!r}.")

    @property
    def shade(self) -> str:
        """The colour of the line as matplotlib takes it."""
        return COLORS.get(self.color, self.color)

    @property
    def edges(self) -> tuple[Floats, Floats] | None:
        """Lower and upper edge of the band, each (R,), or None without a band."""
        if self.spread is None:
            return None
        low, high = (
            (self.y / self.spread, self.y * self.spread)
            if self.factor
            else (self.y - self.spread, self.y + self.spread)
        )
        least, most = np.fmin(self.y, self.bounds[0]), np.fmax(self.y, self.bounds[1])
        return low.clip(least, most), high.clip(least, most)


def curves(
    lines: Sequence[Curve],
    *,
    xlabel: str,
    ylabel: str,
    xlim: tuple[float, float] | None = None,
    floor: float | None = None,
    ceiling: float | None = None,
    log: bool | None = None,
    names: Sequence[str] = (),
    caption: Caption = _NO_CAPTION,
    behind: Sequence[Curve] = (),
) -> "Figure":
    """Draw lines: scalars over training, spectra over their index, or values over named positions such as layers.

    Args:
        lines: The lines. A ValueError is raised if they have no value that can be drawn.
        xlabel: Name of the horizontal axis.
        ylabel: Name of the vertical axis.
        xlim: Limits of the horizontal axis. None: the limits of the data.
        floor: The vertical axis starts here unless a value is lower. None: it starts below the data.
        ceiling: The vertical axis ends here or lower, unless a value is higher. None: it ends above the data.
        log: Use a logarithmic vertical axis, and omit values that are not positive. None: do this if all values are
            positive and span more than five decades.
        names: Names of the positions 0, 1, 2, ... on the horizontal axis. They replace numbers and `xlabel`.
        caption: Texts around the figure.
        behind: Thin lines behind the others, such as all readouts. They are invisible: a page shows them if the figure
            is enlarged.
    """
    finite_values([line.y for line in lines], "lines", bool(log))
    values = finite_values([line.y for line in (*lines, *behind)], "lines", bool(log))
    if log is None:
        log = bool(values.min() > LEAST and values.max() > 1e5 * values.min())
    bands = [edge for line in lines for edge in line.edges or ()]
    bands = [edge if floor is None else edge.clip(min(floor, float(values.min())), None) for edge in bands]
    figure, (axes,) = canvas()
    y_axis(axes, np.append(values, _shown(bands, log)), ylabel, floor=floor, log=log, ceiling=ceiling)
    x = np.concatenate([line.x for line in lines])
    if names:
        named_axis(axes, names)
    else:
        x_axis(axes, xlabel, xlim or (float(x.min()), float(x.max())))
    for line in lines:
        _band(axes, line)
    _draw_behind(axes, behind, log)
    for line in lines:
        _draw(axes, line, log)
    named = [line for line in lines if line.label and not line.faint]
    _end_labels(axes, [(line, drawable(line.y, log)) for line in named if not line.stepped])
    _listed(axes, [line for line in named if line.stepped])  # histograms all end at the same height
    arrange(figure, [axes], caption)
    return figure


def _shown(arrays: Sequence[Floats], log: bool) -> Floats:
    values = np.concatenate(arrays) if arrays else np.empty(0)
    return values[drawable(values, log)]


def _band(axes: "Axes", line: Curve) -> None:
    if line.edges is None or not np.isfinite(line.edges[0]).any():
        return
    low, high = np.maximum(line.edges[0], axes.get_ylim()[0]), line.edges[1]
    step: Literal["post"] | None = "post" if line.stepped else None
    axes.fill_between(line.x, low, high, color=line.shade, alpha=0.16, linewidth=0, step=step)


def _draw(axes: "Axes", line: Curve, log: bool) -> None:
    drawn = drawable(line.y, log)
    y = np.where(drawn, line.y, np.nan)
    shown = _thinned(y)
    drawstyle = "steps-post" if line.stepped else "default"
    style: dict[str, Any] = {"linewidth": 1.0, "alpha": 0.35} if line.faint else {"linewidth": 1.8}
    style |= {"color": line.shade, "linestyle": DASHES[line.dash]}
    axes.plot(line.x[shown], y[shown], drawstyle=drawstyle, **style)
    if not line.faint:
        _draw_points(axes, line, y, drawn=drawn)


def _draw_behind(axes: "Axes", lines: Sequence[Curve], log: bool) -> None:
    from matplotlib.collections import LineCollection

    if not lines:
        return
    drawn = [np.column_stack([line.x, line.y])[drawable(line.y, log)] for line in lines]
    colors = [line.shade for line in lines]
    bundle = LineCollection(drawn, colors=colors, linewidths=1.0, gid="every", visible=False)
    axes.add_collection(bundle, autolim=False)
    tips = [
        (x, y, tip)
        for line in lines
        for x, y, seen, tip in zip(line.x, line.y, drawable(line.y, log), line.tips or [""] * len(line.x), strict=True)
        if seen and tip
    ]
    x, y = (np.array([tip[axis] for tip in tips]) for axis in (0, 1))
    put_tips(axes, x, y, texts=[text for *_, text in tips], of="tips every")


def _draw_points(axes: "Axes", line: Curve, y: Floats, drawn: NDArray[np.bool_]) -> None:
    color = line.shade
    alone = drawn & ~np.append(False, drawn[:-1]) & ~np.append(drawn[1:], False)
    dotted = drawn & (not line.stepped) if drawn.sum() <= 12 else alone  # few points, or a point between gaps
    if dotted.any():
        axes.plot(line.x[dotted], y[dotted], "o", markersize=4, color=color, clip_on=False)
    lost = line.x[~drawable(line.y)]
    if len(lost):
        axes.plot(lost, np.full(len(lost), axes.get_ylim()[0]), "x", markersize=5, color=color, clip_on=False, zorder=5)
    named = np.array([bool(tip) for tip in line.tips] or [False] * len(line.x), dtype=bool)
    tipped = np.flatnonzero(drawn & named)
    tipped = spaced(tipped, _MOST_TIPS) if len(tipped) else tipped
    x = (line.x + np.append(line.x[1:], line.x[-1:])) / 2 if line.stepped else line.x  # of a bin its middle
    put_tips(axes, x[tipped], y[tipped], texts=[line.tips[int(number)] for number in tipped])


def _thinned(y: Floats) -> NDArray[np.int64]:
    # of each part of a long line, keep the lowest and the highest point
    if len(y) <= _MOST_POINTS:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for stretch in np.array_split(np.arange(len(y)), _MOST_POINTS // 2):
        finite = stretch[np.isfinite(y[stretch])]
        kept |= {int(finite[y[finite].argmin()]), int(finite[y[finite].argmax()])} if len(finite) else {int(stretch[0])}
    return np.array(sorted(kept))


def _end_labels(axes: "Axes", lines: Sequence[tuple[Curve, NDArray[np.bool_]]]) -> None:
    ended = [(line, np.flatnonzero(drawn)[-1]) for line, drawn in lines if drawn.any()]
    if not ended:
        return
    ends = [(line.x[last], line.y[last]) for line, last in ended]
    heights = (axes.transData - axes.transAxes).transform(ends)[:, 1] * TALL
    for (line, _), height in zip(ended, _apart(heights, _LINE, 0.0, high=TALL), strict=True):
        color = COLORS["muted"] if line.color in _PALE else line.shade
        write(axes, shortened(line.label, _BESIDE), (1, height / TALL), offset=(7, 0), color=color)


def _listed(axes: "Axes", lines: Sequence[Curve]) -> None:
    for row, line in enumerate(lines):
        color, down = line.shade, -6 - 15.0 * row
        swatch(axes, color, line.dash, at=(1, 1), within=axes.transAxes, offset=(7, down))
        write(axes, shortened(line.label, _BESIDE - 29), (1, 1), offset=(36, down), color=color)


def _apart(heights: Floats, gap: float, low: float, high: float) -> Floats:
    """Move heights as little as possible (least squares), so that neighbours are at least `gap` apart, within limits.

    If they do not fit between `low` and `high`, the lowest ones lie below `low`.
    """
    order = np.argsort(heights, kind="stable")
    steps = gap * np.arange(len(heights))
    blocks: list[tuple[float, int]] = []  # means of neighbours that touch, without the gaps between them, and counts
    for value in heights[order] - steps:
        blocks.append((float(value), 1))
        while len(blocks) > 1 and blocks[-2][0] >= blocks[-1][0]:
            (a, m), (b, n) = blocks[-2:]
            blocks[-2:] = [((a * m + b * n) / (m + n), m + n)]
    level = np.repeat([mean for mean, _ in blocks], [count for _, count in blocks])
    moved = level.clip(low).clip(max=high - gap * (len(heights) - 1)) + steps
    return moved[np.argsort(order, kind="stable")]
