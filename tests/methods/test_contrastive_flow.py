"""ContrastiveFlowModule: Eq. 14 and 15 of Calder & Lee, the shared cloud, the sphere."""

import copy

import lightning as L
import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.callbacks import EmbeddingSnapshots
from lightning_ssl_geometry.data import ClusterDataModule
from lightning_ssl_geometry.functional import (
    first_variation,
    neural_kernel,
    tangential_gradient,
    uniformity,
    variational_loss,
)
from lightning_ssl_geometry.losses import VariationalLoss
from lightning_ssl_geometry.methods import ContrastiveFlowModule

N, TAU = 12, 0.5


def network(seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(2, 16), nn.Tanh(), nn.Linear(16, 2))


def flow(net=None, **arguments):
    return ContrastiveFlowModule(N, 2, net, VariationalLoss(TAU), **arguments)


def points(noise=0.2):
    data = ClusterDataModule(points_per_cluster=N // 4, noise=noise, passes=1)
    return data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)


def fit(model, tmp_path, data=None, precision="64-true", **arguments):
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "accelerator": "cpu"}
    trainer = L.Trainer(
        **quiet,
        enable_model_summary=False,
        precision=precision,
        default_root_dir=tmp_path,
        **{"max_steps": 1} | arguments,
    )
    trainer.fit(model, datamodule=data or ClusterDataModule(points_per_cluster=N // 4, passes=100))
    return model


@pytest.mark.parametrize("net", [None, network()], ids=["points", "network"])
def test_both_start_from_the_same_cloud(net):
    batch, model = points(), flow(net).eval()
    z = model.step(batch)["z"]
    torch.testing.assert_close(z[0], flow().cloud)
    torch.testing.assert_close(z[1], z[0])  # invariant, whatever the noise
    torch.testing.assert_close(z.norm(dim=-1), torch.ones(2, N))


def test_the_cloud_is_a_function_of_its_seed_and_uniform():
    cloud = ContrastiveFlowModule(4000, 3, seed=1).cloud
    assert torch.equal(cloud, ContrastiveFlowModule(4000, 3, seed=1).cloud)
    assert not torch.equal(cloud, ContrastiveFlowModule(4000, 3, seed=2).cloud)
    assert cloud.mean(0).norm() < 0.05
    torch.testing.assert_close(cloud.T @ cloud / 4000, torch.eye(3) / 3, rtol=0, atol=0.03)
    torch.testing.assert_close(ContrastiveFlowModule(N).cloud, ContrastiveFlowModule(N, 2, seed=0, bunching=0.0).cloud)
    bunched = ContrastiveFlowModule(4000, 3, seed=1, bunching=0.8).cloud
    assert bunched[:, 0].mean() > 0.5
    assert uniformity(bunched) > uniformity(cloud) + 0.3


def test_a_step_of_free_points_is_eq_14(tmp_path):
    """z_i - sigma grad L_i, with sigma the learning rate, and back onto the sphere."""
    sigma, model = 0.3, flow(optimizer=lambda groups: torch.optim.SGD(groups, lr=0.3)).double()
    z = model.cloud.clone()
    gradient = tangential_gradient(z, first_variation(z, z, TAU).sum(0))
    fit(model, tmp_path)
    torch.testing.assert_close(model.backbone.points.detach(), normalize(z - sigma * gradient, dim=-1))


def test_a_small_step_of_a_network_is_eq_15(tmp_path):
    """h_i - sigma / n sum_j K_ij grad_j to first order in sigma, at points without noise."""
    sigma, net = 1e-5, network().double()
    model = flow(net, radius=0.7, optimizer=lambda groups: torch.optim.SGD(groups, lr=1e-5)).double()
    x = points(noise=0.0)["views"][0].double()
    h = (0.7 * model.cloud).requires_grad_()
    z = normalize(h, dim=-1)
    (gradient,) = torch.autograd.grad(N * variational_loss(z, z, TAU), h)
    expected = -sigma / N * torch.einsum("ijkl,jl->ik", neural_kernel(net, x), gradient)
    fit(model, tmp_path, ClusterDataModule(points_per_cluster=N // 4, noise=0.0, passes=1))
    moved = model.place(x, torch.arange(N)) - h
    torch.testing.assert_close(moved.detach(), expected, rtol=1e-3, atol=1e-3 * expected.abs().max().item())


def test_free_points_stay_on_the_sphere_and_know_nothing_of_the_data(tmp_path):
    one, other = flow(), flow()
    fit(one, tmp_path, max_steps=20)
    fit(other, tmp_path, ClusterDataModule([[5.0], [9.0]], points_per_cluster=N // 2, passes=100), max_steps=20)
    torch.testing.assert_close(one.backbone.points.norm(dim=-1), torch.ones(N, dtype=torch.float64))
    assert torch.equal(one.backbone.points, other.backbone.points)
    assert uniformity(one.backbone.points) < uniformity(one.cloud)


def test_a_network_moves_and_what_it_began_with_stays(tmp_path):
    net = network()
    model, before = flow(net), copy.deepcopy(net.state_dict())
    fit(model, tmp_path, max_steps=3)
    after = model.start.state_dict()
    assert all(torch.equal(after[name].float(), before[name]) for name in before)
    assert not any(p.requires_grad for p in model.start.parameters())
    assert not torch.equal(model.backbone[0].weight.float(), before["0.weight"])


class ChangesItsInput(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(2, 2)

    def forward(self, x):
        return self.linear(x.sub_(1))


def test_a_network_may_change_its_input():
    model = flow(ChangesItsInput())
    torch.testing.assert_close(model.step(points())["h"][0], model.radius * model.cloud)
    batch = points()
    batch["image"] = torch.zeros(N, 2)
    assert model.eval().observe(batch)["image"].eq(0).all()


def test_unfreezing_leaves_the_networks_start(tmp_path):
    model = flow(network())
    model.unfreeze()
    start = [weight.clone() for weight in model.start.parameters()]
    fit(model.double(), tmp_path)
    for before, after in zip(start, model.start.parameters(), strict=True):
        torch.testing.assert_close(before, after.float())


@pytest.mark.parametrize("settings", [{}, {"loss": VariationalLoss(0.5)}], ids=["default", "given"])
def test_the_loss_is_that_of_both_views(settings):
    """The default temperature is 0.5. Views differ as soon as the network is not its start."""
    model, batch = ContrastiveFlowModule(N, 2, network(), **settings), points()
    with torch.no_grad():
        model.backbone[0].weight.mul_(3)
    observation = model.step(batch)
    z1, z2 = observation["z"]
    assert (z1 - z2).norm() > 0.1
    torch.testing.assert_close(observation["loss"], variational_loss(z1, z2, 0.5))


def test_a_batch_of_one_sample_has_one_index():
    image, index = points()["views"][0][:1], torch.tensor([N - 1])
    model = flow(network())
    torch.testing.assert_close(model.predict_step({"image": image, "index": index}, 0), 0.2 * model.cloud[-1:])


def test_the_rate_is_constant(tmp_path):
    model = fit(flow(), tmp_path, ClusterDataModule(points_per_cluster=N // 4, passes=1), max_steps=-1, max_epochs=5)
    assert model.trainer.optimizers[0].param_groups[0]["lr"] == 0.1


def test_evaluation_shows_the_points_without_noise(tmp_path):
    data, model = ClusterDataModule(points_per_cluster=N // 4), flow(network())
    fit(model, tmp_path, data, precision="32-true", max_steps=2)
    batch = data.on_after_batch_transfer(next(iter(data.val_dataloader())), 0)
    seen = model.eval().observe(batch)
    torch.testing.assert_close(seen["h_image"], model.place(batch["image"], batch["index"]))
    torch.testing.assert_close(seen["z_image"].norm(dim=-1), torch.ones(N))
    torch.testing.assert_close(model(batch["image"]), model.backbone(batch["image"]))
    assert seen["views"] is batch["views"]


def test_clusters_of_the_data_show_with_a_network_alone(tmp_path):
    """Fig. 5 in small: rows of one cluster move together."""
    data = ClusterDataModule(points_per_cluster=10, passes=100)
    torch.manual_seed(0)
    wide = nn.Sequential(nn.Linear(2, 500), nn.ReLU(), nn.Linear(500, 2))
    kept = {}
    for name, net in {"network": wide, "points": None}.items():
        snapshots = EmbeddingSnapshots([60])
        model = ContrastiveFlowModule(40, 2, net, VariationalLoss(TAU), radius=0.1)
        fit(model, tmp_path, data, precision="32-true", max_steps=60, callbacks=[snapshots])
        kept[name] = snapshots.kept[60]["z"]

    def within(z):
        centers = torch.stack([z[data.labels == q].mean(0) for q in range(4)])
        return (z - centers[data.labels]).square().sum(1).mean()

    assert within(kept["network"]) < 0.2 * within(kept["points"])


def free(rank, folder):
    """The points after a fit, and what was kept of them; on 2 processes where a rank is given."""
    devices = {"devices": 2, "strategy": "ddp"} if rank is not None else {"devices": 1}
    snapshots = EmbeddingSnapshots([0, 5])
    fit(flow(), folder, precision="32-true", max_steps=5, callbacks=[snapshots], **devices)
    return {"start": snapshots.kept[0]["z"], "end": snapshots.kept[5]["z"], "index": snapshots.kept[5]["index"]}


def test_free_points_on_two_processes(tmp_path, two_processes):
    alone = free(None, tmp_path / "one")
    for found in two_processes(free, tmp_path / "two"):
        assert found["index"].tolist() == list(range(N))
        for name in ("start", "end"):
            torch.testing.assert_close(found[name], alone[name], rtol=1e-5, atol=1e-6)
    assert not torch.equal(alone["start"], alone["end"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"num_points": 1}, "Expected `num_points` >= 2, but got 1"),
        ({"dim": 1}, "Expected `dim` >= 2, but got 1"),
        ({"network": nn.Sequential(nn.BatchNorm1d(2))}, r"Expected `network` without batch norm .* got BatchNorm1d"),
        ({"network": nn.Dropout()}, r"Expected `network` without batch norm and dropout, but got Dropout"),
        ({"chunk_size": 2}, "Expected `chunk_size` beside a `network`, but got 2 for free points"),
        ({"radius": 0.0}, r"Expected `radius` > 0 and finite, but got 0\.0"),
        ({"bunching": 1.0}, r"Expected `bunching` in \[0, 1\), but got 1\.0"),
        ({"bunching": torch.nan}, r"Expected `bunching` in \[0, 1\), but got nan"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        ContrastiveFlowModule(**{"num_points": N} | arguments)


def test_bad_batches():
    batch = points()
    with pytest.raises(ValueError, match="Expected 2 `views` in a batch, but got 1"):
        flow().step(batch | {"views": batch["views"][:1]})
    with pytest.raises(ValueError, match="Expected `index` from 0 to 3, as `num_points` says, but got 0 to 11"):
        ContrastiveFlowModule(4).step(batch)
    with pytest.raises(ValueError, match=f"Expected `index` from 0 to {N - 1}, .* but got -1 to 1"):
        ContrastiveFlowModule(N).predict_step({"image": batch["views"][0][:2], "index": torch.tensor([1, -1])}, 0)
    for wrong in (-1, N):
        there = {"image": batch["views"][0][:1], "index": torch.tensor([wrong])}
        with pytest.raises(ValueError, match=f"Expected `index` from 0 to {N - 1}, .* but got {wrong} to {wrong}"):
            ContrastiveFlowModule(N).predict_step(there, 0)
    with pytest.raises(ValueError, match=r"Expected `network` to return \(N, dim\) = \(24, 3\), but got \(24, 2\)"):
        ContrastiveFlowModule(N, 3, network()).step(batch)
    with pytest.raises(ValueError, match="Expected a ContrastiveFlowModule with a `network` to map x"):
        flow()(batch["views"][0])
