"""Clusters, stationary points and invariance: how they stream, and what they say where it is known."""

import copy
import inspect
import math

import pytest
import torch
from jsonargparse import ArgumentParser
from observations import of_rank
from torch import nn
from torch.nn.functional import normalize
from torchmetrics import Metric

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import Clusteredness, Stationarity, StepInvariance
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.functional.clusteredness import clusteredness
from lightning_ssl_geometry.functional.output_velocity import output_velocity
from lightning_ssl_geometry.losses import VariationalLoss

N, D, H, P = 60, 6, 5, 3


def cauchy(t):
    return 1 / (1 + t)


METRICS = {
    "clusteredness": Clusteredness(n_init=2),
    "clusteredness_of_20": Clusteredness(normalize=False, t=1.0, n_init=1, contrast_size=20, seed=3),
    "stationarity": Stationarity(),
    "stationarity_of_20": Stationarity(loss=VariationalLoss(0.5, torch.sqrt, cauchy), contrast_size=20),
    "step": StepInvariance(),
    "step_of_20": StepInvariance(
        loss=VariationalLoss(0.5, negatives="both", include_self=False), contrast_size=20, seed=2
    ),
}
STEPS = [name for name in METRICS if "step" in name]


def encoder():
    """A network with batch statistics and dropout, which have no effect in eval mode."""
    layers = nn.Linear(D, 8), nn.BatchNorm1d(8), nn.ReLU(inplace=True), nn.Dropout(0.5), nn.Linear(8, H)
    with torch.random.fork_rng([]):
        torch.manual_seed(1)
        network = nn.Sequential(*layers).double()
        network(torch.randn(100, D).double())
        return network.eval()


def observed(network=None, projector=None, noise=0.3, keep=0):
    """The observation of an evaluation step; the noise does not change the first `keep` coordinates."""
    generator = torch.Generator().manual_seed(1)
    label = torch.arange(N) % 4
    image = 2 * torch.eye(D, dtype=torch.float64)[label] + 0.2 * torch.randn(N, D, generator=generator).double()
    moves = noise * torch.randn(2, N, D, generator=generator).double()
    moves[..., :keep] = 0
    network = encoder() if network is None else network
    projector = nn.Linear(H, P).double() if projector is None else projector
    modes = {module: module.training for part in (network, projector) for module in part.modules()}
    network.eval()
    with torch.no_grad():
        h_image, *h = (network(x) for x in (image, *(image + moves)))
        z = torch.stack([projector(some) for some in h])
    for module, training in modes.items():
        module.training = training
    given = {"image": image, "views": tuple(image + moves), "h": torch.stack(h), "h_image": h_image, "z": z}
    return given | {"index": torch.arange(N) * 7, "label": label, "encoder": network, "projector": projector}


@pytest.fixture
def given():
    return observed()


def some_rows(given, rows):
    along = {"z": 1, "h": 1, "image": 0, "h_image": 0, "index": 0, "label": 0}
    chosen = {name: given[name].index_select(axis, rows) for name, axis in along.items()}
    return given | chosen | {"views": tuple(view[rows] for view in given["views"])}


def update(metric, given):
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def fed(metric, given, chunks=None):
    metric = copy.deepcopy(metric)
    for rows in [torch.arange(N)] if chunks is None else chunks:
        update(metric, some_rows(given, rows))
    return metric


def computed(metric, **changed):
    return fed(metric, observed() | changed).compute()


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)


@pytest.mark.parametrize("name", METRICS)
def test_it_does_not_depend_on_batches_or_order(name, given):
    once = fed(METRICS[name], given).compute()
    assert all(value.isfinite() and value.dtype == torch.float64 for value in once.values())
    close(fed(METRICS[name], given, torch.arange(N).split(7)).compute(), once)
    close(fed(METRICS[name], given, torch.randperm(N).split(11)).compute(), once)
    close(fed(METRICS[name], given, [torch.arange(N), torch.arange(9)]).compute(), once)  # a repeated one counts once


def rank_result(rank, name, given):
    return fed(METRICS[name], given, of_rank(rank, N, 10)).compute()


@pytest.mark.parametrize("name", METRICS)
def test_it_is_the_same_on_two_processes(name, given, two_processes):
    once = fed(METRICS[name], given).compute()
    for found in two_processes(rank_result, name, given):
        close(found, once)


