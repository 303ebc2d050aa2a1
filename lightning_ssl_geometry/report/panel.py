"""What a figure of the page is made of, and how its lines, moments and data are named."""

__all__ = [
    "DASHES",
    "LAYER_COLORS",
    "Panel",
    "layer_name",
    "natural_order",
    "printable",
    "same_lines",
    "stage_order",
    "time_axis",
    "time_name",
]

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots import Dash
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.glossary import STAGES, Entry
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

DASHES: dict[str, Dash] = {"train": "solid", "": "solid", "val": "dashed", "probe": "dashdot", "test": "dotted"}
LAYER_COLORS = ("green", "blue", "orange", "violet")  # of a projector, over and over


@dataclass(frozen=True)
class Panel:
    """A figure and what stands beside it.

    Attributes:
        name: Good for a file name.
        title: Above it.
        figure: Drawn.
        label: What it shows, in words.
        entries: What the glossary says of it.
        stages: The data that it shows.
        dashed: Whether dashes tell these data apart.
        remark: One more sentence.
        numbers: What it shows, to be saved.
    """

    name: str
    title: str
    figure: "Figure"
    label: str
    entries: tuple[Entry, ...] = ()
    stages: tuple[str, ...] = ()
    dashed: bool = False
    remark: str = ""
    numbers: Numbers | None = None


def stage_order(stage: str) -> int:
    """Sort key: train, val, probe, test, then what has no stage."""
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def natural_order(name: str) -> list[tuple[int, str]]:
    """Sort key that counts numbers as numbers: layer 3 before layer 10.

    >>> sorted(["layer_10", "layer_3"], key=natural_order)
    ['layer_3', 'layer_10']
    """
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in re.split(r"(\d+)", name)]


def layer_name(rest: str) -> str:
    """Name a projector's layer by what stands behind a scalar's name; a log has no dots in names of modules.

    >>> layer_name("2"), layer_name("layers_3")
    ('layer 2', 'layers.3')
    """
    return f"layer {rest}" if rest.isdecimal() else re.sub(r"_(?=\d)|(?<=\d)_", ".", rest)


def time_axis(run: Run) -> tuple[str, tuple[float, float]]:
    """Label and limits of the time axis, the same for all figures of a run."""
    logs: list[Mapping[str, Series] | Mapping[str, Readouts]] = [run.scalars, run.arrays]
    times = [run.time(item) for log in logs for item in log.values()]
    every = np.concatenate([np.zeros(1), *times])
    return f"{run.time_unit} of training", (float(every.min()), float(every.max()) or 1.0)


def time_name(run: Run, time: float) -> str:
    """Name a moment of the time axis: "at the start", "after 10 epochs"; a diagnosis knows only "this model"."""
    if run.is_diagnosis:
        return "this model"
    if time == 0 or (time < 0.05 and run.time_unit == "epochs"):
        return "at the start"
    rounded = f"{round(time)}" if abs(time - round(time)) < 0.05 else f"{time:.1f}"
    return f"after {rounded} {run.time_unit.removesuffix('s') if rounded == '1' else run.time_unit}"


def printable(text: str, most: int = 18) -> str:
    r"""Make a text of a run fit to stand in a figure: names of a kind often differ in their ends alone.

    >>> printable("a\x00 name that is too long")
    'a� name t…too long'
    """
    text = "".join(letter if letter.isprintable() else "\N{REPLACEMENT CHARACTER}" for letter in text)
    return text if len(text) <= most else f"{text[: most // 2]}…{text[most // 2 + 1 - most :]}"


def same_lines(lines: Sequence[tuple[str, Floats, Floats]]) -> str:
    """Name the lines (name, x, y) that the eye cannot tell apart, in a sentence; empty if there are none.

    >>> x = np.arange(3.0)
    >>> same_lines([("a", x, x), ("b", x, x**2), ("c", x, x + 1e-9)])
    'On top of each other: a and c.'
    """
    every = np.concatenate([y[np.isfinite(y)] for _, _, y in lines]) if lines else np.empty(0)
    if not len(every):
        return ""
    tolerance = max(2e-3 * float(np.ptp(every)), 1e-12 * float(np.abs(every).max()))
    sets: list[list[tuple[str, Floats, Floats]]] = []
    for line in lines:
        home = next((each for each in sets if _coincide(each[0], line, tolerance)), None)
        sets.append([line]) if home is None else home.append(line)
    said = [_listed([name for name, *_ in each]) for each in sets if len(each) > 1]
    return f"On top of each other: {'; '.join(said)}." if said else ""


def _listed(names: Sequence[str]) -> str:
    if len(names) > 4:
        names = [*names[:3], f"{len(names) - 3} more"]
    return f"{', '.join(names[:-1])} and {names[-1]}"


def _coincide(a: tuple[str, Floats, Floats], b: tuple[str, Floats, Floats], tolerance: float) -> bool:
    if not np.array_equal(a[1], b[1]):
        return False
    return bool(np.isclose(a[2], b[2], rtol=0, atol=tolerance, equal_nan=True).all())
