"""Plots of embeddings, as lines over the dimensions or as points in the plane."""

__all__ = ["largest_classes", "overlay", "scatter"]

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots.canvas import (
    Caption,
    arrange,
    canvas,
    head,
    padded,
    put_tips,
    samples,
    spaced,
    write,
    x_axis,
    y_axis,
)
from lightning_ssl_geometry.plots.style import COLORS, WIDTH, Floats

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_MOST_CLASSES, _MOST_TIPS, _MOST_POINTS = 10, 60, 300
_RIGHT, _LEGEND, _WIDEST = 10.0, 52.0, 300.0  # in pixels
_NO_CAPTION = Caption()


def overlay(runs: Sequence[tuple[str, Floats]], *, caption: Caption = _NO_CAPTION) -> "Figure":
    """Draw each embedding as a thin line over its dimensions, on the same scale for all runs.

    Each of `runs` is a pair of a title (or "") and embeddings z (n, P), with n >= 1 and P >= 2. A ValueError is raised
    if a shape is wrong or a value is not finite.
    """
    values = samples([z for _, z in runs])
    if wrong := [z.shape for _, z in runs if z.ndim != 2 or z.shape[1] < 2]:
        raise ValueError(f"Expected embeddings (n, P) with P >= 2, but got {wrong[0]}.")
    figure, cells = canvas(len(runs))
    for axes, (title, z) in zip(cells, runs, strict=True):
        y_axis(axes, values, "value", floor=None, log=False)
        head(axes, title, COLORS["ink"], row=1)
        x_axis(axes, "dimension", (1.0, float(z.shape[1])))
        alpha = float(np.clip(20 / len(z), 0.1, 0.6))
        for row in z:
            axes.plot(np.arange(1, len(row) + 1), row, color=COLORS["blue"], linewidth=0.8, alpha=alpha)
        _tips_by_dimension(axes, z)
    arrange(figure, cells, caption, right=_RIGHT, titled=any(title for title, _ in runs))
    return figure


def scatter(
    runs: Sequence[tuple[str, Floats, NDArray[np.int64] | None]],
    *,
    axes_names: Sequence[str] = (),
    caption: Caption = _NO_CAPTION,
) -> "Figure":
    """Draw points in two dimensions, of one scale. The ten largest classes have colours, and others are grey.

    Without `axes_names`, the points are embeddings around the unit circle. Each of `runs` has a title (or ""), points
    (n, 2) with n >= 1, and labels (n,) or None. A ValueError is raised if a shape is wrong or a value is not finite.
    """
    values = samples([z for _, z, _ in runs])
    for _, z, label in runs:
        if z.ndim != 2 or z.shape[1] != 2 or (label is not None and label.shape != z.shape[:1]):
            shapes = f"{z.shape}" + ("" if label is None else f" and {label.shape}")
            raise ValueError(f"Expected embeddings (n, 2) and labels (n,), but got {shapes}.")
    labels = [label for *_, label in runs if label is not None]
    classes, others = largest_classes(np.concatenate(labels)) if labels else ([], 0)
    figure, cells = canvas(len(runs))
    far = max(map(abs, padded(np.append(values, [] if axes_names else 1.0), 0.06)))
    for axes, (title, z, label) in zip(cells, runs, strict=True):
        _plane(axes, title, far, names=axes_names)
        parts = [(np.ones(len(z), dtype=bool), COLORS["blue"])]
        if label is not None:
            parts = [(~np.isin(label, classes), COLORS["muted"])]
            parts += [(label == kind, _color(classes, kind)) for kind in classes]
        for rows, color in parts:
            if rows.any():
                axes.plot(*z[rows].T, "o", markersize=4.5, color=color, alpha=0.6, markeredgewidth=0)
        _tips_by_sample(axes, z, label)
    wide = _WIDEST if len(runs) == 1 else WIDTH - _LEGEND * bool(classes)
    titled = any(title for title, *_ in runs)
    arrange(figure, cells, caption, right=_RIGHT, wide=wide, tall=None, titled=titled)
    legend = [(f"{kind}", _color(classes, kind)) for kind in classes] + [("others", COLORS["muted"])] * bool(others)
    for row, (name, color) in enumerate(legend):
        write(cells[-1], f"\N{BLACK CIRCLE} {name}", (1, 1), offset=(12, -6 - 15.0 * row), color=color)
    return figure


def largest_classes(label: NDArray[np.int64]) -> tuple[list[int], int]:
    """Return the classes that have colours, in order, and the number of other classes.

    >>> largest_classes(np.array([3, 1, 1]))
    ([1, 3], 0)
    """
    kinds, counts = np.unique(label, return_counts=True)
    chosen = np.argsort(-counts, kind="stable")[:_MOST_CLASSES]
    return sorted(map(int, kinds[chosen])), len(kinds) - len(chosen)


def _tips_by_dimension(axes: "Axes", z: Floats) -> None:
    rows = spaced(np.arange(z.shape[1]), _MOST_TIPS)
    mean, low, high = z.mean(0), z.min(0), z.max(0)
    texts = [f"dimension {k + 1}: {low[k]:.3g} to {high[k]:.3g}, mean {mean[k]:.3g}" for k in rows]
    put_tips(axes, rows.astype(np.float64) + 1, mean[rows], texts=texts)


def _tips_by_sample(axes: "Axes", z: Floats, label: NDArray[np.int64] | None) -> None:
    rows = spaced(np.arange(len(z)), _MOST_POINTS)
    named = ["" if label is None else f"class {label[row]}: " for row in rows]
    texts = [f"{name}{z[row, 0]:.3g}, {z[row, 1]:.3g}" for name, row in zip(named, rows, strict=True)]
    put_tips(axes, z[rows, 0], z[rows, 1], texts=texts)


def _plane(axes: "Axes", title: str, far: float, names: Sequence[str]) -> None:
    across, up = names or ("first dimension", "second dimension")
    y_axis(axes, np.array([-far, far]), up, floor=None, log=False)
    head(axes, title, COLORS["ink"], row=1)
    x_axis(axes, across, (-far, far), most=4)  # numbers such as 0.25 side by side need room
    axes.set_ylim(axes.get_xlim())
    if names:
        return
    for put in (axes.set_xticks, axes.set_yticks):
        put([-1, 0, 1], ["\N{MINUS SIGN}1", "0", "1"])
    turn = np.linspace(0, 2 * np.pi, 181)
    axes.plot(np.cos(turn), np.sin(turn), color=COLORS["grid"], linewidth=1.2)


def _color(classes: Sequence[int], kind: int) -> str:
    from matplotlib import colormaps
    from matplotlib.colors import to_hex

    return to_hex(colormaps["tab10"](classes.index(kind)))
