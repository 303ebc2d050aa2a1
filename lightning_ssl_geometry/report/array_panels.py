"""Figures of arrays over training: spectra, and arrays that the glossary does not know."""

__all__ = ["array_width", "spectrum_panels", "unknown_array_panel", "unknown_arrays"]

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, curves
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, lookup, split
from lightning_ssl_geometry.report.logs import Floats, Readouts
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel, stage_order, time_name
from lightning_ssl_geometry.report.run import Run


def spectrum_panels(run: Run, key: str, color: str) -> list[Panel | None]:
    """Draw one panel per stage and layer; a projector's weight is the same on all data, so one stage is enough."""
    found = [array for name, array in run.arrays.items() if lookup(name) is ENTRIES[key]]
    found.sort(key=lambda array: stage_order(split(array.name)[0]))
    if key == "projector_spectrum":
        found = [array for array in found if array is _first_stage(found, array)]
    return [_spectrum(run, ENTRIES[key], array, color) for array in found]


def array_width(run: Run, key: str) -> int | None:
    """How many values an array of the glossary has, None where there is no such array or there are several widths."""
    widths = {array.values.shape[1] for name, array in run.arrays.items() if lookup(name) is ENTRIES[key]}
    return widths.pop() if len(widths) == 1 else None


def unknown_arrays(run: Run) -> list[Readouts]:
    """Find the arrays that the glossary does not know."""
    return [array for name, array in run.arrays.items() if lookup(name) is None]


def unknown_array_panel(run: Run, array: Readouts) -> Panel | None:
    """Draw an array that the glossary does not know; None if it holds no finite number."""
    lines = _moments(run, array, array.values, "blue")
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    figure = curves(lines, xlabel="index", ylabel="value", xlim=_index_limits(array))
    label = f"{array.name}: {array.values.shape[1]} values in each of {len(array.step)} readouts."
    return Panel(f"array_{array.name}", split(array.name)[1], figure, label, stages=(split(array.name)[0],))


def _first_stage(found: list[Readouts], array: Readouts) -> Readouts:
    return next(other for other in found if split(other.name)[1] == split(array.name)[1])


def _index_limits(array: Readouts) -> tuple[float, float]:
    return 1.0, max(2.0, array.values.shape[1])


def _spectrum(run: Run, entry: Entry, array: Readouts, color: str) -> Panel | None:
    stage, base = split(array.name)
    sigma = np.exp(array.values) if base.startswith("log_") else array.values
    sigma = np.where(np.isfinite(sigma), sigma, np.nan)
    lines = _moments(run, array, sigma, color)
    if not any((line.y > 0).any() for line in lines):
        return None
    figure = curves(lines, xlabel="index", ylabel="singular value", xlim=_index_limits(array), log=True)
    layer = next((base.removeprefix(f"{name}_") for name in entry.names if base.startswith(f"{name}_")), "")
    title = f"{entry.title}, layer {layer}" if layer else entry.title
    zero = int((sigma[-1] <= 0).sum())
    remark = f"{zero} of {sigma.shape[1]} values are 0 in the last readout, and not drawn." if zero else ""
    label = f"{title}{f' ({stage})' if stage else ''}: {_in_words(lines[-1])}."
    return Panel(array.name.replace("/", "_"), title, figure, label, (entry,), (stage,), remark=remark)


def _in_words(line: Curve) -> str:
    value = line.y[np.isfinite(line.y)]
    if not len(value):
        return f"no finite value {line.label}"
    return f"{len(value)} values, {line.label} from {number(float(value.max()))} to {number(float(value.min()))}"


def _moments(run: Run, array: Readouts, values: Floats, color: str) -> list[Curve]:
    """The first readout, the one nearest to half of the training, and the last, each once."""
    time = run.time(array)
    half = int(np.abs(time - (time[0] + time[-1]) / 2).argmin())
    looks: dict[int, tuple[str, Dash]] = {0: ("muted", "dotted"), half: ("muted", "dashed")}
    looks |= {0: ("muted", "dotted"), len(time) - 1: (color, "solid")}
    index = np.arange(1.0, values.shape[1] + 1)
    lines = []
    for row, look in sorted(looks.items()):
        when = time_name(run, float(time[row]))
        tips = [f"{when}, index {place}: {value:.4g}" for place, value in enumerate(values[row], start=1)]
        lines.append(Curve(when, index, values[row], *look, tips=tips))
    return lines
