import itertools
import math
from functools import partial

import numpy as np
import pytest
import torch
import torch.nn.functional as F

from lightning_ssl_geometry.functional.info_nce.forms import InfoNCEForm
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.similarity import Dot, LpDistance, SquaredDistance
from lightning_ssl_geometry.functional.info_nce.tiles import _exp_
from lightning_ssl_geometry.functional.info_nce.upper_bound import (
    hardest_negative,
    info_nce_entropy,
    info_nce_upper_bound,
)

NT_XENT = {}
COSENTINO = {"positive_in_denominator": False, "symmetric": False}
RUSAK = {"symmetric": False, "negatives": "same"}
CL_ICA = {"symmetric": False, "negatives": "same", "include_self": True}
CALDER_LEE_1 = {"symmetric": False, "denominator": "mean"}
CALDER_LEE_4 = {"symmetric": False, "denominator": "mean", "negatives": "other", "include_self": True}
KELLER = {"positive_in_denominator": False, "joint": True}
CRL_TAC = {**CALDER_LEE_4, "positive_in_denominator": False}

# What each form is where all similarities are equal: the logarithm of how many terms its denominator has.
FORMS = {
    "nt_xent": (NT_XENT, lambda n: math.log(2 * n - 1)),
    "cosentino": (COSENTINO, lambda n: math.log(2 * (n - 1))),
    "rusak": (RUSAK, lambda n: math.log(n)),
    "cl_ica": (CL_ICA, lambda n: math.log(n + 1)),
    "calder_lee_1": (CALDER_LEE_1, lambda n: math.log(3 - 2 / n)),
    "calder_lee_4": (CALDER_LEE_4, lambda n: math.log(2)),
    "keller": (KELLER, lambda n: math.log(4 * (n - 1))),
    "crl_tac": (CRL_TAC, lambda n: 0.0),
}
SIMILARITIES = {
    "cosine": {"temperature": 0.5},
    "cosine, sharp": {"temperature": 0.004},
    "cosine, per dimension": {"temperature": (0.2, 1.0, 0.5)},
    "dot": {"temperature": 2.0, "normalize": False},
    "dot, per dimension": {"temperature": (0.2, 1.0, 0.5), "normalize": False},
    "squared distance": {"temperature": 2.0, "normalize": False, "similarity": "distance"},
    "squared distance on the sphere": {"temperature": 0.3, "similarity": "distance"},
    "squared distance, per dimension": {
        "temperature": (0.2, 1.0, 0.5),
        "normalize": False,
        "similarity": "distance",
    },
    "distance": {"temperature": 2.0, "normalize": False, "similarity": LpDistance(power=False)},
    "L1": {"temperature": 0.7, "normalize": False, "similarity": LpDistance(p=1.0)},
    "L3, cubed, per dimension": {
        "temperature": (0.2, 1.0, 0.5),
        "normalize": False,
        "similarity": LpDistance(p=3.0),
    },
    "L3": {"temperature": 0.7, "normalize": False, "similarity": LpDistance(p=3.0, power=False)},
}
SWITCHES = [
    {
        "positive_in_denominator": positive,
        "symmetric": symmetric,
        "negatives": negatives,
        "include_self": own,
        "joint": joint,
        "denominator": denominator,
    }
    for positive, symmetric, negatives, own, joint, denominator in itertools.product(
        (True, False), (True, False), ("both", "same", "other"), (True, False), (True, False), ("sum", "mean")
    )
    if symmetric or not joint
]


def views(n, p, dtype=torch.float64):
    return [torch.randn(n, p, dtype=dtype).requires_grad_() for _ in range(2)]


