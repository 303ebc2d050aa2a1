"""Laws of Rusak et al., Content suppresses style: dimensionality collapse in contrastive learning (2022).

Latents z of d dimensions, of which the first d_c are content, are mixed into x = A z; the encoder is z' = W x. The
positives x~ have the same content and, around theirs, another style. L is Eq. 4 with one outer sum, over the anchors,
as a mean: L = mean_i -log(e_ii / (e_ii + sum_j e_ij)), with e_ii = exp(-|z_i - z~_i|^2 / 2) and, of the negatives
j != i, e_ij = exp(-|z_i - z_j|^2 / 2).
"""

import math

import pytest
import torch
from torch import nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.functional.adaptive_temperature import gradient_spectrum, pair_covariances
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.terms import alignment_uniformity_terms
from lightning_ssl_geometry.functional.neural_collapse import neural_collapse
from lightning_ssl_geometry.random import counter_hash, counter_uniform, generalized_normal

DIM, CONTENT, N = 6, 2, 128


def latents(n=N, content=CONTENT, sigma=0.05):
    """A uniform box, and positives whose style a normal distribution of this deviation draws again inside it."""
    index = torch.arange(n)
    z = counter_uniform(0, index, size=DIM).double()
    scale = 2**0.5 * sigma * (torch.arange(DIM) >= content)
    key = counter_hash(1, index[:, None], torch.arange(DIM))
    return z, generalized_normal(z, scale, 2.0, key, low=0.0, high=1.0)


def mixing():
    """An invertible A, well conditioned."""
    return torch.eye(DIM, dtype=torch.float64) + 0.2 * torch.randn(DIM, DIM, dtype=torch.float64)


def projection(content=CONTENT, scale=1.0):
    """D, which keeps content, scaled, and nothing else."""
    return torch.diag(scale * (torch.arange(DIM) < content).double())


def loss(z1, z2):
    """L of Eq. 4, whose exponent -|.|^2 / 2 is a temperature of 2."""
    return info_nce(z1, z2, 2.0, normalize=False, symmetric=False, negatives="same", similarity="distance")


def detached_loss(z1, z2):
    """The same, with the negatives z_j held."""
    positive = -(z1 - z2).square().sum(dim=1) / 2
    negative = -(z1[:, None] - z1.detach()).square().sum(dim=2) / 2
    own = torch.eye(len(z1), dtype=torch.bool)
    total = negative.masked_fill(own, -torch.inf).logsumexp(dim=1)
    return (torch.logaddexp(positive, total) - positive).mean()


def descent(objective, weight, x1, x2):
    """dW/dt = -dL/dW."""
    weight = weight.clone().requires_grad_()
    return -torch.autograd.grad(objective(x1 @ weight.T, x2 @ weight.T), weight)[0]


def rank(matrix, tol=1e-9):
    return int(torch.linalg.matrix_rank(matrix, rtol=tol))


# Lemma 5. As W -> 0 all exponentials become 1 and every alpha_ij = 1/N, N = M + 1. With the z_j held,
#   -dL/dW = -W/N sum_i [M/N (x_i - x~_i)(x_i - x~_i)^T - 1/N sum_j (x_i - x_j) x_i^T] = W [Sigma_x - M/N Sigma_x~],
# since sum_ij (x_i - x_j) x_i^T = N sum_i x_i x_i^T - (sum_i x_i)(sum_i x_i)^T = N^2 Sigma_x: for the batch's own
# covariances there is no sampling error at all. Eq. 5 has the factor M + 1 of a sum over the anchors and M/N -> 1.
# Where the gradient passes the z_j too, sum_ij (x_j - x_i) x_j^T is the same N^2 Sigma_x once more.
@pytest.mark.parametrize(("objective", "factor"), [(detached_loss, 1), (loss, 2)])
def test_lemma_5_the_dynamics_of_small_weights(objective, factor):
    a, weight = mixing(), 1e-4 * torch.randn(DIM, DIM, dtype=torch.float64)
    x1, x2 = (z @ a.T for z in latents(sigma=0.3))
    marginal, conditional = pair_covariances(x1, x2)
    expected = weight @ (factor * marginal - (N - 1) / N * conditional)
    torch.testing.assert_close(descent(objective, weight, x1, x2), expected, rtol=1e-5, atol=1e-10)


