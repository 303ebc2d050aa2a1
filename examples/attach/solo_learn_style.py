"""Both views in one call on 2N rows, as solo-learn does, observed: python examples/attach/solo_learn_style.py."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.projector = nn.Sequential(nn.Linear(32, 32), nn.ReLU(), nn.Linear(32, 16))

    def training_step(self, batch, batch_idx):
        _, views, _ = batch
        z1, z2 = normalize(self.projector(self.backbone(torch.cat(views)))).chunk(2)
        return cross_entropy(z1 @ z2.T / 0.5, torch.arange(len(z1), device=z1.device))

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:600] for array in load_digits(return_X_y=True))
VIEWS = DIGITS.float() / 16 + 0.1 * torch.randn(2, 600, 64)
SAMPLES = [(i, list(VIEWS[:, i]), LABEL[i]) for i in range(600)]
LOADER = torch.utils.data.DataLoader(SAMPLES, batch_size=60)

TAPS = {"h": "backbone", "z": "projector", "encoder": "backbone", "projector": "projector"}
SEEN = {"taps": TAPS, "view_layout": "halves", "batch_keys": {"index": 0, "views": 1, "label": 2}}
MONITOR = GeometryMonitor(**SEEN, stages=["train", "val", "probe"])
CALLBACKS = [MONITOR, LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    L.Trainer(max_epochs=2, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
