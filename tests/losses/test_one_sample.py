"""InfoNCE of one sample: 0 where its positive is in the denominator, and an error where the denominator is empty."""

import itertools

import pytest
import torch

from lightning_ssl_geometry.functional import LpDistance, info_nce, log_bilinear_info_nce
from lightning_ssl_geometry.functional.info_nce.terms import alignment_uniformity_terms
from lightning_ssl_geometry.functional.variational.loss import variational_loss
from lightning_ssl_geometry.losses import (
    GradientSpectrumTemperature,
    InfoNCELoss,
    LearnedTemperature,
    LogBilinearInfoNCELoss,
)

SWITCHES = [
    {"symmetric": symmetric, "negatives": negatives, "joint": joint}
    for symmetric, negatives, joint in itertools.product((True, False), ("both", "same", "other"), (True, False))
    if symmetric or not joint
]
FORMS = [
    {},
    {"normalize": False},
    {"denominator": "mean"},
    {"similarity": "distance", "normalize": False},
    {"similarity": LpDistance(p=1.0)},
    {"similarity": LpDistance(power=False)},
    {"temperature": [0.3, 0.5, 0.7]},
    {"block_size": 1},
]


def pair(dtype=torch.float32, n=1):
    return [torch.randn(n, 3, dtype=dtype).requires_grad_() for _ in range(2)]


def assert_zero(loss, inputs, dtype=torch.float32):
    assert loss.dtype == dtype
    assert loss.shape == ()
    assert loss.item() == 0
    for gradient, x in zip(torch.autograd.grad(loss, inputs), inputs, strict=True):
        assert gradient.dtype == x.dtype
        assert not gradient.any()


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "-".join(map(str, s.values())))
@pytest.mark.parametrize("form", FORMS, ids=str)
def test_it_is_0_with_gradient_0(form, switches):
    for dtype in (torch.float32, torch.float64):
        z = pair(dtype)
        assert_zero(info_nce(*z, **form, **switches), z, dtype)


@pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "-".join(map(str, s.values())))
def test_so_it_is_with_a_matrix(switches):
    z, weight = pair(), torch.randn(3, 3, requires_grad=True)
    assert_zero(log_bilinear_info_nce(*z, weight, **switches), [*z, weight])
    loss = LogBilinearInfoNCELoss(3, **switches)
    assert_zero(loss(*z), [*z, loss.weight])


def test_half_precision_and_autocast():
    z = pair(torch.bfloat16)
    assert_zero(InfoNCELoss()(*z), z)
    z = pair()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert_zero(InfoNCELoss()(*z), z)
        assert_zero(LogBilinearInfoNCELoss(3)(*z), z)


def test_a_learnt_temperature_has_gradient_0():
    temperature = torch.nn.Parameter(torch.tensor([0.2, 0.5, 1.0]))
    z = pair()
    assert_zero(InfoNCELoss(temperature)(*z), [*z, temperature])
    loss = InfoNCELoss(LearnedTemperature(3), form="RUSAK", normalize=False, similarity="distance")
    assert_zero(loss(*z), [*z, loss.temperature.log_precision])


def test_a_rule_does_not_look_at_one_sample():
    rule = GradientSpectrumTemperature(3)
    z = pair()
    assert_zero(InfoNCELoss(rule, form="RUSAK", normalize=False, similarity="distance")(*z), z)
    assert rule.batches == 0
    InfoNCELoss(rule, form="RUSAK", normalize=False, similarity="distance")(*pair(n=9))
    assert rule.batches == 1


def test_rows_of_0_and_rows_that_coincide():
    zero = [torch.zeros(1, 3, requires_grad=True) for _ in range(2)]
    assert_zero(info_nce(*zero), zero)
    assert_zero(info_nce(*zero, similarity=LpDistance(power=False), normalize=False), zero)


def test_nan_stays_nan():
    z1, z2 = pair()
    assert info_nce(z1 * torch.nan, z2).isnan()
    assert log_bilinear_info_nce(z1 * torch.nan, z2, torch.eye(3)).isnan()


def test_its_terms_are_those_of_the_pair():
    z1, z2 = pair()
    terms = alignment_uniformity_terms(z1, z2, positive_in_denominator=True)
    torch.testing.assert_close(terms.uniform, -terms.align)
    assert_zero(terms.total.mean(), [z1, z2])
    torch.testing.assert_close(terms.align, -torch.cosine_similarity(z1, z2))
    for other in (z1, -z1):
        assert not alignment_uniformity_terms(z1, other, positive_in_denominator=True).total.signbit()  # 0, not -0


@pytest.mark.parametrize("symmetric", [True, False])
@pytest.mark.parametrize("negatives", ["both", "other"])
def test_the_variational_form_of_one_point_has_no_others_either(negatives, symmetric):
    z = pair()
    settings = {"negatives": negatives, "symmetric": symmetric}
    assert_zero(variational_loss(*z, include_self=False, **settings), z)


@pytest.mark.parametrize(
    "call",
    [
        lambda *z: info_nce(*z, positive_in_denominator=False),
        lambda *z: info_nce(*z, positive_in_denominator=False, joint=True),
        lambda *z: InfoNCELoss(positive_in_denominator=False)(*z),
        lambda *z: log_bilinear_info_nce(*z, torch.eye(3), positive_in_denominator=False),
        lambda *z: alignment_uniformity_terms(*z),
    ],
)
def test_without_the_positive_the_denominator_is_empty(call):
    with pytest.raises(ValueError, match=r"N >= 2 samples, but got 1 \(a single sample has no negatives, so the denom"):
        call(*pair())


def on_a_rank(rank, sizes, make):
    torch.manual_seed(rank)
    z = [torch.randn(sizes[rank], 3).requires_grad_() for _ in range(2)]
    loss = make()(*z)
    loss.backward()
    return loss.detach(), [x.grad for x in z]


def without_the_positive():
    return InfoNCELoss(positive_in_denominator=False)


def test_the_samples_of_all_ranks_are_counted(two_processes):
    for value, gradients in two_processes(on_a_rank, (1, 0), InfoNCELoss):
        assert value == 0
        assert not any(gradient.any() for gradient in gradients)
    for value, _ in two_processes(on_a_rank, (1, 1), without_the_positive):  # each rank has one, both have two
        assert value.isfinite()
        assert value != 0
