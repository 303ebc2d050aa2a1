"""SimCLR as stable-pretraining builds it, observed: python examples/attach/stable_pretraining_module.py."""

import lightning as L
import stable_pretraining as spt
import torch
from stable_pretraining.data import FromTorchDataset, transforms
from stable_pretraining.forward import simclr
from torchvision.datasets import FakeData

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.views import NormalizedViews


def build():
    backbone = spt.backbone.from_torchvision("resnet18")
    backbone.fc = torch.nn.Identity()
    return spt.Module(
        forward=simclr,
        backbone=backbone,
        projector=torch.nn.Linear(512, 32),
        simclr_loss=spt.losses.NTXEntLoss(temperature=0.5),
        optim={"optimizer": {"type": "SGD", "lr": 0.01}},
    )


NORMAL = {"mean": [0.5, 0.5, 0.5], "std": [0.25, 0.25, 0.25]}
PLAIN = transforms.Compose(transforms.RGB(), transforms.ToImage(**NORMAL))
CROPPED = transforms.Compose(transforms.RGB(), transforms.RandomResizedCrop((32, 32)), transforms.ToImage(**NORMAL))
EACH = transforms.MultiViewTransform([CROPPED, CROPPED]), PLAIN  # two views to train, one image to validate
DATA = [FromTorchDataset(FakeData(24, (3, 32, 32)), names=["image", "label"], transform=each) for each in EACH]
LOADER, VALIDATION = (torch.utils.data.DataLoader(data, batch_size=12) for data in DATA)

TAPS = {"h": "backbone", "z": "projector", "encoder": "backbone", "projector": "projector"}
LABELLED = {"taps": {"h": "backbone"}, "batch_keys": {"label": "views.0.label", "val/label": "label"}}
PROBE = GeometryMonitor(taps=TAPS, stages=["probe"], augment=NormalizedViews(**NORMAL))  # of the batch's "image"
CALLBACKS = [GeometryMonitor(taps=TAPS, stages=["train"]), PROBE, LinearProbe(10, **LABELLED)]
CALLBACKS.append(KNNProbe(num_classes=10, **LABELLED))

if __name__ == "__main__":
    L.Trainer(max_epochs=1, callbacks=CALLBACKS).fit(build(), LOADER, VALIDATION)
