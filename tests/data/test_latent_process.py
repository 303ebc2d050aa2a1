import math
import re

import numpy as np
import pytest
import torch
from scipy import stats

from lightning_ssl_geometry.data import LatentProcess
from lightning_ssl_geometry.functional import counter_hash

N = 20_000
VMF = {"space": "sphere", "conditional": "von_mises_fisher"}
PROCESSES = [
    {"space": space, "marginal": marginal, "conditional": conditional, "marginal_scale": 0.4}
    for space in ("box", "sphere", "unbounded")
    for marginal in ("uniform", "normal", "laplace")
    for conditional in ("normal", "laplace", "generalized_normal", "von_mises_fisher")
    if (space == "sphere" or conditional != "von_mises_fisher") and (space, marginal) != ("unbounded", "uniform")
]


def draw(dim=5, content_dim=2, n=N, seed=0, **settings):
    return LatentProcess(dim, content_dim, **settings).sample(counter_hash(seed, torch.arange(n)))


def distance(x, cdf):
    return stats.kstest(x.double().flatten().numpy(), cdf).pvalue


@pytest.mark.parametrize("settings", PROCESSES, ids=lambda settings: "-".join(map(str, settings.values())))
@pytest.mark.parametrize("content_dim", [0, 2, 3, 5])
def test_content_is_kept_to_the_bit_and_style_is_not(settings, content_dim):
    anchor, positive = draw(content_dim=content_dim, n=500, **settings)
    assert anchor.dtype == positive.dtype == torch.float32
    assert torch.equal(anchor[:, :content_dim], positive[:, :content_dim])
    assert (anchor[:, content_dim:] != positive[:, content_dim:]).float().mean() > 0.99 or content_dim == 5
    if settings["space"] == "sphere":
        assert torch.allclose(positive.norm(dim=1), torch.ones(500))
    if settings["space"] == "box":
        assert all(z.min() >= 0 and z.max() <= 1 for z in (anchor, positive))


def test_marginals_of_the_box():
    assert distance(draw()[0], stats.uniform.cdf) > 1e-3
    normal = draw(marginal="normal", marginal_scale=0.3)[0]
    assert distance(normal, stats.truncnorm(-0.5 / 0.3, 0.5 / 0.3, loc=0.5, scale=0.3).cdf) > 1e-3
    laplace, whole = draw(marginal="laplace", marginal_scale=0.1)[0], stats.laplace(0.5, 0.1)
    assert distance(laplace, lambda t: (whole.cdf(t) - whole.cdf(0)) / (whole.cdf(1) - whole.cdf(0))) > 1e-3


def test_marginals_without_bounds():
    normal = draw(space="unbounded", marginal="normal", marginal_scale=[1.0, 2.0, 3.0, 4.0, 5.0])[0]
    assert distance(normal / torch.arange(1, 6), stats.norm.cdf) > 1e-3
    assert distance(draw(space="unbounded", marginal="laplace", marginal_scale=2.0)[0], stats.laplace(0, 2).cdf) > 1e-3


def test_marginals_of_the_sphere():
    uniform, normal = (draw(space="sphere", marginal=marginal)[0] for marginal in ("uniform", "normal"))
    for z in (uniform, normal):  # an isotropic normal distribution has no direction either
        assert distance((1 + z) / 2, stats.beta(2, 2).cdf) > 1e-3
    narrow = draw(space="sphere", marginal="normal", marginal_scale=[1.0, 1.0, 1.0, 1.0, 0.1])[0]
    assert narrow[:, 4].std() < 0.2 * narrow[:, 0].std()


@pytest.mark.parametrize(
    ("conditional", "law"),
    [
        ("normal", stats.norm(0, 0.1)),
        ("laplace", stats.laplace(0, 0.1)),
        ("generalized_normal", stats.gennorm(3.0, 0, 0.1)),
    ],
)
def test_conditionals_without_bounds(conditional, law):
    anchor, positive = draw(space="unbounded", marginal="normal", conditional=conditional, style_scale=0.1)
    assert distance((positive - anchor)[:, 2:], law.cdf) > 1e-3


def test_conditionals_of_the_box_are_truncated_around_the_anchor():
    anchor, positive = (z[:, 2:].double().numpy() for z in draw(style_scale=0.3))
    law = stats.truncnorm(-anchor / 0.3, (1 - anchor) / 0.3, loc=anchor, scale=0.3)
    assert stats.kstest(law.cdf(positive).ravel(), "uniform").pvalue > 1e-3


def test_scales_by_dimension():
    scales = {"style_scale": [0.01, 0.1, 1.0], "content_scale": [0.0, 3.0]}
    anchor, positive = draw(space="unbounded", marginal="normal", **scales)
    found = (positive - anchor).double().std(0)
    assert torch.allclose(found, torch.tensor([0.0, 3.0, 0.01, 0.1, 1.0], dtype=torch.float64), rtol=0.02)
    assert torch.equal(anchor[:, 0], positive[:, 0])


