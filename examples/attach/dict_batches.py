"""A module of one's own on nested dicts, observed: python examples/attach/dict_batches.py."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.model = nn.ModuleDict({"trunk": nn.Sequential(nn.Linear(64, 32), nn.ReLU()), "head": nn.Linear(32, 16)})

    def training_step(self, batch, batch_idx):
        z1, z2 = (normalize(self.model["head"](self.model["trunk"](view["image"]))) for view in batch["views"])
        return cross_entropy(z1 @ z2.T / 0.5, torch.arange(len(z1), device=z1.device))

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:600] for array in load_digits(return_X_y=True))
VIEWS = DIGITS.float() / 16 + 0.1 * torch.randn(2, 600, 64)
SAMPLES = [{"views": [{"image": x} for x in VIEWS[:, i]], "meta": {"label": LABEL[i]}} for i in range(600)]
LOADER = torch.utils.data.DataLoader(SAMPLES, batch_size=60)

TAPS = {"h": "model.trunk", "z": "model.head", "encoder": "model.trunk", "projector": "model.head"}
PLACES = {"views": ["views.0.image", "views.1.image"], "label": "meta.label"}
SEEN = {"taps": TAPS, "batch_keys": PLACES}
MONITOR = GeometryMonitor(**SEEN, stages=["train", "val", "probe"])
CALLBACKS = [MONITOR, LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    L.Trainer(max_epochs=2, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
