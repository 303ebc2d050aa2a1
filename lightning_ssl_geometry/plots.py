"""Figures of a run's geometry: numpy arrays -> matplotlib Figure, without pyplot and its global state.

One look for all: hue says what is measured, dashes say on which data, grey to violet says when. A name stands at the
end of its line instead of in a legend. Sizes are in CSS pixels at 72 dpi, so that a figure has the same text size
on a page, and `figure.savefig("loss.png", dpi=200)` makes a picture of it.
"""

__all__ = ["COLORS", "RAMP", "Curve", "Dot", "curves", "dots", "ramp", "trajectory"]

import json
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

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
}
RAMP = ("#8d939e", "#8881a2", "#836fa7", "#7e5cac", "#7a4ab0", "#7538b4", "#7026b9")  # early to late

_WIDTH, _HEIGHT, _TEXT = 380.0, 236.0, 10.5
_LEFT, _RIGHT, _TOP, _BOTTOM = 46.0, 104.0, 26.0, 38.0
_DASHES = {"solid": "-", "dashed": (0, (5, 2)), "dashdot": (0, (5, 2, 1, 2)), "dotted": (0, (1, 1.8))}
_SUPERSCRIPT = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
_MOST, _LEAST = 1e100, 1e-100
_MOST_TIPS, _MOST_POINTS, _MOST_MOMENTS = 60, 600, 120


@dataclass(frozen=True)
class Curve:
    """One line of a figure.

    Attributes:
        label: Stands at its end; with the last value in it, it saves a look at the axis.
        x: (R,), ascending.
        y: (R,); a value that is not finite, or beyond 1e100, leaves a gap, and a cross below it.
        color: A key of `COLORS`.
        dash: "solid", "dashed", "dashdot" or "dotted".
        faint: In the background: thin, and without label.
        tips: R texts, shown where a pointer rests on a point; or none.
    """

    label: str
    x: Floats
    y: Floats
    color: str = "blue"
    dash: Dash = "solid"
    faint: bool = False
    tips: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.x.shape != self.y.shape or self.x.ndim != 1:
            raise ValueError(f"Expected `x` and `y` of one shape (R,), but got {self.x.shape} and {self.y.shape}.")
        if self.tips and len(self.tips) != len(self.x):
            raise ValueError(f"Expected `tips` for all {len(self.x)} points or none, but got {len(self.tips)}.")
        if self.color not in COLORS:
            raise ValueError(f"Expected `color` to be one of {', '.join(COLORS)}, but got {self.color!r}.")
        if self.dash not in _DASHES:
            raise ValueError(f"Expected `dash` to be one of {', '.join(_DASHES)}, but got {self.dash!r}.")


@dataclass(frozen=True)
class Dot:
    """One row of a dot plot.

    Attributes:
        label: Stands before it.
        value: Where the dot is.
        spread: Half the length of its bar, or NaN.
        text: Stands behind it.
        color: A key of `COLORS`.
        tip: Shown where a pointer rests on it.
    """

    label: str
    value: float
    spread: float
    text: str
    color: str = "muted"
    tip: str = ""


def curves(
    lines: Sequence[Curve],
    *,
    xlabel: str,
    ylabel: str,
    xlim: tuple[float, float] | None = None,
    floor: float | None = None,
    log: bool | None = None,
) -> "Figure":
    """Draw scalars over training, or spectra over their index.

    Args:
        lines: At least one, with at least one finite value among them.
        xlabel: Below the axis.
        ylabel: Above the axis.
        xlim: From where to where; from the data if None.
        floor: Where the vertical axis starts; below the data if None.
        log: Logarithmic vertical axis, without what is not positive; if None, where all values are positive and span
            more than five decades.

    Raises:
        ValueError: If there is nothing to draw.

    >>> figure = curves([Curve("train", np.arange(3.0), np.array([4.0, 3.0, 2.5]))], xlabel="epochs", ylabel="loss")
    >>> figure.axes[0].get_xlabel()
    'epochs'
    """
    values = _drawn([line.y for line in lines], "lines", bool(log))
    if log is None:
        log = bool(values.min() > _LEAST and values.max() > 1e5 * values.min())
    figure, axes = _canvas()
    _y_axis(axes, values, ylabel, floor, log)
    x = np.concatenate([line.x for line in lines])
    _x_axis(axes, xlabel, xlim or (float(x.min()), float(x.max())))
    for line in lines:
        _draw(axes, line, log)
    _end_labels(axes, [(line, _drawable(line.y, log)) for line in lines if not line.faint])
    return figure


