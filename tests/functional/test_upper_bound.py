import math

import pytest
import torch
import torch.nn.functional as F

from lightning_ssl_geometry.functional import hardest_negative, info_nce, info_nce_entropy, info_nce_upper_bound

EQ_1 = {"positive_in_denominator": False, "symmetric": False}


def views(n, p, dtype=torch.float64):
    return [torch.randn(n, p, dtype=dtype).requires_grad_() for _ in range(2)]


@pytest.mark.parametrize("tau", [0.05, 0.5, 5.0])
def test_the_entropy_form_is_the_loss(tau):
    z1, z2 = views(70, 5)
    invariance, expectation, entropy = info_nce_entropy(z1, z2, tau, block_size=16)
    torch.testing.assert_close((invariance + expectation) / tau + entropy, info_nce(z1, z2, tau, **EQ_1))
    # and not with the minus that the paper prints in Eq. 13
    assert abs((invariance - expectation) / tau + entropy - info_nce(z1, z2, tau, **EQ_1)) > 1e-3


def test_the_entropy_form_equals_the_loop():
    z1, z2 = views(9, 4)
    tau = 0.3
    unit = F.normalize(torch.stack([z1, z2]), dim=2)
    expectations, entropies = [], []
    for i in range(9):
        cosine = torch.stack([unit[0, i] @ unit[k, j] for j in range(9) for k in range(2) if j != i])
        p = (cosine / tau).exp() / (cosine / tau).exp().sum()
        expectations.append((p * cosine).sum())
        entropies.append(-(p * p.log()).sum())
    invariance, expectation, entropy = info_nce_entropy(z1, z2, tau)
    torch.testing.assert_close(invariance, -F.cosine_similarity(z1, z2).mean())
    torch.testing.assert_close(expectation, torch.stack(expectations).mean())
    torch.testing.assert_close(entropy, torch.stack(entropies).mean())


def test_limits_of_the_entropy_form():
    z1, z2 = views(40, 6)
    _, repulsion, _ = info_nce_upper_bound(z1, z2, 0.5)
    _, expectation, entropy = info_nce_entropy(z1, z2, 1e6)  # beta -> 0: all negatives alike
    torch.testing.assert_close(entropy, torch.tensor(math.log(2 * 39), dtype=torch.float64))
    _, expectation, entropy = info_nce_entropy(z1, z2, 1e-5)  # beta -> inf: the hardest alone
    torch.testing.assert_close(expectation, repulsion)
    assert entropy < 1e-3
    _, expectation, entropy = info_nce_entropy(z1, z2, 0.5)
    assert expectation <= repulsion
    assert 0 <= entropy <= math.log(2 * 39)  # so the sum is at most the bound


def test_the_loss_and_its_bound_keep_their_range():
    beta, n = 2.0, 128
    for seed in range(5):
        torch.manual_seed(seed)
        direction = torch.randn(1, 6, dtype=torch.float64)
        for z1, z2 in (views(n, 2), views(n, 64), (direction.repeat(n, 1), direction.repeat(n, 1) + 1e-3)):
            loss = info_nce(z1, z2, 1 / beta, **EQ_1)
            _, _, bound = info_nce_upper_bound(z1, z2, 1 / beta)
            assert math.log(2 * (n - 1)) - 2 * beta <= loss <= bound <= math.log(2 * (n - 1)) + 2 * beta + 1e-9


def test_the_entropy_form_has_a_gradient():
    z1, z2 = views(5, 3)
    assert torch.autograd.gradcheck(lambda a, b: info_nce_entropy(a, b, 0.3), (z1, z2))


def test_upper_bound_holds_and_is_made_of_its_terms():
    for n, p, tau in ((2, 3, 0.5), (40, 8, 0.5), (300, 16, 0.05)):
        z1, z2 = views(n, p)
        invariance, repulsion, bound = info_nce_upper_bound(z1, z2, tau)
        loss = info_nce(z1, z2, tau, **EQ_1)
        assert loss <= bound
        torch.testing.assert_close(invariance, -F.cosine_similarity(z1, z2).mean())
        torch.testing.assert_close(bound, (invariance + repulsion) / tau + math.log(2 * (n - 1)))
        # and not looser than log(2(N-1)), which is what the sum over its largest term gains at most
        assert bound - loss <= math.log(2 * (n - 1))


def test_upper_bound_is_tight_where_all_negatives_are_alike():
    z = torch.eye(5, dtype=torch.float64)
    _, _, bound = info_nce_upper_bound(z, z, 0.5)
    torch.testing.assert_close(bound, info_nce(z, z, 0.5, **EQ_1))


def test_upper_bound_has_a_gradient():
    z1, z2 = views(5, 3)
    assert torch.autograd.gradcheck(lambda a, b: info_nce_upper_bound(a, b, 0.3), (z1, z2))


def test_hardest_negative_equals_the_loop():
    z1, z2 = views(300, 8)  # more than one tile
    index, view, similarity = hardest_negative(z1, z2)
    unit = F.normalize(torch.stack([z1, z2]), dim=2).detach()
    for i in range(0, 300, 7):
        cosine = unit @ unit[0, i]
        cosine[:, i] = -math.inf
        assert (view[i], index[i]) == divmod(cosine.argmax().item(), 300)
        torch.testing.assert_close(similarity[i].detach(), cosine.max())
    assert (index != torch.arange(300)).all()


def test_hardest_negative_where_the_others_are_opposite():
    z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    index, view, similarity = hardest_negative(z, -z)
    assert index.tolist() == [1, 0]
    assert view.tolist() == [1, 1]
    assert similarity.tolist() == [1.0, 1.0]
    assert hardest_negative(z, z)[2].tolist() == [-1.0, -1.0]


@pytest.mark.parametrize("function", [info_nce_upper_bound, info_nce_entropy])
def test_they_take_one_temperature(function):
    z = torch.ones(4, 3)
    with pytest.raises(ValueError, match=r"`temperature` to be one number, but got \[0\.5, 0\.5, 0\.5\]"):
        function(z, z, [0.5, 0.5, 0.5])
    with pytest.raises(ValueError, match="`temperature` > 0 and finite, but got 0"):
        function(z, z, 0.0)


def test_a_negative_block_size_is_named():
    with pytest.raises(ValueError, match="`block_size` >= 1, but got -1"):
        info_nce_entropy(torch.eye(4), torch.eye(4), block_size=-1)


@pytest.mark.parametrize("function", [info_nce_upper_bound, info_nce_entropy, hardest_negative])
def test_a_negative_eps_is_named(function):
    z = torch.ones(4, 3)
    with pytest.raises(ValueError, match="`eps` >= 0, but got -1e-08"):
        function(z, z, eps=-1e-8)


@pytest.mark.parametrize("function", [info_nce_upper_bound, info_nce_entropy, hardest_negative])
def test_rows_longer_than_1e_8_have_a_direction(function):
    unit, other = (F.normalize(torch.randn(5, 3, dtype=torch.float64), dim=1) for _ in range(2))
    torch.testing.assert_close(function(1.1e-8 * unit, other), function(unit, other))
    torch.testing.assert_close(function(0.9e-8 * unit, other), function(0 * unit, other))


def test_where_all_are_equal_the_first_other_sample_is_the_hardest():
    z = torch.ones(4, 3)
    assert hardest_negative(z, z)[0].tolist() == [1, 0, 0, 0]
