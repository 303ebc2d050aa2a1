"""Which logs of runs stand together in a figure: by section, chart, and for arrays by the space that was observed.

Logs of several runs are joined by the class that computed them, the key of the result and the space that it saw; where
a run has that more than once, by their names too. What no callback of this package wrote goes by its name alone.
"""

__all__ = [
    "Figured",
    "Member",
    "Plan",
    "View",
    "is_scalar",
    "layer_name",
    "logged",
    "members",
    "plans",
    "printable",
    "role",
    "section_of",
    "space_name",
]

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Literal

import numpy as np

from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.quantity import SECTIONS, Kind, Quantity
from lightning_ssl_geometry.report.facts import different_data
from lightning_ssl_geometry.report.groups import Group, split
from lightning_ssl_geometry.report.logs import Readouts, Series, Snapshot
from lightning_ssl_geometry.report.run import Run

_OTHER, _LEARNING = "other", "learning"
_OBJECTIVE = re.compile("loss|objective|criterion", re.IGNORECASE)
_CLEAN = "_image"
_PERCENT = "percent"  # the end of the name of a figure whose chart has quantities of another scale too
_LAYERS = "layers/"  # before the name of a column of layers.csv
Figured = Kind | Literal["layers"]
_ONE_FIGURE: tuple[Figured, ...] = ("line", "path", "images", "points", "layers")  # whatever the spaces
_OF_ARRAYS: tuple[Figured, ...] = ("components", "spectrum", "profile", "histogram", "quantiles")
_OF_LOGARITHMS: tuple[Figured, ...] = ("spectrum", "profile", "histogram", "quantiles")  # drawn as what they are of
_OF_SNAPSHOTS: tuple[Figured, ...] = ("matrix", "points", "images")
Identity = tuple[str, ...]


@dataclass(frozen=True)
class Member:
    """A quantity of a figure, in whichever runs have it.

    Attributes:
        declared: What is known of it, in the first run that has it; None of a log that nobody declared.
        base: Its logged name behind the stage, in the first run that has it.
        names: Run's place -> stage -> its logged name.
        distinct: Its name says more than what is known of it.
        spaces: Others of its kind observed other spaces, or it another one than its class does by itself.
    """

    declared: Declared | None
    base: str
    names: dict[int, dict[str, str]] = field(default_factory=dict)
    distinct: bool = False
    spaces: bool = False

    @property
    def quantity(self) -> Quantity:
        """What it means; of an undeclared log, its name."""
        return self.declared.quantity if self.declared else Quantity(title=self.base or "value", text="-")

    @property
    def space(self) -> str:
        """The space that was observed, empty where there is none."""
        return self.declared.space if self.declared else ""

    @property
    def part(self) -> str:
        """A layer's name, for example."""
        return layer_name(self.declared.part) if self.declared and self.declared.part else ""

    @property
    def title(self) -> str:
        """Its name for people, with what tells it apart from others of that name."""
        apart = [space_name(self.space) if self.spaces else "", self.part, self.base if self.distinct else ""]
        named = ", ".join(filter(None, apart))
        return f"{self.quantity.title} ({named})" if named else self.quantity.title


@dataclass(frozen=True)
class Plan:
    """A figure that is to be drawn.

    Attributes:
        name: Good for a file name.
        title: Above it.
        unit: At its axis.
        kind: How it is drawn.
        members: What is drawn, and what serves that, such as labels.
        remark: What is true of it in all runs.
    """

    name: str
    title: str
    unit: str
    kind: Figured
    members: tuple[Member, ...]
    remark: str = ""

    @property
    def saved_unit(self) -> str:
        """Of the values as they were logged: shares are saved as shares."""
        return self.unit.removesuffix(", %")

    @property
    def drawn(self) -> list[Member]:
        """The quantities that it is about."""
        return _subjects(self.members)

    def serving(self, asked: str) -> Member | None:
        """The quantity that serves the others as labels, for example."""
        return next((each for each in self.members if role(each) == asked), None)


@dataclass(frozen=True)
class View:
    """What a page is about.

    Attributes:
        groups: A single run is a group of one, without a name.
        titled: Figures have their titles in them, to stand alone.
    """

    groups: tuple[Group, ...]
    titled: bool = False

    @property
    def alone(self) -> bool:
        """Whether it is one run: colours tell quantities apart, and dashes data; else groups, and quantities."""
        return len(self.groups) == 1 and not self.groups[0].name

    @cached_property
    def runs(self) -> tuple[Run, ...]:
        """All runs, in the order of their groups."""
        return tuple(run for group in self.groups for run in group.runs)

    @property
    def once(self) -> bool:
        """Whether nothing was trained in any of the runs, so that there is no time to draw over."""
        return all(run.is_diagnosis for run in self.runs)

    @property
    def time_label(self) -> str:
        """Name of the time axis."""
        return f"{'epochs' if self.by_epochs else 'steps'} of training"

    @property
    def by_epochs(self) -> bool:
        """Whether time can be told in epochs for all runs."""
        return all(run.time_unit == "epochs" for run in self.runs)

    def place(self, run: Run) -> int:
        """Where a run stands among all."""
        return next(place for place, each in enumerate(self.runs) if each is run)


