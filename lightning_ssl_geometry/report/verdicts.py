"""What a run shows, in words: the sentences that quantities declare for values that pass a threshold."""

__all__ = ["Finding", "Findings", "Shared", "findings", "shared_findings", "trend"]

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import nan, sqrt
from typing import NamedTuple

import numpy as np

from lightning_ssl_geometry.expressions import holds, names_in, value_of
from lightning_ssl_geometry.quantity import Paper, Quantity, Verdict
from lightning_ssl_geometry.report.evaluation import evaluation_groups
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.members import Member, logged, members, sibling, space_name, stage_order
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.run import EVALUATIONS, Run
from lightning_ssl_geometry.report.seen import sizes_of

_LEAST, _MOST = 18, 900  # values of a trend; a longer series is averaged in blocks
_LONGEST = 1_000  # letters


@dataclass(frozen=True)
class Finding:
    """A sentence on a run that follows from a declared threshold.

    `source` says where the threshold is from, `name` is the logged name of the number behind the sentence, `declared`
    is the sentence without its numbers, and `caveat` tells whether it is one to know before the figures are read.
    """

    says: str
    source: str
    name: str
    declared: str = ""
    paper: Paper | None = None
    caveat: bool = False


class Findings(NamedTuple):
    """The sentences that hold for a run, and the names of what was looked for and not found."""

    held: tuple[Finding, ...] = ()
    absent: tuple[str, ...] = ()

    @property
    def caveats(self) -> list[str]:
        """The sentences to know before the figures are read."""
        return [each.says for each in self.held if each.caveat]

    @property
    def shown(self) -> list[Finding]:
        """The sentences on what the run shows."""
        return [each for each in self.held if not each.caveat]


def findings(run: Run) -> Findings:
    """Evaluate the thresholds that the quantities of a run declare, with its last values.

    If a quantity was logged in several stages, "val" is taken, or else the first of "train", "probe" and "test".
    """
    held: dict[str, Finding] = {}
    absent: dict[str, dict[str, None]] = {}
    for name, member, verdict, values in _declared(run):
        space = space_name(member.space) + (f" of {member.own_name}" if member.space and member.own_name else "")
        space = space or member.title
        words = {"space": space, "title": member.title}
        try:
            if verdict.given and not holds(verdict.given, values):
                continue
            true = holds(verdict.when, values)
            says = verdict.filled(lambda text: words.get(text) or _shown(text, values, run, name=name))  # noqa: B023
        except ValueError:  # such as a division by 0
            continue
        if true:
            source = ", ".join(filter(None, [verdict.paper.short if verdict.paper else "", verdict.source]))
            found = Finding(
                says[:_LONGEST], source, name, declared=verdict.says, paper=verdict.paper, caveat=verdict.caveat
            )
            held.setdefault(says, found)
        elif true is False and verdict.topic:
            absent.setdefault(verdict.topic, {})[member.space and space] = None
    said = (f"{topic} ({', '.join(spaces)})" if any(spaces) else topic for topic, spaces in absent.items())
    return Findings(tuple(held.values()), tuple(said))


class Shared(NamedTuple):
    """The sentences that hold for runs of a group, and for each the number of these runs.

    The numbers in a sentence are those of the first run for which it holds.
    """

    group: Group
    held: tuple[tuple[Finding, int], ...]

    @property
    def shown(self) -> list[tuple[str, Finding]]:
        """The sentences on what the runs show, each with its finding."""
        return [(self._counted(each, runs), each) for each, runs in self.held if not each.caveat]

    @property
    def caveats(self) -> list[str]:
        """The sentences to know before the figures are read."""
        return [f"{self.group.name}: {self._counted(each, runs)}" for each, runs in self.held if each.caveat]

    def _counted(self, each: Finding, runs: int) -> str:
        of = len(self.group.runs)
        return f"{each.says} In {f'all {of}' if runs == of else f'{runs} of {of}'} runs." if of > 1 else each.says


def shared_findings(groups: Sequence[Group]) -> tuple[list[Shared], list[str]]:
    """Return the :func:`findings` of each group, and what was looked for in all runs and not found in any."""
    shared, absent = [], list[tuple[str, ...]]()
    for group in groups:
        held: dict[tuple[str, str], list[Finding]] = {}
        for run in group.runs:
            found = findings(run)
            absent.append(found.absent)
            for each in found.held:
                held.setdefault((each.name, each.declared), []).append(each)
        shared.append(Shared(group, tuple((same[0], len(same)) for same in held.values())))
    return shared, [topic for topic in absent[0] if all(topic in each for each in absent)]


