"""The information through an augmentation channel: closed forms, slow loops, Jensen's inequality and its estimators."""

import math

import pytest
import torch
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional import (
    augmentation_channel_loss,
    draw_members,
    info_nce,
    policy_entropy,
)


def draws(n=5, m=4, p=3, seed=0):
    generator = torch.Generator().manual_seed(seed)
    z = torch.randn(n, m, p, generator=generator, dtype=torch.float64)
    return z, torch.randn(n, m, generator=generator, dtype=torch.float64)


def slow(z, logits, beta, jensen):
    """Eq. 2 by loops over draws, with probabilities and not their logarithms."""
    n, m, _ = z.shape
    z, w = normalize(z, dim=2), logits.exp() / logits.exp().sum(1, keepdim=True)
    total = 0
    for i in range(n):
        pairs = [(j, k) for j in range(m) for k in range(m) if j != k]
        norm = sum(w[i, j] * w[i, k] for j, k in pairs)
        for j in range(m):
            first = sum(w[i, j] * w[i, k] for k in range(m) if k != j) / norm
            second = {k: w[i, k] / (1 - w[i, j]) for k in range(m) if k != j}
            similar = {k: beta * z[i, j] @ z[i, k] for k in second}
            if jensen:
                inner = sum(second[k] * similar[k] for k in second)
            else:
                inner = sum(second[k] * similar[k].exp() for k in second).log()
            rest = [(a, b) for a in range(n) for b in range(m) if (a, b) != (i, j)]
            below = sum(w[a, b] * (beta * z[i, j] @ z[a, b]).exp() for a, b in rest) / (n - w[i, j])
            total = total + w[i, j] * below.log() - first * inner
    return total / n


def test_rows_of_up_to_a_hundred_millionth_are_0():
    z = torch.nn.functional.normalize(torch.randn(3, 2, 4, dtype=torch.float64), dim=2)
    torch.testing.assert_close(augmentation_channel_loss(1.5e-8 * z), augmentation_channel_loss(z))
    assert augmentation_channel_loss(0.99e-8 * z).item() == pytest.approx(0, abs=1e-12)  # all similarities are 0


def test_the_inverse_temperature_is_a_half_unless_said():
    z = torch.randn(3, 2, 4, dtype=torch.float64)
    assert augmentation_channel_loss(z) == augmentation_channel_loss(z, None, 0.5)
    assert augmentation_channel_loss(z) != augmentation_channel_loss(z, None, 1.0)


def test_probabilities_whose_rounded_sum_is_below_1_never_draw_the_impossible():
    probability = torch.tensor([[0.9, 0.1, 0.0]])  # 2.2e-8 less than 1 in float32
    assert draw_members(probability, torch.tensor([[1 - 1e-9]], dtype=torch.float64)).item() == 1


def test_a_block_may_be_one_row():
    z = torch.randn(3, 2, 4, dtype=torch.float64)
    torch.testing.assert_close(augmentation_channel_loss(z, block_size=1), augmentation_channel_loss(z))


def test_embeddings_of_one_dimension_that_agree_have_no_information():
    # all similarities are beta: L = log(sum of w e^beta / (N - w)) - beta = 0
    assert augmentation_channel_loss(torch.rand(3, 2, 1, dtype=torch.float64) + 1).item() == pytest.approx(0, abs=1e-12)


@pytest.mark.parametrize("jensen", [True, False])
@pytest.mark.parametrize("m", [2, 5])
def test_a_slow_loop(jensen, m):
    z, logits = draws(m=m)
    torch.testing.assert_close(augmentation_channel_loss(z, logits, 0.7, jensen=jensen), slow(z, logits, 0.7, jensen))
    torch.testing.assert_close(
        augmentation_channel_loss(z, beta=2.0, jensen=jensen), slow(z, torch.zeros_like(logits), 2.0, jensen)
    )


@pytest.mark.parametrize("beta", [0.5, 1.0, 10.0])
def test_two_equal_draws_are_simclr(beta):
    """NT-Xent with a mean over the 2N - 1 others in place of their sum: loss and gradient."""
    z, _ = draws(n=7, m=2)
    z.requires_grad_(True)
    ours = augmentation_channel_loss(z, beta=beta)
    theirs = info_nce(z[:, 0], z[:, 1], 1 / beta)
    torch.testing.assert_close(ours, theirs - math.log(13))
    torch.testing.assert_close(*(torch.autograd.grad(loss, z)[0] for loss in (ours, theirs)))


