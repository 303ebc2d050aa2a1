"""The few numbers of a run that a person looks at first, on the page and in the terminal."""

__all__ = ["Tile", "headline", "remarks", "summary_table"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_ssl_geometry.report.array_panels import known_arrays
from lightning_ssl_geometry.report.evaluation import evaluation_groups, feature_name, is_chosen, shown_accuracy
from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, lookup, split
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.numbers import number, percent, points
from lightning_ssl_geometry.report.panel import layer_name, natural_order
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.scalar_panels import matching
from lightning_ssl_geometry.report.seen import BOUNDED, at_most

if TYPE_CHECKING:
    from rich.table import Table

_SPECTRA = {"effective_rank_h": "spectrum_h", "effective_rank_z": "spectrum_z", "projector_rank": "projector_spectrum"}
_BASELINES = {
    "unexplained_variance": ("unexplained_variance_isotropic", "isotropic"),
    "label_agreement": ("label_agreement_chance", "chance"),
    "non_empty": ("non_empty_uniform", "uniform"),
    "latent_r2_style_z": ("latent_r2_content_z", "content"),
}


@dataclass(frozen=True)
class Tile:
    """A headline number.

    Attributes:
        name: What it is.
        value: The number.
        of: What it is out of, small behind it.
        remark: Below it.
    """

    name: str
    value: str
    of: str = ""
    remark: str = ""


def headline(run: Run) -> list[Tile]:
    """Choose what there is of: gain over the frozen network, probes, ranks, loss, what the papers track."""
    keys: tuple[str, ...] = (
        "linear_probe",
        "knn_probe",
        "effective_rank_h",
        "effective_rank_z",
        "projector_rank",
        "loss",
    )
    keys += ("lidar", "alpha_req", "intrinsic_dimension_two_nn") if run.is_diagnosis else ()
    keys += ("unexplained_variance", "label_agreement", "non_empty", "gaussian_potential_image", "latent_r2_style_z")
    return [*_gains(run), *(tile for key in keys if (tile := _tile(run, key)))]


def summary_table(run: Run | str | Path) -> "Table":
    """Make a table for the terminal: first, best and last value of each known scalar, and the linear evaluation.

    Args:
        run: A run that was read, or its folder.

    Raises:
        FileNotFoundError: If the folder does not exist.
        ValueError: If it is no run.

    >>> import numpy as np
    >>> from lightning_ssl_geometry.report.logs import Series
    >>> series = Series("val/loss", np.arange(3.0), np.arange(3.0), np.array([4.0, 2.5, 3.0]))
    >>> summary_table(Run(Path("."), "run", scalars={"val/loss": series})).row_count
    1
    """
    from rich.table import Table
    from rich.text import Text

    read = run if isinstance(run, Run) else read_run(run)
    table = Table(title=Text(read.name), title_justify="left", title_style="bold")
    table.add_column("")
    columns = ("value",) if read.is_diagnosis else ("first", "best", "last")
    for column in columns:
        table.add_column(column, justify="right")
    for entry in ENTRIES.values():
        for series in matching(read, entry):
            *rest, last = _summary(series, entry)[-len(columns) :]
            table.add_row(Text(series.name), *rest, last + _bound(read, series))
    for heading, rows in evaluation_groups(read).items():
        table.add_section()
        table.add_row(Text(f"linear evaluation, {heading}", style="dim"))
        for row in rows:
            style = "bold" if is_chosen(row.features) else ""
            name, accuracy = (
                Text(text, style=style) for text in (f"  {feature_name(row.features)}", shown_accuracy(row))
            )
            table.add_row(name, *[""] * (len(columns) - 1), accuracy)
    return table


def remarks(run: Run, most: int = 8) -> str:
    """Write for the terminal what the page says of files that are missing or could not be read, a line each.

    Args:
        run: A run that was read.
        most: How many of them are written.

    >>> print(remarks(Run(Path("."), "run", notes=("a is missing.", "b is empty.")), most=1))
    a is missing.
    1 more of these is on the page.
    """
    left = len(run.notes) - most
    more = [f"{left} more of these {'is' if left == 1 else 'are'} on the page."] if left > 0 else []
    return "\n".join([*(plain(note, 1_000) for note in run.notes[:most]), *more])


def _summary(series: Series, entry: Entry) -> tuple[str, str, str]:
    value = series.value[series.finite]
    if not len(value):
        return "NaN", "", "NaN"
    show = percent if entry.percent else number
    best = ""
    if entry.best:
        at = int(value.argmin() if entry.best == "low" else value.argmax())
        best = f"{show(float(value[at]))} (epoch {series.epoch[series.finite][at]:.0f})"
    return show(float(value[0])), best, show(float(series.value[-1]))


def _bound(run: Run, series: Series) -> str:
    """What the rows of the last readout leave a rank at most, where they bound it."""
    entry = lookup(series.name)
    most = (at_most(run, split(series.name)[0], key) for key in BOUNDED if ENTRIES[key] is entry)
    return next((f" (at most {each:,} here)" for each in most if each is not None), "")


def _gains(run: Run) -> list[Tile]:
    """What training added under one linear classifier, in points, for each number of labels."""
    tiles = []
    for heading, rows in evaluation_groups(run).items():
        by_name = {row.features: row.accuracy for row in rows}
        if {"trained", "frozen"} <= by_name.keys():
            gain = points(by_name["trained"] - by_name["frozen"])
            order = [f"{name} {percent(by_name[name])}" for name in ("trained", "frozen", "pixels") if name in by_name]
            tiles.append(Tile(f"Trained over frozen, {heading}", gain, "points", ", ".join(order)))
        elif "trained" in by_name:
            pixels = f"raw pixels {percent(by_name['pixels'])}" if "pixels" in by_name else ""
            tiles.append(Tile(f"Linear evaluation, {heading}", percent(by_name["trained"]), "", pixels))
        if "head, learned" in by_name:
            beside = {"f": "f, learned", "uniform weights": "head, uniform", "pixels": "pixels"}
            remark = ", ".join(f"{word} {percent(by_name[name])}" for word, name in beside.items() if name in by_name)
            title = f"Linear evaluation of the head, {heading}"
            tiles.append(Tile(title, percent(by_name["head, learned"]), "", remark))
    return tiles


def _tile(run: Run, key: str) -> Tile | None:
    """The last value on validation data if there is one, else on the first data there is; of layers, the last."""
    entry = ENTRIES[key]
    found = [series for series in matching(run, entry) if series.finite.any()]
    if not found:
        return None
    found = [series for series in found if split(series.name)[0] == "val"] or found
    series = max(found, key=lambda each: natural_order(split(each.name)[1])) if key == "projector_rank" else found[0]
    stage, base = split(series.name)
    show = percent if entry.percent else number
    value = series.value[series.finite]
    remark = [stage] if run.is_diagnosis else [stage, f"from {show(float(value[0]))}"]
    remark += [f"best {show(float(value.max()))}"] if entry.best == "high" and not run.is_diagnosis else []
    remark += [_beside(run, key, stage, show)] if key in _BASELINES else []
    layer = base.removeprefix(key).removeprefix("_") if key == "projector_rank" else ""
    title = f"{entry.title}, {layer_name(layer)}" if layer else entry.title
    of = _bound(run, series).strip(" ()") or _of(run, key, layer)
    return Tile(title, show(float(series.value[-1])), of, ", ".join(filter(None, remark)))


def _beside(run: Run, key: str, stage: str, show: Callable[[float], str]) -> str:
    """What the number would be without structure, on the same data."""
    baseline, name = _BASELINES[key]
    found = [series for series in matching(run, ENTRIES[baseline]) if split(series.name)[0] == stage]
    return f"{name} {show(float(found[0].value[-1]))}" if found else ""


def _of(run: Run, key: str, layer: str) -> str:
    """The most that a rank can be: how many singular values there are."""
    arrays = known_arrays(run, _SPECTRA[key]) if key in _SPECTRA else []
    sizes = [array.values.shape[1] for array in arrays if array.name.endswith(f"_{layer}" if layer else "")]
    return f"of {sizes[0]}" if sizes else ""
