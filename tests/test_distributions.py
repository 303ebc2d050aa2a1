import math

import numpy as np
import pytest
import torch
from scipy import integrate, special, stats

from lightning_ssl_geometry.functional import counter_hash, generalized_normal, uniform_sphere, von_mises_fisher

N = 20_000
INF = math.inf


def keys(*shape, seed=0):
    return counter_hash(seed, torch.arange(math.prod(shape)).view(shape))


def distance(x, cdf):
    return stats.kstest(x.double().flatten().numpy(), cdf).pvalue


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 8.0])
@pytest.mark.parametrize(
    ("mean", "scale", "low", "high"),
    [
        (0.3, 2.0, -INF, INF),
        (0.3, 0.05, 0.0, 1.0),
        (0.02, 0.3, 0.0, 1.0),
        (1.0, 0.7, 0.0, 1.0),  # at the edge
        (0.9, 30.0, 0.0, 1.0),  # far wider than the interval
        (0.5, 0.2, 0.4, INF),
    ],
)
def test_it_is_scipys_generalised_normal(p, mean, scale, low, high):
    whole = stats.gennorm(p, loc=mean, scale=scale)
    below, above = whole.cdf(low), whole.cdf(high)
    x = generalized_normal(torch.full((N, 1), mean), scale, p, keys(N, 1), low, high)
    assert distance(x, lambda t: (whole.cdf(t) - below) / (above - below)) > 1e-3
    assert x.min() >= low
    assert x.max() <= high


def test_it_is_normal_at_2_and_laplace_at_1():
    mean, key = torch.full((N, 1), 0.4), keys(N, 1)
    normal = generalized_normal(mean, math.sqrt(2) * 0.3, 2.0, key, 0.0, 1.0)
    assert distance(normal, stats.truncnorm(-0.4 / 0.3, 0.6 / 0.3, loc=0.4, scale=0.3).cdf) > 1e-3
    assert distance(generalized_normal(mean, 0.3, 1.0, key), stats.laplace(0.4, 0.3).cdf) > 1e-3


def test_an_ever_wider_one_is_uniform_in_the_box():
    x = generalized_normal(torch.full((N, 1), 0.3), 1e12, 3.0, keys(N, 1), 0.0, 1.0)
    assert distance(x, stats.uniform.cdf) > 1e-3


def test_elements_are_independent_and_have_their_own_scale():
    scale = torch.tensor([0.1, 1.0, 10.0])
    x = generalized_normal(torch.zeros(N, 3), scale, 2.0, keys(N, 3))
    assert torch.allclose(x.std(0), scale / math.sqrt(2), rtol=0.02)
    assert torch.corrcoef(torch.cat([x[1:], x[:-1]], 1).T).fill_diagonal_(0).abs().max() < 5 / N**0.5
    turned = generalized_normal(torch.zeros(N, 3), scale.expand(N, 3), 2.0, keys(N, 3))
    assert torch.equal(x, turned)


def test_scale_0_gives_the_mean_bit_for_bit():
    mean = torch.rand(100, 2)
    assert torch.equal(generalized_normal(mean, 0.0, 2.0, keys(100, 2), 0.0, 1.0), mean)
    mixed = generalized_normal(mean, torch.tensor([0.0, 0.1]), 2.0, keys(100, 2), 0.0, 1.0)
    assert torch.equal(mixed[:, 0], mean[:, 0])
    assert (mixed[:, 1] != mean[:, 1]).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_it_has_the_means_dtype_and_stays_in_an_interval_that_is_no_float32(dtype):
    mean = torch.full((N, 1), 0.3, dtype=dtype)
    x = generalized_normal(mean, 1e3, 2.0, keys(N, 1), 0.1 + 1e-12, 0.3 + 1e-7)
    assert x.dtype == dtype
    assert x.double().min() >= 0.1
    assert x.double().max() <= 0.3 + 1e-7


