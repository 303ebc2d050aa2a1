"""Groups of runs, and what they have in common: means and standard deviations over the runs of a group.

A single run is a group of one, and a mean over one run is the run.
"""

__all__ = ["GROUP_COLORS", "STAGES", "Average", "Group", "average", "read_groups", "split", "stage_order"]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.run import Run, read_run

GROUP_COLORS = ("blue", "orange", "green", "violet", "red", "ink")  # in this order, over and over
STAGES = ("train", "val", "probe", "test")


@dataclass(frozen=True)
class Group:
    """Runs that differ in chance alone, such as their seed.

    Attributes:
        name: The user's.
        color: A key of `plots.COLORS`.
        runs: At least one.
    """

    name: str
    color: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Average:
    """A log of a group, at the steps that all its runs have.

    Attributes:
        name: As logged by the first run, with its stage.
        epoch: (R,), of the first run.
        step: (R,), as logged; empty where the runs share none.
        time: (R,), see `Run.time`.
        mean: (R,) or (R, K), over runs; not finite where a run is not.
        std: As `mean`, with ddof = 1; None for one run.
        runs: How many runs have the log.
        of: How many the group has.
    """

    name: str
    epoch: Floats
    step: Floats
    time: Floats
    mean: Floats
    std: Floats | None
    runs: int
    of: int


def split(name: str) -> tuple[str, str]:
    """Split a logged name into its stage and the rest.

    >>> split("val/loss"), split("lr-SGD")
    (('val', 'loss'), ('', 'lr-SGD'))
    """
    stage, slash, rest = name.partition("/")
    return (stage, rest) if slash and stage in STAGES else ("", name)


def stage_order(stage: str) -> int:
    """Sort key: train, val, probe, test, then what has no stage."""
    return STAGES.index(stage) if stage in STAGES else len(STAGES)


def read_groups(groups: Mapping[str, Sequence[str | Path]]) -> list[Group]:
    """Read the runs of each group; see :func:`lightning_ssl_geometry.report.read_run`.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, or a folder is no run.
    """
    if not groups:
        raise ValueError("Expected `groups` with a group of runs, but got none.")
    for name, runs in groups.items():
        if isinstance(runs, str | Path) or not runs:
            raise ValueError(f"Expected `groups[{name!r}]` to be a list with a run, but got {runs!r}.")
    return [
        Group(name, GROUP_COLORS[place % len(GROUP_COLORS)], tuple(read_run(run) for run in runs))
        for place, (name, runs) in enumerate(groups.items())
    ]


def average(group: Group, find: Callable[[Run], Series | Readouts | None]) -> Average | None:
    """Average what `find` finds of each run, over the steps that all have; None if it finds nothing.

    Runs whose arrays have another length than the first one's are left out. Where the runs share no step, the result
    has none.
    """
    found = [(run, item) for run in group.runs if (item := find(run)) is not None]
    found = [(run, item) for run, item in found if _values(item).shape[1:] == _values(found[0][1]).shape[1:]]
    if not found:
        return None
    step = reduce(np.intersect1d, [item.step for _, item in found])
    stacked = np.stack([_values(item)[np.isin(item.step, step)] for _, item in found])  # (runs, R, ...)
    run, first = found[0]
    kept = np.isin(first.step, step)
    with np.errstate(invalid="ignore", over="ignore"):
        std = stacked.std(0, ddof=1) if len(found) > 1 else None
        mean = stacked.mean(0) if len(found) > 1 else stacked[0]
    return Average(first.name, first.epoch[kept], step, run.time(first)[kept], mean, std, len(found), len(group.runs))


def _values(item: Series | Readouts) -> Floats:
    return item.value if isinstance(item, Series) else item.values
