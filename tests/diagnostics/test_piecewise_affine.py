import copy
import inspect

import pytest
import torch
from torch import nn

from lightning_ssl_geometry.diagnostics.piecewise_affine import (
    JacobianRank,
    LinearRegions,
    LocalUnexplainedVariance,
)
from lightning_ssl_geometry.diagnostics.spectrum import ProjectorRank
from lightning_ssl_geometry.diagnostics.tangent import UnexplainedVariance
from lightning_ssl_geometry.diagnostics.undefined import UndefinedWarning
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.functional.piecewise_affine import affine_map, linear_regions, local_unexplained_variance
from lightning_ssl_geometry.functional.spectrum import numerical_rank
from lightning_ssl_geometry.nn import MLPProjector

N, D, H, P = 90, 6, 8, 4
METRICS = {
    "rank": JacobianRank(),
    "rank_of_20": JacobianRank(0.5, "cumulative", contrast_size=20, seed=2),
    "regions": LinearRegions(),
    "regions_of_50": LinearRegions(contrast_size=50),
    "unexplained": LocalUnexplainedVariance(tau=0.2),
    "unexplained_of_30": LocalUnexplainedVariance(contrast_size=30, samples=7),
}


def mlp(norm="none", seed=3):
    torch.manual_seed(seed)
    projector = MLPProjector(D, H, P, depth=2, norm=norm).double()
    if norm == "batch":
        projector(torch.randn(100, D, dtype=torch.float64))  # running statistics
    return projector.eval()


def data(projector, n=N):
    generator = torch.Generator().manual_seed(1)
    h = torch.randn(3, n, D, generator=generator, dtype=torch.float64) / 3
    h[1:] = h[:1] + h[1:] / 3
    modes = [module.training for module in projector.modules()]
    with torch.no_grad():
        z = projector.eval()(h.flatten(0, 1)).unflatten(0, (3, n))
    for module, training in zip(projector.modules(), modes, strict=True):
        module.training = training
    return h, z, torch.arange(n) * 7


def update(metric, h, z, index, projector):
    given = {"h": h, "z": z, "index": index, "projector": projector}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})


def fed(metric, h, z, index, projector, chunks=None):
    metric = copy.deepcopy(metric)
    for rows in [torch.arange(len(index))] if chunks is None else chunks:
        update(metric, h[:, rows], z[:, rows], index[rows], projector)
    return metric


def close(found, expected):
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("norm", ["none", "batch"])
@pytest.mark.parametrize("name", METRICS)
def test_it_does_not_depend_on_batches_or_order(name, norm):
    projector = mlp(norm)
    observed = (METRICS[name], *data(projector), projector)
    once = fed(*observed).compute()
    close(fed(*observed, torch.arange(N).split(7)).compute(), once)
    close(fed(*observed, torch.randperm(N).split(11)).compute(), once)
    close(fed(*observed, [torch.arange(N), torch.arange(9)]).compute(), once)  # a repeated sample counts once


def rank_result(rank, name, h, z, index, projector):
    half = slice(0, 37) if rank == 0 else slice(37, None)  # uneven
    return fed(METRICS[name], h, z, index, projector, torch.arange(len(index))[half].split(10)).compute()


@pytest.mark.parametrize("name", METRICS)
def test_it_is_the_same_on_two_processes(name, two_processes):
    projector = mlp("batch")
    observed = (*data(projector), projector)
    once = fed(METRICS[name], *observed).compute()
    for found in two_processes(rank_result, name, *observed):
        close(found, once)


@pytest.mark.parametrize("name", METRICS)
def test_reset_forgets_samples_and_projector(name):
    other, projector = mlp(seed=5), mlp()
    h, z, index = data(other)
    metric = fed(METRICS[name], 5 * h + 1, z.flip(1), index + 1, other)
    metric.compute()
    metric.reset()
    assert not metric.projector
    update(metric, *data(projector), projector)
    close(metric.compute(), fed(METRICS[name], *data(projector), projector).compute())


@pytest.mark.parametrize("name", METRICS)
def test_it_computes_in_eval_mode_and_leaves_the_projector_as_it_was(name):
    projector = mlp("batch")
    once = fed(METRICS[name], *data(projector), projector).compute()
    projector.train()
    projector[0].eval()
    before = {key: value.clone() for key, value in projector.state_dict().items()}
    metric = fed(METRICS[name], *data(projector), projector)
    with torch.inference_mode():
        close(metric.compute(), once)
    assert [module.training for module in projector] == [False, True, True, True]
    assert all(torch.equal(value, before[key]) for key, value in projector.state_dict().items())
    assert all(parameter.grad is None for parameter in projector.parameters())


