"""The tables at the top of a comparison: the headline numbers of each group, and their differences with intervals."""

__all__ = ["differences_table", "differing_settings", "standings_numbers", "standings_table"]

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np

from lightning_ssl_geometry.quantity import Knob
from lightning_ssl_geometry.report.evaluation import accuracies_by_features, feature_name, guess
from lightning_ssl_geometry.report.facts import different_data, lengths
from lightning_ssl_geometry.report.figures import View
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.headline import null_value
from lightning_ssl_geometry.report.members import Member, is_scalar, members, size_behind
from lightning_ssl_geometry.report.numbers import percent, signed, with_error
from lightning_ssl_geometry.report.panel import shown
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.seen import Cap, cap_of
from lightning_ssl_geometry.report.table import Table
from lightning_ssl_geometry.report.tracks import last_values, shared_stage

_NONE = "\N{EN DASH}"
_LENGTHS = "The groups were trained for different lengths of time."
_OF_FEW = "Numbers of one group alone, or of fewer than half of the groups, are in the table of all values below."
_LEVEL, _ROUNDING = 0.95, 1e-9
_HOW = {
    True: "Each run is compared with the run of the same seed (Student's t over these pairs).",
    False: "Groups without the same seeds are compared by Welch's t.",
}


@dataclass(frozen=True)
class _Column:
    """A headline number of each group."""

    title: str
    better: Literal["low", "high"] | None
    scale: float  # 100 for percent
    show: Callable[[float], str]
    values: dict[str, dict[Run, float]]  # group -> run -> the last value
    caps: dict[str, Cap]  # group -> the greatest possible value
    null: float = float("nan")  # the value of data without structure, such as chance
    comparable: bool = True  # also in the settings in which the groups differ

    @property
    def heading(self) -> str:
        return f"{self.title} (chance {self.show(self.null)})" if np.isfinite(self.null) else self.title

    def mean(self, group: Group) -> float:
        return _mean(list(self.values.get(group.name, {}).values()))

    def cell(self, group: Group) -> str:
        found = np.array(list(self.values.get(group.name, {}).values()))
        if not len(found):
            return _NONE
        mean = float(found.mean())
        text = self.show(mean)
        if len(found) > 1:
            text = with_error(mean, float(found.std(ddof=1)), is_percent=self.scale != 1.0)
        if cap := self.caps.get(group.name):
            text += f" of {cap.most:,}" + ("*" if cap.by_rows else "")
        return text + (f" ({len(found)} of {len(group.runs)})" if len(found) < len(group.runs) else "")

    @property
    def ranks(self) -> bool:
        """Whether one of the groups may be the best."""
        return self.better is not None and self.comparable

    def best(self, groups: Sequence[Group]) -> set[int]:
        """Return the places of the groups with the best mean, and with means that cannot be told from it.

        The means are compared as they are shown. The set is empty if it would have all groups.
        """
        means = [self.mean(group) for group in groups]
        known = [mean for mean in means if np.isfinite(mean)]
        if not self.ranks or len(known) < 2 or len(known) < len(means):
            return set()
        best = max(known) if self.better == "high" else min(known)
        if best <= self.null if self.better == "high" else best >= self.null:
            return set()  # no better than chance
        first = groups[means.index(best)]
        shown = [self.cell(group).split()[0] for group in groups]  # the mean, with the decimals of the table
        differences = [_difference(self, group, first) for group in groups]
        found = {place for place, (text, each) in enumerate(zip(shown, differences, strict=True))
                 if text == shown[means.index(best)] or (each and not each.is_sure)}  # fmt: skip
        return found if len(found) < len(groups) else set()


def standings_table(view: View) -> Table | None:
    """Return the headline numbers of all groups, one row for each group. None if there are none."""
    every = _columns(view)
    columns = _shared(every, len(view.groups))
    if not columns:
        return None
    trained = lengths(view.groups)
    before = [[said or _NONE] if any(trained.said) else [] for said in trained.said]
    rows = [
        [group.name, *said, *(column.cell(group) for column in columns)]
        for group, said in zip(view.groups, before, strict=True)
    ]
    best = {
        (row, 1 + len(before[0]) + place) for place, column in enumerate(columns) for row in column.best(view.groups)
    }
    said = ["Last values."] if not view.once else []
    several = any(len(group.runs) > 1 for group in view.groups)
    said += ["Mean ± standard deviation over the runs of a group."] if several else []
    said += [_bold(best, columns, several)]
    limited = any(cap.by_rows for column in columns for cap in column.caps.values())
    said += ["*: the number of samples limits the value, not the network."] if limited else []
    said += [_LENGTHS] if trained.differ else []
    said += [_OF_FEW] if len(columns) < len(every) else []
    header = ["", *(["Runs"] if before[0] else []), *(column.heading for column in columns)]
    colors = [group.color for group in view.groups]
    remark = " ".join(filter(None, said))
    return Table(header, rows, remark=remark, look="layers cards", best=best, colors=colors)


