"""The neural kernel's identities, each against what it is said to equal, in float64.

Prop. 4.3: the closed form of one hidden layer against the kernel of `torch.func`'s Jacobian. Eq. 11: how the kernel
says that outputs move against a step of gradient descent. Prop. 4.4: random weights against the limit of infinite
width. Thm. 4.5: the flow on clusters of radius delta against that of their centers, which are orthogonal and of
different lengths, with clusters of different sizes. Cor. 4.6: its factor 1/2.
"""

import argparse
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np
import torch
from recipe import add_seeds, markdown, save, write
from torch import Tensor, nn

from lightning_ssl_geometry.functional import (
    cluster_rates,
    clustered_flow,
    first_variation,
    infinite_width_kernel,
    kernel_flow,
    neural_kernel,
    one_hidden_layer_kernel,
    variational_loss,
)
from lightning_ssl_geometry.nn import OneHiddenLayer
from lightning_ssl_geometry.plots import Caption, Curve, curves

IN_DIM, OUT_DIM = 8, 3  # D and d
SIZES, LENGTHS = (5, 10, 15), (1.0, 1.5, 2.0)  # of the clusters, and of their centers
TEMPERATURE = 0.5
WIDTHS = tuple(2**power for power in range(4, 15))  # M
RADII = tuple(10 ** (-power / 2) for power in range(1, 9))  # delta
STEPS = tuple(10.0**-power for power in range(1, 6))
SUBSCRIPTS = {2: "₂", 10: "₁₀"}
ACTIVATIONS = {"tanh": nn.Tanh(), "softplus": nn.Softplus(), "ReLU": nn.ReLU()}


class Row(NamedTuple):
    """The error of one identity, relative to what it is said to equal, at a width, radius, step or activation."""

    identity: str
    at: float | str
    seed: int
    error: float


class Law(NamedTuple):
    """How an error falls: its variable, the expected power, and how the figure is drawn."""

    over: str
    power: float
    base: int
    title: str


