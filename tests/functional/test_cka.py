from itertools import permutations

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional.cka import cka_between, cka_by_chance, cka_matrix, cka_or_nan, linear_cka


def pair(n=30, wide=7, narrow=4):
    a = torch.randn(n, wide, dtype=torch.float64) + 2
    return a, a[:, :narrow].square() + 0.5 * torch.randn(n, narrow, dtype=torch.float64)


def slow_hsic(a, b, unbiased):
    """By n x n kernels and, without bias, by Song et al.'s sums over indices that all differ."""
    k, other = (x.numpy() @ x.numpy().T for x in (a, b))
    n = len(k)
    if not unbiased:
        centre = np.eye(n) - 1 / n
        return np.trace(k @ centre @ other @ centre)
    k, other = k - np.diag(np.diag(k)), other - np.diag(np.diag(other))
    two = sum(k[i, j] * other[i, j] for i in range(n) for j in range(n))
    three = sum(k[i, j] * other[i, m] for i in range(n) for j in range(n) for m in range(n) if j != m)
    four = k.sum() * other.sum() - 4 * three - 2 * two  # all four indices differ
    falling = n * (n - 1)
    return two / falling - 2 * three / (falling * (n - 2)) + four / (falling * (n - 2) * (n - 3))


def test_two_samples_are_always_aligned():
    a, b = torch.randn(2, 3), torch.randn(2, 5)
    assert linear_cka(a, b).item() == pytest.approx(1)


def test_a_representation_of_equal_distances_has_no_unbiased_norm():
    # The corners of a simplex: all entries beside the diagonal of K are equal, so HSIC_1 of K with itself is exactly 0.
    for seed in range(8):
        other = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        with pytest.raises(ValueError, match="Expected `a` with HSIC > 0 with itself, but got 0"):
            linear_cka(torch.eye(4), other, unbiased=True)
        assert cka_or_nan([torch.eye(4), other], unbiased=True).isnan().tolist() == [[True, True], [True, False]]


@pytest.mark.parametrize("unbiased", [False, True])
@pytest.mark.parametrize("widths", [(7, 4), (60, 90)])
def test_it_is_the_kernels_hsic_whichever_product_is_smaller(widths, unbiased):
    a, b = pair(20, *widths) if widths[0] < 20 else torch.randn(20, 150, dtype=torch.float64).split(widths, dim=1)
    hsic = [slow_hsic(x, y, unbiased) for x, y in ((a, b), (a, a), (b, b))]
    assert linear_cka(a, b, unbiased=unbiased).item() == pytest.approx(hsic[0] / np.sqrt(hsic[1] * hsic[2]), abs=1e-12)


@pytest.mark.parametrize("unbiased", [False, True])
def test_rotation_scale_translation_and_common_order_change_nothing(unbiased):
    a, b = pair()
    turn = torch.linalg.qr(torch.randn(7, 7, dtype=torch.float64)).Q
    found = linear_cka(a, b, unbiased=unbiased)
    torch.testing.assert_close(linear_cka(3e4 * a @ turn + 8, -b, unbiased=unbiased), found)
    torch.testing.assert_close(linear_cka(b, a, unbiased=unbiased), found)
    order = torch.randperm(30)
    torch.testing.assert_close(linear_cka(a[order], b[order], unbiased=unbiased), found)
    torch.testing.assert_close(linear_cka(a, 2 * a @ turn, unbiased=unbiased), torch.ones_like(found))
    assert 0 < found < 1


def test_orthogonal_columns_share_nothing():
    wave = torch.arange(40).double() * 2 * torch.pi / 40
    a, b = torch.stack([wave.sin(), wave.cos()], 1), torch.stack([(2 * wave).sin(), (3 * wave).cos()], 1)
    assert abs(linear_cka(a, b).item()) < 1e-12
    assert linear_cka(a, torch.cat([a, b], 1)).item() == pytest.approx(0.5**0.5)  # |a'a|^2 / (|a'a| * 2^0.5 |a'a|)


def test_the_bias_of_independent_representations():
    a, b = torch.randn(2, 10, 100, 100, dtype=torch.float64)
    biased = torch.stack([linear_cka(x, y) for x, y in zip(a, b, strict=True)])
    assert biased.mean().item() == pytest.approx(0.5, abs=0.02)
    unbiased = torch.stack([linear_cka(x, y, unbiased=True) for x, y in zip(a, b, strict=True)])
    assert abs(unbiased.mean().item()) < 0.02
    assert unbiased.min() < 0


@pytest.mark.parametrize("widths", [(7, 4), (1, 60)])
@pytest.mark.parametrize("n", [4, 5, 6])
def test_over_all_orders_of_the_samples_the_unbiased_one_has_mean_0_and_the_same_deviation_in_any_dimension(n, widths):
    a, b = (torch.randn(n, width, dtype=torch.float64) for width in widths)
    orders = [list(order) for order in permutations(range(n))]
    found = torch.stack([linear_cka(a, b[order], unbiased=True) for order in orders])
    assert found.mean().item() == pytest.approx(0, abs=1e-10)
    assert found.square().mean().sqrt().item() == pytest.approx(cka_by_chance(n), rel=1e-9)