def rows(key, mean, scale, concentration):
    yield generalized_normal(mean, scale, 1.5, key[:, None] + torch.arange(mean.shape[1]), -0.5, 1.0)
    yield von_mises_fisher(torch.nn.functional.normalize(mean, dim=1), concentration, key)
    yield uniform_sphere(key, 4)


def test_a_row_is_the_same_alone_and_in_any_order():
    n = 200
    key, mean = keys(n), torch.rand(n, 3)
    scale, concentration = torch.rand(n, 3), 50 * torch.rand(n)
    order = torch.randperm(n)
    together = list(rows(key, mean, scale, concentration))
    shuffled = rows(key[order], mean[order], scale[order], concentration[order])
    for whole, other in zip(together, shuffled, strict=True):
        assert torch.equal(whole[order], other)
    for i in range(0, n, 20):
        alone = rows(*(x[i : i + 1] for x in (key, mean, scale, concentration)))
        assert all(torch.equal(whole[i], one[0]) for whole, one in zip(together, alone, strict=True))


@pytest.mark.parametrize("dim", [1, 2, 3, 10])
def test_uniform_points_have_every_direction(dim):
    x = uniform_sphere(keys(N), dim).double()
    assert torch.allclose(x.norm(dim=1), torch.ones(N, dtype=torch.float64))
    assert x.mean(0).abs().max() < 5 / N**0.5
    assert torch.allclose(x.T @ x / N, torch.eye(dim, dtype=torch.float64) / dim, atol=5 / N**0.5)
    if dim > 1:  # (1 + t) / 2 of a coordinate t is of Beta((d - 1) / 2, (d - 1) / 2)
        assert distance((1 + x[:, 0]) / 2, stats.beta((dim - 1) / 2, (dim - 1) / 2).cdf) > 1e-3


def angle_cdf(dim, kappa):
    """The distribution function of the density exp(kappa cos a) sin(a)^(d - 2), by numerical integration."""
    reach = min(math.pi, 12 * math.sqrt(dim / kappa)) if kappa else math.pi
    angle = np.linspace(0, reach, 20_001)
    density = np.exp(-2 * kappa * np.sin(angle / 2) ** 2) * np.sin(angle) ** (dim - 2)
    total = integrate.cumulative_simpson(density, x=angle, initial=0)
    return lambda t: np.interp(t, angle, total / total[-1])


@pytest.mark.parametrize("dim", [2, 3, 5, 10])
@pytest.mark.parametrize("kappa", [0.0, 0.05, 1.0, 30.0, 1e6])
def test_the_angle_to_the_mean_has_von_mises_and_fishers_law(dim, kappa):
    mean = torch.nn.functional.normalize(torch.randn(1, dim, dtype=torch.float64)).expand(N, dim)
    x = von_mises_fisher(mean, kappa, keys(N))
    assert torch.allclose(x.norm(dim=1), torch.ones(N, dtype=torch.float64))
    angle = 2 * torch.asin(((x - mean).norm(dim=1) / 2).clamp(max=1))  # exact for small ones, unlike the cosine's
    assert distance(angle, angle_cdf(dim, kappa)) > 1e-3


@pytest.mark.parametrize(("dim", "kappa"), [(2, 0.5), (3, 10.0), (5, 4.0), (10, 100.0)])
def test_its_moments_are_scipys(dim, kappa):
    mean = torch.nn.functional.normalize(torch.randn(1, dim))
    x = von_mises_fisher(mean.expand(N, dim), kappa, keys(N)).double()
    ratio = special.ive(dim / 2, kappa) / special.ive(dim / 2 - 1, kappa)  # A_d(kappa), the length of the mean
    assert torch.allclose(x.mean(0), ratio * mean[0].double(), atol=5 / N**0.5)
    theirs = stats.vonmises_fisher(mean[0].double().numpy() / mean.double().norm().item(), kappa, seed=0).rvs(N)
    assert torch.allclose(x.T @ x / N, torch.from_numpy(theirs.T @ theirs / N), atol=7 / N**0.5)