@pytest.mark.parametrize("name", METRICS)
def test_it_works_on_what_inference_mode_made(name):
    projector = mlp()
    once = fed(METRICS[name], *data(projector), projector).compute()
    with torch.inference_mode():
        h, z, index = (value.clone() for value in data(projector))
        assert h.is_inference()
        metric = fed(METRICS[name], h, z, index, projector, torch.arange(N).split(20))
        close(metric.compute(), once)
    metric._computed = None
    close(metric.compute(), once)  # and outside of it


@pytest.mark.parametrize("name", METRICS)
def test_weights_must_stand_still(name):
    projector = mlp()
    observed = (*data(projector), projector)
    metric = fed(METRICS[name], *observed)
    with torch.no_grad():
        projector[0].weight.mul_(1.5)
    with pytest.raises(ValueError, match="stands still while it is observed, but its weights changed"):
        update(metric, *observed)
    with pytest.raises(ValueError, match="stands still while it is observed, but its weights changed"):
        metric.compute()
    metric = fed(METRICS[name], *observed)
    with pytest.raises(ValueError, match="stands still while it is observed"):
        update(metric, *data(mlp()), mlp())


@pytest.mark.parametrize("name", METRICS)
@pytest.mark.filterwarnings("ignore:The ``compute`` method")
def test_nothing_observed_is_an_error(name):
    with pytest.raises(ValueError, match=r"to have observed at least 2 samples, but got none"):
        METRICS[name].compute()


def test_they_agree_with_the_functions():
    projector = mlp()
    h, z, index = data(projector)
    weight, _ = affine_map(projector, h[0])

    found = fed(JacobianRank(0.1), h, z, index, projector).compute()
    close(found["rank"], numerical_rank(weight, 0.1, mode="relative").double().mean())
    close(found["singular_values"], torch.linalg.svdvals(weight).mean(0))

    found = fed(LinearRegions(), h, z, index, projector).compute()
    assert found["visited"] == len(linear_regions(projector, h[0]).unique())
    assert found["fraction"] == found["visited"] / N

    found = fed(LocalUnexplainedVariance(0.2), h, z, index, projector).compute()
    negative, view, _ = hardest_negative(z[0], z[1])
    delta = h[1] - h[view, negative]
    close(found["full"], local_unexplained_variance(delta, weight))
    close(found["tau"], local_unexplained_variance(delta, weight, 0.2))
    close(found["tau_isotropic"], 1 - numerical_rank(weight, 0.2, mode="relative").double().mean() / D)
    assert 0 <= found["full"] <= found["tau"] <= 1
    assert found["full_isotropic"] <= found["tau_isotropic"] <= 1


def test_a_linear_projector_has_one_region_and_its_own_rank_and_unexplained_variance():
    projector = nn.Linear(D, P, bias=False).double()
    with torch.no_grad():
        projector.weight.mul_(torch.tensor([[1.0], [0.5], [0.1], [1e-4]]))
    observed = (*data(projector), projector)
    assert fed(LinearRegions(), *observed).compute()["visited"] == 1
    found = fed(JacobianRank(), *observed).compute()
    metric = ProjectorRank()
    metric.update(projector)
    expected = metric.compute()
    assert found["rank"] == expected["rank"] == 3
    close(found["singular_values"], expected["singular_values"])
    found = fed(LocalUnexplainedVariance(), *observed).compute()
    expected = fed(UnexplainedVariance(), *observed).compute()
    for name in ("full", "full_isotropic", "tau", "tau_isotropic"):
        close(found[name], expected[name])
    for name in ("full_between_samples", "tau_between_samples"):  # one pair of each sample, not all pairs
        assert found[name].item() == pytest.approx(expected[name].item(), abs=0.1)
    assert found["full_isotropic"].item() == pytest.approx(1 - 4 / D)
    assert found["tau_isotropic"].item() == pytest.approx(1 - 3 / D)


def test_a_dead_projector_has_rank_0_and_explains_nothing():
    projector = nn.Sequential(nn.Linear(D, H), nn.ReLU(), nn.Linear(H, P)).double()
    with torch.no_grad():
        projector[0].weight.zero_()
        projector[0].bias.fill_(-1)
    h, _, index = data(projector)
    z = h[..., :P]
    assert fed(JacobianRank(), h, z, index, projector).compute()["rank"] == 0
    assert fed(LinearRegions(), h, z, index, projector).compute()["visited"] == 1
    found = fed(LocalUnexplainedVariance(), h, z, index, projector).compute()
    for value in found.values():  # a ratio of two sums of N x D squares
        assert value.item() == pytest.approx(1, rel=N * D * torch.finfo(torch.float64).eps)


