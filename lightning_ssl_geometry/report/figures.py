"""Decide which quantities share a figure.

Scalars share a figure if they have the same section and chart. Arrays must also come from the same tensor, such as h.
"""

__all__ = ["Figured", "Plan", "View", "in_order", "nulls", "plans", "section_of"]

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Literal

from lightning_ssl_geometry.quantity import SECTIONS, Kind
from lightning_ssl_geometry.report.facts import different_data
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.logs import Readouts, Series, Snapshot
from lightning_ssl_geometry.report.members import (
    LAYERS,
    Member,
    is_scalar,
    log_kind,
    logged,
    members,
    printable,
    size_behind,
    space_name,
    split,
    stage_order,
)
from lightning_ssl_geometry.report.run import Run

_OTHER, _LEARNING = "other", "learning"
_LOSS = re.compile("loss|objective|criterion", re.IGNORECASE)
_SAME_SIZE = 0.02  # numbers of negatives that differ by less change InfoNCE by less than 0.02 nats
_DESCENDED = "The loss that training descends, as the model's own code computes it."
_MOST_DASHES = 4  # quantities, with their null, that dashes tell apart where colours show groups
_PERCENT = "percent"  # the end of the name of a figure whose chart has quantities of another scale too
Figured = Kind | Literal["layers"]
_OF_SAMPLES: tuple[Figured, ...] = ("images", "gallery", "classes", "points")  # a figure for each monitor
_ONE_FIGURE: tuple[Figured, ...] = ("line", "path", "layers", *_OF_SAMPLES)  # whatever the spaces
_OF_ARRAYS: tuple[Figured, ...] = ("components", "spectrum", "profile", "histogram", "quantiles")
_OF_LOGARITHMS: tuple[Figured, ...] = (
    "spectrum",
    "spectra",
    "profile",
    "histogram",
    "quantiles",
)  # drawn as what they are of
_OF_SNAPSHOTS: tuple[Figured, ...] = ("spectra", "matrix", *_OF_SAMPLES)


@dataclass(frozen=True)
class Plan:
    """A figure to be drawn."""

    name: str  # good for a file name
    title: str
    unit: str  # of its axis
    kind: Figured
    members: tuple[Member, ...]  # those that are drawn, and those that serve them, such as labels
    remark: str = ""  # a sentence that holds in all runs

    @property
    def saved_unit(self) -> str:
        """Unit of the values in CSV files, where percentages are saved as fractions."""
        return self.unit.removesuffix(", %")

    @property
    def drawn(self) -> list[Member]:
        """The quantities to draw. Auxiliary ones, such as labels, are omitted."""
        return _subjects(self.members)

    def serving(self, asked: str) -> Member | None:
        """Return the auxiliary quantity with a given role, such as "label", or None."""
        return next((each for each in self.members if each.role == asked), None)


