"""An encoder that was trained on the oracle's crops alone, and its embeddings of all crops of some images.

The encoder and the images are those of the recipe's YAML file. The oracle's crops are those that overlap most with the
digit's cell: 9 of them at the laptop's size.
"""

import argparse
import hashlib
import json
import pickle
import sys
import warnings
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.callbacks.channel_evaluation import channel_weight
from lightning_ssl_geometry.cli import lightning_cli
from lightning_ssl_geometry.data import ShiftedMNISTDataModule
from lightning_ssl_geometry.functional import augmentation_channel_loss, draw_members
from lightning_ssl_geometry.losses.policy_gradient import Channel
from lightning_ssl_geometry.methods import CRLTACModule

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
from recipe import alone  # noqa: E402

BETA, RATE = 5.0, 1e-3  # of the encoder's training
SMOKE_CONVOLUTIONS = ("size=6", "stride=2", "reduction=2")
# Size -> policy network -> what the command line adds.
NETWORKS = {
    "laptop": {"convolutions": [], "linear layers": ["--config", str(HERE / "as_printed.yaml")]},
    "smoke": {
        "convolutions": [
            "--model.init_args.policy=lightning_ssl_geometry.nn.ConvPolicy",
            *(f"--model.init_args.policy.init_args.{word}" for word in SMOKE_CONVOLUTIONS),
        ],
        "linear layers": [],
    },
}


class Images(NamedTuple):
    """Images and the embeddings of their crops.

    Attributes:
        image: (N, C, H, W).
        oracle: (N, K), equal weights for the oracle's crops.
        cell: (N,), the number of the digit's cell.
        empty: (N, K), whether a crop is empty.
        z: (U, P), embeddings of all different crops.
        inverse: (N, K), the row of `z` of each crop.
    """

    image: Tensor
    oracle: Tensor
    cell: Tensor
    empty: Tensor
    z: Tensor
    inverse: Tensor


class Embedded:
    """A family whose embeddings are known: those of N images are the rows `inverse` (N, K) of z (U, P)."""

    def __init__(self, z: Tensor, inverse: Tensor) -> None:
        self.z, self.inverse = z, inverse

    def __len__(self) -> int:
        return self.inverse.shape[1]

    def __call__(self, image: Tensor, sample: Tensor, member: Tensor) -> Tensor:
        return self.z[self.inverse[sample, member]]

    def distinct(self, image: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        row, inverse = self.inverse.unique(return_inverse=True)
        every = torch.arange(inverse.numel())
        place = every.new_empty(len(row)).scatter_(0, inverse.flatten(), every)  # any of those that are equal
        return place // len(self), place % len(self), inverse


def channel(z: Tensor, inverse: Tensor, beta: float) -> Channel:
    """What an estimator of phase 2 takes, for images whose embeddings are known."""
    return Channel(inverse, Embedded(z, inverse), embed=lambda views: views, beta=beta, jensen=True)


def parts(options: argparse.Namespace, seed: int, network: str) -> tuple[CRLTACModule, ShiftedMNISTDataModule]:
    """The model, not trained, and the data of the recipe."""
    words = ["--config", str(HERE / f"{options.size}.yaml"), *NETWORKS[options.size][network]]
    words += [f"--seed_everything={seed}", f"--data.init_args.seed={seed}", "--trainer.accelerator=cpu"]
    root = [f"--data.init_args.root={options.root}"] if options.root else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LightningCLI's args parameter")  # beside the arguments of this script
        cli = lightning_cli([*words, *root, *options.more], run=False)
    cli.datamodule.setup()
    return cli.model, cli.datamodule


def batches(data: ShiftedMNISTDataModule, loader):
    """Batches with `image`."""
    for batch in loader:
        made = data.on_after_batch_transfer(batch, 0)
        yield made if "image" in made else made | {"image": made["views"][0]}


def oracle(model: CRLTACModule, box: Tensor) -> Tensor:
    overlap = model.family.overlap(box)
    return channel_weight("oracle", torch.ones(overlap.shape), overlap)


def train_encoder(model: CRLTACModule, data: ShiftedMNISTDataModule, epochs: int) -> None:
    """Descend the loss of phase 1 with draws of the oracle's crops in place of the policy's."""
    generator = torch.Generator().manual_seed(0)
    network = torch.nn.Sequential(model.backbone, model.projector)
    optimizer = torch.optim.Adam(network.parameters(), lr=RATE)
    loader = data.train_dataloader()
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, epochs * len(loader))
    for _ in range(epochs):
        for batch in batches(data, loader):
            n = len(batch["image"])
            member = draw_members(oracle(model, batch["box"]), torch.rand(n, model.draws, generator=generator))
            sample = torch.arange(n).repeat_interleave(model.draws)
            z = network(model.family(batch["image"], sample, member.flatten())).unflatten(0, member.shape)
            optimizer.zero_grad()
            augmentation_channel_loss(z, beta=BETA).backward()
            optimizer.step()
            scheduler.step()


def digest(options: argparse.Namespace) -> str:
    """The contents of the YAML files that make the encoder and the policies."""
    files = [HERE / f"{options.size}.yaml", HERE / "as_printed.yaml"]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _said(options: argparse.Namespace, seed: int) -> str:
    named = {"seed": seed, "epochs": options.encoder_epochs, "root": str(options.root), "more": options.more}
    return json.dumps(named | {"config": digest(options)})


def _loaded(path: Path) -> dict[str, Any]:
    """What a file of an encoder holds; nothing if there is none, or it is damaged."""
    try:
        return torch.load(path) if path.exists() else {}
    except (RuntimeError, EOFError, pickle.UnpicklingError):
        print(f"{path} is damaged: its encoder is trained anew.", file=sys.stderr)
        return {}


def encoder(
    options: argparse.Namespace, folder: Path, seed: int, network: str = "convolutions"
) -> tuple[CRLTACModule, ShiftedMNISTDataModule]:
    """The recipe's model with a trained encoder, and its data. The encoder is trained once and kept in a file.

    It is trained anew if the arguments or the recipe's YAML file are others than those of the file's encoder.
    """
    model, data = parts(options, seed, network)
    path, said = folder / f"encoder_seed{seed}.pt", _said(options, seed)
    path.parent.mkdir(parents=True, exist_ok=True)
    with alone(path.parent, waits=True):  # of two commands with one folder, one trains
        kept = _loaded(path)
        if kept.get("said") != said:
            train_encoder(model, data, options.encoder_epochs)
            kept = {name: getattr(model, name).state_dict() for name in ("backbone", "projector")} | {"said": said}
            begun = path.with_suffix(".begun")  # whole, or not there: this command may be stopped at any time
            torch.save(kept, begun)
            begun.replace(path)
    for name in ("backbone", "projector"):
        getattr(model, name).load_state_dict(kept[name])
    return model, data


@torch.no_grad()
def embedded(model: CRLTACModule, data: ShiftedMNISTDataModule, loader, count: int) -> Images:
    """The first images of a loader."""
    enough = count // data.batch_size + 2  # batches can be a little smaller
    found = list(batches(data, islice(loader, enough)))
    image, box = (torch.cat([batch[name] for batch in found])[:count] for name in ("image", "box"))
    sample, member, inverse = model.family.distinct(image)
    pairs = zip(sample.split(256), member.split(256), strict=True)
    z = torch.cat([model.projector(model.backbone(model.family(image, *pair))) for pair in pairs])
    z = torch.nn.functional.normalize(z, dim=1)
    cell = (box[:, :2] // data.cell).long() @ torch.tensor([data.grid, 1])
    return Images(image, oracle(model, box), cell, model.family.empty(image), z, inverse)
