"""BYOL with lightly's heads and loss: student and teacher, each with a monitor: python examples/attach/byol.py."""

import copy

import lightning as L
import torch
from lightly.loss import NegativeCosineSimilarity
from lightly.models.modules import BYOLPredictionHead, BYOLProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe, RunReport
from lightning_ssl_geometry.loggers import ResumableCSVLogger


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 32))
        self.projection_head = BYOLProjectionHead(32, 64, 16)
        self.prediction_head = BYOLPredictionHead(16, 64, 16)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)
        self.criterion = NegativeCosineSimilarity()

    def forward(self, x):
        return self.prediction_head(self.projection_head(self.backbone(x)))

    def forward_momentum(self, x):
        return self.projection_head_momentum(self.backbone_momentum(x)).detach()

    def training_step(self, batch, batch_idx):
        update_momentum(self.backbone, self.backbone_momentum, m=0.99)
        update_momentum(self.projection_head, self.projection_head_momentum, m=0.99)
        x0, x1, _ = batch
        p0, z0, p1, z1 = self(x0), self.forward_momentum(x0), self(x1), self.forward_momentum(x1)
        return (self.criterion(p0, z1) + self.criterion(p1, z0)) / 2

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:1200] for array in load_digits(return_X_y=True))
DATA = TensorDataset(*(DIGITS.float() / 16 + 0.1 * torch.randn(2, 1200, 64)), LABEL)
LOADER = DataLoader(DATA, batch_size=120, shuffle=True, drop_last=True)
VALIDATION = DataLoader(DATA, batch_size=120)

# "encoder" and "projector" say how the stage "probe" passes views through the teacher, which `forward` leaves out.
STUDENT = {"h": "backbone", "z": "projection_head", "projector": "projection_head"}
TEACHER = {"h": "backbone_momentum", "z": "projection_head_momentum"}
TEACHER |= {"encoder": "backbone_momentum", "projector": "projection_head_momentum"}
PLACES = {"views": [0, 1], "label": 2}
MONITORS = [
    GeometryMonitor(name=name, taps=taps, batch_keys=PLACES, stages=["train", "probe"])
    for name, taps in {"student": STUDENT, "teacher": TEACHER}.items()
]
CALLBACKS = [*MONITORS, *(probe(num_classes=10, taps=STUDENT, batch_keys=PLACES) for probe in (LinearProbe, KNNProbe))]

if __name__ == "__main__":
    logger = ResumableCSVLogger("runs", name="byol")
    L.Trainer(max_epochs=5, logger=logger, callbacks=[*CALLBACKS, RunReport()]).fit(Host(), LOADER, VALIDATION)