@dataclass(frozen=True)
class View:
    """The runs that a page shows."""

    groups: tuple[Group, ...]  # a single run is a group of one, without a name
    titled: bool = False  # figures have their titles in them, to stand alone

    @classmethod
    def of(cls, run: Run) -> "View":
        """Make the View of a single run."""
        return cls((Group("", "blue", (run,)),))

    @property
    def alone(self) -> bool:
        """Whether the page shows a single run, and does not compare groups."""
        return len(self.groups) == 1 and not self.groups[0].name

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of their groups."""
        return tuple(run for _, run in self.grouped)

    @property
    def grouped(self) -> list[tuple[Group, Run]]:
        """All runs, as (group, run) pairs."""
        return [(group, run) for group in self.groups for run in group.runs]

    @property
    def once(self) -> bool:
        """Whether all models on the page were diagnosed without training, so that there is no time axis."""
        return all(run.is_diagnosis for run in self.runs)

    @property
    def time_label(self) -> str:
        """Name of the time axis."""
        return f"{'epochs' if self.by_epochs else 'steps'} of training"

    @property
    def by_epochs(self) -> bool:
        """Whether the time of all runs is known in epochs."""
        return all(run.time_unit == "epochs" for run in self.runs)

    def place(self, run: Run) -> int:
        """Return the index of a run in `runs`."""
        return next(place for place, each in enumerate(self.runs) if each is run)

    def logged(self, run: Run, member: Member, stage: str) -> Series | Readouts | Snapshot | None:
        """Return what a run logged for a quantity in a stage, such as "val", or None."""
        return logged(run, member.names.get(self.place(run), {}).get(stage, ""))


def plans(view: View) -> dict[str, list[Plan]]:
    """Return the figures to draw, by section."""
    gathered: dict[str, dict[tuple[str, ...], list[Member]]] = {name: {} for name in SECTIONS}
    every = members(view.runs, last_layers=not view.alone)
    for member in every:
        if member.quantity.shown and not _has_later_layer(member, every):
            section = section_of(member, view.runs)
            of_layers = view.alone and member.base.startswith(LAYERS)
            held = [member, *(_nulls_by_layer(member, every) if of_layers else [])]
            gathered.setdefault(section, {}).setdefault(_figure_key(member, view), []).extend(held)
    found = {name: [plan for each in held.items() for plan in _plans(*each, view)] for name, held in gathered.items()}
    found[_LEARNING].sort(key=lambda plan: not any(is_objective(member, view.runs) for member in plan.members))
    return {section: kept for section, kept in found.items() if kept}


def in_order(sections: Iterable[str]) -> list[str]:
    """Sort page sections: first the sections of the package, then the user's sections, then "other"."""
    *known, last = SECTIONS
    asked = list(dict.fromkeys(sections))
    own = [name for name in asked if name not in SECTIONS]
    return [name for name in [*known, *own, last] if name in asked]


def section_of(member: Member, runs: Sequence[Run]) -> str:
    """Return the page section of a quantity. A loss without a description is in "learning"."""
    if member.declared:
        return member.declared.section or _OTHER
    if member.base.startswith(LAYERS):
        return LAYERS.rstrip("/")
    is_loss = is_objective(member, runs) or (_LOSS.search(member.base) and is_scalar(member, runs))
    return _LEARNING if is_loss else _OTHER


def is_objective(member: Member, runs: Sequence[Run]) -> bool:
    """Whether training descends this value in one of the runs, as `run.json` says."""
    for place, held in member.names.items():
        objective = runs[place].info.get("objective")
        if isinstance(objective, str) and not {objective, f"{objective}_epoch"}.isdisjoint(held.values()):
            return True
    return False


def _figure_key(member: Member, view: View) -> tuple[str, ...]:
    place, names = next(iter(member.names.items()))
    log, kind = log_kind(view.runs[place], next(iter(names.values()))), _kind(member, view)
    if kind == "layers":
        return log, member.base.replace("/", "_")
    apart, chart = kind not in _ONE_FIGURE, member.quantity.chart
    named = "chart" if chart else "own" if member.declared else "undeclared"  # equal names of these are by chance
    name, space = chart.name if chart else _own_name(member), member.space if apart and member.spaces else ""
    part = member.part if apart else member.own_name if kind in _OF_SAMPLES else ""
    return f"{log}, {named}", name, space, part if view.alone else ""


def _own_name(member: Member) -> str:
    if member.declared is None:
        return member.base
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", member.declared.diagnostic).lower()
    return "_".join(filter(None, [snake, member.declared.key]))


def _class_in_words(member: Member) -> str:
    return member.declared.diagnostic.removesuffix("Module") if member.declared else "undeclared"


def _subjects(members: Iterable[Member]) -> list[Member]:
    return [member for member in members if not member.quantity.baseline and not member.role]


