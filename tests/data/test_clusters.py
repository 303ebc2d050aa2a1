"""ClusterDataModule: centres, clusters on the manifold, noise off it, and the order of steps."""

import lightning as L
import pytest
import torch
from torch import nn

from lightning_ssl_geometry.data import ClusterDataModule


def steps(data, split="train"):
    loader = data.train_dataloader() if split == "train" else data.unaugmented_dataloader(split)
    return [data.on_after_batch_transfer(batch, 0) for batch in loader]


def test_the_papers_collinear_centers():
    data = ClusterDataModule()
    assert data.centers.tolist() == [[-3.0, 0.0], [-1.0, 0.0], [1.0, 0.0], [3.0, 0.0]]
    assert data.labels.bincount().tolist() == [50] * 4
    assert data.num_classes == 4


def test_orthogonal_centers_keep_their_length():
    data = ClusterDataModule("orthogonal", 3, dim=7, manifold_dim=5, spacing=1.5)
    torch.testing.assert_close(data.centers @ data.centers.T, 1.5**2 * torch.eye(3))
    assert not data.centers[:, 5:].any()


def test_points_lie_on_the_manifold_about_their_centers():
    data = ClusterDataModule(
        [[2.0, 2.0], [-2.0, 1.0]], dim=3, manifold_dim=2, points_per_cluster=[300, 500], spread=0.3
    )
    offset = data.points - data.centers[data.labels]
    assert data.labels.bincount().tolist() == [300, 500]
    assert not data.points[:, 2].any()
    assert 0.28 < offset[:, :2].abs().max() <= 0.3
    torch.testing.assert_close(offset[:, :2].var(0), torch.full((2,), 0.3**2 / 3), rtol=0.1, atol=0)
    torch.testing.assert_close(offset.norm(dim=1).max(), torch.tensor(0.3 * 2**0.5), rtol=0.1, atol=0)


def test_views_differ_from_the_points_off_the_manifold_alone():
    data = ClusterDataModule(dim=4, manifold_dim=2, centers="orthogonal", points_per_cluster=200, noise=0.5, passes=3)
    batches = steps(data)
    for batch in batches:
        for view in batch["views"]:
            assert torch.equal(view[:, :2], data.points[batch["index"], :2])
            assert 0.45 < view[:, 2:].abs().max() <= 0.5
    noise = torch.stack([view[:, 2:] for batch in batches for view in batch["views"]])
    assert noise.flatten().unique().numel() > 0.99 * noise.numel()  # of each step and view its own
    torch.testing.assert_close(noise.var(), torch.tensor(0.5**2 / 3), rtol=0.05, atol=0)
    assert noise.mean().abs() < 0.02


def test_a_step_has_all_points_in_their_order():
    data = ClusterDataModule(points_per_cluster=5, passes=4)
    batches = steps(data)
    assert len(batches) == 4
    assert all(batch["index"].tolist() == list(range(20)) for batch in batches)
    assert all(torch.equal(batch["label"], data.labels) for batch in batches)


def test_batches_of_some_points():
    data = ClusterDataModule(points_per_cluster=5, passes=3, batch_size=4)
    batches = steps(data)
    index = torch.cat([batch["index"] for batch in batches])
    assert [len(batch["index"]) for batch in batches] == [4] * 15
    passes = index.view(3, 20)
    assert all(sorted(turn) == list(range(20)) for turn in passes.tolist())  # no point twice in a pass
    assert len({tuple(turn) for turn in passes.tolist()}) == 3
    assert all(torch.equal(batch["label"], data.labels[batch["index"]]) for batch in batches)


def test_clean_batches_are_the_points_with_the_same_views_at_any_time():
    data = ClusterDataModule(points_per_cluster=5)
    (first,), (second,) = steps(data, "val"), steps(data, "test")
    assert torch.equal(first["image"], data.points)
    assert torch.equal(first["views"][0], second["views"][0])
    assert not torch.equal(first["views"][0], first["views"][1])
    assert not torch.equal(first["views"][0], next(iter(steps(data)))["views"][0])
    assert "image" not in steps(data)[0]


def test_everything_is_a_function_of_the_seed():
    same, other = ClusterDataModule(seed=3), ClusterDataModule(seed=4)
    assert torch.equal(ClusterDataModule(seed=3).points, same.points)
    assert not torch.equal(other.points, same.points)
    assert not torch.equal(steps(other)[0]["views"][0][:, 1], steps(same)[0]["views"][0][:, 1])


