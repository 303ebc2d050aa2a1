import itertools
import math

import pytest
import torch
import torch.nn.functional as F

from lightning_ssl_geometry.functional.info_nce.log_bilinear import log_bilinear_info_nce
from lightning_ssl_geometry.functional.info_nce.loss import info_nce

SWITCHES = [
    {"positive_in_denominator": positive, "symmetric": symmetric, "negatives": negatives, "joint": joint}
    for positive, symmetric, negatives, joint in itertools.product(
        (True, False), (True, False), ("both", "same", "other"), (True, False)
    )
    if symmetric or not joint
]
CPC = {"symmetric": False, "negatives": "other"}
KELLER = {"positive_in_denominator": False, "joint": True}
every_combination = pytest.mark.parametrize("switches", SWITCHES, ids=lambda s: "-".join(map(str, s.values())))


def views(n, p, dtype=torch.float64):
    """Two views and a matrix that is not symmetric."""
    return [torch.randn(*shape, dtype=dtype).requires_grad_() for shape in ((n, p), (n, p), (p, p))]


def slow_log_bilinear(
    z1,
    z2,
    weight,
    temperature=1.0,
    *,
    positive_in_denominator=True,
    symmetric=True,
    negatives="both",
    joint=False,
):
    """Every term by itself, the anchor on the left."""
    n, z = len(z1), (z1, z2)

    def s(a, b):
        return a @ weight @ b / temperature

    def negatives_of(v, i):
        seen = {"same": (v,), "other": (1 - v,), "both": (0, 1)}[negatives]
        return [s(z[v][i], z[w][k]) for w in seen for k in range(n) if k != i]

    losses = []
    for i in range(n):
        rows = [(s(z[v][i], z[1 - v][i]), negatives_of(v, i)) for v in ((0, 1) if symmetric else (0,))]
        if joint:
            rows = [(rows[0][0], rows[0][1] + rows[1][1])]
        for positive, terms in rows:
            terms = [positive, *terms] if positive_in_denominator else terms
            losses.append(torch.stack(terms).exp().sum().log() - positive)
    return torch.stack(losses).mean()


def assert_same_loss_and_gradient(loss, reference, inputs, **tolerance):
    torch.testing.assert_close(loss, reference, **tolerance)
    expected = torch.autograd.grad(reference, inputs)
    torch.testing.assert_close(torch.autograd.grad(loss, inputs), expected, **tolerance)


@every_combination
def test_every_combination_equals_the_loop(switches):
    inputs = views(5, 3)
    loss = log_bilinear_info_nce(*inputs, 0.7, **switches)
    assert_same_loss_and_gradient(loss, slow_log_bilinear(*inputs, 0.7, **switches), inputs)


@every_combination
def test_with_the_identity_it_is_info_nce(switches):
    z1, z2, _ = views(9, 4)
    loss = log_bilinear_info_nce(z1, z2, torch.eye(4, dtype=torch.float64), 0.7, **switches)
    reference = info_nce(z1, z2, 0.7, normalize=False, **switches)
    assert_same_loss_and_gradient(loss, reference, (z1, z2), rtol=0, atol=1e-10)


@every_combination
def test_a_positive_matrix_is_info_nce_of_embeddings_mapped_by_its_root(switches):
    z1, z2, root = views(9, 4)
    # a^T (R R^T) b = (R^T a)^T (R^T b)
    loss = log_bilinear_info_nce(z1, z2, root @ root.T, **switches)
    reference = info_nce(z1 @ root, z2 @ root, 1.0, normalize=False, **switches)
    assert_same_loss_and_gradient(loss, reference, (z1, z2, root), rtol=0, atol=1e-10)


@every_combination
def test_gradcheck(switches):
    inputs = views(4, 3)
    assert torch.autograd.gradcheck(lambda a, b, w: log_bilinear_info_nce(a, b, w, 0.8, **switches), inputs)


def test_second_derivatives_exist():
    assert torch.autograd.gradgradcheck(log_bilinear_info_nce, views(3, 2))


@every_combination
@pytest.mark.parametrize("n", [2, 7])
def test_without_a_matrix_it_counts_the_denominator(switches, n):
    z1, z2, _ = views(n, 3)
    loss = log_bilinear_info_nce(z1, z2, torch.zeros(3, 3, dtype=torch.float64), **switches)
    count = (n - 1) * (2 if switches["negatives"] == "both" else 1) * (2 if switches["joint"] else 1)
    assert loss.item() == pytest.approx(math.log(count + switches["positive_in_denominator"]))


