"""The parts of a figure on the page, and the sentences below it."""

__all__ = ["DASHES", "Panel", "caption_of", "ceiling_of", "filled", "floor_of", "limits", "remark_of", "same_lines",
           "shown", "time_name"]  # fmt: skip

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots import Caption, Dash
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.figures import Plan, View
from lightning_ssl_geometry.report.logs import Floats, Series
from lightning_ssl_geometry.report.members import Member, logged, printable, sibling, stage_order
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.seen import cap_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES: dict[str, Dash] = {"train": "solid", "": "solid", "val": "dashed", "probe": "dashdot", "test": "dotted"}
_LONGEST, _WIDTH = 4_000, 58  # letters of a remark, and of a line of notes
_MOST_SAME = 4  # names of lines that coincide
_LAST = 1_000  # behind the sentences of a remark
_Where = tuple[str, str]  # a monitor's name, and a stage
_VALUE = re.compile(r"\{(\w+)(?::\.(\d)f)?\}")  # {first:.0f}: nothing else is filled in


@dataclass(frozen=True)
class Panel:
    """A figure with its texts and numbers."""

    name: str  # good for a file name
    title: str
    figure: "Figure"
    label: str  # the figure in words
    numbers: Numbers  # its numbers, to be saved
    members: Sequence[Member] = ()  # their texts stand below it
    stages: Sequence[str] = ()  # the data that it shows
    dashed: bool = False  # dashes tell these data apart
    remark: str = ""  # one more sentence
    about: Sequence[Quantity] = ()  # further quantities whose texts stand below it
    readouts: Sequence[str] = ()  # the first and the last of those that it shows when enlarged, and their number
    beside: "Figure | None" = None  # the same on a linear scale, shown beside the enlarged figure

    @property
    def quantities(self) -> list[Quantity]:
        """The quantities that the page explains below the figure."""
        declared = (member.declared.quantity for member in self.members if member.declared)
        return [*dict.fromkeys(each for each in (*declared, *self.about) if each.text or each.low)]


def shown(quantity: Quantity) -> tuple[float, Callable[[float], str]]:
    """Return how a quantity is shown: its scale factor in figures, and a function that formats a value."""
    return (100.0, percent) if quantity.percent else (1.0, number)


def limits(quantity: Quantity) -> tuple[float, float]:
    """Return the bounds of a quantity in the units of its figure. A missing bound is infinite."""
    scale, (low, high) = shown(quantity)[0], quantity.bounds
    return -np.inf if low is None else scale * low, np.inf if high is None else scale * high


def caption_of(view: View, title: str, notes: Iterable[str] = (), named: Sequence[tuple[Dash, str]] = ()) -> Caption:
    """Return the texts of a figure that compares groups. They are empty for a single run: its page has them in HTML."""
    lines = [line for note in notes for line in wrap(note, _WIDTH)]
    return Caption() if view.alone else Caption(title if view.titled else "", named, lines)


def ceiling_of(plan: Plan, view: View) -> float | None:
    """Return the greatest possible value of the quantities in a figure, or None if it is unknown."""
    tops = []
    for member in plan.drawn:
        caps = [cap_of(view.runs[place], name) for place, names in member.names.items() for name in names.values()]
        known = [cap.most for cap in caps if cap is not None]
        tops.append(float(max(known)) if caps and len(known) == len(caps) else limits(member.quantity)[1])
    return max(tops) if tops and np.isfinite(tops).all() else None


def floor_of(members: Iterable[Member]) -> float | None:
    """Return 0 if the vertical axis should start at 0, else None."""
    every = [member.quantity for member in members]
    full = all(q.bounds[0] in (0, 1) and not q.percent and (q.cap or q.bounds[1] is not None) for q in every)
    return 0.0 if every and full else None


