"""Figures of arrays that are no spectra: ranks at other thresholds, distances to h*, ranks of rotations."""

__all__ = [
    "THRESHOLDS",
    "bin_edges",
    "histogram_panels",
    "rank_at",
    "rotation_panels",
    "threshold_name",
    "threshold_panel",
]

from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, Dot, curves, dots
from lightning_ssl_geometry.report.array_panels import known_arrays, moments
from lightning_ssl_geometry.report.download import Numbers, array_numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, split
from lightning_ssl_geometry.report.logs import Floats, Readouts
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import (
    Panel,
    layer_name,
    natural_order,
    same_lines,
    stage_order,
    time_axis,
    time_name,
)
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Mode = Literal["relative", "cumulative"]
THRESHOLDS: tuple[tuple[Mode, float, str, Dash], ...] = (
    ("relative", 0.1, "orange", "dotted"),
    ("relative", 0.01, "green", "solid"),
    ("relative", 0.001, "blue", "dashed"),
    ("cumulative", 0.9, "violet", "dashdot"),
    ("cumulative", 0.99, "red", "dashdot"),
)


def rank_at(sigma: Floats, mode: Mode, tau: float) -> Floats:
    """Count singular values that reach a threshold, as the diagnostics do; NaN for a row that is not finite.

    Args:
        sigma: (R, K), in any order.
        mode: "relative": to the largest. "cumulative": how many of the largest make up that share of the squares.
        tau: In (0, 1].

    >>> sigma = np.array([[3.0, 1.0, 0.01]])
    >>> rank_at(sigma, "relative", 0.1), rank_at(sigma, "cumulative", 0.8)
    (array([2.]), array([1.]))
    """
    ordered = -np.sort(-sigma, axis=1)
    if mode == "relative":
        rank = ((ordered >= tau * ordered[:, :1]) & (ordered > 0)).sum(1)
    else:
        square = np.cumsum(ordered**2, axis=1)
        rank = np.where(square[:, -1] > 0, 1 + (square < tau * square[:, -1:]).sum(1), 0)
    return np.where(np.isfinite(sigma).all(1), rank, np.nan)


def threshold_panel(run: Run) -> Panel | None:
    """Draw the rank of the projector's last layer over training, at thresholds that its spectrum allows to try."""
    found = known_arrays(run, "projector_spectrum")
    if not found:
        return None
    array = max(found, key=lambda each: natural_order(split(each.name)[1]))
    base = split(array.name)[1]
    sigma = np.exp(array.values) if base.startswith("log_") else array.values
    ranks = [rank_at(sigma, mode, tau) for mode, tau, *_ in THRESHOLDS]
    if not np.isfinite(ranks).any():
        return None
    figure, said = (_rank_dots if run.is_diagnosis else _rank_lines)(run, array, ranks)
    entry = ENTRIES["projector_thresholds"]
    label = f"{entry.title}: {'; '.join(f'{each} in the last readout' for each in said)}."
    layer = layer_name(base.partition("singular_values_")[2])
    last = f"{layer[:1].upper()}{layer[1:]}, the last of {len(found)}. " if len(found) > 1 else ""
    names = [threshold_name(mode, tau) for mode, tau, *_ in THRESHOLDS]
    same = same_lines([(name, array.step, rank) for name, rank in zip(names, ranks, strict=True)])
    remark = last if run.is_diagnosis else last + same
    stage = split(array.name)[0]
    rows = [(name, *row) for name, rank in zip(names, ranks, strict=True)
            for row in zip(array.epoch, array.step, rank, strict=True)]  # fmt: skip
    numbers = Numbers(("threshold", "epoch", "step", "rank"), rows)
    return Panel("projector_thresholds", entry.title, figure, label, (entry,), (stage,), remark=remark.strip(),
                 numbers=numbers)  # fmt: skip


def _rank_lines(run: Run, array: Readouts, ranks: Sequence[Floats]) -> "tuple[Figure, list[str]]":
    """Over training, and what their labels say."""
    lines = [_rank_line(run, array, y, *threshold) for y, threshold in zip(ranks, THRESHOLDS, strict=True)]
    xlabel, xlim = time_axis(run)
    figure = curves(lines, xlabel=xlabel, ylabel="directions", xlim=xlim, floor=0.0)
    return figure, [line.label for line in lines]


def _rank_dots(run: Run, array: Readouts, ranks: Sequence[Floats]) -> "tuple[Figure, list[str]]":
    """Of a diagnosis, at its only moment."""
    found = [(threshold_name(mode, tau), number(float(y[-1])), float(y[-1]), color)
             for (mode, tau, color, _), y in zip(THRESHOLDS, ranks, strict=True)]  # fmt: skip
    rows = [Dot(name, value, float("nan"), text, color, f"{name}: {text}") for name, text, value, color in found]
    figure = dots([(f"of {array.values.shape[1]}", rows)], xlabel="directions")
    return figure, [f"{name}: {text}" for name, text, *_ in found]


def _rank_line(run: Run, array: Readouts, y: Floats, mode: Mode, tau: float, color: str, dash: Dash) -> Curve:
    name = threshold_name(mode, tau)
    tips = [
        f"{name}: {rank:.0f} (epoch {e:g}, step {s:g})" for rank, e, s in zip(y, array.epoch, array.step, strict=True)
    ]
    return Curve(f"{name}: {number(float(y[-1]))}", run.time(array), y, color, dash, tips=tips)


