r"""How well a score orders models, and what it costs to choose by it: Kendall's tau, regret, and their intervals.

A score gives each of M models a number, and is turned so that high values are good. The truth is an accuracy,
which is a mean over n samples. For weights w of the models, the rank correlation is Kendall's tau-a over pairs of
different models,

.. math:: \tau = \frac{\sum_{i < j} w_i w_j \, \mathrm{sign}(s_i - s_j) \, \mathrm{sign}(a_i - a_j)}
    {\sum_{i < j} w_i w_j},

and the regret is the greatest accuracy minus that of the model with the highest score. An interval is that of a
bootstrap, which draws models and samples with replacement: w counts how often a model was drawn, so that no model is
compared with itself. Models of one cluster, such as the seeds of one setting, resemble each other. Then clusters are
drawn with replacement, and as many models of each drawn cluster as it has.
"""

__all__ = ["Agreement", "Group", "agreement", "kendall_tau", "regret"]

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]
Flags = NDArray[np.bool_]
Places = NDArray[np.int64]


class Group(NamedTuple):
    """Models that are compared with each other, such as those that differ in one setting alone.

    Attributes:
        models: (m,), their places among all models.
        value: (m,), numbers of the values of the setting. Models with the same value are not compared by tau.
    """

    models: Places
    value: Places


class Agreement(NamedTuple):
    """How well one score agrees with the accuracy.

    Attributes:
        tau: Kendall's tau, in [-1, 1]. NaN if no two models are compared.
        tau_interval: Its interval.
        regret: The greatest accuracy minus that of the chosen model.
        regret_interval: Its interval.
        by_chance: The regret of a model that is drawn at random, on average.
        pairs: Number of compared pairs of models.
    """

    tau: float
    tau_interval: tuple[float, float]
    regret: float
    regret_interval: tuple[float, float]
    by_chance: float
    pairs: int

    @property
    def orders(self) -> bool:
        """Whether the score orders the models better than chance: the whole interval of tau is above 0."""
        return self.tau_interval[0] > 0


def kendall_tau(score: Floats, accuracy: Floats, weight: Floats | None = None, pairs: Flags | None = None) -> float:
    """Compute Kendall's tau-a of scores and accuracies of M models.

    Args:
        score: (M,), high is good.
        accuracy: (M,).
        weight: (M,), how often each model counts. None: once.
        pairs: (M, M), symmetric: which models are compared. None: all.

    Returns:
        A number in [-1, 1], to which a tie adds 0. NaN if no pair is compared.

    >>> kendall_tau(np.array([1.0, 2.0, 3.0]), np.array([0.5, 0.7, 0.6]))
    0.3333333333333333
    """
    weight = np.ones(len(score)) if weight is None else weight
    both = np.triu(np.outer(weight, weight), 1) * (1.0 if pairs is None else pairs)
    agree = np.sign(score[:, None] - score) * np.sign(accuracy[:, None] - accuracy)
    return float((both * agree).sum() / both.sum()) if both.any() else float("nan")


def regret(score: Floats, accuracy: Floats, weight: Floats | None = None) -> float:
    """Compute the greatest accuracy minus that of the model with the highest score, among models with a weight > 0.

    If several models have the highest score, their mean accuracy counts.

    >>> round(regret(np.array([1.0, 3.0, 2.0]), np.array([0.5, 0.7, 0.8])), 3)
    0.1
    """
    taken = np.ones(len(score), dtype=bool) if weight is None else weight > 0
    score, accuracy = score[taken], accuracy[taken]
    return float(accuracy.max() - accuracy[score == score.max()].mean())


def agreement(
    score: Floats,
    correct: Floats,
    groups: Sequence[Group] | None = None,
    *,
    cluster: Places | None = None,
    resamples: int = 1000,
    level: float = 0.95,
    seed: int = 0,
) -> Agreement:
    """Measure how well a score orders models, with intervals by bootstrap over models and samples.

    Args:
        score: (M,), high is good.
        correct: (M, n), how often each of n samples was classified correctly with each model, in [0, 1]. The samples
            are the same for all models.
        groups: Models that are compared with each other. Tau counts the pairs of all groups, and the regret is the mean
            of the groups' regrets. None: all models are one group.
        cluster: (M,), numbers of the clusters, 0 to C - 1. None: each model is one.
        resamples: Number of resamples. Those without a compared pair are left out of tau's interval.
        level: Level of the intervals.
        seed: Of the resamples.
    """
    models, samples = correct.shape
    groups = [Group(np.arange(models), np.arange(models))] if groups is None else groups
    pairs = np.zeros((models, models), dtype=bool)
    for group in groups:
        pairs[np.ix_(group.models, group.models)] |= group.value[:, None] != group.value
    members = [group.models for group in groups]
    cluster = np.arange(models) if cluster is None else cluster
    clusters = [np.flatnonzero(cluster == number) for number in range(int(cluster.max()) + 1)]
    generator, taus, regrets = np.random.default_rng(seed), [], []
    for _ in range(resamples):
        drawn = [clusters[place] for place in generator.integers(len(clusters), size=len(clusters))]
        places = np.concatenate([generator.choice(each, len(each)) for each in drawn])
        weight = np.bincount(places, minlength=models).astype(float)
        drawn_samples = np.bincount(generator.integers(samples, size=samples), minlength=samples)
        accuracy = _rounded(correct @ drawn_samples / samples)
        taus.append(kendall_tau(score, accuracy, weight, pairs=pairs))
        regrets.append(_mean_regret(score, accuracy, members, weight=weight))
    accuracy = _rounded(correct.mean(1))
    return Agreement(
        tau=kendall_tau(score, accuracy, pairs=pairs),
        tau_interval=_interval(taus, level),
        regret=_mean_regret(score, accuracy, members, weight=np.ones(models)),
        regret_interval=_interval(regrets, level),
        by_chance=float(np.mean([accuracy[each].max() - accuracy[each].mean() for each in members])),
        pairs=int(np.triu(pairs, 1).sum()),
    )


def _rounded(accuracy: Floats) -> Floats:
    """Give models with as many correct samples the same number: sums in other orders differ in their last bits."""
    return accuracy.round(12)


def _mean_regret(score: Floats, accuracy: Floats, members: Sequence[Places], *, weight: Floats) -> float:
    found = [regret(score[each], accuracy[each], weight[each]) for each in members if weight[each].any()]
    return float(np.mean(found)) if found else float("nan")


def _interval(values: list[float], level: float) -> tuple[float, float]:
    known = [value for value in values if not np.isnan(value)]
    if not known:
        return float("nan"), float("nan")
    low, high = np.quantile(known, [(1 - level) / 2, (1 + level) / 2])
    return float(low), float(high)