def slow_info_nce(
    z1,
    z2,
    temperature=0.5,
    *,
    normalize=True,
    positive_in_denominator=True,
    symmetric=True,
    negatives="both",
    include_self=False,
    joint=False,
    denominator="sum",
    similarity="dot",
):
    """Every term by itself, as the equations are read."""
    n = len(z1)
    p, power = (similarity.p, similarity.power) if isinstance(similarity, LpDistance) else (2.0, True)
    z = torch.stack([z1, z2])
    if normalize:
        z = z / z.norm(dim=2, keepdim=True)
    tau = torch.as_tensor(temperature, dtype=z.dtype).expand(z.shape[2])

    def s(a, b):
        if similarity == "dot":
            return (a * b / tau).sum()
        if power:
            return -((a - b).abs() ** p / tau).sum()
        return -torch.linalg.vector_norm((a - b) / tau, ord=p)

    def negatives_of(v, i):
        seen = {"same": (v,), "other": (1 - v,), "both": (0, 1)}[negatives]
        return [s(z[v, i], z[w, j]) for w in seen for j in range(n) if include_self or j != i]

    losses = []
    for i in range(n):
        positive = s(z[0, i], z[1, i])
        anchors = [negatives_of(v, i) for v in ((0, 1) if symmetric else (0,))]
        for terms in [list(itertools.chain(*anchors))] if joint else anchors:
            total = torch.stack(terms).exp().sum() / (n if denominator == "mean" else 1)
            if positive_in_denominator:
                total = total + positive.exp()
            losses.append(total.log() - positive)
    return torch.stack(losses).mean()


def assert_same_loss_and_gradient(loss, reference, inputs, **tolerance):
    torch.testing.assert_close(loss, reference, **tolerance)
    expected = torch.autograd.grad(reference, inputs)
    for actual, wanted in zip(torch.autograd.grad(loss, inputs), expected, strict=True):
        torch.testing.assert_close(actual, wanted, **tolerance)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("form", FORMS)
def test_forms_of_the_papers_equal_the_loop(form, similarity):
    settings = FORMS[form][0] | SIMILARITIES[similarity]
    z1, z2 = views(5, 3)
    loss = info_nce(z1, z2, **settings, block_size=2)
    assert_same_loss_and_gradient(loss, slow_info_nce(z1, z2, **settings), (z1, z2))


@pytest.mark.parametrize("settings", SWITCHES, ids=lambda s: "-".join(map(str, s.values())))
def test_every_combination_equals_the_loop(settings):
    z1, z2 = views(4, 3)
    loss = info_nce(z1, z2, **settings, block_size=3)
    assert_same_loss_and_gradient(loss, slow_info_nce(z1, z2, **settings), (z1, z2))


@pytest.mark.parametrize("similarity", ["dot", "distance"])
@pytest.mark.parametrize("n", [2, 7, 128])
@pytest.mark.parametrize("form", FORMS)
def test_equal_embeddings_count_the_denominator(form, n, similarity):
    settings, value = FORMS[form]
    z = torch.ones(n, 4, dtype=torch.float64)
    loss = info_nce(z, z, normalize=False, similarity=similarity, **settings)
    torch.testing.assert_close(loss.item(), value(n))


def test_orthogonal_pairs_have_their_closed_forms():
    # s = 1/tau for the positive, 0 for the others.
    z, tau, n = torch.eye(6, dtype=torch.float64), 0.25, 6
    assert info_nce(z, z, tau).item() == pytest.approx(math.log(math.exp(4) + 2 * (n - 1)) - 4)
    assert info_nce(z, z, tau, **COSENTINO).item() == pytest.approx(math.log(2 * (n - 1)) - 4)
    assert info_nce(z, z, tau, **KELLER).item() == pytest.approx(math.log(4 * (n - 1)) - 4)
    # squared distances: 0 for the positive, and for the anchor itself; 2 for the others.
    loss = info_nce(z, z, 1.0, similarity="distance", **CL_ICA)
    assert loss.item() == pytest.approx(math.log(2 + (n - 1) * math.exp(-2)))


