"""Figures of arrays over training: spectra, and arrays that the glossary does not know."""

__all__ = [
    "ROUNDED",
    "known_arrays",
    "moment_curves",
    "moment_numbers",
    "moments",
    "resolved",
    "spectrum_panels",
    "unknown_array_panel",
    "unknown_arrays",
]

from collections.abc import Sequence
from itertools import cycle

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, curves
from lightning_ssl_geometry.report.download import Numbers, array_numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, lookup, split
from lightning_ssl_geometry.report.logs import Floats, Readouts
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import (
    LAYER_COLORS,
    Panel,
    layer_name,
    natural_order,
    same_lines,
    stage_order,
    time_name,
)
from lightning_ssl_geometry.report.run import Run

ROUNDED = "are below 10⁻⁸ of the largest, which is rounding"
_ROUNDING = 1e-8  # of the largest singular value: they are roots of eigenvalues of float64 moments
_COLORS = {
    "spectrum_h_image": ("blue",),
    "spectrum_h": ("blue",),
    "spectrum_z": ("orange",),
    "projector_spectrum": LAYER_COLORS,
    "augmentation_spectrum": ("violet",),
    "jacobian_spectrum": ("green",),
    "gradient_spectrum": ("violet",),
}


def spectrum_panels(run: Run, keys: Sequence[str]) -> list[Panel | None]:
    """Draw one panel per entry, stage and layer; a projector's weight is the same on all data: one stage is enough."""
    found = [
        (array, ENTRIES[key], color)
        for key in keys
        for array, color in zip(known_arrays(run, key), cycle(_COLORS[key]), strict=False)
    ]
    found.sort(key=lambda each: stage_order(split(each[0].name)[0]))
    return [_spectrum(run, *each) for each in found]


def known_arrays(run: Run, key: str, every: bool = False) -> list[Readouts]:
    """Find the arrays that an entry is about, by stage and layer; a projector's once, unless for `every` stage."""
    found = [array for name, array in run.arrays.items() if lookup(name) is ENTRIES[key]]
    found.sort(key=lambda array: (stage_order(split(array.name)[0]), natural_order(array.name)))
    if key == "projector_spectrum" and not every:
        found = list({split(array.name)[1]: array for array in reversed(found)}.values())[::-1]
    return found


def resolved(sigma: Floats) -> Floats:
    """Write 0 for singular values that are rounding, row by row: (R, K).

    >>> resolved(np.array([[2.0, 1.0, 1e-9], [2e-9, 1e-9, 0.0]])).tolist()
    [[2.0, 1.0, 0.0], [2e-09, 1e-09, 0.0]]
    """
    largest = np.where(np.isfinite(sigma), sigma, 0.0).max(1, keepdims=True)
    return np.where(sigma < _ROUNDING * largest, 0.0, sigma)


def unknown_arrays(run: Run) -> list[Readouts]:
    """Find the arrays that the glossary does not know."""
    return [array for name, array in run.arrays.items() if lookup(name) is None]


def unknown_array_panel(run: Run, array: Readouts) -> Panel | None:
    """Draw an array that the glossary does not know; None if it holds no finite number."""
    lines = moment_curves(run, array, array.values, "blue")
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    figure = curves(lines, xlabel="index", ylabel="value", xlim=_index_limits(array))
    label = f"{array.name}: {array.values.shape[1]} values in each of {len(array.step)} readouts."
    numbers = moment_numbers(run, array, array.values)
    return Panel(f"array_{array.name}", split(array.name)[1], figure, label, stages=(split(array.name)[0],),
                 numbers=numbers)  # fmt: skip


def _index_limits(array: Readouts) -> tuple[float, float]:
    return 1.0, max(2.0, array.values.shape[1])


def _spectrum(run: Run, array: Readouts, entry: Entry, color: str) -> Panel | None:
    stage, base = split(array.name)
    sigma = np.exp(array.values) if base.startswith("log_") else array.values
    sigma = np.where(np.isfinite(sigma), sigma, np.nan)
    drawn = resolved(sigma)
    lines = moment_curves(run, array, drawn, color)
    if not any((line.y > 0).any() for line in lines):
        return None
    figure = curves(lines, xlabel="index", ylabel="singular value", xlim=_index_limits(array), log=True)
    layer = next((base.removeprefix(f"{name}_") for name in entry.names if base.startswith(f"{name}_")), "")
    title = f"{entry.title}, {layer_name(layer)}" if layer else entry.title
    lost = int((drawn[-1] <= 0).sum())
    with np.errstate(divide="ignore", invalid="ignore"):
        heights = [np.where(line.y > 0, np.log(line.y), np.nan) for line in lines]
    same = same_lines([(line.label, line.x, y) for line, y in zip(lines, heights, strict=True)])
    remark = f"{lost} of {sigma.shape[1]} values {ROUNDED}, and not drawn." if lost else ""
    label = f"{title}{f' ({stage})' if stage else ''}: {_in_words(lines[-1])}."
    numbers = moment_numbers(run, array, sigma, "singular value")
    return Panel(array.name.replace("/", "_"), title, figure, label, (entry,), (stage,),
                 remark=f"{remark} {same}".strip(), numbers=numbers)  # fmt: skip


def _in_words(line: Curve) -> str:
    value = line.y[np.isfinite(line.y) & (line.y > 0)]
    if not len(value):
        return f"no positive value {line.label}"
    return f"{len(value)} values, {line.label} from {number(float(value.max()))} to {number(float(value.min()))}"


def moments(time: Floats) -> dict[int, tuple[str, Dash]]:
    """Choose the first readout, the one nearest to half of the training, and the last, each once, and how they look."""
    half = int(np.abs(time - (time[0] + time[-1]) / 2).argmin())
    looks: dict[int, tuple[str, Dash]] = {0: ("muted", "dotted"), half: ("muted", "dashed")}
    looks |= {0: ("muted", "dotted"), len(time) - 1: ("", "solid")}
    return dict(sorted(looks.items()))


def moment_numbers(run: Run, array: Readouts, values: Floats, name: str = "value") -> Numbers:
    """List what :func:`moment_curves` draws."""
    return array_numbers(array, values, moments(run.time(array)), np.arange(1.0, values.shape[1] + 1), ("index", name))


def moment_curves(run: Run, array: Readouts, values: Floats, color: str) -> list[Curve]:
    """Draw the rows of an array at these moments over their index, from 1 on: grey but the last."""
    time = run.time(array)
    index = np.arange(1.0, values.shape[1] + 1)
    lines = []
    for row, (muted, dash) in moments(time).items():
        when = time_name(run, float(time[row]))
        tips = [f"{when}, index {place}: {value:.4g}" for place, value in enumerate(values[row], start=1)]
        lines.append(Curve(when, index, values[row], muted or color, dash, tips=tips))
    return lines
