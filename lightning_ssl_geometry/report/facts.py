"""The line under a page's title: model, data, length and date of a run."""

__all__ = ["different_data", "facts", "lengths", "shared_facts", "weights"]

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from lightning_ssl_geometry.report.files import plain
from lightning_ssl_geometry.report.groups import Group
from lightning_ssl_geometry.report.logs import Readouts, Series
from lightning_ssl_geometry.report.numbers import duration, moment, seconds_between
from lightning_ssl_geometry.report.run import Run


@dataclass(frozen=True)
class Lengths:
    """How many runs each group has, and how long they were trained."""

    said: Sequence[str]  # such as "3 seeds, 20 epochs"; "" for a single diagnosis
    differ: bool  # the groups were trained for different numbers of epochs or steps


def facts(run: Run) -> list[str]:
    """Return the model, the data, the length and the date of a run, as short texts."""
    return [fact for fact in (_diagnosed(run) if run.is_diagnosis else _trained(run)) if fact]


def weights(run: Run, short: bool = False) -> str:
    """Return where the weights of a diagnosed network come from. With `short`, folders are omitted."""
    if checkpoint := run.info.get("checkpoint"):
        return f"weights from {Path(str(checkpoint)).name if short else checkpoint}"
    kind = run.info.get("weights")
    return f"{kind} weights" if kind else "" if short else "no checkpoint recorded"


def shared_facts(runs: Sequence[Run]) -> list[str]:
    """Return the data and the number of samples as two texts. A text is left out if it differs between the runs."""
    data, samples = ({find(run) for run in runs} for find in (_data, _samples))
    return [fact for each in (data, samples) if len(each) == 1 for fact in each if fact]


def lengths(groups: Sequence[Group]) -> Lengths:
    """Return how many runs each group has, and how long they were trained.

    Steps are named where no epoch was finished, or where the runs' epochs differ in length.
    """
    found = [[_epochs_and_steps(run) for run in group.runs if not run.is_diagnosis] for group in groups]
    by_steps = len({steps / epochs if epochs else 0 for each in found for epochs, steps in each}) > 1
    said = []
    for group, each in zip(groups, found, strict=True):
        epochs, steps = ([length[place] for length in each] for place in (0, 1))
        parts = [_runs(group), _span(epochs, "epochs"), _span(steps, "steps") if by_steps or not any(epochs) else ""]
        said.append(", ".join(filter(None, parts)))
    return Lengths(said, differ=len({tuple(sorted(set(each))) for each in found if each}) > 1)


def different_data(runs: Sequence[tuple[Group, Run]]) -> str:
    """Return a sentence on which run used which data, or "" if all used the same."""
    seen: dict[str, dict[str, None]] = {}
    for group, run in runs:
        named = group.name if len(group.runs) == 1 else f"{group.name}, {run.name}"
        seen.setdefault(_data(run) or "data that were not recorded", {})[plain(named, 40)] = None
    listed = "; ".join(f"{' and '.join(names)} on {plain(data, 200)}" for data, names in seen.items())
    return f"On different data: {listed}." if len(seen) > 1 else ""


def _epochs_and_steps(run: Run) -> tuple[int, int]:
    held = [run.info.get(unit) for unit in ("epochs", "steps")]
    if run.info.get("status") == "finished" and all(isinstance(value, int) for value in held):
        return held[0], held[1]  # type: ignore[return-value]
    logs: list[Series | Readouts] = [*run.scalars.values(), *run.arrays.values()]
    done = max((float(log.done.max(initial=0)) for log in logs), default=0.0)
    return round(done / run.steps_per_epoch) if run.steps_per_epoch else 0, round(done)


def _runs(group: Group) -> str:
    seeds = {seed for run in group.runs if isinstance(seed := run.info.get("seed"), int)}
    count = len(group.runs)
    return f"{count} {'seeds' if len(seeds) == count else 'runs'}" if count > 1 else ""


def _span(values: Sequence[int], unit: str) -> str:
    low, high = min(values, default=0), max(values, default=0)
    if not high:
        return ""
    return f"{low:,} to {high:,} {unit}" if low < high else f"{high:,} {unit.removesuffix('s') if high == 1 else unit}"


def _trained(run: Run) -> list[str]:
    info = run.info
    said = [" on ".join(str(info[key]) for key in ("model", "data") if info.get(key))]
    said += [_amount(run, key) for key in ("epochs", "steps", "parameters")]
    said += [_seed(run), f"started {moment(info['started'])}" if info.get("started") else ""]
    return [*said, _took(run), _resumed(run)]


def _took(run: Run) -> str:
    known_parts = run.info.get("parts") or ([] if run.resumed else [run.info])  # an old record knows the last part
    parts = known_parts if isinstance(known_parts, list) else []
    try:
        spans = [seconds_between(part.get("started"), part.get("ended")) for part in parts]
    except (TypeError, AttributeError):  # not as this package wrote it
        return ""
    if not spans or spans[-1] is None:  # it still runs
        return ""
    known = [span for span in spans if span is not None]
    return f"took {'' if len(known) == len(spans) else 'more than '}{duration(sum(known))}"


def _resumed(run: Run) -> str:
    parts = run.info.get("parts")  # of all folders; the resumptions are those of the last folder
    times = len(parts) - 1 if isinstance(parts, list) else len(run.resumed)
    return {0: "", 1: "resumed once", 2: "resumed twice"}.get(times, f"resumed {times} times")


def _diagnosed(run: Run) -> list[str]:
    said = [weights(run), _data(run), _samples(run), _amount(run, "parameters"), _seed(run)]
    return [*said, f"on {moment(run.info['started'])}" if run.info.get("started") else ""]


def _seed(run: Run) -> str:
    return f"seed {run.info['seed']}" if run.info.get("seed") is not None else ""


def _data(run: Run) -> str:
    return " from ".join(str(run.info[key]) for key in ("data", "data_path") if run.info.get(key))


def _samples(run: Run) -> str:
    return _amount(run, "samples")


def _amount(run: Run, unit: str) -> str:
    if (value := run.info.get(unit)) is None:
        return ""
    text = f"{value:,}" if isinstance(value, int) and not isinstance(value, bool) else str(value)
    return f"{text} {unit.removesuffix('s') if value == 1 else unit}"
