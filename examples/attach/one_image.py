"""A host whose batches have one normalised image; the monitor makes two views: python examples/attach/one_image.py."""

import lightning as L
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry import callbacks
from lightning_ssl_geometry.views import NormalizedViews, SimCLRViews


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Flatten(), nn.Linear(64, 32), nn.BatchNorm1d(32), nn.ReLU(), nn.Dropout(0.1))
        self.classifier = nn.Linear(32, 10)

    def training_step(self, batch, batch_idx):
        return cross_entropy(self.classifier(self.features(batch[0])), batch[1])

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.Adam(self.parameters(), lr=1e-3)


DIGITS, LABEL = (torch.tensor(array)[:600] for array in load_digits(return_X_y=True))
LOADER = DataLoader(TensorDataset((DIGITS.float().view(-1, 1, 8, 8) / 16 - 0.3) / 0.4, LABEL), batch_size=60)

TAPS = {"h": "features", "z": "classifier", "encoder": "features", "projector": "classifier"}
AUGMENT = NormalizedViews([0.3], [0.4], SimCLRViews(strength="moderate"))
HOST = callbacks.Host(TAPS, batch_keys={"image": 0, "label": 1}, augment=AUGMENT)
MONITOR = callbacks.GeometryMonitor(host=HOST, stages=["train", "val", "probe"])
CALLBACKS = [MONITOR, callbacks.LinearProbe(10, host=HOST), callbacks.KNNProbe(num_classes=10, host=HOST)]

if __name__ == "__main__":
    L.Trainer(max_epochs=2, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
