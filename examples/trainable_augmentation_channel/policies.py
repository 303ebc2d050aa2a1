"""Train the policy alone, with each estimator of its gradient, on an encoder that stays as it is.

    python examples/trainable_augmentation_channel/reproduce.py policy --root FOLDER --jobs 2

The encoder is trained on the oracle's crops (frozen.py). The policy starts near the uniform one and descends the loss
of phase 2, with beta and lambda of the recipe or of the paper. It is a network of convolutions, which sees the content
of a crop, or the paper's network with linear layers, which sees where in the image the crop is. After training, the
exact objective J of test images is compared, and a logistic regression reads the digit's cell from Z.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import torch
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from torch import Tensor
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import exact_channel_loss, policy_entropy
from lightning_ssl_geometry.losses import AllPairs, DistinctPairs, ExactInformation, PolicyGradient, ScoreFunction
from lightning_ssl_geometry.methods import CRLTACModule

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from frozen import NETWORKS, Images, channel, digest, embedded, encoder, parts  # noqa: E402
from recipe import Fit, each, existing, grid, markdown, over_seeds, read, write  # noqa: E402

# Name -> estimators, one after the other, each for all epochs.
ESTIMATORS = {kind.__name__: (kind,) for kind in (ExactInformation, ScoreFunction, AllPairs, DistinctPairs)}
ESTIMATORS["AllPairs then ExactInformation"] = AllPairs, ExactInformation
ESTIMATORS["untrained"] = ()
ENTROPY_WEIGHTS = {5.0: 0.02, 0.5: 0.0025}  # beta -> lambda: twice the recipe's, and the paper's
BATCH, RATE, JUDGED = 64, 1e-3, 256
NUMBERS = ("encoder_epochs", "epochs", "images", "test_images")
QUANTITIES = {"objective": "J", "entropy": "entropy, nats", "nonempty_mass": "mass, not empty", "cell": "cell from Z"}


class Row(NamedTuple):
    """A trained policy on test images.

    Attributes:
        objective: J of Eq. 17 in nats, of 256 images and all of their crops.
        cell: Accuracy of the digit's cell, read from Z.
    """

    beta: float
    network: str
    estimator: str
    seed: int
    objective: float
    entropy: float
    nonempty_mass: float
    cell: float


def train(
    model: CRLTACModule, images: Images, estimator: PolicyGradient, beta: float, *, epochs: int, seed: int
) -> None:
    """Descend the loss of phase 2."""
    generator = torch.Generator().manual_seed(seed)
    optimizer = torch.optim.Adam(model.policy.parameters(), lr=RATE)
    count = len(images.image) // BATCH
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * count)
    for _ in range(epochs):
        for chosen in torch.randperm(len(images.image), generator=generator).split(BATCH)[:count]:
            log_policy = model.policy(images.image[chosen]).log_softmax(1)
            uniform = torch.rand(BATCH, model.draws, generator=generator)
            information = estimator(channel(images.z, images.inverse[chosen], beta), log_policy, uniform)
            optimizer.zero_grad()
            (information - ENTROPY_WEIGHTS[beta] * policy_entropy(log_policy).mean()).backward()
            optimizer.step()
            scheduler.step()


@torch.no_grad()
def log_policy(model: CRLTACModule, images: Images) -> Tensor:
    return torch.cat([model.policy(x).log_softmax(1) for x in images.image.split(BATCH)])


def averaged(images: Images, weight: Tensor) -> Tensor:
    """Z of each image (N, P): the mean of the embeddings over the crops, normalised."""
    parts = zip(images.inverse.split(BATCH), weight.split(BATCH), strict=True)
    return torch.cat([normalize(torch.einsum("nk,nkp->np", w, images.z[at]), dim=1) for at, w in parts])


def judged(fitted: Images, test: Images, log_weights: tuple[Tensor, Tensor], beta: float) -> list[float]:
    """The quantities of Row, from log P(T | X) of images to fit the regression, and of test images."""
    own = slice(None, JUDGED)
    objective = -exact_channel_loss(test.z, log_weights[1][own], test.inverse[own], beta).item()
    probability = log_weights[1].exp()
    entropy = policy_entropy(log_weights[1]).mean().item()
    cell = cell_from_z(fitted, test, log_weights)
    return [objective, entropy, (probability * ~test.empty).sum(1).mean().item(), cell]


def cell_from_z(fitted: Images, test: Images, log_weights: tuple[Tensor, Tensor]) -> float:
    """The accuracy of a logistic regression that reads the digit's cell from Z."""
    z = [averaged(images, log.exp()) for images, log in zip((fitted, test), log_weights, strict=True)]
    probe = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300)).fit(z[0], fitted.cell)
    return probe.score(z[1], test.cell)