@pytest.mark.parametrize("seed", range(5))
def test_the_exact_objective_is_at_least_jensens(seed):
    z, logits = draws(seed=seed)
    for beta in (0.1, 1.0, 20.0):
        exact, bound = (augmentation_channel_loss(z, logits, beta, jensen=jensen) for jensen in (False, True))
        assert exact < bound
    same = z[:, :1].expand(-1, 4, -1)  # one embedding for all draws: Jensen's inequality is an equality
    exact, bound = (augmentation_channel_loss(same, logits, jensen=jensen) for jensen in (False, True))
    torch.testing.assert_close(exact, bound)


@pytest.mark.parametrize("jensen", [True, False])
def test_symmetries_and_limits(jensen):
    z, logits = draws()
    loss = augmentation_channel_loss(z, logits, jensen=jensen)
    order, rotation = torch.randperm(5), torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64)).Q
    members = torch.randperm(4)
    same = [
        augmentation_channel_loss(z[order], logits[order], jensen=jensen),
        augmentation_channel_loss(z[:, members], logits[:, members], jensen=jensen),
        augmentation_channel_loss(3 * z @ rotation, logits + torch.arange(5)[:, None], jensen=jensen),
        augmentation_channel_loss(z, logits, jensen=jensen, block_size=3),
    ]
    for other in same:
        torch.testing.assert_close(other, loss)
    orthogonal = torch.eye(20, dtype=torch.float64).unflatten(0, (5, 4))
    assert augmentation_channel_loss(orthogonal, logits, jensen=jensen).abs() < 1e-12
    collapsed = torch.ones(5, 4, 3)
    assert augmentation_channel_loss(collapsed, jensen=jensen).abs() < 1e-6
    assert -2 * 0.5 <= loss <= 2 * 0.5
    certain = torch.tensor([200.0, 0.0, 0.0, 0.0]).double().expand(5, 4)  # all weight but e^-200 on one draw
    assert torch.isfinite(augmentation_channel_loss(z, certain, jensen=jensen))


def test_clusters_reach_the_information_of_their_number():
    """N images, each with one embedding, at right angles: I = beta - log(1 + (m - 1)(e^beta - 1) / (N m - 1))."""
    n, m, beta = 6, 4, 3.0
    z = torch.eye(n, dtype=torch.float64)[:, None].expand(-1, m, -1)
    below = (m - 1) * math.exp(beta) + (n - 1) * m
    expected = math.log(below / (n * m - 1)) - beta
    assert augmentation_channel_loss(z, beta=beta).item() == pytest.approx(expected)


@pytest.mark.parametrize("jensen", [True, False])
@pytest.mark.parametrize("block_size", [4, 2048])
def test_gradcheck(jensen, block_size):
    z, logits = draws(n=3, m=3)
    inputs = (z.requires_grad_(True), logits.requires_grad_(True))

    def loss(z, logits):
        # the normalisation of rows has no second derivative: begin behind it
        return augmentation_channel_loss(z, logits, 2.0, jensen=jensen, block_size=block_size)

    assert torch.autograd.gradcheck(loss, inputs)


def embeddings(n, k, seed=3):
    """Embeddings of all K members of a small family for each of N images: alike within a half of the family."""
    generator = torch.Generator().manual_seed(seed)
    centre = torch.randn(n, 2, 3, generator=generator, dtype=torch.float64)
    member = torch.arange(k) * 2 // k
    return normalize(centre[:, member] + 0.4 * torch.randn(n, k, 3, generator=generator, dtype=torch.float64), dim=2)


def enumerated(z, logits, beta, jensen=True):
    """Sums over the whole family, two different members for a pair, by einsum and not by draws."""
    n, k, _ = z.shape
    p = logits.softmax(1)
    pair = p[:, :, None] * p[:, None, :] * (1 - torch.eye(k, dtype=z.dtype))
    s = beta * torch.einsum("ikd,jld->ikjl", z, z)
    own = torch.stack([s[i, :, i] for i in range(n)])
    if jensen:
        above = (pair * own).sum((1, 2)) / pair.sum((1, 2))
    else:
        inner = ((pair * own.exp()).sum(2) / pair.sum(2)).log()
        above = (pair.sum(2) * inner).sum(1) / pair.sum((1, 2))
    total = torch.einsum("jl,ikjl->ik", p, s.exp()) - p * math.exp(beta)
    below = (p * (total / (n - p)).log()).sum(1)
    return (below - above).mean()


