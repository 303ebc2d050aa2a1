"""Lines of a comparison: one colour per group, dashes for quantities or moments, a band for the spread over runs."""

__all__ = ["Lines", "counted"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import wrap
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots import Caption, Curve, Dash, curves
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.groups import Average, Group
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.panel import printable, same_lines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WIDTH = 58  # letters in a line of notes
_NAME = 14


@dataclass
class Lines:
    """The lines of one figure, while they are gathered.

    Attributes:
        curves: What is drawn.
        dashes: What dashes mean.
        notes: What else is to say.
        said: For those who do not see it.
        drawn: (name, x, y) of each line, to find those that coincide.
        rows: Group, quantity, x, mean and standard deviation of all that is drawn.
        factor: Means are those of logarithms, and deviations factors; the axis is logarithmic.
    """

    curves: list[Curve] = field(default_factory=list)
    dashes: dict[Dash, str] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    said: list[str] = field(default_factory=list)
    drawn: list[tuple[str, Floats, Floats]] = field(default_factory=list)
    rows: list[tuple[str | float, ...]] = field(default_factory=list)
    factor: bool = False

    def add(
        self,
        group: Group,
        x: Floats,
        y: Floats,
        std: Floats | None,
        dash: Dash = "solid",
        *,
        value: str | None = "",
        word: str = "",
        stepped: bool = False,
    ) -> None:
        """Add a line of a group; without its label where `value` is None."""
        name = printable(group.name, _NAME)
        words = printable(group.name, 30) + (f" ({word})" if word else "")
        label = "" if value is None else f"{name} {value}".strip()
        spreads = np.full(len(y), np.nan) if std is None else std
        sign, digits = ("×/÷", 3) if self.factor else ("±", 2)  # noqa: RUF001
        tips = [
            f"{words}: {mean:.4g}" + (f" {sign} {spread:.{digits}g}" if np.isfinite(spread) else "")
            for mean, spread in zip(y, spreads, strict=True)
        ]
        self.curves.append(
            Curve(label, x, y, group.color, dash, tips=tips, spread=std, stepped=stepped, factor=self.factor)
        )
        self.drawn.append((words, x, np.log(y) if self.factor else y))
        self._note(group.name, word, x, y, spreads)
        if not np.isfinite(y).all() and _LOST not in self.notes:
            self.notes.append(_LOST)

    def add_baselines(self, found: Sequence[tuple[Group, Floats, Floats]], dash: Dash, word: str) -> None:
        """Add what a quantity would be without structure: once and grey where groups agree, else in their colours."""
        shown = [(group, x, y) for group, x, y in found if np.isfinite(y).any()]
        if not shown:
            return
        self.dashes[dash] = word
        every = [("", x, y) for _, x, y in shown]
        zero = ("", np.zeros(1), np.zeros(1))
        alike = all(same_lines([every[0], other, zero]) for other in every[1:])
        for group, x, y in shown[:1] if alike else shown:
            name = "" if alike else f"{printable(group.name, 30)} "
            tips = [f"{name}({word}): {value:.4g}" for value in y]
            self.curves.append(Curve("", x, y, "muted" if alike else group.color, dash, tips=tips))
            self._note("all" if alike else group.name, word, x, y, np.full(len(y), np.nan))

    def numbers(self, xname: str) -> Numbers:
        """List what is drawn."""
        kind = "geometric " if self.factor else ""
        return Numbers(("group", "quantity", xname, f"{kind}mean", f"{kind}standard deviation"), self.rows)

    def _note(self, group: str, word: str, x: Floats, y: Floats, std: Floats) -> None:
        self.rows += [(group, word, *row) for row in zip(x, y, std, strict=True)]

    def draw(
        self,
        title: str,
        *,
        xlabel: str,
        ylabel: str,
        xlim: tuple[float, float] | None = None,
        floor: float | None = None,
        names: Sequence[str] = (),
    ) -> "Figure":
        """Make the figure; with a title where that is not empty, with `names` along the axis where there are some."""
        same = same_lines(self.drawn)
        notes = [line for note in (*self.notes, same) for line in wrap(note, _WIDTH)]
        dashes = tuple(self.dashes.items()) if set(self.dashes) - {"solid"} else ()
        return curves(self.curves, xlabel=xlabel, ylabel=ylabel, xlim=xlim, floor=floor, log=self.factor, names=names,
                      caption=Caption(title, dashes, notes))  # fmt: skip


_LOST = "Crosses: a run had no finite number there."


def counted(averages: Mapping[str, Average | None], what: str = "") -> str:
    """Say over how many runs a figure averages, and what was left out."""
    whole = {each.runs if each and each.runs == each.of and len(each.step) else None for each in averages.values()}
    if len(whole) == 1 and (runs := next(iter(whole))) is not None:
        text = f"mean and standard deviation of {runs} runs each" if runs > 1 else "1 run each"
        return f"{what}: {text}." if what else f"{text[0].upper()}{text[1:]}."
    text = ", ".join(f"{printable(name, _NAME)} {_count(each)}" for name, each in averages.items())
    if what or all(each is None or each.of == 1 for each in averages.values()):
        return f"{what}: runs of {text}." if what else f"Runs of {text}."
    return f"Mean and standard deviation; runs of {text}."


def _count(average: Average | None) -> str:
    if average is None:
        return "none"
    text = f"{average.runs} of {average.of}" if average.runs < average.of else f"{average.runs}"
    return text if len(average.step) else f"{text}, without a step in common"
