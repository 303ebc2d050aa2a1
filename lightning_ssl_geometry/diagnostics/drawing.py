"""Draws the results of a Metric with matplotlib. The titles and axes come from its quantities."""

__all__ = ["draw"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor
from torchmetrics import Metric
from torchmetrics.utilities.plot import plot_single_or_multi_val

from lightning_ssl_geometry.diagnostics.card import quantities_of, words
from lightning_ssl_geometry.quantity import Picture, Quantity, declared

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure, SubFigure

_COLUMNS, _WIDTH, _HEIGHT = 3, 4.8, 3.6  # of panels; inches


def draw(metric: Metric, readouts: Sequence[Mapping[str, Tensor]], ax: Any = None) -> tuple["Figure | SubFigure", Any]:
    """Draw one or more results of `compute` of a Metric, and return the figure and its Axes.

    Scalars that share a chart are drawn on one Axes, and so are vectors that share a chart. A tensor with more axes has
    an Axes of its own. `ax` is one Axes for each of them, or a single one. None: a new figure.
    """
    panels = _panels(metric, readouts)
    axes = _axes(len(panels), ax)
    for panel, where in zip(panels, axes, strict=True):
        draw_panel = (_scalars, _lines, _picture)[min(panel.ndim, 2)]
        draw_panel(panel, where)
        where.set_title(panel.title)
    return axes[0].figure, axes[0] if len(axes) == 1 else np.array(axes)


@dataclass(frozen=True)
class _Panel:
    """Results that share an Axes, by key, with their descriptions."""

    title: str
    ndim: int
    quantities: dict[str, Quantity]
    readouts: list[dict[str, Tensor]]

    @property
    def role(self) -> str | None:
        """The key of the result that is the horizontal axis of the others."""
        if len(self.quantities) == 1:
            return None
        return next((key for key, each in self.quantities.items() if each.picture and each.picture.role == "x"), None)

    @property
    def first(self) -> Quantity:
        return next(each for key, each in self.quantities.items() if key != self.role)

    @property
    def unit(self) -> str:
        return self.first.unit or (self.first.chart.unit if self.first.chart else "")

    def label(self, key: str) -> str:
        return self.quantities[key].label or self.quantities[key].title


def _panels(metric: Metric, readouts: Sequence[Mapping[str, Tensor]]) -> list[_Panel]:
    if not readouts:
        raise ValueError(f"Expected `val` with results of {type(metric).__name__}, but got none.")
    described = {key: _described(metric, key) for key in readouts[-1]}
    hidden = any(each.shown for each in described.values())  # those that are not shown are drawn only if all are so
    groups: dict[tuple[int, str], dict[str, Quantity]] = {}
    for key, value in readouts[-1].items():
        quantity = described[key]
        if quantity.shown or not hidden:
            chart = quantity.chart.title if quantity.chart and value.ndim < 2 else quantity.title
            groups.setdefault((value.ndim, chart), {})[key] = quantity
    return [
        _Panel(
            title=title if len(held) > 1 else next(iter(held.values())).title,
            ndim=ndim,
            quantities=held,
            readouts=[{key: readout[key].detach().cpu().float() for key in held} for readout in readouts],
        )
        for (ndim, title), held in groups.items()
    ]


def _described(metric: Metric, key: str) -> Quantity:
    quantities = quantities_of(metric)
    if (found := declared(quantities, key)) is None:
        return Quantity(title=words(key) if key else type(metric).__name__, text="A result.")
    part = key[len(found[0]) + 1 :] if key != found[0] else ""
    return found[1] if not part else _of_part(found[1], part)


def _of_part(quantity: Quantity, part: str) -> Quantity:
    return replace(quantity, title=f"{quantity.title}, {part}", label=f"{quantity.label} {part}".strip())


def _axes(count: int, ax: Any) -> list["Axes"]:
    if ax is not None:
        given = list(np.ravel(ax))
        if len(given) != count:
            raise ValueError(
                f"Expected `ax` of {count} Axes, one for each picture of the results, but got {len(given)}."
            )
        return given
    from matplotlib import pyplot as plt

    columns = min(count, _COLUMNS)
    rows = -(-count // columns)
    size = (_WIDTH * columns, _HEIGHT * rows)
    _, grid = plt.subplots(rows, columns, figsize=size, layout="constrained", squeeze=False)
    for unused in grid.flat[count:]:
        unused.remove()
    return list(grid.flat[:count])


def _scalars(panel: _Panel, ax: "Axes") -> None:
    readouts = [{panel.label(key): value for key, value in readout.items()} for readout in panel.readouts]
    low, high = panel.first.bounds
    better = {"low": False, "high": True, None: None}[panel.first.better]
    plot_single_or_multi_val(
        readouts if len(readouts) > 1 else readouts[0],
        ax=ax,
        higher_is_better=better,
        lower_bound=low,
        upper_bound=high,
        name=panel.unit,
    )
    bottom, top = ax.get_ylim()
    room = 0.1 * (top - bottom)  # for the words beyond the bounds, and the value
    ax.set_ylim(bottom - (low is not None) * room, top + room)
    for name, bound, side in (("lowest", low, "top"), ("highest", high, "bottom")):
        if bound is not None:  # outside of the range of values
            place = (0.98, bound), ("axes fraction", "data")
            _note(ax, f"{name} possible: {bound:g}", place, ha="right", va=side, offset=(0, -2 if side == "top" else 2))
    for line in ax.lines if len(readouts) == 1 else ():
        x, y = (float(value) for value in np.asarray(line.get_xydata())[0])
        if np.isfinite(y):
            _note(ax, f"{y:.4g}", ((x, y), "data"), ha="center", va="bottom", offset=(0, 6))
    _legend(ax, len(panel.quantities))


def _note(ax: "Axes", text: str, place: tuple[Any, Any], *, ha: str, va: str, offset: tuple[float, float]) -> None:
    xy, coordinates = place
    style: dict[str, Any] = {"ha": ha, "va": va, "fontsize": "small", "annotation_clip": False}
    ax.annotate(text, xy, offset, xycoords=coordinates, textcoords="offset points", **style)


def _lines(panel: _Panel, ax: "Axes") -> None:
    picture, role = panel.first.picture or Picture("profile"), panel.role
    for number, readout in enumerate(panel.readouts):
        for key, value in readout.items():
            if key != role:
                x = readout[role] if role is not None else _abscissa(panel.quantities[key], len(value))
                label = panel.label(key) if len(panel.readouts) == 1 else f"{panel.label(key)}, {number}"
                ax.plot(x, value, marker=".", label=label)
    if picture.kind == "spectrum" and not picture.logarithm and any((v > 0).any() for v in panel.readouts[-1].values()):
        ax.set_yscale("log")
    if picture.names:
        ax.set_xticks(range(1, len(picture.names) + 1), picture.names, rotation=20)
    ax.set_xlabel(panel.first.xlabel if role is None else panel.quantities[role].title)
    ax.set_ylabel(panel.unit)
    _legend(ax, len(ax.lines))


def _abscissa(quantity: Quantity, count: int) -> Tensor:
    kind = quantity.picture.kind if quantity.picture else ""
    if kind == "histogram" and None not in quantity.bounds:
        low, high = quantity.bounds
        edges = torch.linspace(low, high, count + 1)  # type: ignore[arg-type]
        return (edges[:-1] + edges[1:]) / 2
    return torch.linspace(0, 100, count) if kind == "quantiles" else torch.arange(1, count + 1)


def _picture(panel: _Panel, ax: "Axes") -> None:
    value = next(iter(panel.readouts[-1].values())).numpy()
    if panel.first.picture and panel.first.picture.kind == "points" and value.shape[1] > 1:
        ax.scatter(value[:, 0], value[:, 1], s=9)
        return
    if value.ndim == 5:  # (A, B, C, H, W)
        ax.imshow(_mosaic(value), cmap="gray")
        ax.set_axis_off()
        return
    rows = np.concatenate(value, axis=1) if value.ndim == 3 else value
    ax.figure.colorbar(ax.imshow(rows, aspect="auto" if value.ndim == 2 else "equal"), ax=ax, label=panel.unit)


def _mosaic(value: np.ndarray) -> np.ndarray:
    rows, columns, channels, height, width = value.shape
    low, high = (bound(value, axis=(0, 1, 3, 4), keepdims=True) for bound in (np.nanmin, np.nanmax))
    tiles = np.nan_to_num((value - low) / np.maximum(high - low, 1e-12), nan=1.0)
    return tiles.transpose(0, 3, 1, 4, 2).reshape(rows * height, columns * width, channels)


def _legend(ax: "Axes", count: int) -> None:
    if (legend := ax.get_legend()) is not None:
        legend.remove()
    if count > 1:
        ax.legend(fontsize="small")
