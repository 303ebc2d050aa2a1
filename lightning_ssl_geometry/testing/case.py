"""One diagnostic with its observation, as the contracts of `check_diagnostic` get it."""

__all__ = ["Case", "Results", "by_key", "computed"]

import copy
import inspect
import warnings
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.testing.growth import Growth, measured
from lightning_ssl_geometry.testing.observation import Observation, Sampled, named_in_update

Results = dict[str, Tensor]


class Case:
    """A Metric that stays empty, with its observation. See `check_diagnostic` for the arguments.

    Attributes:
        name: The name of the Metric's class.
        metric: The Metric.
        sampled: The observation, without what `update` does not take.
        is_given_all: Whether the observation has each argument of `update`, also those that have a default.
    """

    def __init__(
        self,
        metric: Metric,
        observation: Observation,
        axes: Mapping[str, int | None] | None,
        sized: Callable[[int, int], Observation] | None = None,
    ) -> None:
        if not isinstance(metric, Metric):
            raise ValueError(f"Expected `metric` to be a torchmetrics.Metric, but got {metric!r}.")
        if metric.device.type == "meta":
            raise ValueError('Expected `metric` on a device with memory, but got one on the device "meta".')
        if metric.update_called:
            raise ValueError("Expected `metric` to have observed nothing yet, but its `update` was called.")
        parameters = inspect.signature(metric.update).parameters
        self.name, self.metric = type(metric).__name__, metric
        needed = named_in_update(metric, observation, axes)
        wanted = [name for name in parameters if name in observation]
        if missing := sorted(needed.difference(wanted)):
            raise ValueError(
                f"Expected `observation` with {sorted(needed)}, which `{self.name}.update` needs, but it lacks "
                f"{missing}."
            )
        self._wanted, self._axes, self._sized = wanted, axes or {}, sized
        self.is_given_all = all(name in observation or name == "index" for name in parameters)
        self.sampled = self._of(observation)
        if self.sampled.has_samples and self.sampled.count < 8:
            raise ValueError(f"Expected `observation` with at least 8 samples, but got {self.sampled.count}.")
        if "index" in parameters and "index" not in wanted:
            self.sampled.values["index"] = torch.arange(self.sampled.count)
        self._given = copy.deepcopy(self.sampled)

    def _of(self, observation: Observation) -> Sampled:
        used = {name: observation[name] for name in self._wanted}
        return Sampled(used, {name: axis for name, axis in self._axes.items() if name in used})

    @cached_property
    def growth(self) -> Growth:
        """How the work and the memory grow, measured once for all contracts."""
        if self._sized is None:
            return measured(self.fresh, self.sampled.resized, widths=self.sampled.has_free_width)
        made = self._sized
        return measured(self.fresh, lambda rows, width: self._of(made(rows, width)), widths=True)

    def begin(self) -> None:
        """Compute once, without any contract."""
        self.value()

    def renew(self) -> None:
        """Undo what an earlier contract did to the networks and tensors of the observation."""
        self.sampled = copy.deepcopy(self._given)

    def fresh(self) -> Metric:
        """Return a copy of the Metric."""
        return copy.deepcopy(self.metric)

    def at_once(self) -> list[Tensor]:
        """Return the positions of all samples as one batch."""
        return [torch.arange(self.sampled.count)]

    def batches(self) -> list[Tensor]:
        """Return three batches, of which the last has one sample."""
        n = self.sampled.count
        return list(torch.arange(n).split([n // 2, n - n // 2 - 1, 1])) if n else self.at_once()

    def shuffled(self) -> Tensor:
        """Return the positions of all samples in another order."""
        return torch.randperm(self.sampled.count, generator=torch.Generator().manual_seed(0))

    def fed(self, metric: Metric, parts: Sequence[Tensor]) -> Metric:
        """Update `metric` with the samples at the positions in each of `parts`."""
        for part in parts:
            metric.update(**self.sampled.rows(part))
        return metric

    def value(self, parts: Sequence[Tensor] | None = None) -> Results:
        """Return the results for batches at the positions in `parts`. None: all samples at once."""
        return computed(self.fed(self.fresh(), self.at_once() if parts is None else parts))

    def of(self, values: Mapping[str, Any]) -> Results:
        """Return the results for the values of one update."""
        metric = self.fresh()
        metric.update(**values)
        return computed(metric)


def computed(metric: Metric) -> Results:
    """Return what `compute` returns, by key, without warnings."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return by_key(metric.compute())


def by_key(found: Any) -> Results:
    """Return the results of a Metric as a dict. The key of a single result is ""."""
    results = found if isinstance(found, Mapping) else {"": found}
    return {key: torch.as_tensor(value) for key, value in results.items()}
