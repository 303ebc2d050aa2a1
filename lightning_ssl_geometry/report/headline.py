"""The most important numbers of a run, for the page and the terminal."""

__all__ = ["Tile", "bound", "headline", "null_beside", "null_value", "remarks", "summary_table"]

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from lightning_ssl_geometry.quantity import SECTIONS
from lightning_ssl_geometry.report.evaluation import evaluation_groups, feature_name, guess, is_chosen, shown_accuracy
from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.members import Member, members, series_of, sibling
from lightning_ssl_geometry.report.numbers import percent, points
from lightning_ssl_geometry.report.panel import shown
from lightning_ssl_geometry.report.run import EVALUATIONS, Run, read_run
from lightning_ssl_geometry.report.seen import cap_of
from lightning_ssl_geometry.report.verdicts import findings

if TYPE_CHECKING:
    from rich.table import Table

_MOST_UNKNOWN = 24


@dataclass(frozen=True)
class Tile:
    """A headline number with its name. `of` is the greatest possible value of the number."""

    name: str
    value: str
    of: str = ""
    remark: str = ""
    log: str = ""  # its logged name, or that of the table that it is from


def headline(run: Run) -> list[Tile]:
    """Return a run's headline numbers: accuracies of linear classifiers, and quantities marked as headlines."""
    order = [*SECTIONS]
    found = [(member, known) for member in members([run]) if (known := member.declared) and known.quantity.headline]
    found.sort(key=lambda each: order.index(each[1].section) if each[1].section in order else len(order))
    last = {  # the last of a projector's layers
        (known.diagnostic, known.key, known.space, member.own_name): member for member, known in found
    }
    return [*_gains(run), *(tile for member in last.values() if (tile := _tile(run, member)))]


def summary_table(run: Run | str | Path) -> "Table":
    """Make a table for the terminal: first, best and last value of each scalar, and the linear evaluation.

    `run` is a folder, or a run from :func:`read_run`. The function raises the errors of :func:`read_run`.
    """
    from rich.table import Table
    from rich.text import Text

    read = run if isinstance(run, Run) else read_run(run)
    table = Table(title=Text(read.name), title_justify="left", title_style="bold")
    table.add_column("")
    columns = ("value",) if read.is_diagnosis else ("first", "best", "last")
    for column in columns:
        table.add_column(column, justify="right")
    unknown = 0
    for member in members([read]):
        if not member.quantity.shown and not member.quantity.headline:
            continue  # a setting, or the numbers behind a figure
        unknown += member.declared is None
        for series in series_of(read, member) if member.declared or unknown <= _MOST_UNKNOWN else ():
            *rest, last = _summary(series, member)[-len(columns) :]
            table.add_row(Text(series.name), *rest, last + bound(read, series.name))
    for heading, rows in evaluation_groups(read).items():
        table.add_section()
        table.add_row(Text(f"linear evaluation, {heading}", style="dim"))
        for row in rows:
            style = "bold" if is_chosen(row.features) else ""
            cells = [Text(text, style=style) for text in (f"  {feature_name(row.features)}", shown_accuracy(row))]
            table.add_row(cells[0], *[""] * (len(columns) - 1), cells[1])
    return table


def remarks(run: Run, most: int = 8) -> str:
    """Return what a run shows, and at most `most` sentences about missing and unreadable files, one per line.

    >>> print(remarks(Run(Path("."), "run", notes=("a is missing.", "b is empty.")), most=1))
    a is missing.
    1 more of these is on the page.
    """
    found = findings(run)
    notes = [*run.notes, *found.caveats]
    left = len(notes) - most
    more = [f"{left} more of these {'is' if left == 1 else 'are'} on the page."] if left > 0 else []
    shown = [each.says for each in found.shown]
    return "\n".join([*(plain(text, 1_000) for text in (*shown, *notes[:most])), *more])


