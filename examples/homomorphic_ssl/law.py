"""How far the losses of A-SSL and H-SSL are apart, beside how far the network is from equivariant (Section 3).

    python examples/homomorphic_ssl/reproduce.py law --root FOLDER --jobs 2

If a network is equivariant, Eq. 2 and Eq. 3 are equal, and so are their gradients. Networks that differ in their
kernels, strides, padding and image size differ in their equivariance error. Each is measured before training, with the
batch norm's statistics of training batches, and after H-SSL has trained it.

The losses see fibers, and tell images apart. So the distance of a transformed image's fiber from the fiber that stands
for it is measured in units of the variance of these fibers between images: fibers of unrelated images are at 2.
"""

import argparse
import json
import re
import sys
import warnings
from collections.abc import Iterator
from itertools import islice
from math import nan
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.diagnostics import LossGap
from lightning_ssl_geometry.functional.groups.equivariance import equivariance_error
from lightning_ssl_geometry.methods import HSSLModule
from lightning_ssl_geometry.plots import Caption

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from draw_points import Point, points  # noqa: E402
from recipe import Fit, each, grid, markdown, mean_statistics, over_seeds, read, save, write  # noqa: E402

IMAGES, STEPS, CALIBRATION = 256, 200, 8  # of the measurement; of training; batches for the batch norm
ELEMENTS = 8  # pairs of group elements at which distances are measured
_LEAST = 1e-4  # of the figures' distances
COLUMNS = {  # heading -> attribute of a Row, and its digits
    "equivariance error": ("error", ".1e"),
    "distance of fibers": ("distance", ".2g"),
    "within the window": ("in_window", ".2g"),
    "A-SSL's loss - H-SSL's": ("gap", ".3f"),
    "cosine, embeddings": ("similarity", ".3f"),
    "of unrelated images": ("unrelated", ".3f"),
    "cosine, gradients": ("gradient", ".3f"),
}
BACKBONE = "--model.init_args.backbone.init_args."
COLORS = {"scale": "blue", "rotation": "orange", "translation": "green"}


def _layers(kernel: int, *strides: int) -> str:
    return f"{BACKBONE}kernels={json.dumps([[kernel, 3, stride] for stride in strides])}"


# Group -> name of the network -> its words, after those of the group. "11/3" has kernels of 11 pixels and polynomials
# of three orders. Kernels are named with the strides of the three layers.
NETWORKS = {
    "scale": {
        "paper's": [f"{BACKBONE}kernels=paper"],
        **{
            f"{kernel}/3, strides {' '.join(map(str, strides))}": [_layers(kernel, *strides)]
            for kernel in (7, 11, 15)
            for strides in ((1, 2, 2), (1, 1, 1))
        },
        "11/3, strides 1 1 1, window": [_layers(11, 1, 1, 1), "--model.init_args.pooling=window"],
        "7/3 fitted, strides 1 1 1, window": [
            _layers(7, 1, 1, 1),
            f"{BACKBONE}basis_type=fitted",
            "--model.init_args.pooling=window",
        ],
        "11/3, window": [f"{BACKBONE}kernels=accurate", "--model.init_args.pooling=window"],
    },
    "rotation": {
        "29 pixels": [],
        "28 pixels": ["--data.init_args.image_size=28"],
        "eighths, paper's": [f"{BACKBONE}rotations=8"],
        "eighths, 11/3": [f"{BACKBONE}rotations=8", f"{BACKBONE}kernels=accurate"],
    },
    "translation": {
        "zeros": ["--data.init_args.image_size=28"],
        "circular": ["--data.init_args.image_size=28", f"{BACKBONE}padding_mode=circular"],
    },
}


class Row(NamedTuple):
    """One network at one time.

    Attributes:
        trained: 0 before training, 1 after it.
        error: The mean equivariance error over the group's elements, at the output.
        similarity: The mean cosine of A-SSL's and H-SSL's embeddings for one group element.
        unrelated: The same between embeddings of different images.
        gradient: The cosine of the gradients of both losses with respect to the backbone.
        distance: The mean squared distance of A-SSL's fibers from H-SSL's, over the variance of H-SSL's between images.
        in_window: The same for means over the scaled window instead of the network's own. NaN for other groups.
    """

    group: str
    network: str
    seed: int
    trained: int
    error: float
    a_ssl: float
    h_ssl: float
    similarity: float
    unrelated: float
    gradient: float
    distance: float
    in_window: float

    @property
    def gap(self) -> float:
        """A-SSL's loss minus H-SSL's."""
        return self.a_ssl - self.h_ssl


