"""Scalars of models that were looked at once, side by side: a row per group instead of a line over training."""

__all__ = ["are_diagnoses", "sheet_dots"]

from collections.abc import Sequence

import numpy as np

from lightning_ssl_geometry.plots import Caption, Dot, dots
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry
from lightning_ssl_geometry.report.groups import Average, Group, average_scalar, shared_stage
from lightning_ssl_geometry.report.numbers import deviation, number, percent
from lightning_ssl_geometry.report.panel import Panel, printable
from lightning_ssl_geometry.report.scalar_panels import fit_ranges
from lightning_ssl_geometry.report.sheets import Sheet, Wanted


def are_diagnoses(groups: Sequence[Group]) -> bool:
    """Whether nothing was trained in any of the runs, so that there is no time to draw over."""
    return all(run.is_diagnosis for group in groups for run in group.runs)


def sheet_dots(groups: Sequence[Group], sheet: Sheet, titled: bool) -> Panel | None:
    """Draw the quantities of a figure, a block of rows for each; None if no group has what it is about."""
    wanted = [want for want in sheet.wanted if want.compared]
    stage = shared_stage(groups, [want.key for want in wanted if not want.baseline])
    if stage is None:
        return None
    found = {want: _averages(groups, want, stage) for want in wanted}
    found = {want: averages for want, averages in found.items() if averages}
    blocks = [(want.name, [_dot(group, each, want) for group, each in averages]) for want, averages in found.items()]
    missing = [group.name for group in groups if not any(group is has for rows in found.values() for has, _ in rows)]
    notes = [f"Without: {printable(', '.join(missing), 50)}."] if missing else []
    if sheet.name == "alpha_req" and (ranges := fit_ranges([run for group in groups for run in group.runs], {stage})):
        notes.append(ranges)
    caption = Caption(sheet.title if titled else "", (), notes)
    figure = dots(blocks, xlabel=sheet.ylabel, caption=caption)
    said = "; ".join(f"{row.label} {name} {row.text}".replace("  ", " ") for name, rows in blocks for row in rows)
    rows = [
        (group.name, each.name, float(each.mean[-1]), np.nan if each.std is None else float(each.std[-1]), each.runs)
        for averages in found.values()
        for group, each in averages
    ]
    numbers = Numbers(("group", "scalar", "mean", "standard deviation", "runs"), rows)
    entries = tuple(ENTRIES[want.key] for want in found)
    return Panel(sheet.name, sheet.title, figure, f"{sheet.title}: {said}.", entries, numbers=numbers)


def _averages(groups: Sequence[Group], want: Wanted, stage: str) -> list[tuple[Group, Average]]:
    found = [(group, average_scalar(group, want.key, stage)) for group in groups]
    return [(group, each) for group, each in found if each and len(each.step) and np.isfinite(each.mean[-1])]


def _dot(group: Group, each: Average, want: Wanted) -> Dot:
    entry = ENTRIES[want.key]
    mean, std = float(each.mean[-1]), np.nan if each.std is None else float(each.std[-1])
    scale, text = 100.0 if entry.percent else 1.0, _shown(mean, std, entry)
    tip = f"{printable(group.name, 40)}{f' ({want.name})' if want.name else ''}: {scale * mean:.5g}"
    return Dot(printable(group.name, 16), scale * mean, scale * std, text, group.color, tip)


def _shown(mean: float, std: float, entry: Entry) -> str:
    text = percent(mean) if entry.percent else number(mean)
    return text + (f" ± {deviation(mean, std, entry.percent)}" if np.isfinite(std) else "")
