import math

import numpy as np
import pytest
import torch
from scipy.integrate import quad

from lightning_ssl_geometry.functional.sigreg import epps_pulley, sigreg


def closed_form(x):
    """Of the integral over all t. With int cos(t c) e^(-a t^2 / 2) dt = (2 pi / a)^0.5 e^(-c^2 / (2 a)):

    N (2 pi)^0.5 [1/N^2 sum_jk e^(-(x_j - x_k)^2 / 2) - 2/N sum_j e^(-x_j^2 / 4) / 2^0.5 + 1 / 3^0.5].
    """
    n = len(x)
    pairs = sum(math.exp(-((a - b) ** 2) / 2) for a in x for b in x) / n**2
    single = sum(math.exp(-(a**2) / 4) for a in x) / n
    return n * math.sqrt(2 * math.pi) * (pairs - math.sqrt(2) * single + 1 / math.sqrt(3))


def slices(seed=0):
    return torch.Generator().manual_seed(seed)


@pytest.mark.parametrize("scale", [0.01, 0.5, 1.0])
def test_the_quadrature_is_right_to_a_millionth_where_samples_are_near(scale):
    x = scale * torch.randn(60, dtype=torch.float64).clamp(-3, 3)
    assert epps_pulley(x).item() == pytest.approx(closed_form(x.tolist()), abs=60e-4)
    finer = epps_pulley(x, t_max=8, num_points=101).item()
    assert finer == pytest.approx(closed_form(x.tolist()), abs=1e-9)


def test_the_quadrature_on_gaussian_samples_and_within_3():
    x = torch.randn(2000, dtype=torch.float64)
    assert epps_pulley(x).item() == pytest.approx(closed_form(x.tolist()), abs=2000e-5)
    x = torch.tensor([-3.0, 3.0])  # the worst that there is
    assert epps_pulley(x).item() == pytest.approx(closed_form(x.tolist()), abs=2e-3)


def test_a_wide_cloud_needs_more_nodes():
    x = 20 * torch.randn(50, dtype=torch.float64)
    expected = closed_form(x.tolist())
    assert abs(epps_pulley(x).item() - expected) > 1
    assert epps_pulley(x, num_points=401).item() == pytest.approx(expected, rel=1e-5)


def test_the_integral_is_scipys():
    x = torch.randn(9, dtype=torch.float64).numpy()

    def integrand(t):
        return abs(np.exp(1j * t * x).mean() - np.exp(-(t**2) / 2)) ** 2 * np.exp(-(t**2) / 2)

    assert epps_pulley(torch.from_numpy(x)).item() == pytest.approx(9 * quad(integrand, -9, 9)[0], rel=1e-3)


def test_the_trapezoidal_rule_halves_the_weights_of_its_ends():
    # At x = 0 the sine is 0 and the cosine 1. Of the nodes -t, 0 and t, only the ends count, with t / 2 each.
    for t in (0.5, 1.0, 2.0):
        phi = math.exp(-(t**2) / 2)
        found = epps_pulley(torch.zeros(3), t_max=t, num_points=3).item()
        assert found == pytest.approx(3 * t * phi * (1 - phi) ** 2)


def test_gaussian_samples_have_the_same_expectation_for_every_number():
    for n in (10, 1000):
        found = epps_pulley(torch.randn(n, 4000)).mean().item()  # over 4000 sets
        assert found == pytest.approx(math.sqrt(2 * math.pi) * (1 - 1 / math.sqrt(3)), rel=0.05)


@pytest.mark.parametrize(("shift", "scale", "expected"), [(0, 0, 0.409), (0, 300, 1.45), (77.7, 0, 3.95)])
def test_extremes(shift, scale, expected):
    x = shift + scale * torch.randn(1000, dtype=torch.float64)
    assert epps_pulley(x, num_points=4001).item() / 1000 == pytest.approx(expected, abs=0.02)


def test_it_is_the_mean_over_directions_of_length_1():
    h = torch.randn(40, 5, dtype=torch.float64) * torch.linspace(0.2, 1, 5)
    directions = torch.randn(30, 5, generator=slices(), dtype=torch.float64)
    each = [epps_pulley(h @ direction / direction.norm()).item() for direction in directions]
    assert sigreg(h, 30, generator=slices()).item() == pytest.approx(np.mean(each))
    assert sigreg(h, 30, generator=slices()) != sigreg(h, 30, generator=slices(1))


def test_an_isotropic_gaussian_is_lowest_and_every_departure_higher():
    h = torch.randn(1000, 20)
    base = sigreg(h, generator=slices()).item()
    assert 0.5 < base < 2.5  # 1.06 on average
    for other in (h + 0.5, 2 * h, 0.5 * h, h * torch.linspace(0, 1.9, 20), h * (torch.rand(1000, 1) < 0.5) * 2**0.5):
        assert sigreg(other, generator=slices()) > 5 * base


def test_standardised_it_knows_no_place_and_size_but_the_shape():
    h = torch.randn(500, 8, dtype=torch.float64)
    found = sigreg(h, standardize=True, generator=slices())
    torch.testing.assert_close(sigreg(30 * h - 4, standardize=True, generator=slices()), found)
    assert sigreg(h * torch.arange(8), standardize=True, generator=slices()) > 3 * found


def test_rotation_changes_what_the_directions_are_and_little_else():
    h = torch.randn(300, 6, dtype=torch.float64) * torch.linspace(0.1, 1, 6)
    turned = h @ torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    assert sigreg(turned, 4000, generator=slices()).item() == pytest.approx(
        sigreg(h, 4000, generator=slices(1)).item(), rel=0.05
    )


def test_there_are_256_directions_unless_said():
    h = torch.randn(9, 3, dtype=torch.float64)
    found = [sigreg(h, *count, generator=slices()) for count in ((), (256,), (257,))]
    assert torch.equal(found[0], found[1])
    assert not torch.equal(found[0], found[2])


def test_gradients():
    x = torch.randn(6, 3, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda h: sigreg(h, 5, standardize=True, generator=slices()), x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: sigreg(torch.ones(0, 3)), "`h` of at least 1 row, but got 0"),
        (lambda: sigreg(torch.ones(3)), r"`h` of shape \(N, D\), but got \(3,\)"),
        (lambda: sigreg(torch.ones(9, 3), 0), "`num_slices` >= 1, but got 0"),
        (
            lambda: sigreg(torch.ones(4, 2), standardize=True),
            "`h` with rows that vary, to standardise them, but all are equal",
        ),
        (lambda: sigreg(torch.ones(1, 2), standardize=True), "`h` with rows that vary"),
        (lambda: epps_pulley(torch.tensor(1.0)), r"`x` of shape \(N, ...\), but got \(\)"),
        (lambda: epps_pulley(torch.ones(0)), r"`x` of shape \(N, ...\) with N >= 1, but got \(0,\)"),
        (lambda: epps_pulley(torch.ones(9), t_max=0), "`t_max` > 0, but got 0"),
        (lambda: epps_pulley(torch.ones(9), t_max=math.nan), "`t_max` > 0, but got nan"),
        (lambda: epps_pulley(torch.ones(9), num_points=2), "`num_points` >= 3, but got 2"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
