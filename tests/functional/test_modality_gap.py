"""The modality gap: laws, closed forms, and the gap by chance against all swaps of a few pairs."""

import itertools
import math

import pytest
import torch

from lightning_ssl_geometry.functional import modality_gap, modality_gap_by_chance, modality_gap_share

EVERY = (modality_gap, modality_gap_by_chance, modality_gap_share)


def towers(n=40, p=5, shift=0.0, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z1, z2 = torch.randn(2, n, p, generator=generator, dtype=torch.float64)
    return z1 + shift, z2 - shift


@pytest.mark.parametrize("function", EVERY)
def test_it_is_symmetric_and_knows_no_rotation_scale_or_order(function):
    z1, z2 = towers(shift=0.3)
    rotation = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64)).Q
    order = torch.randperm(len(z1))
    for other in ((z2, z1), (3 * z1, 0.1 * z2), (z1 @ rotation, z2 @ rotation), (z1[order], z2[order])):
        torch.testing.assert_close(function(*other), function(z1, z2))


@pytest.mark.parametrize(
    ("function", "expected"),
    [(modality_gap, 2.0), (modality_gap_by_chance, 2 / math.sqrt(40)), (modality_gap_share, 1.0)],
)
def test_opposite_points(function, expected):
    z = torch.ones(40, 3, dtype=torch.float64)
    torch.testing.assert_close(function(z, -z).item(), expected)


def test_pairs_at_right_angles():
    # the centroids (1/2, 1/2, 0) and (0, 0, 1) are sqrt(3/2) apart, each pair sqrt(2)
    z1, z2 = torch.eye(3, dtype=torch.float64)[:2], torch.eye(3, dtype=torch.float64)[2].expand(2, 3)
    torch.testing.assert_close(modality_gap(z1, z2).item(), math.sqrt(1.5))
    torch.testing.assert_close(modality_gap_by_chance(z1, z2).item(), math.sqrt(4) / 2)
    # within: both rows of tower 1 are 1/sqrt(2) from their centroid, those of tower 2 on theirs; between: 1.5 / 4
    torch.testing.assert_close(modality_gap_share(z1, z2).item(), 0.375 / (0.375 + 0.25))


def swapped(z1, z2, coins):
    coins = torch.tensor(coins)[:, None]
    return z1.where(coins, z2), z2.where(coins, z1)


def test_chance_is_the_mean_over_all_swaps():
    z1, z2 = towers(n=6, shift=0.5)
    every = [swapped(z1, z2, coins) for coins in itertools.product((True, False), repeat=6)]
    squares = torch.stack([modality_gap(*each).square() for each in every])
    shares = torch.stack([modality_gap_share(*each) for each in every])
    chance = modality_gap_by_chance(z1, z2).square()
    torch.testing.assert_close(squares.mean(), chance)
    torch.testing.assert_close(shares.mean(), modality_gap_share(z1, z2) * chance / modality_gap(z1, z2).square())


def test_the_gap_of_one_cloud_is_that_of_chance_and_of_two_clouds_is_not():
    gap, chance = (function(*towers(n=4000)) for function in (modality_gap, modality_gap_by_chance))
    assert gap < 2 * chance
    assert modality_gap(*towers(n=4000, shift=0.3)) > 10 * chance


def test_without_normalisation_the_lengths_count():
    z1, z2 = towers(shift=0.2)
    torch.testing.assert_close(modality_gap(3 * z1, 3 * z2, normalize=False), 3 * modality_gap(z1, z2, normalize=False))
    assert modality_gap(z1, z2, normalize=False) != modality_gap(z1, z2)


@pytest.mark.parametrize("function", EVERY)
def test_gradients(function):
    z1, z2 = (z.requires_grad_() for z in towers(n=4, p=3, shift=0.3))
    assert torch.autograd.gradcheck(function, (z1, z2))


@pytest.mark.parametrize("function", EVERY)
@pytest.mark.parametrize(
    ("z1", "z2", "message"),
    [
        (torch.ones(3, 2), torch.ones(4, 2), r"Expected `z2` of shape \(N, P\), N = 3.*, but got \(4, 2\)"),
        (torch.ones(3, 2, 2), torch.ones(3, 2, 2), r"Expected `z1` of shape \(N, P\), but got \(3, 2, 2\)"),
        (torch.ones(0, 2), torch.ones(0, 2), "Expected `z1` of at least 1 row, but got 0"),
    ],
)
def test_bad_input(function, z1, z2, message):
    with pytest.raises(ValueError, match=message):
        function(z1, z2)


@pytest.mark.parametrize("normalize", [True, False])
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32])
@pytest.mark.parametrize("function", EVERY)
def test_it_is_computed_in_float64(function, dtype, normalize):
    z1, z2 = (200 * z.to(dtype) for z in towers(shift=0.3))  # squares that float16 does not have
    found = function(z1, z2, normalize=normalize)
    assert found.dtype == torch.float64
    assert found == function(z1.double(), z2.double(), normalize=normalize)


def test_short_rows_have_a_direction_and_rows_of_zeros_have_none():
    z1, z2 = towers(shift=0.3)
    torch.testing.assert_close(modality_gap(z1 * 1e-20, z2), modality_gap(z1, z2))
    zeros = torch.zeros(3, 2, requires_grad=True)
    gap = modality_gap(zeros, torch.tensor([[2.0, 0.0]]).expand(3, 2))
    gap.backward()
    assert gap == 1
    assert not zeros.grad.any()
