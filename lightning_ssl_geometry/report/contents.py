"""The texts and tables of a report page: header, headline, notes, tables, settings, papers."""

__all__ = ["Reading", "comparison_contents", "evaluation_table", "layer_table", "readings_of", "run_contents"]

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lightning_ssl_geometry.quantity import SECTIONS, Quantity
from lightning_ssl_geometry.report.download import layer_numbers, listed, saved, series_numbers
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.evaluation import (
    evaluated,
    evaluation_groups,
    feature_name,
    is_chosen,
    shown_accuracy,
    sizes,
)
from lightning_ssl_geometry.report.facts import different_data, facts, shared_facts, weights
from lightning_ssl_geometry.report.figures import View, in_order, section_of
from lightning_ssl_geometry.report.groups import Average, Group, notes_on_time
from lightning_ssl_geometry.report.headline import bound, headline, null_beside
from lightning_ssl_geometry.report.history import Resumption
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.members import is_scalar, members, series_of
from lightning_ssl_geometry.report.numbers import moment, number, percent, with_error
from lightning_ssl_geometry.report.panel import Panel, filled, shown
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.standings import differences_table, standings_table
from lightning_ssl_geometry.report.table import Table
from lightning_ssl_geometry.report.tracks import mean_of, shared_stage
from lightning_ssl_geometry.report.verdicts import findings, shared_findings
from lightning_ssl_geometry.report.words import words

_NONE = "\N{EN DASH}"
_GRAVE = ("not a finite number", "This run failed", "Not drawn", "has two meanings")
_STATUSES = ("finished", "running", "interrupted", "failed")
_OF_SOME_PAGES = (
    "status", "groups", "tiles", "layers", "evaluation", "evaluated", "standings", "coverage", "figure_of", "findings",
    "looked_for", "shared", "several", "advice",
)  # fmt: skip
_OF_MEANS = (
    "not a finite number", "left out", "the newest of", "saw few samples", "could not be read", "of one name",
    "were read", "shown as infinite", "leave them out", "no finite number", "This run failed", "has two meanings",
)  # fmt: skip


_IN_WORDS = {
    "objective": "loss of the training step",
    "world_size": "processes",
    "from_step": "continued at",
    "parts": "trained in parts",
}


@dataclass(frozen=True)
class Reading:
    """A number and its meaning."""

    name: str
    value: str
    beside: str  # the greatest possible value, and the value of data without structure
    quantity: Quantity | None  # None for an undeclared log
    remark: str = ""  # how the number was found in this run


@dataclass(frozen=True)
class Made:
    """The settings of a run, as a table of names and values, and as the text of config.yaml."""

    name: str
    rows: Mapping[str, str]
    config: str | None


def run_contents(view: View, drawn: Mapping[str, Sequence[Panel]], drawings: Drawings) -> dict[str, Any]:
    """Return the texts and tables of the page of one run, by name."""
    run = view.runs[0]
    status = str(run.info.get("status") or "unknown")
    found, readings = findings(run), readings_of(view) if view.once else {}
    contents = _contents(view, drawn, drawings, notes=[*run.notes, *found.caveats], readings=readings)
    papers = [*contents["papers"], *(each.paper for each in found.shown if each.paper)]
    return contents | {
        "papers": list(dict.fromkeys(papers)),
        "findings": found.shown,
        "looked_for": found.absent,
        "heading": f"Diagnosis of {run.info.get('model') or run.name}" if run.is_diagnosis else run.name,
        "status": (status if status != "unknown" else "status unknown", status if status in _STATUSES else "unknown"),
        "facts": facts(run),
        "tiles": headline(run),
        "figure_of": _figures_by_log(drawn),
        "layers": layer_table(run),
        "evaluation": evaluation_table(run),
        "evaluated": evaluated(view),
        "values": _values(run),
        "made": [_made(run)],
    }


def _figures_by_log(drawn: Mapping[str, Sequence[Panel]]) -> dict[str, str]:
    panels = [panel for held in drawn.values() for panel in held]
    return {name: panel.name for panel in reversed(panels) for member in panel.members
            for held in member.names.values() for name in held.values()}  # fmt: skip