def plans(view: View) -> dict[str, list[Plan]]:
    """Say which figures are to be drawn, by section in the order of the page."""
    gathered: dict[str, dict[tuple[str, ...], list[Member]]] = {name: {} for name in SECTIONS}
    every = members(view.runs, last_layers=not view.alone)
    for member in every:
        if member.quantity.shown and not _has_a_later(member, every):
            section = section_of(member, view.runs)
            gathered.setdefault(section, {}).setdefault(_figure(member, view), []).append(member)
    ordered = {**gathered, _OTHER: gathered.pop(_OTHER)}
    found = {name: [plan for each in held.items() for plan in _plans(*each, view)] for name, held in ordered.items()}
    return {section: kept for section, kept in found.items() if kept}


def logged(run: Run, name: str) -> Series | Readouts | Snapshot | None:
    """Find a log of a run by its name; a column of layers as one readout."""
    if name.startswith(_LAYERS) and run.layers and (column := name.removeprefix(_LAYERS)) in run.layers.values:
        return Readouts(name, np.zeros(1), np.zeros(1), run.layers.values[column][None])
    return run.scalars.get(name) or run.arrays.get(name) or run.snapshots.get(name)


def layer_name(part: str) -> str:
    """Name a layer by what stands behind a result's name; a log has no dots in names of modules.

    >>> layer_name("2"), layer_name("layers_3")
    ('layer 2', 'layers.3')
    """
    return f"layer {part}" if part.isdecimal() else re.sub(r"_(?=\d)|(?<=\d)_", ".", part)


def space_name(space: str) -> str:
    """Name the space that was observed.

    >>> space_name("h"), space_name("h_image")
    ('h', 'h, clean images')
    """
    return f"{space.removesuffix(_CLEAN)}, clean images" if space.endswith(_CLEAN) else space


def printable(text: str, most: int = 18) -> str:
    r"""Make a text of a run fit to stand in a figure: names of a kind often differ in their ends alone.

    >>> printable("a\x00 name that is too long")
    'a� name t…too long'
    """
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= most else f"{text[: most // 2]}…{text[most // 2 + 1 - most :]}"


def members(runs: Sequence[Run], last_layers: bool = False) -> list[Member]:
    """Join the logs of runs, in the order in which they were declared; the others behind them.

    Args:
        runs: One or several.
        last_layers: Of what a run has for several layers, take the last that was declared: networks of other depths are
            joined there.
    """
    found: dict[Identity, Member] = {}
    identities = [_last_parts(_identities(run)) if last_layers else _identities(run) for run in runs]
    several = {each for held in identities for each in _repeated(held)}
    observed = {(*each[:2], each[3]) for held in identities for each in held.values() if each[0] and each[3]}
    spaces = Counter(each[:2] for each in observed)
    for place, held in enumerate(identities):
        for name, identity in held.items():
            stage, base = split(name)
            key = (_log(runs[place], name), *identity, *([base] if identity in several else []))
            declared = runs[place].declared.get(name)
            apart = declared is not None and (declared.renamed or spaces[identity[:2]] > 1)
            if declared is not None and last_layers:
                declared = replace(declared, part="")
            member = found.setdefault(key, Member(declared, base, distinct=identity in several, spaces=apart))
            member.names.setdefault(place, {}).setdefault(stage, name)
    return list(found.values())


def _identities(run: Run) -> dict[str, Identity]:
    """Find what each log of a run is joined by."""
    names = [name for name in run.scalars if not _is_step_twin(run, name)]
    names += [*sorted(run.arrays), *sorted(run.snapshots)]
    names += [f"{_LAYERS}{column}" for column in run.layers.values] if run.layers and len(run.layers.names) > 1 else []
    place = {name: place for place, name in enumerate(run.declared)}
    names.sort(key=lambda name: place.get(name, len(place)))
    return {name: _identity(run.declared.get(name), name) for name in names}


def _identity(declared: Declared | None, name: str) -> Identity:
    if declared is None:
        return ("", split(name)[1], "", "")
    return declared.meaning


