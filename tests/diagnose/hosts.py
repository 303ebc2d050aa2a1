"""A network of somebody else's, by its name on the command line."""

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset


class Theirs(L.LightningModule):
    """A LightningModule without a `forward`: its parts have names of their own."""

    def __init__(self, width: int = 6):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, width, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1))
        self.head = nn.Sequential(nn.Linear(width, 8), nn.ReLU(), nn.Linear(8, 4))


class TheirData(L.LightningDataModule):
    """Batches (image, label) of images that are normalised already."""

    def test_dataloader(self):
        generator = torch.Generator().manual_seed(0)
        image = (torch.rand(40, 3, 8, 8, generator=generator) - 0.5) / 0.25
        return DataLoader(TensorDataset(image, torch.arange(40) % 4), batch_size=16)