def trajectory(
    x: Floats, y: Floats, *, xlabel: str, ylabel: str, ends: tuple[str, str], tips: Sequence[str] = ()
) -> "Figure":
    """Draw a path through the plane, coloured from early to late; of many points, 120 at equal spaces.

    Args:
        x: (R,).
        y: (R,).
        xlabel: Below the axis.
        ylabel: Above the axis.
        ends: What the first and the last point are called.
        tips: R texts, or none.

    Raises:
        ValueError: If no point is finite, or the lengths differ.

    >>> path = np.linspace(0.0, 1.0, 5)
    >>> figure = trajectory(path, path**2, xlabel="x", ylabel="y", ends=("start", "end"))
    """
    Curve("", x, y, tips=tips)  # checks the lengths
    rows = _spread(np.flatnonzero(_drawable(x) & _drawable(y)), _MOST_MOMENTS)
    x, y = _drawn([x[rows]], "points"), y[rows]
    figure, axes = _canvas(right=20)
    _y_axis(axes, y, ylabel, None, log=False, pad=0.14)
    _x_axis(axes, xlabel, _padded(x, 0.14))
    colors = ramp(len(x))
    for (x0, x1), (y0, y1), color in zip(pairwise(x), pairwise(y), colors[1:], strict=True):
        axes.plot([x0, x1], [y0, y1], color=color, linewidth=2)
    for number in range(1, len(x) - 1) if len(x) <= 40 else ():
        axes.plot(x[number], y[number], "o", markersize=4, color=colors[number])
    if len(x) > 1:
        axes.plot(x[0], y[0], "o", markersize=7, color=colors[0], markerfacecolor="white", markeredgewidth=1.8)
    axes.plot(x[-1], y[-1], "o", markersize=7.5, color=colors[-1])
    _name_ends(axes, x, y, ends, colors)
    _tips(axes, x, y, [tips[row] for row in rows] if tips else [])
    return figure


def dots(groups: Sequence[tuple[str, Sequence[Dot]]], *, xlabel: str) -> "Figure":
    """Draw a dot plot: a row per value, rows in groups, one axis for all.

    Args:
        groups: (heading, rows) pairs, with at least one finite value among them.
        xlabel: Below the axis.

    Raises:
        ValueError: If there is nothing finite to draw.

    >>> figure = dots([("all", [Dot("pixels", 0.9, 0.01, "90%")])], xlabel="accuracy")
    """
    bars = [(dot.value, 0.0 if np.isnan(dot.spread) else dot.spread) for _, rows in groups for dot in rows]
    values = _drawn([np.array([value - spread, value + spread]) for value, spread in bars], "groups")
    rows = sum(len(rows) + 1 for _, rows in groups)
    figure, axes = _canvas(left=112, right=92, height=max(_HEIGHT, _TOP + _BOTTOM + 22.0 * rows))
    _x_axis(axes, xlabel, _padded(values, 0.1))
    axes.set(ylim=(rows - 0.4, -0.6), yticks=[])
    axes.grid(visible=True, axis="x", color=COLORS["grid"], linewidth=0.8)
    row = 0
    for heading, members in groups:
        _write(axes, heading, (0, row), (-112, 0), COLORS["muted"], ("axes fraction", "data"), ha="left")
        for number, dot in enumerate(members, start=row + 1):
            _dot(axes, number, dot)
        row += len(members) + 1
    return figure


def ramp(count: int) -> list[str]:
    """Choose colours for `count` moments of training, early to late.

    >>> ramp(2) == [RAMP[0], RAMP[-1]]
    True
    """
    return [RAMP[round(position)] for position in np.linspace(0, len(RAMP) - 1, count)] if count > 1 else [RAMP[-1]]


