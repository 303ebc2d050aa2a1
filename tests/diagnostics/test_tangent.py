import copy
import inspect

import pytest
import torch
from torch import nn

from lightning_ssl_geometry import functional as F
from lightning_ssl_geometry.diagnostics import AugmentationRank, NullSpaceFraction, UnexplainedVariance
from lightning_ssl_geometry.diagnostics.tangent import is_linear_projector, projector_weight
from lightning_ssl_geometry.nn import MLPProjector

N, D, P = 300, 10, 4


def cloud(n=N, seed=0):
    generator = torch.Generator().manual_seed(seed)
    base = torch.randn(n, D, generator=generator, dtype=torch.float64)
    return torch.stack([base + 0.3 * torch.randn(n, D, generator=generator, dtype=torch.float64) for _ in range(2)])


def linear(seed=1):
    projector = nn.Linear(D, P, bias=False).double()
    projector.weight.data = torch.randn(
        P, D, generator=torch.Generator().manual_seed(seed), dtype=torch.float64
    ) * torch.tensor([[1.0], [0.6], [0.2], [1e-3]])
    return projector


def observed(metric, h, projector):
    z = projector(h.flatten(0, 1)).detach().unflatten(0, (2, -1))
    given = {"h": h, "z": z, "index": torch.arange(h.shape[1]), "projector": projector}
    metric.update(**{name: given[name] for name in inspect.signature(metric.update).parameters})
    return metric.compute()


def test_unexplained_variance_is_the_function_of_the_displacements():
    h, projector = cloud(), linear()
    weight, z = projector.weight.detach().T, projector(h).detach()
    found = observed(UnexplainedVariance(tau=0.1), h, projector)
    index, view, _ = F.hardest_negative(z[0], z[1])
    delta = h[1] - h[view, index]
    torch.testing.assert_close(found["full"], F.unexplained_variance(delta, weight))
    torch.testing.assert_close(found["tau"], F.unexplained_variance(delta, weight, 0.1))
    assert found["full_isotropic"].item() == pytest.approx(1 - P / D)
    assert found["tau_isotropic"].item() == pytest.approx(1 - 3 / D)
    assert 0 <= found["full"] <= found["tau"] <= 1


def test_the_negative_is_found_in_the_projectors_space_and_taken_in_the_encoders():
    # In h sample 1 is as near to sample 0 as sample 2 is; the projector sees the last two axes alone: sample 2 is.
    h = torch.tensor([[1.0, 1.0, 0.0], [1.0, -1.0, 0.1], [-1.0, 1.0, 0.2]], dtype=torch.float64)
    projector = nn.Linear(3, 2, bias=False).double()
    projector.weight.data = torch.eye(3, dtype=torch.float64)[1:]
    found = observed(UnexplainedVariance(contrast_size=3), torch.stack([h, h]), projector)
    delta = torch.stack([h[0] - h[2], h[1] - h[2], h[2] - h[0]])
    torch.testing.assert_close(found["full"], delta[:, 0].square().sum() / delta.square().sum())


def test_rotating_h_together_with_w_changes_nothing():
    h, projector = cloud(), linear()
    q = torch.linalg.qr(torch.randn(D, D, dtype=torch.float64)).Q
    turned = copy.deepcopy(projector)
    turned.weight.data = projector.weight.data @ q.T
    for metric in (UnexplainedVariance(), NullSpaceFraction(), AugmentationRank()):
        before = observed(copy.deepcopy(metric), h, projector)
        after = observed(copy.deepcopy(metric), h @ q.T, turned)
        for name in set(before) - {"full_random", "tau_random"}:
            torch.testing.assert_close(after[name], before[name])


def test_null_space_fraction_is_the_function_of_the_augmentation_directions():
    h, projector = cloud(), linear()
    found = observed(NullSpaceFraction(), h, projector)
    weight = projector.weight.detach().T
    torch.testing.assert_close(found["fraction"], F.null_space_fraction(h[1] - h[0], weight))
    assert found["isotropic"].item() == pytest.approx(1 - 3 / D)  # the fourth singular value is below 1%
    assert abs(found["fraction"] - found["isotropic"]) < 0.05  # this cloud's augmentations have no preference


