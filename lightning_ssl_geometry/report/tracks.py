"""The lines of a figure. Colours show quantities and dashes show stages, or colours show groups of runs."""

__all__ = ["COLORS", "Track", "counted", "dash_names", "labels", "last_values", "mean_of", "shared_stage", "tracks"]

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lightning_ssl_geometry.plots import Dash
from lightning_ssl_geometry.report.figures import Plan, View, nulls
from lightning_ssl_geometry.report.groups import Average, Group, average
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.members import Member, printable, space_name, stage_order
from lightning_ssl_geometry.report.panel import DASHES, same_lines
from lightning_ssl_geometry.report.run import Run

COLORS = ("blue", "orange", "green", "violet", "red")
_DASHES: tuple[Dash, ...] = ("solid", "dashed", "dashdot", "dotted")  # baselines are dotted, too
_PREFERRED = ("probe", "val", "train", "test", "")
_ZERO = ("", np.zeros(1), np.zeros(1))  # beside which lines are the same
_NAME = 14


@dataclass(frozen=True)
class Track:
    """A line of a figure: one quantity of one group in one stage, such as "val"."""

    member: Member
    group: Group
    stage: str  # the data
    mean: Average  # over the group's runs
    color: str  # a key of `plots.COLORS`
    dash: Dash
    name: str  # at the line's end, before the last value
    label: str  # tells the quantity apart from others of the figure

    @property
    def words(self) -> str:
        """The full name of the line."""
        if not self.group.name:
            return " ".join(filter(None, [self.label, self.stage]))
        return printable(self.group.name, 30) + (f" ({self.label})" if self.label else "")


def dash_names(found: Iterable[tuple[Dash, str]]) -> tuple[tuple[Dash, str], ...]:
    """Return the unique (dash, meaning) pairs of a figure, or () if all lines are solid."""
    names: dict[Dash, str] = {}
    for dash, name in found:
        names.setdefault(dash, name)
    return tuple(names.items()) if set(names) - {"solid"} else ()


def tracks(plan: Plan, view: View) -> list[Track]:
    """Return the lines of a figure without duplicates. If all of them are baselines, return no lines."""
    found = _of_one(plan, view) if view.alone else _of_groups(plan, view)
    if not any(not track.member.quantity.baseline for track in found):
        return []
    kept: list[Track] = []
    for track in sorted(found, key=lambda track: track.member.quantity.baseline):
        if not any(_repeats(track, before) for before in kept):
            kept.append(track)
        elif track.member.quantity.baseline:
            kept = [replace(before, color="muted") if _repeats(track, before) else before for before in kept]
    return kept


def labels(plan: Plan) -> dict[int, str]:
    """Return a distinct label for each quantity in a figure, by the quantity's Python `id`."""
    drawn = [member for member in plan.members if not member.role]
    spaces, parts = {member.space for member in drawn}, {member.part for member in drawn}
    found = {}
    for member in drawn:
        spaced = space_name(member.space) if len(spaces) > 1 and not member.quantity.baseline else ""
        several = len({each.short_part for each in drawn}) == len(parts)
        parted = (member.short_part if several else member.part) if len(parts) > 1 else ""
        based = member.own_name if len(drawn) > 1 else ""
        found[id(member)] = printable(", ".join(filter(None, [member.quantity.label, spaced, parted, based])), 30)
    if len(drawn) > 1 and len(set(found.values())) < len(drawn):
        found = {
            id(member): found[id(member)] or printable(member.quantity.short or member.quantity.title, 30)
            for member in drawn
        }
    return found


def mean_of(
    member: Member, group: Group, stage: str, view: View, transform: Callable[[Floats], Floats] | None = None
) -> Average | None:
    """Average a quantity, or a function of it, over the runs of a group. Return None if no run has it."""

    def find(run: Run) -> Series | Readouts | None:
        log = view.logged(run, member, stage)
        if isinstance(log, Series):
            return log if log.drawable else None
        if not isinstance(log, Readouts):
            return None
        return (replace(log, values=transform(log.values)) if transform else log).finite_rows

    return average(group, find, view.by_epochs)


def last_values(member: Member, group: Group, stage: str, view: View) -> dict[Run, float]:
    """Return the last value of a scalar in each run of a group that has it."""
    logs = {run: view.logged(run, member, stage) for run in group.runs}
    return {run: float(log.value[-1]) for run, log in logs.items() if isinstance(log, Series) and log.drawable}