def _repeated(held: Mapping[str, Identity]) -> set[Identity]:
    """What a run has under several names in one stage: only their names tell these apart."""
    seen: set[tuple[str, Identity]] = set()
    found: set[Identity] = set()
    for name, identity in held.items():
        key = (split(name)[0], identity)
        found |= {identity} if key in seen else set()
        seen.add(key)
    return found


def section_of(member: Member, runs: Sequence[Run]) -> str:
    """Where it belongs; what a host calls its loss, without declaring it, is what it descends."""
    if member.declared:
        return member.declared.section or _OTHER
    if member.base.startswith(_LAYERS):
        return _LAYERS.rstrip("/")
    return _LEARNING if _OBJECTIVE.search(member.base) and is_scalar(member, runs) else _OTHER


def _log(run: Run, name: str) -> str:
    """Whether a log is a scalar, an array or of layers: of one name, these are not drawn together."""
    return _LAYERS if name.startswith(_LAYERS) else type(logged(run, name)).__name__


def _figure(member: Member, view: View) -> tuple[str, ...]:
    """Log, chart, and for what is drawn at some moments, the space and part that have a figure of their own."""
    place, names = next(iter(member.names.items()))
    log, apart = _log(view.runs[place], next(iter(names.values()))), _kind(member, view) not in _ONE_FIGURE
    if _kind(member, view) == "layers":
        return log, member.base.replace("/", "_")
    space = member.space if apart and member.spaces else ""
    chart = member.quantity.chart
    named = "chart" if chart else "own" if member.declared else "undeclared"  # equal names of these are by chance
    name = chart.name if chart else _own_name(member)
    return f"{log}, {named}", name, space, member.part if apart and view.alone else ""


def _own_name(member: Member) -> str:
    """Class and key in snake case; of what nobody declared, its name."""
    if member.declared is None:
        return member.base
    snake = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", member.declared.diagnostic).lower()
    return "_".join(filter(None, [snake, member.declared.key]))


def _subjects(members: Iterable[Member]) -> list[Member]:
    """What a figure is about, and not what serves it."""
    return [member for member in members if not member.quantity.baseline and not role(member)]


def _plans(figure: tuple[str, ...], members: list[Member], view: View) -> list[Plan]:
    """One figure; of a path that cannot be drawn as one, a figure for each of its quantities."""
    kind = next((_kind(member, view) for member in _subjects(members)), None)
    paths = [
        member.quantity.picture.role for member in members if _kind(member, view) == "path" and member.quantity.picture
    ]
    if paths and (view.once or not view.alone or sorted(paths) != ["", "x"]):
        return [_one((_own_name(member),), [member], "line", member.quantity.title, view) for member in members]
    if kind is None:
        return []
    if kind != "path" and len({member.quantity.percent for member in members if not role(member)}) > 1:
        return [plan for last, each in _by_scale(members).items() for plan in _plans((*figure, last), each, view)]
    if not view.alone and len({member.declared.diagnostic for member in members if member.declared}) > 1:
        titled = {member.quantity.title: member for member in members}
        if len(titled) > 1:  # of several classes, such as probes: colours are the groups', so each has its own figure
            alike = {title: [each for each in members if each.quantity.title == title] for title in titled}
            return [_one((_own_name(each[0]),), each, kind, title, view) for title, each in alike.items()]
    first = _subjects(members)[0]
    chart = first.quantity.chart
    title = chart.title if chart else first.quantity.title
    return [_one(figure[1:], members, kind, f"{title}, in percent" if figure[-1] == _PERCENT else title, view)]


def _by_scale(members: Sequence[Member]) -> dict[str, list[Member]]:
    """Part what is in percent from what is not, as no axis holds both; what serves others is in each part.

    A baseline of another scale than all that it belongs to is drawn by itself, as any quantity.
    """
    parted = {
        name: [each for each in members if role(each) or each.quantity.percent is percent]
        for name, percent in (("", False), (_PERCENT, True))
    }
    return {name: each if _subjects(each) else [_measured(member) for member in each] for name, each in parted.items()}


def _measured(member: Member) -> Member:
    declared = member.declared
    if declared is None or role(member):
        return member
    return replace(member, declared=replace(declared, quantity=replace(declared.quantity, baseline=False)))


