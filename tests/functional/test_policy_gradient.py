"""The gradient of the channel's information: the exact one against autograd and loops, and that of draws against it."""

import itertools
import math
from functools import partial

import pytest
import torch
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import (
    augmentation_channel_loss,
    draw_members,
    exact_channel_loss,
    policy_entropy,
    score_function_loss,
)


def cloud(n, k, p=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = normalize(torch.randn(n, k, p, generator=generator, dtype=torch.float64), dim=2)
    return z, torch.randn(n, k, generator=generator, dtype=torch.float64).requires_grad_()


def by_loops(z, logits, beta, jensen):
    """Eq. 17 (Eq. 2 without Jensen's inequality) for a finite family, where T and T' may be the same member."""
    n, k, _ = z.shape
    p, total = logits.softmax(1), 0
    for i in range(n):
        for a in range(k):
            density = sum(p[j, b] * (beta * z[i, a] @ z[j, b]).exp() for j in range(n) for b in range(k)) / n
            similar = [beta * z[i, a] @ z[i, b] for b in range(k)]
            if jensen:
                above = sum(p[i, b] * similar[b] for b in range(k))
            else:
                above = sum(p[i, b] * similar[b].exp() for b in range(k)).log()
            total = total + p[i, a] * (density.log() - above)
    return total / n


def gradient(loss, logits):
    return torch.autograd.grad(loss, logits)[0]


def cosine(a, b):
    return ((a * b).sum() / (a.norm() * b.norm())).item()


@pytest.mark.parametrize("jensen", [True, False])
@pytest.mark.parametrize("block_size", [2, 2048])
def test_the_exact_loss_and_its_gradient_are_those_of_loops(jensen, block_size):
    z, logits = cloud(3, 4)
    found = exact_channel_loss(3 * z, logits, beta=2.0, jensen=jensen, block_size=block_size)
    expected = by_loops(z, logits, 2.0, jensen)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient(found, logits), gradient(expected, logits))


def test_the_gradient_is_the_formula_of_what_a_draw_is_worth():
    z, logits = cloud(4, 5)
    p, beta, n = logits.softmax(1).detach(), 1.5, 4
    kernel = (beta * torch.einsum("ikp,jlp->ikjl", z, z)).exp()
    density = torch.einsum("jl,ikjl->ik", p, kernel) / n
    mean = torch.einsum("ik,ikp->ip", p, z)
    worth = 2 * beta * torch.einsum("ikp,ip->ik", z, mean) - density.log()
    worth = worth - torch.einsum("jl,ikjl->ik", p / density, kernel) / n
    expected = p * (worth - (p * worth).sum(1, keepdim=True)) / n  # through the softmax
    torch.testing.assert_close(-gradient(exact_channel_loss(z, logits, beta=beta), logits), expected)


@pytest.mark.parametrize("jensen", [True, False])
def test_equal_views_need_one_row(jensen):
    z, logits = cloud(4, 5)
    z[:, 2:] = z[0, 4]  # one view that all images share
    rows = torch.cat([z[:, :2].flatten(0, 1), z[:1, 4]])
    inverse = torch.full((4, 5), 8)
    inverse[:, :2] = torch.arange(8).view(4, 2)
    whole = exact_channel_loss(z, logits, jensen=jensen)
    once = exact_channel_loss(rows, logits, inverse, jensen=jensen)
    torch.testing.assert_close(once, whole)
    torch.testing.assert_close(gradient(once, logits), gradient(whole, logits))


@pytest.mark.parametrize("jensen", [True, False])
@pytest.mark.parametrize("block_size", [3, 2048])
def test_all_pairs_of_every_member_drawn_once_are_exact(jensen, block_size):
    z, logits = cloud(5, 6)
    found = augmentation_channel_loss(z, logits, 2.0, jensen=jensen, itself=True, block_size=block_size)
    expected = exact_channel_loss(z, logits, beta=2.0, jensen=jensen)
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(gradient(found, logits), gradient(expected, logits))


def test_limits():
    z = torch.eye(6, dtype=torch.float64)[:, None].expand(6, 3, 6)  # one embedding for each image, at right angles
    expected = math.log((math.exp(2.0) + 5) / 6) - 2.0
    assert exact_channel_loss(z, torch.zeros(6, 3), beta=2.0).item() == pytest.approx(expected)
    same = torch.ones(4, 3, 2)
    assert exact_channel_loss(same, torch.randn(4, 3)).abs() < 1e-6
    certain = torch.tensor([1000.0, 0.0, 0.0]).expand(4, 3).clone().requires_grad_()
    loss = exact_channel_loss(torch.randn(4, 3, 8), certain, beta=200.0)
    assert torch.isfinite(loss)
    assert torch.isfinite(gradient(loss, certain)).all()


