"""Groups of runs, and what they have in common: means and standard deviations over the runs of a group."""

__all__ = [
    "GROUP_COLORS",
    "Average",
    "Group",
    "average",
    "average_array",
    "average_scalar",
    "read_groups",
    "shared_stage",
]

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.array_panels import known_arrays, resolved
from lightning_ssl_geometry.report.glossary import ENTRIES, split
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.panel import natural_order
from lightning_ssl_geometry.report.run import Run, read_run
from lightning_ssl_geometry.report.scalar_panels import matching

GROUP_COLORS = ("blue", "orange", "green", "violet", "red", "ink")  # in this order, over and over
_STAGES = ("probe", "val", "train", "test", "")


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
    """A quantity of a group, at the steps that all its runs have.

    Attributes:
        name: As logged, with its stage.
        step: (R,), as logged; empty where the runs share none.
        time: (R,), see `Run.time`.
        mean: (R,) or (R, K), over runs; not finite where a run is not.
        std: As `mean`, with ddof = 1; None for one run.
        runs: How many runs have the quantity.
        of: How many the group has.
    """

    name: str
    step: Floats
    time: Floats
    mean: Floats
    std: Floats | None
    runs: int
    of: int


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


def shared_stage(groups: Sequence[Group], keys: Sequence[str]) -> str | None:
    """Choose the stage that most groups have one of these scalars or arrays for: probe before val, train and test."""
    has = {stage: sum(any(_has(run, keys, stage) for run in group.runs) for group in groups) for stage in _STAGES}
    best = max(_STAGES, key=lambda stage: has[stage])  # the first of equals
    return best if has[best] else None


def average_scalar(group: Group, key: str, stage: str) -> Average | None:
    """Average a scalar that the glossary knows, of a projector's layers the last.

    Returns:
        As :func:`average`; a run without a finite value does not have it.
    """
    return average(group, lambda run: _scalar(run, key, stage))


def average_array(group: Group, key: str, stage: str, log: bool = False, name: str = "") -> Average | None:
    """Average an array that the glossary knows, without readouts in which nothing is finite.

    Args:
        group: The runs.
        key: A glossary entry.
        stage: Its data.
        log: Average natural logarithms of singular values, logged as such or not; -inf where they are rounding.
        name: Where an entry has several arrays, the one.

    Returns:
        As :func:`average`.
    """
    return average(group, lambda run: _array(run, key, stage, log, name))


def _has(run: Run, keys: Sequence[str], stage: str) -> bool:
    return any(_scalar(run, key, stage) or _array(run, key, stage, False, "") for key in keys)


def _scalar(run: Run, key: str, stage: str) -> Series | None:
    found = [s for s in matching(run, ENTRIES[key]) if split(s.name)[0] == stage and s.drawable]
    return max(found, key=lambda series: natural_order(split(series.name)[1])) if found else None


def _array(run: Run, key: str, stage: str, log: bool, name: str) -> Readouts | None:
    found = [array for array in known_arrays(run, key, every=True) if split(array.name)[0] == stage]
    found = [array for array in found if not name or split(array.name)[1] == name]
    if not found:
        return None
    array = max(found, key=lambda each: natural_order(split(each.name)[1]))
    kept = np.isfinite(array.values).any(1)
    values = array.values[kept]
    if log:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            sigma = np.exp(values) if split(array.name)[1].startswith("log_") else values
            values = np.log(resolved(sigma))
    return Readouts(array.name, array.epoch[kept], array.step[kept], values) if len(values) else None


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
    time = run.time(first)[np.isin(first.step, step)]
    with np.errstate(invalid="ignore", over="ignore"):
        std = stacked.std(0, ddof=1) if len(found) > 1 else None
        return Average(first.name, step, time, stacked.mean(0), std, len(found), len(group.runs))


def _values(item: Series | Readouts) -> Floats:
    return item.value if isinstance(item, Series) else item.values