def test_every_row_has_its_own_concentration_and_mean():
    kappa = torch.tensor([0.0, 2.0, 50.0, 1e4]).repeat(N)
    mean = uniform_sphere(keys(4 * N), 4).double()
    x = von_mises_fisher(mean, kappa, keys(4 * N))
    for i in range(4):
        angle = 2 * torch.asin(((x - mean)[i::4].norm(dim=1) / 2).clamp(max=1))
        assert distance(angle, angle_cdf(4, kappa[i].item())) > 1e-3
    tangent = torch.nn.functional.normalize(x - (x * mean).sum(1, keepdim=True) * mean, dim=1)
    assert tangent.mean(0).abs().max() < 5 / (4 * N) ** 0.5


def test_float32_rows_are_of_unit_length():
    x = von_mises_fisher(uniform_sphere(keys(N), 6), 1e6, keys(N, seed=1))
    assert x.dtype == torch.float32
    assert (x.double().norm(dim=1) - 1).abs().max() < 2e-7


ZERO, KEY, AXES = torch.zeros(3, 2), keys(3, 2), torch.eye(3)
NORMAL, VMF, SPHERE = generalized_normal, von_mises_fisher, uniform_sphere
SCALES = (-0.1, math.nan, INF, torch.tensor([0.1, -0.1]))
CONCENTRATIONS = (-1.0, math.nan, INF, torch.tensor([1.0, -1.0, 1.0]))
ERRORS = [
    *[(NORMAL, (ZERO, scale, 2.0, KEY), "`scale` >= 0 and finite") for scale in SCALES],
    *[
        (NORMAL, (ZERO, torch.ones(size), 2.0, KEY), r"`scale` to be a number or to fit shape \(3, 2\), but got")
        for size in ((3,), (2, 2), (3, 1))
    ],
    *[(NORMAL, (ZERO, 1.0, p, KEY), "`p` >= 1 and finite, but got") for p in (0.9, math.nan, INF, -2.0)],
    *[
        (NORMAL, (ZERO + mean, 1.0, 2.0, KEY, 0.0, 1.0), r"`mean` in \[0.0, 1.0\] and finite, but got values in")
        for mean in (-0.1, 1.1, math.nan, INF)
    ],
    (NORMAL, (ZERO + INF, 1.0, 2.0, KEY), r"`mean` in \[-inf, inf\] and finite, but got values in \[inf, inf\]"),
    (NORMAL, (ZERO, 1.0, 2.0, keys(3)), r"`key` of the shape of `mean`, \(3, 2\), but got \(3,\)"),
    (VMF, (AXES[:1], 1.0, keys(2)), r"`key` of shape \(N,\), N = 1, but got \(2,\)"),
    (VMF, (torch.ones(3, 1), 1.0, keys(3)), r"`mean.shape\[1\]` >= 2, but got 1"),
    (VMF, (torch.ones(3), 1.0, keys(3)), r"`mean` of shape \(N, d\), but got"),
    *[(VMF, (k * AXES, 1.0, keys(3)), "`mean` of length 1, but got lengths in") for k in (0.0, 0.9, math.nan)],
    *[(VMF, (AXES, value, keys(3)), "`concentration` >= 0 and finite") for value in CONCENTRATIONS],
    (VMF, (AXES, torch.ones(2), keys(3)), r"`concentration` to be a number or to fit shape \(3,\), but got \(2,\)"),
    (SPHERE, (keys(2, 3), 3), r"`key` of shape \(N,\), but got \(2, 3\)"),
    (SPHERE, (keys(3), 0), "`dim` >= 1, but got 0"),
]


@pytest.mark.parametrize(("function", "arguments", "message"), ERRORS)
def test_bad_input(function, arguments, message):
    with pytest.raises(ValueError, match=f"Expected {message}"):
        function(*arguments)
