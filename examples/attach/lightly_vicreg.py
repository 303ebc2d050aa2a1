"""VICReg as lightly's documentation builds it, observed: python examples/attach/lightly_vicreg.py."""

import lightning as L
import torch
from lightly.data import LightlyDataset
from lightly.loss import VICRegLoss
from lightly.models.modules.heads import VICRegProjectionHead
from lightly.transforms import VICRegTransform
from torchvision.datasets import FakeData
from torchvision.models import resnet18

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = resnet18()
        self.backbone.fc = torch.nn.Identity()
        self.projection_head = VICRegProjectionHead(512, 128, 64, num_layers=2)
        self.criterion = VICRegLoss()

    def training_step(self, batch, batch_idx):
        return self.criterion(*(self.projection_head(self.backbone(x)) for x in batch[0]))

    validation_step = training_step

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


DATA = FakeData(32, (3, 32, 32))  # noise; of a folder of images: LightlyDataset("path/to/images", transform)
VIEWS = LightlyDataset.from_torch_dataset(DATA, VICRegTransform(input_size=32))
LOADER = torch.utils.data.DataLoader(VIEWS, batch_size=16, drop_last=True)

TAPS = {"h": "backbone", "z": "projection_head", "projector": "projection_head"}
SEEN = {"taps": TAPS, "batch_keys": {"views": 0, "label": 1}}  # of batches ([x0, x1], label, filename)
CALLBACKS = [GeometryMonitor(**SEEN), LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    L.Trainer(max_epochs=1, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
