import math

import pytest
import torch
from torch.nn.functional import softplus

from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.terms import alignment_uniformity_terms
from lightning_ssl_geometry.random import (
    counter_hash,
    counter_uniform,
    generalized_normal,
    uniform_sphere,
    von_mises_fisher,
)

SETTINGS = {
    "cosine": {"temperature": 0.5},
    "cosine, sharp": {"temperature": 0.004},
    "cosine, per dimension": {"temperature": (0.2, 1.0, 0.5)},
    "dot": {"temperature": 2.0, "normalize": False},
    "dot, per dimension": {"temperature": (0.2, 1.0, 0.5), "normalize": False},
    "distance": {"temperature": 0.7, "normalize": False, "similarity": "distance"},
    "distance on the sphere": {"temperature": 0.3, "similarity": "distance"},
    "distance, per dimension": {"temperature": (0.2, 1.0, 0.5), "normalize": False, "similarity": "distance"},
}


def views(n=9, p=3, dtype=torch.float64):
    return [(torch.randn(n, p, dtype=torch.float64) + 1).to(dtype).requires_grad_() for _ in range(2)]


def slow(z1, z2, temperature, normalize=True, similarity="dot", include_self=False):
    """Every term by itself."""
    if normalize:
        z1, z2 = (z / z.norm(dim=1, keepdim=True) for z in (z1, z2))
    tau = torch.as_tensor(temperature, dtype=z1.dtype).expand(z1.shape[1])

    def s(a, b):
        return (a * b / tau).sum() if similarity == "dot" else -((a - b).square() / tau).sum()

    n = len(z1)
    align = torch.stack([-s(z1[i], z2[i]) for i in range(n)])
    negatives = [[s(z1[i], z1[j]) for j in range(n) if include_self or j != i] for i in range(n)]
    uniform = torch.stack([torch.stack(terms).logsumexp(dim=0) for terms in negatives])
    return align, uniform, align + uniform


@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("block_size", [1024, 4])
@pytest.mark.parametrize("name", SETTINGS)
def test_it_is_the_loop(name, block_size, include_self):
    z = views()
    found = alignment_uniformity_terms(*z, **SETTINGS[name], include_self=include_self, block_size=block_size)
    for term, expected in zip(found, slow(*z, **SETTINGS[name], include_self=include_self), strict=True):
        torch.testing.assert_close(term, expected)


@pytest.mark.parametrize("positive", [False, True])
@pytest.mark.parametrize("include_self", [False, True])
@pytest.mark.parametrize("name", SETTINGS)
def test_the_mean_of_the_total_is_info_nce(name, include_self, positive):
    z, settings = views(), SETTINGS[name] | {"include_self": include_self, "positive_in_denominator": positive}
    terms = alignment_uniformity_terms(*z, **settings)
    expected = info_nce(*z, **settings, symmetric=False, negatives="same")
    torch.testing.assert_close(terms.total.mean(), expected)
    torch.testing.assert_close(terms.total, terms.align + terms.uniform)
    torch.testing.assert_close(torch.autograd.grad(terms.total.mean(), z), torch.autograd.grad(expected, z))


@pytest.mark.parametrize("name", SETTINGS)
def test_the_positive_in_the_denominator_makes_log_one_plus_exp_of_the_total(name):
    z = views()
    without, with_it = (
        alignment_uniformity_terms(*z, **SETTINGS[name], positive_in_denominator=positive) for positive in (False, True)
    )
    torch.testing.assert_close(with_it.align, without.align)
    torch.testing.assert_close(with_it.total, softplus(without.total, threshold=1e4))


def test_gradients_reach_the_temperature():
    tau = torch.tensor([0.3, 1.0, 2.0], dtype=torch.float64, requires_grad=True)
    for similarity in ("dot", "distance"):
        assert torch.autograd.gradcheck(
            lambda z1, z2, tau, similarity=similarity: alignment_uniformity_terms(z1, z2, tau, similarity=similarity),
            (*views(5), tau),
        )


def test_coinciding_points_have_the_logarithm_of_the_number_of_negatives():
    z = torch.ones(7, 3)
    terms = alignment_uniformity_terms(z, z, similarity="distance")
    torch.testing.assert_close(torch.stack(terms), torch.tensor([0, math.log(6), math.log(6)])[:, None].expand(3, 7))
    own = alignment_uniformity_terms(z, z, similarity="distance", include_self=True)
    torch.testing.assert_close(own.uniform, torch.full((7,), math.log(7)))


def test_the_least_total_is_that_of_its_denominator():
    z = 1e3 * torch.randn(7, 3, dtype=torch.float64)  # spread so far that no other sample counts
    for own, positive, least in ((True, True, math.log(2)), (True, False, 0), (False, True, 0)):
        settings = {"include_self": own, "positive_in_denominator": positive}
        terms = alignment_uniformity_terms(z, z, normalize=False, similarity="distance", **settings)
        torch.testing.assert_close(terms.total, torch.full_like(terms.total, least))
    assert alignment_uniformity_terms(z, z, normalize=False, similarity="distance").total.max() < -100