def test_regions_grow_with_the_sample_and_never_exceed_it():
    projector = mlp()
    observed = (*data(projector), projector)
    visited = [fed(LinearRegions(contrast_size=size), *observed).compute() for size in (2, 10, 40, N)]
    counts = [float(found["visited"]) for found in visited]
    assert counts == sorted(counts)
    assert counts[-1] > 1
    assert all(0 < found["fraction"] <= 1 for found in visited)


def test_the_negative_is_found_among_all_samples_and_the_variance_computed_for_some():
    projector = mlp()
    h, z, index = data(projector)
    metric = fed(LocalUnexplainedVariance(samples=5), h, z, index, projector)
    rows = metric.rows()
    negative, view, _ = hardest_negative(rows["z"][:, 0], rows["z"][:, 1])
    assert negative[:5].max() >= 5
    delta = (rows["h"][:, 1] - rows["h"][negative, view])[:5]
    weight, _ = affine_map(projector, rows["h"][:5, 0])
    close(metric.compute()["full"], local_unexplained_variance(delta, weight))


def test_displacements_in_or_out_of_reach():
    # g keeps the first two axes: displacements along them are explained, along the others not
    projector = nn.Sequential(nn.Linear(D, 2, bias=False), nn.LeakyReLU()).double()
    projector[0].weight.data = torch.eye(2, D, dtype=torch.float64)
    h = torch.randn(2, N, D, dtype=torch.float64)
    z = torch.randn(2, N, P, dtype=torch.float64)
    for keep, expected in ((slice(2), 0.0), (slice(2, None), 1.0)):
        part = torch.zeros_like(h)
        part[..., keep] = h[..., keep]
        found = fed(LocalUnexplainedVariance(), part, z, torch.arange(N), projector).compute()
        assert found["full"].item() == pytest.approx(expected, abs=1e-12)
        assert found["full_isotropic"].item() == pytest.approx(1 - 2 / D)


def test_collapsed_embeddings_have_no_hardest_negative():
    projector = mlp()
    h, z, index = data(projector)
    found = fed(LocalUnexplainedVariance(), h, torch.ones_like(z), index, projector).compute()
    assert found["full"].isnan()
    assert found["tau"].isnan()


def test_half_precision_representations():
    projector = mlp().float()
    h, z, index = data(projector.double())
    for metric in METRICS.values():
        found = fed(metric, h.bfloat16(), z.bfloat16(), index, projector.float()).compute()
        assert all(value.isfinite().all() and value.dtype == torch.float64 for value in found.values())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: JacobianRank(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: LinearRegions(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: LocalUnexplainedVariance(contrast_size=1), "`contrast_size` >= 2, but got 1"),
        (lambda: JacobianRank(tau=2), r"`tau` in \(0, 1\], but got 2"),
        (lambda: JacobianRank(mode="half"), r"`mode` to be one of .*, but got 'half'"),
        (lambda: LocalUnexplainedVariance(tau=2), r"`tau` in \(0, 1\], but got 2"),
        (lambda: LocalUnexplainedVariance(mode="half"), r"`mode` to be one of .*, but got 'half'"),
        (lambda: LocalUnexplainedVariance(samples=0), "`samples` >= 1, but got 0"),
    ],
)
def test_bad_arguments(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_bad_observations():
    projector = mlp()
    h, z, index = data(projector)
    with pytest.raises(ValueError, match=r"`h` of shape .*, but got \(6,\)"):
        LinearRegions().update(h[0, 0], index, projector=projector)
    with pytest.raises(ValueError, match=r"`h` with N rows and `index` of shape \(N,\), but got \(90, 6\), \(89,\)"):
        JacobianRank().update(h, index[1:], projector=projector)
    for one, two, name in ((h[:1], z, "h"), (h, z[:1], "z")):
        with pytest.raises(ValueError, match=rf"`{name}` of shape \(V, N, \w\) with V >= 2 views, but got \(1, 90"):
            LocalUnexplainedVariance().update(one, two, index, projector=projector)
    with pytest.warns(UndefinedWarning, match="LocalUnexplainedVariance is NaN: all displacements in `h` are 0"):
        found = fed(LocalUnexplainedVariance(), torch.ones_like(h), z, index, projector).compute()
    assert found["full"].isnan()
    assert found["tau"].isnan()
    with pytest.raises(ValueError, match=r"piecewise affine: .* but got `gelu`"):
        fed(LinearRegions(), h, z, index, nn.GELU()).compute()