def test_orthogonal_pairs_have_their_closed_forms():
    # s = w / tau for the positive, 0 for the others.
    z, n = torch.eye(6, dtype=torch.float64), 6
    assert log_bilinear_info_nce(z, z, 2 * z, 0.5).item() == pytest.approx(math.log(math.exp(4) + 2 * (n - 1)) - 4)
    assert log_bilinear_info_nce(z, z, 2 * z, 0.5, **KELLER).item() == pytest.approx(math.log(4 * (n - 1)) - 4)
    assert log_bilinear_info_nce(z, z, 2 * z, 0.5, **CPC).item() == pytest.approx(math.log(math.exp(4) + n - 1) - 4)


def test_cpc_is_a_cross_entropy():
    context, target, weight = views(7, 4)
    # Eq. 3: log f(z_k, c_i) = z_k^T W c_i, so the matrix that stands right of the anchor is W^T.
    logits = torch.einsum("kp,pq,iq->ik", target, weight, context)
    loss = log_bilinear_info_nce(context, target, weight.T, **CPC)
    reference = F.cross_entropy(logits, torch.arange(7))
    assert_same_loss_and_gradient(loss, reference, (context, target, weight))


def test_the_anchor_is_on_the_left():
    z1, z2, weight = views(9, 4)
    loss = log_bilinear_info_nce(z1, z2, weight, symmetric=False)
    assert not torch.isclose(loss, log_bilinear_info_nce(z1, z2, weight.T, symmetric=False))


@pytest.mark.parametrize("negatives", ["both", "same", "other"])
def test_symmetric_is_the_mean_of_the_two_one_sided_losses_with_one_matrix(negatives):
    z1, z2, weight = views(9, 4)
    settings = {"negatives": negatives}
    one_sided = [log_bilinear_info_nce(a, b, weight, symmetric=False, **settings) for a, b in ((z1, z2), (z2, z1))]
    torch.testing.assert_close(log_bilinear_info_nce(z1, z2, weight, **settings), sum(one_sided) / 2)
    torch.testing.assert_close(
        log_bilinear_info_nce(z2, z1, weight, **settings), log_bilinear_info_nce(z1, z2, weight, **settings)
    )


def test_joint_has_view_1_on_the_left_of_its_positive():
    z1, z2, weight = views(9, 4)
    positives = [torch.einsum("np,pq,nq->n", a, weight, b).mean() for a, b in ((z1, z2), (z2, z1))]
    losses = [log_bilinear_info_nce(a, b, weight, **KELLER) for a, b in ((z1, z2), (z2, z1))]
    torch.testing.assert_close(losses[0] - losses[1], positives[1] - positives[0])  # the denominators are the same


@every_combination
def test_what_changes_nothing(switches):
    z1, z2, weight = views(9, 4)
    loss = log_bilinear_info_nce(z1, z2, weight, 0.5, **switches)
    order, change = torch.randperm(9), torch.randn(4, 4, dtype=torch.float64)
    torch.testing.assert_close(log_bilinear_info_nce(z1[order], z2[order], weight, 0.5, **switches), loss)
    torch.testing.assert_close(log_bilinear_info_nce(z1, z2, weight / 0.5, 1.0, **switches), loss)
    torch.testing.assert_close(log_bilinear_info_nce(3 * z1, 3 * z2, weight / 9, 0.5, **switches), loss)
    inverse = torch.linalg.inv(change)  # any other basis of the embeddings: (C^T a)^T (C^-1 W C^-T) (C^T b)
    other_basis = log_bilinear_info_nce(z1 @ change, z2 @ change, inverse @ weight @ inverse.T, 0.5, **switches)
    torch.testing.assert_close(other_basis, loss)


def test_each_view_may_have_its_own_basis_where_only_the_other_is_met():
    z1, z2, weight = views(9, 4)
    a, b = (torch.randn(4, 4, dtype=torch.float64) for _ in range(2))
    loss = log_bilinear_info_nce(z1, z2, a @ weight @ b.T, **CPC)
    torch.testing.assert_close(log_bilinear_info_nce(z1 @ a, z2 @ b, weight, **CPC), loss)


def test_bounds_with_the_positive_in_the_denominator():
    for _ in range(20):
        loss = log_bilinear_info_nce(*views(6, 4))
        assert loss > 0


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    inputs = views(33, 8, dtype)
    loss = log_bilinear_info_nce(*inputs)
    loss.backward()
    assert loss.dtype == torch.float32
    assert all(x.grad.dtype == dtype and torch.isfinite(x.grad).all() for x in inputs)
    reference = log_bilinear_info_nce(*(x.double() for x in inputs))
    torch.testing.assert_close(loss.double(), reference, rtol=1e-5, atol=1e-5)


