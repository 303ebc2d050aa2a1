"""How well an image's ink, its mean brightness, is predicted from h: what a shift within the frame leaves as it is.

A contrastive loss over translations can be lowered by any function of the image that does not change with a shift. The
ink is one that a layer of an MLP computes, and it says little about the class.
"""

from pathlib import Path

import torch
from recipe import mean_statistics, network_of
from torch import Tensor

from lightning_ssl_geometry.data import ImageDataModule
from lightning_ssl_geometry.functional import latent_r2

CALIBRATION = 1000  # training images whose statistics the batch norms have before training


@torch.no_grad()
def ink_r2(path: Path, root: Path | None) -> dict[str, float]:
    """R^2 of linear maps from h to the ink before and after training; every second test image is fitted.

    Before training, the batch norms have the statistics of one batch of training images.
    """
    found = {}
    for when in ("before", "after"):
        model, data = network_of(path, root, trained=when == "after")
        if when == "before":
            with mean_statistics(model):
                model(_images(data, "train")[:CALIBRATION])
        images = _images(data, "test")
        h = torch.cat([model(part) for part in images.split(500)])
        ink = images.mean((1, 2, 3)).unsqueeze(1)
        found[f"ink, R2 {when}"] = float(latent_r2(h, ink, torch.arange(len(h)) % 2 == 0))
    return found


def _images(data: ImageDataModule, split: str) -> Tensor:
    loader = data.unaugmented_dataloader(split)
    return torch.cat([data.on_after_batch_transfer(batch, 0)["image"] for batch in loader])
