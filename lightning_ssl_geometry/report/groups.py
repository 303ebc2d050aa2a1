"""Groups of runs, with the mean and standard deviation over the runs of a group."""

__all__ = ["GROUP_COLORS", "Average", "Group", "average", "notes_on_time", "read_groups"]

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.run import Run, read_run

GROUP_COLORS = ("blue", "orange", "green", "violet", "red", "ink")  # in this order, over and over


@dataclass(frozen=True)
class Group:
    """Runs that differ only in their random numbers, for example in the seed. `color` is a key of `plots.COLORS`."""

    name: str
    color: str
    runs: tuple[Run, ...]


@dataclass(frozen=True)
class Average:
    """A scalar or array over training, averaged over the runs of a group."""

    name: str  # as logged by the first run, with its stage
    epoch: Floats  # (R,), of the first run, as are `step`, `done` and `time`
    step: Floats  # empty where the runs share no moment
    done: Floats  # optimizer steps done
    time: Floats  # `Run.time`
    mean: Floats  # (R,) or (R, K), over runs; not finite where a run is not
    std: Floats | None  # in the shape of `mean`, with ddof = 1; None for one run
    runs: int  # how many runs have the log
    of: int  # how many runs the group has

    @property
    def spread(self) -> Floats:
        """The standard deviation over runs, or NaN for a single run."""
        return np.full(self.mean.shape, np.nan) if self.std is None else self.std

    def when(self, by_epochs: bool) -> Floats:
        """Return the time axis (R,), in epochs or in optimizer steps."""
        return self.time if by_epochs else self.done


def read_groups(groups: Mapping[str, Sequence[str | Path]]) -> list[Group]:
    """Read the runs of each group. Raise a ValueError if a group has both trained and only diagnosed models."""
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
        looked, trained = ([run.name for run in group.runs if run.is_diagnosis is kind] for kind in (True, False))
        if looked and trained:
            raise ValueError(
                f"Expected `groups[{group.name!r}]` to hold either runs that were trained or diagnoses, which have no "
                f"mean in common, but {', '.join(trained)} {'was' if len(trained) == 1 else 'were'} trained and "
                f"{', '.join(looked)} {'is a diagnosis' if len(looked) == 1 else 'are diagnoses'}."
            )
    return found


def average(group: Group, find: Callable[[Run], Series | Readouts | None], by_epochs: bool = True) -> Average | None:
    """Average the logs that `find` returns for the runs of a group. Return None if no run has a log.

    Only times that all runs share are used, unless each run has one value. Times are in optimizer steps. If the runs'
    epochs differ in length and `by_epochs` is true, times are in epochs. A run is left out if its arrays do not have
    the length of the first run's arrays.
    """
    found = [(run, item) for run in group.runs if (item := find(run)) is not None]
    found = [(run, item) for run, item in found if _values(item).shape[1:] == _values(found[0][1]).shape[1:]]
    if not found:
        return None
    moments = _shared_times(found, by_epochs)
    if all(len(each) == 1 for each in moments):  # measured once in each run, such as a test at its end
        moments = [moments[0]] * len(moments)
    shared = reduce(np.intersect1d, moments)
    held = [np.isin(each, shared) for each in moments]
    stacked = np.stack([_values(item)[kept] for (_, item), kept in zip(found, held, strict=True)])  # (runs, R, ...)
    (run, first), kept = found[0], held[0]
    with np.errstate(invalid="ignore", over="ignore"):
        std = stacked.std(0, ddof=1) if len(found) > 1 else None
        mean = stacked.mean(0) if len(found) > 1 else stacked[0]
    when = (first.epoch[kept], first.step[kept], first.done[kept], run.time(first)[kept])
    return Average(first.name, *when, mean=mean, std=std, runs=len(found), of=len(group.runs))


def notes_on_time(groups: Iterable[Group], by_epochs: bool) -> list[str]:
    """Return sentences on groups whose runs have epochs of different lengths, for a time axis in epochs or in steps."""
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


def _shared_times(found: Sequence[tuple[Run, Series | Readouts]], by_epochs: bool) -> list[Floats]:
    if by_epochs and not _of_one_pace([run for run, _ in found]):
        return [np.round(run.time(item), 6) for run, item in found]
    return [item.done for _, item in found]


def _of_one_pace(runs: Sequence[Run]) -> bool:
    paces = {run.steps_per_epoch for run in runs}
    if len(paces) == 1 or None in paces:
        return True
    # the paces are estimates: compare the epochs that the runs logged at the same steps
    first, *others = (_epochs(run) for run in runs)
    shared = [first.keys() & other.keys() for other in others]
    later = all(any(first[done] >= 1 for done in each) for each in shared)  # in the first epoch all agree
    return later and all(
        first[done] == other[done] for other, each in zip(others, shared, strict=True) for done in each
    )


def _epochs(run: Run) -> dict[float, float]:
    logs: list[Series | Readouts] = [*run.scalars.values(), *run.arrays.values()]
    return {
        float(done): float(epoch)
        for log in logs
        for done, epoch in zip(log.done, log.epoch, strict=True)
        if done > 0 and np.isfinite(epoch)
    }


def _values(item: Series | Readouts) -> Floats:
    return item.value if isinstance(item, Series) else item.values
