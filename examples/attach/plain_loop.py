"""SimCLR in a training loop without Lightning, observed: python examples/attach/plain_loop.py."""

# The loop is the one of many repositories. Only the lines with `geometry` are new.

import sys

import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.data import DataLoader, TensorDataset

from lightning_ssl_geometry import GeometryLoop


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(nn.Flatten(), nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64), nn.ReLU())
        self.projection_head = nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 32))

    def forward(self, x):
        return self.projection_head(self.backbone(x))


def loss_of(model, views, temperature=0.5):
    z0, z1 = (normalize(model(view), dim=1) for view in views)
    return cross_entropy(z0 @ z1.T / temperature, torch.arange(len(z0)))


def noisy(x):
    return x + 0.2 * torch.randn_like(x), x + 0.2 * torch.randn_like(x)


def main(folder="runs/plain_loop", epochs=5):
    digits = load_digits()
    data = TensorDataset(torch.tensor(digits.images, dtype=torch.float32) / 16, torch.tensor(digits.target))
    train, val = torch.utils.data.random_split(data, [1500, 297], torch.Generator().manual_seed(0))
    loader, held_out = DataLoader(train, 250, shuffle=True), DataLoader(val, 99)
    torch.manual_seed(0)
    model = Model()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)

    taps = {"h": "backbone", "z": "projection_head", "projector": "projection_head"}
    with GeometryLoop(model, folder, taps=taps, batch_keys={"views": 0, "label": 1}) as geometry:
        for epoch in range(epochs):
            for image, label in loader:
                batch = noisy(image), label
                with geometry.step(batch):
                    loss = loss_of(model, batch[0])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            geometry.look((noisy(image), label) for image, label in held_out)
            found = geometry.read_out({"train/loss": loss.item()})
            print(f"epoch {epoch}: loss {loss.item():.3f}, effective rank of h {found['val/effective_rank_h']:.1f}")
    return geometry


if __name__ == "__main__":
    main(*sys.argv[1:2])  # a folder