@pytest.mark.parametrize("name", METRICS)
def test_reset_forgets(name, given):
    other = observed(nn.Linear(D, H).double(), noise=1.0)
    metric = fed(METRICS[name], other | {"index": other["index"] + 1})
    metric.compute()
    metric.reset()
    update(metric, given)
    close(metric.compute(), fed(METRICS[name], given).compute())


@pytest.mark.parametrize("name", METRICS)
def test_it_works_on_what_inference_mode_made(name, given):
    once = fed(METRICS[name], given).compute()
    with torch.inference_mode():
        tensors = {name: value.clone() for name, value in given.items() if isinstance(value, torch.Tensor)}
        views = tuple(view.clone() for view in given["views"])
        metric = fed(METRICS[name], given | tensors | {"views": views}, torch.arange(N).split(20))
        close(metric.compute(), once)
    metric._computed = None
    close(metric.compute(), once)  # and outside of it


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_observed_is_an_error(name):
    with pytest.raises(ValueError, match=r"to have observed at least 2 samples, but got none"):
        METRICS[name].compute()


@pytest.mark.parametrize("name", METRICS)
def test_embeddings_that_are_all_equal_give_nan_or_a_limit(name, given):
    projector = nn.Linear(H, P).double()
    with torch.no_grad():
        projector.weight.mul_(1e-9)
        projector.bias.fill_(0.3)
    found = fed(METRICS[name], observed(projector=projector)).compute()
    limits = {"relative_uniformity": 0.0, "tangential": 0.0}
    for key, value in found.items():
        assert value.isnan() if key not in limits else value.item() == pytest.approx(0, abs=1e-5)


def test_clusteredness_is_the_functions(given):
    metric = fed(Clusteredness(t=1.5), given)
    found, rows = metric.compute(), metric.rows()  # k-means depends on the order of its rows
    scores = [clusteredness(z, rows["label"])._asdict() for z in rows["z"].unbind(1)]
    for name in ("nmi", "silhouette", "kmeans_silhouette"):
        close(found[name], (scores[0][name] + scores[1][name]) / 2)
    uniformity = torch.stack([F.uniformity(z, 1.5) for z in given["z"]]).mean()
    close(found["relative_uniformity"], uniformity / F.uniform_uniformity(P, 1.5))
    one = copy.deepcopy(METRICS["clusteredness"])
    one.update(given["z"][0], given["index"], label=given["label"])
    close(one.compute(), computed(METRICS["clusteredness"], z=given["z"][:1]))


def test_clusters_and_a_uniform_cloud():
    label = torch.arange(N) % 2
    z = torch.eye(2, dtype=torch.float64)[label] + 0.01 * torch.randn(2, N, 2, dtype=torch.float64)
    found = computed(Clusteredness(), z=z, label=label)
    assert found["nmi"].item() == pytest.approx(1)
    assert found["silhouette"] > 0.95
    assert found["relative_uniformity"] < 0.6
    found = computed(Clusteredness(), z=torch.randn(2, N, 2, dtype=torch.float64), label=label)
    assert found["nmi"] < 0.1
    assert found["silhouette"] < 0.1
    assert found["kmeans_silhouette"] > 0.4
    assert found["relative_uniformity"].item() == pytest.approx(1, abs=0.1)


def test_stationarity_is_the_gradient_on_the_sphere(given):
    z = given["z"].clone().requires_grad_()
    loss = F.variational_loss(*normalize(z, dim=2), temperature=0.3, symmetric=True)
    on_unit_rows = torch.autograd.grad(loss, z)[0] * z.norm(dim=2, keepdim=True) * N
    found = fed(Stationarity(loss=VariationalLoss(0.3)), given).compute()
    close(found["tangential"], on_unit_rows.square().sum(2).mean().sqrt())
    unit = normalize(z, dim=2).detach()
    whole = F.first_variation(*unit, temperature=0.3, symmetric=True).square().sum(2).mean().sqrt()
    close(found["relative"], found["tangential"] / whole)
    close(fed(Stationarity(loss=VariationalLoss(0.3)), given | {"z": 5 * given["z"]}).compute(), found)


@pytest.mark.parametrize("points", [3, 4, 12, 60])
def test_evenly_spaced_clusters_are_stationary(points):
    # Theorem 3.2, by the symmetry of the regular polygon: what is left of the gradient points along the radius
    angle = 2 * math.pi * (torch.arange(N) % points).double() / points
    z = torch.stack([angle.cos(), angle.sin()], 1).expand(2, -1, -1)
    found = computed(Stationarity(loss=VariationalLoss(0.5)), z=z)
    assert found["tangential"].item() < 1e-12
    assert found["relative"].item() < 1e-12
    away = computed(Stationarity(loss=VariationalLoss(0.5)), z=z + 0.1 * torch.randn(2, N, 2, dtype=torch.float64))
    assert away["tangential"] > 0.01


