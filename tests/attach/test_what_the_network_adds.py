"""The neural kernel and the dynamics of a user's model on a probe set; its training stays the same."""

import lightning as L
import pytest
import torch
from hosts import quiet
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.diagnostics import Clusteredness, NeuralKernel, Stationarity, StepInvariance

TAPS = {"h": "body", "z": "head", "encoder": "body", "projector": "head"}
KEYS = {"views": "pair", "image": "clean", "label": "kind"}


class Host(L.LightningModule):
    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.body = nn.Sequential(nn.Linear(4, 8), nn.ReLU())
        self.head = nn.Linear(8, 3)

    def training_step(self, batch, batch_idx):
        first, second = (self.head(self.body(view)) for view in batch["pair"])
        return (first - second).square().mean()

    def validation_step(self, batch, batch_idx):
        self.log("val/own", self.training_step(batch, batch_idx))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def loader():
    generator = torch.Generator().manual_seed(1)
    clean = torch.randn(24, 4, generator=generator)
    pairs = clean + 0.1 * torch.randn(2, 24, 4, generator=generator)
    rows = [{"pair": list(pairs[:, i]), "clean": clean[i], "kind": i % 3} for i in range(24)]
    return DataLoader(rows, batch_size=8)


def monitor():
    diagnostics = {
        "kernel_h": NeuralKernel(outputs=None),
        "kernel_z": NeuralKernel("z"),
        "clusters": Clusteredness(),
        "stationarity": Stationarity(),
        "step": StepInvariance(),
    }
    return GeometryMonitor(diagnostics, stages=["probe"], taps=TAPS, batch_keys=KEYS)


def fitted(folder, *callbacks):
    host = Host()
    trainer = quiet(folder, max_epochs=2, callbacks=list(callbacks))
    trainer.fit(host, loader(), loader())
    return host, trainer


def test_all_are_logged_and_training_is_the_same(tmp_path):
    watch = monitor()
    host, trainer = fitted(tmp_path, watch)
    for name in ("kernel_h_within", "kernel_z_alignment", "kernel_h_drift", "clusters_nmi", "stationarity_tangential"):
        assert trainer.callback_metrics[f"probe/{name}"].isfinite()
    assert 0 < trainer.callback_metrics["probe/step_distance"] < 0.2  # views are near their samples
    assert trainer.callback_metrics["probe/step_step"] > 0
    bare, _ = fitted(tmp_path)
    assert all(torch.equal(p, q) for p, q in zip(host.parameters(), bare.parameters(), strict=True))


def test_another_host_under_the_same_monitor_begins_anew(tmp_path):
    watch, drifts = monitor(), []
    for fit in ("first", "second"):
        _, trainer = fitted(tmp_path / fit, watch)
        drifts.append(trainer.callback_metrics["probe/kernel_h_drift"].item())
    assert drifts[0] == pytest.approx(drifts[1])