LAWS = {
    "Eq. 11": Law("step", 1.0, 10, "A step against the kernel's flow"),
    "Prop. 4.4": Law("width M", -0.5, 2, "Random weights against the limit"),
    "Thm. 4.5": Law("radius delta", 1.0, 10, "Clusters against their centers"),
    "Cor. 4.6": Law("width M", -0.5, 2, "The factor 1/2"),
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_seeds(parser, list(range(10)))


def normal(*shape: int, seed: int) -> Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


def network(width: int, activation: nn.Module, seed: int) -> OneHiddenLayer:
    """Eq. 18 and 19 with standard normal weights."""
    made = OneHiddenLayer(IN_DIM, OUT_DIM, width, activation).double()
    with torch.no_grad():
        made.hidden.weight.copy_(normal(*made.hidden.weight.shape, seed=seed))
    return made


def centers() -> Tensor:
    """Orthogonal, along no axis, of different lengths; (N, D)."""
    turn = torch.linalg.qr(normal(IN_DIM, IN_DIM, seed=0)).Q
    return torch.tensor(LENGTHS, dtype=torch.float64)[:, None] * turn[: len(LENGTHS)]


def labels() -> Tensor:
    return torch.arange(len(SIZES)).repeat_interleave(torch.tensor(SIZES))


def clusters(radius: float, seed: int) -> Tensor:
    """Eq. 16: points within a radius of their center, (n, D)."""
    away = normal(len(labels()), IN_DIM, seed=seed + 1000)
    return centers()[labels()] + radius * away / away.norm(dim=1).max()


def force(z: Tensor) -> Tensor:
    """N times the gradient of the batch's loss by each point: Eq. 7."""
    return first_variation(z, z, TEMPERATURE).sum(0)


def error(found: Tensor, expected: Tensor) -> float:
    """Largest difference over the largest value."""
    return ((found - expected).abs().max() / expected.abs().max()).item()


def kernel(f: OneHiddenLayer, x: Tensor) -> Tensor:
    """Prop. 4.3."""
    return one_hidden_layer_kernel(x, f.hidden.weight.detach(), f.out_dim, f.activation)


def closed_form(seed: int) -> Iterator[Row]:
    x = normal(12, IN_DIM, seed=seed + 1000)
    for name, activation in ACTIVATIONS.items():
        f = network(64, activation, seed)
        yield Row("Prop. 4.3", name, seed, error(kernel(f, x), neural_kernel(f, x, by_layer=False)))


def by_step(seed: int) -> Iterator[Row]:
    x = clusters(0.5, seed)
    for size in STEPS:
        f = network(64, nn.Tanh(), seed)
        before = f(x)
        flow = kernel_flow(neural_kernel(f, x), force(before.detach()))
        (gradient,) = torch.autograd.grad(variational_loss(before, before, TEMPERATURE), f.hidden.weight)
        with torch.no_grad():
            f.hidden.weight -= size * gradient
            yield Row("Eq. 11", size, seed, error((f(x) - before) / size, flow))


def by_width(seed: int) -> Iterator[Row]:
    x = normal(24, IN_DIM, seed=seed + 1000)
    limit = infinite_width_kernel(x)
    for width in WIDTHS:
        found = kernel(network(width, nn.ReLU(), seed), x)[..., 0, 0]
        yield Row("Prop. 4.4", width, seed, ((found - limit).norm() / limit.norm()).item())


def by_radius(seed: int) -> Iterator[Row]:
    f = network(64, nn.Tanh(), seed)
    rate = cluster_rates(centers(), f.hidden.weight.detach(), OUT_DIM, torch.tanh)
    for radius in RADII:
        x = clusters(radius, seed)
        g = force(f(x).detach())
        simple = clustered_flow(g, labels(), centers(), rate)
        yield Row("Thm. 4.5", radius, seed, error(simple, kernel_flow(kernel(f, x), g)))


def by_width_on_clusters(seed: int) -> Iterator[Row]:
    """Compare flows at the centers, with a random output on the sphere for each: a wide network's own are far apart."""
    g = force(nn.functional.normalize(normal(len(SIZES), OUT_DIM, seed=seed + 1000), dim=1)[labels()])
    limit = clustered_flow(g, labels(), centers())
    for width in WIDTHS:
        found = kernel(network(width, nn.ReLU(), seed), centers()[labels()])
        yield Row("Cor. 4.6", width, seed, error(kernel_flow(found, g), limit))


PARTS: tuple[Callable[[int], Iterator[Row]], ...] = (closed_form, by_step, by_width, by_radius, by_width_on_clusters)


def means(rows: Sequence[Row], identity: str) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Values of the variable, and geometric means and deviations of the error over seeds."""
    found: dict[float, list[float]] = {}
    for row in rows:
        if row.identity == identity:
            found.setdefault(float(row.at), []).append(np.log(row.error))
    mean = np.array([np.mean(values) for values in found.values()])
    spread = np.array([np.std(values, ddof=min(1, len(values) - 1)) for values in found.values()])
    return np.array(list(found)), np.exp(mean), np.exp(spread)


def power(rows: Sequence[Row], identity: str) -> float:
    """Slope of the error's logarithm over the logarithm of the variable."""
    at, mean, _ = means(rows, identity)
    return float(np.polyfit(np.log(at), np.log(mean), 1)[0])


def figure(rows: Sequence[Row], identity: str):
    """Draw errors on two logarithmic axes, beside the expected power."""
    law, (at, mean, spread) = LAWS[identity], means(rows, identity)
    order = np.argsort(at)
    at, mean, spread = at[order], mean[order], spread[order]
    x, middle = np.emath.logn(law.base, at), len(at) // 2
    along = np.linspace(x[0], x[-1], 50)
    said = mean[middle] * law.base ** (law.power * (along - x[middle]))
    drawn = [
        Curve(f"expected, {law.power:g}", along, said, "muted", dash="dashed"),
        Curve(f"measured, {power(rows, identity):.2f}", x, mean, "blue", spread=spread, factor=True),
    ]
    several = len({row.seed for row in rows}) > 1
    note = "Geometric mean and deviation over seeds." if several else "One seed."
    notes = ("The numbers are fitted powers of the error.", note)
    caption = Caption(title=f"{identity}: {law.title}", notes=notes)
    label = f"log{SUBSCRIPTS[law.base]} of the {law.over}"
    return curves(drawn, xlabel=label, ylabel="relative error", log=True, caption=caption)


def closed_form_table(rows: Sequence[Row]) -> str:
    """Markdown: Prop. 4.3, the largest error over seeds."""
    lines = []
    for name in ACTIVATIONS:
        worst = max(row.error for row in rows if row.identity == "Prop. 4.3" and row.at == name)
        lines.append([name, f"{worst:.1e}"])
    return markdown(["Prop. 4.3", "largest relative error"], lines)


def laws_table(rows: Sequence[Row]) -> str:
    """Markdown: a row per law, its error at both ends and the power between."""
    lines = []
    for identity, law in LAWS.items():
        at, mean, _ = means(rows, identity)
        ends = [f"{mean[place]:.2g} at {at[place]:.{5 if at[place] > 1 else 2}g}" for place in (0, -1)]
        lines.append([identity, law.over, *ends, f"{power(rows, identity):.3f}", f"{law.power:g}"])
    return markdown(["", "over", "error at first", "at last", "power", "expected"], lines)


def run(options: argparse.Namespace) -> None:
    """Measure, write and draw."""
    rows = [row for part in PARTS for seed in options.seeds for row in part(seed)]
    written = write(rows, options.output / "results" / "kernel_identities.csv")
    print(closed_form_table(rows), laws_table(rows), written, sep="\n\n")
    for identity in LAWS:
        name = identity.lower().replace(". ", "_").replace(".", "_")
        print(save(figure(rows, identity), options.output / "figures" / f"kernel_{name}.png"))