def test_von_mises_fisher_is_that_of_the_whole_sphere_given_the_content():
    # With d_s = 3 the density of the cosine w on the subsphere is proportional to exp(kappa |z_s|^2 w).
    anchor, positive = (z[:, 2:].double() for z in draw(concentration=20.0, **VMF))
    kappa = 20 * anchor.square().sum(1)
    w = (anchor * positive).sum(1) / anchor.square().sum(1)
    uniform = torch.expm1(kappa * (w - 1) + 2 * kappa).div(torch.expm1(2 * kappa))  # its distribution function
    assert stats.kstest(uniform.numpy(), "uniform").pvalue > 1e-3


def test_noise_on_the_sphere_keeps_the_length_of_the_style():
    anchor, positive = (z[:, 2:].double() for z in draw(space="sphere", style_scale=0.01))
    assert torch.allclose(anchor.norm(dim=1), positive.norm(dim=1), atol=1e-6)
    along = (positive - anchor).square().sum(1).mean() / 2  # two tangent directions of small noise
    assert along.sqrt() == pytest.approx(0.01, rel=0.02)


@pytest.mark.parametrize("content_dim", [2, 4])  # with 4, one style dimension: allowed, as content is not exact
def test_noise_of_content_and_style_on_the_sphere_is_that_of_the_scales_along_it(content_dim):
    scale = torch.tensor([0.001, 0.004, 0.002, 0.008, 0.005], dtype=torch.float64)
    scales = {"content_scale": scale[:content_dim].tolist(), "style_scale": scale[content_dim:].tolist()}
    anchor, positive = draw(content_dim=content_dim, space="sphere", **scales)
    assert anchor.dtype == positive.dtype == torch.float32
    assert torch.allclose(positive.norm(dim=1), torch.ones(N))
    assert ((positive != anchor).double().mean(0) > 0.99).all()
    # z~ - z = (I - z z^T) e up to the noise's square: its covariance given z is P diag(s^2) P, with P = I - z z^T.
    z = anchor.double()
    expected = (torch.eye(5) - z[:, :, None] * z[:, None]).square() @ scale.square()
    found = (positive.double() - z).square()
    assert torch.allclose(found.mean(0).sqrt(), expected.mean(0).sqrt(), rtol=0.03)


def test_normal_noise_that_keeps_its_length_is_von_mises_fisher():
    scales = {"space": "sphere", "content_scale": 0.4, "style_scale": 0.4}

    def cosine_law(**more):  # of equal scales: the density of the cosine t is exp(t / 0.4^2) (1 - t^2) in 5 dimensions
        anchor, positive = draw(**scales, **more).double()
        assert torch.allclose(positive.norm(dim=1), torch.ones(N, dtype=torch.float64))
        grid = torch.linspace(-1, 1, 20_001, dtype=torch.float64)
        mass = torch.cumulative_trapezoid(((grid - 1) / 0.16).exp() * (1 - grid.square()), grid)
        return distance((anchor * positive).sum(1), lambda t: np.interp(t, grid[1:], mass / mass[-1]))

    assert cosine_law(norm_tolerance=0.02) > 1e-3
    assert cosine_law() < 1e-12


def test_normal_noise_that_keeps_its_length_has_the_density_of_its_scales_on_the_sphere():
    scale = torch.tensor([0.2, 0.2, 0.45, 0.45, 0.45], dtype=torch.float64)
    scales = {"space": "sphere", "content_scale": 0.2, "style_scale": 0.45}
    anchor, positive = draw(**scales, norm_tolerance=0.02).double()
    found = (positive - anchor).square().mean(0)
    everywhere = draw(n=4000, seed=1, **scales)[0].double()  # uniform; weighed by the density, slowly
    change = (everywhere - anchor[:1000, None]).square()
    weight = (-change / (2 * scale.square())).sum(2).softmax(1)
    expected = (weight[:, :, None] * change).sum(1).mean(0)
    assert torch.allclose(found, expected, rtol=0.05)
    projected = (draw(**scales)[1].double() - anchor).square().mean(0)
    assert not torch.allclose(projected, expected, rtol=0.08)


def test_noise_that_cannot_keep_its_length_is_an_error():
    with pytest.raises(
        ValueError, match=r"a larger `norm_tolerance` or smaller scales, but got 1e-09 and a pair whose"
    ):
        draw(n=1, space="sphere", content_scale=0.1, norm_tolerance=1e-9)


