from itertools import pairwise

import pytest
import torch
from sklearn.linear_model import LinearRegression
from sklearn.metrics import r2_score
from torch import nn

from lightning_ssl_geometry.functional.latent_r2 import latent_r2, moments_r2, row_moments

N, D, LATENTS = 400, 7, 3


def data(noise=0.5, n=N, dim=D):
    h = torch.randn(n, dim, dtype=torch.float64) + 1
    z = h[:, :LATENTS] @ torch.randn(LATENTS, LATENTS, dtype=torch.float64)
    return h, z + noise * torch.randn(n, LATENTS, dtype=torch.float64)


def halves(n=N):
    return torch.rand(n) < 0.6


def from_moments(h, z, fit, **cuts):
    return moments_r2(row_moments(h[fit], z[fit]), row_moments(h[~fit], z[~fit]), h.shape[1], **cuts)


def network(widths, slope):
    layers = []
    for inputs, outputs in pairwise(widths):
        layers += [nn.Linear(inputs, outputs), nn.LeakyReLU(slope)]
    return nn.Sequential(*layers[:-1])


def layers(seed, n=4096):
    """Latents, and the float32 features of every layer of a mixing and a 7-layer encoder behind it."""
    torch.manual_seed(seed)
    z = torch.rand(n, 10)
    mixing, encoder = network([10] * 4, 0.2), network([10, 40, 200, 200, 200, 200, 40, 10], 0.01)
    with torch.no_grad():
        features = [mixing(z)]
        for layer in encoder:
            features.append(layer(features[-1]))
    return z, features


def test_it_is_sklearns_on_the_same_halves_adjusted():
    h, z = data()
    fit = halves()
    model = LinearRegression().fit(h[fit], z[fit])
    r2 = torch.from_numpy(r2_score(z[~fit].numpy(), model.predict(h[~fit]), multioutput="raw_values"))
    n = int((~fit).sum())
    torch.testing.assert_close(latent_r2(h, z, fit), 1 - (1 - r2) * (n - 1) / (n - D - 1))


def test_it_is_least_squares_spelt_out():
    h, z = data()
    fit = halves()
    design = torch.cat([torch.ones(N, 1, dtype=torch.float64), h], 1)
    for k in range(LATENTS):
        weight = torch.linalg.lstsq(design[fit], z[fit, k : k + 1]).solution
        residual = (z[~fit, k : k + 1] - design[~fit] @ weight).square().sum()
        total = (z[~fit, k] - z[~fit, k].mean()).square().sum()
        n = int((~fit).sum())
        expected = 1 - residual / total * (n - 1) / (n - D - 1)
        torch.testing.assert_close(latent_r2(h, z, fit)[k], expected)


def test_without_a_mask_the_first_half_is_fitted():
    for n, half in ((40, 20), (41, 21)):
        h, z = data(n=n)
        torch.testing.assert_close(latent_r2(h, z), latent_r2(h, z, torch.arange(n) < half))


def test_linear_maps_of_the_latents_have_1_and_noise_has_0():
    h, z = data(noise=0)
    torch.testing.assert_close(latent_r2(h, z), torch.ones(LATENTS, dtype=torch.float64))
    r2 = latent_r2(*torch.randn(2, 4000, 5))
    assert (r2.abs() < 0.02).all()


def test_it_does_not_depend_on_the_basis_of_h_or_the_scale_of_z():
    h, z = data()
    fit = halves()
    expected = latent_r2(h, z, fit)
    mapped = h @ torch.randn(D, D, dtype=torch.float64) + torch.randn(D, dtype=torch.float64)
    scaled = h * torch.logspace(-12, 6, D, dtype=torch.float64)
    for features in (mapped, scaled):
        torch.testing.assert_close(latent_r2(features, z, fit), expected)
        torch.testing.assert_close(from_moments(features, z, fit), expected)
    torch.testing.assert_close(latent_r2(h, -3 * z + 5, fit), expected)


@pytest.mark.parametrize("compute", [latent_r2, from_moments])
def test_duplicated_and_constant_features_change_nothing(compute):
    h, z = data()
    fit = halves()
    dull = torch.tensor([0.0, 4.0], dtype=torch.float64).expand(N, 2)
    combined = h[:, :2].sum(1, keepdim=True)
    torch.testing.assert_close(compute(torch.cat([h, h[:, :3], combined, dull], 1), z, fit), latent_r2(h, z, fit))


@pytest.mark.parametrize("value", [0.0, 0.1])
@pytest.mark.parametrize("compute", [latent_r2, from_moments])
def test_constant_features_explain_nothing(compute, value):
    z = torch.randn(N, 2)
    fit = halves()
    scored = z[~fit].double()
    expected = 1 - (scored - z[fit].double().mean(0)).square().mean(0) / scored.var(0, correction=0)
    torch.testing.assert_close(compute(torch.full((N, 3), value), z, fit), expected)


@pytest.mark.parametrize("compute", [latent_r2, from_moments])
def test_a_constant_latent_has_none(compute):
    h, z = data()
    z[:, 1] = 0.3
    assert compute(h, z, halves()).isnan().tolist() == [False, True, False]