def bound(run: Run, name: str) -> str:
    """Return " (at most 9 here)" if the number of samples limits the result `name` to 9, else ""."""
    cap = cap_of(run, name)
    return f" (at most {cap.most:,} here)" if cap and cap.by_rows else ""


def _summary(series: Series, member: Member) -> tuple[str, str, str]:
    value = series.value[series.finite]
    if not len(value):
        return "NaN", "", "NaN"
    (_, show), better = shown(member.quantity), member.quantity.better
    best = ""
    if better:
        at = int(value.argmin() if better == "low" else value.argmax())
        best = f"{show(float(value[at]))} (epoch {series.epoch[series.finite][at]:.0f})"
    return show(float(value[0])), best, show(float(series.value[-1]))


def _gains(run: Run) -> list[Tile]:
    tiles = []
    for heading, rows in evaluation_groups(run).items():
        by_name = {row.features: row.accuracy for row in rows}
        if {"trained", "frozen"} <= by_name.keys():
            gain = points(by_name["trained"] - by_name["frozen"])
            order = [f"{feature_name(name)} {percent(by_name[name])}" for name in ("trained", "frozen", "pixels")
                     if name in by_name]  # fmt: skip
            tiles.append(
                Tile(f"Trained over untrained, {heading}", gain, "points", remark=", ".join(order), log=EVALUATIONS)
            )
        elif "trained" in by_name:
            pixels = f"raw pixels {percent(by_name['pixels'])}" if "pixels" in by_name else ""
            tiles.append(
                Tile(f"Linear evaluation, {heading}", percent(by_name["trained"]), "", remark=pixels, log=EVALUATIONS)
            )
        if "head, learned" in by_name:
            beside = {"f": "f, learned", "uniform weights": "head, uniform", "pixels": "pixels"}
            remark = ", ".join(f"{word} {percent(by_name[name])}" for word, name in beside.items() if name in by_name)
            title = f"Linear evaluation of the head, {heading}"
            tiles.append(Tile(title, percent(by_name["head, learned"]), "", remark=remark, log=EVALUATIONS))
    return tiles


def _tile(run: Run, member: Member) -> Tile | None:
    found = [series for series in series_of(run, member) if series.finite.any()]
    if not found:
        return None
    series = next((each for each in found if each.name.startswith("val/")), found[0])
    stage = series.name.partition("/")[0] if "/" in series.name else ""
    (_, show), value = shown(member.quantity), series.value[series.finite]
    remark = [stage] if run.is_diagnosis else [stage, f"from {show(float(value[0]))}"]
    remark += [f"best {show(float(value.max()))}"] if member.quantity.better == "high" and not run.is_diagnosis else []
    remark += [null_beside(run, member, series.name, show=show)]
    cap = cap_of(run, series.name)
    of = "" if cap is None else f"at most {cap.most:,} here" if cap.by_rows else f"of {cap.most:,}"
    return Tile(
        member.title, show(float(series.value[-1])), of, remark=", ".join(filter(None, remark)), log=series.name
    )


def null_beside(run: Run, member: Member, name: str, show: Callable[[float], str]) -> str:
    """Return the name and value that a quantity has for data without structure, or "" if they are unknown."""
    found = null_value(run, member, name)
    return "" if found is None else f"{found[0]} {show(found[1])}"


def null_value(run: Run, member: Member, name: str) -> tuple[str, float] | None:
    """Return the name and value that the log `name` has for data without structure, or None if they are unknown.

    The run logged the value, or it is the share of right guesses among the classes of the run's data.
    """
    known = member.declared
    if known is None or not known.quantity.null:
        return guess(run) if known is not None and known.quantity.unit == "accuracy" else None
    null = sibling(name, known.key, known.quantity.null)
    series, declared = run.scalars.get(null), run.declared.get(null)
    if series is None or not series.finite.any() or declared is None or declared.diagnostic != known.diagnostic:
        return None
    word = declared.quantity.short or declared.quantity.label or declared.quantity.title
    return word.lower(), float(series.value[-1])