def test_cl_ica_cannot_go_below_log_2():
    # The anchor itself at distance 0 is one of its negatives, even where all others are infinitely far.
    z = 1e3 * torch.eye(6, dtype=torch.float64)
    loss = info_nce(z, z, 1.0, similarity="distance", normalize=False, **CL_ICA)
    assert loss.item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("tau", "values"),
    [
        (0.1, {1: 0.693, 2: 0.405, 3: 0.288, 4: 0.223, 6: 0.156, 8: 0.130, 12: 0.1205, 16: 0.1203}),
        (0.5, {1: 0.693, 2: 0.412, 3: 0.312, 4: 0.279, 6: 0.269, 8: 0.2689}),
        (1.0, {1: 0.693, 2: 0.450, 3: 0.394, 4: 0.384, 6: 0.382}),
    ],
)
def test_calder_lee_on_evenly_spaced_atoms(tau, values):
    # The mean of exp((cos(2 pi k / K) - 1) / tau) over K atoms, by hand from their Eq. 4.
    for atoms, value in values.items():
        angle = 2 * math.pi * torch.arange(atoms, dtype=torch.float64) / atoms
        z = torch.stack([angle.cos(), angle.sin()], dim=1)
        loss = info_nce(z, z, 2 * tau, similarity="distance", **CALDER_LEE_4)
        expected = math.log1p(((angle.cos() - 1) / tau).exp().mean().item())
        assert loss.item() == pytest.approx(expected)
        assert loss.item() == pytest.approx(value, abs=6e-4)
        torch.testing.assert_close(loss, info_nce(z, z, tau, **CALDER_LEE_4))


def test_nt_xent_is_the_cross_entropy_of_2n_rows():
    z1, z2 = views(70, 16)
    z = F.normalize(torch.cat([z1, z2]))
    logits = (z @ z.T / 0.2).fill_diagonal_(-math.inf)
    reference = F.cross_entropy(logits, torch.arange(140).roll(70))
    assert_same_loss_and_gradient(info_nce(z1, z2, 0.2, block_size=32), reference, (z1, z2))


@pytest.mark.parametrize("settings", [NT_XENT, COSENTINO, KELLER, CL_ICA], ids=["nt", "cosentino", "keller", "cl_ica"])
@pytest.mark.parametrize("temperature", [0.5, 0.01], ids=["bounded", "running"])
def test_block_size_does_not_matter(settings, temperature):
    z1, z2 = views(23, 5)
    for block_size in (1, 4, 22, 64):
        reference = info_nce(z1, z2, temperature, **settings, block_size=23)
        loss = info_nce(z1, z2, temperature, **settings, block_size=block_size)
        assert_same_loss_and_gradient(loss, reference, (z1, z2))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_gradcheck(similarity):
    settings = SIMILARITIES[similarity]
    z1, z2 = views(4, 3)
    assert torch.autograd.gradcheck(lambda a, b: info_nce(a, b, **settings, block_size=3), (z1, z2))


@pytest.mark.parametrize("similarity", [s for s in SIMILARITIES if isinstance(SIMILARITIES[s]["temperature"], tuple)])
def test_gradient_reaches_a_temperature_per_dimension(similarity):
    settings = SIMILARITIES[similarity]
    z1, z2 = views(4, 3)
    tau = torch.tensor(settings["temperature"], dtype=torch.float64, requires_grad=True)

    def loss(a, b, t):
        return info_nce(a, b, **{**settings, "temperature": t}, block_size=3)

    assert torch.autograd.gradcheck(loss, (z1, z2, tau))
    torch.testing.assert_close(loss(z1, z2, tau), info_nce(z1, z2, **settings))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_one_temperature_for_all_dimensions_is_the_scalar(similarity):
    settings = {**SIMILARITIES[similarity], "temperature": 0.6}
    z1, z2 = views(5, 3)
    tau = torch.tensor(0.6, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda t: info_nce(z1, z2, **{**settings, "temperature": t}), (tau,))
    for temperature in (tau, [0.6, 0.6, 0.6]):
        loss = info_nce(z1, z2, **{**settings, "temperature": temperature})
        assert_same_loss_and_gradient(loss, info_nce(z1, z2, **settings), (z1, z2))


