"""Compare models in the terminal: a column for each model, and a row for each number."""

__all__ = ["comparison_remarks", "comparison_tables", "distinct"]

from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.report.evaluation import accuracies_by_features, feature_name
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.groups import Group, read_groups
from lightning_ssl_geometry.report.members import Member, is_scalar, members, printable
from lightning_ssl_geometry.report.numbers import percent, with_error
from lightning_ssl_geometry.report.panel import shown
from lightning_ssl_geometry.report.seen import cap_of
from lightning_ssl_geometry.report.tracks import last_values, shared_stage
from lightning_ssl_geometry.report.verdicts import shared_findings

if TYPE_CHECKING:
    from rich.table import Table

_NONE = "\N{EN DASH}"
_LENGTHS = (24, 20, 16, 12)  # letters of a model's name, as many as fit
_BORDER = 3  # columns of the terminal beside each column of the table
_LONGEST = 1_000  # letters of a sentence
_LIMITED = "*: the number of samples limits the value, not the network."


def comparison_tables(groups: Mapping[str, Sequence[str | Path]], width: int) -> "list[Table]":
    """Make a table for the terminal with the last value of each scalar, one column for each group of runs.

    If the table is wider than the terminal, it is returned as several tables, each with some of the columns. Long names
    are shortened so that they stay distinct.

    Args:
        groups: Maps the name of a group to the folders of its runs.
        width: Width of the terminal in characters.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, or a folder is not that of a run.
    """
    view = View(tuple(read_groups(groups)))
    rows = [*_scalars(view), *_evaluations(view)]
    label = min(max((len(name) for name, _ in rows), default=0), width // 2)
    room = width - label - _BORDER - 1
    cells = [max((len(row[place]) for _, row in rows), default=1) for place in range(len(view.groups))]
    names, blocks = _layout([group.name for group in view.groups], cells, room)
    tables = [_table(rows, names, block, label=label) for block in blocks]
    if any(cell.endswith("*") for _, row in rows for cell in row):
        tables[-1].caption = _LIMITED
    return tables


def comparison_remarks(groups: Mapping[str, Sequence[str | Path]]) -> str:
    """Return what the runs of each group show, one sentence per line behind the name of the group.

    The errors of :func:`comparison_tables` are raised.
    """
    shared, _ = shared_findings(read_groups(groups))
    said = [f"{each.group.name}: {says}" for each in shared for says, _ in each.shown]
    return "\n".join(plain(text, _LONGEST) for text in [*said, *(text for each in shared for text in each.caveats)])


def distinct(names: Sequence[str], most: int) -> list[str]:
    """Shorten distinct names to at most `most` letters, so that they stay distinct.

    >>> distinct(["a_long_prefix_one", "a_long_prefix_two"], 6)
    ['a_l…ne', 'a_l…wo']
    """
    letters = zip(*names, strict=False) if len(names) > 1 else ()
    start = sum(1 for _ in takewhile(lambda each: len(set(each)) == 1, letters))
    for tried in (names, [f"…{name[start:]}" for name in names]):
        found = [printable(name, most) for name in tried]
        if len(set(found)) == len(found):
            return found
    marks = [f"#{place}" for place in range(1, len(names) + 1)]
    return [printable(name, most - len(mark)) + mark for name, mark in zip(names, marks, strict=True)]


def _layout(names: Sequence[str], cells: Sequence[int], room: int) -> tuple[list[str], list[list[int]]]:
    tried = []
    for most in _LENGTHS:
        found = distinct(names, max(8, min(most, room - _BORDER)))
        widths = [max(len(name), cell) + _BORDER for name, cell in zip(found, cells, strict=True)]
        tried.append((found, _blocks(widths, room)))
    return min(tried, key=lambda each: len(each[1]))


def _blocks(widths: Sequence[int], room: int) -> list[list[int]]:
    blocks: list[list[int]] = [[]]
    for place, width in enumerate(widths):
        if blocks[-1] and sum(widths[other] for other in blocks[-1]) + width > room:
            blocks.append([])
        blocks[-1].append(place)
    return blocks


def _table(rows: Sequence[tuple[str, list[str]]], names: Sequence[str], places: Sequence[int], label: int) -> "Table":
    from rich.box import SIMPLE_HEAD
    from rich.table import Table
    from rich.text import Text

    table = Table(box=SIMPLE_HEAD, caption_justify="left")
    table.add_column(Text(""), width=label, overflow="fold")
    for place in places:
        table.add_column(Text(names[place]), justify="right", no_wrap=True)
    for name, cells in rows:
        if any(cells[place] != _NONE for place in places):
            table.add_row(Text(name), *(Text(cells[place]) for place in places))
    return table


def _scalars(view: View) -> Iterator[tuple[str, list[str]]]:
    for member in members(view.runs, last_layers=True):
        wanted = member.declared is not None and (member.quantity.shown or member.quantity.headline)
        stage = shared_stage([member], view) if wanted and is_scalar(member, view.runs) else None
        if stage is not None:
            name = next(held[stage] for held in member.names.values() if stage in held)
            yield name, [_cell(view, group, member, stage=stage) for group in view.groups]


def _cell(view: View, group: Group, member: Member, stage: str) -> str:
    values = list(last_values(member, group, stage, view=view).values())
    if not values:
        return _NONE
    names = [(run, member.names.get(view.place(run), {}).get(stage, "")) for run in group.runs]
    limited = any(cap.by_rows for run, name in names if name and (cap := cap_of(run, name)))
    spread = float(np.std(values, ddof=1)) if len(values) > 1 else float("nan")
    return _shown(float(np.mean(values)), spread, member) + ("*" if limited else "")


def _shown(mean: float, std: float, member: Member) -> str:
    show = shown(member.quantity)[1]
    return with_error(mean, std, is_percent=member.quantity.percent) if np.isfinite(std) else show(mean)


def _evaluations(view: View) -> Iterator[tuple[str, list[str]]]:
    found: dict[tuple[str, str], dict[str, list[float]]] = {}
    for group, run in view.grouped:
        for key, accuracy in accuracies_by_features(run, view).items():
            found.setdefault(key, {}).setdefault(group.name, []).append(accuracy)
    for (features, heading), by_group in found.items():
        values = (by_group.get(group.name, []) for group in view.groups)
        cells = [percent(float(np.mean(each))) if each else _NONE for each in values]
        yield f"linear evaluation, {feature_name(features)}, {heading}", cells
