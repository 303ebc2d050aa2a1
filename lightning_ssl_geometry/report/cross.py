"""Similarities between the layers of two models."""

__all__ = ["LayerSimilarity", "cross_panel"]

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from lightning_ssl_geometry.plots import cross_matrix
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.download import listed
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.members import printable
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.side_by_side import distinct

_LONGEST, _MOST_SAID = 18, 20  # letters of a layer's name, layers in the text
_LOW = "Near 0: the two layers have little in common."
_HIGH = "Near 1: the two layers hold the same representation up to rotation and scale."


@dataclass(frozen=True, eq=False)
class LayerSimilarity:
    """Linear CKA between each layer of one model and each layer of another one, on the same samples.

    Attributes:
        first: Name of the model of the rows.
        second: Name of the model of the columns.
        rows: Names of the L_1 layers of the first model, from the first layer to the last.
        columns: Names of the L_2 layers of the second model.
        values: (L_1, L_2). NaN for a layer that maps all samples to one point.
    """

    first: str
    second: str
    rows: Sequence[str]
    columns: Sequence[str]
    values: Floats


def cross_panel(found: LayerSimilarity, place: int) -> Panel:
    """Draw the similarities between the layers of two models. `place` numbers the figures of a page from 1.

    Raises a ValueError if the shape of the values is not that of the names.
    """
    first, second = (printable(name, 40) for name in (found.first, found.second))
    rows, columns = (distinct(names, _LONGEST) for names in (found.rows, found.columns))
    figure = cross_matrix(
        rows, columns, found.values, ylabel=f"layers of {first}", xlabel=f"layers of {second}", meaning="linear CKA"
    )
    title = f"CKA between the layers of {first} and {second}"
    about = Quantity(
        title="CKA between the layers of two models",
        text="Linear CKA between each layer of one model (rows) and each layer of the other (columns), for the same "
        "samples. The first layers are at the lower left. The first model of the page is compared with each other one.",
        low=_LOW,
        high=_HIGH,
    )
    parts = [((row,), (found.columns, values)) for row, values in zip(found.rows, found.values, strict=True)]
    numbers = listed((f"layer of {found.first}", f"layer of {found.second}", "linear CKA"), parts)
    name = f"between_layers_{place}"
    return Panel(name, title, figure, label=f"{title}: {_said(found)}.", numbers=numbers, about=[about])


def _said(found: LayerSimilarity) -> str:
    """Return in words which layer of the second model is most similar to each layer of the first."""
    said = []
    for name, values in zip(found.rows, found.values, strict=True):
        if np.isfinite(values).any():
            best = int(np.nanargmax(values))
            said.append(f"{name} is most similar to {found.columns[best]}, {number(float(values[best]))}")
    more = f"; and {len(said) - _MOST_SAID} more layers" if len(said) > _MOST_SAID else ""
    return "; ".join(said[:_MOST_SAID]) + more if said else "no layer has a value"
