"""The quantities of one or several runs. If logs of several runs have the same meaning, they are one quantity.

Logs have the same meaning if they are the same result of the same diagnostic for the same tensor. If one run has
several logs of the same meaning, or if a log has no description, the logged names must also be equal.
"""

__all__ = ["LAYERS", "Member", "is_scalar", "log_kind", "logged", "members", "printable", "series_of", "sibling",
           "size_behind", "space_name", "split", "stage_order"]  # fmt: skip

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.quantity import Kind, Quantity
from lightning_ssl_geometry.report.logs import Readouts, Series, Snapshot
from lightning_ssl_geometry.report.run import Run

LAYERS = "layers/"  # begins the name of a column of layers.csv
_STAGES = ("train", "val", "probe", "test")
_CLEAN = "_image"
_Identity = tuple[str, ...]  # the meaning of a log: class, key, part, space


@dataclass(frozen=True)
class Member:
    """A quantity, with the names under which runs logged it."""

    declared: Declared | None  # in the first run that has it; None if nobody declared it
    base: str  # the logged name behind the stage, in the first run that has it
    names: dict[int, dict[str, str]] = field(default_factory=dict)  # run's place -> stage -> its logged name
    own_name: str = ""  # tells it apart from another quantity of the same meaning
    spaces: bool = False  # its title names its space: there are several, or it is not the one of its class
    ordinal: str = ""  # "2nd layer" of those that have the quantity, if they are places in a list of layers

    @property
    def quantity(self) -> Quantity:
        """Description of the quantity. If a log has none, its title is the logged name."""
        return self.declared.quantity if self.declared else Quantity(title=self.base or "value", text="-")

    @property
    def space(self) -> str:
        """The tensor on which the quantity is computed, such as "h_image", or ""."""
        return self.declared.space if self.declared else ""

    @property
    def part(self) -> str:
        """The part of the network, such as "2nd layer, layers.3" or "2nd layer, module 3", or ""."""
        name = _layer_name(self.declared.part) if self.declared and self.declared.part else ""
        return ", ".join(filter(None, [self.ordinal, f"module {name}" if name.isdecimal() else name]))

    @property
    def short_part(self) -> str:
        """The part of the network for the end of a line: "2nd layer" if layers are counted, else its name."""
        return self.ordinal or self.part

    @property
    def kind(self) -> Kind | None:
        """The kind of figure that the quantity declares, or None."""
        return self.quantity.picture.kind if self.quantity.picture else None

    @property
    def role(self) -> str:
        """Role of an auxiliary quantity in a figure, such as "label", or ""."""
        picture = self.quantity.picture
        return picture.role if picture and picture.kind != "path" else ""

    @property
    def title(self) -> str:
        """The title. Tensor, layer and logged name are added if several quantities share a title."""
        apart = [space_name(self.space) if self.spaces else "", self.part, self.own_name]
        named = ", ".join(filter(None, apart))
        return f"{self.quantity.title} ({named})" if named else self.quantity.title


def members(runs: Sequence[Run], last_layers: bool = False) -> list[Member]:
    """Return the quantities of all runs, in the order of their descriptions. Logs without description come last.

    With `last_layers`, only the last layer of a quantity is kept. Networks of different depths can then be compared.
    """
    found: dict[_Identity, Member] = {}
    identities = [_of_last_layers(_identities(run)) if last_layers else _identities(run) for run in runs]
    several = {each for held in identities for each in _repeated(held)}
    alike: dict[_Identity, set[str]] = {}
    for held in identities:
        for name, identity in held.items():
            alike.setdefault(identity, set()).add(split(name)[1])
    observed = {(*each[:2], each[3]) for held in identities for each in held.values() if each[0] and each[3]}
    spaces = Counter(each[:2] for each in observed)
    for place, held in enumerate(identities):
        for name, identity in held.items():
            stage, base = split(name)
            key = (log_kind(runs[place], name), *identity, *([base] if identity in several else []))
            declared = runs[place].declared.get(name)
            apart = declared is not None and (declared.renamed or spaces[identity[:2]] > 1)
            if declared is not None and last_layers:
                declared = replace(declared, part="")
            own = _own_name(base, alike[identity]) if identity in several else ""
            member = found.setdefault(key, Member(declared, base, own_name=own, spaces=apart))
            member.names.setdefault(place, {}).setdefault(stage, name)
    return _layers_counted([*found.values()])


def logged(run: Run, name: str) -> Series | Readouts | Snapshot | None:
    """Return what a run logged under a name, or None. A column of layers.csv is an array with one row."""
    if name.startswith(LAYERS) and run.layers and (column := name.removeprefix(LAYERS)) in run.layers.values:
        return Readouts(name, np.zeros(1), np.zeros(1), values=run.layers.values[column][None])
    return run.scalars.get(name) or run.arrays.get(name) or run.snapshots.get(name)


def log_kind(run: Run, name: str) -> str:
    """Return the kind of a log: a scalar, a vector, a larger array or a column of layers.csv."""
    return LAYERS if name.startswith(LAYERS) else type(logged(run, name)).__name__