def unit_network(given):
    return nn.Sequential(given["encoder"], given["projector"], OnSphere())


class OnSphere(nn.Module):
    def forward(self, z):
        return normalize(z, dim=1)


def test_step_invariance_is_the_functions(given):
    network = unit_network(given)
    with torch.no_grad():
        image, *views = (network(x.clone()) for x in (given["image"], *given["views"]))
    gradient = F.first_variation(*views, temperature=0.5, symmetric=True)
    at = torch.cat([given["image"], *given["views"]])
    v, *moved = output_velocity(network, torch.cat(given["views"]), gradient.flatten(0, 1), at=at).split(N)
    found = fed(StepInvariance(loss=VariationalLoss(0.5)), given).compute()
    close(found["step"], F.step_invariance_error(v, torch.stack(moved)))
    square = torch.stack([(view - image).square().sum(1).mean() for view in views]).mean()
    close(found["distance"], square / (2 * image.var(0).sum()))


class First(nn.Module):
    def forward(self, x):
        return x[:, :2]


def test_a_network_that_ignores_the_noise_stays_invariant():
    network = nn.Sequential(First(), nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, H)).double()
    found = fed(StepInvariance(), observed(network, keep=2)).compute()
    assert found["distance"].item() < 1e-20
    assert found["step"].item() < 1e-10


def test_a_network_whose_weights_happen_to_ignore_the_noise_does_not():
    network = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, H)).double()
    with torch.no_grad():
        network[0].weight[:, 2:] = 0
    found = fed(StepInvariance(), observed(network, noise=2.0, keep=2)).compute()
    assert found["distance"].item() < 1e-20
    assert found["step"] > 0.05


def test_what_h_has_beside_the_encoders_output_stays_where_it_is():
    """A network whose output is 0 at first, and a cloud that points start from, as in `ContrastiveFlowModule`."""
    network = nn.Sequential(nn.Linear(D, 8), nn.Tanh(), nn.Linear(8, P)).double()
    start = copy.deepcopy(network)
    cloud = torch.randn(N, P, dtype=torch.float64)
    given = observed(network, nn.Identity(), noise=1.0)
    given |= {"h": cloud.expand(2, -1, -1), "h_image": cloud}
    found = fed(StepInvariance(), given).compute()
    assert found["distance"].item() < 1e-20

    unit = normalize(cloud, dim=1)
    gradient = F.first_variation(unit, unit, symmetric=True)  # the loss before the step, and where it leads
    views, size = torch.cat(given["views"]), 1e-6
    z = normalize(network(views) - start(views).detach() + cloud.repeat(2, 1), dim=1)
    slopes = torch.autograd.grad((z * gradient.flatten(0, 1)).sum() / N, [*network.parameters()])
    with torch.no_grad():
        for weight, slope in zip(network.parameters(), slopes, strict=True):
            weight -= size * slope
        after = [normalize(network(x) - start(x) + cloud, dim=1) for x in (given["image"], *given["views"])]
    expected = F.step_invariance_error(after[0] - unit, torch.stack(after[1:]) - unit)
    close(found["step"], expected, rtol=1e-4, atol=0)


@pytest.mark.parametrize("name", STEPS)
def test_modules_and_random_state_are_left_as_they_were(name, given):
    once = fed(METRICS[name], given).compute()
    network = given["encoder"].train()
    network[1].eval()
    modes = [module.training for module in network.modules()]
    before, state = copy.deepcopy(network.state_dict()), torch.get_rng_state()
    close(fed(METRICS[name], given).compute(), once)
    assert [module.training for module in network.modules()] == modes
    assert torch.equal(torch.get_rng_state(), state)
    close(network.state_dict(), before, atol=0, rtol=0)
    assert all(parameter.grad is None for parameter in network.parameters())


@pytest.mark.parametrize("part", ["encoder", "projector"])
def test_weights_must_stand_still(part, given):
    metric = fed(METRICS["step"], given)
    with torch.no_grad():
        next(given[part].parameters()).mul_(1.5)
    with pytest.raises(ValueError, match="stands still while it is observed, but its weights changed"):
        update(metric, given)
    with pytest.raises(ValueError, match="stands still while it is observed, but its weights changed"):
        metric.compute()