def test_views_set_the_precision():
    z1, z2, weight = views(5, 3)
    assert log_bilinear_info_nce(z1, z2, weight.float()).dtype == torch.float64
    assert log_bilinear_info_nce(z1, z2.float(), weight.float()).dtype == torch.float64
    assert log_bilinear_info_nce(z1.float(), z2.float(), weight).dtype == torch.float32


def test_autocast_changes_nothing():
    inputs = views(33, 8, torch.float32)
    plain = log_bilinear_info_nce(*inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        loss = log_bilinear_info_nce(*inputs)
        gradients = torch.autograd.grad(loss, inputs)  # inside, as manual optimization runs it
    assert torch.equal(loss, plain)
    assert all(map(torch.equal, gradients, torch.autograd.grad(plain, inputs)))


@every_combination
def test_similarities_far_apart_neither_overflow_nor_vanish(switches):
    z1, z2, weight = (100 * x.detach().float() for x in views(20, 8))  # exponents of 1e6
    z1.requires_grad_()
    loss = log_bilinear_info_nce(z1, z2, weight, **switches)
    reference = log_bilinear_info_nce(z1.double(), z2.double(), weight, **switches)
    # An exponent a^T W b is two sums of P products in float32, so it is off by at most 2 P eps |a|^T |W| |b|; so is
    # the log-sum-exp of exponents, and the loss is the difference of two such numbers.
    largest = max((a.abs() @ weight.abs() @ b.abs().T).max().item() for a in (z1, z2) for b in (z1, z2))
    atol = 4 * z1.shape[1] * torch.finfo(torch.float32).eps * largest
    torch.testing.assert_close(loss.double(), reference, rtol=0, atol=atol)
    assert torch.autograd.grad(loss, z1)[0].isfinite().all()


def test_nan_stays_nan():
    z1, z2, weight = (x.detach() for x in views(6, 4))
    z1[3, 1] = math.nan
    assert log_bilinear_info_nce(z1, z2, weight).isnan()


def test_gradient_of_the_matrix_only():
    z1, z2, weight = views(7, 3)
    every = torch.autograd.grad(log_bilinear_info_nce(z1, z2, weight), weight)
    assert torch.equal(
        torch.autograd.grad(log_bilinear_info_nce(z1.detach(), z2.detach(), weight), weight)[0], every[0]
    )


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"temperature": 0}, "`temperature` > 0 and finite, but got 0"),
        ({"temperature": -1.0}, r"`temperature` > 0 and finite, but got -1\.0"),
        ({"temperature": math.nan}, "`temperature` > 0 and finite, but got nan"),
        ({"temperature": [1.0, 1.0, 1.0]}, r"`temperature` to be one number, since W .*, but got \[1\.0, 1\.0, 1\.0\]"),
        ({"positive_in_denominator": 0}, "`positive_in_denominator` to be True or False, but got 0"),
        ({"symmetric": "no"}, "`symmetric` to be True or False, but got 'no'"),
        ({"joint": None}, "`joint` to be True or False, but got None"),
        ({"negatives": "all"}, r"`negatives` to be one of \('both', 'same', 'other'\), but got 'all'"),
        ({"joint": True, "symmetric": False}, "`symmetric` = True with `joint` = True"),
        ({"weight": torch.ones(3)}, r"`weight` of shape \(P, P\), P = 3.* but got \(3,\)"),
        ({"weight": torch.ones(3, 2)}, r"`weight` of shape \(P, P\), P = 3.* but got \(3, 2\)"),
        ({"weight": torch.ones(4, 4)}, r"`weight` of shape \(P, P\), P = 3.* but got \(4, 4\)"),
        ({"weight": torch.ones(3, 3).int()}, "`weight` of a float dtype, but got torch.int32"),
    ],
    ids=str,
)
def test_wrong_settings_are_named(arguments, message):
    z = torch.ones(4, 3)
    with pytest.raises(ValueError, match=message):
        log_bilinear_info_nce(z, z, **{"weight": torch.ones(3, 3), **arguments})


def test_wrong_views_are_named(wrong_views):
    z1, z2, message = wrong_views
    with pytest.raises(ValueError, match=message):
        log_bilinear_info_nce(z1, z2, torch.ones(3, 3))