def independent(z, logits, beta):
    """Eq. 17 for a finite family: T and T' independent, so that they may be the same member."""
    p = logits.softmax(1)
    s = beta * torch.einsum("ikd,jld->ikjl", z, z)
    above = torch.einsum("ik,il,ikil->i", p, p, s)
    below = (p * (torch.einsum("jl,ikjl->ik", p, s.exp()) / len(z)).log()).sum(1)
    return (below - above).mean()


def cosine(a, b):
    return ((a * b).sum() / (a.norm() * b.norm())).item()


@pytest.mark.parametrize("jensen", [True, False])
def test_every_member_drawn_once_gives_the_enumerated_objective_and_policy_gradient(jensen):
    z = embeddings(6, 8)
    logits = torch.randn(6, 8, dtype=torch.float64, requires_grad=True)
    member = torch.stack([torch.randperm(8) for _ in range(6)])
    drawn = z.gather(1, member[:, :, None].expand(-1, -1, 3))
    ours = augmentation_channel_loss(drawn, logits.gather(1, member), 2.0, jensen=jensen)
    whole = enumerated(z, logits, 2.0, jensen)
    torch.testing.assert_close(ours, whole)
    torch.testing.assert_close(*(torch.autograd.grad(loss, logits)[0] for loss in (ours, whole)))


def policy_gradient(z, logits, m, repeats):
    """Mean over draws of the policy's gradient with m uniform draws per image, and its standard error."""
    generator = torch.Generator().manual_seed(0)
    n, k = logits.shape
    found = []
    for _ in range(repeats):
        member = torch.randint(k, (n, m), generator=generator)
        drawn = z.gather(1, member[:, :, None].expand(-1, -1, 3))
        loss = augmentation_channel_loss(drawn, logits.gather(1, member), 2.0)
        found.append(torch.autograd.grad(loss, logits)[0])
    stacked = torch.stack(found)
    return stacked.mean(0), (stacked.var(0).sum() / repeats).sqrt()


def logits_of(k, scale=1.0):
    generator = torch.Generator().manual_seed(1)
    return (scale * torch.randn(6, k, dtype=torch.float64, generator=generator)).requires_grad_()


@pytest.mark.parametrize(("scale", "least"), [(0.3, 0.99), (1.0, 0.95), (3.0, 0.6)])
def test_many_draws_give_the_gradient_of_independent_ones(scale, least):
    """Every member once gives another, since a pair has two members: cosine 0.996, 0.978, 0.722, by how sharp P is."""
    z, logits = embeddings(6, 8), logits_of(8, scale)
    (exact,) = torch.autograd.grad(independent(z, logits, 2.0), logits)
    mean, _ = policy_gradient(z, logits, 128, 40)
    assert cosine(mean, exact) > 0.99
    assert mean.norm() == pytest.approx(exact.norm().item(), rel=0.15)
    once = torch.arange(8).expand(6, -1)
    (each,) = torch.autograd.grad(augmentation_channel_loss(z, logits.gather(1, once), 2.0), logits)
    assert least < cosine(each, exact) < 0.999


def test_the_policy_gradients_bias_shrinks_with_the_draws():
    """Of the exact gradient's norm: 0.98 at m = 2, 0.73 at 4, 0.42 at 8, 0.12 at 32, for K = 8."""
    z, logits = embeddings(6, 8), logits_of(8)
    (exact,) = torch.autograd.grad(independent(z, logits, 2.0), logits)
    bias = [
        ((policy_gradient(z, logits, m, repeats)[0] - exact).norm() / exact.norm()).item()
        for m, repeats in ((2, 1000), (4, 1000), (8, 1000), (32, 300))
    ]
    assert bias == sorted(bias, reverse=True)
    assert bias == pytest.approx([0.98, 0.73, 0.42, 0.12], abs=0.05)


