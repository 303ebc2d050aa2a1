"""A diagnostic gets what the arguments of its `update` name."""

__all__ = ["check_rename", "feed", "named_results"]

import inspect
from collections.abc import Mapping
from typing import Any

from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.observe.batch_keys import class_numbers

_CLASSES = ("label", "coarse_label")


def feed(metric: Metric, observation: Mapping[str, Any], rename: Mapping[str, str], name: str, stage: str) -> None:
    """Update a diagnostic from an observation.

    Args:
        metric: Its `update` names what it observes; an argument with a default is optional.
        observation: By name.
        rename: Argument -> what it gets instead of what has its name.
        name: Of the diagnostic, for the error.
        stage: Whose step it is, for the error.

    Raises:
        ValueError: If the observation has not what the diagnostic needs, or its `label` or `coarse_label` are no class
            numbers.
    """
    wanted = {}
    for argument, parameter in inspect.signature(metric.update).parameters.items():
        what = rename.get(argument, argument)
        if what in observation:
            known = observation[what]
            wanted[argument] = class_numbers(what, known) if argument in _CLASSES and known is not None else known
        elif parameter.default is inspect.Parameter.empty:
            raise ValueError(
                f"Expected `{what}` for the diagnostic {name!r}, but the {stage} step has only "
                f"{', '.join(sorted(observation)) or 'nothing'}. Return it from the step, name it in `taps`, "
                "`batch_keys` or `rename`, or leave the diagnostic out of `diagnostics`."
            )
    metric.update(**wanted)


def check_rename(diagnostics: Mapping[str, Metric], rename: Mapping[str, Mapping[str, str]]) -> None:
    """Check that `rename` names diagnostics, and arguments of their `update`.

    Raises:
        ValueError: If it names others.
    """
    for name, arguments in rename.items():
        if name not in diagnostics:
            raise ValueError(f"Expected `rename` to name one of {sorted(diagnostics)}, but got {name!r}.")
        parameters = inspect.signature(diagnostics[name].update).parameters
        if any(parameter.kind is inspect.Parameter.VAR_KEYWORD for parameter in parameters.values()):
            continue
        if unknown := [argument for argument in arguments if argument not in parameters]:
            raise ValueError(
                f"Expected `rename` of {name!r} to name arguments of its `update`, {', '.join(parameters)}, "
                f"but got {unknown[0]!r}."
            )


def named_results(metrics: Mapping[str, Metric]) -> dict[str, Tensor]:
    """Compute and reset diagnostics that have observed something: `{name}`, or `{name}_{key}` of one with several."""
    results: dict[str, Tensor] = {}
    for name, metric in metrics.items():
        if not metric.update_called:  # an epoch that was resumed behind its last observed step
            continue
        result = metric.compute()
        results |= {f"{name}_{key}": v for key, v in result.items()} if isinstance(result, dict) else {name: result}
        metric.reset()
    return results
