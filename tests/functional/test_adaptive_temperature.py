import math

import pytest
import torch

from lightning_ssl_geometry.functional import (
    content_dimension,
    content_style_temperature,
    equalizing_temperature,
    gradient_spectrum,
)
from lightning_ssl_geometry.functional.adaptive_temperature import (
    content_count,
    covariances_content_dimension,
    covariances_gradient_spectrum,
    pair_covariances,
    variance_ratios,
)


def rows(n, d):
    return torch.randn(n, d, dtype=torch.float64)


def pairs(n, content, style, sigma_c=0.0, sigma_s=0.05, mixing=None):
    """Latents uniform in the unit box, and their positives; or observations, where there is a mixing."""
    z = torch.rand(n, content + style, dtype=torch.float64)
    sigma = torch.tensor([sigma_c] * content + [sigma_s] * style, dtype=torch.float64)
    latents = z, z + sigma * torch.randn_like(z)
    return latents if mixing is None else tuple(latent @ mixing.T for latent in latents)


def test_content_comes_first():
    tau = content_style_temperature(5, content_dim=2, tau_c=0.3, tau_s=0.9)
    assert tau.tolist() == [0.3, 0.3, 0.9, 0.9, 0.9]
    assert content_style_temperature(2, content_dim=0, tau_c=0.3).tolist() == [1, 1]
    assert content_style_temperature(2, content_dim=2, tau_c=0.3).tolist() == [0.3, 0.3]


def test_the_equalizing_temperature_is_the_ratio_of_the_standard_deviations():
    assert equalizing_temperature(0.02, 0.08) == pytest.approx(0.25)
    assert equalizing_temperature(3.0, 3.0) == 1


def test_the_equalizing_temperature_evens_out_the_gradient():
    # Eq. 16-18: with the features of content divided by sqrt(alpha), both singular values are sigma_z^2 - sigma_s^2.
    sigma_z, sigma_c, sigma_s = 0.7, 0.1, 0.4
    sqrt_alpha = equalizing_temperature(sigma_c, sigma_s)
    content, style = sigma_z**2 - (sigma_c / sqrt_alpha) ** 2, sigma_z**2 - sigma_s**2
    assert content == pytest.approx(style)


@pytest.mark.parametrize("sigma_c", [0.0, 0.001])
def test_a_temperature_below_the_floor_is_said(sigma_c):
    tau = equalizing_temperature(sigma_c, 0.05, floor=1e-9) if sigma_c else 0
    with pytest.warns(UserWarning, match=f"of content, {tau:.3g}, is below `floor` = 0.2, which is used instead"):
        assert equalizing_temperature(sigma_c, 0.05, floor=0.2) == 0.2


def test_a_temperature_at_the_floor_is_no_warning():
    assert equalizing_temperature(0.25, 1.0, floor=0.25) == 0.25
    assert equalizing_temperature(0.1, 1.0) == 0.1


def test_a_jump_of_min_ratio_is_enough_even_between_two_ratios():
    ratios = torch.tensor([0.125, 1.0])
    assert [content_count(ratios, min_ratio=least).item() for least in (8.0, 8.1)] == [1, 0]


@pytest.mark.parametrize("scale", [2.0**-20, 1.0, 2.0**20])
def test_a_direction_of_at_most_rtol_of_the_largest_variance_is_ignored(scale):
    for rtol, variance, count in [
        ({}, 1.1e-10, 2),
        ({}, 0.9e-10, 1),
        ({"rtol": 0.25}, 0.25, 1),
        ({"rtol": 0.2}, 0.25, 2),
    ]:
        marginal = scale * torch.diag(torch.tensor([variance, 1.0], dtype=torch.float64))
        assert len(variance_ratios(marginal, torch.eye(2), **rtol)) == count


def test_the_covariances_of_pairs():
    x1, x2 = rows(7, 3) + 5, rows(7, 3)
    marginal, conditional = pair_covariances(x1, x2)
    torch.testing.assert_close(marginal, torch.cov(x1.T, correction=0))
    slow = sum(torch.outer(a - b, a - b) for a, b in zip(x1, x2, strict=True)) / 7  # not centred
    torch.testing.assert_close(conditional, slow)
    assert pair_covariances(x1.float(), x2.float())[0].dtype == torch.float64