def remark_of(plan: Plan, view: View, stages: Iterable[str]) -> str:
    """Return the remarks on a figure, including which values are limited by the number of samples.

    A sentence that does not hold for all monitors and stages begins with those for which it holds.
    """
    said: dict[tuple[int, str], dict[_Where, None]] = {}  # place in the remark, sentence -> where it holds
    for stage in sorted(stages, key=stage_order):
        for member in plan.drawn:
            where = member.own_name, stage
            for place, names in member.names.items():
                for at, sentence in enumerate(_sentences(filled(view.runs[place], member, names.get(stage, "")))):
                    said.setdefault((at, sentence), {})[where] = None
            caps = {cap_of(view.runs[place], names[stage]) for place, names in member.names.items() if stage in names}
            said |= {(_LAST, f"In {stage}, {cap.in_words}"): {where: None} for cap in caps if cap and cap.by_rows}
    every = {where for (at, _), held in said.items() if at < _LAST for where in held}
    told: dict[str, str] = {}  # what holds for the same monitors and stages stands together
    for (at, sentence), held in sorted(said.items(), key=lambda each: each[0][0]):
        for_whom = f"{_where(held, every)}: " if at < _LAST and len(held) < len(every) else ""
        key = for_whom or sentence
        told[key] = f"{told[key]} {sentence}" if key in told else for_whom + sentence
    return printable(" ".join(filter(None, [plan.remark, *told.values()])), _LONGEST)


def _where(held: Collection[_Where], every: Collection[_Where]) -> str:
    """Return the names of those (monitor, stage) pairs for which a sentence holds: whole monitors or stages if it can.

    >>> every = [("student", "train"), ("student", "val"), ("teacher", "train"), ("teacher", "val")]
    >>> _where(every[:2], every), _where(every[::2], every), _where(every[:3], every)
    ('student', 'train', 'student train, student val, teacher train')
    """
    for axis in (1, 0):
        names = dict.fromkeys(each[axis] for each in held)
        if sum(each[axis] in names for each in every) == len(held):
            return ", ".join(names)
    return ", ".join(" ".join(filter(None, each)) for each in held)


def _sentences(text: str) -> list[str]:
    return [each for each in re.split(r"(?<=\.)\s+(?=[A-Z])", text) if each]


def filled(run: Run, member: Member, name: str) -> str:
    """Fill logged values into a quantity's remark, such as "{r2:.2f}". Return "" if a value is missing."""
    template, known = member.quantity.remark, member.declared
    if not template or not name or known is None:
        return ""
    values: dict[str, float] = {}
    for key in {match[1] for match in _VALUE.finditer(template)}:
        beside = run.declared.get(other := sibling(name, known.key, key))
        series = logged(run, other) if beside and beside.diagnostic == known.diagnostic else None
        if not isinstance(series, Series) or not len(series.value) or not np.isfinite(series.value[-1]):
            return ""
        values[key] = float(series.value[-1])
    return _VALUE.sub(
        lambda match: f"{values[match[1]]:.{match[2]}f}" if match[2] else number(values[match[1]]), template
    )


def time_name(run: Run, time: float) -> str:
    """Return words for a time of training, such as "after 10 epochs". For a diagnosis, return "this model"."""
    if run.is_diagnosis:
        return "this model"
    if time == 0 or (time < 0.05 and run.time_unit == "epochs"):
        return "at the start"
    rounded = f"{round(time)}" if abs(time - round(time)) < 0.05 else f"{time:.1f}"
    return f"after {rounded} {run.time_unit.removesuffix('s') if rounded == '1' else run.time_unit}"


def same_lines(lines: Sequence[tuple[str, Floats, Floats]]) -> str:
    """Return a sentence on which lines (name, x, y) coincide, or "" if none do.

    >>> x = np.arange(3.0)
    >>> same_lines([("a", x, x), ("b", x, x**2), ("c", x, x + 1e-9)])
    'Identical lines: a = c.'
    """
    every = np.concatenate([y[np.isfinite(y)] for _, _, y in lines]) if lines else np.empty(0)
    if not len(every):
        return ""
    tolerance = max(2e-3 * float(np.ptp(every)), 1e-12 * float(np.abs(every).max()))
    sets: list[list[tuple[str, Floats, Floats]]] = []
    for line in lines:
        home = next((each for each in sets if _coincide(each[0], line, tolerance)), None)
        sets.append([line]) if home is None else home.append(line)
    said = [" = ".join(_cut([name for name, *_ in each])) for each in sets if len(each) > 1]
    return f"Identical lines: {'; '.join(said)}." if said else ""


def _cut(names: Sequence[str]) -> Sequence[str]:
    return names if len(names) <= _MOST_SAME else [*names[: _MOST_SAME - 1], f"{len(names) - _MOST_SAME + 1} more"]


def _coincide(a: tuple[str, Floats, Floats], b: tuple[str, Floats, Floats], tolerance: float) -> bool:
    if not np.array_equal(a[1], b[1]):
        return False
    return bool(np.isclose(a[2], b[2], rtol=0, atol=tolerance, equal_nan=True).all())
