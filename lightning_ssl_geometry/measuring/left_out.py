"""Leave out the diagnostics that need more than the steps of a stage show, with one warning that names them."""

__all__ = ["TooWide", "leave_out", "without_pictures"]

import copy
import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.diagnostic import STATE_LIMIT, Diagnostic, TooWideError
from lightning_ssl_geometry.observe.feed import feed, shown_to
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
    of_one_view = _of_one_view(observation)
    rest = [name for name in metrics if name not in uncalled] if of_one_view else []
    one_view = [name for name in rest if _needs_two_views(measurements, name, observation)]
    said = [f"{measurements.owner.title}, stage {stage!r}:"]
    if uncalled:
        paths = ", ".join(map(repr, silent.values()))
        said.append(f"without {', '.join(silent)} (the step does not call {paths}), {_those(uncalled)}.")
    if one_view:
        where = " and ".join(of_one_view)
        said.append(f"With one view of each sample in {where}, {_those(one_view)}.{_hint(measurements, observation)}")
    alone = stage == "train" or measurements.stages == [stage]
    if len(said) > 1 and len(uncalled + one_view) == len(metrics) and alone:
        raise ValueError(f"Expected a step that shows what the diagnostics need, but {' '.join(said[1:])}")
    if len(said) > 1:
        measurements.warn_once(" ".join(said))
    return {*uncalled, *one_view}


def without_pictures(measurements: "Measurements", stage: str, observation: Mapping[str, Any]) -> set[str]:
    """Return the names of the diagnostics that show samples and that a stage has no samples to show for.

    Samples may be no images, or have no labels. In training, where the weights change, those of the standard set are
    left out, too. One warning names those that somebody asked for.
    """
    metrics = {name: metric for name, metric in measurements.of(stage).items() if isinstance(metric, Diagnostic)}
    if stage == "train":
        return {name for name, metric in metrics.items() if metric.optional}
    unseen = {name for name, metric in metrics.items() if not metric.sees(shown_to(metric, observation))}
    if asked := sorted(name for name in unseen if not metrics[name].optional):
        measurements.warn_once(
            f"{measurements.owner.title}, stage {stage!r}: {_those(asked)}. They need images (N, C, H, W), two "
            "views or labels of the samples, and the batches of this stage do not have all of these."
        )
    return unseen


class TooWide:
    """The diagnostics whose matrices (D, D) would be too large: see :class:`TooWideError`.

    Attributes:
        found: Name of a diagnostic -> D and the memory that it needs.
    """

    def __init__(self) -> None:
        self.found: dict[str, str] = {}

    @contextmanager
    def caught(self, name: str, metric: Metric) -> Iterator[None]:
        """Reset and note a diagnostic that is too wide instead of raising its error."""
        try:
            yield
        except TooWideError as error:
            self.found[name] = error.said
            metric.reset()  # it has no result

    def leave_out(self, measurements: "Measurements", left_out: set[str]) -> None:
        """Add the diagnostics to `left_out`, with one warning for all."""
        if self.found:
            left_out |= self.found.keys()
            names = ", ".join(f"{name} ({said})" for name, said in self.found.items())
            measurements.warn_once(
                f"{measurements.owner.title} leaves {names} out: their matrices (D, D) may need "
                f"{STATE_LIMIT / 2**30:.3g} GiB at most. To see them, name a narrower layer in `taps`, such as the one "
                "before the last. To observe h alone, leave z out of `taps`."
            )


def _those(names: Sequence[str]) -> str:
    return f"these diagnostics are left out: {', '.join(names)}"


def _hint(measurements: "Measurements", observation: Mapping[str, Any]) -> str:
    taps = measurements.observer.taps
    if taps is None or taps.view_layout != "calls" or "label" in observation:  # labels tell the number of samples
        return ""
    return " If one call has both views, say `view_layout='halves'` or 'interleaved'."


def _of_one_view(observation: Mapping[str, Any]) -> list[str]:
    spaces = {name: observation.get(name) for name in ("h", "z")}
    return [name for name, each in spaces.items() if isinstance(each, Tensor) and each.ndim > 2 and len(each) == 1]


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