@pytest.mark.parametrize("unbiased", [False, True])
def test_the_matrix_holds_every_pair(unbiased):
    layers = [*pair(), torch.randn(30, 50)]
    found = cka_matrix(layers, unbiased=unbiased)
    assert torch.equal(found, found.T)
    assert torch.equal(found.diagonal(), torch.ones(3, dtype=torch.float64))
    for i in range(3):
        for j in range(3):
            torch.testing.assert_close(found[i, j], linear_cka(layers[i], layers[j], unbiased=unbiased))


A, B = pair()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: linear_cka(A, B[1:]), "`a` and `b` of the same samples, but got 30 and 29 rows"),
        (lambda: linear_cka(A, torch.stack([B, B])), r"`b` of shape \(n, D\), but got \(2, 30, 4\)"),
        (lambda: linear_cka(A[:3], B[:3], unbiased=True), r"`a` of shape \(n, D\) with n >= 4, but got \(3, 7\)"),
        (lambda: linear_cka(A, torch.full((30, 3), 0.3)), "`b` with rows that vary, but all are equal"),
        (lambda: linear_cka(A * torch.nan, B), "`a` with HSIC > 0 with itself, but got nan"),
        (lambda: cka_by_chance(3), "`n` >= 4, but got 3"),
        (lambda: cka_matrix([]), "`h` to hold at least 1 representation, but got none"),
        (lambda: cka_matrix([A, B[1:]]), r"`h` of the same samples, but got \[29, 30\] rows"),
        (lambda: cka_matrix([A, torch.ones(30, 2)]), r"`h\[1\]` with rows that vary, but all are equal"),
        (lambda: cka_matrix([A * torch.nan]), r"`h\[0\]` with HSIC > 0 with itself, but got nan"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("unbiased", [False, True])
def test_a_collapsed_representation_is_nan_and_the_others_as_they_are(unbiased):
    a, b = pair()
    collapsed = torch.full((30, 3), 0.1)
    found = cka_or_nan([a, collapsed, b, a * torch.nan], unbiased=unbiased)
    kept = torch.tensor([0, 2])
    torch.testing.assert_close(found[kept][:, kept], cka_matrix([a, b], unbiased=unbiased))
    assert found[[1, 3]].isnan().all()
    assert found[:, [1, 3]].isnan().all()
    torch.testing.assert_close(cka_or_nan([a, b], unbiased=unbiased), cka_matrix([a, b], unbiased=unbiased))
    with pytest.raises(ValueError, match="Expected `h` of the same samples"):
        cka_or_nan([a, b[:20]])
    with pytest.raises(ValueError, match="`h` to hold at least 1 representation, but got none"):
        cka_or_nan([])


def layers_of_two_networks():
    a, b = pair()
    deep = [torch.tanh(a @ torch.randn(7, width, dtype=torch.float64)) for width in (5, 60)]
    return [a, *deep], [b, torch.relu(b), deep[0][:, :2], b.exp()]


@pytest.mark.parametrize("unbiased", [False, True])
def test_between_two_networks_each_entry_is_the_kernels_hsic(unbiased):
    a, b = layers_of_two_networks()
    found = cka_between(iter(a), b, unbiased=unbiased)
    assert found.shape == (3, 4)
    assert found.dtype == torch.float64
    for i, x in enumerate(a):
        for j, y in enumerate(b):
            hsic = [slow_hsic(*each, unbiased) for each in ((x, y), (x, x), (y, y))]
            assert found[i, j].item() == pytest.approx(hsic[0] / np.sqrt(hsic[1] * hsic[2]), abs=1e-12)
    torch.testing.assert_close(cka_between(b, a, unbiased=unbiased), found.T)
    torch.testing.assert_close(cka_between([x.float() for x in a], b, unbiased=unbiased), found, atol=1e-6, rtol=1e-5)


@pytest.mark.parametrize("unbiased", [False, True])
def test_between_a_network_and_itself_it_is_the_matrix_within_it(unbiased):
    a, _ = layers_of_two_networks()
    a = [*a, torch.full((30, 2), 0.1)]
    torch.testing.assert_close(
        cka_between(a, a, unbiased=unbiased), cka_or_nan(a, unbiased=unbiased), equal_nan=True, atol=1e-12, rtol=1e-12
    )


def test_a_rotation_of_either_network_changes_nothing():
    a, b = layers_of_two_networks()
    found = cka_between(a, b)
    turned = [[x @ torch.linalg.qr(torch.randn(x.shape[1], x.shape[1]).double()).Q for x in each] for each in (a, b)]
    torch.testing.assert_close(cka_between(turned[0], b), found)
    torch.testing.assert_close(cka_between(a, turned[1]), found)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: cka_between([], [A]), "`a` to hold at least 1 representation, but got none"),
        (lambda: cka_between([A], []), "`b` to hold at least 1 representation, but got none"),
        (lambda: cka_between([A, B[1:]], [A]), "`a` and `b` of the same samples, but got 29 and 30 rows"),
        (lambda: cka_between([A], [A, B[1:]]), r"`b` of the same samples, but got \[29, 30\] rows"),
        (lambda: cka_between([A[:, 0]], [A]), r"`a\[0\]` of shape \(n, D\), but got \(30,\)"),
    ],
)
def test_bad_layers_of_two_networks(call, message):
    with pytest.raises(ValueError, match=message):
        call()
