import copy

import pytest
import torch
from torch import nn

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import (
    ProjectionAlignment,
    ProjectorGain,
    UndefinedWarning,
    UnexplainedVariance,
)
from lightning_ssl_geometry.functional.piecewise_affine import affine_map

N, D, P = 60, 8, 3


def cloud(seed=0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(N, D, generator=generator, dtype=torch.float64) * torch.linspace(0.5, 2, D) + 1
    return torch.stack([base + 0.3 * torch.randn(N, D, generator=generator, dtype=torch.float64) for _ in range(2)])


def linear(seed=1):
    projector = nn.Linear(D, P, bias=False).double()
    projector.weight.data = torch.randn(P, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return projector


def mlp():
    with torch.random.fork_rng([]):
        torch.manual_seed(0)
        return nn.Sequential(nn.Linear(D, 16), nn.ReLU(), nn.Linear(16, P)).double()


def fed(metric, h, projector, rows=None, z=None):
    z = projector(h.flatten(0, 1)).detach().unflatten(0, (2, -1)) if z is None else z
    for chosen in [torch.arange(h.shape[1])] if rows is None else rows:
        metric.update(h[:, chosen], z[:, chosen], chosen, projector=projector)
    return metric


def close(found, expected, **tolerance):
    torch.testing.assert_close(found, expected, **tolerance)


def test_gains_are_the_functions_of_the_displacements():
    h, projector = cloud(), linear()
    weight, z = projector.weight.detach().T, projector(h).detach()
    found = fed(ProjectorGain(), h, projector).compute()
    index, view, _ = F.hardest_negative(z[0], z[1])
    means = h.mean(0)
    pairs = torch.combinations(torch.arange(N))
    displacements = {
        "augmentations": h[1] - h[0],
        "between_samples": h[0, pairs[:, 0]] - h[0, pairs[:, 1]],
        "view_means": means[pairs[:, 0]] - means[pairs[:, 1]],
        "negatives": h[0] - h[view, index],
    }
    left, _, _ = torch.linalg.svd(weight, full_matrices=False)
    for kind, delta in displacements.items():
        close(found[kind], F.projector_gain(delta, weight))
        if kind != "view_means":
            close(found[f"{kind}_along"], D * (delta @ left).square().sum(0) / delta.square().sum())
            leading = torch.linalg.svd(delta, full_matrices=False).Vh[:P].T
            close(found[f"{kind}_angles"], F.principal_angles(weight, leading), atol=1e-6, rtol=1e-6)


def test_a_projector_that_ignores_the_augmentations_has_no_gain_on_them():
    h, projector = cloud(), linear()
    basis = torch.linalg.svd(projector.weight.detach()).Vh
    h[1] = h[0] + torch.randn(N, D - P, dtype=torch.float64) @ basis[P:]
    found = fed(ProjectorGain(), h, projector).compute()
    assert found["augmentations"].item() == pytest.approx(0, abs=1e-12)
    assert found["between_samples"] > 0.3
    assert not found["augmentations_along"].round(decimals=9).any()
    assert found["augmentations_angles"].tolist() == pytest.approx([90.0] * P)


def test_the_cosine_is_the_functions_of_the_displacements():
    h, projector = cloud(), linear()
    weight, z = projector.weight.detach().T, projector(h).detach()
    found = fed(ProjectionAlignment(), h, projector).compute()
    index, view, _ = F.hardest_negative(z[0], z[1])
    delta = h[1] - h[view, index]
    close(found["cosine"], F.projection_alignment(h[0], delta, weight))
    close(found["identity"], F.projection_alignment(h[0], delta, torch.eye(D)))
    assert -1 < found["any_negative"] < 1


def test_the_random_projector_has_the_spectrum_no_direction_and_hardest_negatives_of_its_own():
    """Its mean over many seeds is that of W rotated at random."""
    h, projector = cloud(), linear()
    weight = projector.weight.detach().T
    made = {"cosine": ProjectionAlignment, "negatives": ProjectorGain}
    turned = {"cosine": [], "negatives": []}
    generator = torch.Generator().manual_seed(5)
    for _ in range(300):
        w = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64)).Q @ weight
        index, view, _ = F.hardest_negative(h[0] @ w, h[1] @ w)
        turned["cosine"].append(F.projection_alignment(h[0], h[1] - h[view, index], w))
        turned["negatives"].append(F.projector_gain(h[0] - h[view, index], w))
    for name, key in (("cosine", "random"), ("negatives", "negatives_random")):
        found = torch.stack([fed(made[name](seed=k), h, projector).compute()[key] for k in range(100)])
        expected = torch.stack(turned[name])
        assert abs(found.mean() - expected.mean()) < 4 * (found.var() / 100 + expected.var() / 300) ** 0.5
        assert 0.5 < found.std() / expected.std() < 2