def trend(values: Floats) -> tuple[float, float]:
    """Return Mann's and Kendall's z of values (R,) in order of time, and Sen's slope times R - 1.

    The statistic S is the number of pairs that rise minus the number of pairs that fall. Its variance allows for ties,
    and z is (|S| - 1) / sqrt(Var S) with the sign of S. Sen's slope is the median of the slopes of all pairs.

    >>> z, change = trend(np.arange(10.0))
    >>> round(float(z), 2), round(change, 2)
    (3.94, 9.0)
    """
    n = len(values)
    first, second = np.triu_indices(n, 1)
    rises = values[second] - values[first]
    _, ties = np.unique(values, return_counts=True)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    score = float(np.sign(rises).sum())
    slope = float(np.median(rises / (second - first)))
    return (np.sign(score) * (abs(score) - 1) / sqrt(variance) if score and variance > 0 else 0.0), slope * (n - 1)


def _declared(run: Run) -> Iterator[tuple[str, Member, Verdict, Mapping[str, float]]]:
    for member in members([run]):
        names = member.names.get(0, {})
        stages = sorted(names, key=lambda stage: (stage != "val", stage_order(stage)))
        if member.declared is None or not member.quantity.verdicts or not stages:
            continue
        name = names[stages[0]]
        values = _values(run, member, name, verdicts=member.quantity.verdicts)
        yield from ((name, member, verdict, values) for verdict in member.quantity.verdicts)
    if (known := run.declared.get(EVALUATIONS)) and (groups := evaluation_groups(run)):
        rows = next(iter(groups.values()))
        sizes = {row.details.get("test_size", "") for row in rows}
        size = sizes.pop() if len(sizes) == 1 else ""
        values = {row.features: row.accuracy for row in rows} | {"N": float(size) if size.isdecimal() else nan}
        for verdict in known.quantity.verdicts:
            yield EVALUATIONS, Member(known, EVALUATIONS), verdict, _all(verdict.names, values)


def _values(run: Run, member: Member, name: str, verdicts: Iterable[Verdict]) -> dict[str, float]:
    known, log = member.declared, logged(run, name)
    assert known is not None
    found = sizes_of(run, name) | _of_log(log, known.quantity)
    temperature = run.info.get("loss_temperature")
    found["loss_temperature"] = float(temperature) if isinstance(temperature, int | float) else nan
    for key in {key for verdict in verdicts for key in verdict.names} - found.keys():
        beside = run.declared.get(other := sibling(name, known.key, key))
        of = run.scalars.get(other) if beside and beside.diagnostic == known.diagnostic else None
        found[key] = float(of.value[-1]) if of is not None and isinstance(log, Series) and _at_once(of, log) else nan
    return found


def _at_once(one: Series, other: Series) -> bool:
    return bool(one.done[-1] == other.done[-1])


def _of_log(log: object, quantity: Quantity) -> dict[str, float]:
    if isinstance(log, Readouts):
        last = log.values[-1]
        known = ~np.isnan(last)
        zero = -np.inf if quantity.picture and quantity.picture.logarithm else 0.0
        entries, zeros = (float(known.sum()), float((last == zero).sum())) if known.any() else (nan, nan)
        return {"value": nan, "entries": entries, "zeros": zeros, "trend": nan, "change": nan}
    if not isinstance(log, Series) or not len(log.value):
        return dict.fromkeys(("value", "entries", "zeros", "trend", "change"), nan)
    z, change = _last_third(log.value[log.finite])
    return {"value": float(log.value[-1]), "entries": nan, "zeros": nan, "trend": z, "change": change}


def _last_third(values: Floats) -> tuple[float, float]:
    if len(values) < _LEAST:
        return nan, nan
    last = values[-(len(values) // 3) :]
    if len(last) > _MOST // 3:
        last = np.array([block.mean() for block in np.array_split(last, _MOST // 3)])
    return trend(last)


def _all(names: Iterable[str], values: Mapping[str, float]) -> dict[str, float]:
    return dict.fromkeys(names, nan) | dict(values)


def _shown(text: str, values: Mapping[str, float], run: Run, name: str) -> str:
    value = value_of(text, values)
    known = run.declared[name]
    key = known.key if text == "value" else text
    beside = known if text == "value" or name == EVALUATIONS else run.declared.get(sibling(name, known.key, key))
    used = names_in(text) - {"N", "V", "D", "P"}
    return percent(value) if used and beside and beside.quantity.percent else number(value)
