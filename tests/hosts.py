"""Models that do not know this package, a silent Trainer, and the laws of observing such a model."""

import random
import runpy
from pathlib import Path

import lightning as L
import numpy as np
import torch
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry.loggers import ResumableCSVLogger


class PlainHost(L.LightningModule):
    """SimCLR as a user may write it: batches are (x1, x2, label), and the backbone is called once per view."""

    def __init__(self) -> None:
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(10, 4, bias=False)

    def forward(self, x):
        return self.head(self.trunk(x))

    def embed(self, x1, x2):
        return self(x1), self(x2)

    def training_step(self, batch, batch_idx):
        x1, x2, _ = batch
        z1, z2 = self.embed(x1, x2)
        return cross_entropy(normalize(z1) @ normalize(z2).T, torch.arange(len(x1)))

    def validation_step(self, batch, batch_idx):
        x1, x2, _ = batch
        z1, z2 = self.embed(x1, x2)
        self.log("their_loss", (z1 - z2).square().mean())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


class ManualSteps(L.LightningModule):
    """In front of a host: it steps its optimizer itself."""

    def __init__(self) -> None:
        super().__init__()
        self.automatic_optimization = False

    def training_step(self, batch, batch_idx):
        loss = super().training_step(batch, batch_idx)
        optimizer = self.optimizers()
        optimizer.zero_grad()
        self.manual_backward(loss)
        optimizer.step()


class HalvesHost(PlainHost):
    def embed(self, x1, x2):
        return self(torch.cat([x1, x2])).chunk(2)


class InterleavedHost(PlainHost):
    def embed(self, x1, x2):
        return self(torch.stack([x1, x2], 1).flatten(0, 1)).unflatten(0, (-1, 2)).unbind(1)


def pairs(n=40, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 6, generator=generator)
    x[:, 0] += 2 * x[:, 0].sign()  # two clusters: the label
    noise = 0.1 * torch.randn(2, n, 6, generator=generator)
    return TensorDataset(x + noise[0], x + noise[1], (x[:, 0] > 0).long())


def loader(n=40, batch_size=8, seed=0):
    return DataLoader(pairs(n, seed), batch_size=batch_size)


def quiet(folder, **arguments):
    """A Trainer on the CPU without bars and checkpoints, unless the arguments say otherwise."""
    defaults = {
        "default_root_dir": folder,
        "accelerator": "cpu",
        "devices": 1,
        "max_epochs": 1,
        "logger": ResumableCSVLogger(folder, "", ""),
        "enable_checkpointing": False,
        "enable_progress_bar": False,
        "enable_model_summary": False,
        "log_every_n_steps": 1,
        "num_sanity_val_steps": 0,
    }
    return L.Trainer(**(defaults | arguments))


ATTACH = Path(__file__).parents[1] / "examples" / "attach"
STANDARD = ("effective_rank_h", "effective_rank_z", "projector_rank", "augmentation_rank", "alignment", "uniformity")
STANDARD += ("gaussian_potential", "bound_upper")


class Recorded:
    """A loader that keeps the batches of its latest pass."""

    def __init__(self, loader):
        self.loader = loader
        self.batches = []

    def __len__(self):
        return len(self.loader)

    def __iter__(self):
        self.batches = []
        for batch in self.loader:
            self.batches.append(batch)
            yield batch


def attach(folder, name, watched=True, host=None, before=None, sharded=False, **arguments):
    """Fit the host of examples/attach/{name}.py from one seed; return the example's names, `trainer`, `host`, `seen`.

    `host` makes the host from the example's class `Host`; `before` changes the names first. With `sharded`, Lightning
    gives each process its part of the loader, and the batches are not recorded.
    """
    torch.manual_seed(0)
    scene = runpy.run_path(str(ATTACH / f"{name}.py"))
    for seed in (random.seed, np.random.seed, torch.manual_seed):  # transforms draw from any of them
        seed(1)
    scene["host"] = host(scene["Host"]) if host else scene["Host"]()
    scene["CALLBACKS"][0].every_n_steps = 1
    if before:
        before(scene)
    scene["seen"] = scene["LOADER"] if sharded else Recorded(scene["LOADER"])
    scene["trainer"] = quiet(folder, callbacks=scene["CALLBACKS"] if watched else [], **arguments)
    scene["trainer"].fit(scene["host"], scene["LOADER"], scene["seen"])
    return scene


def assert_undisturbed(folder, name, **arguments):
    """Fit with and without callbacks; both end with the same weights and checkpoint keys. Return the first fit."""
    watched = attach(folder / "watched", name, **arguments)
    bare = attach(folder / "bare", name, watched=False, **arguments)
    found, expected = watched["host"].state_dict(), bare["host"].state_dict()
    assert found.keys() == expected.keys()
    for key, value in expected.items():
        assert torch.equal(found[key], value), key
    keys = []
    for scene in (watched, bare):
        scene["trainer"].save_checkpoint(folder / "x.ckpt")
        keys.append(list(torch.load(folder / "x.ckpt", weights_only=True)["state_dict"]))
    assert keys[0] == keys[1]
    return watched


def assert_logged(trainer, stages, probes=True):
    """Exactly the standard diagnostics of these stages and the probes' accuracies are logged, all finite."""
    metrics = trainer.callback_metrics
    for stage in stages:
        for name in STANDARD:
            found = [value for key, value in metrics.items() if key.startswith(f"{stage}/{name}")]
            assert found, f"{stage}/{name}"
            assert all(torch.isfinite(value) for value in found), f"{stage}/{name}"
    assert {name.split("/")[0] for name in metrics if "effective_rank" in name} == set(stages)
    if probes:
        for name in ("linear_probe", "knn_probe"):
            assert 0 <= metrics[f"val/{name}_accuracy"] <= 1


def rankme(rows):
    """The effective rank of rows (N, D), by numpy: D singular values, of which those behind N are 0."""
    sigma = np.zeros(rows.shape[1])
    sigma[: len(rows)] = np.linalg.svd(rows.double().numpy(), compute_uv=False)
    p = sigma / sigma.sum() + 1e-7
    return float(np.exp(-(p * np.log(p)).sum()))