def series_of(run: Run, member: Member) -> list[Series]:
    """Return the scalars of a quantity in a single run, one for each stage."""
    found = [run.scalars[name] for name in member.names.get(0, {}).values() if name in run.scalars]
    return sorted(found, key=lambda series: stage_order(series.name.partition("/")[0]))


def sibling(name: str, key: str, other: str) -> str:
    """Return the logged name of another result of the same diagnostic. `key` is the key of the result `name`.

    >>> sibling("val/bound_upper", "upper", "negatives"), sibling("val/lidar", "", "null")
    ('val/bound_negatives', 'val/lidar_null')
    """
    return name.removesuffix(key) + other if key else f"{name}_{other}"


def size_behind(run: Run, member: Member, name: str) -> float | None:
    """Return the last value of the result that `comparable_at` names, for the log `name`. None if there is none."""
    known = member.declared
    if known is None or not known.quantity.comparable_at:
        return None
    beside = run.scalars.get(sibling(name, known.key, known.quantity.comparable_at))
    return float(beside.value[-1]) if beside is not None and beside.finite[-1:].all() else None


def is_scalar(member: Member, runs: Sequence[Run]) -> bool:
    """Whether a run has the quantity as a scalar over training."""
    return any(name in runs[place].scalars for place, held in member.names.items() for name in held.values())


def split(name: str) -> tuple[str, str]:
    """Split a logged name into stage and rest: "val/loss" into "val" and "loss", "lr" into "" and "lr"."""
    stage, slash, rest = name.partition("/")
    return (stage, rest) if slash and stage in _STAGES else ("", name)


def stage_order(stage: str) -> int:
    """Return a sort key for stages: train, val, probe, test, then none."""
    return _STAGES.index(stage) if stage in _STAGES else len(_STAGES)


def _layer_name(part: str) -> str:
    return re.sub(r"_(?=\d)|(?<=\d)_", ".", part)


def _layers_counted(found: Sequence[Member]) -> list[Member]:
    # "layers.0" and "layers.3" are the first and second layer that have the quantity; "head" is no place in a list
    lists: dict[tuple[str, ...], list[int]] = {}
    places: dict[int, tuple[tuple[str, ...], int]] = {}
    for at, member in enumerate(found):
        known = member.declared
        listed, _, place = _layer_name(known.part).rpartition(".") if known else ("", "", "")
        if known and place.isdecimal():
            which = (known.diagnostic, known.key, known.space, member.own_name.removesuffix(known.part), listed)
            places[at] = which, int(place)
            lists.setdefault(which, []).append(int(place))
    counted = {at: sorted(set(lists[which])).index(place) for at, (which, place) in places.items()
               if len(set(lists[which])) > 1}  # fmt: skip
    return [replace(member, ordinal=f"{_ordinal(counted[at] + 1)} layer") if at in counted else member
            for at, member in enumerate(found)]  # fmt: skip


def _ordinal(number: int) -> str:
    ends = {1: "st", 2: "nd", 3: "rd"}
    return f"{number}{'th' if number % 100 in (11, 12, 13) else ends.get(number % 10, 'th')}"


def space_name(space: str) -> str:
    """Return readable words for the name of a tensor: "h, clean images" for "h_image"."""
    return f"{space.removesuffix(_CLEAN)}, clean images" if space.endswith(_CLEAN) else space


def printable(text: str, most: int = 18) -> str:
    r"""Replace control characters, and the middle of a text that is longer than `most` characters.

    >>> printable("a\x00 name that is too long")
    'a� name t…too long'
    """
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= most else f"{text[: most // 2]}…{text[most // 2 + 1 - most :]}"


def _identities(run: Run) -> dict[str, _Identity]:
    twins = (name for name in run.scalars if name.endswith("_step") and name not in run.declared)
    means = {name for name in twins if name.removesuffix("_step") in run.scalars}  # Lightning logged their mean, too
    names = [name for name in run.scalars if name not in means]
    names += [*sorted(run.arrays), *sorted(run.snapshots)]
    names += [f"{LAYERS}{column}" for column in run.layers.values] if run.layers and len(run.layers.names) > 1 else []
    place = {name: place for place, name in enumerate(run.declared)}
    names.sort(key=lambda name: place.get(name, len(place)))
    known = ((name, run.declared.get(name)) for name in names)
    return {name: ("", split(name)[1], "", "") if each is None else each.meaning for name, each in known}


def _repeated(held: Mapping[str, _Identity]) -> set[_Identity]:  # several logs of a stage mean the same
    counts = Counter((split(name)[0], identity) for name, identity in held.items())
    return {identity for (_, identity), count in counts.items() if count > 1}


def _own_name(base: str, alike: Iterable[str]) -> str:  # the name of its monitor, or "" without, if that is enough
    monitors = [name.rpartition("/")[0] for name in alike]
    monitor = base.rpartition("/")[0]
    return monitor if monitors.count(monitor) == 1 else base


def _of_last_layers(held: Mapping[str, _Identity]) -> dict[str, _Identity]:
    last = {identity[:2] + identity[3:]: identity[2] for identity in held.values()}
    joined = {name: (*identity[:2], "", *identity[3:]) for name, identity in held.items()}
    return {name: joined[name] for name, each in held.items() if each[2] == last[each[:2] + each[3:]]}
