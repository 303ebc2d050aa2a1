import math

import pytest
import torch

from lightning_ssl_geometry.functional.vicreg import vicreg, vicreg_terms


def views(n, p, dtype=torch.float64):
    """Two views with dimensions on both sides of the hinge."""
    spread = torch.linspace(0.3, 2.0, p, dtype=torch.float64)
    return [(torch.randn(n, p, dtype=torch.float64) * spread + 1).to(dtype).requires_grad_() for _ in range(2)]


def slow_terms(z1, z2, gamma=1.0, eps=1e-4):
    """Every sum by itself, as Eq. 1-5 are read, with the official code's denominators."""
    n, p = z1.shape
    s = sum((z1[i, j] - z2[i, j]) ** 2 for i in range(n) for j in range(p)) / (n * p)
    v = c = 0
    for z in (z1, z2):
        mean = [sum(z[i, j] for i in range(n)) / n for j in range(p)]

        def covariance(j, k, z=z, mean=mean):
            return sum((z[i, j] - mean[j]) * (z[i, k] - mean[k]) for i in range(n)) / (n - 1)

        hinge = [torch.clamp(gamma - torch.sqrt(covariance(j, j) + eps), min=0) for j in range(p)]
        v = v + sum(hinge) / p / 2
        c = c + sum(covariance(j, k) ** 2 for j in range(p) for k in range(p) if j != k) / p
    return s, v, c


def whitened(n, p, std=1.0):
    """Centred, uncorrelated dimensions of this standard deviation."""
    x = torch.randn(n, p, dtype=torch.float64)
    return torch.linalg.qr(x - x.mean(dim=0)).Q * std * math.sqrt(n - 1)


@pytest.mark.parametrize("settings", [{}, {"gamma": 2.0}, {"eps": 0.5}], ids=str)
@pytest.mark.parametrize("shape", [(2, 3), (7, 4), (3, 5), (4, 1)], ids=str)
def test_terms_and_their_gradients_equal_the_loop(shape, settings):
    z1, z2 = views(*shape)
    terms, reference = vicreg_terms(z1, z2, **settings), slow_terms(z1, z2, **settings)
    torch.testing.assert_close(
        torch.stack(terms), torch.stack([torch.as_tensor(t) + z1.new_zeros(()) for t in reference])
    )
    weights = (2.0, 3.0, 5.0)
    loss = vicreg(z1, z2, *weights, **settings)
    expected = sum(weight * term for weight, term in zip(weights, reference, strict=True))
    torch.testing.assert_close(loss, expected)
    torch.testing.assert_close(torch.autograd.grad(loss, (z1, z2)), torch.autograd.grad(expected, (z1, z2)))


def test_gradcheck():
    z1, z2 = views(5, 3)
    assert torch.autograd.gradcheck(vicreg, (z1, z2))
    assert torch.autograd.gradcheck(vicreg_terms, (z1, z2))


def test_defaults_are_the_official_weights():
    z1, z2 = views(9, 4)
    s, v, c = vicreg_terms(z1, z2)
    torch.testing.assert_close(vicreg(z1, z2), 25 * s + 25 * v + c)


def test_the_papers_equation_6_has_other_weights():
    z1, z2 = views(9, 4)
    lam, mu, nu = 3.0, 5.0, 7.0
    s = sum((a - b).norm() ** 2 for a, b in zip(z1, z2, strict=True)) / 9
    v = sum(torch.relu(1 - (z.var(dim=0) + 1e-4).sqrt()).sum() / 4 for z in (z1, z2))
    c = sum((z.T.cov().square().sum() - z.T.cov().diag().square().sum()) / 4 for z in (z1, z2))
    torch.testing.assert_close(vicreg(z1, z2, lam * 4, 2 * mu, nu), lam * s + mu * v + nu * c)


def test_identical_whitened_views_have_no_loss():
    z = whitened(16, 5)
    torch.testing.assert_close(torch.stack(vicreg_terms(z, z)), torch.zeros(3, dtype=torch.float64))
    assert vicreg(z, z).item() == pytest.approx(0)


def test_too_little_spread_is_what_is_missing():
    # Var = 1/4 in each dimension of view 1, nothing missing in view 2: (1 - sqrt(1/4 + eps)) / 2.
    _, v, c = vicreg_terms(whitened(16, 5, std=0.5), whitened(16, 5, std=2.0))
    assert v.item() == pytest.approx((1 - math.sqrt(0.25 + 1e-4)) / 2)
    assert c.item() == pytest.approx(0)


def test_a_constant_shift_is_invariance_only():
    z = whitened(16, 5)
    s, v, c = vicreg_terms(z, z + 3)
    assert s.item() == pytest.approx(9)
    assert (v.item(), c.item()) == pytest.approx((0, 0))


def test_embeddings_on_a_line_have_the_largest_covariance():
    # All P dimensions are one: P (P-1) entries of Var = 4 each, over P, in each view.
    z = whitened(16, 1, std=2.0).expand(16, 5)
    _, v, c = vicreg_terms(z, z)
    assert c.item() == pytest.approx(2 * 4 * 4**2)
    assert v.item() == 0


def test_collapse_costs_gamma_and_has_a_finite_gradient():
    z = torch.ones(6, 3, dtype=torch.float64, requires_grad=True)
    s, v, c = vicreg_terms(z, z, gamma=2.0, eps=1e-2)
    assert (s.item(), v.item(), c.item()) == pytest.approx((0, 2 - 0.1, 0))
    (gradient,) = torch.autograd.grad(v, z)
    assert (gradient == 0).all()


