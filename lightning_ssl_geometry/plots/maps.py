"""Images, each with a heat map below it."""

__all__ = ["policy_maps"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots.canvas import Caption, canvas, put, put_tips, samples, stretch, write
from lightning_ssl_geometry.plots.style import COLORS, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure

# One hue (violet) in even steps of CIELAB lightness, from 4 to 98: brighter is more on white and on black paper.
_HEAT = ("#130a1b", "#2d1f4c", "#49337d", "#674bab", "#8766d0", "#a886eb", "#c7a9fc", "#e2d0ff", "#fbf8ff")
_GAP, _NEAR, _TITLE, _SCALE = 8.0, 3.0, 20.0, 26.0  # in pixels
_MOST_TIPS = 64  # of a map
_NO_CAPTION = Caption()


def policy_maps(
    runs: Sequence[tuple[str, Floats, Floats]], *, columns: int = 4, caption: Caption = _NO_CAPTION
) -> "Figure":
    """Draw images, and below each image X a heat map of the probabilities P(T | X) of augmentations T.

    Each of `runs` has a title (or ""), images (n, H, W) and probabilities (n, A, B), with n >= 1. A heat map has A x B
    cells. `columns` is the number of images in a row. All heat maps share one colour scale from 0. A ValueError is
    raised if there is no run, a shape is wrong or a value is not finite.
    """
    if columns < 1:
        raise ValueError(f"Expected `columns` >= 1, but got {columns}.")
    for _, image, probability in runs:
        if image.ndim != 3 or probability.ndim != 3 or len(image) != len(probability):
            shapes = f"{image.shape} and {probability.shape}"
            raise ValueError(f"Expected images (n, H, W) and probabilities (n, rows, columns), but got {shapes}.")
    samples([values for _, *pair in runs for values in pair])
    tile = (WIDTH - _GAP * (columns - 1)) / columns
    tall = 2 * tile + _NEAR + 2 * _GAP
    blocks = [bool(title) * _TITLE + tall * -(-len(image) // columns) for title, image, _ in runs]
    figure, cells = canvas(1 + 2 * sum(len(image) for _, image, _ in runs), bare=True)
    down, free = stretch(figure, sum(blocks) + _SCALE, caption), iter(cells)
    most = max(float(probability.max()) for _, _, probability in runs)
    for (title, image, probability), block in zip(runs, blocks, strict=True):
        for place, (sample, chances) in enumerate(zip(image, probability, strict=True)):
            row, column = divmod(place, columns)
            left, top = column * (tile + _GAP), down + bool(title) * _TITLE + row * tall
            _picture(picture := _framed(next(free), left, top, tile=tile), sample)
            _map(chart := _framed(next(free), left, top + tile + _NEAR, tile=tile), chances, most)
            _tips(chart, chances, tile)
            if title and not place:
                write(picture, title, (0, 1), offset=(0, 10), color=COLORS["ink"], ha="left")
        down += block
    put(scale := next(free), 0, down + 8, wide=76, tall=8)
    _scale(scale, most, most * float(np.prod(runs[0][2].shape[1:])))
    return figure


def _picture(axes: "Axes", image: Floats) -> None:
    axes.imshow(image, cmap="gray", interpolation="none", aspect="auto", extent=(0, 1, 0, 1))


def _framed(axes: "Axes", left: float, top: float, tile: float) -> "Axes":
    put(axes, left, top, wide=tile, tall=tile)
    axes.spines[:].set(visible=True, color=COLORS["grid"], linewidth=0.8)
    return axes


def _map(axes: "Axes", cells: Floats, most: float) -> None:
    axes.imshow(cells, cmap=_heat(), vmin=0, vmax=most, interpolation="none", aspect="auto", extent=(0, 1, 0, 1))


def _tips(axes: "Axes", cells: Floats, tile: float) -> None:
    rows, columns = cells.shape
    found = np.argwhere(np.ones_like(cells))
    if cells.size > _MOST_TIPS:
        found = found[[int(cells.argmax())]]
    word = "brightest, " if cells.size > _MOST_TIPS else ""
    texts = [f"{word}row {row + 1}, column {column + 1}: {cells[row, column]:.3g}" for row, column in found]
    x, y = (found[:, 1] + 0.5) / columns, 1 - (found[:, 0] + 0.5) / rows
    put_tips(axes, x, y, texts=texts, size=max(8.0, tile / max(rows, columns)))


def _scale(axes: "Axes", most: float, times: float) -> None:
    _map(axes, np.linspace(0, 1, 64)[None], 1.0)
    write(
        axes,
        f"P(T | X) from 0 to {most:.3g}, {times:.3g} times uniform",
        (1, 0.5),
        offset=(8, 0),
        color=COLORS["muted"],
    )


def _heat() -> "Colormap":
    from matplotlib.colors import LinearSegmentedColormap

    return LinearSegmentedColormap.from_list("heat", _HEAT)