def test_augmentations_in_the_kernel_are_found_there():
    h, projector = cloud(), linear()
    basis = torch.linalg.svd(projector.weight.detach()).Vh[P:]
    h[1] = h[0] + torch.randn(N, D - P, dtype=torch.float64) @ basis
    assert observed(NullSpaceFraction(), h, projector)["fraction"].item() == pytest.approx(1)
    found = observed(AugmentationRank(), h, projector)
    assert found["rank"] == D - P
    spectrum = torch.linalg.svdvals(h[1] - h[0]) / N**0.5
    torch.testing.assert_close(found["singular_values"], spectrum, atol=1e-7, rtol=1e-6)


def test_views_that_coincide_have_no_directions():
    h, projector = cloud(), linear()
    h[1] = h[0]
    assert observed(NullSpaceFraction(), h, projector)["fraction"].isnan()
    assert observed(AugmentationRank(), h, projector)["rank"] == 0


def test_embeddings_that_are_all_equal_have_no_hardest_negative():
    h, projector = torch.ones(2, 5, D, dtype=torch.float64), linear()
    found = observed(UnexplainedVariance(), h, projector)
    assert found["full"].isnan()
    assert found["tau"].isnan()
    assert not found["full_isotropic"].isnan()


def test_fewer_pairs_than_dimensions_describe_these_pairs():
    h, projector = cloud(n=3), linear()
    assert observed(AugmentationRank(), h, projector)["rank"] == 3
    assert 0 <= observed(UnexplainedVariance(), h, projector)["full"] <= 1


def test_what_counts_as_linear():
    layer = nn.Linear(D, P)
    assert torch.equal(projector_weight(layer), layer.weight.T)
    assert not projector_weight(layer).requires_grad
    assert torch.equal(projector_weight(nn.Sequential(nn.Identity(), layer, nn.Dropout())), layer.weight.T)
    assert projector_weight(MLPProjector(D, out_dim=P, depth=1)).shape == (D, P)
    for other in (MLPProjector(D), nn.Sequential(layer, nn.ReLU()), nn.BatchNorm1d(D), nn.Identity(), nn.Sequential()):
        assert not is_linear_projector(other)


@pytest.mark.parametrize("metric", [UnexplainedVariance(), NullSpaceFraction()])
def test_a_projector_that_is_not_linear_is_named_with_what_works(metric):
    projector = MLPProjector(D, 8, P).double().eval()
    h = cloud()
    message = (
        "`projector` to be one torch.nn.Linear, but got MLPProjector.*JacobianRank, LinearRegions, LocalUnexplained"
    )
    with pytest.raises(ValueError, match=message):
        observed(copy.deepcopy(metric), h, projector)


@pytest.mark.parametrize("metric", [UnexplainedVariance(), NullSpaceFraction()])
def test_weights_that_move_are_refused(metric):
    h, projector = cloud(), linear()
    observed(metric := copy.deepcopy(metric), h, projector)
    with torch.no_grad():
        projector.weight.mul_(2)
    metric._computed = None
    for look in (lambda: observed(metric, h, projector), metric.compute):
        with pytest.raises(ValueError, match=r"a Linear that stands still.*stages 'val', 'test' or 'probe'"):
            look()
    metric.reset()
    observed(metric, h, projector)  # a reset forgets the old weights
    metric.reset()
    with (
        pytest.warns(UserWarning, match="before the"),
        pytest.raises(ValueError, match="observed a module, but got none"),
    ):
        metric.compute()


ONE_VIEW, VIEWS = torch.ones(1, 3, D), r"`h` of shape \(V, N, D\) with V >= 2 views"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: UnexplainedVariance(tau=2), r"`tau` in \(0, 1\], but got 2"),
        (lambda: NullSpaceFraction(mode="share"), "`mode` to be one of"),
        (lambda: AugmentationRank(tau=-1), r"`tau` in \(0, 1\], but got -1"),
        (lambda: AugmentationRank().update(ONE_VIEW), VIEWS + r", but got \(1, 3, 10\)"),
        (lambda: UnexplainedVariance().update(ONE_VIEW, ONE_VIEW, torch.arange(3), projector=linear()), VIEWS),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def pairs_between(h):
    return torch.stack([a - b for i, a in enumerate(h) for j, b in enumerate(h) if i != j])


