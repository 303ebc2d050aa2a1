"""Kendall's tau, the regret of a choice, and their intervals."""

import numpy as np
import pytest
from scipy.stats import kendalltau

from lightning_ssl_geometry.report.ranking import Group, agreement, kendall_tau, regret


@pytest.mark.parametrize("seed", range(5))
def test_tau_is_that_of_scipy_without_ties_and_counts_pairs(seed):
    rng = np.random.default_rng(seed)
    score, accuracy = rng.normal(size=(2, 9))
    assert kendall_tau(score, accuracy) == pytest.approx(kendalltau(score, accuracy).statistic, abs=1e-12)
    pairs = rng.random((9, 9)) < 0.5
    pairs = pairs | pairs.T
    signs = [
        np.sign((score[i] - score[j]) * (accuracy[i] - accuracy[j])) for i in range(9) for j in range(i) if pairs[i, j]
    ]
    assert kendall_tau(score, accuracy, pairs=pairs) == pytest.approx(np.mean(signs), abs=1e-12)


def test_weights_are_repeated_models_that_are_not_compared_with_themselves():
    rng = np.random.default_rng(0)
    score, accuracy = rng.normal(size=(2, 6))
    weight = np.array([0.0, 1.0, 3.0, 2.0, 0.0, 1.0])
    places = np.repeat(np.arange(6), weight.astype(int))
    signs = [
        np.sign((score[i] - score[j]) * (accuracy[i] - accuracy[j]))
        for place, i in enumerate(places)
        for j in places[:place]
        if i != j
    ]
    assert kendall_tau(score, accuracy, weight) == pytest.approx(np.mean(signs), abs=1e-12)
    kept = weight > 0
    assert regret(score, accuracy, weight) == regret(score[kept], accuracy[kept])


def test_a_tie_adds_nothing_and_is_chosen_by_its_mean():
    assert kendall_tau(np.array([1.0, 1.0, 2.0]), np.array([0.1, 0.2, 0.3])) == pytest.approx(2 / 3)
    assert regret(np.array([2.0, 2.0, 1.0]), np.array([0.1, 0.2, 0.6])) == pytest.approx(0.45)
    assert np.isnan(kendall_tau(np.ones(1), np.ones(1)))
    assert np.isnan(kendall_tau(np.arange(3.0), np.arange(3.0), pairs=np.zeros((3, 3), dtype=bool)))


def test_a_right_score_and_a_random_one():
    rng = np.random.default_rng(1)
    chance = rng.uniform(0.4, 0.9, size=20)
    correct = (rng.random((20, 500)) < chance[:, None]).astype(float)
    right = agreement(correct.mean(1), correct, resamples=300)
    assert (right.tau, right.regret) == (1.0, 0.0)
    assert right.tau_interval[0] > 0.7
    assert right.by_chance == pytest.approx(correct.mean(1).max() - correct.mean())
    assert right.pairs == 190
    random = agreement(rng.normal(size=20), correct, resamples=300)
    assert random.tau_interval[0] < 0 < random.tau_interval[1]
    wrong = agreement(-correct.mean(1), correct, resamples=300)
    assert wrong.tau == -1
    assert wrong.regret == pytest.approx(np.ptp(correct.mean(1)))


def test_groups_are_compared_within_themselves_alone():
    """Two groups whose accuracies do not overlap: a score that is right within both and wrong between them."""
    correct = np.repeat(np.array([0.2, 0.3, 0.4, 0.8, 0.9])[:, None], 10, axis=1)
    score = np.array([1.0, 2.0, 3.0, 0.0, 0.5])
    groups = [Group(np.array([0, 1, 2]), np.array([0, 1, 2])), Group(np.array([3, 4]), np.array([0, 1]))]
    found = agreement(score, correct, groups, resamples=50)
    assert (found.tau, found.regret, found.pairs) == (1.0, 0.0, 4)
    assert found.by_chance == pytest.approx((0.1 + 0.05) / 2)
    assert agreement(score, correct, resamples=50).regret == pytest.approx(0.5)
    same = [Group(np.array([0, 1, 2]), np.array([0, 0, 1]))]  # two seeds of one value are not compared
    assert agreement(-score, correct, same, resamples=50).pairs == 2


def test_the_seeds_of_a_setting_are_drawn_together():
    """Ten copies of each of four models are four models: as wide an interval, and not one of forty models."""
    rng = np.random.default_rng(3)
    chance, score = rng.uniform(0.3, 0.9, size=4), rng.normal(size=4)
    few = np.repeat(chance[:, None], 50, axis=1)
    alone = agreement(score, few, resamples=400)
    copies, cluster = np.repeat(few, 10, axis=0), np.repeat(np.arange(4), 10)
    together = agreement(np.repeat(score, 10), copies, cluster=cluster, resamples=400)
    apart = agreement(np.repeat(score, 10), copies, resamples=400)
    assert np.subtract(*together.regret_interval) == pytest.approx(np.subtract(*alone.regret_interval), abs=0.05)
    assert abs(np.subtract(*apart.tau_interval)) < 0.7 * abs(np.subtract(*together.tau_interval))


def test_intervals_hold_their_level():
    """A score that is the true accuracy plus noise; the truth is tau in a large population of models and samples."""
    rng = np.random.default_rng(2)

    def models(count):
        chance = rng.uniform(0.3, 0.9, size=count)
        return chance + rng.normal(size=count) * 0.1, chance

    score, chance = models(2000)
    truth, held = kendall_tau(score, chance), 0
    for seed in range(60):
        score, chance = models(25)
        correct = (rng.random((25, 400)) < chance[:, None]).astype(float)
        low, high = agreement(score, correct, resamples=200, seed=seed).tau_interval
        held += low <= truth <= high
    assert held >= 51  # 57 of 60 at 95%; 51 or fewer in 1 of 100
