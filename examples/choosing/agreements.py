"""How far scores agree with the accuracy at the end: at the end and after a fifth of the training, alone and combined.

`ssl-geometry choose` has measured the scores of the runs, and of their checkpoints after a fifth of the training. Here
the accuracy is that of the finished run in both cases. A combined score is the mean rank of several scores.
"""

__all__ = ["Agreement", "agreements", "goodness"]

from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import numpy as np
import pandas as pd
from scipy.stats import kendalltau, rankdata

RESAMPLES = 1000
COMBINED = {  # name -> the scores whose ranks it averages: those whose title begins so
    "ranks of all scores": ("",),
    "ranks of effective ranks and LiDAR": ("Effective rank", "LiDAR"),
}


class Agreement(NamedTuple):
    """Kendall's tau of a score with the accuracy, and the accuracy lost by choosing with it, with 95% intervals.

    The intervals are those of a bootstrap over arms: the seeds of an arm are drawn together.
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


def goodness(models: pd.DataFrame, good: Mapping[str, str]) -> pd.DataFrame:
    """Return numbers that are higher for better models.

    Args:
        models: Scores, a row for each model.
        good: Score -> "high", "low", or the number near which values are good.
    """

    def of(title: str) -> pd.Series:
        if good[title] in ("high", "low"):
            return models[title] * (1 if good[title] == "high" else -1)
        return -(models[title] - float(good[title])).abs()

    return pd.DataFrame({title: of(title) for title in models if title in good})


def agreements(when: str, models: pd.DataFrame, good: Mapping[str, str], accuracy: pd.Series) -> Iterator[Agreement]:
    """Compare each score, and the combined ones, with the accuracy of the same models.

    Args:
        when: Name of this comparison in the table.
        models: Scores, a row for each model, which is called "<arm>, seed <n>".
        good: As in :func:`goodness`.
        accuracy: Of the finished runs, by model.
    """
    found = goodness(models, good)
    ranks = found.apply(rankdata)
    for name, begins in COMBINED.items():
        parts = [title for title in ranks if title.startswith(begins) and title != "accuracy"]
        if len(parts) > 1:
            found[name] = ranks[parts].mean(axis=1)
    truth = accuracy.loc[found.index].to_numpy()
    arm = found.index.str.replace(r", seed \d+$", "", regex=True)
    rows = [np.flatnonzero(arm == each) for each in arm.unique()]
    generator = np.random.default_rng(0)
    drawn = [np.concatenate([rows[k] for k in generator.integers(0, len(rows), len(rows))]) for _ in range(RESAMPLES)]
    for score in found:
        held = found[score].to_numpy()
        tau, regret = (_with_interval(of, held, truth, drawn) for of in (_tau, _regret))
        yield Agreement(when, score, len(held), *tau, *regret)


def _with_interval(
    of: Callable[[np.ndarray, np.ndarray], float], score: np.ndarray, truth: np.ndarray, drawn: list[np.ndarray]
) -> tuple[float, float, float]:
    low, high = np.nanpercentile([of(score[rows], truth[rows]) for rows in drawn], [2.5, 97.5])
    return of(score, truth), float(low), float(high)


def _tau(score: np.ndarray, truth: np.ndarray) -> float:
    return float(kendalltau(score, truth).statistic)


def _regret(score: np.ndarray, truth: np.ndarray) -> float:
    return float(truth.max() - truth[score == score.max()].mean())