@pytest.mark.parametrize("similarity", [Dot(), SquaredDistance()])
def test_the_spread_is_between_equal_and_opposite_unit_vectors(similarity):
    u = F.normalize(torch.randn(9, 4, dtype=torch.float64), dim=1)
    spread = similarity.pairwise(u, u) - similarity.pairwise(u, -u)
    torch.testing.assert_close(spread, torch.full((9,), similarity.spread, dtype=torch.float64))


def test_a_distance_without_a_norm_is_the_squared_one():
    a, b = torch.randn(2, 9, 4, dtype=torch.float64)
    torch.testing.assert_close(LpDistance().pairwise(a, b), SquaredDistance().pairwise(a, b))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_exponentials_are_0_or_no_subnormal_numbers(dtype):
    largest = math.log(torch.finfo(dtype).max)
    found = _exp_(torch.linspace(-1.2 * largest, 0, 1001, dtype=dtype))
    assert (found[found > 0] >= torch.finfo(dtype).tiny).all()
    assert (found[-600:] > 0).all()


def test_there_is_no_second_derivative():
    z1, z2 = views(4, 3)
    (gradient,) = torch.autograd.grad(info_nce(z1, z2, normalize=False), z1, create_graph=True)
    with pytest.raises(RuntimeError, match="once_differentiable"):
        gradient.sum().backward()


@pytest.mark.parametrize("form", FORMS)
def test_permuting_rotating_and_scaling_change_nothing(form):
    settings = FORMS[form][0]
    z1, z2 = views(9, 4)
    loss = info_nce(z1, z2, **settings, block_size=4)
    order, rotation = torch.randperm(9), torch.linalg.qr(torch.randn(4, 4, dtype=torch.float64)).Q
    torch.testing.assert_close(info_nce(z1[order], z2[order], **settings), loss)
    torch.testing.assert_close(info_nce(z1 @ rotation, z2 @ rotation, **settings), loss)
    torch.testing.assert_close(info_nce(z1 * torch.rand(9, 1) * 9, z2 * 1e-3, **settings), loss)


def test_symmetric_swaps_the_views():
    z1, z2 = views(9, 4)
    torch.testing.assert_close(info_nce(z1, z2), info_nce(z2, z1))
    one_sided = [info_nce(a, b, symmetric=False) for a, b in ((z1, z2), (z2, z1))]
    torch.testing.assert_close(info_nce(z1, z2), sum(one_sided) / 2)


def test_on_the_sphere_half_the_squared_distance_is_the_dot_product():
    z1, z2 = views(9, 4)
    for settings, _ in FORMS.values():
        # exp(-|x-y|^2 / 2 tau) = exp(<x,y> / tau) exp(-1 / tau), and the last factor cancels.
        by_distance = info_nce(z1, z2, 0.6, similarity="distance", **settings)
        torch.testing.assert_close(by_distance, info_nce(z1, z2, 0.3, **settings))