def test_a_projector_that_is_not_linear_has_a_matrix_for_each_sample():
    h, projector = cloud(), mlp()
    z = projector(h).detach()
    found = fed(ProjectionAlignment(samples=20), h, projector).compute()
    rows = fed(ProjectionAlignment(samples=20), h, projector).rows()["h"]  # in the order of the hash
    order = (rows[:, None, 0] == h[0][None]).all(2).long().argmax(1)
    index, view, _ = F.hardest_negative(z[0], z[1])
    delta = (h[1] - h[view, index])[order[:20]]
    weight, _ = affine_map(projector, h[0, order[:20]])
    close(found["cosine"], F.projection_alignment(h[0, order[:20]], delta, weight))


@pytest.mark.parametrize("make", [ProjectorGain, ProjectionAlignment])
def test_it_does_not_depend_on_batches_or_order(make):
    h, projector = cloud(), linear()
    once = fed(make(contrast_size=50), h, projector).compute()
    for rows in (torch.arange(N).split(7), torch.randperm(N).split(11)):
        close(fed(make(contrast_size=50), h, projector, rows).compute(), once)


@pytest.mark.parametrize("make", [ProjectorGain, ProjectionAlignment])
def test_rotating_h_together_with_w_changes_nothing(make):
    h, projector = cloud(), linear()
    q = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64)).Q
    turned = copy.deepcopy(projector)
    turned.weight.data = projector.weight.data @ q.T
    before, after = fed(make(), h, projector).compute(), fed(make(), h @ q.T, turned).compute()
    for name in set(before) - {"random", "negatives_random"}:
        close(after[name], before[name], atol=1e-6, rtol=1e-6)


def test_what_has_no_direction_is_nan_with_its_reason():
    h, projector = cloud(), linear()
    with pytest.warns(UndefinedWarning, match="the augmentations have no direction but rounding"):
        found = fed(ProjectorGain(), h[:1].expand(2, -1, -1), projector).compute()
    assert found["augmentations"].isnan()
    assert found["augmentations_along"].isnan().all()
    assert found["between_samples"].isfinite()
    with pytest.warns(UndefinedWarning, match="all of `z` has one direction"):
        found = fed(ProjectorGain(), h, projector, z=torch.ones(2, N, P)).compute()
    assert found["negatives"].isnan()
    with pytest.warns(UndefinedWarning, match="one direction"):
        found = fed(ProjectionAlignment(), h, projector, z=torch.ones(2, N, P)).compute()
    assert all(value.isnan() for value in found.values())
    narrow = linear()
    narrow.weight.data[1] = narrow.weight.data[0]
    with pytest.warns(UndefinedWarning, match="fewer than 3 dimensions"):
        found = fed(ProjectorGain(), h, narrow).compute()
    assert found["augmentations_angles"].isnan().all()
    assert found["augmentations"].isfinite()


def test_only_a_linear_projector_has_a_gain():
    assert ProjectorGain.applies_to(linear())
    assert not ProjectorGain.applies_to(mlp())
    with pytest.raises(ValueError, match=r"`projector` to be one torch\.nn\.Linear, but got Sequential"):
        fed(ProjectorGain(), cloud(), mlp())


@pytest.mark.parametrize("make", [ProjectorGain, ProjectionAlignment])
def test_weights_that_move_are_refused(make):
    projector = linear()
    metric = fed(make(), cloud(), projector)
    with torch.no_grad():
        projector.weight.mul_(2)
    with pytest.raises(ValueError, match="a Linear that stands still"):
        metric.compute()


def test_bad_settings_are_named():
    with pytest.raises(ValueError, match="`samples` >= 1, but got 0"):
        ProjectionAlignment(samples=0)
    with pytest.raises(ValueError, match="`contrast_size` >= 2, but got 1"):
        ProjectorGain(contrast_size=1)


def test_a_random_projector_with_one_direction_leaves_the_other_results():
    wide = nn.Linear(D, 1).double()
    h = cloud() + 10
    with torch.no_grad():
        wide.bias.copy_(-wide.weight @ h.mean((0, 1)))
    for metric in (ProjectionAlignment(), UnexplainedVariance()):
        with pytest.warns(UndefinedWarning):
            found = fed(metric, h, wide).compute()
        undefined = {name for name, value in found.items() if value.isnan()}
        assert undefined
        assert all("random" in name for name in undefined)


@pytest.mark.parametrize("metric", [ProjectorGain, UnexplainedVariance])
def test_a_projector_of_another_width_is_named(metric):
    h = cloud()
    with pytest.raises(ValueError, match="`h` with 9 dimensions, as `projector` has, but got"):
        metric().update(h, h[..., :3], torch.arange(N), projector=nn.Linear(9, 3).double())