def threshold_name(mode: Mode, tau: float) -> str:
    """Name a threshold in a figure."""
    return f"max \N{MULTIPLICATION SIGN} {tau:g}" if mode == "relative" else f"{100 * tau:g}% of sum"


def histogram_panels(run: Run) -> list[Panel | None]:
    """Draw the distances to the hardest negative at the start, half and end, one panel per stage."""
    return [_histogram(run, array) for array in known_arrays(run, "hardest_negative_histogram")]


def _histogram(run: Run, array: Readouts) -> Panel | None:
    kept = np.isfinite(array.values).any(1)
    if not kept.any():
        return None
    time, values, edges = run.time(array)[kept], array.values[kept], bin_edges(array.values.shape[1])
    lines = []
    for row, (muted, dash) in moments(time).items():
        when = time_name(run, float(time[row]))
        y = 100 * np.append(values[row], values[row][-1])
        tips = [f"{when}, {a:.2f} to {b:.2f}: {share:.3g}%" for a, b, share in zip(edges, edges[1:], y, strict=False)]
        lines.append(Curve(when, edges, y, muted or "blue", dash, tips=[*tips, tips[-1]], stepped=True))
    figure = curves(lines, xlabel="distance of unit vectors", ylabel="samples, %", xlim=(0.0, 2.0), floor=0.0)
    entry, stage = ENTRIES["hardest_negative_histogram"], split(array.name)[0]
    middle = (edges[1:] + edges[:-1]) / 2
    spoken = [
        f"{line.label} around {number(float(np.average(middle, weights=np.nan_to_num(line.y[:-1]) + 1e-12)))}"
        for line in lines
    ]
    label = f"{entry.title}{f' ({stage})' if stage else ''}: {', '.join(spoken)}."
    lost = int(np.sum(~kept))
    remark = (
        f"{lost} of {len(array.step)} readouts have no hardest negative: all embeddings were alike." if lost else ""
    )
    same = same_lines([(line.label, line.x, line.y) for line in lines])
    remark = f"{remark} {same}".strip()
    rows = np.flatnonzero(kept)[list(moments(time))]
    numbers = array_numbers(array, array.values, rows, middle, ("middle of the bin", "share of samples"))
    return Panel(f"hardest_negative_histogram_{stage}", entry.title, figure, label, (entry,), (stage,), remark=remark,
                 numbers=numbers)  # fmt: skip


def bin_edges(bins: int) -> Floats:
    """Edges of equal bins over the distances that unit vectors can have."""
    return np.linspace(0.0, 2.0, bins + 1)


def rotation_panels(run: Run) -> list[Panel | None]:
    """Draw how many directions rotations span in pixels and in h against their range, one panel per stage."""
    names = {split(name)[0] for name in run.arrays if split(name)[1] == "rotation_angles"}
    return [_rotation(run, stage) for stage in sorted(names, key=stage_order)]


def _rotation(run: Run, stage: str) -> Panel | None:
    prefix = f"{stage}/" if stage else ""
    x = run.arrays[f"{prefix}rotation_angles"].values[-1]
    found = [run.arrays.get(f"{prefix}rotation_{name}") for name in ("pixels", "h")]
    pixels, h = (array if array and array.values.shape[1:] == x.shape else None for array in found)
    lines = [_ranks_of_pixels(x, pixels)] if pixels else []
    lines += _ranks_of_h(run, x, h) if h else []
    if not np.isfinite(x).all() or not any(np.isfinite(line.y).any() for line in lines):
        return None
    figure = curves(lines, xlabel="largest angle, degrees", ylabel="directions", floor=0.0)
    entry = ENTRIES["rotation"]
    spoken = ", ".join(f"{line.label} at {x[-1]:g} degrees" for line in lines)
    label = f"{entry.title}{f' ({stage})' if stage else ''}: {spoken}."
    rows = [(line.label, *row) for line in lines for row in zip(line.x, line.y, strict=True)]
    numbers = Numbers(("of", "largest angle", "directions"), rows)
    return Panel(f"rotation_{stage}", entry.title, figure, label, (entry,), (stage,), numbers=numbers)


def _ranks_of_pixels(x: Floats, pixels: Readouts) -> Curve:
    tips = [f"pixels, up to {a:g}°: {rank:g}" for a, rank in zip(x, pixels.values[-1], strict=True)]
    return Curve(f"pixels {number(float(pixels.values[-1][-1]))}", x, pixels.values[-1], "muted", "dashed", tips=tips)


def _ranks_of_h(run: Run, x: Floats, h: Readouts) -> list[Curve]:
    """At the start and at the end, or once."""
    lines = []
    for row in dict.fromkeys([0, len(h.step) - 1]):
        last = row == len(h.step) - 1
        when, y = time_name(run, float(run.time(h)[row])), h.values[row]
        tips = [f"h {when}, up to {a:g}°: {rank:g}" for a, rank in zip(x, y, strict=True)]
        name = (
            f"h, {'end' if last else 'start'} {number(float(y[-1]))}"
            if len(h.step) > 1
            else f"h {number(float(y[-1]))}"
        )
        lines.append(Curve(name, x, y, "blue", "solid" if last else "dotted", tips=tips))
    return lines