def shared_stage(members: Sequence[Member], view: View) -> str | None:
    """Return the stage in which most groups have a quantity. In a tie, take the first of probe, val, train and test."""

    def count(stage: str) -> int:
        return sum(any(mean_of(member, group, stage, view=view) for member in members) for group in view.groups)

    best = max(_PREFERRED, key=count)  # the first of equals
    return best if count(best) else None


def counted(means: Mapping[str, Average | None], what: str = "") -> str:
    """Return a sentence on how many runs are averaged."""
    whole = {each.runs if each and each.runs == each.of and len(each.step) else None for each in means.values()}
    if len(whole) == 1 and (runs := next(iter(whole))) is not None:
        text = f"mean and standard deviation of {runs} runs each" if runs > 1 else "1 run each"
        return f"{what}: {text}." if what else f"{text[0].upper()}{text[1:]}."
    text = ", ".join(f"{printable(name, _NAME)} {_count(each)}" for name, each in means.items())
    if what or all(each is None or each.of == 1 for each in means.values()):
        return f"{what}: runs of {text}." if what else f"Runs of {text}."
    return f"Mean and standard deviation; runs of {text}."


def _of_one(plan: Plan, view: View) -> list[Track]:
    group, named = view.groups[0], labels(plan)
    colors = {id(member): COLORS[place % len(COLORS)] for place, member in enumerate(plan.drawn)}
    found = []
    for member in (each for each in plan.members if not each.role):
        stages = sorted(member.names.get(0, {}), key=stage_order)
        means = {stage: mean for stage in stages if (mean := mean_of(member, group, stage, view=view))}
        baseline, label = member.quantity.baseline, named[id(member)]
        for place, (stage, mean) in enumerate(means.items()):
            name = label if baseline or not place else ""
            name = name or (stage if len(means) > 1 else "")
            dash: Dash = "dotted" if baseline else DASHES[stage]
            found.append(
                Track(
                    member,
                    group,
                    stage,
                    mean=mean,
                    color=colors.get(id(member), "muted"),
                    dash=dash,
                    name=name,
                    label=label,
                )
            )
    return found


def _of_groups(plan: Plan, view: View) -> list[Track]:
    stage = shared_stage(plan.drawn, view)
    if stage is None:
        return []
    named, drawn = labels(plan), plan.drawn
    dashes = {id(member): _DASHES[place % len(_DASHES)] for place, member in enumerate(drawn)}
    found, labelled = [], set()
    kept = nulls(drawn, plan.members)  # of several baselines, lines of all groups could not be told apart
    for member in (each for each in plan.members if not each.role):
        if kept and member.quantity.baseline and member not in kept:
            continue
        for group in view.groups:
            mean = mean_of(member, group, stage, view=view)
            if mean is None or not len(mean.step):
                continue
            name = "" if group.name in labelled or member.quantity.baseline else printable(group.name, _NAME)
            labelled |= set() if member.quantity.baseline else {group.name}
            dash = dashes.get(id(member), "dotted")
            found.append(
                Track(member, group, stage, mean=mean, color=group.color, dash=dash, name=name, label=named[id(member)])
            )
    return found


def _repeats(track: Track, before: Track) -> bool:
    if track is before or track.member.quantity != before.member.quantity:
        return False
    if track.member.quantity.baseline:
        (a, one), (b, two) = ((each.mean.done, np.atleast_2d(each.mean.mean.T)) for each in (track, before))
        rows = zip(one, two, strict=True) if one.shape == two.shape else None
        return rows is not None and all(same_lines([("", a, x), ("", b, y), _ZERO]) for x, y in rows)
    same = track.member is before.member and track.group is before.group
    return track.member.quantity.of_weights and same and _equal(track.mean, before.mean)


def _equal(a: Average, b: Average) -> bool:
    _, first, second = np.intersect1d(a.done, b.done, return_indices=True)
    if not len(first) and len(a.step) and len(b.step):
        first, second = np.array([-1]), np.array([-1])
    return a.mean.shape[1:] == b.mean.shape[1:] and np.array_equal(a.mean[first], b.mean[second], equal_nan=True)


def _count(mean: Average | None) -> str:
    if mean is None:
        return "none"
    text = f"{mean.runs} of {mean.of}" if mean.runs < mean.of else f"{mean.runs}"
    return text if len(mean.step) else f"{text}, without a step in common"