def _bold(best: Collection[tuple[int, int]], columns: Sequence[_Column], several: bool) -> str:
    if best and several:
        return f"Bold: the best mean, and means that a {_LEVEL:.0%} interval of the difference cannot tell from it."
    if best:
        return "Bold: the best value, where low or high values are better."
    if several and any(column.ranks for column in columns):
        return "No mean is bold, since none can be told from all others, or from chance."
    return ""


def standings_numbers(view: View) -> tuple[list[str], list[list[str | float | None]]]:
    """Return the numbers of :func:`standings_table` without rounding, as a header and one row for each group.

    Each number has two columns, its mean over the runs of a group and their standard deviation. None: no value.
    """
    columns = _columns(view)
    header = ["group", "runs", *(name for each in columns for name in (each.title, f"{each.title}, deviation"))]
    rows: list[list[str | float | None]] = []
    for group in view.groups:
        values = [list(column.values.get(group.name, {}).values()) for column in columns]
        row: list[str | float | None] = [group.name, len(group.runs)]
        for each in values:
            row += [_mean(each) if each else None, float(np.std(each, ddof=1)) if len(each) > 1 else None]
        rows.append(row)
    return header, rows


def differences_table(view: View) -> Table | None:
    """Return how the groups differ from the first one, with intervals. None if no two groups have several runs."""
    (first, *others), columns = view.groups, _shared(_columns(view), len(view.groups))
    found = [[_difference(column, group, first) for column in columns] for group in others]
    known = [each for row in found for each in row if each is not None]
    if not known:
        return None
    rows = [
        [
            group.name,
            *(each.cell(column.scale) if each else _NONE for each, column in zip(row, columns, strict=True)),
        ]
        for group, row in zip(others, found, strict=True)
    ]
    cells = [(at, place, each) for at, row in enumerate(found) for place, each in enumerate(row, start=1)]
    unsure = {(at, place) for at, place, each in cells if each and not each.is_sure}
    said = [
        f"Mean of each group minus the mean of {first.name}, with its {_LEVEL:.0%} interval.",
        _HOW[True] if any(each.paired for each in known) else "",
        _HOW[False] if any(not each.paired for each in known) else "",
        "Two runs give very wide intervals." if min(len(group.runs) for group in view.groups) == 2 else "",
        "The intervals are not corrected for the number of comparisons.",
        "Differences of percentages are in points." if any(column.scale != 1.0 for column in columns) else "",
        "Grey: the interval contains 0." if unsure else "",
    ]
    header = [f"minus {first.name}", *(column.title for column in columns)]
    colors = [group.color for group in others]
    return Table(
        header, rows, remark=" ".join(filter(None, said)), look="layers cards differences", faint=unsure, colors=colors
    )


@dataclass(frozen=True)
class _Difference:
    mean: float
    low: float
    high: float
    paired: bool  # the runs of both groups have the same seeds

    @property
    def is_sure(self) -> bool:
        return self.low > 0 or self.high < 0

    def cell(self, scale: float) -> str:
        mean, low, high = (signed(scale * value) for value in (self.mean, self.low, self.high))
        return f"{mean} [{low},\N{NO-BREAK SPACE}{high}]"


def _difference(column: _Column, group: Group, first: Group) -> _Difference | None:
    ours, theirs = (column.values.get(each.name, {}) for each in (group, first))
    if min(len(ours), len(theirs)) < 2 or not np.isfinite([*ours.values(), *theirs.values()]).all():
        return None
    pairs = _pairs(ours, theirs)
    if pairs is not None:
        found = np.array([a - b for a, b in pairs])
        mean, error, freedom = found.mean(), found.std(ddof=1) / np.sqrt(len(found)), len(found) - 1.0
    else:
        a, b = np.array(list(ours.values())), np.array(list(theirs.values()))
        parts = np.array([a.var(ddof=1) / len(a), b.var(ddof=1) / len(b)])
        mean, error = a.mean() - b.mean(), np.sqrt(parts.sum())
        squares = parts**2 / np.array([len(a) - 1, len(b) - 1])
        freedom = parts.sum() ** 2 / squares.sum() if squares.sum() else len(a) + len(b) - 2.0  # Welch-Satterthwaite
    half, size = _student(float(freedom)) * float(error), max(map(abs, (*ours.values(), *theirs.values())))
    ends = (float(end) for end in (mean, mean - half, mean + half))
    mean, low, high = (0.0 if abs(end) < _ROUNDING * size else end for end in ends)
    return _Difference(mean, low, high, paired=pairs is not None)


