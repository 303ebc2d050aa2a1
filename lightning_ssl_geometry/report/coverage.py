"""What groups of runs do not have in common: diagnostics that some lack, arrays of another width, missing layers."""

__all__ = ["coverage_table", "odd_widths"]

from collections.abc import Mapping, Sequence
from pathlib import Path

from lightning_ssl_geometry.report.glossary import ENTRIES, lookup
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.layer_panels import column_title
from lightning_ssl_geometry.report.run import Run


def coverage_table(groups: Sequence[Group]) -> Html | None:
    """Write which group has which quantities, for those that not all runs have; None if all have the same."""
    runs = {run.folder: _held(run) for group in groups for run in group.runs}
    everything = dict.fromkeys(quantity for held in runs.values() for quantity in held)
    partial = [each for each in everything if not all(each in held for held in runs.values())]
    if not partial:
        return None
    ordered = sorted(partial, key=lambda each: _ORDER.get(each, len(_ORDER)))
    names = (element("th", group.name, scope="col") for group in groups)
    head = element("tr", element("th", "quantity", scope="col"), *names)
    rows = [
        element("tr", element("th", each, scope="row"), *(element("td", _cell(group, runs, each)) for group in groups))
        for each in ordered
    ]
    table = element("div", element("table", element("thead", head), element("tbody", *rows)), class_="wide layers")
    shared = len(everything) - len(partial)
    what = f"Quantities that not all runs have; {shared} more {'is' if shared == 1 else 'are'} in all of them."
    return element("section", element("h2", "Who has what"), element("p", what, class_="absent"), table, id="coverage")


def odd_widths(groups: Sequence[Group]) -> list[str]:
    """Say where the runs of one group have arrays, or layers, of different lengths: a mean over them is none."""
    said = []
    for group in groups:
        for name in dict.fromkeys(name for run in group.runs for name in run.arrays):
            widths = {run.name: run.arrays[name].values.shape[1] for run in group.runs if name in run.arrays}
            said += _odd(group, name, widths, "values")
        said += _odd(
            group, "layers.csv", {run.name: len(run.layers.names) for run in group.runs if run.layers}, "layers"
        )
    return said


def _odd(group: Group, name: str, widths: Mapping[str, int], unit: str) -> list[str]:
    if len(set(widths.values())) < 2:
        return []
    listed = ", ".join(f"{width} in {run}" for run, width in widths.items())
    return [f"{group.name}: {name} has {listed} {unit}; figures average the runs that are like the first."]


def _held(run: Run) -> set[str]:
    """Quantities by their titles, and what the glossary does not know by its name."""
    names = [name for name, series in run.scalars.items() if series.finite.any()]
    found = {entry.title for name in (*names, *run.arrays, *run.snapshots) if (entry := lookup(name))}
    found |= {ENTRIES["linear_evaluation"].title} if run.evaluations else set()
    return found | ({f"{column_title(column)}, of layers" for column in run.layers.values} if run.layers else set())


def _cell(group: Group, runs: Mapping[Path, set[str]], quantity: str) -> str:
    have = sum(quantity in runs[run.folder] for run in group.runs)
    if have in (0, len(group.runs)):
        return "yes" if have else "\N{EN DASH}"
    return f"{have} of {len(group.runs)}"


_ORDER = {entry.title: place for place, entry in enumerate(ENTRIES.values())}