def test_distances_far_from_the_origin_keep_their_digits():
    z1, z2 = views(dtype=torch.float32)
    near, far = (
        alignment_uniformity_terms(z1 + shift, z2 + shift, normalize=False, similarity="distance")
        for shift in (0, 4096)
    )
    torch.testing.assert_close(torch.stack(far), torch.stack(near), atol=2e-2, rtol=0)


@pytest.mark.parametrize("name", SETTINGS)
def test_half_precision_and_autocast_are_computed_in_float32(name):
    z = views(dtype=torch.bfloat16)
    with torch.autocast("cpu"):
        found = alignment_uniformity_terms(*z, **SETTINGS[name])
    for term, expected in zip(
        found, alignment_uniformity_terms(*(x.float() for x in z), **SETTINGS[name]), strict=True
    ):
        assert term.dtype == torch.float32
        torch.testing.assert_close(term, expected)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": -1.0}, r"`temperature` > 0 and finite, but got -1\.0"),
        ({"temperature": math.nan}, "`temperature` > 0 and finite, but got nan"),
        ({"temperature": (1.0, 2.0)}, "`temperature` with P = 3 values, one per dimension, but got 2"),
        ({"normalize": "no"}, "`normalize` to be True or False, but got 'no'"),
        ({"positive_in_denominator": 1}, "`positive_in_denominator` to be True or False, but got 1"),
        ({"include_self": 1}, "`include_self` to be True or False, but got 1"),
        ({"similarity": "cosine"}, r"`similarity` to be one of \('dot', 'distance'\), but got 'cosine'"),
        ({"eps": -1.0}, r"`eps` >= 0, but got -1\.0"),
        ({"block_size": 0}, "`block_size` >= 1, but got 0"),
        ({"z1": torch.zeros(3)}, r"`z1` of shape \(N, P\), but got \(3,\)"),
        ({"z2": torch.zeros(9, 4)}, r"`z2` of shape \(N, P\), N = 9, P = 3, but got \(9, 4\)"),
        ({"z1": torch.zeros(1, 3), "z2": torch.zeros(1, 3)}, r"N >= 2 samples, but got 1 \(a single sample has no neg"),
    ],
)
def test_bad_arguments(arguments, message):
    z1, z2 = views()
    with pytest.raises(ValueError, match=message):
        alignment_uniformity_terms(**({"z1": z1, "z2": z2} | arguments))


# Table 1 of Rusak et al., the row f = g^-1: mean and standard deviation over 10,000 samples, d = 10, of which 2 are
# content, sigma_s = 0.05, temperature 1. The squared distance on the box, the dot product on the sphere.
TABLE_1 = {
    "box": ((0.02, 0.01), (7.69, 0.20), (7.71, 0.20)),
    "sphere": ((-0.19, 0.32), (9.26, 0.00), (9.07, 0.32)),
}
SIMILARITY = {"box": "distance", "sphere": "dot"}


def box(n=10_000, d=10, content=2, sigma=0.05):
    """Uniform latents, whose style a normal distribution draws again inside the box."""
    index = torch.arange(n)
    z = counter_uniform(0, index, size=d)
    key = counter_hash(1, index[:, None], torch.arange(d - content))
    style = generalized_normal(z[:, content:], 2**0.5 * sigma, 2.0, key, low=0.0, high=1.0)
    return z, torch.cat([z[:, :content], style], dim=1)


def sphere(n=10_000, d=10, content=2, concentration=0.05):
    """Uniform latents, whose style is drawn again on the sphere that content leaves it; 0.05 is nearly uniform."""
    index = torch.arange(n)
    z = uniform_sphere(counter_hash(0, index), d)
    radius = z[:, content:].norm(dim=1, keepdim=True)
    style = von_mises_fisher(z[:, content:] / radius, concentration, counter_hash(1, index))
    return z, torch.cat([z[:, :content], radius * style], dim=1)


@pytest.mark.parametrize("denominator", [{}, {"positive_in_denominator": True, "include_self": True}], ids=str)
@pytest.mark.parametrize("space", TABLE_1)
def test_table_1_where_the_encoder_inverts_the_process(space, denominator):
    z1, z2 = {"box": box, "sphere": sphere}[space]()
    settings = {"normalize": space == "sphere", "similarity": SIMILARITY[space]} | denominator
    terms = alignment_uniformity_terms(z1, z2, **settings)
    for term, (mean, deviation) in zip(terms, TABLE_1[space], strict=True):
        assert term.mean().item() == pytest.approx(mean, abs=0.02)  # the error of 10,000 samples, and two digits
        assert term.std().item() == pytest.approx(deviation, abs=0.015)  # 0.33 on the sphere, where it prints 0.32


@pytest.mark.parametrize("content", [1, 2, 3, 5])
def test_the_alignment_of_the_inverse_tells_the_number_of_content_dimensions(content):
    terms = alignment_uniformity_terms(*sphere(content=content), normalize=True)
    expected = -content / 10 - (10 - content) / 10 * 0.05 * (10 - content) / 10 / (
        10 - content
    )  # of weak concentration
    assert terms.align.mean().item() == pytest.approx(expected, abs=0.015)
    change = alignment_uniformity_terms(*box(content=content), normalize=False, similarity="distance").align
    assert change.mean().item() == pytest.approx(
        (10 - content) * 0.0024, rel=0.04
    )  # 0.05^2 of each style, but for the walls