def words(options: argparse.Namespace, group: str, network: str, *, seed: int) -> list[str]:
    """The command line of a network, without classifier and callbacks."""
    found = ["--config", str(HERE / "laptop.yaml"), f"{BACKBONE}group={group}", f"--model.init_args.group={group}"]
    found += [f"{BACKBONE}width=4", "--model.init_args.classifier=null"]
    found += ["--trainer.callbacks=null", "--trainer.logger=false", "--trainer.enable_checkpointing=false"]
    found += ["--trainer.enable_progress_bar=false", "--trainer.enable_model_summary=false"]
    found += [f"--trainer.max_steps={STEPS}", "--trainer.max_epochs=-1", "--trainer.limit_val_batches=0"]
    found += [f"--seed_everything={seed}", f"--data.init_args.seed={seed}", f"--model.init_args.seed={seed}"]
    found += [f"--data.init_args.views.init_args.seed={seed}"]
    found += [f"--data.init_args.root={options.root}"] if options.root else []
    return [*found, *options.more, *NETWORKS[group][network]]


def measure(options: argparse.Namespace, group: str, network: str, seed: int) -> Iterator[Row]:
    """Measure a network before and after training."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LightningCLI's args parameter")  # beside the arguments of this script
        cli = lightning_cli(words(options, group, network, seed=seed), run=False)
    model, data = cli.model, cli.datamodule
    data.setup()
    with torch.no_grad(), mean_statistics(model.train()):
        for batch in islice(data.training_loader(), CALIBRATION):
            model.step(data.on_after_batch_transfer(batch, 0))
    made = data.on_after_batch_transfer(next(iter(data.unaugmented_dataloader("val"))), 0)
    image, index = made["image"][:IMAGES], made["index"][:IMAGES]
    fill = float(-data.mean[0] / data.std[0])  # black
    for trained in (0, 1):
        if trained:
            cli.trainer.fit(model.train(), datamodule=data)
        yield Row(group, network, seed, trained, *_measured(model.eval(), group, image, index=index, fill=fill))


def _measured(model: HSSLModule, group: str, image: Tensor, *, index: Tensor, fill: float) -> tuple[float, ...]:
    backbone = model.backbone
    turns = {"turns": backbone.rotations} if group == "rotation" else {}
    error = equivariance_error(backbone, image, group, fill=fill, **turns)["output"].mean()
    gap = LossGap(group, fill=fill, contrast_size=len(image), pooling=model.pairs.pooling, **turns)
    views = gap.embeddings(image, index, backbone, model.projector)
    losses = [gap.loss(each) for each in views]
    parameters = list(backbone.parameters())
    a, h = (nn.utils.parameters_to_vector(torch.autograd.grad(loss, parameters)) for loss in losses)
    cosine = nn.functional.cosine_similarity
    similarity = cosine(*views, dim=-1).mean()
    unrelated, distance = _between(gap, backbone, model.projector, image=image)
    window = LossGap(group, fill=fill, contrast_size=len(image), pooling="window") if group == "scale" else None
    in_window = _between(window, backbone, model.projector, image=image)[1] if window else nan
    values = (error, *losses, similarity, unrelated, cosine(a, h, dim=0), distance, in_window)
    return tuple(float(value) for value in values)


@torch.no_grad()
def _between(gap: LossGap, backbone: nn.Module, projector: nn.Module, *, image: Tensor) -> tuple[float, float]:
    """The mean cosine of embeddings of different images, and the relative distance of fibers.

    The group elements of :class:`LossGap` follow from the index. With one index for all images, they are the same.
    """
    cosines, distances, variances = [], [], []
    for element in range(ELEMENTS):
        index = torch.full((len(image),), element)
        augmented, homomorphic = gap.embeddings(image, index, backbone, nn.Identity())
        distances.append((augmented - homomorphic).square().sum(-1).mean())
        variances.append((homomorphic - homomorphic.mean(0)).square().sum(-1).mean())
        views = (projector(fiber.flatten(0, 1)).unflatten(0, fiber.shape[:2]) for fiber in (augmented, homomorphic))
        one, other = views
        cosines.append(nn.functional.cosine_similarity(one, other.roll(1, 0), dim=-1).mean())
    return float(torch.stack(cosines).mean()), float(sum(distances) / sum(variances))


def finished(folder: Path) -> list[Row]:
    """The two rows of a network; empty if it is not done."""
    path = folder / "law.csv"
    return read(path, Row) if path.exists() else []


def fit(options: argparse.Namespace, cell: str, added: list[str], seed: int) -> Fit:
    folder = options.output / options.size / "law" / re.sub("[^a-z0-9]+", "_", cell) / f"seed{seed}"
    root = ["--root", str(options.root)] if options.root else []
    given = [*added, "--seed", str(seed), "--folder", str(folder), *root]
    return Fit(f"{cell}, seed {seed}", [str(HERE / "law.py"), *given, "--", *options.more], folder, finished)


def table(rows: list[Row]) -> str:
    """Markdown: a row for each network, before -> after training."""
    lines = []
    for group, network in dict.fromkeys((row.group, row.network) for row in rows):
        of = [row for row in rows if (row.group, row.network) == (group, network)]
        before, after = ([row for row in of if row.trained == trained] for trained in (0, 1))
        cells = []
        for name, digits in COLUMNS.values():
            both = [over_seeds([getattr(row, name) for row in here], digits) for here in (before, after)]
            cells.append(" -> ".join(both) if any(both) else "")
        lines.append([f"{group}, {network}", *cells])
    return markdown(["", *COLUMNS], lines)


def figures(rows: list[Row]) -> Iterator[tuple[str, Any]]:
    """The gap of the losses, and the cosine of their gradients, against the distance of fibers; means over seeds."""
    for name, title, quantity, ylabel in (
        ("gap", "Losses of A-SSL and H-SSL", lambda row: abs(row.gap), "|A-SSL's loss - H-SSL's|, after training"),
        ("gradient", "Gradients of A-SSL and H-SSL", lambda row: row.gradient, "their cosine, after training"),
    ):
        found = []
        networks = dict.fromkeys((row.group, row.network) for row in rows)
        alike = [key for key in networks if key[0] == "scale" and not key[1].endswith("window")]  # of one distance
        for group, network in networks:
            of = [row for row in rows if (row.group, row.network, row.trained) == (group, network, 1)]
            distance = np.mean([np.log10(max(row.distance, _LEAST)) for row in of])
            height = float(np.mean([quantity(row) for row in of]))
            label = network.replace(", strides", ",") + (
                " (exact)" if all(row.distance <= _LEAST for row in of) else ""
            )
            if (group, network) in alike:
                label = f"{len(alike)} with the mean over the map" if (group, network) == alike[0] else ""
            found.append(Point(label, float(distance), height, COLORS[group]))
        colors = [(color, group) for group, color in COLORS.items()]
        notes = (f"Unrelated images: 2. Smaller distances than {_LEAST:g} are drawn there.",)
        caption = Caption(title, notes=notes)
        yield (
            name,
            points(
                found,
                xlabel="log10 of the distance of fibers over the variance",
                ylabel=ylabel,
                colors=colors,
                caption=caption,
            ),
        )


def main(options: argparse.Namespace) -> None:
    cells = {
        f"{group}: {name}": ["--group", group, "--network", name] for group, names in NETWORKS.items() for name in names
    }
    rows = [row for _, _, found in each(grid(options, cells, fit)) for row in found]
    folder = options.output / options.size / "law"
    print(write(rows, folder / "results.csv", ".5g"))
    print(table(rows))
    for name, figure in figures(rows):
        print(save(figure, folder / f"law_{name}.png"))


if __name__ == "__main__":
    arguments = argparse.ArgumentParser(description="One network of reproduce.py law.")
    for name in ("root", "folder"):
        arguments.add_argument(f"--{name}", type=Path)
    for name in ("group", "network"):
        arguments.add_argument(f"--{name}")
    arguments.add_argument("--seed", type=int)
    arguments.add_argument("more", nargs="*")
    one = arguments.parse_args()
    write(list(measure(one, one.group, one.network, seed=one.seed)), one.folder / "law.csv", ".8g")