def _student(freedom: float) -> float:
    from scipy.special import stdtrit  # the quantile of Student's t distribution

    return float(stdtrit(freedom, (1 + _LEVEL) / 2))


def _pairs(ours: dict[Run, float], theirs: dict[Run, float]) -> list[tuple[float, float]] | None:
    ours_by, theirs_by = (
        {run.info.get("seed"): value for run, value in each.items() if isinstance(run.info.get("seed"), int)}
        for each in (ours, theirs)
    )
    if len(ours_by) < len(ours) or ours_by.keys() != theirs_by.keys() or len(theirs_by) < len(theirs):
        return None
    return [(ours_by[seed], theirs_by[seed]) for seed in ours_by]


def _columns(view: View) -> list[_Column]:
    found = [_column(view, member) for member in members(view.runs, last_layers=True) if _is_headline(view, member)]
    return [column for column in [*_evaluations(view), *found] if column is not None and any(column.values.values())]


def _shared(columns: Sequence[_Column], count: int) -> Sequence[_Column]:
    """Return the columns that several of `count` groups have, and at least half. If there are none, return all."""
    return [column for column in columns if len(column.values) >= max(2, count / 2)] or columns


def _is_headline(view: View, member: Member) -> bool:
    known = member.declared
    return known is not None and known.quantity.headline and is_scalar(member, view.runs)


def _column(view: View, member: Member) -> _Column | None:
    stage = shared_stage([member], view)
    if stage is None:
        return None
    found_in = {group.name: last_values(member, group, stage, view=view) for group in view.groups}
    values = {name: each for name, each in found_in.items() if each}
    scale, show = shown(member.quantity)
    title = member.title + (f", {stage}" if stage and not view.once else "")
    found = {group.name: cap_of(run, name) for group in view.groups for run in group.runs
             if (name := member.names.get(view.place(run), {}).get(stage))}  # fmt: skip
    caps = {name: cap for name, cap in found.items() if cap is not None}
    caps = caps if len(caps) == len(view.groups) else {}
    known = (null_value(run, member, name) for run in view.runs
             if (name := member.names.get(view.place(run), {}).get(stage)))  # fmt: skip
    null = _null([each[1] for each in known if each is not None])
    comparable = not differing_settings(view, member, stage) and not different_data(view.grouped)
    return _Column(
        title, member.quantity.better, scale, show=show, values=values, caps=caps, null=null, comparable=comparable
    )


def differing_settings(view: View, member: Member, stage: str) -> set[str]:
    """Return the settings in which these runs differ, and between which the quantity is not comparable."""
    runs = [(run, name) for run in view.runs if (name := member.names.get(view.place(run), {}).get(stage))]
    settings: dict[Knob, set[object]] = {
        "method": {run.info.get("method" if run.is_diagnosis else "model") for run, _ in runs},
        "temperature": {run.info.get("loss_temperature") for run, _ in runs},
        "width": {known.width for run, name in runs if (known := run.declared.get(name))},
    }
    differ: set[str] = {knob for knob, values in settings.items() if len(values - {None}) > 1}
    sizes = {size_behind(run, member, name) for run, name in runs}
    return (differ - set(member.quantity.comparable)) | ({member.quantity.comparable_at} if len(sizes) > 1 else set())


def _null(values: Sequence[float]) -> float:
    """Return the value of data without structure that all runs share, or NaN."""
    return values[0] if len(set(values)) == 1 else float("nan")


def _mean(values: Sequence[float]) -> float:
    return float(np.mean(values)) if values else float("nan")


def _evaluations(view: View) -> list[_Column]:
    columns: dict[tuple[str, str], dict[str, dict[Run, float]]] = {}
    for group, run in view.grouped:
        for key, accuracy in accuracies_by_features(run, view).items():
            columns.setdefault(key, {}).setdefault(group.name, {})[run] = accuracy
    found = []
    for (features, heading), values in columns.items():
        what = "" if features == "trained" else f"{feature_name(features)}, "
        title = f"Linear evaluation, {what}{heading}"
        null = _null([known[1] for run in view.runs if (known := guess(run))])
        comparable = not different_data(view.grouped)
        made = _Column(title, "high", 100.0, show=percent, values=values, caps={}, null=null, comparable=comparable)
        found.append(made)
    return found
