"""SimCLR as lightly's documentation builds it, observed: python examples/attach/lightly_simclr.py."""

# pip install lightly. `logger=CSVLogger("runs")` and a `RunReport()` among the callbacks leave the page of the run.
# The second loader is the validation set, on which the probes are scored; here it is that of training.

import lightning as L
import torch
from lightly.data import LightlyDataset
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from lightly.transforms import SimCLRTransform
from torchvision.datasets import FakeData
from torchvision.models import resnet18

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.backbone = torch.nn.Sequential(*list(resnet18().children())[:-1])
        self.projection_head = SimCLRProjectionHead(512, 128, 64)
        self.criterion = NTXentLoss()

    def training_step(self, batch, batch_idx):
        z0, z1 = (self.projection_head(self.backbone(x).flatten(1)) for x in batch[0])
        return self.criterion(z0, z1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


DATA = FakeData(32, (3, 32, 32))  # noise; of a folder of images: LightlyDataset("path/to/images", transform)
VIEWS = LightlyDataset.from_torch_dataset(DATA, SimCLRTransform(input_size=32))
LOADER = torch.utils.data.DataLoader(VIEWS, batch_size=16, drop_last=True)

TAPS = {"h": "backbone", "z": "projection_head", "encoder": "backbone", "projector": "projection_head"}
SEEN = {"taps": TAPS, "batch_keys": {"views": 0, "label": 1}}  # of batches ([x0, x1], label, filename)
MONITOR = GeometryMonitor(**SEEN, stages=["train", "probe"])
CALLBACKS = [MONITOR, LinearProbe(10, **SEEN), KNNProbe(num_classes=10, **SEEN)]

if __name__ == "__main__":
    L.Trainer(max_epochs=1, callbacks=CALLBACKS).fit(Host(), LOADER, LOADER)