def comparison_contents(
    view: View, title: str, drawn: Mapping[str, Sequence[Panel]], drawings: Drawings
) -> dict[str, Any]:
    """Return the texts and tables of a page that compares groups of runs, by name."""
    shared, absent = shared_findings(view.groups)
    notes = [*filter(None, [different_data(view.grouped)]), *_notes_on_means(view)]
    notes += [*notes_on_time(view.groups, view.by_epochs), *_odd_widths(view)]
    notes += [caveat for each in shared for caveat in each.caveats]
    contents = _contents(view, drawn, drawings, notes=notes, readings={})
    papers = [*contents["papers"], *(found.paper for each in shared for _, found in each.shown if found.paper)]
    return contents | {
        "papers": list(dict.fromkeys(papers)),
        "shared": shared if any(each.shown for each in shared) else None,
        "several": any(len(group.runs) > 1 for group in view.groups),
        "looked_for": absent,
        "figure_of": _figures_by_log(drawn),
        "heading": title,
        "groups": [(group.name, group.color, _made_of(group)) for group in view.groups],
        "facts": shared_facts(view.runs),
        "standings": [table for table in (standings_table(view), differences_table(view)) if table],
        "values": _scalars_by_group(view, title),
        "coverage": _coverage(view),
        "made": [_made(run, f"{group.name}: {run.folder.resolve()}") for group, run in view.grouped],
    }


def _contents(
    view: View,
    drawn: Mapping[str, Sequence[Panel]],
    drawings: Drawings,
    notes: Sequence[str],
    readings: Mapping[str, Sequence[Reading]],
) -> dict[str, Any]:
    quantities = [quantity for panels in drawn.values() for panel in panels for quantity in panel.quantities]
    quantities += [reading.quantity for held in readings.values() for reading in held if reading.quantity]
    return dict.fromkeys(_OF_SOME_PAGES) | {
        "notes": [(note, any(part in note for part in _GRAVE)) for note in [*notes, *drawings.lost]],
        "left_out": drawings.left_out,
        "words": words(view),
        "readings": readings,
        "order": in_order(name for held in (drawn, readings) for name, each in held.items() if each),
        "headings": SECTIONS | ({"learning": "Loss"} if view.once else {}),
        "papers": list(dict.fromkeys(quantity.paper for quantity in quantities if quantity.paper)),
    }


def _notes_on_means(view: View) -> list[str]:
    said: dict[str, list[tuple[Group, Run]]] = {}
    for group, run in view.grouped:
        for note in run.notes:
            if any(part in note for part in _OF_MEANS):
                said.setdefault(note, []).append((group, run))
    return [f"{_named(runs) if len(runs) < len(view.runs) else 'All runs'}: {note}" for note, runs in said.items()]


def _named(runs: Sequence[tuple[Group, Run]]) -> str:
    held: dict[str, tuple[Group, list[str]]] = {}
    for group, run in runs:
        held.setdefault(group.name, (group, []))[1].append(run.name)
    names = (name if len(own) == len(group.runs) else f"{name} ({', '.join(own)})"
             for name, (group, own) in held.items())  # fmt: skip
    return "; ".join(names)


def readings_of(view: View) -> dict[str, list[Reading]]:
    """Return the last value of each scalar of a single run with its meaning, by section."""
    run, found = view.runs[0], dict[str, list[Reading]]()
    for member in members(view.runs):
        quantity, (_, show) = member.quantity, shown(member.quantity)
        if quantity.baseline or member.role or not quantity.shown:
            continue
        for series in series_of(run, member):
            stage = f", {series.name.partition('/')[0]}" if len(member.names[0]) > 1 else ""
            beside = [bound(run, series.name).strip(" ()"), null_beside(run, member, series.name, show=show)]
            reading = Reading(
                f"{member.title}{stage}", show(float(series.value[-1])), ", ".join(filter(None, beside)),
                quantity=quantity if member.declared else None, remark=filled(run, member, series.name),
            )  # fmt: skip
            found.setdefault(section_of(member, view.runs), []).append(reading)
    return found


