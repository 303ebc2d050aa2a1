"""How far the losses are from the mutual information that they estimate, where it is known.

    python examples/trainable_augmentation_channel/reproduce.py bounds

X is uniform on the sphere in 8 dimensions, T(X) is von Mises-Fisher around X with concentration kappa, the encoder h is
the identity, and Z is von Mises-Fisher around h(T(X)) with concentration beta: the channel of Prop. 1. So p(z | x) is
a function of the cosine alone, and I(X; Z) is an integral over the cosine. The same holds for I(V; V') of two views V
and V' of X, which Eq. 3 bounds. The estimates take 512 images with 8 draws of T each.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from scipy.special import eval_gegenbauer, gammaln, ive, roots_jacobi

from lightning_ssl_geometry.functional import augmentation_channel_loss, info_nce
from lightning_ssl_geometry.plots import Caption, Curve, curves
from lightning_ssl_geometry.random import counter_hash, uniform_sphere, von_mises_fisher

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from recipe import markdown, over_seeds, save, write  # noqa: E402

DIM, IMAGES, DRAWS, NODES = 8, 512, 8, 400
BETAS = (5.0, 0.5)
CONCENTRATIONS = (1.0, 3.0, 10.0, 30.0, 100.0, 300.0)  # of the augmentations
QUANTITIES = {  # name -> what the table and the figure say, colour, dash
    "information": ("I(X; Z)", "ink", "solid"),
    "eq_2": ("Eq. 2", "violet", "solid"),
    "eq_2_jensen": ("Eq. 2, Jensen", "green", "solid"),
    "eq_2_means": ("Eq. 2, h(T) for Z", "orange", "solid"),
    "eq_17": ("Eq. 17", "red", "solid"),
    "views": ("I(V; V')", "ink", "dashed"),
    "eq_3": ("Eq. 3", "blue", "dashed"),
}


class Row(NamedTuple):
    """One value in nats.

    Attributes:
        quantity: "information": I(X; Z), exact. "eq_2": Eq. 2 with draws of Z. "eq_2_jensen": the same with Jensen's
            inequality (Eq. 16). "eq_2_means": Eq. 2 with h(T(X)) in place of Z. "eq_17": both, which is the loss that
            the paper trains. "views": I(V; V') of two views, exact. "eq_3": its bound with f = beta V . V'.
    """

    beta: float
    kappa: float
    seed: int
    quantity: str
    value: float


def mean_harmonics(concentration: float, count: int, dim: int = DIM) -> np.ndarray:
    """Means of the zonal harmonics of degree 0 to count - 1 under the von Mises-Fisher distribution, (count,)."""
    order = dim / 2 - 1
    return ive(order + np.arange(count), concentration) / ive(order, concentration)


def information(first: float, second: float, dim: int = DIM) -> float:
    """I(X; Z) in nats, for Z von Mises-Fisher (second) around a point that is von Mises-Fisher (first) around X.

    X is uniform on the sphere. The means of the zonal harmonics multiply. Their series is the density of Z over its
    cosine with X, relative to the uniform density.
    """
    order, count = dim / 2 - 1, NODES // 2
    # The cosine of uniform points has the density (1 - t^2)^((d - 3) / 2) up to a constant: Gauss-Jacobi quadrature.
    cosine, weight = roots_jacobi(NODES, (dim - 3) / 2, (dim - 3) / 2)
    degree = np.arange(count)
    factor = mean_harmonics(first, count, dim) * mean_harmonics(second, count, dim)
    harmonics = eval_gegenbauer(degree[:, None], order, cosine) * ((degree + order) / order)[:, None]
    density = (factor @ harmonics).clip(min=1e-300)
    return float((weight * density * np.log(density)).sum() / weight.sum())


def normaliser(concentration: float, dim: int = DIM) -> float:
    """The logarithm of the mean of exp(concentration * cosine) over the sphere."""
    order = dim / 2 - 1
    scaled = np.log(ive(order, concentration)) + concentration
    return float(scaled + gammaln(dim / 2) + order * np.log(2 / concentration))


def estimates(beta: float, kappa: float, seed: int) -> Iterator[tuple[str, float]]:
    """The losses of 512 images with 8 draws each, as estimates of an information."""
    image = uniform_sphere(counter_hash(seed, torch.arange(IMAGES)), DIM).double()
    drawn = counter_hash(seed, 1, torch.arange(IMAGES * (DRAWS + 1)))
    view = von_mises_fisher(image.repeat_interleave(DRAWS + 1, 0), kappa, drawn).unflatten(0, (IMAGES, DRAWS + 1))
    view, other = view[:, :-1], view[:, -1]
    z = von_mises_fisher(other, beta, counter_hash(seed, 2, torch.arange(IMAGES)))  # other is independent of view
    own = beta * torch.einsum("nmp,np->nm", view, z)  # Z with the other views of its image
    yield "eq_2", (own.logsumexp(1).mean() - np.log(DRAWS)).item() - normaliser(beta)  # h(T(X)) is uniform
    yield "eq_2_jensen", own.mean().item() - normaliser(beta)
    yield "eq_2_means", -augmentation_channel_loss(view, beta=beta, jensen=False).item()
    yield "eq_17", -augmentation_channel_loss(view, beta=beta).item()
    yield "eq_3", np.log(2 * IMAGES - 1) - info_nce(view[:, 0], view[:, 1], 1 / beta).item()


def measured(beta: float, kappa: float, seed: int) -> Iterator[Row]:
    yield Row(beta, kappa, seed, "information", information(kappa, beta))
    yield Row(beta, kappa, seed, "views", information(kappa, kappa))
    yield from (Row(beta, kappa, seed, *found) for found in estimates(beta, kappa, seed))


def values(rows: list[Row], beta: float, quantity: str) -> np.ndarray:
    """A quantity by concentration and seed, (concentrations, seeds)."""
    here = [row for row in rows if (row.beta, row.quantity) == (beta, quantity)]
    return np.array([[row.value for row in here if row.kappa == kappa] for kappa in CONCENTRATIONS])


def table(rows: list[Row]) -> str:
    """Markdown: a row for each beta and quantity."""
    lines = [
        [f"{beta:g}", name, *(over_seeds(of_seeds, ".3f") for of_seeds in values(rows, beta, quantity))]
        for beta in BETAS
        for quantity, (name, _, _) in QUANTITIES.items()
    ]
    return markdown(["beta", "nats", *(f"kappa = {kappa:g}" for kappa in CONCENTRATIONS)], lines)


def figure(rows: list[Row], beta: float):
    """All quantities over the concentration of the augmentations, means and deviations over seeds."""
    lines = []
    for quantity, (name, color, dash) in QUANTITIES.items():
        found = values(rows, beta, quantity)
        spread = found.std(1, ddof=min(1, found.shape[1] - 1))
        lines.append(Curve(name, np.arange(len(CONCENTRATIONS)) * 1.0, found.mean(1), color, dash=dash, spread=spread))
    notes = (
        "From left to right: kappa, from strong to weak augmentations.",
        f"beta = {beta:g}, {IMAGES} images, {DRAWS} draws of T. Black: exact.",
    )
    caption = Caption(title="Losses and the information they estimate", notes=notes)
    names = tuple(f"{kappa:g}" for kappa in CONCENTRATIONS)
    return curves(lines, xlabel="", ylabel="nats", floor=0.0, names=names, caption=caption)


def main(options: argparse.Namespace) -> None:
    output = options.output / options.size / "bounds"
    rows = [
        row
        for seed in options.seeds
        for beta in BETAS
        for kappa in CONCENTRATIONS
        for row in measured(beta, kappa, seed)
    ]
    print(write(rows, output / "bounds.csv", ".5g"))
    print(table(rows))
    print(save(figure(rows, BETAS[0]), output / f"bounds_beta_{BETAS[0]:g}.png"))
