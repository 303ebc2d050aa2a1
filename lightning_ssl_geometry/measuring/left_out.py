"""Leave out the diagnostics that need more than the steps of a stage show, with one warning that names them."""

__all__ = ["leave_out"]

import copy
import warnings
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.observe.feed import feed
from lightning_ssl_geometry.types import SAMPLE_AXIS

if TYPE_CHECKING:
    from lightning_ssl_geometry.measuring.measurements import Measurements


def leave_out(
    measurements: "Measurements", stage: str, observation: Mapping[str, Any], known: Collection[str] = ()
) -> set[str]:
    """Return the names of the diagnostics of a stage that need a submodule or a view that its step does not show.

    The step may not call a submodule in `taps`, or it may show one view of each sample. A warning names the
    diagnostics. A ValueError is raised if no diagnostic of the training, or of the only stage, is left. `known` are
    diagnostics that are left out for another reason.
    """
    metrics = {name: metric for name, metric in measurements.of(stage).items() if name not in known}
    silent = measurements.observer.silent
    gone = silent.keys() | {name.partition(".")[0] for name in silent} - observation.keys()
    uncalled = [name for name in metrics if gone & measurements.needed(name, observation)]
    rest = [name for name in metrics if name not in uncalled] if _has_one_view(observation) else []
    one_view = [name for name in rest if _needs_two_views(measurements, name, observation)]
    said = [f"{measurements.owner.title}, stage {stage!r}:"]
    if uncalled:
        paths = ", ".join(map(repr, silent.values()))
        said.append(f"without {', '.join(silent)} (the step does not call {paths}), {_those(uncalled)}.")
    if one_view:
        said.append(f"With one view of each sample in the step, {_those(one_view)}.{_hint(measurements, observation)}")
    alone = stage == "train" or measurements.stages == [stage]
    if len(said) > 1 and len(uncalled + one_view) == len(metrics) and alone:
        raise ValueError(f"Expected a step that shows what the diagnostics need, but {' '.join(said[1:])}")
    if len(said) > 1:
        measurements.warn_once(" ".join(said))
    return {*uncalled, *one_view}


def _those(names: Sequence[str]) -> str:
    return f"these diagnostics are left out: {', '.join(names)}"


def _hint(measurements: "Measurements", observation: Mapping[str, Any]) -> str:
    taps = measurements.observer.taps
    if taps is None or taps.view_layout != "calls" or "label" in observation:  # labels tell the number of samples
        return ""
    return " If one call has both views, say `view_layout='halves'` or 'interleaved'."


def _has_one_view(observation: Mapping[str, Any]) -> bool:
    spaces = (observation.get(name) for name in ("h", "z"))
    return any(isinstance(each, Tensor) and each.ndim > 2 and len(each) == 1 for each in spaces)


def _needs_two_views(measurements: "Measurements", name: str, observation: Mapping[str, Any]) -> bool:
    metric = measurements.diagnostics[name]
    rename = measurements.renamed(metric, name, observation)
    twice = {key: _twice(key, value) for key, value in observation.items()}
    return _progress(metric, observation, rename) < _progress(metric, twice, rename)


def _twice(name: str, value: Any) -> Any:
    if isinstance(value, Tensor) and SAMPLE_AXIS.get(name) == 1 and len(value) == 1:
        return value.repeat(2, *[1] * (value.ndim - 1))
    return value


def _progress(metric: Metric, observation: Mapping[str, Any], rename: Mapping[str, str]) -> int:
    # how many of `update` and `compute` work: a Metric may say of either that it needs another view
    tensors = (value for value in observation.values() if isinstance(value, Tensor))
    trial = copy.deepcopy(metric).to(next(tensors).device)
    trial.distributed_available_fn = lambda: False  # this rank's batch alone
    done = 0
    with suppress(Exception), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        feed(trial, observation, rename, name="", stage="")
        done += 1
        trial.compute()
        done += 1
    return done
