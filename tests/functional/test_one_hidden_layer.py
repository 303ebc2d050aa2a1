import numpy as np
import pytest
import torch
from torch import nn

from lightning_ssl_geometry.functional import (
    cluster_rates,
    clustered_flow,
    infinite_width_kernel,
    kernel_flow,
    neural_kernel,
    one_hidden_layer_kernel,
)
from lightning_ssl_geometry.nn import OneHiddenLayer


def network(width=30, activation=None, dims=(5, 3)):
    return OneHiddenLayer(*dims, width, activation).double()


def points(n=7, dim=5):
    return torch.randn(n, dim, dtype=torch.float64)


def clusters(delta, sizes=(4, 2, 3), dim=5, seed=0):
    """Samples within delta of orthogonal centers of different norms, their labels and the centers."""
    generator = torch.Generator().manual_seed(seed)
    turn = torch.linalg.qr(torch.randn(dim, dim, generator=generator, dtype=torch.float64)).Q
    center = turn[: len(sizes)] * torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)[:, None]
    label = torch.arange(len(sizes)).repeat_interleave(torch.tensor(sizes))
    noise = torch.randn(len(label), dim, generator=generator, dtype=torch.float64)
    noise = noise / noise.norm(dim=1, keepdim=True)
    return center[label] + delta * noise, label, center


def contrastive_gradient(z):
    """n times the gradient of a loss that is not a mean over samples, with respect to z."""
    z = z.detach().requires_grad_()
    loss = (-torch.cdist(z, z).square()).exp().mean(1).log1p().mean() + z.square().sum(1).mean() / 4
    return len(z) * torch.autograd.grad(loss, z)[0]


@pytest.mark.parametrize("activation", [None, nn.Tanh(), nn.Softplus(), nn.LeakyReLU(0.2)])
def test_the_closed_form_is_the_kernel_of_the_network(activation):
    f, x = network(activation=activation), points()
    closed = one_hidden_layer_kernel(x, f.hidden.weight.detach(), 3, f.activation)
    for by_layer in (True, False):
        torch.testing.assert_close(neural_kernel(f, x, by_layer=by_layer), closed, rtol=1e-12, atol=1e-12)
    assert torch.equal(closed * (1 - torch.eye(3)), torch.zeros_like(closed))  # outputs share no weights


def test_it_is_the_slow_sum():
    f, x = network(4), points(3)
    b = f.hidden.weight.detach()
    closed = one_hidden_layer_kernel(x, b, 3)
    for i, j, k in np.ndindex(3, 3, 3):
        active = sum((b[p] @ x[i] > 0) & (b[p] @ x[j] > 0) for p in range(4 * k, 4 * k + 4))
        assert closed[i, j, k, k].item() == pytest.approx((x[i] @ x[j] * active / 4).item(), abs=1e-14)


def test_the_error_of_a_finite_width_falls_as_its_root():
    x, widths = points(6), [2**k for k in range(4, 13)]
    limit = infinite_width_kernel(x)
    errors = []
    for width in widths:
        found = [one_hidden_layer_kernel(x, network(width, dims=(5, 1)).hidden.weight.detach(), 1) for _ in range(30)]
        errors.append(np.mean([(kernel[..., 0, 0] - limit).square().mean().sqrt().item() for kernel in found]))
    slope = np.polyfit(np.log(widths), np.log(errors), 1)[0]
    assert slope == pytest.approx(-0.5, abs=0.05)


def test_the_mean_over_networks_is_the_limit_whatever_the_variance():
    x = points(4)
    weight = 3 * torch.randn(400_000, 5, dtype=torch.float64)
    found = one_hidden_layer_kernel(x, weight, 1)[..., 0, 0]
    torch.testing.assert_close(found, infinite_width_kernel(x), rtol=0, atol=0.02)


def test_the_limit_at_known_angles():
    x = torch.tensor([[2.0, 0.0], [1.0, 1.0], [0.0, 3.0], [-2.0, 0.0], [0.0, 0.0]], dtype=torch.float64)
    expected = [2.0, 2 * (1 / 2 - 1 / 8), 0.0, 0.0, 0.0]  # |x|^2 / 2; at 45 degrees; at 90; at 180; of the origin
    torch.testing.assert_close(infinite_width_kernel(x)[0], torch.tensor(expected, dtype=torch.float64))
    near = torch.tensor([[1.0, 0.0], [1.0, 1e-10]], dtype=torch.float64)  # whose cosine rounds to 1
    assert 0.5 - infinite_width_kernel(near)[0, 1].item() == pytest.approx(1e-10 / (2 * torch.pi), rel=1e-4)
    assert torch.linalg.eigvalsh(infinite_width_kernel(points(20))).min() > -1e-12


def test_it_turns_with_the_samples():
    x, turn = points(), torch.linalg.qr(points(5)).Q
    torch.testing.assert_close(infinite_width_kernel(x @ turn), infinite_width_kernel(x))
    torch.testing.assert_close(infinite_width_kernel(3 * x), 9 * infinite_width_kernel(x))


@pytest.mark.parametrize(("cosine", "taken"), [(0.99, True), (1.0, False)])
def test_centers_are_orthogonal_up_to_half_of_the_digits(cosine, taken):
    center = torch.tensor([[1.0, 0.0], [cosine * 2.0**-26, 1.0]], dtype=torch.float64)  # eps^0.5 = 2^-26
    call = lambda: clustered_flow(GRADIENT.double(), LABEL, center)  # noqa: E731
    if taken:
        assert call().isfinite().all()
    else:
        with pytest.raises(ValueError, match="`center` with orthogonal rows"):
            call()