def _one(figure: tuple[str, ...], members: Sequence[Member], kind: Figured, title: str, view: View) -> Plan:
    spaces = {member.space for member in members if not member.quantity.baseline}
    parts = {member.part for member in members}
    apart = [space_name(next(iter(spaces)))] if len(spaces) == 1 and any(member.spaces for member in members) else []
    apart += [next(iter(parts))] if len(parts) == 1 else []
    apart += [members[0].base] if members[0].distinct and len(members) == 1 else []
    named = ", ".join(filter(None, apart))
    chart = members[0].quantity.chart
    unit = (chart.unit if chart else "") or next((m.quantity.unit for m in members if m.quantity.unit), "value")
    if kind == "layers" or (kind == "line" and members[0].quantity.unit and len(members) == 1):
        unit = members[0].quantity.unit or unit
    unit = f"logarithm of {unit}" if kind not in _OF_LOGARITHMS and any(map(_is_logarithm, members)) else unit
    unit += ", %" if all(m.quantity.percent for m in members) and not unit.endswith("%") else ""
    whole = f"{members[0].quantity.title} by layer" if kind == "layers" else f"{title} ({named})" if named else title
    name = "_".join(filter(None, figure))
    shares_axes = chart is not None and kind != "layers" and not (picture_kind(members[0]) == "path" != kind)
    said = [chart.remark if chart and shares_axes else "", *_cautions(members, view)]
    remark = " ".join(filter(None, said))
    return Plan(name, printable(whole, 100), printable(unit, 40), kind, tuple(members), remark)


def _is_logarithm(member: Member) -> bool:
    return bool(member.quantity.picture and member.quantity.picture.logarithm)


def _cautions(members: Sequence[Member], view: View) -> list[str]:
    """Say what a reader may not expect of lines that were joined: other names, and so perhaps settings; other data."""
    named = dict.fromkeys(filter(None, (_names(member, view) for member in members if not member.quantity.baseline)))
    said = [f"Logged under different names, so settings may differ: {'; '.join(named)}."] if named else []
    places = {place for member in members for place in member.names}
    every = [(group, run) for group in view.groups for run in group.runs]
    runs = [each for place, each in enumerate(every) if place in places]
    return [*said, different_data(runs)] if all(run.is_diagnosis for _, run in runs) else said


def _names(member: Member, view: View) -> str:
    """List the names of a quantity where stages of one run, or runs on data of one stage, differ in it."""
    homes = [group for group in view.groups for _ in group.runs]
    found: dict[str, dict[str, dict[str, None]]] = {}  # what is drawn together -> name -> where
    for place, held in member.names.items():
        for stage, name in held.items():
            where = stage if view.alone else printable(homes[place].name, 30)
            found.setdefault("" if view.alone else stage, {}).setdefault(split(name)[1], {})[where] = None
    listed = next((names for names in found.values() if len(names) > 1), {})
    return ", ".join(f"{printable(name, 40)} ({', '.join(where)})" for name, where in listed.items())


def _kind(member: Member, view: View) -> Figured:
    """How it is declared to be drawn, where its values allow that; else by their shape."""
    place, names = next(iter(member.names.items()))
    name = next(iter(names.values()))
    log, asked = logged(view.runs[place], name), picture_kind(member)
    if name.startswith(_LAYERS):
        return "layers"
    if isinstance(log, Series):
        return "path" if asked == "path" else "line"
    if isinstance(log, Readouts):
        return asked if asked in _OF_ARRAYS else "profile"
    return asked if asked in _OF_SNAPSHOTS else "matrix"


def _last_parts(held: Mapping[str, Identity]) -> dict[str, Identity]:
    """Keep, of results that a run has for several layers, those of the last, and forget which layer that is.

    The logs are in the order in which they were declared, which is that of the diagnostic, whatever the layers' names.
    """
    last = {identity[:2] + identity[3:]: identity[2] for identity in held.values()}
    joined = {name: (*identity[:2], "", *identity[3:]) for name, identity in held.items()}
    return {name: joined[name] for name, each in held.items() if each[2] == last[each[:2] + each[3:]]}


def _has_a_later(member: Member, every: Sequence[Member]) -> bool:
    """Whether it is of a layer, in many lines, and another layer comes later: only the last has that figure."""
    if picture_kind(member) != "components":
        return False
    alike = [each for each in every if each.quantity == member.quantity and each.space == member.space]
    return alike[-1].part != member.part


def picture_kind(member: Member) -> Kind | None:
    """How the quantity is declared to be drawn."""
    return member.quantity.picture.kind if member.quantity.picture else None


def is_scalar(member: Member, runs: Sequence[Run]) -> bool:
    """Whether a run has it as a scalar over training."""
    return any(name in runs[place].scalars for place, held in member.names.items() for name in held.values())


def _is_step_twin(run: Run, name: str) -> bool:
    """Whether Lightning logged a mean over the epoch beside it; what is declared is a result of its own."""
    return name.endswith("_step") and name.removesuffix("_step") in run.scalars and name not in run.declared


def role(member: Member) -> str:
    """How it serves the others of its figure; the two quantities of a path are both drawn."""
    picture = member.quantity.picture
    return picture.role if picture and picture.kind != "path" else ""
