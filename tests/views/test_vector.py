"""VectorViews: how many features change, to what, and how often."""

import pytest
import torch
from scipy.stats import chisquare, kstest

from lightning_ssl_geometry.views import VectorViews, sample_normal

LEVEL = 1e-3  # of each test of a distribution: the seeds are fixed, so a pass stays a pass


def one_view(dim=10, n=2000, training=None, **settings):
    views = VectorViews(keep_first=False, num_views=1, **({"corruption": 0.0} | settings))
    if training is not None:
        views.learn(training, torch.arange(len(training)))
    (view,) = views(torch.zeros(n, dim), torch.arange(n))
    return view


@pytest.mark.parametrize(
    ("corruption", "dim", "count"), [(0.6, 30, 18), (0.29, 100, 29), (0.5, 5, 2), (1.0, 7, 7), (0.1, 9, 0)]
)
def test_exactly_floor_c_d_features_are_corrupted(corruption, dim, count):
    view = one_view(dim, 50, training=torch.ones(3, dim), corruption=corruption)
    assert (view.sum(1) == count).all()


def test_every_set_of_corrupted_features_is_as_likely():
    view = one_view(4, 6000, training=torch.ones(3, 4), corruption=0.5)
    code = (view * torch.tensor([1, 2, 4, 8])).sum(1).long()
    counts = torch.bincount(code, minlength=16)[[3, 5, 6, 9, 10, 12]]
    assert counts.sum() == 6000
    assert chisquare(counts.numpy()).pvalue > LEVEL


def test_a_corrupted_feature_has_the_marginal_of_its_own_feature():
    """Feature j of the training set has the values 10 j + 1, 2, 2, 3, so 2 is twice as likely."""
    training = torch.tensor([1.0, 2, 2, 3])[:, None] + 10 * torch.arange(3)
    view = one_view(3, 4000, training=training, corruption=1.0) - 10 * torch.arange(3)
    for feature in view.long().unbind(1):
        counts = torch.bincount(feature, minlength=4)[1:]
        assert counts.sum() == 4000
        assert chisquare(counts.numpy(), [1000, 2000, 1000]).pvalue > LEVEL
    donors = view.long().unique(dim=0)  # features are drawn independently: all 27 combinations occur
    assert len(donors) == 27


def test_only_training_rows_are_donors():
    views = VectorViews(1.0, keep_first=False)
    views.learn(torch.arange(10.0)[:, None].expand(10, 4), torch.tensor([2, 5, 7]))
    first, _ = views(torch.zeros(500, 4), torch.arange(500))
    assert first.unique().tolist() == [2, 5, 7]


def test_the_first_view_is_kept_as_in_scarf():
    x, training = torch.randn(6, 5), torch.randn(20, 5)
    views = VectorViews(1.0, noise=1.0, mask=0.5, num_views=3)
    views.learn(training, torch.arange(20))
    first, second, third = views(x, torch.arange(6), 0, x.mean(0), x.std(0))
    assert torch.equal(first, (x - x.mean(0)) / x.std(0))
    assert not (second == first).any(dim=1).all()
    assert not torch.equal(second, third)


@pytest.mark.parametrize("mask", [0.0, 0.25, 1.0])
def test_features_are_masked_independently_with_the_probability(mask):
    views = VectorViews(0.0, mask=mask, keep_first=False, num_views=1)
    (view,) = views(torch.ones(3000, 8), torch.arange(3000))
    counts = torch.bincount((view == 0).sum(1), minlength=9).double()
    law = torch.distributions.Binomial(8, torch.tensor(mask, dtype=torch.float64))
    expected = 3000 * law.log_prob(torch.arange(9.0).double()).exp()
    common = expected > 5
    assert not counts[expected == 0].any()
    if mask == 0.25:
        rest = [float(each[~common].sum()) for each in (counts, expected)]
        observed, wanted = [*counts[common].tolist(), rest[0]], [*expected[common].tolist(), rest[1]]
        assert chisquare(observed, wanted, sum_check=False).pvalue > LEVEL


def test_noise_is_normal_with_its_standard_deviation():
    view = one_view(20, 500, noise=0.3)
    assert kstest(view.flatten().numpy() / 0.3, "norm").pvalue > LEVEL
    correlation = torch.corrcoef(view.T) - torch.eye(20)
    assert correlation.abs().max() < 5 / 500**0.5


def test_a_masked_feature_has_the_training_mean_whatever_its_noise():
    views = VectorViews(0.0, noise=1.0, mask=1.0, keep_first=False, num_views=1)
    (view,) = views(torch.randn(5, 3), torch.arange(5), 0, torch.ones(3), torch.ones(3))
    assert torch.equal(view, torch.zeros(5, 3))


def test_the_normal_numbers_are_finite_and_symmetric():
    u = torch.tensor([0.0, 2**-24, 0.25, 0.5])
    mirrored = 1 - 2**-24 - u
    assert torch.equal(sample_normal(u), -sample_normal(mirrored))
    assert sample_normal(torch.tensor([0.0, 1 - 2**-24])).isfinite().all()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"corruption": 1.1}, r"`corruption` in \[0, 1\], but got 1.1"),
        ({"mask": -0.1}, r"`mask` in \[0, 1\], but got -0.1"),
        ({"noise": -1.0}, "`noise` >= 0 and finite, but got -1.0"),
        ({"noise": float("nan")}, "`noise` >= 0 and finite, but got nan"),
        ({"num_views": 0}, "`num_views` to be an integer >= 1, but got 0"),
        ({"keep_first": "false"}, "`keep_first` to be True or False, but got 'false'"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        VectorViews(**arguments)


def test_a_training_set_of_other_vectors_is_refused():
    views = VectorViews(keep_first=False)
    views.learn(torch.zeros(9, 4), torch.arange(9))
    with pytest.raises(ValueError, match=r"`training_set` of shape \(M, D\), D = 5, but got \(9, 4\)"):
        views(torch.zeros(2, 5), torch.arange(2))
