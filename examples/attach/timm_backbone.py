"""A timm backbone with a projector, observed: python examples/attach/timm_backbone.py."""

import lightning as L
import timm
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self, name="resnet10t"):
        super().__init__()
        self.backbone = timm.create_model(name, pretrained=False, num_classes=0)
        self.projector = nn.Sequential(nn.Linear(self.backbone.num_features, 64), nn.ReLU(), nn.Linear(64, 32))

    def training_step(self, batch, batch_idx):
        z1, z2 = (normalize(self.projector(self.backbone(x))) for x in batch[:2])
        return cross_entropy(z1 @ z2.T / 0.5, torch.arange(len(z1), device=z1.device))

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.03)


IMAGE = torch.rand(48, 3, 32, 32)
X1, X2 = IMAGE + 0.1 * torch.randn(2, *IMAGE.shape)
LOADER = DataLoader(TensorDataset(X1, X2, torch.arange(48) % 10), batch_size=16)

TAPS = {"h": "backbone", "z": "projector", "encoder": "backbone", "projector": "projector"}
SEEN = {"taps": TAPS, "batch_keys": {"views": [0, 1], "label": 2}}
MONITOR = GeometryMonitor(**SEEN, stages=["train", "val", "probe"])
CALLBACKS = [MONITOR, LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    L.Trainer(max_epochs=1, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
