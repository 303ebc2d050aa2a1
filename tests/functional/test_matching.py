from itertools import permutations

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.functional.latent_r2 import row_moments
from lightning_ssl_geometry.functional.matching import best_match, mean_correlation, moments_correlation

N = 200


def pair(outputs, latents):
    latent = torch.randn(N, latents, dtype=torch.float64)
    return latent @ torch.randn(latents, outputs, dtype=torch.float64) + 2, latent


def slow(z, latent):
    """Over all assignments."""
    few, many = (z, latent) if z.shape[1] <= latent.shape[1] else (latent, z)
    r = np.abs(np.corrcoef(few.numpy(), many.numpy(), rowvar=False)[: few.shape[1], few.shape[1] :])
    choices = permutations(range(many.shape[1]), few.shape[1])
    return max(np.mean([r[k, chosen] for k, chosen in enumerate(choice)]) for choice in choices)


@pytest.mark.parametrize("shape", [(3, 3), (2, 4), (5, 3), (1, 1)])
def test_it_is_the_best_of_all_assignments(shape):
    z, latent = pair(*shape)
    assert mean_correlation(z, latent).item() == pytest.approx(slow(z, latent))


def test_order_sign_scale_and_shift_do_not_matter():
    latent = torch.randn(N, 4, dtype=torch.float64)
    z = latent[:, [3, 1, 0, 2]] * torch.tensor([1.0, -2.0, 1e-3, 50.0]) + 7
    assert mean_correlation(z, latent).item() == pytest.approx(1)
    assert mean_correlation(z[:, :2], latent).item() == pytest.approx(1)  # two latents have no output
    assert mean_correlation(torch.cat([z, torch.randn(N, 3)], 1), latent).item() == pytest.approx(1)


def test_a_rotation_by_45_degrees_leaves_a_correlation_of_sqrt_half():
    latent = torch.linalg.qr(torch.randn(N, 2, dtype=torch.float64) - 0.5).Q
    latent = torch.linalg.qr(latent - latent.mean(0)).Q  # uncorrelated, of equal variance
    z = latent @ torch.tensor([[1.0, -1.0], [1.0, 1.0]], dtype=torch.float64)
    assert mean_correlation(z, latent).item() == pytest.approx(0.5**0.5)


def test_constant_outputs_have_no_correlation():
    z, latent = pair(3, 3)
    z[:, 1] = 0.1
    correlation = moments_correlation(row_moments(z, latent), 3)
    assert (correlation[1] == 0).all()
    assert (correlation[0] > 0).all()
    for value in (0.0, 1.0):
        assert mean_correlation(torch.full((N, 3), value), latent) == 0


def test_an_output_that_varies_by_less_than_a_millionth_is_constant():
    signs = torch.tensor([1.0, -1.0], dtype=torch.float64).repeat(5)[:, None]
    assert mean_correlation(1 + 0.5e-6 * signs, signs) == 0
    assert mean_correlation(1 + 2e-6 * signs, signs).item() == pytest.approx(1, rel=1e-3)


def test_correlations_are_numpys():
    z, latent = pair(3, 2)
    expected = np.abs(np.corrcoef(z.numpy(), latent.numpy(), rowvar=False)[:3, 3:])
    found = moments_correlation(row_moments(z, latent), 3)
    torch.testing.assert_close(found, torch.from_numpy(expected))
    assert (found <= 1).all()


def test_rounding_takes_no_correlation_above_1():
    for seed in range(5):
        latent = torch.randn(30, 4, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
        assert (moments_correlation(row_moments(latent, -3 * latent), 4) <= 1).all()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: mean_correlation(torch.ones(3), torch.ones(3, 1)), r"Expected `z` .* but got \(3,\)"),
        (
            lambda: mean_correlation(torch.ones(3, 1), torch.ones(2, 1)),
            r"Expected `latent` .* N = 3, but got \(2, 1\)",
        ),
        (lambda: mean_correlation(torch.ones(0, 1), torch.ones(0, 1)), "Expected `moments` of at least one sample"),
        (lambda: mean_correlation(torch.full((3, 1), torch.nan), torch.ones(3, 1)), "Expected finite `moments`"),
        (lambda: moments_correlation(torch.eye(3), 2), r"Expected `moments` .* = 4.* but got \(3, 3\)"),
        (lambda: best_match(torch.ones(2)), r"Expected `correlation` of shape \(P, d\), but got \(2,\)"),
        (lambda: best_match(torch.full((2, 2), torch.nan)), r"Expected finite `correlation`"),
    ],
)
def test_what_does_not_fit_is_an_error(call, message):
    with pytest.raises(ValueError, match=message):
        call()
