"""Models that know nothing of this package, and a Trainer that is quiet."""

import lightning as L
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset


class PlainHost(L.LightningModule):
    """SimCLR as somebody else writes it: batches are (x1, x2, label); the backbone is called once per view."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(10, 4, bias=False)

    def forward(self, x):
        return self.head(self.trunk(x))

    def embed(self, x1, x2):
        return self(x1), self(x2)

    def training_step(self, batch, batch_idx):
        x1, x2, _ = batch
        z1, z2 = self.embed(x1, x2)
        return cross_entropy(normalize(z1) @ normalize(z2).T, torch.arange(len(x1)))

    def validation_step(self, batch, batch_idx):
        x1, x2, _ = batch
        z1, z2 = self.embed(x1, x2)
        self.log("their_loss", (z1 - z2).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class HalvesHost(PlainHost):
    """The same with both views in one call."""

    def embed(self, x1, x2):
        return self(torch.cat([x1, x2])).chunk(2)


class InterleavedHost(PlainHost):
    """The same with the two views of a sample in turn."""

    def embed(self, x1, x2):
        return self(torch.stack([x1, x2], 1).flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1)


def pairs(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    x[:, 0] += 2 * x[:, 0].sign()  # two clusters: the label
    noise = 0.1 * torch.randn(2, n, 6, generator=generator)
    return TensorDataset(x + noise[0], x + noise[1], (x[:, 0] > 0).long())


def loader(n=40, batch_size=8, seed=0):
    return DataLoader(pairs(n, seed), batch_size=batch_size)


def quiet(folder, **arguments):
    """A Trainer on the CPU without bars and checkpoints, unless the arguments say otherwise."""
    defaults = {
        "default_root_dir": folder,
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": False,
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "num_sanity_val_steps": 0,
    }
    return L.Trainer(**(defaults | arguments))
