"""Fig. 1: t-SNE of pixels and of SimCLR's embeddings: h before training, h and the projector's z after it.

    reproduce.py figure_1                                # scikit-learn's digits
    reproduce.py figure_1 --root DATA CIFAR --jobs 2     # MNIST and CIFAR-10

Each --root is a folder with `MNIST/raw` as torchvision lays it out, or with CIFAR-10 as train/<class>/* and
test/<class>/*. The fits are those of examples/simclr, of one epoch for MNIST, two for CIFAR-10 and 100 for the digits
(`--epochs` gives another number); one that has finished is not repeated. The table measures what the pictures suggest,
on at least as many test images.
"""

import argparse
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from draw_clouds import clouds
from lightning.pytorch.cli import LightningCLI
from numpy.typing import NDArray
from recipe import Fit, at_least, finished, logger, markdown, processes, run_all, save, write
from torch import Tensor, nn

from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.diagnose import load_weights
from lightning_ssl_geometry.functional import clusteredness
from lightning_ssl_geometry.functional.knn import knn_predict
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.plots import Caption

HERE = Path(__file__).parent
BANK = 10_000  # training images among which a test image looks for its nearest neighbours, at most
QUANTITIES = {"knn_accuracy": "kNN accuracy", "nmi": "NMI of k-means", "silhouette": "silhouette of the classes"}
MEASURED = 2000  # test images, at most; some of them are drawn


class DataSet(NamedTuple):
    """The settings of one data set's fit that other fits do not have."""

    title: str
    epochs: int
    overlay: tuple[str, ...] = ()  # of examples/simclr
    added: tuple[str, ...] = ()


DATA = {
    "digits": DataSet("Digits (8 x 8)", 100, added=("--data.init_args.test_fraction=0.5",)),
    "mnist": DataSet("MNIST", 1, ("mnist",)),
    "cifar10": DataSet("CIFAR-10", 2, ("cifar10",)),
}


class Row(NamedTuple):
    """One number."""

    data: str
    features: str
    quantity: str
    value: float


class Sample(NamedTuple):
    """Images of a split, as networks see them, with their labels."""

    image: Tensor
    label: Tensor


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--root", type=Path, nargs="+", default=[], help="folders of MNIST and of CIFAR-10")
    parser.add_argument(
        "--epochs", type=at_least(1), help="of the fits, instead of 1 (MNIST), 2 (CIFAR-10) and 100 (digits)"
    )
    parser.add_argument("--checkpoint", type=Path, help="a trained one of the same network, instead of a fit")
    parser.add_argument("--title", help="of the picture, before what it shows, instead of the name of the data")
    parser.add_argument("--points", type=at_least(1), default=1000, help="test images in a picture, at most")
    parser.add_argument("--seed", type=at_least(0), default=0, help="of the fits and the drawn images")
    parser.add_argument("--jobs", type=at_least(1), default=1, help="fits at a time")
    parser.add_argument("more", nargs="*", help="after --: more arguments of ssl-geometry fit")


def roots(folders: Sequence[Path]) -> dict[str, Path | None]:
    """Find the data set in each folder; without a folder, take the digits."""
    found: dict[str, Path | None] = {}
    for folder in folders:
        if not folder.is_dir():
            raise SystemExit(f"Expected --root to be a folder with MNIST/raw or train/<class>, but {folder} is none.")
        held = {"mnist": folder / "MNIST" / "raw", "cifar10": folder / "train"}
        names = [name for name, path in held.items() if path.is_dir()]
        if not names:
            raise SystemExit(f"Expected --root {folder} to have MNIST/raw or train/<class>, but it has neither.")
        found |= dict.fromkeys(names, folder.resolve())
    return found or {"digits": None}


def arguments(options: argparse.Namespace, name: str, root: Path | None) -> list[str]:
    """The command line of a data set's network and images."""
    data, simclr = DATA[name], HERE.parent / "simclr"
    configs = [simclr / f"{stem}.yaml" for stem in ("laptop", *data.overlay)] + [HERE / "figure_1.yaml"]
    epochs = options.epochs or data.epochs
    words = [word for config in configs for word in ("--config", str(config))]
    words += ["--seed_everything", str(options.seed), f"--data.init_args.seed={options.seed}", *data.added]
    words += [f"--trainer.max_epochs={epochs}", f"--trainer.check_val_every_n_epoch={epochs}"]
    return words + ([f"--data.init_args.root={root}"] if root else []) + options.more


def fit(options: argparse.Namespace, name: str, root: Path | None) -> Fit:
    folder = options.output / "figure_1" / name / f"seed{options.seed}"
    words = ["-m", "lightning_ssl_geometry", "fit", *arguments(options, name, root), *logger(folder)]
    return Fit(name, words, folder, finished)


def checkpoint(options: argparse.Namespace, name: str, root: Path | None) -> Path:
    """The trained network's file."""
    if options.checkpoint:
        return options.checkpoint
    done = fit(options, name, root)
    if not (run := finished(done.folder)):
        raise SystemExit(f"No finished run of {name}: see {done.folder / 'log.txt'}.")
    return run / "checkpoints" / "last.ckpt"


def sample(data: ImageDataModule, split: str, most: int, seed: int) -> Sample:
    """Draw images of a split."""
    batches = list(data.unaugmented_dataloader(split))
    whole = {name: torch.cat([batch[name] for batch in batches]) for name in ("image", "label", "index")}
    rows = torch.randperm(len(whole["label"]), generator=torch.Generator().manual_seed(seed))[:most]
    batch = data.on_after_batch_transfer(batches[0] | {name: value[rows] for name, value in whole.items()}, 0)
    return Sample(batch["image"], batch["label"])