def _plans(figure: tuple[str, ...], members: list[Member], view: View) -> list[Plan]:
    kind = next((_kind(member, view) for member in _subjects(members)), None)
    pictures = [member.quantity.picture for member in members if _kind(member, view) == "path"]
    sides = [picture.role for picture in pictures if picture]
    if sides and (view.once or not view.alone or sorted(sides) != ["", "x"]):  # no path: a line for each quantity
        return [
            _one((_own_name(member),), [member], "line", title=member.quantity.title, view=view) for member in members
        ]
    if kind is None:
        return []
    if kind != "path" and len({member.quantity.percent for member in members if not member.role}) > 1:
        return [plan for last, each in _by_scale(members).items() for plan in _plans((*figure, last), each, view)]
    meant: dict[tuple[str, str], list[Member]] = {}  # the losses of two methods have one title, and two meanings
    for member in members:
        meant.setdefault((member.quantity.title, member.quantity.text), []).append(member)
    classes = {member.declared.diagnostic for member in members if member.declared}
    subjects = _subjects(members)
    many = len(classes) > 1 or len(subjects) > _MOST_DASHES - bool(nulls(subjects, members))
    if not view.alone and many and len(meant) > 1:  # colours are the groups', so that each has its own
        titles = Counter(title for title, _ in meant)
        return [_one((_own_name(each[0]),), [*each, *nulls(each, members)], kind, view=view,
                     title=title if titles[title] == 1 else f"{title} ({_class_in_words(each[0])})")
                for (title, _), each in meant.items() if _subjects(each)]  # fmt: skip
    first = _subjects(members)[0].quantity
    title = first.chart.title if first.chart else first.title
    titled_by_scale = f"{title}, in percent" if figure[-1] == _PERCENT else title
    return _comparable(_one(figure[1:], members, kind, title=titled_by_scale, view=view), view)


def _comparable(plan: Plan, view: View) -> list[Plan]:
    # monitors and stages whose values may not be compared have figures of their own
    if not view.alone:
        return [plan]
    sizes: dict[str, dict[str, float]] = {}  # monitor -> stage -> size
    for member in plan.drawn:
        for stage, name in member.names[0].items():
            if (size := size_behind(view.runs[0], member, name)) is not None:
                sizes.setdefault(member.own_name, {}).setdefault(stage, size)
    stages = sorted({stage for held in sizes.values() for stage in held}, key=stage_order)
    by_stage = {stage: [held[stage] for held in sizes.values() if stage in held] for stage in stages}
    if not all(_same_size(each, found[0]) for found in by_stage.values() for each in found):
        return [part for monitor in sizes for part in _comparable(_of_monitor(plan, monitor, [*sizes]), view)]
    apart: dict[float, list[str]] = {}
    for stage, (size, *_) in by_stage.items():
        apart.setdefault(next((known for known in apart if _same_size(size, known)), size), []).append(stage)
    if len(apart) < 2:
        return [plan]
    first, *others = apart.values()
    rest = [stage for member in plan.drawn for stage in member.names[0] if stage not in by_stage]
    return [_of_stages(plan, stages) for stages in ([*first, *dict.fromkeys(rest)], *others)]


def _same_size(size: float, known: float) -> bool:
    return abs(known - size) <= _SAME_SIZE * known


def _of_monitor(plan: Plan, monitor: str, every: Sequence[str]) -> Plan:
    # what belongs to no monitor stays with the first one
    kept = [
        each
        for each in plan.members
        if each.own_name == monitor or (each.own_name not in every and monitor == every[0])
    ]
    return replace(plan, name=f"{plan.name}_{monitor}", title=f"{plan.title} ({monitor})", members=tuple(kept))


def _of_stages(plan: Plan, stages: Sequence[str]) -> Plan:
    kept = [replace(each, names={0: {stage: each.names[0][stage] for stage in stages if stage in each.names[0]}})
            for each in plan.members]  # fmt: skip
    named = ", ".join(stages)
    return replace(
        plan,
        name="_".join([plan.name, *stages]),
        title=f"{plan.title}, {named}",
        members=tuple(each for each in kept if each.names[0]),
    )


def nulls(drawn: Sequence[Member], members: Iterable[Member]) -> list[Member]:
    """Return the members that are the null of one of `drawn`."""
    known = {(each.declared.diagnostic, each.quantity.null) for each in drawn if each.declared}
    return [each for each in members if each.declared and (each.declared.diagnostic, each.declared.key) in known]


def _nulls_by_layer(drawn: Member, members: Iterable[Member]) -> list[Member]:
    return [each for each in nulls([drawn], members) if each.quantity.baseline and each.base.startswith(LAYERS)]


