"""Fig. 3: the loss of K evenly spaced atoms on the circle, by K and by their least squared distance.

The threshold is the distance below which the loss hardly falls any more. There the loss is within 1% of its range, from
one atom to the uniform distribution, of its uniform value. Between two K it is interpolated in the logarithm of the
excess.
"""

import argparse
import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import torch
from recipe import markdown, save, write
from torch import Tensor

from lightning_ssl_geometry.functional import variational_loss
from lightning_ssl_geometry.plots import Caption, Curve, curves

TEMPERATURES = {0.1: "blue", 0.5: "green", 1.0: "violet"}  # the panels' left and middle, with their colours
COUNTS = (*range(1, 9), 10, 12, 14, 16)
TABLED = (1, 2, 3, 4, 6, 8, 12, 16)
SCANNED = tuple(round(0.04 * step, 2) for step in range(1, 13))  # the right panel's temperatures
MANY = 256  # atoms that no temperature of these tells from the uniform distribution
SHARE = 0.01


class Loss(NamedTuple):
    """The loss of K atoms at one temperature."""

    temperature: float
    count: int
    squared_distance: float
    loss: float


class Threshold(NamedTuple):
    """The threshold at one temperature, as a squared distance."""

    temperature: float
    threshold: float


class Line(NamedTuple):
    """A fit of the thresholds by a line."""

    slope: float
    offset: float
    r2: float


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add no arguments, since nothing is random."""


def atoms(count: int) -> Tensor:
    """Evenly spaced points on the circle, (K, 2)."""
    angle = 2 * math.pi * torch.arange(count, dtype=torch.float64) / count
    return torch.stack([angle.cos(), angle.sin()], 1)


def loss(count: int, temperature: float) -> float:
    """Eq. 4 at an invariant map onto K atoms of one weight."""
    z = atoms(count)
    return variational_loss(z, z, temperature=temperature).item()


def squared_distance(count: int) -> float:
    """The squared distance from an atom to the next; 0 for a single atom."""
    return 4 * math.sin(math.pi / count) ** 2


def threshold(temperature: float) -> float:
    """The squared distance at which the loss is within a share of its range of its plateau."""
    floor = loss(MANY, temperature)
    goal = math.log(SHARE * (loss(1, temperature) - floor))
    reached = next(count for count in range(3, MANY) if math.log(loss(count, temperature) - floor) <= goal)
    ends = [math.log(loss(count, temperature) - floor) for count in (reached, reached - 1)]
    return float(np.interp(goal, ends, [squared_distance(count) for count in (reached, reached - 1)]))


def line(found: Sequence[Threshold]) -> Line:
    """Least squares."""
    x, y = np.array(found).T
    slope, offset = np.polyfit(x, y, 1)
    residual = y - slope * x - offset
    return Line(float(slope), float(offset), float(1 - residual.var() / y.var()))


def by_temperature(rows: Sequence[Loss]) -> dict[float, list[Loss]]:
    return {tau: [row for row in rows if row.temperature == tau] for tau in TEMPERATURES}


def left(rows: Sequence[Loss]):
    """The loss by the number of atoms."""
    lines = []
    for tau, of in by_temperature(rows).items():
        x, y = np.array([float(row.count) for row in of]), np.array([row.loss for row in of])
        lines.append(Curve(f"tau = {tau:g}", x, y, TEMPERATURES[tau]))
    caption = Caption(title="More atoms, less loss, to a plateau")
    return curves(lines, xlabel="atoms K", ylabel="loss (Eq. 4)", floor=0.0, caption=caption)


def middle(rows: Sequence[Loss]):
    """The loss by the squared distance of neighbours, from two atoms on."""
    lines = []
    for tau, of in by_temperature(rows).items():
        shown = [row for row in of if row.count > 1][::-1]
        x, y = np.array([row.squared_distance for row in shown]), np.array([row.loss for row in shown])
        lines.append(Curve(f"tau = {tau:g}", x, y, TEMPERATURES[tau]))
    caption = Caption(title="Flat below a distance")
    label = "squared distance of neighbours, 4 sin²(π/K)"
    return curves(lines, xlabel=label, ylabel="loss (Eq. 4)", xlim=(0.0, 4.0), floor=0.0, caption=caption)


def right(found: Sequence[Threshold], fitted: Line):
    """The thresholds, and their line."""
    x, y = np.array(found).T
    along = np.linspace(0, 0.5, 51)
    drawn = [
        Curve(f"line, R² {fitted.r2:.3f}", along, fitted.slope * along + fitted.offset, "muted", dash="dashed"),
        Curve("threshold", x, y, "orange"),
    ]
    caption = Caption(title="That distance grows with tau")
    label = "threshold of the squared distance"
    return curves(drawn, xlabel="tau", ylabel=label, xlim=(0.0, 0.5), floor=0.0, caption=caption)


def losses_table(rows: Sequence[Loss]) -> str:
    """Markdown: a row per temperature."""
    lines = [
        [f"tau = {tau:g}", *(f"{row.loss:.4f}" for row in of if row.count in TABLED)]
        for tau, of in by_temperature(rows).items()
    ]
    return markdown(["K", *map(str, TABLED)], lines)


def lines_table(found: Sequence[Threshold]) -> str:
    """Markdown: the line over all temperatures, and over either half."""
    half = len(found) // 2
    parts = {"all": found, "lower half": found[:half], "upper half": found[half:]}
    lines = []
    for name, part in parts.items():
        fitted = line(part)
        span = f"{part[0].temperature:g} to {part[-1].temperature:g}"
        lines.append([f"{name}, tau {span}", *(f"{value:.3f}" for value in fitted)])
    return markdown(["", "slope", "offset", "R²"], lines)


def run(options: argparse.Namespace) -> None:
    """Measure, write and draw."""
    rows = [Loss(tau, count, squared_distance(count) if count > 1 else 0.0, loss(count, tau))
            for tau in TEMPERATURES for count in COUNTS]  # fmt: skip
    found = [Threshold(tau, threshold(tau)) for tau in SCANNED]
    results = options.output / "results"
    written = write(rows, results / "figure_3.csv"), write(found, results / "figure_3_threshold.csv")
    print(losses_table(rows), lines_table(found), sep="\n\n", end="\n\n")
    print(*written, sep="\n")
    drawn = {"left": left(rows), "middle": middle(rows), "right": right(found, line(found))}
    for name, figure in drawn.items():
        print(save(figure, options.output / "figures" / f"figure_3_{name}.png"))