@torch.no_grad()
def calibrate(network: SSLModule, data: ImageDataModule) -> None:
    """Give a fresh batch norm the mean statistics of training batches; without them it would do nothing."""
    layers = [layer for layer in network.modules() if isinstance(layer, nn.modules.batchnorm._BatchNorm)]
    for layer in layers:
        layer.momentum = None
    for _, batch in zip(range(8), data.train_dataloader(), strict=False):
        network.step(data.on_after_batch_transfer(batch, 0))


@torch.inference_mode()
def embeddings(network: SSLModule, image: Tensor) -> tuple[Tensor, Tensor]:
    """The projector's input h and output z, in float64."""
    network.eval()
    h = torch.cat([network(part) for part in image.split(256)])
    return h.double(), network.projector(h).double()


def measured(bank: Tensor, bank_label: Tensor, rows: Tensor, label: Tensor) -> Iterator[tuple[str, float]]:
    """Measure how well neighbours and clusters match the classes; only the directions of rows count."""
    found = knn_predict(rows, bank, bank_label, int(bank_label.max()) + 1)
    yield "knn_accuracy", (found == label).double().mean().item()
    scores = clusteredness(rows, label)
    yield "nmi", scores.nmi.item()
    yield "silhouette", scores.silhouette.item()


def plane(rows: Tensor, seed: int) -> NDArray[np.float64]:
    """t-SNE of directions, from their first 50 principal components."""
    from sklearn.decomposition import PCA
    from sklearn.manifold import TSNE

    units = nn.functional.normalize(rows, dim=1).numpy()
    components = PCA(min(50, *units.shape), random_state=seed).fit_transform(units)
    return (
        TSNE(perplexity=min(30, len(rows) / 4), init="pca", random_state=seed).fit_transform(components).astype(float)
    )


def network_and_images(options: argparse.Namespace, name: str, root: Path | None) -> LightningCLI:
    """Build the initial network of the fit, from its seed, and the data."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LightningCLI's args parameter is intended")  # as it is here
        return lightning_cli(arguments(options, name, root), run=False)


def look(options: argparse.Namespace, name: str, root: Path | None) -> list[Row]:
    """Measure and draw pixels, h before training, and h and z after training, for a data set."""
    cli = network_and_images(options, name, root)
    cli.datamodule.prepare_data()
    cli.datamodule.setup()
    bank, test = (sample(cli.datamodule, *of, options.seed) for of in (("train", BANK), ("test", MEASURED)))
    features = {"pixels": (bank.image.flatten(1).double(), test.image.flatten(1).double())}
    calibrate(cli.model, cli.datamodule)
    before = embeddings(cli.model, bank.image), embeddings(cli.model, test.image)
    load_weights(cli.model, checkpoint(options, name, root))
    after = embeddings(cli.model, bank.image), embeddings(cli.model, test.image)
    features["untrained h"] = before[0][0], before[1][0]
    features |= dict(zip(("trained h", "trained z"), zip(*after, strict=True), strict=True))
    rows, panels = [], []
    for kind, (among, points) in features.items():
        found = dict(measured(among, bank.label, points, test.label))
        rows += [Row(name, kind, quantity, value) for quantity, value in found.items()]
        title = f"{kind}: kNN {100 * found['knn_accuracy']:.0f}%, NMI {found['nmi']:.2f}"
        panels.append((title, plane(points[: options.points], options.seed), test.label[: options.points].numpy()))
    title = options.title or DATA[name].title
    caption = Caption(title=f"{title}: t-SNE of {len(panels[0][1]):,} test images")
    figure = clouds(panels, names=cli.datamodule.class_names, caption=caption)
    print(save(figure, options.output / "figures" / f"figure_1_{name}.png"))
    return rows


def fit_and_look(options: argparse.Namespace, found: dict[str, Path | None]) -> list[list[Row]]:
    """Fit and measure each data set, several at a time if there are several jobs; no finished fit is repeated."""

    def one(name: str, root: Path | None, looking: Callable[..., list[Row]]) -> list[Row]:
        if not options.checkpoint:
            run_all([fit(options, name, root)], options.jobs)
        return looking(options, name, root)

    if min(options.jobs, len(found)) == 1:
        return [one(name, root, look) for name, root in found.items()]
    with processes(min(options.jobs, len(found))) as pool, ThreadPoolExecutor(options.jobs) as waiting:
        looking = partial(_elsewhere, pool)
        return list(waiting.map(partial(one, looking=looking), found.keys(), found.values()))


def _elsewhere(pool: ProcessPoolExecutor, *of: Any) -> list[Row]:
    return pool.submit(look, *of).result()


def table(rows: Sequence[Row]) -> str:
    """Markdown: a row per data set and kind of features."""
    value = {row[:3]: row.value for row in rows}
    lines = [
        [DATA[data].title, kind, *(f"{value[data, kind, quantity]:.3f}" for quantity in QUANTITIES)]
        for data, kind in dict.fromkeys(row[:2] for row in rows)
    ]
    return markdown(["data", "features", *QUANTITIES.values()], lines)


def run(options: argparse.Namespace) -> None:
    """Fit, measure and draw."""
    found = roots(options.root)
    if options.checkpoint and len(found) > 1:
        raise SystemExit(f"Expected --root of one data set with --checkpoint, but got {', '.join(found)}.")
    rows = [row for rows in fit_and_look(options, found) for row in rows]
    print(write(rows, options.output / "results" / "figure_1.csv"), table(rows), sep="\n\n")
