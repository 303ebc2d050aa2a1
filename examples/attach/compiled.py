"""A host that torch.compile wrapped, observed by the names without it: python examples/attach/compiled.py."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.encoder = nn.Sequential(nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU())
        self.head = nn.Linear(32, 16)

    def training_step(self, batch, batch_idx):
        z1, z2 = (normalize(self.head(self.encoder(x))) for x in batch[:2])
        return cross_entropy(z1 @ z2.T / 0.5, torch.arange(len(z1), device=z1.device))

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:600] for array in load_digits(return_X_y=True))
LOADER = DataLoader(TensorDataset(*(DIGITS.float() / 16 + 0.1 * torch.randn(2, 600, 64)), LABEL), batch_size=60)

TAPS = {"h": "encoder", "z": "head", "encoder": "encoder", "projector": "head"}
SEEN = {"taps": TAPS, "batch_keys": {"views": [0, 1], "label": 2}}
MONITOR = GeometryMonitor(**SEEN, stages=["train", "val", "probe"])
CALLBACKS = [MONITOR, LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    host = torch.compile(Host(), backend="aot_eager")  # without `backend`, a C++ compiler is needed on the CPU
    L.Trainer(max_epochs=2, callbacks=CALLBACKS).fit(host, LOADER, LOADER)
