"""An empty figure, its axes, and the texts on it."""

__all__ = ["LEAST", "Caption", "canvas", "drawable", "finite_values", "look", "named_axis", "padded", "put_tips",
           "sheet", "spaced", "swatch", "write", "x_axis", "y_axis"]  # fmt: skip

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.style import (
    BOTTOM,
    COLORS,
    DASHES,
    HEIGHT,
    LEFT,
    RIGHT,
    TEXT,
    TOP,
    WIDTH,
    Dash,
    Floats,
)
from lightning_ssl_geometry.plots.ticks import set_ticks

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

LEAST = 1e-100
_MOST = 1e100
_ROW = 16.0


@dataclass(frozen=True)
class Caption:
    """What is written around a figure that has to stand alone.

    Attributes:
        title: Above it.
        dashes: What dashes mean: (dash, meaning) pairs, in a row below it.
        notes: Lines below those.
    """

    title: str = ""
    dashes: Sequence[tuple[Dash, str]] = ()
    notes: Sequence[str] = ()

    @property
    def above(self) -> float:
        """Height of what is above, in pixels."""
        return 18.0 if self.title else 0.0

    @property
    def below(self) -> float:
        """Height of what is below."""
        return _ROW * (len(self.rows) + len(self.notes))

    @property
    def rows(self) -> list[list[tuple[float, Dash, str]]]:
        """Dashes with their place from the left, in as many rows as they need."""
        rows: list[list[tuple[float, Dash, str]]] = []
        at = WIDTH
        for dash, meaning in self.dashes:
            width = 46 + 0.56 * TEXT * len(meaning)
            if at + width > WIDTH + 16:
                rows, at = [*rows, []], 0.0
            rows[-1].append((at, dash, meaning))
            at += width
        return rows


def canvas(
    caption: Caption, *, left: float = LEFT, right: float = RIGHT, height: float = HEIGHT, under: float = 0.0
) -> "tuple[Figure, Axes]":
    """Make an empty figure with its axes at the same place in each, so that neighbours line up.

    Args:
        caption: What is written around it.
        left: Beside the axes, in pixels.
        right: The same.
        height: Without the caption.
        under: How much more the names below the axes need.
    """
    from matplotlib.figure import Figure

    whole = height + under + caption.above + caption.below
    figure = Figure(figsize=(WIDTH / 72, whole / 72), dpi=72, facecolor="white")
    low, tall = (BOTTOM + under + caption.below) / whole, (height - TOP - BOTTOM) / whole
    axes = figure.add_axes((left / WIDTH, low, (WIDTH - left - right) / WIDTH, tall), facecolor="none")
    look(axes)
    _put_caption(axes, caption, left, under)
    return figure, axes


def look(axes: "Axes") -> None:
    """Give axes the look of all figures: a line below, horizontal lines behind, and numbers without ticks."""
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set(color=COLORS["muted"], linewidth=0.8)
    axes.tick_params(which="both", length=0, labelsize=TEXT, labelcolor=COLORS["muted"], pad=5)
    axes.xaxis.label.set(color=COLORS["muted"], fontsize=TEXT)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", color=COLORS["grid"], linewidth=0.8)


def sheet(height: float, caption: Caption) -> "tuple[Figure, Callable[[float, float, float, float], Axes]]":
    """Make an empty figure for several axes, and the function that puts them there.

    Args:
        height: In pixels, without the caption.
        caption: What is written around it.

    Returns:
        The figure, and a function of left, top, width and height in pixels that makes bare axes.
    """
    from matplotlib.figure import Figure

    whole = height + caption.above + caption.below
    figure = Figure(figsize=(WIDTH / 72, whole / 72), dpi=72, facecolor="white")

    def put(left: float, top: float, wide: float, tall: float) -> "Axes":
        low = whole - caption.above - top - tall
        axes = figure.add_axes((left / WIDTH, low / whole, wide / WIDTH, tall / whole), facecolor="none")
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        return axes

    if caption.above or caption.below:
        _put_caption(put(0, TOP, WIDTH, height - TOP - BOTTOM), caption, 0)
    return figure, put


def _put_caption(axes: "Axes", caption: Caption, left: float, under: float = 0.0) -> None:
    foot = -BOTTOM - under
    if caption.title:
        write(axes, caption.title, (0, 1), (-left, TOP + 8), COLORS["ink"], ha="left", size=12.5)
    for row, pieces in enumerate(caption.rows):
        down = foot - _ROW * (row + 0.5) + 2
        for at, dash, meaning in pieces:
            swatch(axes, (0, 0), (at - left + 1, down), COLORS["muted"], dash)
            write(axes, meaning, (0, 0), (at - left + 30, down), COLORS["muted"], ha="left")
    for row, note in enumerate(caption.notes, start=len(caption.rows)):
        write(axes, note, (0, 0), (-left, foot - _ROW * (row + 0.5) + 2), COLORS["muted"], ha="left")