def test_the_gradient_spectrum_is_that_of_lemma_5():
    # The gradient of Eq. 4 as the proof writes it, Eq. 7, at alpha_ij = 1 / M and without gradient through x_j.
    n, d = 40, 3
    x, positive, weight = rows(n, d), rows(n, d) / 4, rows(2, d)
    x, positive = x - x.mean(dim=0), (x + positive) - x.mean(dim=0)
    z, zp = x @ weight.T, positive @ weight.T
    velocity = torch.zeros(2, d, dtype=torch.float64)
    for i in range(n):
        for j in range(n):
            if j != i:
                velocity -= torch.outer(z[i] - zp[i], x[i] - positive[i]) / (n - 1)
                velocity += torch.outer(z[i] - z[j], x[i]) / (n - 1)
    # sum_j (z_i - z_j) x_i^T = n z_i x_i^T for centred z: n / (n-1) of the covariance
    marginal, conditional = pair_covariances(x, positive)
    expected = torch.linalg.svdvals(velocity / n)
    found = covariances_gradient_spectrum(marginal * n / (n - 1), conditional, weight)
    torch.testing.assert_close(found, expected)


def test_the_gradient_spectrum_is_larger_for_content():
    # uniform on [0, 1]: variance 1/12; Eq. 15 in the axes of the latents
    spectrum = gradient_spectrum(*pairs(100_000, 2, 3, sigma_c=0.01, sigma_s=0.2))
    expected = torch.tensor([1 / 12 - 0.01**2] * 2 + [1 / 12 - 0.2**2] * 3, dtype=torch.float64)
    torch.testing.assert_close(spectrum, expected, rtol=0.03, atol=0)
    assert spectrum.dtype == torch.float64
    assert gradient_spectrum(rows(9, 4), rows(9, 4), rows(2, 4)).shape == (2,)


def test_the_gradient_spectrum_does_not_change_with_rotations():
    x1, x2 = pairs(50, 2, 2)
    rotation = torch.linalg.qr(rows(4, 4)).Q
    torch.testing.assert_close(gradient_spectrum(x1 @ rotation, x2 @ rotation), gradient_spectrum(x1, x2))


def test_ratios_of_independent_pairs_are_two_and_of_equal_ones_zero():
    x1, x2 = torch.randn(2, 200_000, 3, dtype=torch.float64)
    torch.testing.assert_close(
        variance_ratios(*pair_covariances(x1, x2)), torch.full((3,), 2.0).double(), rtol=0.02, atol=0
    )
    assert variance_ratios(*pair_covariances(x1, x1)).abs().max() < 1e-15


def test_ratios_do_not_change_with_linear_maps():
    x1, x2 = pairs(60, 2, 2)
    mixing = rows(4, 4)
    expected = variance_ratios(*pair_covariances(x1, x2))
    torch.testing.assert_close(variance_ratios(*pair_covariances(x1 @ mixing, x2 @ mixing)), expected)


def test_the_spectrum_of_whitened_pairs_is_one_minus_the_ratios():
    x1, x2 = pairs(60, 2, 2)
    marginal, conditional = pair_covariances(x1, x2)
    inverse = torch.linalg.inv(torch.linalg.cholesky(marginal))
    spectrum = gradient_spectrum(x1 @ inverse.T, x2 @ inverse.T)
    torch.testing.assert_close(spectrum, 1 - variance_ratios(marginal, conditional))


def test_collapsed_directions_are_left_out():
    x1, x2 = pairs(60, 2, 2)
    into = rows(4, 6)  # the observations span 4 of 6 dimensions
    assert variance_ratios(*pair_covariances(x1 @ into, x2 @ into)).shape == (4,)
    assert content_dimension(x1 @ into, x2 @ into) == 2
    assert content_dimension((x1 @ into).float(), (x2 @ into).float()) == 2
    assert content_dimension(torch.zeros(5, 3), torch.zeros(5, 3)) == 0


@pytest.mark.parametrize("content", [0, 1, 5, 9])
@pytest.mark.parametrize("sigma_c", [0.0, 0.005])
@pytest.mark.parametrize("mixed", [False, True])
def test_the_number_of_content_dimensions_is_found(content, sigma_c, mixed):
    mixing = rows(10, 10) if mixed else None
    found = content_dimension(*pairs(2000, content, 10 - content, sigma_c=sigma_c, mixing=mixing))
    assert found.dtype == torch.int64
    assert found == content


