"""A diagnostic that draws random numbers does not move the random states of the training."""

import random

import numpy as np
import pytest
import torch
from hosts import PlainHost, loader, pairs, quiet
from torchmetrics import Metric

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.measuring import GeometryLoop

SETTINGS = {"taps": {"h": "trunk", "z": "head"}, "batch_keys": {"label": 2, "views": [0, 1]}, "every_n_steps": 1}


def draws():
    """One number of each global random state."""
    return random.random(), np.random.rand(), torch.rand(1).item()  # noqa: NPY002 (a user's Metric may do so)


class Drawing(Metric):
    """A Metric of a user that draws random numbers wherever it can."""

    full_state_update = False

    def __init__(self):
        super().__init__()
        self.add_state("total", torch.tensor(0.0), dist_reduce_fx="sum")

    def update(self, h):
        self.total += sum(draws()) + h.mean()

    def compute(self):
        return self.total + sum(draws())

    def reset(self):
        super().reset()
        draws()


class DrawingHost(PlainHost):
    """Its training uses all three random states."""

    def training_step(self, batch, batch_idx):
        return super().training_step(batch, batch_idx) * (1 + sum(draws()))


def seeded():
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(0)


def by_hand(folder, diagnostics):
    model = DrawingHost()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    geometry = GeometryLoop(model, folder, diagnostics, page=False, table=False, **SETTINGS) if diagnostics else None
    for _ in range(2):
        for number, batch in enumerate(loader()):
            if geometry:
                with geometry.step(batch):
                    loss = model.training_step(batch, number)
            else:
                loss = model.training_step(batch, number)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if geometry:
            geometry.look([pairs(seed=1)[:]])
            geometry.read_out()
    if geometry:
        geometry.close()
    return model


def by_a_trainer(folder, diagnostics):
    model = DrawingHost()
    stages = ["train", "val", "probe"]
    callbacks = [GeometryMonitor(diagnostics, stages=stages, **SETTINGS)] if diagnostics else []
    quiet(folder, max_epochs=2, callbacks=callbacks).fit(model, loader(), loader(seed=1))
    return model


@pytest.mark.parametrize("train", [by_hand, by_a_trainer])
def test_a_diagnostic_that_draws_random_numbers_changes_no_bit_of_the_training(tmp_path, train):
    found = []
    for name, diagnostics in [("bare", None), ("watched", {"drawing": Drawing()})]:
        seeded()
        model = train(tmp_path / name, diagnostics)
        found.append((model.state_dict(), draws()))
    (bare, after), (watched, after_watched) = found
    assert all(torch.equal(bare[name], watched[name]) for name in bare)
    assert after == after_watched
