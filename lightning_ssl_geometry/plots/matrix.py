"""Heat maps of a matrix, such as similarities between models."""

__all__ = ["cross_matrix", "matrix"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots.canvas import Caption, arrange, canvas, put, put_tips, shortened, write
from lightning_ssl_geometry.plots.style import COLORS, TEXT, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_FOOT, _LARGEST, _ROOM, _NUMBER = 28.0, 52.0, 25.0, 20.0  # in pixels; a value needs that room
_LETTER, _LINE, _TALLEST = 0.6, 13.0, 420.0  # mean width in heights of the text; pixels
_NAME, _WIDEST = 0.25 * WIDTH, 0.45 * WIDTH  # of a name, and of that of a row where there is room
_NO_CAPTION = Caption()


def matrix(
    names: Sequence[str],
    values: Floats,
    *,
    meaning: str,
    limits: tuple[float, float] = (0.0, 1.0),
    caption: Caption = _NO_CAPTION,
) -> "Figure":
    """Draw a matrix as coloured cells. Rows have names, columns have numbers, and large cells show their values.

    Args:
        names: Names of the M rows and columns. A ValueError is raised if there are none.
        values: A matrix (M, M). Another shape raises a ValueError. A value that is not finite is an empty cell.
        meaning: Name of the values, beside the colour scale.
        limits: Values at both ends of the colour scale.
        caption: Texts around the figure.
    """
    count = len(names)
    if not count or values.shape != (count, count):
        raise ValueError(f"Expected `values` of shape ({count}, {count}) for {count} names, but got {values.shape}.")
    figure, (axes, scale) = canvas(2, bare=True)
    axes.set(xlim=(0, count), ylim=(count, 0))
    _shade(axes, values, limits)
    for row, name in enumerate(names):
        at, label = (0, row + 0.5), shortened(name, 0.4 * WIDTH)
        write(axes, label, at, offset=(-6 - _NUMBER, 0), color=COLORS["ink"], coords=("axes fraction", "data"))
    arrange(figure, [axes], caption, left=0, right=2, foot=_FOOT, tall=None, most=count * _LARGEST)
    cell = axes.bbox.width / count
    _number(axes, count, every=max(1, int(np.ceil(12 / cell))))
    if cell >= _ROOM:
        _write_values(axes, values)
    _tips(axes, names, values, cell=cell)
    put(scale, axes.bbox.x0, figure.bbox.height - axes.bbox.y0 + 12, wide=76, tall=8)
    _scale(scale, meaning, limits)
    return figure


def cross_matrix(
    rows: Sequence[str],
    columns: Sequence[str],
    values: Floats,
    *,
    ylabel: str,
    xlabel: str,
    meaning: str,
    limits: tuple[float, float] = (0.0, 1.0),
    form: str = ".2f",
) -> "Figure":
    """Draw a matrix between two lists of names as coloured cells. The first row and column meet at the lower left.

    Args:
        rows: Names of the rows, from bottom to top. Where there is little space, only some of them are written.
        columns: Names of the columns, from left to right.
        values: A matrix with a row and a column for each name. A value that is not finite is an empty cell. If there
            are no names, or the matrix has another shape, a ValueError is raised.
        ylabel: What the rows are.
        xlabel: What the columns are.
        meaning: Name of the values, beside the colour scale.
        limits: Values at both ends of the colour scale. The second is the darker one.
        form: Format of the values in large cells.
    """
    shape = (len(rows), len(columns))
    if not all(shape) or values.shape != shape:
        raise ValueError(
            f"Expected `values` of shape {shape} for {shape[0]} rows and {shape[1]} columns, but got {values.shape}."
        )
    whole = rows, columns
    figure, (axes, scale) = canvas(2, bare=True)
    axes.set(xlim=(0, shape[1]), ylim=(0, shape[0]))
    _shade(axes, values, limits)
    rows = [shortened(name, min(_WIDEST, max(_NAME, WIDTH - 14 - _ROOM * shape[1]))) for name in rows]
    columns = [shortened(name, _NAME) for name in columns]
    aside, below = (_LETTER * TEXT * max(map(len, each)) + gap for each, gap in ((rows, 0), (columns, 6)))
    left = aside + 12
    cell = min(_LARGEST, (WIDTH - left - 2) / shape[1], _TALLEST / shape[0])
    most, tall, foot = cell * shape[1], cell * shape[0], below + 2 * _LINE + _FOOT
    arrange(figure, [axes], _NO_CAPTION, left=left, right=2, foot=foot, tall=tall, most=most)
    every = max(1, int(np.ceil(_LINE / cell)))
    _name(axes, rows, columns, every=every)
    if cell >= _ROOM:
        _write_values(axes, values, form)
    _tips(axes, whole[0], values, cell=cell, columns=whole[1])
    write(axes, shortened(ylabel, WIDTH), (0, 1), offset=(-axes.bbox.x0, 16), color=COLORS["muted"], ha="left")
    write(axes, shortened(xlabel, WIDTH), (0, 0), offset=(0, -below - 16), color=COLORS["muted"], ha="left")
    put(scale, axes.bbox.x0, figure.bbox.height - axes.bbox.y0 + below + 2 * _LINE + 4, wide=76, tall=8)
    _scale(scale, meaning, limits)
    return figure


def _name(axes: "Axes", rows: Sequence[str], columns: Sequence[str], every: int) -> None:
    for place in range(0, len(rows), every):
        at = (0.0, place + 0.5)
        write(axes, rows[place], at, offset=(-6, 0), color=COLORS["ink"], coords=("axes fraction", "data"))
    for place in range(0, len(columns), every):
        axes.annotate(columns[place], (place + 0.5, 0), (0, -6), xycoords=("data", "axes fraction"),
                      textcoords="offset points", rotation=90, ha="center", va="top", fontsize=TEXT,
                      color=COLORS["ink"], parse_math=False, annotation_clip=False)  # fmt: skip


def _shade(axes: "Axes", values: Floats, limits: tuple[float, float]) -> None:
    from matplotlib.patches import Rectangle

    width = limits[1] - limits[0]
    share = ((values - limits[0]) / width).clip(0, 1) if width else np.ones_like(values)
    for row, column in np.argwhere(np.isfinite(values)):
        alpha = round(float(0.04 + 0.51 * share[row, column]), 2)  # light enough for text on the cell
        axes.add_patch(Rectangle((column, row), 1, 1, facecolor=COLORS["violet"], alpha=alpha, linewidth=0))


def _number(axes: "Axes", count: int, every: int) -> None:
    for place, name in enumerate(list(axes.texts)):
        if place % every:
            name.remove()
    for place in range(0, count, every):
        number, middle = f"{place + 1}", place + 0.5
        write(axes, number, (0, middle), offset=(-6, 0), color=COLORS["muted"], coords=("axes fraction", "data"))
        write(
            axes,
            number,
            (middle, 1),
            offset=(0, 8),
            color=COLORS["muted"],
            coords=("data", "axes fraction"),
            ha="center",
        )


def _write_values(axes: "Axes", values: Floats, form: str = ".2f") -> None:
    for row, column in np.ndindex(*values.shape):
        value = values[row, column]
        text = f"{value:{form}}" if np.isfinite(value) else "\N{EN DASH}"
        write(
            axes,
            text,
            (column + 0.5, row + 0.5),
            offset=(0, 0),
            color=COLORS["ink"],
            coords=("data", "data"),
            ha="center",
            gid="plain",
        )


def _tips(
    axes: "Axes", names: Sequence[str], values: Floats, cell: float, columns: Sequence[str] | None = None
) -> None:
    found, across = np.argwhere(np.isfinite(values)), names if columns is None else columns
    texts = [f"{names[row]} and {across[column]}: {values[row, column]:.4g}" for row, column in found]
    y, x = found.T.astype(np.float64) + 0.5
    put_tips(axes, x, y, texts=texts, size=cell)


def _scale(axes: "Axes", meaning: str, limits: tuple[float, float]) -> None:
    steps = np.linspace(*limits, 12)
    axes.set(xlim=(0, len(steps)), ylim=(1, 0))
    _shade(axes, steps[None], limits)
    write(axes, f"{meaning}, from {limits[0]:g} to {limits[1]:g}", (1, 0.5), offset=(8, 0), color=COLORS["muted"])
