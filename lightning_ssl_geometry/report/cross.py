"""Similarities between models, and between the layers of two models."""

__all__ = ["LayerSimilarity", "cross_panel", "model_panel"]

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from lightning_ssl_geometry.plots import cross_matrix
from lightning_ssl_geometry.quantity import Paper, Quantity
from lightning_ssl_geometry.report.download import listed
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.members import printable
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.side_by_side import distinct
from lightning_ssl_geometry.report.stills import similarity_panel

_LONGEST, _MOST_SAID = 18, 20  # letters of a layer's name, layers in the text
_NGUYEN = Paper(
    "Nguyen et al. 2021",
    "Do Wide and Deep Networks Learn the Same Things? Uncovering How Neural Network Representations Vary with Width "
    "and Depth",
    "2010.15327",
)
_MODELS = Quantity(
    title="CKA between models",
    text="Unbiased linear CKA between the models' representations of the same samples. It is 0 on average for "
    "unrelated representations, whatever their widths and the number of samples.",
    low="Near 0, or below: no more in common than by chance.",
    high="Near 1: the same representation up to rotation and scale, whatever its width.",
    paper=_NGUYEN,
    where="Eq. 3",
    unit="CKA",
)
_LAYERS = replace(
    _MODELS,
    title="CKA between the layers of two models",
    text="Unbiased linear CKA between each layer of one model (rows) and each layer of the other (columns), for the "
    "same samples. The first layers are at the lower left. The first model of the page is compared with each other "
    "one.",
)


@dataclass(frozen=True, eq=False)
class LayerSimilarity:
    """Unbiased linear CKA between each layer of one model and each layer of another one, on the same samples.

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


def model_panel(names: Sequence[str], values: Floats, chance: float | None = None) -> Panel:
    """Draw the similarities (M, M) between M models. `chance` is that of :func:`write_comparison`.

    Raises a ValueError if the shape of the values is not that of the names.
    """
    found = np.asarray(values, dtype=np.float64)
    if not len(names) or found.shape != (len(names), len(names)):
        raise ValueError(
            f"Expected `similarity` with values of shape ({len(names)}, {len(names)}) for its {len(names)} names, but "
            f"got {found.shape}."
        )
    return similarity_panel(_MODELS, names, found, remark=_by_chance(chance))


def cross_panel(found: LayerSimilarity, place: int, chance: float | None = None) -> Panel:
    """Draw the similarities between the layers of two models. `place` numbers the figures of a page from 1.

    `chance` is that of :func:`write_comparison`. Raises a ValueError if the shape of the values is not that of the
    names.
    """
    first, second = (printable(name, 40) for name in (found.first, found.second))
    rows, columns = (distinct(names, _LONGEST) for names in (found.rows, found.columns))
    figure = cross_matrix(
        rows, columns, found.values, ylabel=f"layers of {first}", xlabel=f"layers of {second}", meaning="unbiased CKA"
    )
    title = f"CKA between the layers of {first} and {second}"
    parts = [((row,), (found.columns, values)) for row, values in zip(found.rows, found.values, strict=True)]
    numbers = listed((f"layer of {found.first}", f"layer of {found.second}", "unbiased linear CKA"), parts)
    name, label = f"between_layers_{place}", f"{title}: {_said(found)}."
    return Panel(name, title, figure, label=label, numbers=numbers, about=[_LAYERS], remark=_by_chance(chance))


def _by_chance(deviation: float | None) -> str:
    if deviation is None:
        return ""
    return (
        f"By chance, the value is 0 ± {number(deviation)}: mean and standard deviation over all orders of the samples "
        "of one of the models."
    )


def _said(found: LayerSimilarity) -> str:
    """Return in words which layer of the second model is most similar to each layer of the first."""
    said = []
    for name, values in zip(found.rows, found.values, strict=True):
        if np.isfinite(values).any():
            best = int(np.nanargmax(values))
            said.append(f"{name} is most similar to {found.columns[best]}, {number(float(values[best]))}")
    more = f"; and {len(said) - _MOST_SAID} more layers" if len(said) > _MOST_SAID else ""
    return "; ".join(said[:_MOST_SAID]) + more if said else "no layer has a value"
