"""How well the estimators of phase 2 follow the exact gradient of the policy, from a broad policy to a narrow one.

    python examples/trainable_augmentation_channel/estimators.py

There are 32 images with 289 augmentations and made-up embeddings of 50 dimensions. As for the paper's crops, 84% of the
augmentations of an image are empty and have one embedding in common. The others lie between it and a direction of the
image. The policy is a softmax of normal logits, scaled to a given mean entropy. Each estimator gets m = 8 random
numbers per image. OUTPUT has estimators.csv and the PNGs. It takes some minutes on one core.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import exact_channel_loss, policy_entropy
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, PolicyGradient, ScoreFunction
from lightning_ssl_geometry.losses.policy_gradient import Channel
from lightning_ssl_geometry.plots import Caption, Curve, curves

sys.path[:0] = [str(Path(__file__).parents[1])]
from recipe import markdown, save, write  # noqa: E402

AUGMENTATIONS, NOT_EMPTY, DRAWS = 289, 47, 8
ENTROPIES = (5.2, 3.2, 2.3, 1.8, 0.6)  # nats; log 289 is 5.67
BETAS = (0.5, 5.0)
# Estimator -> name and colour of its line.
LINES = {
    AllPairs: ("uniform, all pairs", "orange"),
    DistinctPairs: ("uniform, distinct", "red"),
    ScoreFunction: ("score function", "blue"),
    ExactInformation: ("exact", "green"),
}


class Row(NamedTuple):
    """The gradients of one estimator for one policy.

    Attributes:
        cosine: Of the expected gradient over draws with the exact gradient.
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


class Embedded:
    """A family whose embeddings z (N, K, P) are given. Its images are not looked at."""

    def __init__(self, z: Tensor) -> None:
        self.z = z

    def __len__(self) -> int:
        return self.z.shape[1]

    def __call__(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        return self.z[sample, member]

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        n, k = self.z.shape[:2]
        every = torch.arange(n * k)
        return every // k, every % k, every.view(n, k)


def embeddings(generator: torch.Generator, images: int) -> Tensor:
    """The embeddings (N, K, P): 16% between a direction of the image and the embedding of empty views, 84% the latter.

    The first 47 augmentations are those that are not empty.
    """
    draw = {"generator": generator, "dtype": torch.float64}
    empty = normalize(torch.randn(1, 1, 50, **draw), dim=2)
    own = normalize(torch.randn(images, 1, 50, **draw), dim=2)
    share = torch.rand(images, NOT_EMPTY, 1, **draw)
    filled = normalize(share * own + (1 - share) * empty, dim=2)
    return torch.cat([filled, empty.expand(images, AUGMENTATIONS - NOT_EMPTY, -1)], dim=1)


def policy(generator: torch.Generator, images: int, entropy: float) -> Tensor:
    """Logits (N, K) whose softmax has this mean entropy, by bisection of their scale."""
    normal = torch.randn(images, AUGMENTATIONS, generator=generator, dtype=torch.float64)
    low, high = 0.0, 100.0
    for _ in range(60):
        scale = (low + high) / 2
        low, high = (scale, high) if policy_entropy(scale * normal).mean() > entropy else (low, scale)
    return scale * normal


def gradients(estimator: PolicyGradient, z: Tensor, logits: Tensor, beta: float, repeats: int) -> Tensor:
    """The gradients of batches with different draws, (repeats, N, K)."""
    channel = Channel(torch.zeros(len(z), 1), Embedded(z), embed=lambda views: views, beta=beta, jensen=True)
    generator = torch.Generator().manual_seed(5)
    found = []
    for _ in range(repeats):
        given = logits.clone().requires_grad_()
        uniform = torch.rand(len(z), DRAWS, generator=generator, dtype=torch.float64)
        found.append(torch.autograd.grad(estimator(channel, given.log_softmax(1), uniform), given)[0])
    return torch.stack(found)


def measured(beta: float, entropy: float, seed: int, *, images: int, repeats: int) -> Iterator[Row]:
    """Compare all estimators with the exact gradient."""
    generator = torch.Generator().manual_seed(seed)
    z, logits = embeddings(generator, images), policy(generator, images, entropy).requires_grad_()
    exact = torch.autograd.grad(exact_channel_loss(z, logits, beta=beta), logits)[0]
    for kind in LINES:
        drawn = gradients(kind(), z, logits.detach(), beta, 1 if kind is ExactInformation else repeats)
        mean, several = drawn.mean(0), len(drawn) > 1
        variance = (drawn - mean).square().sum() / (len(drawn) - several)
        norm = (mean.square().sum() - several * variance / len(drawn)).clamp(min=0).sqrt()  # without that of the noise
        cosine = (mean * exact).sum() / (norm * exact.norm())
        length, noise = norm / exact.norm(), variance.sqrt() / exact.norm()
        yield Row(beta, entropy, kind.__name__, seed, cosine.item(), length.item(), noise.item())


def values(rows: list[Row], beta: float, kind: type, quantity: str) -> np.ndarray:
    """A quantity by entropy and seed, (entropies, seeds)."""
    here = [row for row in rows if row.beta == beta and row.estimator == kind.__name__]
    return np.array([[getattr(row, quantity) for row in here if row.entropy == entropy] for entropy in ENTROPIES])


def table(rows: list[Row]) -> str:
    """Markdown: a row for each beta and estimator, cosine, length and noise at each entropy."""
    lines = []
    for beta in BETAS:
        for kind in LINES:
            parts = [values(rows, beta, kind, quantity).mean(1) for quantity in ("cosine", "length", "noise")]
            cells = [f"{c:.2f}, {n:.2f}, {s:.1f}" for c, n, s in zip(*parts, strict=True)]
            lines.append([f"{beta:g}", kind.__name__, *cells])
    return markdown(["beta", "cosine, length, noise at", *(f"{entropy:g} nats" for entropy in ENTROPIES)], lines)


def figure(rows: list[Row], beta: float):
    """The cosine over the entropy, mean and deviation over seeds."""
    lines = []
    for kind, (name, color) in LINES.items():
        found = values(rows, beta, kind, "cosine")[::-1]
        lines.append(Curve(f"{name} {found[0].mean():.2f}", np.array(ENTROPIES[::-1]), found.mean(1), color,
                           spread=found.std(1, ddof=min(1, found.shape[1] - 1))))  # fmt: skip
    notes = (f"beta = {beta:g}, m = {DRAWS} of {AUGMENTATIONS}. In the labels: at {ENTROPIES[-1]:g} nats.",)
    caption = Caption(title="Cosine with the exact gradient of the policy", notes=notes)
    return curves(
        lines, xlabel="entropy of the policy, nats", ylabel="cosine", floor=-0.2, ceiling=1.0, caption=caption
    )


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--output", type=Path, default=Path("runs/augmentation_channel/estimators"))
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--images", type=int, default=32)
    arguments.add_argument("--repeats", type=int, default=400, help="batches of draws")
    options = arguments.parse_args()
    size = {"images": options.images, "repeats": options.repeats}
    cases = [(beta, entropy, seed) for beta in BETAS for entropy in ENTROPIES for seed in options.seeds]
    rows = [row for beta, entropy, seed in cases for row in measured(beta, entropy, seed, **size)]
    print(write(rows, options.output / "estimators.csv", ".4g"))
    print(table(rows))
    for beta in BETAS:
        print(save(figure(rows, beta), options.output / f"estimators_beta_{beta:g}.png"))


if __name__ == "__main__":
    main()