def test_one_cluster_moves_by_its_mean_gradient():
    gradient = torch.randn(5, 3, dtype=torch.float64)
    center = torch.tensor([[0.0, 2.0], [1.0, 0.0]], dtype=torch.float64)
    expected = -4 / 2 * gradient.mean(0).expand(5, 3)  # |xi|^2 / 2
    torch.testing.assert_close(clustered_flow(gradient, torch.zeros(5, dtype=torch.int64), center), expected)


@pytest.mark.parametrize("activation", [None, nn.Tanh()])
def test_tight_clusters_move_as_one_and_apart(activation):
    f, (x, label, center) = network(activation=activation), clusters(0.0)
    kernel, weight = neural_kernel(f, x), f.hidden.weight.detach()
    rate = cluster_rates(center, weight, 3, f.activation)
    same = label[:, None] == label
    assert kernel[~same].abs().max() < 1e-14  # blocks
    expected = (center.square().sum(1, keepdim=True) * rate)[label]
    torch.testing.assert_close(kernel.diagonal(dim1=2, dim2=3)[same], expected[:, None].expand(-1, 9, -1)[same])
    gradient = contrastive_gradient(f(x))
    torch.testing.assert_close(clustered_flow(gradient, label, center, rate), kernel_flow(kernel, gradient))


def test_the_theorem_holds_up_to_the_radius_of_the_clusters():
    """Smooth activation: the error is linear in delta for all weights. With the ReLU, a unit may switch inside."""
    f, deltas = network(activation=nn.Tanh()), [10.0**-k for k in range(1, 6)]
    errors = []
    for delta in deltas:
        x, label, center = clusters(delta)
        gradient = contrastive_gradient(f(x))
        rate = cluster_rates(center, f.hidden.weight.detach(), 3, f.activation)
        flow = clustered_flow(gradient, label, center, rate)
        errors.append((flow - kernel_flow(neural_kernel(f, x), gradient)).norm().item())
    assert np.polyfit(np.log(deltas), np.log(errors), 1)[0] == pytest.approx(1, abs=0.05)
    assert max(error / delta for error, delta in zip(errors, deltas, strict=True)) < 20


def test_the_corollary_is_the_limit_of_the_theorem():
    x, label, center = clusters(0.0)
    gradient = torch.randn(9, 3, dtype=torch.float64)
    limit = clustered_flow(gradient, label, center)
    errors = []
    for width in (100, 10_000):
        rate = cluster_rates(center, network(width).hidden.weight.detach(), 3)
        errors.append((clustered_flow(gradient, label, center, rate) - limit).norm() / limit.norm())
    assert errors[1] < 0.02 < errors[0] < 0.2
    kernel = infinite_width_kernel(x)[..., None, None] * torch.eye(3, dtype=torch.float64)
    torch.testing.assert_close(limit, kernel_flow(kernel, gradient))


X, WEIGHT = torch.ones(3, 5), torch.ones(6, 5)
GRADIENT, LABEL, CENTER = torch.ones(3, 2), torch.tensor([0, 1, 1]), torch.eye(2)
BAD = [
    (lambda: one_hidden_layer_kernel(torch.ones(3, 4), WEIGHT, 2), r"`weight` of shape \(M d, D\), D = 4, .* \(6, 5\)"),
    (lambda: cluster_rates(torch.ones(4), WEIGHT, 2), r"`center` of shape \(n, D\), but got \(4,\)"),
    (lambda: one_hidden_layer_kernel(X, WEIGHT, 4), "multiple of `out_dim` = 4 rows, but got 6"),
    (lambda: one_hidden_layer_kernel(X, WEIGHT, 0), "multiple of `out_dim` = 0 rows, but got 6"),
    (lambda: one_hidden_layer_kernel(X, WEIGHT, -1), "multiple of `out_dim` = -1 rows, but got 6"),
    (lambda: infinite_width_kernel(torch.ones(3)), r"`x` of shape \(n, D\), but got \(3,\)"),
    (lambda: clustered_flow(GRADIENT, LABEL[:2], CENTER), r"`label` of shape \(n,\), n = 3, but got \(2,\)"),
    (lambda: clustered_flow(GRADIENT, LABEL, CENTER, torch.ones(3, 2)), r"`rate` of shape \(N, d\), .* \(3, 2\)"),
    (lambda: clustered_flow(GRADIENT, 2 * LABEL, CENTER), "`label` from 0 to 1, but got 0 to 2"),
    (lambda: clustered_flow(GRADIENT, LABEL - 1, CENTER), "`label` from 0 to 1, but got -1 to 0"),
    (lambda: clustered_flow(GRADIENT, LABEL, torch.tensor([[1.0, 0.0], [1.0, 1.0]])),
     "`center` with orthogonal rows, .* got 2 in D = 2 dimensions with cosines of up to 0.7"),
    (lambda: clustered_flow(GRADIENT, LABEL, torch.tensor([[-3.0], [-1.0], [1.0], [3.0]])),  # on a line, as in Fig. 5
     "got 4 in D = 1 dimensions with cosines of up to 1"),
    (lambda: clustered_flow(GRADIENT, LABEL, torch.full((2, 2), torch.nan)), "`center` with orthogonal rows"),
]  # fmt: skip


@pytest.mark.parametrize(("call", "message"), BAD)
def test_what_does_not_fit(call, message):
    with pytest.raises(ValueError, match=message):
        call()
