"""Compute diagnostics on all ranks together, even if some ranks have no data."""

__all__ = ["Readout", "Rows", "Seen"]

from collections.abc import Mapping
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.diagnostics.diagnostic import vectors
from lightning_ssl_geometry.diagnostics.shared_work import shared_work
from lightning_ssl_geometry.diagnostics.undefined import why_undefined
from lightning_ssl_geometry.measuring.failures import Failures
from lightning_ssl_geometry.observe.feed import by_key
from lightning_ssl_geometry.observe.moment import Moment


class Seen(NamedTuple):
    """Number of samples, and number of views. Both are 0 if there are no samples."""

    samples: int
    views: int


class Rows(NamedTuple):
    """What a readout saw, on one rank or on all. All numbers are 0 if there are no samples.

    Attributes:
        samples: Number of samples.
        views: Number of views in h, or in z if there is no h.
        views_z: Number of views in z, or 0 if there is no z. Methods on fibers have two in z, and often one in h.
    """

    samples: int = 0
    views: int = 0
    views_z: int = 0


class Readout:
    """Computes the diagnostics of a callback on all ranks together, and resets them.

    All ranks must call this object in the same order, even ranks without data. Ranks with data compute a result
    together, and the other ranks receive it. If a diagnostic failed on any rank, its result is NaN on all ranks.

    Args:
        title: Name of the callback in messages.
        failures: The failures of diagnostics on this rank.
    """

    def __init__(self, title: str, failures: Failures) -> None:
        self.title = title
        self.failures = failures
        self._keys: dict[tuple[str, str], list[str]] = {}
        self._groups: dict[tuple[int, ...], Any] = {}
        self._reasons: dict[tuple[str, str], dict[str, None]] = {}

    def restart(self) -> None:
        """Forget the process groups and the reasons for NaN before the next run."""
        self._groups, self._reasons = {}, {}

    def reasons(self, stage: str, name: str) -> tuple[str, ...]:
        """Return why results of a diagnostic were NaN in this run."""
        return tuple(self._reasons.get((stage, name), {}))

    def knows(self, stage: str, name: str) -> bool:
        """Whether a diagnostic has had results."""
        return (stage, name) in self._keys

    @shared_work()
    def __call__(
        self, metrics: Mapping[str, Metric], stage: str, moment: Moment, *, seen: Rows, device: torch.device
    ) -> tuple[dict[str, dict[str, Tensor]], Rows, int]:
        """Return the results, what all ranks saw, and the first rank that has samples.

        The results are a dict name -> key -> value. `seen` is what this rank saw. The ranks exchange tensors on
        `device`. If no rank has samples, the rank is 0.
        """
        status = torch.tensor(
            [[int(metric.update_called), int(self.failures.failed(stage, name)), 0] for name, metric in metrics.items()]
            + [list(seen)],
            device=device,
        )
        ranks = distributed.gather(status[None]).cpu()  # (R, K + 1, 3), so that no rank waits for one without data
        found: dict[str, dict[str, Tensor]] = {}
        for place, (name, metric) in enumerate(metrics.items()):
            saw, failed, _ = ranks[:, place].bool().unbind(1)
            with self.failures.caught(moment, self.title, stage, diagnostic=name):
                found[name] = self._result(
                    name, metric, stage, saw=saw.tolist(), failed=bool(failed.any()), device=device
                )
            found.setdefault(name, self._nan(name, stage))
            if any(value.isnan().any() for value in found[name].values()):
                told = (
                    [self.failures.reason(stage, name)] if self.failures.failed(stage, name) else why_undefined(metric)
                )
                self._reasons.setdefault((stage, name), {}).update(dict.fromkeys(filter(None, told)))
            metric.reset()
        self._agree(found, stage, device)
        samples, *views = ranks[:, -1].unbind(1)  # (R,) each
        return found, Rows(int(samples.sum()), *(int(each.max()) for each in views)), int((samples > 0).int().argmax())

    def _result(
        self, name: str, metric: Metric, stage: str, *, saw: list[bool], failed: bool, device: torch.device
    ) -> dict[str, Tensor]:
        if failed:
            if not self.failures.failed(stage, name):
                self.failures.elsewhere(f"{self.title}, diagnostic {name!r}, stage {stage!r}: failed on another rank.")
            return self._nan(name, stage)
        if not any(saw):  # the epoch was resumed after its last observed step
            return {}
        result = _with_vectors(metric, by_key(_computed(metric, saw, device, group=self._group(saw))))
        if not result:
            return self._nan(name, stage)
        self._keys[stage, name] = [key for key, value in result.items() if value.ndim == 0]
        return result

    def _agree(self, found: dict[str, dict[str, Tensor]], stage: str, device: torch.device) -> None:
        lost = torch.tensor([[self.failures.failed(stage, name) for name in found]], dtype=torch.int64, device=device)
        for name, anywhere in zip(found, distributed.gather(lost).any(0).tolist(), strict=True):
            if anywhere:
                found[name] = self._nan(name, stage)
                if not self.failures.failed(stage, name):
                    self.failures.elsewhere(f"{self.title}, diagnostic {name!r}, stage {stage!r}: another rank failed.")

    def _nan(self, name: str, stage: str) -> dict[str, Tensor]:
        return {key: torch.tensor(torch.nan) for key in self._keys.get((stage, name), [""])}

    def _group(self, saw: list[bool]) -> Any:
        members = tuple(rank for rank, each in enumerate(saw) if each)
        if len(members) == len(saw):
            return None
        if members not in self._groups:
            self._groups[members] = distributed.subgroup(members)
        return self._groups[members]


def _with_vectors(metric: Metric, result: dict[str, Tensor]) -> dict[str, Tensor]:
    # torchmetrics makes a scalar of a vector of one value, such as the ranks of the classes if there is one class
    known = vectors(metric)
    return {key: value.reshape(1) if key in known and not value.ndim else value for key, value in result.items()}


def _computed(metric: Metric, saw: list[bool], device: torch.device, group: Any) -> Any:
    if group is None:
        return metric.compute()
    whole, metric.process_group = metric.process_group, group
    result, error = None, ""
    try:
        result = metric.compute() if saw[distributed.rank()] else None
    except Exception as failure:  # told below to the ranks that wait for the result
        error = f"{type(failure).__name__}: {failure}"
    finally:
        metric.process_group = whole
    result, error = distributed.broadcast((result, error), source=saw.index(True))
    if error:
        raise RuntimeError(error)
    return _to(result, device)


def _to(result: Any, device: torch.device) -> Any:
    if isinstance(result, dict):
        return {key: value.to(device) for key, value in result.items()}
    return result.to(device)