def _by_scale(members: Sequence[Member]) -> dict[str, list[Member]]:
    # percentages need an axis of their own; members with a role belong to both figures
    parted = {
        name: [each for each in members if each.role or each.quantity.percent is percent]
        for name, percent in (("", False), (_PERCENT, True))
    }
    return {name: each if _subjects(each) else [_measured(member) for member in each] for name, each in parted.items()}


def _measured(member: Member) -> Member:  # a baseline that is alone on its axis is drawn like any quantity
    declared = member.declared
    if declared is None or member.role:
        return member
    return replace(member, declared=replace(declared, quantity=replace(declared.quantity, baseline=False)))


def _one(figure: tuple[str, ...], members: Sequence[Member], kind: Figured, title: str, view: View) -> Plan:
    first, chart = members[0], members[0].quantity.chart
    spaces = {member.space for member in members if not member.quantity.baseline}
    parts = {member.part for member in members}
    apart = [space_name(next(iter(spaces)))] if len(spaces) == 1 and any(member.spaces for member in members) else []
    apart += [next(iter(parts))] if len(parts) == 1 else []
    apart += [first.own_name] if len(members) == 1 or kind in _OF_SAMPLES else []
    named = ", ".join(filter(None, apart))
    whole = f"{first.quantity.title} by layer" if kind == "layers" else f"{title} ({named})" if named else title
    shares_axes = chart is not None and kind != "layers" and not (first.kind == "path" != kind)
    objective = any(not member.declared and is_objective(member, view.runs) for member in members)
    said = [chart.remark if chart and shares_axes else "", _DESCENDED if objective else ""]
    remark = " ".join(filter(None, [*said, *_cautions(members, view)]))
    name, unit = "_".join(filter(None, figure)), printable(_unit(members, kind), 40)
    return Plan(name, printable(whole, 100), unit, kind=kind, members=tuple(members), remark=remark)


def _unit(members: Sequence[Member], kind: Figured) -> str:
    first = members[0].quantity
    unit = (first.chart.unit if first.chart else "") or next(
        (each.quantity.unit for each in members if each.quantity.unit), "value"
    )
    if kind == "layers" or (kind == "line" and len(members) == 1):
        unit = first.unit or unit
    pictures = [member.quantity.picture for member in members]
    if kind not in _OF_LOGARITHMS and any(picture and picture.logarithm for picture in pictures):
        unit = f"logarithm of {unit}"
    return unit + (", %" if all(each.quantity.percent for each in members) and not unit.endswith("%") else "")


def _cautions(members: Sequence[Member], view: View) -> list[str]:
    named = dict.fromkeys(filter(None, (_names(member, view) for member in members if not member.quantity.baseline)))
    said = [f"Logged under different names, so settings may differ: {'; '.join(named)}."] if named else []
    places = {place for member in members for place in member.names}
    runs = [each for place, each in enumerate(view.grouped) if place in places]
    return [*said, different_data(runs)] if all(run.is_diagnosis for _, run in runs) else said


def _names(member: Member, view: View) -> str:
    found: dict[str, dict[str, dict[str, None]]] = {}  # what is drawn together -> name -> where
    for place, held in member.names.items():
        for stage, name in held.items():
            where = stage if view.alone else printable(view.grouped[place][0].name, 30)
            found.setdefault("" if view.alone else stage, {}).setdefault(split(name)[1], {})[where] = None
    listed: Mapping[str, Mapping[str, None]] = next((names for names in found.values() if len(names) > 1), {})
    return ", ".join(f"{printable(name, 40)} ({', '.join(where)})" for name, where in listed.items())


def _kind(member: Member, view: View) -> Figured:
    place, names = next(iter(member.names.items()))
    name = next(iter(names.values()))
    log, asked = logged(view.runs[place], name), member.kind
    if name.startswith(LAYERS):
        return "layers"
    if isinstance(log, Series):
        return "path" if asked == "path" else "line"
    if isinstance(log, Readouts):
        return asked if asked in _OF_ARRAYS else "profile"
    return asked if asked in _OF_SNAPSHOTS else "matrix"


def _has_later_layer(member: Member, every: Sequence[Member]) -> bool:
    if member.kind != "components":
        return False
    # only the last of several layers is drawn
    alike = [each for each in every if each.quantity == member.quantity and each.space == member.space]
    return alike[-1].part != member.part
