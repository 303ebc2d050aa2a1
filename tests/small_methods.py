"""Each method with small networks and data, for the laws that all methods obey."""

__all__ = ["METHODS", "data"]

from functools import partial

import torch
from torch import nn

from lightning_ssl_geometry.data import DigitsDataModule
from lightning_ssl_geometry.losses import GradientSpectrumTemperature, InfoNCELoss
from lightning_ssl_geometry.methods import (
    AdaptiveTemperatureModule,
    BYOLModule,
    ContrastiveFlowModule,
    CRLTACModule,
    DirectCLRModule,
    HomomorphicBYOLModule,
    HSSLModule,
    SimCLRModule,
    SupervisedModule,
    VICRegModule,
)
from lightning_ssl_geometry.nn import EquivariantCNN, GroupPool, MLPProjector, ShallowCNN, SmallCNN
from lightning_ssl_geometry.views import CropFamily, SimCLRViews

SGD = partial(torch.optim.SGD, lr=0.1, momentum=0.9)


def networks(**settings):
    torch.manual_seed(0)
    return SmallCNN(1, 8, "group"), MLPProjector(64, 16, 8, norm="layer", **settings)


def simclr():
    return SimCLRModule(*networks(), optimizer=SGD, warmup_epochs=1)


def simclr_in_chunks():
    return SimCLRModule(*networks(), optimizer=SGD, warmup_epochs=1, chunk_size=16)


def hssl():
    torch.manual_seed(0)
    return HSSLModule(
        EquivariantCNN(width=8, group="scale", scales=(1.0, 1.5), norm="group"),
        group="scale",
        mode="hybrid",
        projector=MLPProjector(32, 16, 8, norm="layer"),
        classifier=nn.Sequential(GroupPool(), nn.Linear(32, 10)),
        optimizer=partial(SGD, lr=0.01),
        warmup_epochs=1,
    )


def supervised():
    torch.manual_seed(0)
    return SupervisedModule(SmallCNN(1, 8, "group"), nn.Linear(64, 10), optimizer=SGD)


def crl_tac():
    torch.manual_seed(0)
    return CRLTACModule(
        ShallowCNN(image_size=4, out_dim=16, width=8),
        nn.Linear(16, 8),
        CropFamily(image_size=8, size=4, stride=2),
        ShallowCNN(image_size=8, out_dim=9, width=8),
        draws=4,
        optimizer=SGD,
        policy_optimizer=SGD,
        warmup_epochs=1,
        grad_clip_pi=1.0,
    )


def adaptive_temperature():
    temperature = GradientSpectrumTemperature(8, momentum=0.5, min_ratio=1.2)
    loss = InfoNCELoss(temperature, form="RUSAK", normalize=False, similarity="distance")
    return AdaptiveTemperatureModule(*networks(), loss=loss, optimizer=SGD, warmup_epochs=1)


def direct_clr():
    torch.manual_seed(0)
    return DirectCLRModule(SmallCNN(1, 8, "group"), subvector_dim=24, optimizer=SGD, warmup_epochs=1)


def vicreg():
    return VICRegModule(*networks(depth=3), optimizer=partial(SGD, lr=0.001), warmup_epochs=1)


def byol():
    online, predictor = networks(), MLPProjector(8, 16, 8, norm="layer")  # drawn in this order
    return BYOLModule(*online, predictor, momentum=0.8, optimizer=partial(SGD, lr=0.001), warmup_epochs=1)


def homomorphic_byol():
    torch.manual_seed(0)
    backbone = EquivariantCNN(width=8, group="translation", norm="group")
    head, predictor = MLPProjector(32, 16, 8, norm="layer"), MLPProjector(8, 16, 8, norm="layer")
    of = {"mode": "a-ssl", "projector": head, "momentum": 0.8, "optimizer": partial(SGD, lr=0.001), "warmup_epochs": 1}
    return HomomorphicBYOLModule(backbone, predictor, **of)


def contrastive_flow():
    torch.manual_seed(0)
    network = nn.Sequential(SmallCNN(1, 8, "group"), nn.Linear(64, 8))
    optimizer = lambda groups: torch.optim.SGD(groups, lr=0.01)  # noqa: E731
    return ContrastiveFlowModule(1797, 8, network, radius=1.0, optimizer=optimizer)


METHODS = {
    "adaptive_temperature": adaptive_temperature,
    "byol": byol,
    "contrastive_flow": contrastive_flow,
    "crl_tac": crl_tac,
    "direct_clr": direct_clr,
    "simclr": simclr,
    "simclr_in_chunks": simclr_in_chunks,
    "hssl": hssl,
    "homomorphic_byol": homomorphic_byol,
    "supervised": supervised,
    "vicreg": vicreg,
}


def data(batch_size):
    # 279 training samples in 6 batches of 46 and 47, 31 for validation: neither divides by two processes.
    views = SimCLRViews(strength="moderate")
    return DigitsDataModule(batch_size=batch_size, subset=310, views=views, drop_last=False)
