"""DINO with lightly's head and loss: the student sees six crops, the teacher two: python examples/attach/dino.py."""

import copy

import lightning as L
import torch
from lightly.loss import DINOLoss
from lightly.models.modules import DINOProjectionHead
from lightly.models.utils import deactivate_requires_grad, update_momentum
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.transforms.v2 import RandomResizedCrop

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe, RunReport
from lightning_ssl_geometry.loggers import ResumableCSVLogger


def network():
    first, second = nn.Conv2d(1, 32, 3, padding=1), nn.Conv2d(32, 64, 3, padding=1, stride=2)
    norms = nn.GroupNorm(4, 32), nn.GroupNorm(4, 64)
    pool = nn.AdaptiveAvgPool2d(1), nn.Flatten()  # crops of any size
    return nn.Sequential(first, norms[0], nn.ReLU(), second, norms[1], nn.ReLU(), *pool)


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.student_backbone = network()
        self.student_head = DINOProjectionHead(64, 64, 16, 128, freeze_last_layer=1)
        self.teacher_backbone = copy.deepcopy(self.student_backbone)
        self.teacher_head = DINOProjectionHead(64, 64, 16, 128)
        self.teacher_head.load_state_dict(self.student_head.state_dict())
        deactivate_requires_grad(self.teacher_backbone)
        deactivate_requires_grad(self.teacher_head)
        self.criterion = DINOLoss(output_dim=128, warmup_teacher_temp_epochs=2)

    def forward(self, x):
        return self.student_head(self.student_backbone(x))

    def training_step(self, batch, batch_idx):
        update_momentum(self.student_backbone, self.teacher_backbone, m=0.99)
        update_momentum(self.student_head, self.teacher_head, m=0.99)
        crops = batch[0]
        with torch.no_grad():
            teacher = [self.teacher_head(self.teacher_backbone(crop)) for crop in crops[:2]]
        return self.criterion(teacher, [self(crop) for crop in crops], epoch=self.current_epoch)

    def on_after_backward(self):
        self.student_head.cancel_last_layer_gradients(current_epoch=self.current_epoch)

    def configure_optimizers(self):
        return torch.optim.AdamW(self.parameters(), lr=1e-3)


class Crops(Dataset):
    """Two large crops of each image, and four small ones."""

    IMAGES, LABELS = (torch.tensor(array)[:480] for array in load_digits(return_X_y=True))
    LARGE, SMALL = RandomResizedCrop(16, (0.5, 1.0), antialias=True), RandomResizedCrop(8, (0.2, 0.5), antialias=True)

    def __len__(self):
        return len(self.IMAGES)

    def __getitem__(self, place):
        image = self.IMAGES[place].float().view(1, 8, 8) / 16
        return [*(self.LARGE(image) for _ in range(2)), *(self.SMALL(image) for _ in range(4))], self.LABELS[place]


LOADER = DataLoader(Crops(), batch_size=60, shuffle=True, drop_last=True)
VALIDATION = DataLoader(Crops(), batch_size=60)

# The views of the student are six, those of the teacher two. Diagnostics of pairs compare the first two, which are the
# large crops. Ranks and spectra of the student are those of all crops.
STUDENT = {"h": "student_backbone", "z": "student_head", "projector": "student_head"}
TEACHER = {"h": "teacher_backbone", "z": "teacher_head", "encoder": "teacher_backbone", "projector": "teacher_head"}
ALL, LARGE = {"views": 0, "label": 1}, {"views": ["0.0", "0.1"], "label": 1}
MONITORS = [
    GeometryMonitor(name="student", taps=STUDENT, batch_keys=ALL, stages=["train", "probe"]),
    GeometryMonitor(name="teacher", taps=TEACHER, batch_keys=LARGE, stages=["train", "probe"]),
]
PROBES = [probe(num_classes=10, taps=TEACHER, batch_keys=LARGE) for probe in (LinearProbe, KNNProbe)]
CALLBACKS = [*MONITORS, *PROBES]

if __name__ == "__main__":
    logger = ResumableCSVLogger("runs", name="dino")
    L.Trainer(max_epochs=3, logger=logger, callbacks=[*CALLBACKS, RunReport()]).fit(Host(), LOADER, VALIDATION)
