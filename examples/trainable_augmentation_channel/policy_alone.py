"""A policy alone, on a frozen encoder: what each estimator of phase 2 and each policy network leads to.

    python examples/trainable_augmentation_channel/policy_alone.py --root FOLDER

The encoder is trained on the 9 crops within the digit's cell, for 1,000 steps. Then the policy is trained for 600 steps
with each of the four estimators, by the convolutional policy and by the paper's network, which sees the whole image, at
the paper's beta and lambda (0.5, 0.0025) and at the laptop's (5, 0.02). FOLDER has MNIST/raw. 3,000 training digits are
used: 2,000 to train, 1,000 to measure. Runs that have finished are not repeated. OUTPUT has policy_alone.csv.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.linear_model import LogisticRegression
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.data import ShiftedMNISTDataModule
from lightning_ssl_geometry.functional import augmentation_channel_loss, exact_channel_loss, policy_entropy
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, PolicyGradient, ScoreFunction
from lightning_ssl_geometry.losses.policy_gradient import Channel
from lightning_ssl_geometry.nn import ConvPolicy, MLPProjector, ShallowCNN
from lightning_ssl_geometry.views import CropFamily

sys.path[:0] = [str(Path(__file__).parents[1])]
from recipe import markdown, over_seeds, write  # noqa: E402

ESTIMATORS = (AllPairs, DistinctPairs, ScoreFunction, ExactInformation)
SETTINGS = ((0.5, 0.0025), (5.0, 0.02))  # beta and lambda
NETWORKS = {"convolution": ConvPolicy, "linear layers": ShallowCNN}
TRAINED, MEASURED, SCORED, BATCH, DRAWS = 2000, 1000, 256, 64, 8


class Row(NamedTuple):
    """One policy at its end.

    Attributes:
        information: J of 256 held-out images, exact, in nats.
        entropy: Mean entropy of the policy, in nats.
        nonempty: Mass on crops that are not empty.
        cell: Test accuracy of logistic regression of the digit's cell on Z; 1/9 by chance.
        digit: The same for the digit.
    """

    beta: float
    network: str
    estimator: str
    seed: int
    information: float
    entropy: float
    nonempty: float
    cell: float
    digit: float


class Data(NamedTuple):
    """Images with their labels, cells, and the table of embeddings of their crops."""

    image: Tensor
    label: Tensor
    cell: Tensor
    z: Tensor
    inverse: Tensor
    empty: Tensor


class Looked:
    """The crops of a `CropFamily`, whose embeddings stand in a table. Its images are their numbers in the data."""

    def __init__(self, data: Data) -> None:
        self.data = data

    def __len__(self) -> int:
        return self.data.inverse.shape[1]

    def __call__(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        return self.data.z[self.data.inverse[image[sample], member]]

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """List each row of the table that these images need once."""
        row, inverse = self.data.inverse[image].flatten().unique(return_inverse=True)
        first = torch.empty_like(row)
        first[inverse.flip(0)] = torch.arange(len(inverse)).flip(0)
        return first // len(self), first % len(self), inverse.view(len(image), len(self))


def images(root: Path | None, seed: int, size: int) -> tuple[Tensor, Tensor, Tensor]:
    """Digits in a grid, (N, 1, 84, 84), with their labels and boxes."""
    module = ShiftedMNISTDataModule(str(root), subset=size, batch_size=500, seed=seed, drop_last=False)
    module.prepare_data()
    module.setup("fit")
    batches = [module.on_after_batch_transfer(batch, 0) for batch in module.unaugmented_dataloader("train")]
    return tuple(torch.cat([batch[name] for batch in batches]) for name in ("image", "label", "box"))


def encoder(image: Tensor, box: Tensor, family: CropFamily, *, beta: float, seed: int, steps: int) -> nn.Module:
    """Train f and g on the 9 crops that overlap most with the digit's cell."""
    torch.manual_seed(seed)
    network = nn.Sequential(
        ShallowCNN(image_size=20, out_dim=200, strides=(2, 1)), MLPProjector(200, 200, 50, norm="none")
    )
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    oracle = family.overlap(box).topk(9).indices
    for _ in range(steps):
        sample = torch.randint(len(image), (BATCH,))
        member = oracle[sample].gather(1, torch.randint(9, (BATCH, DRAWS)))
        views = family(image, sample.repeat_interleave(DRAWS), member.flatten())
        loss = augmentation_channel_loss(network(views).unflatten(0, (BATCH, DRAWS)), beta=beta)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    return network.eval().requires_grad_(False)