@pytest.mark.parametrize("settings", [setting for setting in PROCESSES if setting["conditional"] != "laplace"])
def test_latents_are_float32_whatever_the_default_dtype(settings):
    expected = draw(n=20, **settings)
    torch.set_default_dtype(torch.float64)
    try:
        found = draw(n=20, **settings)
    finally:
        torch.set_default_dtype(torch.float32)
    assert found.dtype == torch.float32
    assert torch.equal(found, expected)


def test_scale_0_gives_the_anchor():
    for space in ("box", "sphere"):
        anchor, positive = draw(space=space, style_scale=0.0, n=100)
        assert torch.equal(anchor, positive)


def test_a_pair_depends_on_its_key_alone():
    near = {"space": "sphere", "content_scale": 0.2, "style_scale": 0.5, "norm_tolerance": 0.1}
    for settings in ({}, VMF, {"space": "sphere", "marginal": "laplace"}, near):
        process = LatentProcess(5, 2, **settings)
        key = counter_hash(1, torch.arange(60))
        whole, order = process.sample(key), torch.randperm(60)
        assert torch.equal(process.sample(key[order]), whole[:, order])
        assert torch.equal(process.sample(key[7:8])[:, 0], whole[:, 7])
        assert not (process.sample(counter_hash(2, torch.arange(60))) == whole).any()


def test_content_comes_first():
    assert LatentProcess(4, 1).content.tolist() == [True, False, False, False]


SIZES = {"marginal_scale": 5, "style_scale": 3, "content_scale": 2}
ERRORS = [
    *[({"content_dim": n}, rf"`content_dim` in \[0, 5\], but got {n}") for n in (-1, 6)],
    ({"dim": 0, "content_dim": 0}, "`dim` >= 1, but got 0"),
    *[
        ({name: value}, re.escape(f"`{name}` to be an integer, but got {value!r}."))
        for name in ("dim", "content_dim")
        for value in (2.0, "2", None, [2], math.nan)
    ],
    *[
        ({name: "none"}, rf"`{name}` to be one of \(.*\), but got 'none'")
        for name in ("space", "marginal", "conditional")
    ],
    *[
        ({name: value}, f"`{name}` {least} 0 and finite, but got")
        for name, least in (("marginal_scale", ">"), ("style_scale", ">="), ("content_scale", ">="))
        for value in (-0.1, math.nan, math.inf)
    ],
    ({"marginal": "normal", "marginal_scale": 0.0}, r"`marginal_scale` > 0 and finite, but got 0.0"),
    *[({name: [0.1] * (n + 1)}, f"`{name}` to be a number or {n} of them, but got") for name, n in SIZES.items()],
    *[
        ({name: value}, re.escape(f"`{name}` to be a number or {n} of them, but got {value!r}."))
        for name, n in SIZES.items()
        for value in ("a", ["a", "b"], None, [0.1, None], 1j)
    ],
    *[({"p": value}, "`p` to be a number >= 1 and finite, but got") for value in (0.5, math.nan, math.inf)],
    *[
        (VMF | {"concentration": value}, "`concentration` to be a number >= 0 and finite, but got")
        for value in (-1.0, math.nan, math.inf)
    ],
    *[
        ({name: value}, re.escape(f"`{name}` to be a number >= {least} and finite, but got {value!r}."))
        for name, least in (("p", 1), ("concentration", 0))
        for value in ([1.0, 2.0], torch.ones(2), "a", None)
    ],
    ({"space": "unbounded"}, "`marginal` 'normal' or 'laplace' in the unbounded `space`, but got 'uniform'"),
    ({"conditional": "von_mises_fisher"}, "`space` 'sphere' for von Mises-Fisher positives, but got 'box'"),
    ({"space": "sphere", "dim": 1, "content_dim": 1}, "`dim` >= 2 on the sphere, but got 1"),
    (
        {"space": "sphere", "content_dim": 4},
        "no or several style dimensions beside exact content on the sphere, but got 1",
    ),
    *[({"norm_tolerance": value}, "`norm_tolerance` > 0 and finite, but got") for value in (0.0, -1.0, math.nan, "a")],
    ({"norm_tolerance": 0.1}, "`norm_tolerance` None unless `space` is 'sphere' and .* but got 0.1 with 'box' and 0.0"),
    (
        {"norm_tolerance": 0.1, "space": "sphere"},
        "`norm_tolerance` None unless .* `content_scale` is not 0, but got 0.1 with 'sphere' and 0.0",
    ),
    (VMF | {"content_scale": 0.1}, r"`content_scale` 0 for von Mises-Fisher positives, but got 0\.1"),
]


@pytest.mark.parametrize(("settings", "message"), ERRORS)
def test_bad_settings(settings, message):
    with pytest.raises(ValueError, match=f"Expected {message}"):
        LatentProcess(**({"dim": 5, "content_dim": 2} | settings))