def test_bounds():
    for _ in range(20):
        z1, z2 = (z.detach() for z in views(6, 4))
        s, v, c = vicreg_terms(z1, z2)
        variances = torch.stack([z.var(dim=0) for z in (z1, z2)])
        largest = (variances.sum(dim=1) ** 2 - variances.square().sum(dim=1)).sum() / 4  # C_jk^2 <= C_jj C_kk
        assert s >= 0
        assert 0 <= v <= 1 - 1e-2
        assert 0 <= c <= largest


def test_what_changes_nothing():
    z1, z2 = views(9, 4)
    s, v, c = vicreg_terms(z1, z2)
    samples, dimensions = torch.randperm(9), torch.randperm(4)
    permuted = vicreg_terms(z1[samples][:, dimensions], z2[samples][:, dimensions])
    torch.testing.assert_close(permuted, (s, v, c))
    torch.testing.assert_close(vicreg_terms(z2, z1), (s, v, c))
    torch.testing.assert_close(vicreg_terms(z1 + 5, z2 + 5), (s, v, c))
    rotation = torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    torch.testing.assert_close(vicreg_terms(z1 @ rotation, z2 @ rotation)[0], s)
    moved = vicreg_terms(z1 + torch.randn(4, dtype=torch.float64), z2[samples])  # no term but s compares views
    torch.testing.assert_close(moved[1:], (v, c))


def test_scaling():
    z1, z2 = views(9, 4)
    s, v, c = vicreg_terms(z1, z2, gamma=1.0, eps=1e-4)
    torch.testing.assert_close(vicreg_terms(3 * z1, 3 * z2, gamma=3.0, eps=9e-4), (9 * s, 3 * v, 81 * c))


def test_a_weight_of_zero_leaves_its_term_out():
    z1, z2 = views(9, 4)
    for i, term in enumerate(vicreg_terms(z1, z2)):
        weights = [float(i == j) for j in range(3)]
        assert torch.equal(vicreg(z1, z2, *weights), term)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    z1, z2 = views(33, 8, dtype)
    loss = vicreg(z1, z2)
    loss.backward()
    assert loss.dtype == torch.float32
    assert z1.grad.dtype == dtype
    assert torch.isfinite(z1.grad).all()
    torch.testing.assert_close(loss.double(), vicreg(z1.double(), z2.double()), rtol=1e-5, atol=1e-5)


def test_large_half_precision_does_not_overflow():
    z = torch.full((4, 2), 300.0, dtype=torch.float16)
    z[0] = -300.0  # 600^2 is above float16's largest number
    # mean difference 600^2, variance 300^2 in both dimensions, their covariance the same
    assert vicreg(z, -z).item() == pytest.approx(25 * 600**2 + 2 * (300.0**2) ** 2, rel=1e-6)


def test_float64_is_kept():
    z1, z2 = views(5, 3)
    assert vicreg(z1, z2).dtype == torch.float64
    assert vicreg(z1.float(), z2).dtype == torch.float64


def test_autocast_changes_nothing():
    z1, z2 = views(33, 8, torch.float32)
    plain = vicreg(z1, z2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = vicreg(z1, z2)
        gradients = torch.autograd.grad(loss, (z1, z2))  # inside, as manual optimization runs it
    assert torch.equal(loss, plain)
    assert all(map(torch.equal, gradients, torch.autograd.grad(plain, (z1, z2))))


def test_nan_stays_nan():
    z1, z2 = (z.detach() for z in views(6, 4))
    z1[3, 1] = math.nan
    assert vicreg(z1, z2).isnan()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"invariance": -1.0}, r"Expected `invariance` >= 0 and finite, but got -1\.0"),
        ({"variance": -0.5}, r"Expected `variance` >= 0 and finite, but got -0\.5"),
        ({"covariance": math.nan}, "Expected `covariance` >= 0 and finite, but got nan"),
        ({"covariance": math.inf}, "Expected `covariance` >= 0 and finite, but got inf"),
        ({"gamma": 0.0}, r"Expected `gamma` > 0 and finite, but got 0\.0"),
        ({"gamma": math.inf}, "Expected `gamma` > 0 and finite, but got inf"),
        ({"gamma": math.nan}, "Expected `gamma` > 0 and finite, but got nan"),
        ({"eps": 0.0}, r"Expected `eps` with 0 < eps < gamma\^2 = 1\.0, but got 0\.0"),
        ({"eps": 1.0}, r"Expected `eps` with 0 < eps < gamma\^2 = 1\.0, but got 1\.0"),
        ({"gamma": 2.0, "eps": 5.0}, r"Expected `eps` with 0 < eps < gamma\^2 = 4\.0, but got 5\.0"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(settings, message):
    z = torch.ones(4, 3)
    with pytest.raises(ValueError, match=message):
        vicreg(z, z, **settings)
    if settings.keys() <= {"gamma", "eps"}:
        with pytest.raises(ValueError, match=message):
            vicreg_terms(z, z, **settings)


@pytest.mark.parametrize("function", [vicreg, vicreg_terms])
def test_wrong_views_are_named(function, wrong_views):
    z1, z2, message = wrong_views
    with pytest.raises(ValueError, match=message):
        function(z1, z2)


@pytest.mark.parametrize("function", [vicreg, vicreg_terms])
@pytest.mark.parametrize("n", [0, 1])
def test_samples_without_a_variance_are_refused(function, n):
    with pytest.raises(ValueError, match=f"N >= 2 samples, which have a variance, but got {n}"):
        function(torch.ones(n, 3), torch.ones(n, 3))
