"""Groups of runs, and what they have in common: means and standard deviations over the runs of a group.

A single run is a group of one, and a mean over one run is the run.
"""

__all__ = [
    "GROUP_COLORS",
    "STAGES",
    "Average",
    "Group",
    "average",
    "notes_on_time",
    "read_groups",
    "split",
    "stage_order",
]

from collections.abc import Callable, Iterable, Mapping, Sequence
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
    """A log of a group, at the moments that all its runs have: see :func:`average`.

    Attributes:
        name: As logged by the first run, with its stage.
        epoch: (R,), of the first run.
        step: (R,), as logged by the first run; empty where the runs share no moment.
        done: (R,), optimizer steps that lie behind each value in the first run.
        time: (R,), see `Run.time`; of the first run.
        mean: (R,) or (R, K), over runs; not finite where a run is not.
        std: As `mean`, with ddof = 1; None for one run.
        runs: How many runs have the log.
        of: How many the group has.
    """

    name: str
    epoch: Floats
    step: Floats
    done: Floats
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
        ValueError: If there is no group, a group has no run, or runs that were trained beside a diagnosis of a model
            as it is, or a folder is no run.
    """
    if not groups:
        raise ValueError("Expected `groups` with a group of runs, but got none.")
    for name, runs in groups.items():
        if isinstance(runs, str | Path) or not runs:
            raise ValueError(f"Expected `groups[{name!r}]` to be a list with a run, but got {runs!r}.")
    found = [
        Group(name, GROUP_COLORS[place % len(GROUP_COLORS)], tuple(read_run(run) for run in runs))
        for place, (name, runs) in enumerate(groups.items())
    ]
    for group in found:
        _check_alike(group)
    return found


def _check_alike(group: Group) -> None:
    looked = [run.name for run in group.runs if run.is_diagnosis]
    trained = [run.name for run in group.runs if not run.is_diagnosis]
    if looked and trained:
        raise ValueError(
            f"Expected `groups[{group.name!r}]` to hold either runs that were trained or diagnoses, which have no mean "
            f"in common, but {', '.join(trained)} {'was' if len(trained) == 1 else 'were'} trained and "
            f"{', '.join(looked)} {'is a diagnosis' if len(looked) == 1 else 'are diagnoses'}."
        )


def average(group: Group, find: Callable[[Run], Series | Readouts | None], by_epochs: bool = True) -> Average | None:
    """Average what `find` finds of each run, at the moments that all have; None if it finds nothing.

    A moment is a number of optimizer steps done. Where the runs' epochs have different numbers of steps, it is a number
    of epochs, unless time is told in steps. Runs whose arrays have another length than the first one's are left out.
    Where the runs share no moment, the result has none.

    Args:
        group: Whose runs.
        find: The log of a run.
        by_epochs: Whether time may be told in epochs.
    """
    found = [(run, item) for run in group.runs if (item := find(run)) is not None]
    found = [(run, item) for run, item in found if _values(item).shape[1:] == _values(found[0][1]).shape[1:]]
    if not found:
        return None
    moments = _moments(found, by_epochs)
    shared = reduce(np.intersect1d, moments)
    held = [np.isin(each, shared) for each in moments]
    stacked = np.stack([_values(item)[kept] for (_, item), kept in zip(found, held, strict=True)])  # (runs, R, ...)
    (run, first), kept = found[0], held[0]
    with np.errstate(invalid="ignore", over="ignore"):
        std = stacked.std(0, ddof=1) if len(found) > 1 else None
        mean = stacked.mean(0) if len(found) > 1 else stacked[0]
    when = (first.epoch[kept], first.step[kept], first.done[kept], run.time(first)[kept])
    return Average(first.name, *when, mean, std, len(found), len(group.runs))


def notes_on_time(groups: Iterable[Group], by_epochs: bool) -> list[str]:
    """Say where the epochs of a group's runs have different numbers of steps, and at which moments they are averaged.

    Args:
        groups: Those of a page.
        by_epochs: Whether the page tells time in epochs.
    """
    said = []
    for group in groups:
        paces: dict[float, list[str]] = {}
        for run in group.runs:
            if run.steps_per_epoch:
                paces.setdefault(run.steps_per_epoch, []).append(run.name)
        if len(paces) > 1 and not _of_one_pace(group.runs):
            listed = ", ".join(f"{pace:g} steps in {' and '.join(runs)}" for pace, runs in paces.items())
            when = "epochs" if by_epochs else "steps"
            said.append(
                f"{group.name}: the runs' epochs differ: {listed}. Lines are means after the same number of {when}."
            )
    return said


def _moments(found: Sequence[tuple[Run, Series | Readouts]], by_epochs: bool) -> list[Floats]:
    """When the values of each run were logged, on a scale that the runs share."""
    if by_epochs and not _of_one_pace([run for run, _ in found]):
        return [np.round(run.time(item), 6) for run, item in found]
    return [item.done for _, item in found]


def _of_one_pace(runs: Sequence[Run]) -> bool:
    """Whether the runs' epochs have as many steps each, or it is not known of one of them.

    A run's pace is known only as well as what it logged tells. Where several logged after the same number of steps, the
    epochs that they were in then decide.
    """
    paces = {run.steps_per_epoch for run in runs}
    if len(paces) == 1 or None in paces:
        return True
    first, *others = (_epochs(run) for run in runs)
    shared = [first.keys() & other.keys() for other in others]
    later = all(any(first[done] >= 1 for done in each) for each in shared)  # in the first epoch all agree
    return later and all(
        first[done] == other[done] for other, each in zip(others, shared, strict=True) for done in each
    )


def _epochs(run: Run) -> dict[float, float]:
    """Steps done -> the epoch that they were logged in."""
    logs: list[Series | Readouts] = [*run.scalars.values(), *run.arrays.values()]
    return {
        float(done): float(epoch)
        for log in logs
        for done, epoch in zip(log.done, log.epoch, strict=True)
        if done > 0 and np.isfinite(epoch)
    }


def _values(item: Series | Readouts) -> Floats:
    return item.value if isinstance(item, Series) else item.values
