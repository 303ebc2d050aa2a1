"""The affine colours of the fast mode: a composition in closed form, against the operations one after the other."""

import itertools

import pytest
import torch

from lightning_ssl_geometry.views import adjust_hue, color_jitter
from lightning_ssl_geometry.views.linear_color import affine_color, color_maps

ORDERS = torch.tensor(list(itertools.permutations(range(4))))
N = len(ORDERS)
LUMA = torch.tensor([0.2989, 0.587, 0.114], dtype=torch.float64)
LUMA = LUMA / LUMA.sum()


def factors():
    factor = 0.2 + 1.6 * torch.rand(N, 4, dtype=torch.float64)
    factor[:, 3] = factor[:, 3] / 2 - 0.5
    return factor


def one_after_the_other(x, order, factor, gray):
    """One image (3, M) through four affine steps, without a clamp."""
    third = 2 * torch.pi / 3
    shifts = torch.arange(3, dtype=torch.float64)
    for kind in order.tolist():
        f, y = factor[kind], LUMA @ x
        if kind == 0:
            x = f * x
        elif kind == 1:
            x = f * x + (1 - f) * y.mean()
        elif kind == 2:
            x = f * x + (1 - f) * y
        else:  # circulant: invariant under a permutation of the channels, keeps gray, turns by 2 pi f
            turn = 2 * torch.pi * f - third * (shifts[:, None] - shifts)
            x = (1 + 2 * turn.cos()) / 3 @ x
    return (LUMA @ x).expand_as(x) if gray else x


@pytest.mark.parametrize("gray", [False, True])
def test_closed_form_is_the_composition_in_every_order(gray):
    x, factor = torch.rand(3, N, 5, 4, dtype=torch.float64), factors()
    m, q = color_maps(ORDERS, factor, torch.full((N,), gray))
    result = torch.einsum("nij,jnhw->inhw", m, x) + torch.einsum("nj,jn->n", q, x.mean((2, 3)))[:, None, None]
    for i in range(N):
        expected = one_after_the_other(x[:, i].reshape(3, -1), ORDERS[i], factor[i], gray)
        torch.testing.assert_close(result[:, i].reshape(3, -1), expected)


def test_affine_color_clamps_once_and_normalizes():
    x, factor = torch.rand(3, N, 5, 4), factors().float()
    m, q = color_maps(ORDERS, factor, torch.zeros(N, dtype=torch.bool))
    plain = affine_color(x, m, q)
    free = torch.einsum("nij,jnhw->nihw", m, x) + torch.einsum("nj,jn->n", q, x.mean((2, 3)))[:, None, None, None]
    torch.testing.assert_close(plain, free.clamp(0, 1))
    mean, std = torch.tensor([0.1, 0.5, 0.9]), torch.tensor([0.2, 0.5, 2.0])
    normalized = affine_color(x, m, q, (mean, std))
    torch.testing.assert_close(normalized, (plain - mean[:, None, None]) / std[:, None, None])


def test_equals_the_exact_jitter_where_nothing_clamps_and_no_hue_turns():
    image = 0.45 + 0.1 * torch.rand(N, 3, 5, 4)
    factor = 0.9 + 0.2 * torch.rand(N, 4)
    factor[:, 3] = 0
    m, q = color_maps(ORDERS, factor, torch.zeros(N, dtype=torch.bool))
    exact = color_jitter(image, ORDERS, factor)
    torch.testing.assert_close(affine_color(image.transpose(0, 1).contiguous(), m, q), exact, atol=2e-4, rtol=0)


def test_rotation_is_the_hue_of_hsv_at_thirds_of_a_turn():
    image, factor = torch.rand(N, 3, 5, 4), torch.ones(N, 4)
    factor[:, 3] = torch.tensor([-1 / 3, 0.0, 1 / 3]).repeat(N // 3)
    m, q = color_maps(ORDERS, factor, torch.zeros(N, dtype=torch.bool))
    rotated = affine_color(image.transpose(0, 1).contiguous(), m, q)
    torch.testing.assert_close(rotated, adjust_hue(image, factor[:, 3]), atol=1e-5, rtol=0)


def test_one_channel_is_three_equal_ones():
    x, factor = torch.rand(1, N, 5, 4), factors().float()
    m, q = color_maps(ORDERS, factor, torch.rand(N) < 0.5)
    expected = affine_color(x.repeat(3, 1, 1, 1), m, q)
    for channel in range(3):
        torch.testing.assert_close(affine_color(x, m, q)[:, 0], expected[:, channel])
