"""Figures of layers: each quantity from the representation to the embedding, and how alike layers and models are."""

__all__ = ["column_title", "layer_quantities", "layer_quantity_comparisons", "layer_table", "similarity_panel"]

from collections.abc import Sequence
from functools import partial

import numpy as np

from lightning_ssl_geometry.plots import Caption, Curve, curves, matrix
from lightning_ssl_geometry.report.comparison_lines import Lines, counted
from lightning_ssl_geometry.report.download import Numbers, download, layer_numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, lookup, split
from lightning_ssl_geometry.report.groups import Group, average
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.layers import Layers
from lightning_ssl_geometry.report.logs import Floats, Readouts, Snapshot
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.panel import Panel, printable
from lightning_ssl_geometry.report.run import Run

_LONGEST = 14  # letters of a layer's name below an axis
_SHORT = {  # what the monitor's names of columns are called in the glossary
    "alpha_req_alpha": "alpha_req",
    "intrinsic_dimension_two_nn": "two_nn",
    "intrinsic_dimension_mle": "mle_dimension",
    "label_agreement_fine": "label_agreement",
    "knn_probe_accuracy": "knn_accuracy",
    "linear_probe_accuracy": "linear_accuracy",
}
_TABLE_ONLY = ("_r2", "_first", "_last", "_chance")  # endings of what says how to read another column
_ENDS = {"first": "First eigenvalue fitted", "last": "Last eigenvalue fitted"}
_PLACE = "layer, from the representation to the embedding"


def layer_quantities(run: Run) -> list[Panel | None]:
    """Draw one figure per quantity over the layers, and the map of their similarities."""
    drawn = [_quantity(run.layers, column) for column in _drawn(run.layers)] if _several(run) and run.layers else []
    return [*drawn, *(_similarity(run, snapshot) for snapshot in _maps(run))]


def layer_quantity_comparisons(groups: Sequence[Group], titled: bool) -> list[Panel | None]:
    """Draw the same for groups; layers stand where they are in their own model."""
    found = [run.layers for group in groups for run in group.runs if run.layers]
    if not any(_several(run) for group in groups for run in group.runs):
        return []
    columns = dict.fromkeys(column for layers in found for column in _drawn(layers))
    return [_comparison(groups, column, titled) for column in columns]


def layer_table(run: Run, key: str) -> Html | None:
    """Write all numbers of layers; None if there are not several.

    Args:
        run: The run.
        key: Of the file's name, to save them.
    """
    if run.layers is None or not _several(run):
        return None
    layers = run.layers
    columns = [("width", layers.width, number)]
    columns += [
        (column_title(name), values, percent if _is_percent(name) else number) for name, values in layers.values.items()
    ]
    columns = [column for column in columns if np.isfinite(column[1]).any()]
    head = element(
        "tr", element("th", "layer", scope="col"), *(element("th", name, scope="col") for name, *_ in columns)
    )
    rows = [
        element("tr", element("th", name, scope="row"),
                *(element("td", show(float(values[row])) if np.isfinite(values[row]) else "\N{EN DASH}")
                  for _, values, show in columns))
        for row, name in enumerate(layers.names)
    ]  # fmt: skip
    table = element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide layers")
    return element("div", table, element("p", download(f"{key}-layers", layer_numbers(layers), "Save as CSV")))


def similarity_panel(names: Sequence[str], values: Floats, titled: bool = False) -> Panel:
    """Draw how alike models are.

    Raises:
        ValueError: If there is no model, or `values` is no (M, M).
    """
    return _matrix("model_cka", names, values, (), titled)


def _maps(run: Run) -> list[Snapshot]:
    found = [snapshot for name, snapshot in run.snapshots.items() if lookup(name) is ENTRIES["layer_cka"]]
    return [each for each in found if each.values.ndim == 2 and each.values.shape[0] == each.values.shape[1] > 1]


def _several(run: Run) -> bool:
    return run.layers is not None and len(run.layers.names) > 1


def _similarity(run: Run, snapshot: Snapshot) -> Panel:
    count = len(snapshot.values)
    known = run.layers.names if run.layers and len(run.layers.names) == count else None
    remark = "" if known else f"layers.csv does not name these {count} layers."
    names = known or tuple(f"layer {place}" for place in range(1, count + 1))
    return _matrix("layer_cka", names, snapshot.values, (split(snapshot.name)[0],), remark=remark)


def _matrix(
    key: str, names: Sequence[str], values: Floats, stages: tuple[str, ...], titled: bool = False, remark: str = ""
) -> Panel:
    entry, caption = ENTRIES[key], Caption(ENTRIES[key].title if titled else "")
    figure = matrix([printable(name, 20) for name in names], values, meaning="CKA", caption=caption)
    pairs = [(names[a], names[b], float(values[a, b])) for a, b in np.ndindex(*values.shape) if a < b]
    said = "; ".join(f"{a} and {b} {number(value)}" for a, b, value in pairs[:20]) or f"{names[0]} alone"
    rows = [(names[a], names[b], float(values[a, b])) for a, b in np.ndindex(*values.shape)]
    numbers = Numbers(("row", "column", "cka"), rows)
    return Panel(key, entry.title, figure, f"{entry.title}: {said}.", (entry,), stages, remark=remark, numbers=numbers)


