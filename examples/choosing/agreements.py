"""How far scores agree with the accuracy at the end: at the end and after a fifth of the training, alone and combined.

`ssl-geometry choose` has measured the scores of the runs, and of their checkpoints after a fifth of the training. Here
the accuracy is that of the finished run in both cases. A combined score is the mean rank of several scores.
"""

__all__ = ["Agreement", "agreements", "goodness", "read_scores"]

import csv
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
from scipy.stats import rankdata

from lightning_ssl_geometry.report.ranking import agreement

Scores = Mapping[str, Mapping[str, float]]  # model -> score -> value

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


def read_scores(folder: Path) -> tuple[Scores, dict[str, str]]:
    """Read the tables of `ssl-geometry choose`: the scores of each model, and which values of a score are good."""
    with (folder / "choose_models.csv").open(newline="") as file:
        rows = list(csv.DictReader(file))
    scores = {row.pop("model"): {title: float(value) for title, value in row.items()} for row in rows}
    with (folder / "choose_scores.csv").open(newline="") as file:
        return scores, {row["score"]: row["good"] for row in csv.DictReader(file)}


def goodness(models: Scores, good: Mapping[str, str]) -> dict[str, np.ndarray]:
    """Return numbers that are higher for better models, score -> (models,).

    Args:
        models: Model -> score -> value.
        good: Score -> "high", "low", or the number near which values are good.
    """
    found = {}
    for title, best in good.items():
        values = np.array([scores[title] for scores in models.values()])
        found[title] = {"high": values, "low": -values}[best] if best in ("high", "low") else -abs(values - float(best))
    return found


def agreements(
    when: str, models: Scores, good: Mapping[str, str], accuracy: Mapping[str, float]
) -> Iterator[Agreement]:
    """Compare each score, and the combined ones, with the accuracy of the same models.

    Args:
        when: Name of this comparison in the table.
        models: Model -> score -> value. A model is called "<arm>, seed <n>".
        good: As in :func:`goodness`.
        accuracy: Of the finished runs, by model.
    """
    found = goodness(models, good)
    for name, begins in COMBINED.items():
        parts = [rankdata(found[title]) for title in good if title.startswith(begins) and title != "accuracy"]
        if len(parts) > 1:
            found[name] = np.mean(parts, axis=0)
    truth = np.array([accuracy[name] for name in models])
    arms = [name.rpartition(", seed ")[0] for name in models]
    cluster = np.array([sorted(set(arms)).index(arm) for arm in arms])
    for score, values in found.items():
        held = agreement(values, truth[:, None], cluster=cluster)
        yield Agreement(when, score, len(truth), held.tau, *held.tau_interval, held.regret, *held.regret_interval)