def layer_table(run: Run) -> Table | None:
    """Return layers.csv as a table, or None if there are not several layers."""
    if run.layers is None or len(run.layers.names) < 2:
        return None
    layers, columns = run.layers, []
    for name, values in {"width": layers.width, **layers.values}.items():
        known = run.declared.get(f"layers/{name}")
        show = shown(known.quantity)[1] if known else number
        title = (known.quantity.short or known.quantity.title) if known else name.replace("_", " ")
        cells = [show(float(value)) if np.isfinite(value) else _NONE for value in values]
        columns += [(title, cells)] if np.isfinite(values).any() else []
    rows = [[name, *(cells[row] for _, cells in columns)] for row, name in enumerate(layers.names)]
    header = ["layer", *(title for title, _ in columns)]
    return Table(header, rows, saved=saved(f"{run.name}-layers", layer_numbers(layers)), look="layers")


def evaluation_table(run: Run) -> Table | None:
    """Return the accuracies of the linear evaluation as a table, or None if there are none."""
    groups = evaluation_groups(run)
    if not groups:
        return None
    cells = {(row.features, name): shown_accuracy(row) for name, rows in groups.items() for row in rows}
    features = list(dict.fromkeys(feature for feature, _ in cells))
    rows = [[feature_name(feature), *(cells.get((feature, name), _NONE) for name in groups)] for feature in features]
    chosen = [place for place, feature in enumerate(features) if is_chosen(feature)]
    return Table(["features", *groups], rows, chosen, remark=sizes(run))


def _values(run: Run) -> dict[str, Any] | None:
    if not run.scalars:
        return None
    header = ["scalar", "value"] if run.is_diagnosis else ["scalar", "first", "lowest", "highest", "last", "readouts"]
    what = "Value" if run.is_diagnosis else "First, lowest, highest and last value"
    rest = "Arrays over all readouts are in the run's folder, in geometry/." if run.arrays else ""
    table = Table(header, [_row(series, run.is_diagnosis) for series in run.scalars.values()],
                  saved=saved(f"{run.name}-scalars", series_numbers(run.scalars.values())), remark=rest,
                  look="short" if run.is_diagnosis else "numbers")  # fmt: skip
    summary = f"{what} of {len(run.scalars)} scalar{'s' * (len(run.scalars) != 1)}"
    return {"heading": "All numbers", "summary": summary, "table": table, "groups": [], "columns": 1}


def _row(series: Series, last: bool) -> list[str]:
    value, length = series.value[series.finite], len(series.value)
    shown_ = (value[0], value.min(), value.max(), series.value[-1]) if len(value) else (float("nan"),) * 4
    cells = [number(float(cell)) for cell in (shown_[-1:] if last else shown_)]
    readouts = f"{length:,}" if len(value) == length else f"{len(value):,} of {length:,}"
    return [series.name, *cells, *([] if last else [readouts])]


def _scalars_by_group(view: View, title: str) -> dict[str, Any] | None:
    once, rows, parts = view.once, [], []
    for member in members(view.runs, last_layers=True):
        stage = shared_stage([member], view) if is_scalar(member, view.runs) and member.declared else None
        if stage is None:
            continue
        means = [(group, mean_of(member, group, stage, view=view)) for group in view.groups]
        name = " or ".join(dict.fromkeys(held[stage] for held in member.names.values() if stage in held))
        places = (-1,) if once else (0, -1)
        rows.append([name, *(_value(mean, place, member.quantity) for _, mean in means for place in places)])
        for group, mean in means:
            if mean is not None:
                runs = [mean.runs] * len(mean.step)
                parts.append(((group.name, mean.name), (mean.when(view.by_epochs), mean.mean, mean.spread, runs)))
    if not rows:
        return None
    several = any(len(group.runs) > 1 for group in view.groups)
    what = "Mean ± standard deviation over the runs of a group. " if several else ""
    what += "" if once else "At the first and the last moment that runs of a group share."
    numbers = listed(("group", "scalar", view.time_label, "mean", "standard deviation", "runs"), parts)
    header = ["scalar", *([] if once else ["first", "last"] * len(view.groups))]
    table = Table(header, rows, saved=saved(f"{title}-scalars", numbers), remark=what.strip(), look="cards compared")
    names = [(group.name, group.color) for group in view.groups]
    return {"heading": "Values" if once else "First and last values", "summary": "", "table": table, "groups": names,
            "columns": 1 if once else 2}  # fmt: skip


