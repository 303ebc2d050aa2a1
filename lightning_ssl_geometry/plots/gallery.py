"""Tables of small pictures."""

__all__ = ["Tiles", "gallery"]

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.canvas import Caption, canvas, put, put_tips, shortened, stretch, write
from lightning_ssl_geometry.plots.style import COLORS, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_LARGEST, _GAP, _TITLE, _NAMES, _BETWEEN = 56.0, 12.0, 20.0, 46.0, 2.0  # in pixels
_NO_CAPTION = Caption()


@dataclass(frozen=True)
class Tiles:
    """Pictures (A, B, C, H, W) of C = 1 or 3 channels, in A rows and B columns.

    Attributes:
        title: Text above them, or "".
        images: The pictures. One that is not finite is left empty.
        marked: Whether each picture has a frame, (A, B).
        tips: A tooltip for each picture, A lists of B texts.
    """

    title: str
    images: Floats
    marked: NDArray[np.bool_]
    tips: Sequence[Sequence[str]]


def gallery(blocks: Sequence[Tiles], *, names: Sequence[str] = (), caption: Caption = _NO_CAPTION) -> "Figure":
    """Draw tables of pictures beside each other, with the same rows. `names` are the names of the rows.

    Each channel is stretched to the range of its values in all pictures. A ValueError is raised if there is no block, a
    shape is wrong or no value is finite.
    """
    shapes = [each.images.shape for each in blocks]
    if not shapes or any(len(s) != 5 or s[2] not in (1, 3) or s[:1] + s[2:] != shapes[0][:1] + shapes[0][2:]
                         for s in shapes):  # fmt: skip
        raise ValueError(f"Expected `blocks` of pictures (A, B, C, H, W) with C = 1 or 3, but got {shapes}.")
    low, high = _range(blocks)
    rows, columns = shapes[0][0], sum(shape[1] for shape in shapes)
    left, room = _NAMES * bool(names), _GAP * (len(blocks) - 1)
    height, width = shapes[0][3:]
    tile = min((WIDTH - left - room) / columns, _LARGEST)
    tall = tile * height / width
    figure, cells = canvas(len(blocks), bare=True)
    top = stretch(figure, _TITLE + rows * tall + 4, caption) + _TITLE
    for axes, block in zip(cells, blocks, strict=True):
        count = block.images.shape[1]
        put(axes, left, top, wide=count * tile, tall=rows * tall)
        left += count * tile + _GAP
        _draw(axes, block, (block.images - low) / (high - low), tile=tile)
        write(axes, shortened(block.title, count * tile + _GAP), (0, 1), offset=(0, 9), color=COLORS["muted"],
              ha="left")  # fmt: skip
    for row, name in enumerate(names):
        write(cells[0], name, (0, 1 - (row + 0.5) / rows), offset=(-6, 0), color=COLORS["muted"])
    return figure


def _range(blocks: Sequence[Tiles]) -> tuple[Floats, Floats]:
    values = np.concatenate([each.images.swapaxes(0, 2).reshape(each.images.shape[2], -1) for each in blocks], axis=1)
    if not np.isfinite(values).any(axis=1).all():
        raise ValueError("Expected `blocks` with a finite value in each channel, but got none.")
    values = np.where(np.isfinite(values), values, np.nan)
    low, high = np.nanmin(values, axis=1), np.nanmax(values, axis=1)
    return low[:, None, None], np.where(high > low, high, low + 1)[:, None, None]


def _draw(axes: "Axes", block: Tiles, images: Floats, tile: float) -> None:
    rows, columns, channels, height, width = images.shape
    whole = np.array(np.isfinite(images).all(axis=(2, 3, 4)))
    shown = np.where(whole[:, :, None, None, None], images, 1.0).clip(0, 1)
    mosaic = shown.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)
    axes.imshow(mosaic.repeat(4 - channels if channels == 1 else 1, axis=2), interpolation="none", aspect="auto",
                extent=(0, columns, rows, 0))  # fmt: skip
    for place in range(1, columns):
        axes.axvline(place, color="white", linewidth=_BETWEEN)
    for place in range(1, rows):
        axes.axhline(place, color="white", linewidth=_BETWEEN)
    inset = 2.2 / tile
    for row, column in np.argwhere(block.marked & whole):
        x, y = (column + inset, column + 1 - inset), (row + inset, row + 1 - inset)
        axes.plot([x[0], x[1], x[1], x[0], x[0]], [y[0], y[0], y[1], y[1], y[0]], color=COLORS["orange"],
                  linewidth=2.4, solid_joinstyle="miter")  # fmt: skip
    axes.set(xlim=(0, columns), ylim=(rows, 0))
    found = np.argwhere(whole)
    y, x = found.T.astype(np.float64) + 0.5
    texts = [block.tips[row][column] for row, column in found]
    put_tips(axes, x, y, texts=texts, size=tile)