def _quantity(layers: Layers, column: str) -> Panel:
    scale, show = (100.0, percent) if _is_percent(column) else (1.0, number)
    values = layers.values[column]
    ends = np.flatnonzero(np.isfinite(values))
    rows = zip(layers.names, layers.width, values, strict=True)
    tips = [f"{printable(name, 40)}{_dimensions(width)}: {scale * value:.5g}" for name, width, value in rows]
    last = show(float(values[ends[-1]]))
    line = Curve(last, np.arange(float(len(values))), scale * values, "blue", tips=tips)
    names = [printable(name, _LONGEST) for name in layers.names]
    figure = curves([line], xlabel=_PLACE, ylabel=_ylabel(column), names=names)
    said = "; ".join(f"{layers.names[at]} {show(float(values[at]))}" for at in ends)
    rows_ = list(zip(layers.names, layers.width, values, strict=True))
    numbers, title = Numbers(("layer", "width", column), rows_), _title(column)
    return Panel(f"layers_{_known(column)}", title, figure, f"{title}: {said}.", _entries(column),
                 remark=_fitted(layers, column), numbers=numbers)  # fmt: skip


def _drawn(layers: Layers) -> list[str]:
    return [column for column in layers.values if not column.endswith(_TABLE_ONLY)]


def _fitted(layers: Layers, column: str) -> str:
    """Which eigenvalues an exponent is fitted to, where the file says so."""
    ends = [layers.values.get(f"{column.removesuffix('_alpha')}_{end}") for end in ("first", "last")]
    if _known(column) != "alpha_req" or ends[0] is None or ends[1] is None:
        return ""
    ranges = dict.fromkeys(zip(ends[0], ends[1], strict=True))
    listed = ", ".join(f"{first:.0f} to {last:.0f}" for first, last in ranges)
    return f"Fitted to eigenvalues {listed}{', layer by layer' if len(ranges) > 1 else ''}."


def _comparison(groups: Sequence[Group], column: str, titled: bool) -> Panel | None:
    found = {group.name: average(group, partial(_row, column=column)) for group in groups}
    lines = Lines(notes=[counted(found)])
    scale, show = (100.0, percent) if _is_percent(column) else (1.0, number)
    for group in groups:
        if (each := found[group.name]) and np.isfinite(each.mean[0]).any():
            y, std = each.mean[0], None if each.std is None else scale * each.std[0]
            last = show(float(y[np.isfinite(y)][-1]))
            lines.add(group, np.arange(float(len(y))), scale * y, std, value=last)
            lines.said.append(f"{group.name} ends at {last}")
    if not lines.curves:
        return None
    names = _shared_names([run.layers.names for group in groups for run in group.runs if run.layers])
    title = _title(column)
    figure = lines.draw(title if titled else "", xlabel=_PLACE, ylabel=_ylabel(column), names=names)
    return Panel(f"layers_{_known(column)}", title, figure, f"{title}: {'; '.join(lines.said)}.", _entries(column),
                 numbers=lines.numbers("layer's place"))  # fmt: skip


def _row(run: Run, column: str) -> Readouts | None:
    if run.layers is None or column not in run.layers.values:
        return None
    return Readouts(f"layers/{column}", np.zeros(1), np.zeros(1), run.layers.values[column][None])


def _shared_names(found: Sequence[Sequence[str]]) -> list[str]:
    """Name each place as all do that have it, else by its number from 1."""
    places = [{names[place] for names in found if place < len(names)} for place in range(max(map(len, found)))]
    return [
        printable(next(iter(names)), _LONGEST) if len(names) == 1 else f"{place}"
        for place, names in enumerate(places, start=1)
    ]


def _entries(column: str) -> tuple[Entry, ...]:
    key = f"layer_{_known(column)}"
    return (ENTRIES[key],) if key in ENTRIES else ()


def _known(column: str) -> str:
    return _SHORT.get(column, column)


def column_title(column: str) -> str:
    """What a column of layers.csv is called at the head of a table."""
    return _ENDS.get(column.removeprefix("alpha_req_"), _title(column).replace(" by layer", ""))


def _title(column: str) -> str:
    entry = next(iter(_entries(column)), None) or lookup(column)
    return entry.title if entry else printable(column.replace("_", " "), 40)


def _is_percent(column: str) -> bool:
    return column.endswith("accuracy") or column.startswith("label_agreement")


def _ylabel(column: str) -> str:
    units = {"effective_rank": "directions", "alpha_req": "exponent", "two_nn": "dimensions"}
    units |= {"mle_dimension": "dimensions", "alignment": "mean squared distance"}
    if _is_percent(column):
        return "accuracy, %" if column.endswith("accuracy") else "samples, %"
    return units.get(_known(column), printable(_title(column).replace(" by layer", "").lower(), 30))


def _dimensions(width: float) -> str:
    return f" ({width:g} dimensions)" if np.isfinite(width) else ""