def looked_up(options: argparse.Namespace, beta: float, seed: int) -> Data:
    """The embeddings of all crops of all images."""
    image, label, box = images(options.root, seed, options.trained + options.measured)
    family = CropFamily()
    network = encoder(image[: options.trained], box[: options.trained], family, beta=beta, seed=seed,
                      steps=options.encoder_steps)  # fmt: skip
    sample, member, inverse = family.distinct(image)
    pairs = zip(sample.split(1024), member.split(1024), strict=True)
    z = torch.cat([normalize(network(family(image, *pair)), dim=1) for pair in pairs])
    return Data(image, label, 3 * (box[:, 0] // 28) + box[:, 1] // 28, z, inverse, family.empty(image))


def policy(name: str, seed: int) -> nn.Module:
    """A new policy network: it scores crops by their content, or sees the whole image."""
    torch.manual_seed(100 + seed)
    if name == "convolution":
        return ConvPolicy(size=20, stride=4)
    return ShallowCNN(image_size=84, out_dim=289, hidden_dim=128, strides=(2, 2))


def trained(data: Data, network: nn.Module, estimator: PolicyGradient, *, setting: tuple[float, float],
            options: argparse.Namespace) -> None:  # fmt: skip
    """Train a policy on the first images of the data."""
    optimizer, (beta, weight) = torch.optim.Adam(network.parameters(), lr=1e-3), setting
    for _ in range(options.steps):
        number = torch.randperm(options.trained)[:BATCH]
        log_policy = network(data.image[number]).log_softmax(1)
        channel = Channel(number, Looked(data), embed=lambda rows: rows, beta=beta, jensen=True)
        loss = estimator(channel, log_policy, torch.rand(BATCH, DRAWS)) - weight * policy_entropy(log_policy).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()


@torch.no_grad()
def measured(data: Data, network: nn.Module, beta: float, size: int) -> tuple[float, float, float, float, float]:
    """The numbers of a Row. The images from `size` on were not used in training."""
    log_policy = torch.cat([network(part) for part in data.image.split(500)]).log_softmax(1)
    p, held = log_policy.exp(), slice(size, size + SCORED)
    information = -exact_channel_loss(data.z, log_policy[held], data.inverse[held], beta)
    pairs = zip(p.split(100), data.inverse.split(100), strict=True)
    z = normalize(torch.cat([torch.einsum("nk,nkp->np", part, data.z[rows]) for part, rows in pairs]), dim=1)
    scores = [
        LogisticRegression(max_iter=300)
        .fit(z[:size].numpy(), y[:size].numpy())
        .score(z[size:].numpy(), y[size:].numpy())
        for y in (data.cell, data.label)
    ]
    nonempty = (p * ~data.empty)[size:].sum(1).mean()
    return information.item(), policy_entropy(log_policy)[size:].mean().item(), nonempty.item(), *scores


def rows_of(options: argparse.Namespace, setting: tuple[float, float], seed: int) -> Iterator[Row]:
    """Train and measure all policies of one encoder, or read those that have finished."""
    data, (beta, _) = None, setting
    for name in NETWORKS:
        for kind in ESTIMATORS:
            path = options.output / "runs" / f"{beta:g}_{name.split()[0]}_{kind.__name__}_{seed}.csv"
            if not path.exists():
                data = data or looked_up(options, beta, seed)
                network = policy(name, seed)
                trained(data, network, kind(), setting=setting, options=options)
                row = Row(beta, name, kind.__name__, seed, *measured(data, network, beta, options.trained))
                write([row], path, ".4f")
                print(*row, flush=True)
            with path.open() as file:
                found = next(csv.DictReader(file))
            yield Row(beta, name, kind.__name__, seed, *(float(found[key]) for key in Row._fields[4:]))


def table(rows: list[Row]) -> str:
    """Markdown: a row for each beta, network and estimator, over seeds."""
    lines = []
    for place in dict.fromkeys(row[:3] for row in rows):
        here = [row for row in rows if row[:3] == place]
        lines.append([f"{place[0]:g}", *place[1:], *(over_seeds([getattr(r, key) for r in here], ".2f")
                                                      for key in Row._fields[4:])])  # fmt: skip
    header = ["beta", "policy", "estimator", "J, exact", "entropy, nats", "mass, not empty", "cell in Z", "digit in Z"]
    return markdown(header, lines)


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--root", type=Path, required=True, help="folder of the data")
    arguments.add_argument("--output", type=Path, default=Path("runs/augmentation_channel/policy_alone"))
    arguments.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    arguments.add_argument("--steps", type=int, default=600, help="of a policy")
    arguments.add_argument("--encoder_steps", type=int, default=1000)
    arguments.add_argument("--trained", type=int, default=TRAINED, help="images to train on")
    arguments.add_argument("--measured", type=int, default=MEASURED, help="other images")
    options = arguments.parse_args()
    rows = [row for seed in options.seeds for setting in SETTINGS for row in rows_of(options, setting, seed)]
    print(write(rows, options.output / "policy_alone.csv", ".4f"))
    print(table(rows))


if __name__ == "__main__":
    main()
