"""Hosts as the benchmark scripts of other projects write them, for the package `pytorch_lightning`.

Training batches are ([view 0, view 1], label, name), validation batches (image, label, name). A validation step passes
one image through the backbone alone, and trains no head.
"""

import copy

import pytorch_lightning as pl
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader

IMAGES, LABELS = (torch.tensor(array)[:320] for array in load_digits(return_X_y=True))
IMAGES = IMAGES.float() / 16
NOISE = 0.1 * torch.randn(2, 320, 64, generator=torch.Generator().manual_seed(0))


class OnlineClassifier(pl.LightningModule):
    """A linear classifier inside of the host. It logs by itself."""

    def __init__(self):
        super().__init__()
        self.head = nn.Linear(32, 10)

    def training_step(self, batch, batch_idx):
        h, label = batch
        loss = cross_entropy(self.head(h), label)
        return loss, {"train_online_loss": loss}


class SimCLR(pl.LightningModule):
    """One call on both views, and two validation loaders as their online kNN classifier needs them."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.projection_head = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))
        self.online_classifier = OnlineClassifier()

    def forward(self, x):
        return self.backbone(x)

    def training_step(self, batch, batch_idx):
        views, label = batch[0], batch[1]
        h = self.forward(torch.cat(views)).flatten(start_dim=1)
        z0, z1 = normalize(self.projection_head(h)).chunk(len(views))
        loss = cross_entropy(z0 @ z1.T / 0.1, torch.arange(len(label)))
        self.log("train_loss", loss)
        online, logs = self.online_classifier.training_step((h.detach(), label.repeat(len(views))), batch_idx)
        self.log_dict(logs)
        return loss + online

    def validation_step(self, batch, batch_idx, dataloader_idx):
        h = self(batch[0]).flatten(start_dim=1)
        self.log("val_online_loss", cross_entropy(self.online_classifier.head(h), batch[1]))

    def configure_optimizers(self):
        assert self.trainer.estimated_stepping_batches > 0
        return [torch.optim.SGD(self.parameters(), lr=0.1)]


class BYOL(SimCLR):
    """One call per view, and a teacher."""

    def __init__(self):
        super().__init__()
        self.teacher_backbone = copy.deepcopy(self.backbone)
        self.teacher_projection_head = copy.deepcopy(self.projection_head)

    def training_step(self, batch, batch_idx):
        for student, teacher in zip(self.backbone.parameters(), self.teacher_backbone.parameters(), strict=True):
            teacher.data = 0.9 * teacher.data + 0.1 * student.data
        with torch.no_grad():
            taught = [self.teacher_projection_head(self.teacher_backbone(view)) for view in batch[0]]
        learned = [self.projection_head(self(view)) for view in batch[0]]
        pairs = zip(learned, taught[::-1], strict=True)
        loss = sum((normalize(z) - normalize(t)).square().sum(1).mean() for z, t in pairs)
        self.log("train_loss", loss)
        return loss

    def validation_step(self, batch, batch_idx):
        super().validation_step(batch, batch_idx, 0)


class MoCo(BYOL):
    """The trained backbone gets one of the two views."""

    def training_step(self, batch, batch_idx):
        query = normalize(self.projection_head(self(batch[0][1])))
        with torch.no_grad():
            key = normalize(self.teacher_projection_head(self.teacher_backbone(batch[0][0])))
        loss = cross_entropy(query @ key.T / 0.2, torch.arange(len(key)))
        self.log("train_loss", loss)
        return loss


def training():
    samples = [([x + NOISE[0, i], x + NOISE[1, i]], int(LABELS[i]), f"{i}.png") for i, x in enumerate(IMAGES[:256])]
    return DataLoader(samples, batch_size=64)


def validation():
    return DataLoader([(x, int(y), "name") for x, y in zip(IMAGES[256:], LABELS[256:], strict=True)], batch_size=32)
