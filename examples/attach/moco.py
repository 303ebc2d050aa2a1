"""MoCo with lightly's head and loss: one view per network, observed as a pair: python examples/attach/moco.py."""

import copy

import lightning as L
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import MoCoProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe, RunReport
from lightning_ssl_geometry.loggers import ResumableCSVLogger


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))
        self.projection_head = MoCoProjectionHead(32, 32, 16)
        self.backbone_momentum = copy.deepcopy(self.backbone)
        self.projection_head_momentum = copy.deepcopy(self.projection_head)
        deactivate_requires_grad(self.backbone_momentum)
        deactivate_requires_grad(self.projection_head_momentum)
        self.criterion = NTXentLoss(temperature=0.2, memory_bank_size=(480, 16))

    def training_step(self, batch, batch_idx):
        update_momentum(self.backbone, self.backbone_momentum, m=0.99)
        update_momentum(self.projection_head, self.projection_head_momentum, m=0.99)
        x_query, x_key, _ = batch
        query = self.projection_head(self.backbone(x_query))
        key = self.projection_head_momentum(self.backbone_momentum(x_key)).detach()
        return self.criterion(query, key)

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:1200] for array in load_digits(return_X_y=True))
DATA = TensorDataset(*(DIGITS.float() / 16 + 0.1 * torch.randn(2, 1200, 64)), LABEL)
LOADER = DataLoader(DATA, batch_size=120, shuffle=True, drop_last=True)
VALIDATION = DataLoader(DATA, batch_size=120)

# The query passes through the student and the key through the teacher: view 1 is the student's, view 2 the teacher's.
TAPS = {
    "h": ["backbone", "backbone_momentum"],
    "z": ["projection_head", "projection_head_momentum"],
    "projector": "projection_head",
}
PLACES = {"views": [0, 1], "label": 2}
STUDENT = {"taps": {"h": "backbone"}, "batch_keys": {"image": 0, "label": 2}}
MONITOR = GeometryMonitor(taps=TAPS, batch_keys=PLACES, stages=["train", "probe"])
CALLBACKS = [MONITOR, *(probe(num_classes=10, **STUDENT) for probe in (LinearProbe, KNNProbe))]

if __name__ == "__main__":
    logger = ResumableCSVLogger("runs", name="moco")
    L.Trainer(max_epochs=5, logger=logger, callbacks=[*CALLBACKS, RunReport()]).fit(Host(), LOADER, VALIDATION)
