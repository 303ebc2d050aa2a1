import math

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional import effective_rank, log_singular_values, numerical_rank
from lightning_ssl_geometry.functional.spectrum import (
    matrix_singular_values,
    singular_values_effective_rank,
    singular_values_rank,
)


def rotation(n):
    return torch.linalg.qr(torch.randn(n, n, dtype=torch.float64)).Q


@pytest.mark.parametrize(("tau", "mode"), [(1e-6, "absolute"), (1e-6, "relative"), (1 - 1e-9, "cumulative")])
def test_rank_of_a_product_of_thin_factors(tau, mode):
    matrix = torch.randn(3, 12, 4, dtype=torch.float64) @ torch.randn(3, 4, 9, dtype=torch.float64)
    assert numerical_rank(matrix, tau, mode=mode).tolist() == [4, 4, 4]


def test_rank_is_invariant_under_rotation_and_relative_modes_under_scale():
    matrix = torch.randn(8, 8, dtype=torch.float64)
    turned = rotation(8) @ matrix @ rotation(8)
    for tau, mode in [(1.5, "absolute"), (0.3, "relative"), (0.8, "cumulative")]:
        assert numerical_rank(matrix, tau, mode=mode) == numerical_rank(turned, tau, mode=mode)
        if mode != "absolute":
            assert numerical_rank(matrix, tau, mode=mode) == numerical_rank(1e5 * matrix, tau, mode=mode)


def test_rank_counts_a_singular_value_that_equals_the_threshold():
    assert singular_values_rank(torch.tensor([4.0, 2.0, 1.0]), 2.0) == 2
    assert singular_values_rank(torch.tensor([4.0, 2.0, 1.0]), 0.25, mode="relative") == 3
    # 16 / 21 = 0.762 and 20 / 21 = 0.952 of the variance
    for tau, rank in [(0.76, 1), (0.77, 2), (0.95, 2), (0.96, 3), (1.0, 3)]:
        assert singular_values_rank(torch.tensor([4.0, 2.0, 1.0]), tau, mode="cumulative") == rank


@pytest.mark.parametrize("mode", ["absolute", "relative", "cumulative"])
def test_rank_of_zero_is_zero(mode):
    assert numerical_rank(torch.zeros(3, 4), 0.5, mode=mode) == 0


def test_effective_rank_lies_between_one_and_d():
    assert effective_rank(torch.ones(20, 6)).item() == pytest.approx(1, abs=1e-4)
    assert effective_rank(torch.eye(6).repeat(3, 1)).item() == pytest.approx(6, abs=1e-4)
    h = torch.randn(2, 50, 6)
    assert 1 < effective_rank(h) < 6
    assert effective_rank(h) == pytest.approx(effective_rank(h.reshape(100, 6)).item())


def test_effective_rank_is_invariant_under_rotation_and_scale():
    h = torch.randn(50, 6, dtype=torch.float64) * torch.arange(1, 7)
    turned = 10 * rotation(50) @ h @ rotation(6)
    assert effective_rank(h).item() == pytest.approx(effective_rank(turned).item(), rel=1e-9)


def test_effective_rank_of_two_singular_values():
    # p = (3/4, 1/4): exp(-(3/4) log(3/4) - (1/4) log(1/4)) = 4 / 3^(3/4)
    found = singular_values_effective_rank(torch.tensor([3.0, 1.0], dtype=torch.float64), eps=1e-12)
    assert found.item() == pytest.approx(4 / 3**0.75, rel=1e-9)


def test_eigenvalues_have_a_smaller_effective_rank_than_singular_values():
    # sigma = (3, 1), lambda = (9, 1): p = (9/10, 1/10) gives 10 / 9^(9/10)
    sigma = torch.tensor([3.0, 1.0], dtype=torch.float64)
    found = singular_values_effective_rank(sigma.square(), eps=1e-12)
    assert found.item() == pytest.approx(10 / 9**0.9, rel=1e-9)
    assert found < singular_values_effective_rank(sigma)


def test_effective_rank_is_rankmes_sum():
    h = (torch.randn(40, 6) * torch.linspace(0.1, 2, 6) + 1).numpy().astype("float64")
    sigma = np.sqrt(np.linalg.eigvalsh(h.T @ h))
    p = sigma / sigma.sum() + 1e-7
    assert effective_rank(torch.from_numpy(h)).item() == pytest.approx(np.exp(-sum(p * np.log(p))), rel=1e-9)
    eigenvalues = np.linalg.eigvalsh(np.cov(h.T))  # what others call by this name: centred, of the covariance
    other = np.exp(-sum(q * np.log(q) for q in eigenvalues / eigenvalues.sum()))
    centred = torch.linalg.svdvals(torch.from_numpy(h - h.mean(0)))
    assert singular_values_effective_rank(centred.square(), eps=1e-15).item() == pytest.approx(other)
    assert abs(other - effective_rank(torch.from_numpy(h)).item()) > 0.1