def _value(mean: Average | None, place: int, quantity: Quantity) -> str:
    if mean is None or not len(mean.step):
        return _NONE
    value, std = float(mean.mean[place]), float(mean.spread[place])
    if np.isfinite(std):
        return with_error(value, std, is_percent=quantity.percent)
    return percent(value) if quantity.percent else number(value)


def _coverage(view: View) -> Table | None:
    every = members(view.runs, last_layers=True)
    found = {each.title: set(each.names) for each in every if not each.quantity.baseline and not each.role}
    partial = {title: places for title, places in found.items() if len(places) < len(view.runs)}
    if not partial:
        return None
    rows = []
    for title, places in partial.items():
        counts = [sum(view.place(run) in places for run in group.runs) for group in view.groups]
        cells = [("yes" if have else _NONE) if have in (0, len(group.runs)) else f"{have} of {len(group.runs)}"
                 for have, group in zip(counts, view.groups, strict=True)]  # fmt: skip
        rows.append([title, *cells])
    shared = len(found) - len(partial)
    what = f"Quantities that not all runs have; {shared} more {'is' if shared == 1 else 'are'} in all of them."
    return Table(["quantity", *(group.name for group in view.groups)], rows, remark=what, look="layers")


def _odd_widths(view: View) -> list[str]:
    said = []
    for group in view.groups:
        for name in dict.fromkeys(name for run in group.runs for name in run.arrays):
            widths = {run.name: run.arrays[name].values.shape[1] for run in group.runs if name in run.arrays}
            said += _odd(group, name, widths, unit="values")
        held = {run.name: len(run.layers.names) for run in group.runs if run.layers}
        said += _odd(group, "layers.csv", held, unit="layers")
    return said


def _odd(group: Group, name: str, widths: Mapping[str, int], unit: str) -> list[str]:
    if len(set(widths.values())) < 2:
        return []
    listed = ", ".join(f"{width} in {run}" for run, width in widths.items())
    return [f"{group.name}: {name} has {listed} {unit}; figures average the runs that are like the first."]


def _made_of(group: Group) -> str:
    if len(group.runs) == 1 and group.runs[0].is_diagnosis and (said := weights(group.runs[0], short=True)):
        return said
    return f"{len(group.runs)} run{'s' * (len(group.runs) > 1)}"


def _made(run: Run, name: str = "") -> Made:
    rows = {"folder": str(run.folder.resolve())}
    rows |= {f"resumed ({n})": _resumed(entry) for n, entry in enumerate(run.resumed, 1)}
    known = {key: value for key, value in run.info.items() if value is not None and key != "kind"}
    if known.get("world_size") == 1:
        del known["world_size"]
    rows |= {_IN_WORDS.get(key, key.replace("_", " ")): _written(key, value) for key, value in known.items()}
    return Made(name, rows, run.config)


def _resumed(entry: Resumption) -> str:
    place = {".": "in this folder", None: "from a run of unknown folder"}.get(entry.folder, f"from {entry.folder}")
    of_rest = "; what this epoch's training batches show is of those after this step" if entry.within_epoch else ""
    return f"at step {entry.step:,.0f}, epoch {entry.epoch:,.0f}, {place}, {moment(entry.time)}{of_rest}"


def _part(part: Mapping[str, object]) -> str:
    ended = part.get("ended")
    return f"{moment(part.get('started'))}{f' to {moment(ended)}' if ended else ', end not recorded'}"


def _written(key: str, value: object) -> str:
    if isinstance(value, Mapping):
        return ", ".join(f"{name} {_written(name, item)}" for name, item in value.items() if item is not None)
    if key == "parts" and isinstance(value, list):
        return "; ".join(_part(part) if isinstance(part, Mapping) else _written("", part) for part in value)
    if key == "from_step":
        return f"step {_written('steps', value)}"
    if key in ("started", "ended"):
        return moment(value)
    if isinstance(value, int) and key in ("steps", "parameters", "samples"):
        return f"{value:,}"
    return value if isinstance(value, str) else json.dumps(value)