def _canvas(*, left: float = _LEFT, right: float = _RIGHT, height: float = _HEIGHT) -> "tuple[Figure, Axes]":
    """An empty figure with its axes at the same place in each, so that neighbours line up."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(_WIDTH / 72, height / 72), dpi=72, facecolor="white")
    box = (left / _WIDTH, _BOTTOM / height, (_WIDTH - left - right) / _WIDTH, (height - _TOP - _BOTTOM) / height)
    axes = figure.add_axes(box, facecolor="none")
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set(color=COLORS["muted"], linewidth=0.8)
    axes.tick_params(which="both", length=0, labelsize=_TEXT, labelcolor=COLORS["muted"], pad=5)
    axes.xaxis.label.set(color=COLORS["muted"], fontsize=_TEXT)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", color=COLORS["grid"], linewidth=0.8)
    return figure, axes


def _drawable(y: Floats, log: bool = False) -> NDArray[np.bool_]:
    """Where a value can be drawn: beyond `_MOST`, arithmetic on an axis overflows."""
    return np.isfinite(y) & (np.abs(y) < _MOST) & ((y > _LEAST) | (not log))


def _drawn(arrays: Sequence[Floats], name: str, log: bool = False) -> Floats:
    values = np.concatenate(arrays) if arrays else np.empty(0)
    values = values[_drawable(values, log)]
    if not len(values):
        raise ValueError(f"Expected `{name}` with a finite {'positive ' if log else ''}value, but got none.")
    return values


def _padded(values: Floats, pad: float) -> tuple[float, float]:
    low, high = float(values.min()), float(values.max())
    size, margin = max(abs(low), abs(high)), pad * (high - low)
    if margin <= max(1e-12 * size, _LEAST):  # constant, but for rounding
        margin = 0.1 * size if size > _LEAST else 1.0
    return low - margin, high + margin


def _y_axis(axes: "Axes", values: Floats, label: str, floor: float | None, log: bool, pad: float = 0.07) -> None:
    low, high = _padded(np.log10(values) if log else values, pad)
    axes.set_yscale("log" if log else "linear")
    axes.set_ylim(10.0**low if log else low if floor is None else min(floor, low), 10.0**high if log else high)
    left_out = _ticks(axes, "y", log)
    _write(axes, f"{label}{' (log scale)' if log else ''}{left_out}", (0, 1), (-_LEFT, 16), COLORS["muted"], ha="left")


def _x_axis(axes: "Axes", label: str, limits: tuple[float, float]) -> None:
    axes.set_xlim(limits[0], limits[1] if limits[1] > limits[0] else limits[0] + 1)
    axes.set_xlabel(f"{label}{_ticks(axes, 'x', log=False)}", parse_math=False)


def _ticks(axes: "Axes", which: Literal["x", "y"], log: bool) -> str:
    """Set round ticks within the limits; what comes back is what their labels leave out."""
    from matplotlib.ticker import LogLocator, MaxNLocator

    low, high = sorted(map(float, axes.get_xlim() if which == "x" else axes.get_ylim()))
    decades = log and high >= 10 * low
    subs = (1.0,) if high >= 1e3 * low else (1.0, 2.0, 5.0)
    whole = which == "x" and low.is_integer() and high.is_integer()  # epochs, steps and indices
    linear = MaxNLocator(nbins=5, steps=[1, 2, 5, 10] if whole else [1, 2, 2.5, 5, 10], integer=whole)
    locator = LogLocator(subs=subs, numticks=6) if decades else linear
    ticks = np.array([tick for tick in locator.tick_values(low, high) if low <= tick <= high])
    labels, left_out = ([_decade(tick) for tick in ticks], "") if decades else _tick_labels(ticks)
    set_ticks = axes.set_xticks if which == "x" else axes.set_yticks
    axes.minorticks_off()
    set_ticks(ticks, labels)
    return left_out


def _tick_labels(ticks: Floats) -> tuple[list[str], str]:
    """As many digits as tell the ticks apart; left out are a power of ten or a first tick that they share."""
    size = float(np.abs(ticks).max(initial=0))
    power = int(np.floor(np.log10(size))) if size >= 1e6 or 0 < size < 1e-3 else 0
    scaled = ticks / 10.0**power
    step = np.diff(scaled).min() if len(ticks) > 1 else 1.0
    digits = next((d for d in range(9) if abs(step * 10**d - round(step * 10**d)) < 1e-3 * step * 10**d), 9)
    labels = [f"{tick:,.{digits}f}".replace("-", "\N{MINUS SIGN}") for tick in scaled]
    if len(ticks) and ticks[0] and max(map(len, labels)) > 7:
        labels, left_out = _tick_labels(ticks - ticks[0])
        return labels, f" above {ticks[0]:.12g}{left_out}"
    return labels, f" (\N{MULTIPLICATION SIGN}{_power(power)})" if power else ""


def _decade(tick: float) -> str:
    lead, exponent = f"{tick:.0e}".split("e")
    if -3 <= int(exponent) < 4:
        return f"{tick:g}"
    return ("" if lead == "1" else f"{lead}\N{MULTIPLICATION SIGN}") + _power(int(exponent))


def _power(exponent: int) -> str:
    return f"10{str(exponent).translate(_SUPERSCRIPT)}"


def _draw(axes: "Axes", line: Curve, log: bool) -> None:
    """A line, with dots where it has few points and where one stands alone, and crosses for what was lost."""
    color = COLORS[line.color]
    drawn = _drawable(line.y, log)
    y = np.where(drawn, line.y, np.nan)
    shown = _thinned(y)
    style = {"linewidth": 1.0, "alpha": 0.35} if line.faint else {"linewidth": 1.8}
    axes.plot(line.x[shown], y[shown], color=color, linestyle=_DASHES[line.dash], **style)  # type: ignore[arg-type]
    if line.faint:
        return
    alone = drawn & ~np.append(False, drawn[:-1]) & ~np.append(drawn[1:], False)
    dotted = drawn if drawn.sum() <= 12 else alone
    axes.plot(line.x[dotted], y[dotted], "o", markersize=4, color=color, clip_on=False)
    lost = line.x[~_drawable(line.y)]
    axes.plot(lost, np.full(len(lost), axes.get_ylim()[0]), "x", markersize=5, color=color, clip_on=False, zorder=5)
    tipped = _spread(np.flatnonzero(drawn), _MOST_TIPS)
    _tips(axes, line.x[tipped], y[tipped], [line.tips[number] for number in tipped] if line.tips else [])


def _spread(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose at most `most` rows at equal spaces, with both ends."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def _thinned(y: Floats) -> NDArray[np.int64]:
    """Choose points to draw: of a long line, the lowest and the highest of each stretch, so that spikes stay."""
    if len(y) <= _MOST_POINTS:
        return np.arange(len(y))
    kept = {0, len(y) - 1}
    for stretch in np.array_split(np.arange(len(y)), _MOST_POINTS // 2):
        finite = stretch[np.isfinite(y[stretch])]
        kept |= {int(finite[y[finite].argmin()]), int(finite[y[finite].argmax()])} if len(finite) else {int(stretch[0])}
    return np.array(sorted(kept))


def _tips(axes: "Axes", x: Floats, y: Floats, texts: Sequence[str]) -> None:
    """Invisible targets that carry a text each, in the id of their group: an SVG can show it under a pointer."""
    if texts:
        gid = json.dumps(["tips", *texts])
        axes.plot(x, y, "o", markersize=11, color="none", markeredgecolor="none", gid=gid, clip_on=False, zorder=9)


def _end_labels(axes: "Axes", lines: Sequence[tuple[Curve, NDArray[np.bool_]]]) -> None:
    """Write the labels right of their lines, moved apart where they would touch."""
    ended = [(line, np.flatnonzero(drawn)[-1]) for line, drawn in lines if drawn.any()]
    heights = axes.transData.transform([(line.x[last], line.y[last]) for line, last in ended])[:, 1]
    low, high = axes.transAxes.transform([(0, 0), (0, 1)])[:, 1]
    for (line, _), height in zip(ended, _apart(heights, 13.0, low, high), strict=True):
        _write(axes, line.label, (1, (height - low) / (high - low)), (7, 0), COLORS[line.color])


def _apart(heights: Floats, gap: float, low: float, high: float) -> Floats:
    """Move heights as little as a sweep up and one down need, to be at least `gap` apart and within limits."""
    order = np.argsort(heights, kind="stable")
    moved = heights[order].clip(low, high)
    for number in range(1, len(moved)):
        moved[number] = max(moved[number], moved[number - 1] + gap)
    moved[-1:] = moved[-1:].clip(max=high)
    for number in range(len(moved) - 1, 0, -1):
        moved[number - 1] = min(moved[number - 1], moved[number] - gap)
    return moved[np.argsort(order, kind="stable")]


def _name_ends(axes: "Axes", x: Floats, y: Floats, ends: tuple[str, str], colors: Sequence[str]) -> None:
    """Write what the ends are called on the side away from the path."""
    for number, text in [(0, ends[0]), (-1, ends[1])] if len(x) > 1 else [(-1, ends[1])]:
        left, up = x[number] > np.mean(axes.get_xlim()), y[number] > np.mean(axes.get_ylim())
        color = COLORS["muted"] if number == 0 else colors[-1]
        _write(axes, text, (x[number], y[number]), (-9 if left else 9, 11 if up else -11), color, ("data", "data"))


def _dot(axes: "Axes", row: int, dot: Dot) -> None:
    value, color = np.array([dot.value]), COLORS[dot.color]
    _write(axes, dot.label, (0, row), (-8, 0), COLORS["ink"], ("axes fraction", "data"))
    _write(axes, dot.text, (1, row), (8, 0), color, ("axes fraction", "data"))
    if np.isfinite(dot.spread):
        axes.plot([dot.value - dot.spread, dot.value + dot.spread], [row, row], color=color, linewidth=1.6)
    axes.plot(value, [row], "o", markersize=8, color=color)
    _tips(axes, value, np.array([float(row)]), [dot.tip] if dot.tip and _drawable(value).all() else [])


def _write(
    axes: "Axes",
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    color: str,
    coords: tuple[str, str] = ("axes fraction", "axes fraction"),
    ha: Literal["left", "right"] | None = None,
) -> None:
    """Put a text, as it is, at an offset in pixels from a point."""
    side = ha or ("left" if offset[0] >= 0 else "right")
    axes.annotate(text, at, offset, xycoords=coords, textcoords="offset points", ha=side, va="center",
                  fontsize=_TEXT, color=color, parse_math=False, annotation_clip=False)  # fmt: skip