@pytest.mark.parametrize("compute", [latent_r2, from_moments])
def test_a_direction_that_the_fit_has_hardly_seen_is_not_used(compute):
    # one feature is 1e-3 of noise over the fitted samples and 1 over the scored: its coefficient is a guess
    h, z = data()
    fit = halves()
    rare = torch.randn(N, 1, dtype=torch.float64) * torch.where(fit, 1e-3, 1.0)[:, None]
    wide = torch.cat([h, rare], 1)
    torch.testing.assert_close(compute(wide, z, fit), latent_r2(h, z, fit), atol=0.02, rtol=0)
    assert (compute(wide, z, fit, seen=1e-9) < -10).any()


def test_a_direction_whose_variance_over_the_fit_is_at_the_bound_is_used():
    # 64 of 256 rows are +-1, so +-2 once their variance is 1; of the 64 fitted rows, two are +1 and two -1: 16 / 64
    h = torch.zeros(256, 1, dtype=torch.float64)
    h[:32], h[32:64] = 1, -1
    fit = torch.zeros(256, dtype=torch.bool)
    fit[[0, 1, 32, 33]], fit[100:160] = True, True
    for compute in (latent_r2, from_moments):
        assert compute(h, 3 * h, fit, seen=0.25).item() == pytest.approx(1)
        assert compute(h, 3 * h, fit, seen=0.2501).item() == pytest.approx(0, abs=1e-9)


def test_a_latent_whose_variance_is_at_the_bound_is_constant():
    # 7 and 1: mean 4, variance 9, mean square 25 = 9 / 0.6^2
    h, z = torch.randn(20, 2, dtype=torch.float64), torch.tensor([7.0, 1.0]).repeat(10)[:, None]
    moments = row_moments(h, z)
    assert [moments_r2(moments, moments, 2, rcond=rcond).isnan().item() for rcond in (0.6, 0.59)] == [True, False]


@pytest.mark.parametrize("seed", range(2))
def test_it_is_stable_on_float32_layers_of_random_networks(seed):
    # plain least squares over the same layers goes down to -1e5
    z, features = layers(seed)
    fit = torch.arange(len(z)) % 2 == 0
    r2 = torch.stack([from_moments(h, z, fit) for h in features])
    first = r2[0].mean()
    assert r2.min() > 0.15
    assert (r2[1:10].mean(1) > first - 0.02).all()  # up to the last wide layer nothing is lost
    assert (r2[1:10].mean(1) < first + 0.1).all()


def test_moments_give_what_the_rows_give_on_float32_layers():
    z, features = layers(0, 1024)
    fit = halves(1024)
    for h in features:
        torch.testing.assert_close(from_moments(h, z, fit), latent_r2(h, z, fit), atol=1e-4, rtol=0)


def test_moments_add_over_batches():
    h, z = data()
    summed = sum(row_moments(h[rows], z[rows]) for rows in torch.arange(N).split(33))
    torch.testing.assert_close(summed, row_moments(h, z))


def test_half_precision_is_taken():
    h, z = data(noise=0)
    for dtype in (torch.float16, torch.bfloat16):
        assert (latent_r2(h.to(dtype), z) > 0.99).all()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"h": torch.zeros(N)}, r"Expected `h` of shape \(N, D\), but got \(400,\)"),
        ({"z": torch.zeros(N - 1, 3)}, r"Expected `z` of shape \(N, d\), N = 400, but got \(399, 3\)"),
        ({"h": torch.full((N, D), torch.nan)}, r"Expected finite `h`, but got 2800 of 2800 values"),
        ({"z": torch.full((N, 1), torch.inf)}, r"Expected finite `z`, but got 400 of 400 values"),
        ({"fit": torch.ones(N)}, r"Expected `fit` \(N,\) of booleans, N = 400, but got torch.float32 \(400,\)"),
        (
            {"fit": torch.ones(3, dtype=torch.bool)},
            r"Expected `fit` \(N,\) of booleans, N = 400, but got torch.bool \(3,",
        ),
        ({"fit": torch.zeros(N, dtype=torch.bool)}, r"Expected `fit` to name at least one sample, but got none"),
        ({"fit": torch.arange(N) >= 8}, r"Expected at least 9 scored samples for p = 7 directions of h, but got 8"),
        ({"rcond": 0.0}, r"Expected `rcond` in \(0, 1\), but got 0.0"),
        ({"seen": torch.nan}, r"Expected `seen` in \(0, 1\), but got nan"),
    ],
)
def test_what_does_not_fit_is_an_error(change, message):
    h, z = data()
    with pytest.raises(ValueError, match=message):
        latent_r2(**{"h": h, "z": z} | change)


@pytest.mark.parametrize(
    ("fit", "score", "dim", "message"),
    [
        (torch.eye(4), torch.eye(3), 1, r"Expected `score` of shape .* = 4.* but got \(3, 3\)"),
        (torch.eye(4), torch.eye(4), 3, r"Expected `fit` of shape .* = 5.* but got \(4, 4\)"),
        (torch.zeros(4, 4), torch.eye(4), 2, r"Expected `fit` of at least one sample"),
        (torch.eye(4), torch.full((4, 4), torch.nan), 2, r"Expected finite `score`"),
        (torch.eye(4) * 2, torch.eye(4), 2, r"Expected at least [2-4] scored samples"),
    ],
)
def test_moments_that_do_not_fit_are_an_error(fit, score, dim, message):
    with pytest.raises(ValueError, match=message):
        moments_r2(fit.double(), score.double(), dim)
    with pytest.raises(ValueError, match=r"Expected `rcond` in \(0, 1\)"):
        moments_r2(fit, score, dim, rcond=1.0)