def by_cell(options: argparse.Namespace, run: Path, seed: int) -> dict[str, float]:
    """What a run of the whole method with linear layers knows of the digit's cell.

    "cell" is the accuracy of the cell, read from Z. "nonempty_mass_cell_<k>" is the mass on crops that are not empty,
    of the test images with the digit in cell k.
    """
    checkpoint = max((run / "checkpoints").glob("last*.ckpt"), key=lambda file: file.stat().st_mtime)
    model, data = parts(options, seed, "linear layers")
    model.load_state_dict(torch.load(checkpoint, weights_only=True)["state_dict"])
    model.eval()
    fitted = embedded(model, data, data.unaugmented_dataloader("train"), options.images)
    test = embedded(model, data, data.test_dataloader(), options.test_images)
    log_weights = log_policy(model, fitted), log_policy(model, test)
    mass = (log_weights[1].exp() * ~test.empty).sum(1)
    masses = {f"nonempty_mass_cell_{k}": mass[test.cell == k].mean().item() for k in test.cell.unique().tolist()}
    return {"cell": cell_from_z(fitted, test, log_weights)} | masses


def one(options: argparse.Namespace) -> None:
    """Train one policy, and write its row."""
    seed = options.seed
    model, data = encoder(options, options.encoder, seed, options.network)
    fitted = embedded(model, data, data.unaugmented_dataloader("train"), options.images)
    test = embedded(model, data, data.test_dataloader(), options.test_images)
    if options.estimator == "oracle":
        log_weights = tuple(images.oracle.log().clamp(min=-1e4) for images in (fitted, test))
    else:
        for kind in ESTIMATORS[options.estimator]:
            train(model, fitted, kind(), options.beta, epochs=options.epochs, seed=seed)
        log_weights = tuple(log_policy(model, images) for images in (fitted, test))
    found = judged(fitted, test, log_weights, options.beta)
    trained = ("oracle's crops", "none") if options.estimator == "oracle" else (options.network, options.estimator)
    print(write([Row(options.beta, *trained, seed, *found)], options.folder / "row.csv"))


def settings(size: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the arms, and what each adds to the command line."""
    for beta in ENTROPY_WEIGHTS:
        for network in NETWORKS[size]:
            for name in ESTIMATORS:
                yield f"{beta:g}, {network}, {name}", ["--beta", f"{beta:g}", "--network", network, "--estimator", name]
        yield f"{beta:g}, oracle", ["--beta", f"{beta:g}", "--network", "convolutions", "--estimator", "oracle"]


def fit(options: argparse.Namespace, arm: str, added: list[str], seed: int) -> Fit:
    folder = options.output / options.size / "policy" / arm.replace(", ", "_").replace(" ", "_") / f"seed{seed}"
    words = [str(HERE / "policies.py"), *added, "--seed", str(seed), "--folder", str(folder)]
    words += ["--size", options.size, "--encoder", str(options.output / options.size / "frozen")]
    words += [f"--{name}={getattr(options, name)}" for name in NUMBERS]
    root = ["--root", str(options.root)] if options.root else []
    words += ["--digest", digest(options)]  # of the YAML files, whose settings are not among these words
    return Fit(f"{arm}, seed {seed}", [*words, *root, "--", *options.more], folder, finished)


def finished(folder: Path) -> Path | None:
    """Find the row of a finished run in a folder."""
    return existing(folder / "row.csv")


def table(rows: list[Row]) -> str:
    """Markdown: a row for each arm, means over seeds."""
    arms = {row[:3]: [other for other in rows if other[:3] == row[:3]] for row in rows}
    lines = [
        [f"{arm[0]:g}", *arm[1:], *(over_seeds([getattr(row, name) for row in here], ".3f") for name in QUANTITIES)]
        for arm, here in arms.items()
    ]
    return markdown(["beta", "policy", "estimator", *QUANTITIES.values()], lines)


def main(options: argparse.Namespace) -> None:
    output = options.output / options.size
    for seed in options.seeds:
        encoder(options, output / "frozen", seed)  # once, before the runs that share it
    runs = grid(options, dict(settings(options.size)), fit)
    rows = [row for _, _, path in each(runs) for row in read(path, Row)]
    print(write(rows, output / "policy" / "policy.csv", ".4f"))
    print(table(rows))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="One run of reproduce.py policy.")
    for name in ("root", "folder", "encoder"):
        arguments.add_argument(f"--{name}", type=Path)
    for name in ("seed", *NUMBERS):
        arguments.add_argument(f"--{name}", type=int)
    for name in ("size", "network", "estimator", "digest"):
        arguments.add_argument(f"--{name}")
    arguments.add_argument("--beta", type=float)
    arguments.add_argument("more", nargs="*")
    one(arguments.parse_intermixed_args())