def test_the_baselines_are_those_of_all_pairs_of_samples_and_of_the_leading_directions():
    h, projector = cloud(n=40) + 3, linear()
    weight = projector.weight.detach().T
    between = pairs_between(h[0])
    null = observed(NullSpaceFraction(tau=0.1), h, projector)
    torch.testing.assert_close(null["between_samples"], F.null_space_fraction(between, weight, 0.1))
    leading = torch.linalg.svd(h[1] - h[0]).Vh[:3].T  # three singular values reach 0.1
    torch.testing.assert_close(null["floor"], F.unexplained_variance(h[1] - h[0], leading))
    found = observed(UnexplainedVariance(tau=0.1), h, projector)
    for name, tau, rank in (("full", None, 4), ("tau", 0.1, 3)):
        expected = F.unexplained_variance(between, weight, tau)
        torch.testing.assert_close(found[f"{name}_between_samples"], expected)
        assert found[f"{name}_floor"] < min(found[name], found[f"{name}_isotropic"])
        assert found[f"{name}_isotropic"].item() == pytest.approx(1 - rank / D)


def test_a_projector_onto_the_leading_directions_is_at_the_floor():
    h = cloud()
    projector = nn.Linear(D, P, bias=False).double()
    projector.weight.data = torch.linalg.svd(h[1] - h[0]).Vh[:P]
    found = observed(NullSpaceFraction(), h, projector)
    torch.testing.assert_close(found["fraction"], found["floor"])


def test_the_shares_between_samples_do_not_depend_on_batches_or_the_origin():
    h, projector = cloud(), linear()
    once = observed(NullSpaceFraction(), h, projector)
    metric = NullSpaceFraction()
    for rows in torch.arange(N).split(37):
        metric.update(h[:, rows] + 1e4, projector)
    for name, value in metric.compute().items():
        torch.testing.assert_close(value, once[name], rtol=1e-6, atol=1e-8)


def test_samples_that_coincide_have_no_share_between_them():
    h, projector = cloud(), linear()
    h[0] = h[0, :1]
    for metric, name in ((NullSpaceFraction(), "between_samples"), (UnexplainedVariance(), "full_between_samples")):
        for dtype in (torch.float64, torch.float32):
            found = observed(copy.deepcopy(metric), h.to(dtype) + 0.1, copy.deepcopy(projector).to(dtype))
            assert found[name].isnan()
            assert found["fraction" if "fraction" in found else "full"].isfinite()


def test_the_random_projector_is_one_with_hardest_negatives_of_its_own():
    h, projector = cloud(), linear()
    weight = projector.weight.detach().T
    expected, generator = [], torch.Generator().manual_seed(2)
    for _ in range(200):
        w = torch.linalg.qr(torch.randn(D, D, generator=generator, dtype=torch.float64)).Q @ weight
        index, view, _ = F.hardest_negative(h[0] @ w, h[1] @ w)
        expected.append(F.unexplained_variance(h[1] - h[view, index], w, 0.1))
    expected = torch.stack(expected)
    found = torch.stack([observed(UnexplainedVariance(tau=0.1, seed=k), h, projector)["tau_random"] for k in range(80)])
    assert abs(found.mean() - expected.mean()) < 4 * (found.var() / 80 + expected.var() / 200) ** 0.5
    assert found.mean() > 1 - 3 / D + 0.02  # above isotropic: they are near behind it


def test_a_projector_that_is_not_finite_is_refused():
    projector = linear()
    projector.weight.data[0, 0] = torch.nan
    h = cloud()
    with pytest.raises(ValueError, match="finite `weight`"):
        observed(UnexplainedVariance(), h, projector)
