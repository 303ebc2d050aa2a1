import math

import pytest
import torch
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import alignment, gaussian_potential, uniformity


def test_potential_is_the_mean_over_all_pairs():
    z = torch.randn(13, 4, dtype=torch.float64)
    unit = normalize(z, dim=1)
    pairs = [(-3 * (unit[i] - unit[j]).square().sum()).exp() for i in range(13) for j in range(13) if i != j]
    expected = torch.stack(pairs).mean()
    for block_size in (1, 5, 100):
        torch.testing.assert_close(gaussian_potential(z, 3.0, block_size=block_size), expected)
    torch.testing.assert_close(uniformity(z, 3.0), expected.log())
    torch.testing.assert_close(gaussian_potential(5 * z, 3.0), expected)
    assert gaussian_potential(z, normalize=False) != gaussian_potential(z)


def test_potential_of_uniform_points_on_the_sphere_of_50_dimensions():
    # E exp(-2t + 2t u.v) = e^{-2t} Gamma(d/2) t'^{1-d/2} I_{d/2-1}(2t): 0.0215 at t = 2, d = 50
    z = torch.randn(3000, 50, dtype=torch.float64)
    assert gaussian_potential(z).item() == pytest.approx(0.0215, rel=0.02)


def test_potential_of_coinciding_points_is_one():
    assert gaussian_potential(torch.ones(5, 3)).item() == pytest.approx(1, abs=1e-6)
    assert uniformity(torch.ones(5, 3)).item() == pytest.approx(0, abs=1e-6)


def test_alignment():
    z1, z2 = torch.randn(2, 6, 4, dtype=torch.float64)
    assert alignment(z1, 3 * z1).item() == pytest.approx(0, abs=1e-12)
    assert alignment(z1, -z1).item() == pytest.approx(4)
    assert alignment(z1, -z1, alpha=1).item() == pytest.approx(2)
    cosine = torch.nn.functional.cosine_similarity(z1, z2).mean()
    assert alignment(z1, z2).item() == pytest.approx(2 - 2 * cosine.item())
    assert alignment(z1, z2, normalize=False).item() == pytest.approx((z1 - z2).square().sum(1).mean().item())


def test_gradients():
    z = torch.randn(5, 3, dtype=torch.float64, requires_grad=True)
    other = torch.randn(5, 3, dtype=torch.float64)
    assert torch.autograd.gradcheck(lambda z: uniformity(z, block_size=2), z)
    assert torch.autograd.gradcheck(lambda z: alignment(z, other, alpha=1.5), z)


def test_two_antipodes():
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    assert gaussian_potential(z, 0.5).item() == pytest.approx(math.exp(-2))


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (
            lambda: alignment(torch.ones(3, 2), torch.ones(2, 2)),
            r"`z2` of shape \(N, P\), N = 3, P = 2, but got \(2, 2\)",
        ),
        (lambda: alignment(torch.ones(3, 2), torch.ones(3, 2), alpha=0), "`alpha` > 0, but got 0"),
        (lambda: gaussian_potential(torch.ones(1, 2)), "`z` of at least 2 rows, but got 1"),
        (lambda: gaussian_potential(torch.ones(2)), r"`z` of shape \(N, P\), but got \(2,\)"),
        (lambda: alignment(torch.ones(0, 2), torch.ones(0, 2)), "`z1` of at least 1 row, but got 0"),
        (lambda: uniformity(torch.ones(3, 2), -1), "`t` > 0, but got -1"),
        (lambda: uniformity(torch.ones(3, 2), block_size=-1), "`block_size` >= 1, but got -1"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_small_kernels_do_not_cancel_beside_the_ones_of_the_diagonal():
    z = torch.randn(300, 64)
    for t in (12.0, 20.0, 30.0):
        assert uniformity(z, t).item() == pytest.approx(uniformity(z.double(), t).item(), rel=1e-5)


def test_half_precision_has_the_sum_of_a_block():
    z = torch.randn(1024, 32) + 1
    assert gaussian_potential(z.half()).item() == pytest.approx(gaussian_potential(z).item(), rel=1e-2)


def test_rows_far_from_0_have_the_potential_of_rows_around_it():
    z = 0.1 * torch.randn(200, 8)
    near, far = (uniformity(each, normalize=False).item() for each in (z.double(), z + 100))
    assert far == pytest.approx(near, rel=1e-4)


def test_the_gradient_of_the_potential_is_that_of_all_pairs():
    z = torch.randn(7, 3, dtype=torch.float64, requires_grad=True)
    for normalized in (True, False):
        assert torch.autograd.gradcheck(lambda x, n=normalized: gaussian_potential(x, normalize=n, block_size=3), [z])


def test_equal_rows_have_a_gradient_at_any_exponent_from_1():
    z1 = torch.randn(4, 3, dtype=torch.float64)
    z2 = torch.cat([z1[:2], torch.randn(2, 3, dtype=torch.float64)])
    for alpha in (1.0, 1.5, 2.0, 3.0):
        own = z1.clone().requires_grad_()
        found = alignment(own, z2, alpha=alpha, normalize=False)
        torch.testing.assert_close(found, (z1 - z2).norm(dim=1).pow(alpha).mean())
        found.backward()
        assert own.grad[:2].abs().max() == 0
        assert own.grad[2:].abs().min() > 0


def test_half_precision_and_autocast_change_nothing_but_the_input():
    z1, z2 = normalize(torch.randn(64) + 0.02 * torch.randn(2, 256, 64), dim=2)
    near, far = 300 * z1.half(), -300 * z2.half()
    apart = alignment(near, far, normalize=False)
    torch.testing.assert_close(apart, (near.float() - far.float()).square().sum(1).mean())
    expected = alignment(z1, z2), uniformity(z1)
    z1.requires_grad_()
    with torch.autocast("cpu", torch.bfloat16):
        found = alignment(z1, z2), uniformity(z1)
        (inside,) = torch.autograd.grad(uniformity(z1), z1)
    torch.testing.assert_close(found, expected, rtol=0, atol=0)
    torch.testing.assert_close(inside, torch.autograd.grad(uniformity(z1), z1)[0], rtol=0, atol=0)


def test_rows_whose_squares_overflow_have_a_direction():
    z1, z2 = torch.randn(2, 9, 6)
    for scale in (1e19, 1e25, 1e37):
        torch.testing.assert_close(alignment(scale * z1 / 5, scale * z2 / 5), alignment(z1, z2))
        torch.testing.assert_close(gaussian_potential(scale * z1 / 5), gaussian_potential(z1))
    z1 = z1.double()
    torch.testing.assert_close(gaussian_potential(1e300 * z1), gaussian_potential(z1))