def test_lemma_5_holds_for_small_weights_only():
    x1, x2 = latents(sigma=0.3)
    marginal, conditional = pair_covariances(x1, x2)
    errors = []
    for size in (1e-2, 1e-1, 1.0, 10.0):
        weight = size * torch.eye(DIM, dtype=torch.float64)
        expected = weight @ (marginal - (N - 1) / N * conditional)
        errors.append(((descent(detached_loss, weight, x1, x2) - expected).norm() / expected.norm()).item())
    assert errors == sorted(errors)  # it grows with |W|^2
    assert errors[1] < 10 * errors[0] * 10.5
    assert errors[0] < 1e-3
    assert errors[3] > 0.5


def test_the_held_loss_is_the_loss():
    z1, z2 = latents(sigma=0.3)
    torch.testing.assert_close(detached_loss(z1, z2), loss(z1, z2))


# Lemma 6. Sigma_x of n samples has rank n - 1, and Sigma_x~ n, but no more than style has dimensions. The paper
# concludes that M + 1 < d makes the gradient rank-deficient; their difference has up to the sum of both ranks.
@pytest.mark.parametrize("content", [2, 6])
def test_lemma_6_the_rank_of_the_gradient_grows_with_the_batch(content):
    a, weight = mixing(), torch.eye(DIM, dtype=torch.float64)
    ranks = []
    for n in range(2, 2 * DIM):
        x1, x2 = (z @ a.T for z in latents(n, content, sigma=0.3))
        marginal, conditional = pair_covariances(x1, x2)
        assert rank(marginal) == min(n - 1, DIM)
        assert rank(conditional) == min(n, DIM - content)
        ranks.append(rank(descent(detached_loss, weight, x1, x2)))
        assert ranks[-1] == min(n - 1 + min(n, DIM - content), DIM)
    assert ranks == sorted(ranks)
    assert ranks[0] < DIM == ranks[-1]


# L_CL0. At W = 0 all exponentials are 1: each anchor has -log 1/(1 + M), and the double sum of Eq. 4 counts it M times.
@pytest.mark.parametrize("n", [2, 7, N])
def test_the_loss_of_no_weights(n):
    z = torch.zeros(n, DIM, dtype=torch.float64)
    m = n - 1
    assert loss(z, z).item() == pytest.approx(math.log(m + 1))
    assert n * m * loss(z, z).item() == pytest.approx((m + 1) * m * math.log(1 + m))


def test_no_weights_are_not_optimal_though_the_gradient_is_zero():
    x1, x2 = latents()
    assert descent(loss, torch.zeros(DIM, DIM, dtype=torch.float64), x1, x2).abs().max() == 0
    assert loss(x1, x2) < loss(0.1 * x1, 0.1 * x2) < math.log(N)


# Prop. 4. W = s D A^-1, D keeping content only: e_ii = 1 whatever s, and e_ij = exp(-s^2 |z_i^c - z_j^c|^2 / 2) -> 0.
def test_proposition_4_collapsed_weights_reach_a_loss_of_zero():
    a = mixing()
    x1, x2 = (z @ a.T for z in latents())
    losses = []
    for scale in (1.0, 10.0, 100.0, 1e3, 1e4):
        weight = projection(scale=scale) @ torch.linalg.inv(a)
        assert rank(weight) == CONTENT
        losses.append(loss(x1 @ weight.T, x2 @ weight.T).item())
    assert losses == sorted(losses, reverse=True)
    assert 0 <= losses[-1] < 1e-6


# It needs the anchor not to be among its own negatives, as the code of Zimmermann et al. has it: then e_ij = 1 once.
def test_with_the_anchor_among_its_negatives_the_least_loss_is_log_2():
    z1, z2 = (z @ projection(scale=1e4) for z in latents())
    found = info_nce(
        z1, z2, 2.0, normalize=False, symmetric=False, negatives="same", similarity="distance", include_self=True
    )
    assert found.item() == pytest.approx(math.log(2))


# Corollary 1. At W = A^-1, z' = z; scaling its content leaves |z_i - z~_i| and widens |z_i - z_j|.
def test_corollary_1_the_true_weights_are_not_optimal_where_there_is_content():
    z1, z2 = latents()
    stretched = torch.diag(torch.where(torch.arange(DIM) < CONTENT, 2.0, 1.0)).double()
    terms, wider = (
        alignment_uniformity_terms(z1 @ d, z2 @ d, 2.0, normalize=False, similarity="distance")
        for d in (torch.eye(DIM, dtype=torch.float64), stretched)
    )
    torch.testing.assert_close(wider.align, terms.align)
    assert (wider.uniform < terms.uniform).all()
    assert loss(z1 @ stretched, z2 @ stretched) < loss(z1, z2)