def test_a_sum_that_reaches_the_fraction_exactly_is_enough():
    assert singular_values_rank(torch.ones(4), 0.5, mode="cumulative") == 2


@pytest.mark.parametrize("seed", range(8))
def test_zeros_do_not_count_even_where_sums_are_rounded(seed):
    sigma = (
        torch.rand(9, generator=torch.Generator().manual_seed(seed), dtype=torch.float64).sort(descending=True).values
    )
    padded = torch.cat([sigma, torch.zeros(3, dtype=torch.float64)])
    assert singular_values_rank(padded, 1.0, mode="cumulative") <= 9


def test_a_singular_value_at_the_rounding_floor_is_0():
    # the floor of a 2 x 2 matrix of float64 is 2 eps = 2^-51 of its norm
    for second, is_0 in ((2.0**-51, True), (2.0**-51 * (1 + 2.0**-52), False)):
        found = log_singular_values(torch.diag(torch.tensor([1.0, second], dtype=torch.float64)))
        assert found.isinf().tolist() == [False, is_0]


def test_centring_takes_the_mean_direction_away():
    h = torch.randn(1000, 5) + 100 * torch.eye(5)[0]
    assert effective_rank(h) < 1.5
    assert effective_rank(h, center=True) > 4.9


def test_log_spectrum_does_not_depend_on_the_number_of_rows_and_sums_to_the_mean_square():
    h = torch.randn(30, 5, dtype=torch.float64)
    spectrum = log_singular_values(h)
    torch.testing.assert_close(spectrum, log_singular_values(h.repeat(7, 1)))
    assert (2 * spectrum).exp().sum().item() == pytest.approx(h.square().sum(1).mean().item())
    assert log_singular_values(torch.eye(3)[:, :2])[0].item() == pytest.approx(-0.5 * math.log(3))


def with_spectrum(sigma, rows, columns):
    sigma = torch.as_tensor(sigma, dtype=torch.float64)
    count = len(sigma)
    left, right = (torch.linalg.qr(torch.randn(size, count, dtype=torch.float64)).Q for size in (rows, columns))
    return left * sigma @ right.T


@pytest.mark.parametrize("shape", [(130, 130), (130, 300), (300, 130)])
@pytest.mark.parametrize("least", [1.0, 1e-2, 1e-4, 6e-5, 1e-5, 1e-8, 0.0])
@pytest.mark.parametrize("scale", [1e-200, 1.0, 1e200])
def test_singular_values_of_a_large_matrix(shape, least, scale):
    """Graded spectra whose least value is above and below the one at which the Gram matrix is precise enough."""
    sigma = torch.linspace(1, 0, 130, dtype=torch.float64) * (1 - least) + least
    found = matrix_singular_values(scale * with_spectrum(sigma, *shape))
    assert found.shape == sigma.shape
    torch.testing.assert_close(found / scale, sigma, rtol=1e-6, atol=1e-14)


def test_a_large_matrix_of_zeros():
    assert torch.equal(matrix_singular_values(torch.zeros(130, 140)), torch.zeros(130, dtype=torch.float64))


def test_a_large_matrix_of_good_condition_needs_no_svd(monkeypatch):
    good, bad = (with_spectrum(torch.linspace(1, least, 200), 200, 256) for least in (1e-3, 1e-6))
    monkeypatch.delattr(torch.linalg, "svdvals")
    assert len(matrix_singular_values(good)) == 200
    with pytest.raises(AttributeError):
        matrix_singular_values(bad)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: numerical_rank(torch.ones(3), 0.1), r"`matrix` of shape .*, but got \(3,\)"),
        (lambda: numerical_rank(torch.eye(3), 0), "`tau` > 0, but got 0"),
        (lambda: numerical_rank(torch.eye(3), 2, mode="relative"), r"`tau` in \(0, 1\], but got 2"),
        (
            lambda: numerical_rank(torch.eye(3), 1, mode="x"),
            r"`mode` to be one of \('absolute', 'relative', 'cumulative'\), but got 'x'",
        ),
        (lambda: effective_rank(torch.zeros(4, 3)), "all are 0"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