def expected_gradient(z, logits, m, beta):
    """The mean of the score function's gradient over all K^(N m) draws, by their probabilities."""
    n, k, width = z.shape
    log_p, total = logits.log_softmax(1), torch.zeros_like(logits)
    for draw in itertools.product(range(k), repeat=n * m):
        member = torch.tensor(draw).view(n, m)
        drawn = log_p.gather(1, member)
        loss = score_function_loss(z.gather(1, member[:, :, None].expand(-1, -1, width)), drawn, beta)
        total += drawn.sum().exp().item() * torch.autograd.grad(loss, logits, retain_graph=True)[0]
    return total


@pytest.mark.parametrize("m", [3, 4])
def test_the_score_functions_bias_vanishes_with_beta(m):
    """D stands in a logarithm, which is linear for small beta: then there is no bias, and the baseline adds none."""
    z, logits = cloud(2, 2)
    for beta, bound in ((1e-4, 1e-5), (1e-2, 1e-3), (0.5, 0.03)):
        exact = gradient(exact_channel_loss(z, logits, beta=beta), logits)
        found = expected_gradient(z, logits, m, beta)
        assert (found - exact).norm() < bound * exact.norm()


def of_draws(estimate, z, logits, m, repeats, on_policy):
    """Mean of a gradient over draws, and the deviation of one draw from it."""
    generator = torch.Generator().manual_seed(0)
    n, k = logits.shape
    found = []
    for _ in range(repeats):
        uniform = torch.rand(n, m, generator=generator, dtype=torch.float64)
        member = draw_members(logits.softmax(1).detach(), uniform) if on_policy else (uniform * k).long()
        drawn = z.gather(1, member[:, :, None].expand(-1, -1, z.shape[2]))
        found.append(gradient(estimate(drawn, logits.log_softmax(1).gather(1, member)), logits))
    stacked = torch.stack(found)
    return stacked.mean(0), stacked.var(0).sum().sqrt()


def test_the_score_function_is_right_for_many_images():
    z, logits = cloud(24, 10, seed=2)
    exact = gradient(exact_channel_loss(z, logits, beta=2.0), logits)
    mean, _ = of_draws(lambda drawn, log_p: score_function_loss(drawn, log_p, 2.0), z, logits, 8, 300, True)
    assert cosine(mean, exact) > 0.97
    assert mean.norm() / exact.norm() == pytest.approx(1, abs=0.1)


def narrow(k, entropy, images=8):
    """Logits of random preferences whose softmax has this mean entropy."""
    generator = torch.Generator().manual_seed(1)
    normal, low, high = torch.randn(images, k, generator=generator, dtype=torch.float64), 0.0, 50.0
    for _ in range(50):
        scale = (low + high) / 2
        low, high = (scale, high) if policy_entropy(scale * normal).mean() > entropy else (low, scale)
    return (scale * normal).requires_grad_()


