"""Empty figures, their axes, and the texts around them. All sizes are in pixels."""

__all__ = ["LEAST", "Caption", "arrange", "canvas", "drawable", "finite_values", "head", "named_axis", "padded", "put",
           "put_tips", "samples", "shortened", "spaced", "stretch", "swatch", "write", "x_axis", "y_axis"]  # fmt: skip

import json
import pickle
from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING, Any, Literal

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.style import (
    BOTTOM,
    COLORS,
    DASHES,
    HEIGHT,
    LEFT,
    RIGHT,
    TALL,
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

# Not matplotlib's constrained layout: it gives neighbouring figures axes of different sizes, fails where a name leaves
# no room, and doubles the time of a figure.
LEAST = 1e-100
_MOST = 1e100  # an axis overflows beyond
_ROW, _TITLE, _MOST_LINES = 16.0, 12.5, 4  # of a caption: pixels, pixels, lines of a text
_LETTER = 0.56  # mean width of a letter, in heights of the text
_AXES = ("axes fraction", "axes fraction")
_TICKS = 6  # of an axis, mostly
_EMPTY: dict[tuple[int, bool], tuple[dict[str, Any], bytes]] = {}  # settings of matplotlib, and a figure made with them


@dataclass(frozen=True)
class Caption:
    """Texts around a figure. The title is above it, and the (dash, meaning) pairs and the notes are below it."""

    title: str = ""
    dashes: Sequence[tuple[Dash, str]] = ()
    notes: Sequence[str] = ()


def canvas(count: int = 1, *, bare: bool = False) -> "tuple[Figure, list[Axes]]":
    """Make an empty figure with `count` axes. If `bare` is true, the axes have no ticks and no lines.

    The figure is a copy of the first one of its kind, unless matplotlib's settings changed. To copy an empty figure
    with its ticks takes a sixth of the time of building it.
    """
    from matplotlib import rcParams

    settings, held = _EMPTY.get((count, bare), ({}, b""))
    if not dict.__eq__(rcParams, settings):
        known: Any = rcParams
        settings = dict(dict.items(known))  # asking for one by name may import pyplot
        held = pickle.dumps(_built(count, bare))
        _EMPTY[count, bare] = settings, held
    figure: Figure = pickle.loads(held)
    return figure, figure.axes


def _built(count: int, bare: bool) -> "Figure":
    from matplotlib.figure import Figure

    figure = Figure(figsize=(WIDTH / 72, HEIGHT / 72), dpi=72, facecolor="white")
    for _ in range(count):
        axes = figure.add_axes((0, 0, 1, 1), facecolor="none")
        put(axes, LEFT, TOP, wide=WIDTH - LEFT - RIGHT, tall=TALL)
        _look(axes, bare)
    return figure


def _look(axes: "Axes", bare: bool) -> None:
    if bare:
        axes.set(xticks=[], yticks=[])
        axes.spines[:].set_visible(False)
        return
    axes.spines[["top", "left", "right"]].set_visible(False)
    axes.spines["bottom"].set(color=COLORS["muted"], linewidth=0.8)
    axes.tick_params(which="both", length=0, labelsize=TEXT, labelcolor=COLORS["muted"], pad=5)
    axes.xaxis.label.set(color=COLORS["muted"], fontsize=TEXT)
    axes.set_axisbelow(True)
    axes.grid(visible=True, axis="y", color=COLORS["grid"], linewidth=0.8)
    for axis in (axes.xaxis, axes.yaxis):
        axis.get_major_ticks(_TICKS)  # so that a copy has them
    axes.yaxis.set_label_coords(0, 0)  # the name is above the axis; matplotlib need not look for a place


def put(axes: "Axes", left: float, top: float, wide: float, tall: float) -> None:
    """Set the size of axes and their distance from the figure's upper left corner, in pixels."""
    width, height = 72 * axes.figure.get_size_inches()  # type: ignore[union-attr]
    axes.set_position((left / width, 1 - (top + tall) / height, wide / width, tall / height))


def arrange(
    figure: "Figure",
    cells: "Sequence[Axes]",
    caption: Caption,
    *,
    left: float = LEFT,
    right: float = RIGHT,
    foot: float = BOTTOM,
    wide: float = WIDTH,
    tall: float | None = TALL,
    most: float = WIDTH,
    titled: bool = False,
) -> None:
    """Place axes of equal size in rows of two, write the caption, and set the figure's height.

    All sizes are in pixels. `left`, `right` and `foot` are the least space left of, right of and below each of the
    axes. `wide` is the width of a row. `tall` is the height of the axes. If `tall` is None, the axes are square. `most`
    is the greatest width of the axes. `titled` leaves space for a title above the name of the y axis.
    """
    top = TOP + _ROW * titled
    columns = min(len(cells), 2)
    for _ in range(2):
        *needed, slanted = np.max([_needed(axes) for axes in cells], axis=0)
        left, right, foot = (float(side) for side in np.maximum(needed, (left, right, foot)))
        size = min(wide / columns - left - right, most)
        if not slanted:
            break
        for axes in cells:  # slanted names hang out farther if the axes are narrower
            put(axes, left, TOP, wide=size, tall=TALL)
    tall = size if tall is None else tall
    above = stretch(figure, -(-len(cells) // columns) * (top + tall + foot), caption)
    for place, axes in enumerate(cells):
        row, column = divmod(place, columns)
        put(axes, column * wide / columns + left, above + row * (top + tall + foot) + top, wide=size, tall=tall)


def _needed(axes: "Axes") -> tuple[float, float, float, bool]:
    # what texts take left of, right of and below the axes, and whether some are slanted (get_tightbbox takes longer)
    from lightning_ssl_geometry.plots.measure import Measure

    measure, box = Measure(), axes.bbox
    texts = [text for text in axes.texts if text.get_in_layout()]
    texts += [label for label in (*axes.get_xticklabels(), *axes.get_yticklabels()) if label.get_text()]
    if not texts:
        return 0.0, 0.0, 0.0, False
    x0, y0, x1, _ = np.array([text.get_window_extent(measure).extents for text in texts]).T
    sides = box.x0 - x0.min(), x1.max() - box.x1, box.y0 - y0.min()
    left, right, below = (max(float(side), 0.0) for side in sides)
    return left + 1, right + 1, below + 6, any(0 < text.get_rotation() < 90 for text in texts)


def stretch(figure: "Figure", height: float, caption: Caption) -> float:
    """Give a figure the height `height` plus that of its caption, and write the caption. Return the title's height."""
    title, rows = _lines(caption.title, _TITLE), _rows(caption)
    above = _ROW * len(title) + 2 * bool(title)
    whole = above + height + _ROW * len(rows)
    figure.set_size_inches(WIDTH / 72, whole / 72)
    for number, line in enumerate(title):
        _put_text(figure, line, 0, up=1 - (_ROW * number + 10) / whole, color="ink", size=_TITLE)
    for number, row in enumerate(rows):
        up = (_ROW * (len(rows) - number - 0.5) + 2) / whole
        for left, dash, text in row:
            if dash:
                start = (left + 1, 0.0)
                swatch(figure.axes[0], COLORS["muted"], dash, at=(0, up), within=figure.transFigure, offset=start)
            _put_text(figure, text, left + 30 * bool(dash), up=up, color="muted", size=TEXT)
    return above


def _rows(caption: Caption) -> list[list[tuple[float, Dash | None, str]]]:
    rows: list[list[tuple[float, Dash | None, str]]] = []
    at = WIDTH
    for dash, meaning in caption.dashes:
        text = shortened(meaning, WIDTH - 46)
        width = 46 + _LETTER * TEXT * len(text)
        if at + width > WIDTH + 16:
            rows, at = [*rows, []], 0.0
        rows[-1].append((at, dash, text))
        at += width
    return rows + [[(0.0, None, line)] for note in caption.notes for line in _lines(note, TEXT)]


def _lines(text: str, size: float) -> list[str]:
    return wrap(text, int(WIDTH / (_LETTER * size)), max_lines=_MOST_LINES, placeholder=" \N{HORIZONTAL ELLIPSIS}")


def _put_text(figure: "Figure", text: str, left: float, up: float, color: str, size: float) -> None:
    at = left / WIDTH, up
    write(
        figure.axes[0],
        text,
        at,
        offset=(0, 0),
        color=COLORS[color],
        coords=("figure fraction", "figure fraction"),
        ha="left",
        size=size,
    )


def swatch(
    axes: "Axes", color: str, dash: Dash, *, at: tuple[float, float], within: Any, offset: tuple[float, float]
) -> None:
    """Draw a legend's line of 24 pixels, `offset` pixels from the point `at` in the coordinates `within`."""
    from matplotlib.lines import Line2D
    from matplotlib.transforms import ScaledTranslation

    figure = axes.figure
    ends, up = [offset[0] / 72, (offset[0] + 24) / 72], offset[1] / 72
    place = figure.dpi_scale_trans + ScaledTranslation(*at, within)
    figure.add_artist(Line2D(ends, [up, up], color=color, linestyle=DASHES[dash], linewidth=1.8, transform=place))


def shortened(text: str, wide: float) -> str:
    """Replace the middle of a text by an ellipsis if the text is wider than `wide` pixels.

    >>> shortened("projector.layers.3.weight 0.5", 80)
    'proje…ht 0.5'
    """
    most = int(wide / (_LETTER * TEXT))
    return text if len(text) <= most else f"{text[: most // 2 - 1]}\N{HORIZONTAL ELLIPSIS}{text[-(most // 2) :]}"


def drawable(y: Floats, log: bool = False) -> NDArray[np.bool_]:
    """Return a mask of the values that are finite, below 1e100 in absolute value and, if `log` is true, positive."""
    return np.isfinite(y) & (np.abs(y) < _MOST) & ((y > LEAST) | (not log))


def finite_values(arrays: Sequence[Floats], name: str, log: bool = False) -> Floats:
    """Concatenate the values that can be drawn. If there are none, raise a ValueError about the argument `name`."""
    values = np.concatenate(arrays) if arrays else np.empty(0)
    values = values[drawable(values, log)]
    if not len(values):
        raise ValueError(f"Expected `{name}` with a finite {'positive ' if log else ''}value, but got none.")
    return values


def samples(arrays: Sequence[Floats]) -> Floats:
    """Concatenate all values. Raise a ValueError if an array is empty or a value is not finite."""
    if not arrays or not all(array.size for array in arrays):
        raise ValueError("Expected `runs` with a sample in each, but got none.")
    values = np.concatenate([array.ravel() for array in arrays])
    if not np.isfinite(values).all():
        raise ValueError("Expected `runs` with finite values, but got some that are not.")
    return values


def padded(values: Floats, pad: float) -> tuple[float, float]:
    """Return the limits of an axis: the range of the values, plus a margin of `pad` times this range at both ends."""
    low, high = float(values.min()), float(values.max())
    size, margin = max(abs(low), abs(high)), pad * (high - low)
    if margin <= max(1e-12 * size, LEAST):  # constant, but for rounding
        margin = 0.1 * size if size > LEAST else 1.0
    return low - margin, high + margin


def y_axis(
    axes: "Axes",
    values: Floats,
    label: str,
    floor: float | None,
    log: bool,
    pad: float = 0.07,
    ceiling: float | None = None,
) -> None:
    """Set limits, ticks and name of the y axis. A linear axis exceeds `floor` or `ceiling` only if a value does."""
    low, high = padded(np.log10(values) if log else values, pad)
    if floor is not None and not log and values.min() >= floor:
        low = floor
    if ceiling is not None and not log and low < values.max() <= ceiling:
        high = min(high, ceiling)
    axes.set_ylim(10.0**low if log else low, 10.0**high if log else high)
    axes.set_yscale("log" if log else "linear")
    left_out = set_ticks(axes, "y", log)
    head(axes, f"{label}{' (log scale)' if log else ''}{left_out}", COLORS["muted"])


def head(axes: "Axes", text: str, color: str, row: int = 0) -> None:
    """Write a text above axes, in the row of the name of the y axis, or as a title in row 1."""
    write(axes, text, (0, 1), offset=(-LEFT, 16 + _ROW * row), color=color, ha="left")
    axes.texts[-1].set_in_layout(False)


def x_axis(axes: "Axes", label: str, limits: tuple[float, float], most: int = 6) -> None:
    """Set limits, at most so many ticks, and the name of the horizontal axis."""
    axes.set_xlim(limits[0], limits[1] if limits[1] > limits[0] else limits[0] + 1)
    axes.set_xlabel(f"{label}{set_ticks(axes, 'x', log=False, most=most)}", parse_math=False)


def named_axis(axes: "Axes", names: Sequence[str]) -> None:
    """Write names at the positions 0, 1, 2, ... of the horizontal axis, slanted if there is little space."""
    names = [shortened(name, 0.4 * WIDTH) for name in names]
    axes.set_xlim(-0.3, len(names) - 0.7)
    axes.set_xticks(range(len(names)), names, parse_math=False)
    if _LETTER * TEXT * max(map(len, names)) + 8 > axes.bbox.width / max(len(names) - 0.4, 1.0):
        axes.tick_params(axis="x", labelrotation=35)
        for label in axes.get_xticklabels():
            label.set(ha="right", rotation_mode="anchor")


def spaced(rows: NDArray[np.int64], most: int) -> NDArray[np.int64]:
    """Choose at most `most` evenly spaced entries of `rows`, including the first and the last."""
    return rows[np.unique(np.linspace(0, len(rows) - 1, min(most, len(rows))).astype(int))]


def put_tips(axes: "Axes", x: Floats, y: Floats, texts: Sequence[str], of: str = "tips", size: float = 0) -> None:
    """Add a tooltip to each point (x, y). The texts are stored in the id of the SVG group of the points.

    `of` is "tips every" for the points of lines that only an enlarged figure shows. `size` is the side of the square
    that shows the tooltip, in pixels; 0 for a point.
    """
    if texts:
        gid = json.dumps([f"{of} cells {size:.4g}" if size else of, *texts])
        axes.plot(x, y, "o", markersize=11.0, color="none", markeredgecolor="none", gid=gid, clip_on=False, zorder=9)


def write(
    axes: "Axes",
    text: str,
    at: tuple[float, float],
    offset: tuple[float, float],
    color: str,
    coords: tuple[str, str] = _AXES,
    ha: Literal["left", "center", "right"] | None = None,
    gid: str | None = None,
    size: float = TEXT,
) -> None:
    """Write a text `offset` pixels from the point `at`. If `gid` is "plain", the text has no outline on the page."""
    side = ha or ("left" if offset[0] >= 0 else "right")
    axes.annotate(text, at, offset, xycoords=coords, textcoords="offset points", ha=side, va="center",
                  fontsize=size, color=color, parse_math=False, annotation_clip=False, gid=gid)  # fmt: skip