def swatch(axes: "Axes", at: tuple[float, float], offset: tuple[float, float], color: str, dash: Dash) -> None:
    """Draw a piece of line, 24 pixels long, at an offset in pixels from a point in fractions of the axes."""
    from matplotlib.transforms import ScaledTranslation

    origin = axes.transAxes.transform(at)
    shift = ScaledTranslation((origin[0] + offset[0]) / 72, (origin[1] + offset[1]) / 72, axes.figure.dpi_scale_trans)
    line = axes.plot([0, 24 / 72], [0, 0], color=color, linestyle=DASHES[dash], linewidth=1.8, clip_on=False)[0]
    line.set_transform(axes.figure.dpi_scale_trans + shift)


def drawable(y: Floats, log: bool = False) -> NDArray[np.bool_]:
    """Tell where a value can be drawn: beyond `_MOST`, arithmetic on an axis overflows."""
    return np.isfinite(y) & (np.abs(y) < _MOST) & ((y > LEAST) | (not log))


def finite_values(arrays: Sequence[Floats], name: str, log: bool = False) -> Floats:
    """Join what can be drawn of arrays that an error calls `name`."""
    values = np.concatenate(arrays) if arrays else np.empty(0)
    values = values[drawable(values, log)]
    if not len(values):
        raise ValueError(f"Expected `{name}` with a finite {'positive ' if log else ''}value, but got none.")
    return values


def padded(values: Floats, pad: float) -> tuple[float, float]:
    """Limits around values, with a margin also for a constant."""
    low, high = float(values.min()), float(values.max())
    size, margin = max(abs(low), abs(high)), pad * (high - low)
    if margin <= max(1e-12 * size, LEAST):  # constant, but for rounding
        margin = 0.1 * size if size > LEAST else 1.0
    return low - margin, high + margin


def y_axis(axes: "Axes", values: Floats, label: str, floor: float | None, log: bool, pad: float = 0.07) -> None:
    """Set the vertical axis, with its name above it."""
    low, high = padded(np.log10(values) if log else values, pad)
    if floor is not None and not log and values.min() >= floor:
        low = floor
    axes.set_ylim(10.0**low if log else low, 10.0**high if log else high)
    axes.set_yscale("log" if log else "linear")  # after the limits: it would look at a caption's lines for its own
    left_out = set_ticks(axes, "y", log)
    write(axes, f"{label}{' (log scale)' if log else ''}{left_out}", (0, 1), (-LEFT, 16), COLORS["muted"], ha="left")


def x_axis(axes: "Axes", label: str, limits: tuple[float, float]) -> None:
    """Set the horizontal axis, with its name below it."""
    axes.set_xlim(limits[0], limits[1] if limits[1] > limits[0] else limits[0] + 1)
    axes.set_xlabel(f"{label}{set_ticks(axes, 'x', log=False)}", parse_math=False)


def named_axis(axes: "Axes", names: Sequence[str], slanted: bool) -> None:
    """Set names at 0, 1, 2, ... of the horizontal axis, slanted where they do not fit beside each other."""
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.set_xticks(range(len(names)), names, parse_math=False)
    if slanted:
        axes.tick_params(axis="x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def spaced(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose at most `most` rows at equal spaces, with both ends."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def put_tips(axes: "Axes", x: Floats, y: Floats, texts: Sequence[str], marker: str = "o", size: float = 11.0) -> None:
    """Put invisible targets that carry a text each, in the id of their group: an SVG can show it under a pointer."""
    if texts:
        gid = json.dumps(["tips", *texts])
        axes.plot(x, y, marker, markersize=size, color="none", markeredgecolor="none", gid=gid, clip_on=False, zorder=9)


def write(
    axes: "Axes",
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    color: str,
    coords: tuple[str, str] = ("axes fraction", "axes fraction"),
    ha: Literal["left", "right"] | None = None,
    size: float = TEXT,
    gid: str | None = None,
) -> None:
    """Put a text, as it is, at an offset in pixels from a point; `gid="plain"`: on a page without an edge of paper."""
    side = ha or ("left" if offset[0] >= 0 else "right")
    axes.annotate(text, at, offset, xycoords=coords, textcoords="offset points", ha=side, va="center",
                  fontsize=size, color=color, parse_math=False, annotation_clip=False, gid=gid)  # fmt: skip
