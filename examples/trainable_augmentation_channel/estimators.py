"""How well the estimators of phase 2 follow the exact gradient of the policy, from a broad policy to a narrow one.

    python examples/trainable_augmentation_channel/reproduce.py estimators --root FOLDER

An encoder is trained on the oracle's crops (frozen.py). For 32 test images, the embeddings of all 289 crops are known,
and so is the exact gradient with respect to the logits. The policy prefers crops that are not empty, and has random
preferences among them: its logits are normal, plus 3 for a crop that is not empty, times a factor that gives the mean
entropy. Each estimator gets m = 8 random numbers per image.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_ssl_geometry.functional import exact_channel_loss, policy_entropy
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, PolicyGradient, ScoreFunction
from lightning_ssl_geometry.plots import Caption, Curve, curves

sys.path[:0] = [str(Path(__file__).parent), str(Path(__file__).parents[1])]
from frozen import Images, channel, embedded, encoder  # noqa: E402
from recipe import markdown, save, write  # noqa: E402

IMAGES, DRAWS, PREFERENCE = 32, 8, 3.0
ENTROPIES = {"laptop": (5.2, 3.2, 2.3, 1.8, 0.6), "smoke": (4.4, 1.8)}  # nats
BETAS = (5.0, 0.5)
# Estimator from draws -> colour of its line.
DRAWN = {ScoreFunction: "blue", AllPairs: "orange", DistinctPairs: "red"}


class Row(NamedTuple):
    """The gradients of one estimator for one policy.

    Attributes:
        cosine: Of the expected gradient over draws with the exact gradient. The expected gradient's length is estimated
            without the noise of the draws, so a cosine can be estimated slightly above 1.
        length: Of the expected gradient, over that of the exact one.
        noise: Deviation of the gradient of one batch, over the length of the exact one.
    """

    beta: float
    entropy: float
    estimator: str
    seed: int
    cosine: float
    length: float
    noise: float


def policy(empty: Tensor, entropy: float, generator: torch.Generator) -> Tensor:
    """Logits (N, K) whose softmax has this mean entropy, by bisection of their scale."""
    logits = torch.randn(empty.shape, generator=generator, dtype=torch.float64) + PREFERENCE * ~empty
    low, high = 0.0, 100.0
    for _ in range(60):
        scale = (low + high) / 2
        low, high = (scale, high) if policy_entropy(scale * logits).mean() > entropy else (low, scale)
    return scale * logits


def gradients(estimator: PolicyGradient, images: Images, logits: Tensor, beta: float, repeats: int) -> Tensor:
    """The gradients of batches with different draws, (repeats, N, K)."""
    generator = torch.Generator().manual_seed(5)
    found = []
    for _ in range(repeats):
        given = logits.clone().requires_grad_()
        uniform = torch.rand(len(given), DRAWS, generator=generator, dtype=torch.float64)
        loss = estimator(channel(images.z.double(), images.inverse, beta), given.log_softmax(1), uniform)
        found.append(torch.autograd.grad(loss, given)[0])
    return torch.stack(found)


def measured(images: Images, beta: float, entropy: float, seed: int, repeats: int) -> Iterator[Row]:
    """Compare all estimators with the exact gradient."""
    logits = policy(images.empty, entropy, torch.Generator().manual_seed(seed)).requires_grad_()
    exact = torch.autograd.grad(exact_channel_loss(images.z.double(), logits, images.inverse, beta), logits)[0]
    for kind in (ExactInformation, *DRAWN):
        drawn = gradients(kind(), images, logits.detach(), beta, 1 if kind is ExactInformation else repeats)
        mean, several = drawn.mean(0), len(drawn) > 1
        variance = (drawn - mean).square().sum() / (len(drawn) - several)
        norm = (mean.square().sum() - several * variance / len(drawn)).clamp(min=0).sqrt()  # without that of the noise
        cosine = (mean * exact).sum() / (norm * exact.norm())
        length, noise = norm / exact.norm(), variance.sqrt() / exact.norm()
        yield Row(beta, entropy, kind.__name__, seed, cosine.item(), length.item(), noise.item())


def values(rows: list[Row], beta: float, kind: type, quantity: str) -> np.ndarray:
    """A quantity by entropy and seed, (entropies, seeds)."""
    here = [row for row in rows if row.beta == beta and row.estimator == kind.__name__]
    entropies = dict.fromkeys(row.entropy for row in here)
    return np.array([[getattr(row, quantity) for row in here if row.entropy == entropy] for entropy in entropies])


def table(rows: list[Row]) -> str:
    """Markdown: a row for each beta and estimator, cosine, length and noise at each entropy."""
    lines = []
    for beta in BETAS:
        for kind in (ExactInformation, *DRAWN):
            parts = [values(rows, beta, kind, quantity).mean(1) for quantity in ("cosine", "length", "noise")]
            cells = [f"{c:.2f}, {n:.2f}, {s:.1f}" for c, n, s in zip(*parts, strict=True)]
            lines.append([f"{beta:g}", kind.__name__, *cells])
    entropies = dict.fromkeys(row.entropy for row in rows)
    return markdown(["beta", "estimator", *(f"{entropy:g} nats" for entropy in entropies)], lines)


def figure(rows: list[Row], beta: float, size: int):
    """The cosine over the entropy, mean and deviation over seeds."""
    entropies = np.array(list(dict.fromkeys(row.entropy for row in rows)))[::-1]
    lines = []
    for kind, color in DRAWN.items():
        found = values(rows, beta, kind, "cosine")[::-1]
        spread = found.std(1, ddof=min(1, found.shape[1] - 1))
        lines.append(Curve(kind.__name__, entropies, found.mean(1), color, spread=spread, bounds=(-1.0, 1.0)))
    notes = (f"beta = {beta:g}, m = {DRAWS} of {size} crops; a uniform policy has {np.log(size):.2f} nats.",)
    caption = Caption(title="Cosine of expected and exact gradient of the policy", notes=notes)
    return curves(
        lines, xlabel="entropy of the policy, nats", ylabel="cosine", floor=-0.2, ceiling=1.0, caption=caption
    )


def main(options: argparse.Namespace) -> None:
    output, rows = options.output / options.size / "estimators", []
    for seed in options.seeds:
        model, data = encoder(options, output.parent / "frozen", seed)
        images = embedded(model, data, data.test_dataloader(), IMAGES)
        for beta in BETAS:
            for entropy in ENTROPIES[options.size]:
                rows += measured(images, beta, entropy, seed, options.repeats)
    print(write(rows, output / "estimators.csv", ".4g"))
    print(table(rows))
    for beta in BETAS:
        print(save(figure(rows, beta, images.empty.shape[1]), output / f"estimators_beta_{beta:g}.png"))
