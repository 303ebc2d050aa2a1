"""How far scores agree with the accuracy of the finished runs, alone and combined.

`ssl-geometry choose` orders models by scores of the same models. Here, the scores may also be those of checkpoints
after a fifth of the training. A combined score is the mean rank of several scores.
"""

__all__ = ["Row", "agreements"]

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from lightning_ssl_geometry.diagnose import Choice
from lightning_ssl_geometry.report.ranking import agreement

OTHER_SEEDS = "accuracy of the same arm with other seeds"  # how far the order of the arms repeats
COMBINED = {  # name -> the scores whose ranks it averages: those whose title begins so
    "ranks of all scores": ("",),
    "ranks of effective ranks and LiDAR": ("Effective rank", "LiDAR"),
}


class Row(NamedTuple):
    """Kendall's tau of a score with the accuracy, and the accuracy lost by choosing with it, with 95% intervals.

    The intervals are those of a bootstrap over arms: the seeds of an arm are drawn together. `by_chance` is the
    accuracy lost by choosing at random, on average.
    """

    when: str
    score: str
    runs: int
    tau: float
    tau_low: float
    tau_high: float
    regret: float
    regret_low: float
    regret_high: float
    by_chance: float

    def tau_text(self) -> str:
        return f"{self.tau:.2f} [{self.tau_low:.2f}, {self.tau_high:.2f}]"

    def regret_text(self) -> str:
        """In points of accuracy."""
        regret, low, high = (100 * value for value in (self.regret, self.regret_low, self.regret_high))
        return f"{regret:.1f} [{low:.1f}, {high:.1f}]"


def agreements(when: str, choice: Choice, ends: Mapping[str, float]) -> Iterator[Row]:
    """Compare each score, and the combined ones, with the accuracies at the end.

    If the accuracy of the models of `choice` differs from that at the end, it is one of the scores. The accuracy of the
    arm's other seeds is another one: it says how much of the order of runs is one of arms, which scores can find.

    Args:
        when: Name of this comparison in the table.
        choice: The scores of models called "<arm>, seed <n>".
        ends: Model -> accuracy of the finished run. Models without one are left out.
    """
    accuracy = choice.accuracy or {}
    names = [name for name in accuracy if name in ends]
    found = {score.title: np.array([score.goodness[name] for name in names]) for score in choice.scores}
    for combined, begins in COMBINED.items():
        parts = [rankdata(values) for title, values in found.items() if title.startswith(begins)]
        if len(parts) > 1:
            found[combined] = np.mean(parts, axis=0)
    if any(accuracy[name] != ends[name] for name in names):
        found["accuracy"] = np.array([accuracy[name] for name in names])
    truth = np.array([[ends[name]] for name in names])
    arms = [name.rpartition(", seed ")[0] for name in names]
    if min(map(arms.count, arms)) > 1:
        others = [
            [ends[b] for b, of in zip(names, arms, strict=True) if of == arm and b != a]
            for a, arm in zip(names, arms, strict=True)
        ]
        found[OTHER_SEEDS] = np.array([np.mean(each) for each in others])
    cluster = np.array([sorted(set(arms)).index(arm) for arm in arms])
    for title, values in found.items():
        held = agreement(values, truth, cluster=cluster)
        intervals = *held.tau_interval, held.regret, *held.regret_interval
        yield Row(when, title, len(names), held.tau, *intervals, held.by_chance)
