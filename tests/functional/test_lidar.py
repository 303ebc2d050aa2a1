import numpy as np
import pytest
import torch
from scipy.linalg import eigh

from lightning_ssl_geometry.functional.lidar import lidar, scatter_lidar


def views(q=3, n=50, dim=6, noise=0.4):
    samples = torch.randn(n, dim, dtype=torch.float64) * torch.linspace(0.2, 2, dim)
    return samples + noise * torch.randn(q, n, dim, dtype=torch.float64) + 1


def slow(h, delta=1e-4, eps=1e-8):
    """The paper's sums one term at a time, and scipy's generalised eigenvalues."""
    q, n, dim = h.shape
    h = h.numpy()
    mean = [sum(h[v, i] for v in range(q)) / q for i in range(n)]
    grand = sum(mean) / n
    between = sum(np.outer(m - grand, m - grand) for m in mean) / n
    within = sum(np.outer(h[v, i] - mean[i], h[v, i] - mean[i]) for v in range(q) for i in range(n)) / (n * q)
    eigenvalues = eigh(between, within + delta * np.eye(dim), eigvals_only=True)
    p = eigenvalues / eigenvalues.sum() + eps
    return np.exp(-sum(each * np.log(each) for each in p))


@pytest.mark.parametrize(("q", "dim", "delta"), [(2, 6, 1e-4), (5, 6, 0.3), (3, 1, 1e-4), (2, 40, 1e-2)])
def test_it_is_the_papers_sums(q, dim, delta):
    h = views(q, dim=dim)
    assert lidar(h, delta=delta).item() == pytest.approx(slow(h, delta), rel=1e-9)


def test_it_counts_the_directions_that_tell_samples_apart():
    # Sigma_b = diag(1, 1, 1, 0, 0) and Sigma_w = I: three eigenvalues are alike
    between = torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.0, 0.0]))
    assert scatter_lidar(between, torch.eye(5), eps=1e-15).item() == pytest.approx(3)
    # the noise of the views lies along one of the three, and a hundred times stronger: two are left
    noisy = torch.diag(torch.tensor([1e8, 1.0, 1.0, 1.0, 1.0]))
    assert scatter_lidar(between, noisy, eps=1e-15).item() == pytest.approx(2, abs=1e-5)
    # but delta is absolute: of features as small as this it hides all noise, and three count again
    assert scatter_lidar(1e-16 * between, 1e-16 * noisy, eps=1e-15).item() == pytest.approx(3, abs=1e-3)


def test_an_eigenvalue_counts_if_it_is_above_the_floor():
    # three eigenvalues of 1 and one of 1/4: the entropy of the shares 4/13, 4/13, 4/13 and 1/13
    between = torch.diag(torch.tensor([1.0, 1.0, 1.0, 0.25]))
    at, below = (scatter_lidar(between, torch.eye(4), eps=1e-15, floor=floor).item() for floor in (0.25, 0.249))
    assert at == pytest.approx(3)
    assert below == pytest.approx(13 / 4 ** (12 / 13))


@pytest.mark.parametrize(("step", "seen"), [(2.0**-23, False), (2.0**-22, True)])
def test_means_count_as_different_from_the_rounding_of_the_rows_on(step, seen):
    # Entries of about 1 in float32: |H| = 16 for 2 * 8 rows of 16. The floor is 2^-23 / 16^0.5 * 16 = 4 steps of 2^-23.
    # The means differ by 8^0.5 steps of 2^-23 in each of two directions, and in the first perhaps by twice that.
    h = torch.ones(2, 8, 16)
    h[:, :, 0] += step * torch.tensor([1.0, -1.0]).repeat(4)
    h[:, :, 1] += (2.0**-23 if seen else 0) * torch.tensor([1.0, 1.0, -1.0, -1.0]).repeat(2)
    if seen:
        assert lidar(h).item() == pytest.approx(1, abs=1e-5)
    else:
        with pytest.raises(ValueError, match="but all means are equal"):
            lidar(h)


def test_a_variance_of_d_eps_of_the_largest_is_rounding():
    # delta^-1 makes the second of two directions count, in which views do not differ: unless it is 2 eps of the first
    within = torch.diag(torch.tensor([1e12, 0.0]))
    for second, rank in ((2.0**-51, 1.0), (2.0**-51 * (1 + 2.0**-10), 1.6)):
        between = torch.diag(torch.tensor([1.0, second], dtype=torch.float64))
        assert scatter_lidar(between, within, eps=1e-15).item() == pytest.approx(rank, abs=0.01 if rank == 1 else 0.1)


def test_without_delta_it_is_invariant_under_every_linear_map_and_with_it_under_rotation():
    h = views(4, 200)
    turn = torch.linalg.qr(torch.randn(6, 6, dtype=torch.float64)).Q
    assert lidar(h @ turn + 9).item() == pytest.approx(lidar(h).item())
    tiny = lidar(h @ (turn * torch.linspace(1, 3, 6)), delta=1e-12).item()
    assert tiny == pytest.approx(lidar(h, delta=1e-12).item(), rel=1e-6)


def test_the_order_of_views_and_samples_is_free_but_not_which_views_are_of_one_sample():
    h = views(4, 30)
    assert lidar(h[torch.randperm(4)][:, torch.randperm(30)]).item() == pytest.approx(lidar(h).item())
    mixed = h.flatten(0, 1)[torch.randperm(120)].reshape(4, 30, 6)
    assert abs(lidar(mixed).item() - lidar(h).item()) > 0.1


def test_its_bounds():
    assert 1 <= lidar(views()).item() <= 6 + 1e-5
    line = torch.randn(3, 40, 1, dtype=torch.float64) * torch.ones(5) + torch.arange(40.0)[:, None]
    assert lidar(line).item() == pytest.approx(1, abs=1e-4)
    for n in (2, 4):  # equidistant samples
        assert lidar(torch.eye(n).repeat(2, 1, 1)).item() == pytest.approx(n - 1, abs=1e-5)


def test_it_is_computed_in_float64():
    h = views().float()
    assert lidar(h).dtype == torch.float64
    assert lidar(h).item() == lidar(h.double()).item()


SHAPE = r"`h` of shape \(q, N, D\).*, but got"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: lidar(torch.ones(1, 5, 3)), SHAPE),
        (lambda: lidar(torch.ones(5, 3)), SHAPE),
        (lambda: lidar(torch.ones(2, 1, 3)), SHAPE),
        (lambda: lidar(views(), delta=0), "`delta` > 0, but got 0"),
        (lambda: lidar(views(), delta=-1), "`delta` > 0, but got -1"),
        (lambda: lidar(views(), delta=float("nan")), "`delta` > 0, but got nan"),
        (lambda: lidar(torch.ones(2, 5, 3)), "samples with different means, but all means are equal"),
        (
            lambda: scatter_lidar(torch.ones(3, 2), torch.eye(3)),
            r"`between` of shape \(D, D\), D = 3.* but got \(3, 2\)",
        ),
        (lambda: scatter_lidar(torch.eye(3), torch.eye(2)), r"`within` of shape \(D, D\), D = 3.* but got \(2, 2\)"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