def test_the_printed_spectrum_does_not_show_them_where_the_ratios_do():
    # sigma_s = 0.05 in the unit box: 1/12 and 1/12 - 0.0025 are 3% apart, less than the mixing spreads either.
    x1, x2 = pairs(2000, 5, 5, mixing=rows(10, 10))
    spectrum = gradient_spectrum(x1, x2)
    assert (spectrum[:-1] / spectrum[1:]).argmax() + 1 != 5
    assert content_dimension(x1, x2) == 5


def test_all_content_is_as_no_content():
    x1, x2 = pairs(500, 4, 0, sigma_c=0.01)
    assert content_dimension(x1, x2) == 0
    assert content_dimension(x1, x1) == 0


def test_the_smallest_ratio_decides():
    ratios = torch.tensor([0.01, 0.04, 0.5])  # growth 4 and 12.5
    assert content_count(ratios) == 2
    assert content_count(ratios, min_ratio=12.4) == 2
    assert content_count(ratios, min_ratio=12.6) == 0
    assert content_count(ratios, eps=0.3, min_ratio=1.5) == 2
    assert content_count(torch.tensor([0.0])) == content_count(torch.zeros(0)) == 0


def test_moments_give_what_pairs_give():
    x1, x2, weight = *pairs(30, 2, 2), rows(3, 4)
    covariances = pair_covariances(x1, x2)
    assert torch.equal(covariances_gradient_spectrum(*covariances), gradient_spectrum(x1, x2))
    assert torch.equal(covariances_gradient_spectrum(*covariances, weight), gradient_spectrum(x1, x2, weight))
    assert torch.equal(covariances_content_dimension(*covariances), content_dimension(x1, x2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: content_style_temperature(0, 0, 0.5), "Expected `dim` >= 1, but got 0"),
        (lambda: content_style_temperature(3, 4, 0.5), "`content_dim` with 0 <= content_dim <= dim = 3, but got 4"),
        (lambda: content_style_temperature(3, -1, 0.5), "`content_dim` with 0 <= content_dim <= dim = 3, but got -1"),
        (lambda: content_style_temperature(3, 1, math.nan), "Expected `tau_c` > 0 and finite, but got nan"),
        (lambda: content_style_temperature(3, 1, 0.5, 0.0), r"Expected `tau_s` > 0 and finite, but got 0\.0"),
        (lambda: equalizing_temperature(-1.0, 1.0), r"Expected `sigma_c` >= 0 and finite, but got -1\.0"),
        (lambda: equalizing_temperature(1.0, 0.0), r"Expected `sigma_s` > 0 and finite, but got 0\.0"),
        (lambda: equalizing_temperature(1.0, 1.0, floor=0.0), r"Expected `floor` > 0 and finite, but got 0\.0"),
        (lambda: pair_covariances(torch.zeros(3), torch.zeros(3)), r"`x1` of shape \(N, d\), but got \(3,\)"),
        (lambda: pair_covariances(torch.zeros(1, 3), torch.zeros(1, 3)), "Expected `x1` of at least 2 rows, but got 1"),
        (lambda: pair_covariances(torch.zeros(2, 3), torch.zeros(2, 1)), r"`x2` .* d = 3, but got \(2, 1\)"),
        (
            lambda: variance_ratios(torch.zeros(2, 3), torch.zeros(2, 3)),
            r"`marginal` of shape \(d, d\), d = 2.* but got \(2, 3\)",
        ),
        (
            lambda: variance_ratios(torch.zeros(0, 0), torch.zeros(0, 0)),
            "Expected `marginal` of at least 1 row, but got 0",
        ),
        (lambda: variance_ratios(torch.eye(2), torch.eye(3)), r"`conditional` .* d = 2, but got \(3, 3\)"),
        (lambda: variance_ratios(torch.eye(2), math.nan * torch.eye(2)), "Expected finite `conditional`, but got"),
        (lambda: variance_ratios(torch.eye(2), torch.eye(2), rtol=-1.0), r"Expected `rtol` >= 0, but got -1\.0"),
        (lambda: gradient_spectrum(rows(4, 3), rows(4, 3), rows(3, 2)), r"\(P, d\), d = 3, but got \(3, 2\)"),
        (lambda: content_dimension(rows(4, 3), rows(4, 3), min_ratio=1.0), r"`min_ratio` > 1 and finite, but got 1\.0"),
        (lambda: content_dimension(rows(4, 3), rows(4, 3), eps=0.0), r"Expected `eps` > 0 and finite, but got 0\.0"),
    ],
)
def test_wrong_input_is_named(call, message):
    with pytest.raises(ValueError, match=message):
        call()