def test_distances_do_not_see_where_the_origin_is():
    z1, z2 = (z.detach().float() for z in views(50, 8))
    settings = {"normalize": False, "similarity": "distance"}
    far = info_nce(z1 + 1000, z2 + 1000, 1.0, **settings)
    torch.testing.assert_close(far, info_nce(z1, z2, 1.0, **settings), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("p", [1.0, 1.5, 2.0, 3.0, 4.0])
def test_powers_of_distances_between_scaled_unit_vectors(p):
    # |a e_i - a e_j|_p^p = 2 a^p, so all p agree where a^p is the same
    settings, unit = {"normalize": False, "temperature": 0.7}, torch.eye(4, dtype=torch.float64)
    z, square = 1.7 ** (1 / p) * unit, 1.7**0.5 * unit
    found = info_nce(z, z, similarity=LpDistance(p=p), **settings)
    torch.testing.assert_close(found, info_nce(square, square, similarity="distance", **settings))


def test_a_distance_of_scale_1_is_the_norm_of_numpy():
    a, b = torch.randn(2, 6, 3, dtype=torch.float64)
    for p in (1.0, 2.0, 3.0):
        norm = torch.from_numpy(np.linalg.norm((a - b).numpy(), p, 1))
        torch.testing.assert_close(LpDistance(p=p, power=False).pairwise(a, b), -norm)
        torch.testing.assert_close(LpDistance(p=p).pairwise(a, b), -(norm**p))


def test_range_of_cosentino():
    z1, z2 = views(128, 64)
    loss, beta, centre = info_nce(z1, z2, 0.5, **COSENTINO), 2, math.log(2 * 127)
    assert centre - 2 * beta <= loss <= centre + 2 * beta
    # The ends: a pair that coincides while all negatives are opposite, and the reverse.
    a = torch.tensor([[1.0, 0.0], [-1.0, 0.0]], dtype=torch.float64)
    assert info_nce(a, a, 0.5, **COSENTINO).item() == pytest.approx(math.log(2) - 4)
    anchor = torch.ones(2, 1, dtype=torch.float64)
    ends = info_nce(anchor, -anchor, 0.5, negatives="same", **COSENTINO)
    assert ends.item() == pytest.approx(4)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_half_precision_is_computed_in_float32(dtype, temperature):
    z1, z2 = (z.detach().to(dtype).requires_grad_() for z in views(33, 8))
    loss = info_nce(z1, z2, temperature)
    loss.backward()
    assert loss.dtype == torch.float32
    assert z1.grad.dtype == dtype
    assert torch.isfinite(z1.grad).all()
    reference = info_nce(z1.double(), z2.double(), temperature)
    torch.testing.assert_close(loss.double(), reference, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("similarity", ["dot", "distance"])
def test_autocast_changes_nothing(similarity):
    z1, z2 = (z.detach().float().requires_grad_() for z in views(33, 8))
    plain = info_nce(z1, z2, similarity=similarity)
    gradients = torch.autograd.grad(plain, (z1, z2))
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = info_nce(z1, z2, similarity=similarity)
        bound = info_nce_upper_bound(z1, z2)
        autocast_gradients = torch.autograd.grad(loss, (z1, z2))
    assert torch.equal(loss, plain)
    assert all(map(torch.equal, gradients, autocast_gradients))
    assert all(map(torch.equal, bound, info_nce_upper_bound(z1, z2)))


@pytest.mark.parametrize("dtype", [torch.float16, torch.float32, torch.float64])
@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_a_zero_vector_counts_as_orthogonal_to_all(dtype, temperature):
    z1, z2 = (z.detach().to(dtype) for z in views(6, 4))
    z1[2] = 0
    z1.requires_grad_()
    loss = info_nce(z1, z2, temperature)
    loss.backward()
    assert torch.isfinite(loss)
    assert torch.isfinite(z1.grad).all()
    assert (z1.grad[2] == 0).all()
    with_zero = torch.cat([z1.detach(), torch.zeros(6, 1, dtype=dtype)], dim=1)
    with_zero[2, 4] = 1  # what no other row has
    orthogonal = info_nce(with_zero, F.pad(z2, (0, 1)), temperature)
    torch.testing.assert_close(loss, orthogonal)


def test_rows_of_up_to_a_hundred_millionth_are_0():
    z1, z2 = (F.normalize(torch.randn(5, 3, dtype=torch.float64), dim=1) for _ in range(2))
    torch.testing.assert_close(info_nce(1.5e-8 * z1, 1.5e-8 * z2), info_nce(z1, z2))
    torch.testing.assert_close(info_nce(0.99e-8 * z1, 0.99e-8 * z2), info_nce(0 * z1, 0 * z2))


def test_the_loss_of_a_sample_without_negatives_is_0_and_not_minus_0():
    z = torch.randn(1, 3)
    assert not any(info_nce(z, other).signbit() for other in (z, -z))


def test_all_zero_is_all_equal():
    z = torch.zeros(8, 4, dtype=torch.float16, requires_grad=True)
    loss = info_nce(z, z, 0.01)
    loss.backward()
    assert loss.item() == pytest.approx(math.log(15))
    assert (z.grad == 0).all()


def test_coinciding_rows_have_a_gradient_under_every_norm():
    z = torch.ones(4, 3, dtype=torch.float64, requires_grad=True)
    for p, power in itertools.product((1.0, 1.5, 2.0, 3.0), (True, False)):
        loss = info_nce(z, z, normalize=False, similarity=LpDistance(p=p, power=power))
        assert loss.item() == pytest.approx(math.log(7))
        assert torch.autograd.grad(loss, z)[0].tolist() == [[0.0] * 3] * 4


@pytest.mark.parametrize("settings", [{}, {"temperature": 0.01}, {"similarity": "distance"}], ids=str)
def test_nan_stays_nan(settings):
    z1, z2 = (z.detach() for z in views(6, 4))
    z1[3, 1] = math.nan
    assert info_nce(z1, z2, **settings).isnan()
    assert all(term.isnan() for term in (*info_nce_upper_bound(z1, z2), *info_nce_entropy(z1, z2)))


def test_similarities_far_apart_neither_overflow_nor_vanish():
    # float32: exponents of 1e4 and differences that no sum of exponentials holds.
    z1, z2 = (100 * z.detach().float() for z in views(20, 8))
    loss = info_nce(z1, z2, 1.0, normalize=False, block_size=8)
    torch.testing.assert_close(loss.double(), info_nce(z1.double(), z2.double(), 1.0, normalize=False))
    assert info_nce(z1, -z1, 1.0, normalize=False, similarity="distance").isfinite()


@pytest.mark.parametrize("temperature", [0.5, 0.01])
def test_strides_do_not_matter(temperature):
    z1, z2 = views(11, 6)
    loss = info_nce(z1, z2, temperature)
    strided = info_nce(z1.T.contiguous().T, torch.cat([z1, z2], dim=1)[:, 6:], temperature)
    assert_same_loss_and_gradient(strided, loss, (z1, z2))
    raw = info_nce(z1.T.contiguous().T, torch.cat([z1, z2], dim=1)[:, 6:], temperature, normalize=False)
    assert_same_loss_and_gradient(raw, info_nce(z1, z2, temperature, normalize=False), (z1, z2))


def test_gradient_of_one_view_only():
    z1, z2 = views(7, 3)
    both = torch.autograd.grad(info_nce(z1, z2), (z1, z2))
    alone = torch.autograd.grad(info_nce(z1.detach(), z2), z2)
    assert torch.equal(alone[0], both[1])


def test_one_sample_with_itself_among_the_negatives():
    z1, z2 = views(1, 3)
    assert info_nce(z1, z2, **CRL_TAC).item() == pytest.approx(0)
    assert info_nce(z1, z2, **CALDER_LEE_4).item() == pytest.approx(math.log(2))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0}, "`temperature` > 0 and finite, but got 0"),
        ({"temperature": -1.0}, r"`temperature` > 0 and finite, but got -1\.0"),
        ({"temperature": math.nan}, "`temperature` > 0 and finite, but got nan"),
        ({"temperature": math.inf}, "`temperature` > 0 and finite, but got inf"),
        ({"temperature": [0.5, math.inf, 0.5]}, "`temperature` > 0 and finite, but got inf"),
        ({"temperature": [1.0, 0.0, 1.0]}, r"`temperature` > 0 and finite, but got 0\.0"),
        ({"temperature": torch.tensor([1.0, math.nan, 1.0])}, "`temperature` > 0 and finite, but got nan"),
        ({"temperature": [1.0, 1.0]}, "`temperature` with P = 3 values, one per dimension, but got 2"),
        ({"temperature": torch.ones(1)}, "`temperature` with P = 3 values, one per dimension, but got 1"),
        ({"temperature": torch.ones(3, 1)}, r"`temperature` to be a number or P numbers, but got shape \(3, 1\)"),
        ({"temperature": []}, r"`temperature` to be a number or P numbers, but got shape \(0,\)"),
        ({"normalize": "false"}, "`normalize` to be True or False, but got 'false'"),
        ({"positive_in_denominator": 0}, "`positive_in_denominator` to be True or False, but got 0"),
        ({"symmetric": None}, "`symmetric` to be True or False, but got None"),
        ({"include_self": 1}, "`include_self` to be True or False, but got 1"),
        ({"joint": "no"}, "`joint` to be True or False, but got 'no'"),
        ({"negatives": "all"}, r"`negatives` to be one of \('both', 'same', 'other'\), but got 'all'"),
        ({"denominator": "max"}, r"`denominator` to be one of \('sum', 'mean'\), but got 'max'"),
        ({"similarity": "cosine"}, r"`similarity` to be one of \('dot', 'distance'\), but got 'cosine'"),
        ({"joint": True, "symmetric": False}, "`symmetric` = True with `joint` = True"),
        ({"eps": -1e-8}, "`eps` >= 0, but got -1e-08"),
        ({"block_size": 0}, "`block_size` >= 1, but got 0"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(arguments, message):
    z = torch.ones(4, 3)
    with pytest.raises(ValueError, match=message):
        info_nce(z, z, **arguments)


FUNCTIONS_OF_VIEWS = [info_nce, info_nce_entropy, info_nce_upper_bound, hardest_negative]


@pytest.mark.parametrize("function", FUNCTIONS_OF_VIEWS)
def test_wrong_views_are_named(function, wrong_views):
    z1, z2, message = wrong_views
    with pytest.raises(ValueError, match=message):
        function(z1, z2)


@pytest.mark.parametrize("function", FUNCTIONS_OF_VIEWS)
def test_no_samples_are_refused(function):
    with pytest.raises(ValueError, match=r"N >= [12] samples, but got 0"):
        function(torch.ones(0, 3), torch.ones(0, 3))


@pytest.mark.parametrize("function", [info_nce_entropy, info_nce_upper_bound, hardest_negative])
def test_a_single_sample_has_no_hardest_negative(function):
    with pytest.raises(ValueError, match=r"N >= 2 samples, but got 1 \(a single sample has no negatives"):
        function(torch.ones(1, 3), torch.ones(1, 3))


@pytest.mark.filterwarnings("ignore:`p` and `power` of InfoNCE:FutureWarning")
def test_of_a_norm_and_its_power_the_one_that_is_not_given_is_that_of_the_squared_distance():
    form = InfoNCEForm(similarity="distance")
    assert form.but(power=False).similarity == LpDistance(p=2.0, power=False)
    assert form.but(p=3.0).similarity == LpDistance(p=3.0, power=True)
    for switches in ({"p": 2}, {"p": 2.0, "power": True}, {"power": True}):
        assert InfoNCEForm().but(**switches).similarity == Dot()


@pytest.mark.parametrize("scale", [1.0, 100.0, 1000.0])
def test_a_row_has_distance_0_to_itself_in_single_precision(scale):
    # z1 = z2 and all other rows far away: the anchor itself and the positive remain, log 2.
    z = scale * torch.randn(64, 6)
    temperature = [0.1, 0.1, 0.1, 10.0, 10.0, 10.0]
    found = info_nce(z, z, temperature, normalize=False, similarity="distance", **CL_ICA)
    expected = info_nce(z.double(), z.double(), temperature, normalize=False, similarity="distance", **CL_ICA)
    torch.testing.assert_close(found.double(), expected, rtol=1e-6, atol=0)
    assert found >= math.log(2) - 1e-6


PARTS = [slice(0, 9), slice(0, 4), slice(3, 7), slice(8, 9), slice(5, None), slice(-2, -1)]
PART_FORMS = {
    "nt_xent": {},
    "one anchor": {"symmetric": False},
    "same view": {"negatives": "same", "positive_in_denominator": False},
    "other view, itself": {"negatives": "other", "include_self": True, "denominator": "mean"},
    "joint": {"positive_in_denominator": False, "joint": True},
    "without normalisation": {"normalize": False, "temperature": 0.01},
    "squared distances": {"normalize": False, "similarity": "distance", "temperature": [0.3, 0.5, 0.7]},
    "distances": {"similarity": LpDistance(p=1.0)},
}


@pytest.mark.parametrize("block_size", [1, 2, 3, 100])
@pytest.mark.parametrize("form", PART_FORMS)
def test_the_anchors_may_be_some_of_the_samples(form, block_size):
    z1, z2 = (torch.randn(9, 3, dtype=torch.float64).requires_grad_() for _ in range(2))
    temperature = torch.tensor(PART_FORMS[form].get("temperature", 0.3), dtype=torch.float64, requires_grad=True)
    settings = PART_FORMS[form] | {"temperature": temperature}
    parts = [info_nce(z1, z2, block_size=block_size, anchors=slice(i, i + 1), **settings) for i in range(9)]
    gradients = [torch.autograd.grad(part, (z1, z2, temperature), retain_graph=True) for part in parts]
    torch.testing.assert_close(torch.stack(parts).mean(), info_nce(z1, z2, **settings))
    for part in PARTS:
        loss = info_nce(z1, z2, block_size=block_size, anchors=part, **settings)
        torch.testing.assert_close(loss, torch.stack(parts[part]).mean())
        found = torch.autograd.grad(loss, (z1, z2, temperature))
        for gradient, each in zip(found, zip(*gradients[part], strict=True), strict=True):
            torch.testing.assert_close(gradient, torch.stack(each).mean(0))


WRONG_ANCHORS = [slice(2, 2), slice(4, 9), slice(0, 4, 2), slice(0, 4, 0), slice(0.0, 2), 3, [0, 1]]


@pytest.mark.parametrize("anchors", WRONG_ANCHORS, ids=str)
def test_other_anchors_are_refused(anchors):
    with pytest.raises(ValueError, match="Expected `anchors` to be a slice of some of 4 samples, with step 1, but got"):
        info_nce(torch.eye(4), torch.eye(4), anchors=anchors)


@pytest.mark.parametrize("temperature", [1e-40, [1e-40] * 4, torch.tensor(1e-40)], ids=["number", "numbers", "tensor"])
def test_a_temperature_whose_inverse_is_infinite_is_refused(temperature):
    with pytest.raises(ValueError, match=r"Expected `temperature` whose inverse torch\.float32 holds, but got"):
        info_nce(torch.eye(4), torch.eye(4), temperature)
    assert info_nce(torch.eye(4).double(), torch.eye(4).double(), 1e-40) == 0


def test_numbers_that_are_none_are_no_temperature():
    with pytest.raises(ValueError, match="Expected `temperature` to be a number or P numbers, but got"):
        info_nce(torch.eye(4), torch.eye(4), ["a"] * 4)


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # torch.compile's own
@pytest.mark.parametrize("form", ["NT_XENT", "CL_ICA"])
def test_a_compiled_loss_is_the_loss(form):
    z1, z2 = (torch.randn(9, 3).requires_grad_() for _ in range(2))
    loss = partial(info_nce, form=form, block_size=2)
    torch.testing.assert_close(torch.compile(loss, backend="aot_eager")(z1, z2), loss(z1, z2))