def test_the_bias_near_the_uniform_policy():
    """K = 289 and m = 8, 5.2 of 5.67 nats: the mean gradient has half of the exact norm, and a cosine of 0.78 with it.

    test_policy_gradient.py has the bias of narrower policies.
    """
    z, logits = embeddings(6, 289), logits_of(289)
    (exact,) = torch.autograd.grad(independent(z, logits, 2.0), logits)
    mean, noise = policy_gradient(z, logits, 8, 1500)
    assert noise < 0.2 * exact.norm()
    assert cosine(mean, exact) == pytest.approx(0.76, abs=0.1)
    assert (mean.norm() / exact.norm()).item() == pytest.approx(0.52, abs=0.1)


def test_policy_entropy_is_that_of_the_distribution():
    logits = torch.randn(4, 7)
    expected = torch.distributions.Categorical(logits=logits).entropy()
    torch.testing.assert_close(policy_entropy(logits), expected)
    torch.testing.assert_close(policy_entropy(logits.log_softmax(1)), expected)
    assert policy_entropy(torch.tensor([[0.0, -math.inf]])).item() == 0
    torch.testing.assert_close(policy_entropy(torch.zeros(1, 289)), torch.tensor([math.log(289)]))
    logits = logits.double().requires_grad_(True)
    policy_entropy(logits).sum().backward()
    assert torch.isfinite(logits.grad).all()


def test_draws_follow_the_probabilities():
    probability = torch.tensor([[0.5, 0.0, 0.3, 0.2], [0.0, 0.0, 1.0, 0.0]])
    uniform = (torch.arange(1000) + 0.5) / 1000
    member = draw_members(probability, uniform.expand(2, -1))
    counts = torch.stack([row.bincount(minlength=4) for row in member]) / 1000
    torch.testing.assert_close(counts, probability, atol=2e-3, rtol=0)
    edge = torch.tensor([[0.0, 1 - 2**-24]])
    assert draw_members(torch.tensor([[0.0, 1.0, 0.0]]), edge).tolist() == [[1, 1]]
    assert draw_members(torch.full((1, 289), 1 / 289), edge).tolist() == [[0, 288]]


def test_draws_of_a_row_that_is_not_finite_are_members():
    probability = torch.tensor([[math.nan, math.nan, math.nan], [0.0, math.nan, 1.0], [math.inf, 0.0, 0.0]])
    member = draw_members(probability, torch.rand(3, 50))
    assert member.min() >= 0
    assert member.max() <= 2


@pytest.mark.parametrize(
    ("z", "weight", "beta", "message"),
    [
        (torch.ones(4, 3), None, 1.0, r"`z` of shape \(N, m, P\), but got \(4, 3\)"),
        (torch.ones(4, 1, 3), None, 1.0, r"`z` of shape \(N, m, P\), N >= 2 and m >= 2, but got"),
        (torch.ones(1, 4, 3), None, 1.0, r"`z` of shape \(N, m, P\), N >= 2 and m >= 2, but got"),
        (torch.ones(4, 2, 3), torch.ones(4, 3), 1.0, r"`log_weight` of shape \(N, m\), N = 4, m = 2, but got \(4, 3\)"),
        (torch.ones(4, 2, 3), None, 0.0, "`beta` > 0 and finite, but got 0.0"),
    ],
)
def test_what_does_not_fit_is_refused(z, weight, beta, message):
    with pytest.raises(ValueError, match=message):
        augmentation_channel_loss(z, weight, beta)


def test_other_shapes_are_refused():
    with pytest.raises(ValueError, match=r"`log_policy` of shape \(N, K\), but got \(3,\)"):
        policy_entropy(torch.zeros(3))
    with pytest.raises(ValueError, match=r"`uniform` of shape \(N, m\), N = 2, but got \(4, 3\)"):
        draw_members(torch.ones(2, 3), torch.ones(4, 3))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_computed_in_float32(dtype):
    z, logits = draws()
    z = z.to(dtype)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        found = augmentation_channel_loss(z, logits.to(dtype))
        own = z.float().requires_grad_()
        (inside,) = torch.autograd.grad(augmentation_channel_loss(own), own)
    assert found.dtype == torch.float32
    torch.testing.assert_close(found, augmentation_channel_loss(z.float(), logits.to(dtype).float()))
    torch.testing.assert_close(inside, torch.autograd.grad(augmentation_channel_loss(own), own)[0], rtol=0, atol=0)
    zero = z.clone()
    zero[0, 0] = 0
    assert torch.isfinite(augmentation_channel_loss(zero))