@pytest.mark.parametrize("beta", [5.0, 0.5])
@pytest.mark.parametrize("entropy", [2.3, 1.8])
def test_where_training_ends_only_draws_of_the_policy_point_along_the_gradient(entropy, beta):
    """K = 289, m = 8: a cosine above 0.99 and the right length, against cosines of at most 0.05 and a tenth of it."""
    z, logits = cloud(8, 289, p=8)[0], narrow(289, entropy)
    exact = gradient(exact_channel_loss(z, logits, beta=beta), logits)
    score = lambda drawn, log_p: score_function_loss(drawn, log_p, beta)  # noqa: E731
    mean, _ = of_draws(score, z, logits, 8, 200, on_policy=True)
    assert cosine(mean, exact) > 0.98
    assert mean.norm() / exact.norm() == pytest.approx(1, abs=0.1)
    for itself in (True, False):
        weighed = partial(augmentation_channel_loss, beta=beta, itself=itself)
        mean, _ = of_draws(weighed, z, logits, 8, 200, on_policy=False)
        assert abs(cosine(mean, exact)) < 0.15
        assert mean.norm() < 0.2 * exact.norm()


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 4)), r"`z` of shape \(N, K, P\), N = 2, K = 4"),
        (lambda: exact_channel_loss(torch.ones(2, 3), torch.ones(2, 4)), r"`z` of shape \(N, K, P\)"),
        (
            lambda: exact_channel_loss(torch.ones(5, 3), torch.ones(2, 4), torch.zeros(2, 3, dtype=torch.int64)),
            r"`inverse` of shape \(N, K\), N = 2, K = 4, but got \(2, 3\)",
        ),
        (
            lambda: exact_channel_loss(torch.ones(5, 3), torch.ones(2, 4), torch.zeros(2, 4)),
            r"`inverse` of torch\.int64, but got torch\.float32",
        ),
        (
            lambda: exact_channel_loss(torch.ones(5, 3), torch.ones(2, 4), torch.full((2, 4), 5)),
            r"`inverse` in \[0, 5\), but got 5",
        ),
        (lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 3), beta=0.0), "`beta` > 0 and finite"),
        (lambda: score_function_loss(torch.ones(2, 2, 4), torch.ones(2, 2)), r"N >= 2 and m >= 3, but got \(2, 2, 4\)"),
        (lambda: score_function_loss(torch.ones(2, 3, 4), torch.ones(2, 4)), r"`log_probability` of shape \(N, m\)"),
        (lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 3), eps=math.nan), "`eps` >= 0 and finite"),
        (
            lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 3), jensen="no"),
            "`jensen` to be True or False",
        ),
        (lambda: exact_channel_loss(torch.ones(0, 3, 4), torch.ones(0, 3)), r"N >= 1 and K >= 1, but got \(0, 3\)"),
        (
            lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 3), block_size=1.5),
            "`block_size` to be an int",
        ),
        (lambda: exact_channel_loss(torch.ones(2, 3, 4), torch.ones(2, 3).long()), "`log_policy`"),
        (lambda: score_function_loss(torch.ones(2, 3, 4), torch.ones(2, 3).long()), "`log_probability`"),
        (lambda: score_function_loss(torch.ones(2, 3, 4), torch.ones(2, 3), -1.0), "`beta` > 0 and finite"),
    ],
)
def test_what_does_not_fit_is_refused(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def slow_advantage(z, beta):
    """Reward of each draw minus its baseline, which does not see the draw: one draw at a time."""
    n, m, _ = z.shape
    kernel = lambda a, b: math.exp(beta * (float(a @ b) - 1))  # noqa: E731

    def density(i, k, left_out=()):
        """The mean over all images of the kernel's mean over draws, but for draw k itself and one more draw."""
        total = 0.0
        for other in range(n):
            draws = [r for r in range(m) if (other, r) != (i, k) and (other, r) not in left_out]
            total += sum(kernel(z[i, k], z[other, r]) for r in draws) / len(draws)
        return total / n

    def reward(i, j, among, left_out=()):
        """The terms of J that draw j of image i is in; `among` are the other draws of this image."""
        found = 2 * beta * sum(float(z[i, j] @ z[i, k]) for k in among) / len(among) - math.log(density(i, j, left_out))
        drawn = left_out or ((i, j),)
        return found - sum(kernel(z[i, k], z[i, j]) / density(i, k, drawn) for k in among) / len(among) / n

    advantage = torch.zeros(n, m, dtype=torch.float64)
    for i in range(n):
        for j in range(m):
            others = [k for k in range(m) if k != j]
            value = reward(i, j, others)
            value -= sum(reward(i, k, [r for r in others if r != k], ((i, j),)) for k in others) / len(others)
            for other, r in ((a, b) for a in range(n) if a != i for b in range(m)):
                mean = sum(kernel(z[other, r], z[i, k]) for k in others) / len(others)
                value -= (kernel(z[other, r], z[i, j]) - mean) / density(other, r, ((i, j),)) / m / n
            advantage[i, j] = value
    return advantage


@pytest.mark.parametrize(("n", "m", "beta"), [(3, 4, 2.0), (2, 3, 0.5), (4, 5, 5.0), (4, 3, 50.0), (3, 4, 100.0)])
def test_the_score_functions_weights_are_rewards_minus_a_baseline_of_the_other_draws(n, m, beta):
    generator = torch.Generator().manual_seed(0)
    z = normalize(torch.randn(n, m, 3, dtype=torch.float64, generator=generator), dim=2)
    log_probability = torch.randn(n, m, dtype=torch.float64, generator=generator).requires_grad_()
    score_function_loss(z, log_probability, beta).backward()
    torch.testing.assert_close(-n * m * log_probability.grad, slow_advantage(z, beta))


def test_the_score_function_is_finite_at_any_temperature():
    z = torch.randn(4, 8, 8, generator=torch.Generator().manual_seed(0))
    for beta in (30.0, 100.0, 1e4, 1e6):
        log_probability = torch.zeros(4, 8, requires_grad=True)
        found = score_function_loss(z, log_probability, beta)
        found.backward()
        assert found.isfinite()
        assert log_probability.grad.isfinite().all()
        assert log_probability.grad.any()