class Watch(L.LightningModule):
    """Keeps what it is trained on."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(2, 1)
        self.seen = []

    def training_step(self, batch, batch_idx):
        self.seen.append(batch)
        return self.layer(batch["views"][0]).mean()

    def validation_step(self, batch, batch_idx):
        pass

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def fit(data, **arguments):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False}
    model = Watch()
    L.Trainer(accelerator="cpu", enable_model_summary=False, **quiet, **arguments).fit(model, datamodule=data)
    return model.seen


@pytest.mark.filterwarnings("ignore:You requested to overfit")
def test_epochs_have_noise_of_their_own_but_for_overfitting():
    seen = fit(ClusterDataModule(points_per_cluster=2, passes=2), max_epochs=2, limit_val_batches=0)
    assert len(seen) == 4
    assert len({batch["views"][0][0, 1].item() for batch in seen}) == 4
    seen = fit(ClusterDataModule(points_per_cluster=2, passes=2), max_epochs=2, limit_val_batches=0, overfit_batches=1)
    assert torch.equal(seen[0]["views"][0], seen[1]["views"][0])


def test_the_precision_of_the_run():
    (batch,) = fit(ClusterDataModule(points_per_cluster=2, passes=1), max_epochs=1, precision="64-true")
    assert batch["views"][0].dtype == torch.float64


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            {"centers": "orthogonal", "clusters": 3, "dim": 3, "manifold_dim": 2},
            "`clusters` of at most `manifold_dim` = 2",
        ),
        ({"centers": "orthogonal"}, "Expected `clusters` to be an integer >= 2, but got 1"),
        (
            {"centers": "star"},
            r"Expected `centers` to be one of \('collinear', 'orthogonal'\) or a list, but got 'star'",
        ),
        ({"centers": [[1.0]]}, "Expected `centers` with at least 2 of `manifold_dim` = 1 coordinates, but got 1 of"),
        ({"centers": [[1.0], [1.0, 2.0]]}, r"Expected `centers` with at least 2 .* but got 2 of \[1, 2\]"),
        ({"centers": [[1.0], [torch.nan]]}, "Expected finite `centers`, but got 1 of 2 values"),
        ({"centers": [[1.0], [2.0]], "clusters": 3}, "Expected `clusters` = 2, as `centers` has, or None, but got 3"),
        ({"clusters": 1}, "Expected `clusters` to be an integer >= 2, but got 1"),
        ({"spacing": 0.0}, r"Expected `spacing` > 0 and finite, but got 0\.0"),
        ({"spread": -1.0}, r"Expected `spread` >= 0 and finite, but got -1\.0"),
        ({"noise": torch.nan}, "Expected `noise` >= 0 and finite, but got nan"),
        ({"manifold_dim": 2}, "Expected `manifold_dim` from 1, below `dim` = 2, but got 2"),
        ({"manifold_dim": 3, "noise": 0.0}, "Expected `manifold_dim` from 1, at most `dim` = 2, but got 3"),
        ({"points_per_cluster": 0}, "Expected `points_per_cluster` to be an integer >= 1, but got 0"),
        ({"points_per_cluster": [1, 2]}, "Expected `points_per_cluster` for 4 clusters, but got 2 numbers"),
        ({"batch_size": 0}, "Expected `batch_size` to be an integer >= 1, but got 0"),
        ({"batch_size": 201}, "Expected `batch_size` of at most 200 points, but got 201"),
        ({"passes": 0}, "Expected `passes` to be an integer >= 1, but got 0"),
    ],
)
def test_bad_input(arguments, message):
    with pytest.raises(ValueError, match=message):
        ClusterDataModule(**arguments)


def test_bad_split_and_processes():
    with pytest.raises(ValueError, match=r"Expected `split` to be one of .* but got 'all'"):
        ClusterDataModule().unaugmented_dataloader("all")
    data = ClusterDataModule(points_per_cluster=[1, 1, 1, 2])
    data.trainer = type("Trainer", (), {"world_size": 2, "overfit_batches": 0})()
    with pytest.raises(ValueError, match="Expected points that divide by 2 processes for `batch_size` None, but got 5"):
        data.train_dataloader()
