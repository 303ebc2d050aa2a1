"""A training by hand that a GeometryLoop observes: its model, its diagnostics and its tables."""

import csv

import torch
from hosts import pairs
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader

from lightning_ssl_geometry.diagnostics import EffectiveRank, LabelAgreement, Uniformity
from lightning_ssl_geometry.measuring import GeometryLoop

TAPS = {"h": "trunk", "z": "head", "projector": "head"}
SETTINGS = {"taps": TAPS, "batch_keys": {"label": 2, "views": [0, 1]}, "every_n_steps": 1}


class Model(nn.Module):
    """PlainHost without Lightning."""

    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Linear(6, 10), nn.ReLU(), nn.Dropout(0.1))
        self.head = nn.Linear(10, 4, bias=False)

    def forward(self, x):
        return self.head(self.trunk(x))

    def loss(self, x1, x2, _):
        z1, z2 = self(x1), self(x2)
        return cross_entropy(normalize(z1) @ normalize(z2).T, torch.arange(len(x1)))


def diagnostics():
    return {"rank": EffectiveRank(), "uniformity": Uniformity(), "agreement": LabelAgreement()}


def loop(folder, model=None, **settings):
    return GeometryLoop(model or Model(), folder, **({"table": False} | SETTINGS | settings))


def train(model, geometry=None, epochs=2, held_out=None, first=0):
    """A training by hand; `geometry` observes it. Returns the results of the epochs."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    found = []
    for epoch in range(first, epochs):
        for batch in DataLoader(pairs(), 8):
            if geometry is None:
                loss = model.loss(*batch)
            else:
                with geometry.step(batch):
                    loss = model.loss(*batch)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        if geometry is not None:
            geometry.look(held_out or [])
            found.append(geometry.read_out({"train/loss": loss.item()}, epoch=epoch))
    return found


def rows(path):
    with path.open() as file:
        return list(csv.DictReader(file))


def seeded():
    torch.manual_seed(0)
    return Model()
