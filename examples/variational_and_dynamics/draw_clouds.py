"""Draw clouds of points without axes, such as t-SNE's, in which only the nearness of points has a meaning."""

__all__ = ["CLASSES", "clouds"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.canvas import Caption, canvas, put, stretch, write
from lightning_ssl_geometry.plots.style import BOTTOM, COLORS, TEXT, TOP, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Colours of ten classes; neighbours in the list differ most, also in their lightness.
CLASSES = (
    "#1f5fbf", "#f28e2b", "#1b8a5a", "#d62f3a", "#7b4ab5", "#6f4326", "#ef8fc0", "#9aa1aa", "#a3a500", "#22b8cf",
)  # fmt: skip

_GAP, _LINE = 8.0, 15.0  # in pixels
_BESIDE = 5  # names of classes in a row
_NO_CAPTION = Caption()


def clouds(
    panels: Sequence[tuple[str, Floats, NDArray[np.int64]]],
    *,
    names: Sequence[str],
    marks: Sequence[tuple[str, Floats]] = (),
    caption: Caption = _NO_CAPTION,
) -> "Figure":
    """Draw clouds in rows of two or three, each on a scale of its own, coloured by class.

    Args:
        panels: (title, z (n, 2), label (n,), each a place in `names`), at least one and n >= 1.
        names: Names of the classes, at most ten.
        marks: (name, place (2,)): lines from the origin to named places, which give the scale and the directions.
        caption: Title and notes of the figure.

    Raises:
        ValueError: If there is nothing to draw, a value is not finite, or the shapes or labels do not fit.
    """
    _check(panels, names)
    columns = 2 if len(panels) in (1, 2, 4) else 3
    side = (WIDTH - _GAP * (columns - 1)) / columns
    high, legend = TOP + side, _LINE * -(-len(names) // _BESIDE)
    figure, cells = canvas(len(panels), bare=True)
    above = stretch(figure, high * -(-len(panels) // columns) + max(legend + _GAP, BOTTOM), caption)
    order = np.random.default_rng(0)
    for place, (axes, (title, z, label)) in enumerate(zip(cells, panels, strict=True)):
        put(axes, place % columns * (side + _GAP), above + place // columns * high + TOP, side, side)
        write(axes, title, (0, 1), (0, 10), COLORS["ink"], ha="left")
        _cloud(axes, z, label, order.permutation(len(z)))
        for name, tip in marks:
            axes.plot([0, tip[0]], [0, tip[1]], color=COLORS["muted"], linewidth=1.0, zorder=3)
            beside = {"ha": "right" if tip[0] < 0 else "left", "va": "top" if tip[1] < 0 else "bottom"}
            style = {"color": COLORS["ink"], "fontsize": TEXT, "zorder": 4}
            axes.annotate(name, tip, (3, -3 if tip[1] < 0 else 3), textcoords="offset points", **beside, **style)
    corner = cells[-1 - (len(panels) - 1) % columns]  # the first of the last row
    for number, name in enumerate(names):
        right, down = number % _BESIDE * WIDTH / _BESIDE, number // _BESIDE * _LINE
        write(corner, f"\N{BLACK CIRCLE} {name}", (0, 0), (right, -16 - down), CLASSES[number])
    return figure


def _cloud(axes: "Axes", z: Floats, label: NDArray[np.int64], order: NDArray[np.int64]) -> None:
    """Draw points in a random order, which favours no class, in a square around them."""
    low, high = z.min(0), z.max(0)
    middle, half = (low + high) / 2, 0.52 * max(float((high - low).max()), 1e-12)
    axes.set(xlim=(middle[0] - half, middle[0] + half), ylim=(middle[1] - half, middle[1] + half))
    area = float(np.clip(6000 / len(z), 1.5, 16.0))
    colors = [CLASSES[kind] for kind in label[order]]
    axes.scatter(z[order, 0], z[order, 1], s=area, c=colors, alpha=0.85, linewidths=0)


def _check(panels: Sequence[tuple[str, Floats, NDArray[np.int64]]], names: Sequence[str]) -> None:
    if not panels or not all(len(z) for _, z, _ in panels):
        raise ValueError("Expected `panels` with a point in each, but got none.")
    if not 1 <= len(names) <= len(CLASSES):
        raise ValueError(f"Expected `names` of 1 to {len(CLASSES)} classes, but got {len(names)}.")
    for _, z, label in panels:
        if z.ndim != 2 or z.shape[1] != 2 or label.shape != z.shape[:1] or not np.isfinite(z).all():
            raise ValueError(
                f"Expected points (n, 2), all finite, and labels (n,), but got {z.shape} and {label.shape}."
            )
        if label.min() < 0 or label.max() >= len(names):
            got = f"{label.min()} to {label.max()}"
            raise ValueError(f"Expected labels from 0 to {len(names) - 1}, places in `names`, but got {got}.")