def test_a_projector_that_is_a_part_of_the_encoder_or_is_not_there():
    class Host(nn.Module):  # whose representation is h, and which has the projector, as our methods have it
        def __init__(self, backbone, projector):
            super().__init__()
            self.backbone = backbone
            self.projector = projector

        def forward(self, x):
            return self.backbone(x)

    given = observed()
    once = fed(StepInvariance(), given).compute()
    host = Host(given["encoder"], given["projector"])
    close(fed(StepInvariance(), given | {"encoder": host}).compute(), once)
    both = nn.Sequential(given["encoder"], given["projector"])
    joined = observed(both, nn.Identity()) | {"projector": None}
    close(fed(StepInvariance(), joined).compute(), once)


def test_half_precision_observations(given):
    for name in ("clusteredness", "stationarity"):
        half = fed(METRICS[name], given | {"z": given["z"].bfloat16()}).compute()
        assert all(value.isfinite() and value.dtype == torch.float64 for value in half.values())
    half = {name: given[name].bfloat16() for name in ("h", "h_image")}
    close(fed(METRICS["step"], given | half).compute(), fed(METRICS["step"], given).compute(), rtol=0.05, atol=1e-3)


@pytest.mark.parametrize("name", ["Stationarity", "StepInvariance"])
def test_functions_come_from_yaml(name):
    parser = ArgumentParser()
    parser.add_argument("--metric", type=Metric)
    place = f"lightning_ssl_geometry.diagnostics.{name}"
    loss = "--metric.init_args.loss"
    chosen = [f"{loss}=lightning_ssl_geometry.losses.VariationalLoss", f"{loss}.init_args.psi=torch.sqrt"]
    for arguments, psi in (([], None), (chosen, torch.sqrt)):
        config = parser.parse_args([f"--metric.class_path={place}", *arguments])
        assert parser.instantiate_classes(config).metric.form.psi is psi


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: Clusteredness(t=0), r"`t` in \(0, 1e"),
        (lambda: Clusteredness(n_init=0), "`n_init` >= 1, but got 0"),
        (lambda: Stationarity(temperature=0), "`temperature` > 0"),
        (lambda: Stationarity(negatives="same"), r"`negatives` to be one of \('other', 'both'\), but got 'same'"),
        (lambda: StepInvariance(temperature=0), "`temperature` > 0"),
        (lambda: StepInvariance(negatives="same"), r"`negatives` to be one of \('other', 'both'\), but got 'same'"),
        (lambda: Clusteredness(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: Stationarity(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: StepInvariance(contrast_size=1), "`contrast_size` >= 2, but got 1"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_observations(given):
    with pytest.raises(ValueError, match=r"`z` of shape \(V, N, P\) with V >= 2 views, but got \(1, 60, 3\)"):
        computed(Stationarity(), z=given["z"][:1])
    with pytest.raises(ValueError, match="`label` of 2 to 59 clusters, fewer than points, but got 1"):
        computed(Clusteredness(), label=torch.zeros(N, dtype=torch.int64))
    with pytest.raises(ValueError, match=r"`label` with N rows and `index` of shape \(N,\), but got \(5,\), \(60,\)"):
        Clusteredness().update(given["z"], given["index"], label=given["label"][:5])
    with pytest.warns(UndefinedWarning, match="Stationarity is NaN: an embedding is 0, where a sphere has no tangent"):
        found = computed(Stationarity(), z=given["z"] * (torch.arange(N) > 0)[:, None])
    assert all(value.isnan() for value in found.values())
    for views in (given["views"][:1], (given["image"], given["image"][:, :2])):
        with pytest.raises(ValueError, match=r"`views` of V >= 2 tensors of image's shape \[60, 6\], but got \["):
            update(StepInvariance(), given | {"views": views})
    for h in (given["h"][0], given["h"][:1], given["h"][..., :2]):
        with pytest.raises(ValueError, match=r"`h` \(V, N, D\) for V = 2 and `h_image` \(N, D\), but got \("):
            update(StepInvariance(), given | {"h": h})
    frozen = observed(projector=nn.Identity())
    frozen["encoder"].requires_grad_(False)
    with pytest.raises(ValueError, match="`network` with a parameter that requires a gradient, but got none"):
        fed(StepInvariance(), frozen).compute()
