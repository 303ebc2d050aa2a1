"""What a choice by InfoNCE saves, beside choices by other scores and at random, among the same runs."""

__all__ = ["HEADER", "saved"]

import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from recipe import read
from study_arms import DATA

SCORE, OTHERS = "InfoNCE", ("Effective rank (h)", "LiDAR")  # low is good, high is good
HEADER = ("points saved by InfoNCE", "runs", "than a random choice", *(f"than {other}" for other in OTHERS))
LONGEST = tuple(f"epochs {data.epochs[-1]}" for data in DATA.values())
_RESAMPLES = 2000


class Value(NamedTuple):
    """A line of study_end.csv."""

    model: str
    score: str
    value: float


def saved(file: Path, data: str) -> Iterator[list[str]]:
    """The lines of the table: the points of accuracy saved, with 95% intervals of a bootstrap over arms."""
    held: dict[str, dict[str, float]] = defaultdict(dict)
    for row in read(file, Value):
        held[row.score][row.model] = row.value
    for pool, left_out in (("all runs", ()), ("without the longest", LONGEST)):
        models = [name for name in held["accuracy"] if _arm(name) not in left_out]
        values = {score: np.array([held[score][name] for name in models]) for score in ("accuracy", SCORE, *OTHERS)}
        values[SCORE] *= -1
        arms = np.array([_arm(name) for name in models])
        runs = [np.flatnonzero(arms == arm) for arm in np.unique(arms)]
        generator = np.random.default_rng(0)
        draws = [generator.integers(len(runs), size=len(runs)) for _ in range(_RESAMPLES)]
        drawn = np.array([_saved(values, np.concatenate([runs[arm] for arm in draw])) for draw in draws])
        low, high = 100 * np.quantile(drawn, (0.025, 0.975), axis=0)
        points = 100 * _saved(values, np.arange(len(models)))
        cells = [f"{point:.1f} [{a:.1f}, {b:.1f}]" for point, a, b in zip(points, low, high, strict=True)]
        yield [f"{data}, {pool}", str(len(models)), *cells]


def _arm(model: str) -> str:
    return model.rpartition(", seed ")[0]


def _saved(values: dict[str, NDArray[np.float64]], runs: NDArray[np.int64]) -> NDArray[np.float64]:
    accuracy = values["accuracy"][runs]
    picked = {score: accuracy[values[score][runs].argmax()] for score in (SCORE, *OTHERS)}
    return picked[SCORE] - np.array([accuracy.mean(), *(picked[other] for other in OTHERS)])
