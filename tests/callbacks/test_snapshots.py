"""EmbeddingSnapshots: the right iterations, the whole set in order, ours and others', and nothing disturbed."""

import lightning as L
import numpy as np
import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots
from lightning_ssl_geometry.data import ClusterDataModule
from lightning_ssl_geometry.methods import ContrastiveFlowModule


def data():
    return ClusterDataModule(points_per_cluster=3, passes=4)


def trainer(tmp_path, callbacks, **arguments):
    return quiet(tmp_path, callbacks=callbacks, **{"max_steps": 10, "max_epochs": -1} | arguments)


def fit(tmp_path, snapshots, ckpt_path=None, **arguments):
    torch.manual_seed(0)
    model = ContrastiveFlowModule(12, 2, nn.Linear(2, 2))
    found = trainer(tmp_path, [snapshots], **arguments)
    found.fit(model, datamodule=data(), ckpt_path=ckpt_path)
    return model, found


def read(tmp_path):
    (path,) = tmp_path.rglob("embeddings.npz")
    with np.load(path) as file:
        return dict(file)


def test_the_embeddings_at_the_chosen_iterations(tmp_path):
    snapshots = EmbeddingSnapshots([7, 0, 10])
    model, _ = fit(tmp_path, snapshots)
    kept = read(tmp_path)
    assert kept["iteration"].tolist() == [0, 7, 10]
    assert kept["z"].shape == (3, 12, 2)
    assert kept["index"].tolist() == list(range(12))
    assert kept["label"].tolist() == data().labels.tolist()
    torch.testing.assert_close(torch.from_numpy(kept["z"][0]), model.cloud)
    with torch.no_grad():
        now = model.projector(model.place(data().points, torch.arange(12)))
    torch.testing.assert_close(torch.from_numpy(kept["z"][2]), now)


def test_training_is_the_same_without(tmp_path):
    with_snapshots, _ = fit(tmp_path / "with", EmbeddingSnapshots(range(11)))
    torch.manual_seed(0)
    without = ContrastiveFlowModule(12, 2, nn.Linear(2, 2))
    trainer(tmp_path / "without", []).fit(without, datamodule=data())
    assert torch.equal(with_snapshots.backbone.weight, without.backbone.weight)


def test_a_resumed_run_has_them_all(tmp_path):
    fit(tmp_path / "whole", EmbeddingSnapshots([0, 3, 9]))
    _, first = fit(tmp_path / "first", EmbeddingSnapshots([0, 3]), max_steps=6)
    first.save_checkpoint(tmp_path / "six.ckpt")
    (tmp_path / "rest").mkdir()
    fit(tmp_path / "rest", EmbeddingSnapshots([0, 3, 9]), ckpt_path=tmp_path / "six.ckpt")
    whole, rest = read(tmp_path / "whole"), read(tmp_path / "rest")
    assert rest["iteration"].tolist() == [0, 3, 9]
    np.testing.assert_allclose(rest["z"], whole["z"], atol=1e-6)


def test_a_second_fit_begins_anew(tmp_path):
    snapshots = EmbeddingSnapshots([0, 2])
    fit(tmp_path / "one", snapshots, max_steps=2)
    before = snapshots.kept[0]["z"]
    torch.manual_seed(1)
    model = ContrastiveFlowModule(12, 2, nn.Linear(2, 2), seed=1)
    trainer(tmp_path / "two", [snapshots], max_steps=2).fit(model, datamodule=data())
    assert not torch.equal(snapshots.kept[0]["z"], before)


class Foreign(L.LightningModule):
    """A host with its own names and plain batches."""

    def __init__(self):
        super().__init__()
        self.body, self.head = nn.Linear(4, 3), nn.Linear(3, 2)

    def forward(self, x):
        return self.head(self.body(x))

    def training_step(self, batch, batch_idx):
        return (self(batch[0][0]) - self(batch[0][1])).square().mean()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def test_a_foreign_host(tmp_path):
    torch.manual_seed(0)
    samples = [((torch.randn(4), torch.randn(4)), row % 3) for row in range(10)]
    loader = torch.utils.data.DataLoader(samples, batch_size=4)
    snapshots = EmbeddingSnapshots([0, 2], taps={"z": "head"}, batch_keys={"views": 0, "label": 1})
    model = Foreign()
    with torch.no_grad():
        before = model(torch.stack([views[0] for views, _ in samples]))
    trainer(tmp_path, [snapshots], max_steps=2).fit(model, loader, loader)
    torch.testing.assert_close(snapshots.kept[0]["z"], before)
    assert snapshots.kept[2]["label"].tolist() == [row % 3 for row in range(10)]


def test_iterations_that_are_not_reached_are_named(tmp_path):
    with pytest.warns(UserWarning, match=r"Training ended after 2 iterations: no embeddings are kept of \[5, 9\]"):
        fit(tmp_path, EmbeddingSnapshots([0, 5, 9]), max_steps=2)


@pytest.mark.parametrize("iterations", [[], [-1], [2, 2]])
def test_bad_iterations(iterations):
    with pytest.raises(ValueError, match="Expected `iterations` >= 0, each once and at least one, but got"):
        EmbeddingSnapshots(iterations)


@pytest.mark.filterwarnings("ignore:You defined a `validation_step`")
def test_bad_hosts(tmp_path):
    model = ContrastiveFlowModule(12)
    with pytest.raises(ValueError, match="Expected a validation set for EmbeddingSnapshots, but the Trainer has none"):
        trainer(tmp_path, [EmbeddingSnapshots([0])]).fit(model, train_dataloaders=data().train_dataloader())
    samples = [((torch.randn(4), torch.randn(4)), 0)]
    loader = torch.utils.data.DataLoader(samples)
    host = EmbeddingSnapshots([0], taps={"h": "body"}, batch_keys={"views": 0})
    with pytest.raises(ValueError, match="Expected a module that returns `z` for EmbeddingSnapshots, but it does not"):
        trainer(tmp_path, [host]).fit(Foreign(), loader, loader)