# Whatever their scale, where style is so strong that some sample is nearer than the positive: then e_ij > e_ii there.
def test_strong_style_keeps_full_weights_from_the_loss_that_collapsed_ones_reach():
    z1, z2 = latents(sigma=0.3)
    assert min(_losses(z1, z2, content=CONTENT)) < 0.05 < 3 < min(_losses(z1, z2, content=DIM))


# A batch in which every positive is nearer than all other samples does not tell: every e_ij / e_ii -> 0 with the scale.
def test_weak_style_lets_full_weights_reach_a_loss_of_zero_too():
    z1, z2 = latents(sigma=0.05)
    nearest = torch.cdist(z1, z1).fill_diagonal_(torch.inf).amin(dim=1)
    assert (nearest > (z1 - z2).norm(dim=1)).all()
    whole, collapsed = _losses(z1, z2, content=DIM), _losses(z1, z2, content=CONTENT)
    assert whole[-1] < 1e-6
    assert all(full < low for full, low in zip(whole, collapsed, strict=True))  # and at a lower scale


# Without content, what is collapsed was style: less alignment, but never as much as is lost in telling samples apart.
@pytest.mark.parametrize("sigma", [0.05, 0.3])
def test_without_content_collapse_raises_the_loss(sigma):
    z1, z2 = latents(content=0, sigma=sigma)
    whole, half, pair = (_losses(z1, z2, content) for content in (DIM, DIM // 2, CONTENT))
    assert whole[0] < half[0] < pair[0]  # at the true scale
    assert min(whole) < min(half) < min(pair)  # and each at its best


def _losses(z1, z2, content):
    """Those of the first latents, at the true scale and larger ones."""
    return [loss(*(z @ projection(content, scale) for z in (z1, z2))).item() for scale in (1, 2, 5, 10, 20, 50, 100)]


# Prop. 5. Of z = D f(x), dL/df = D^T dL/dz: the gradient of W in f = W phi(x) is D^T (.), of rank d_c at most (Lemma
# 2), at the optimum as anywhere else.
@pytest.mark.parametrize("content", [0, 2, DIM])
def test_proposition_5_the_gradient_before_a_collapse_has_its_rank(content):
    torch.manual_seed(1)
    x1, x2 = latents(content=2)
    first, last = (nn.Linear(DIM, DIM, bias=False).double() for _ in range(2))
    f = nn.Sequential(first, nn.LeakyReLU(), last)
    d = projection(content)
    gradient = torch.autograd.grad(loss(f(x1) @ d, f(x2) @ d), (first.weight, last.weight))
    assert rank(gradient[1]) == content
    # A layer further in has a sum of J_i^T D (.) x_i^T over samples, whose Jacobians differ: no such bound.
    assert rank(gradient[0]) == (DIM if content else 0)


# Prop. 6. |D z| = alpha |z^c|, so that D z / |D z| = (z^c / |z^c|, 0) whatever alpha and z^s are.
@pytest.mark.parametrize("alpha", [0.1, 1.0, 30.0])
def test_proposition_6_on_the_sphere_a_collapse_behind_the_encoder_is_one_of_it(alpha):
    z1, z2 = (z - 0.5 for z in latents())  # f has full rank
    assert rank(z1) == DIM
    d = projection(scale=alpha)
    collapsed = [torch.cat([z[:, :CONTENT], torch.zeros(N, DIM - CONTENT)], dim=1) for z in (z1, z2)]
    torch.testing.assert_close(normalize(z1 @ d), normalize(collapsed[0]))
    for temperature in (0.1, 1.0):
        torch.testing.assert_close(info_nce(z1 @ d, z2 @ d, temperature), info_nce(*collapsed, temperature))
    assert rank(z1 @ d) == CONTENT


def exact_latents(sigma_z, sigma_c, sigma_s, n=N):
    """Latents and changes whose covariances over the batch are those of Assumption 3 without a sampling error."""
    joint = torch.randn(n, 2 * DIM, dtype=torch.float64)
    joint = torch.linalg.qr(joint - joint.mean(dim=0)).Q * n**0.5
    sigma = torch.where(torch.arange(DIM) < CONTENT, sigma_c, sigma_s)
    return sigma_z * joint[:, :DIM], sigma_z * joint[:, :DIM] + sigma * joint[:, DIM:]


# Lemma 7 and Prop. 2. With an orthogonal A, Eq. 15 is a singular value decomposition: those of small weights W = e Q
# are e (sigma_z^2 - sigma_c^2), d_c times, and e (sigma_z^2 - sigma_s^2), and the first belong to the columns of A
# that content is mixed by. It takes sigma_c < sigma_s only, not sigma_c = 0.
@pytest.mark.parametrize("sigma_c", [0.0, 0.1])
def test_lemma_7_content_has_the_larger_gradients(sigma_c):
    a, q = (torch.linalg.qr(torch.randn(DIM, DIM, dtype=torch.float64)).Q for _ in range(2))
    x1, x2 = (z @ a.T for z in exact_latents(1.0, sigma_c, 0.5))
    size, seen = 1e-4, (N - 1) / N
    _, sigma, directions = torch.linalg.svd(descent(detached_loss, size * q, x1, x2))
    expected = torch.tensor([1 - seen * sigma_c**2] * CONTENT + [1 - seen * 0.25] * (DIM - CONTENT))
    torch.testing.assert_close(sigma / size, expected.double(), rtol=1e-5, atol=0)
    torch.testing.assert_close(
        directions[:CONTENT].T @ directions[:CONTENT], a[:, :CONTENT] @ a[:, :CONTENT].T, rtol=0, atol=1e-5
    )
    torch.testing.assert_close(gradient_spectrum(x1, x2, size * q) / size, sigma / size, rtol=1e-2, atol=0)


# Lemma 1. Where content is the class, each class a point and these at equal angles, every anchor meets c - 1 others at
# the cosine -1/(c - 1), and Jensen's inequality makes that the least loss of any points on the sphere; n = c here.
@pytest.mark.parametrize("temperature", [0.2, 1.0])
def test_lemma_1_on_the_sphere_the_least_loss_is_at_a_simplex_that_has_no_style(temperature):
    classes, per_class = 5, 6
    corners = normalize(torch.eye(classes, dtype=torch.float64) - 1 / classes)
    settings = {"temperature": temperature, "symmetric": False, "negatives": "same"}
    least = info_nce(corners, corners, **settings)
    others = (classes - 1) * math.exp((-1 / (classes - 1) - 1) / temperature)
    assert least.item() == pytest.approx(math.log1p(others))
    for _ in range(50):
        z = torch.randn(classes, classes, dtype=torch.float64)
        assert info_nce(z, z, **settings) > least
    label = torch.arange(classes).repeat(per_class)
    collapsed = info_nce(corners[label], corners[label], **settings)
    assert max(neural_collapse(corners[label], label)) < 1e-10
    for size in (0.1, 0.3, 1.0):  # style, which the two views of a sample have not in common
        z1, z2 = (corners[label] + size * torch.randn(len(label), classes, dtype=torch.float64) for _ in range(2))
        assert info_nce(z1, z2, **settings) > collapsed
        assert neural_collapse(normalize(z1), label).within_class > 1e-3


# A temperature per dimension, tau_k, is a scale tau_k^(-1/2) of that dimension in every product and squared difference.
@pytest.mark.parametrize("similarity", ["dot", "distance"])
@pytest.mark.parametrize("normalized", [False, True])
def test_one_temperature_is_equal_ones_and_different_ones_scale_the_dimensions(similarity, normalized):
    z1, z2 = (z - 0.3 for z in latents())
    settings = {"similarity": similarity, "normalize": normalized}
    torch.testing.assert_close(info_nce(z1, z2, (0.3,) * DIM, **settings), info_nce(z1, z2, 0.3, **settings))
    tau = torch.linspace(0.2, 2.0, DIM, dtype=torch.float64)
    if normalized:
        z1, z2 = normalize(z1), normalize(z2)
    scaled = info_nce(z1 / tau.sqrt(), z2 / tau.sqrt(), 1.0, normalize=False, similarity=similarity)
    torch.testing.assert_close(info_nce(z1, z2, tau, **settings), scaled)


# So with ever warmer style the loss of z becomes that of its content: W can collapse it, or the temperature.
def test_infinitely_warm_style_is_collapsed_style():
    z1, z2 = latents()
    settings = {"normalize": False, "similarity": "distance"}
    collapsed = info_nce(z1[:, :CONTENT], z2[:, :CONTENT], 0.5, **settings)
    gaps = []
    for tau_s in (1.0, 1e2, 1e4, 1e6):
        tau = torch.where(torch.arange(DIM) < CONTENT, 0.5, tau_s).double()
        gaps.append((info_nce(z1, z2, tau, **settings) - collapsed).abs().item())
    assert gaps == sorted(gaps, reverse=True)
    assert gaps[-1] < 1e-5
