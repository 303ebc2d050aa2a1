import math

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional import (
    effective_rank,
    leading_share,
    participation_ratio,
    variance_effective_rank,
)

RANKS = (participation_ratio, variance_effective_rank)


def with_spectrum(*variances, rows=40):
    """Centred rows whose covariance has these eigenvalues, turned at random."""
    d = len(variances)
    sides = torch.linalg.qr(torch.randn(rows, d, dtype=torch.float64))[0]
    sides = torch.linalg.qr(sides - sides.mean(0)).Q
    turned = torch.linalg.qr(torch.randn(d, d, dtype=torch.float64)).Q
    return math.sqrt(rows) * sides @ torch.diag(torch.tensor(variances, dtype=torch.float64).sqrt()) @ turned


@pytest.mark.parametrize("rank", RANKS)
@pytest.mark.parametrize("count", [1, 2, 5])
def test_equal_variances_are_counted(rank, count):
    h = with_spectrum(*[0.3] * count, *[0.0] * (5 - count))
    assert rank(h).item() == pytest.approx(count, rel=1e-9)
    assert leading_share(h).item() == pytest.approx(1 / count, rel=1e-9)


def test_they_are_the_formulas_of_the_eigenvalues():
    h = torch.randn(2, 30, 4, dtype=torch.float64) * torch.tensor([4.0, 2.0, 1.0, 0.5])
    variances = np.linalg.eigvalsh(np.cov(h.reshape(-1, 4).numpy().T))
    shares = variances / variances.sum()
    assert participation_ratio(h).item() == pytest.approx(variances.sum() ** 2 / (variances**2).sum(), rel=1e-9)
    assert variance_effective_rank(h).item() == pytest.approx(np.exp(-(shares * np.log(shares)).sum()), rel=1e-9)
    assert leading_share(h).item() == pytest.approx(shares.max(), rel=1e-9)


def test_one_direction_with_nearly_all_of_the_variance_is_not_hidden():
    # 100 directions with a thousandth of the first one's variance: the singular values have a rank of 57
    h = with_spectrum(1.0, *[1e-3] * 100, rows=200)
    shares = np.array([1.0, *[1e-3] * 100]) / 1.1
    assert effective_rank(h, center=True).item() == pytest.approx(57.4, abs=0.1)
    assert participation_ratio(h).item() == pytest.approx(1 / (shares**2).sum(), rel=1e-6)
    assert participation_ratio(h) < 1.3
    assert leading_share(h).item() == pytest.approx(1 / 1.1, rel=1e-6)


@pytest.mark.parametrize("function", [*RANKS, leading_share])
def test_the_mean_counts_only_if_it_is_not_subtracted(function):
    h, far = with_spectrum(1.0, 1.0, 1.0), torch.tensor([1e4, 0.0, 0.0], dtype=torch.float64)
    assert function(h + far).item() == pytest.approx(function(h).item(), rel=1e-6)
    assert function(h + far, center=False).item() == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("function", [*RANKS, leading_share])
@pytest.mark.parametrize("scale", [1e-100, 1e100])
def test_the_unit_of_length_does_not_matter_where_squares_of_squares_leave_float64(function, scale):
    h = with_spectrum(2.0, 1.0, 0.5)
    assert function(scale * h).item() == pytest.approx(function(h).item(), rel=1e-9)


@pytest.mark.parametrize("function", [*RANKS, leading_share])
def test_a_singular_value_at_the_rounding_floor_is_0(function):
    # squares whose sum is 2^18: the floor of a 16 x 16 matrix of bfloat16 is 2^-7 / 4 of its norm, so exactly 1
    lengths = [1, 1, 2, 26, 53, 81, 89, 91, 112, 121, 142, 144, 157, 164, 234, 248]
    assert sum(length**2 for length in lengths) == 2**18
    h = torch.diag(torch.tensor(lengths, dtype=torch.bfloat16))
    longer = torch.diag(torch.tensor([0, 0, *lengths[2:]], dtype=torch.float64))
    assert function(h, center=False) == function(longer, center=False)


@pytest.mark.parametrize("function", [*RANKS, leading_share])
def test_order_in_bounds(function):
    h = torch.randn(7, 20)
    ranks = [rank(h).item() for rank in RANKS]
    assert 1 <= ranks[0] <= ranks[1] <= 6  # Renyi's entropy of order 2 is below Shannon's; 7 centred rows span 6
    assert 1 / 6 <= leading_share(h).item() <= 1
    with pytest.raises(ValueError, match="Expected at least one singular value > 0, but all are 0"):
        function(torch.ones(5, 3))
    with pytest.raises(ValueError, match="Expected `h`"):
        function(torch.ones(5))
