"""Scalars of a model that was looked at once: no lines over training, but a table with what each number means."""

__all__ = ["section_entries", "section_readings"]

from collections.abc import Sequence
from dataclasses import dataclass

from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, split
from lightning_ssl_geometry.report.html import Html, element
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.panel import layer_name
from lightning_ssl_geometry.report.panel_html import sentence
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.scalar_panels import fit_ranges, matching, own_losses, unknown_scalars
from lightning_ssl_geometry.report.sheets import SHEETS, Wanted


@dataclass(frozen=True)
class _Reading:
    """A number with its name, what it would be without structure, and what is known of it."""

    name: str
    value: str
    beside: str = ""
    entry: Entry | None = None


def section_readings(run: Run, section: str) -> Html | None:
    """Write the scalars of a section as a table, with their sentences; None if it has none."""
    if section == "other":
        found = [_unknown(series) for members in unknown_scalars(run).values() for series in members]
    else:
        found = [reading for wanted in _sheets(section) for reading in _readings(run, wanted)]
        losses = own_losses(run) if section == "learning" else {}
        found += [_unknown(series) for members in losses.values() for series in members]
    if not found:
        return None
    said: set[str] = set()
    rows = []
    for reading in found:
        fresh = reading.entry is not None and reading.entry.text not in said
        rows.append(_row(reading, fresh))
        said |= {reading.entry.text} if reading.entry else set()
    return element("table", element("tbody", *rows), class_="readings")


def section_entries(run: Run, section: str) -> list[Entry]:
    """What the glossary says of a section's scalars, for the list of papers."""
    found = [reading.entry for wanted in _sheets(section) for reading in _readings(run, wanted)]
    return [entry for entry in found if entry]


def _readings(run: Run, wanted: Sequence[Wanted]) -> list[_Reading]:
    """Read the quantities of a figure off a run: each with its baseline on the same data, the first with the first."""
    bases = [want for want in wanted if want.baseline]
    quantities = [want for want in wanted if not want.baseline]
    return [
        _reading(run, series, ENTRIES[want.key], bases[place] if place < len(bases) else None)
        for place, want in enumerate(quantities)
        for series in matching(run, ENTRIES[want.key])
    ]


def _sheets(section: str) -> list[list[Wanted]]:
    """The quantities of a section's figures, each in the first figure that has it."""
    seen: set[str] = set()
    sheets = []
    for sheet in SHEETS.get(section, ()):
        sheets.append([want for want in sheet.wanted if want.key not in seen])
        seen |= {want.key for want in sheet.wanted}
    return sheets


def _reading(run: Run, series: Series, entry: Entry, base: Wanted | None) -> _Reading:
    stage, show = split(series.name)[0], percent if entry.percent else number
    found = [other for other in matching(run, ENTRIES[base.key]) if split(other.name)[0] == stage] if base else []
    beside = f"{base.name} {show(float(found[0].value[-1]))}" if base and found else ""
    beside = fit_ranges([run], {stage}) if entry is ENTRIES["alpha_req"] else beside
    rest = split(series.name)[1].removeprefix("projector_rank").lstrip("_")
    layer = f", {layer_name(rest)}" if "projector_rank" in entry.names and rest else ""
    return _Reading(entry.title + layer, show(float(series.value[-1])), beside, entry)


def _unknown(series: Series) -> _Reading:
    return _Reading(split(series.name)[1], number(float(series.value[-1])))


def _row(reading: _Reading, fresh: bool) -> Html:
    value = element("td", element("b", reading.value), element("small", reading.beside) if reading.beside else None)
    text = sentence(reading.entry, named=False) if reading.entry and fresh else None
    return element("tr", element("th", reading.name, scope="row"), value, element("td", text))
