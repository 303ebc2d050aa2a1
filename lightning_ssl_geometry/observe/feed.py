"""Pass the tensors of a step to the `update` methods of diagnostics."""

__all__ = ["by_key", "check_rename", "feed", "result_name", "results", "shown_to", "space_in", "space_of"]

import inspect
from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.checks import class_numbers

_CLASSES = ("label", "coarse_label")
_SPACES = ("h", "z", "fibers", "h_image", "z_image")


def feed(metric: Metric, observation: Mapping[str, Any], rename: Mapping[str, str], name: str, stage: str) -> None:
    """Call `metric.update`. An argument of `update` gets the tensor of the same name in `observation`.

    `rename` maps an argument to the name of another tensor in `observation`. Arguments with a default are optional.
    Raises a ValueError if a tensor is missing or if labels are not class numbers. `name` and `stage` are for the
    message.
    """
    wanted = {}
    observation = shown_to(metric, observation)
    for argument, parameter in inspect.signature(metric.update).parameters.items():
        what = rename.get(argument, argument)
        if what in observation:
            known = observation[what]
            wanted[argument] = class_numbers(what, known) if argument in _CLASSES and known is not None else known
        elif parameter.default is inspect.Parameter.empty:
            raise ValueError(
                f"Expected `{what}` for the diagnostic {name!r}, but the {stage} step has "
                f"{'only ' + ', '.join(sorted(observation)) if observation else 'nothing to observe'}. Return it from "
                "the step, name it in `taps`, `batch_keys` or `rename`, or leave the diagnostic out of `diagnostics`."
            )
    metric.update(**wanted)


def shown_to(metric: Metric, observation: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the tensors of a step. An optional diagnostic does not see labels that are no class numbers."""
    if not getattr(metric, "optional", False):
        return observation
    return {name: value for name, value in observation.items() if name not in _CLASSES or _are_classes(value)}


def _are_classes(label: Any) -> bool:
    try:
        class_numbers("label", label)
    except ValueError:
        return False
    return True


def check_rename(diagnostics: Mapping[str, Metric], rename: Mapping[str, Mapping[str, str]]) -> None:
    """Raise a ValueError if `rename` names an unknown diagnostic, or an unknown argument of its `update`."""
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


def space_of(metric: Metric, rename: Mapping[str, str], observation: Mapping[str, Any] | None = None) -> str:
    """Return the name of the representation that a diagnostic gets, such as "h". Return "" if it gets none or several.

    `rename` maps arguments of `update` to names of tensors. If `observation` is given, only the tensors in it count.

    >>> from lightning_ssl_geometry.diagnostics import EffectiveRank
    >>> space_of(EffectiveRank(), {"h": "z"})
    'z'
    """
    arguments = inspect.signature(metric.update).parameters
    taken = {argument: rename.get(argument, argument) for argument in arguments}
    spaces = {what for argument, what in taken.items() if argument in ("h", "z") or what in _SPACES}
    seen = spaces if observation is None else spaces & observation.keys()
    return next(iter(seen)) if len(seen) == 1 else ""


def space_in(observation: Mapping[str, Any]) -> Tensor | None:
    """Return h, or else z (V, N, D), or else the output (1, N, D) of one of several towers. None: there is none.

    >>> space_in({"h.text": torch.ones(4, 3), "label": torch.arange(4)}).shape
    torch.Size([1, 4, 3])
    """
    for name in ("h", "z"):
        if isinstance(found := observation.get(name), Tensor) and found.ndim > 1:
            return found
    towers = (value for name, value in observation.items() if name.partition(".")[0] in ("h", "z"))
    return next((value[None] for value in towers if isinstance(value, Tensor)), None)


def by_key(result: Any) -> dict[str, Tensor]:
    """Return the result of a diagnostic as a dict of tensors. A result that is not a dict gets the key "".

    Raises a ValueError if a value is not a tensor or a number, or if a key cannot be part of a file name.
    """
    found = {str(key): value for key, value in result.items()} if isinstance(result, dict) else {"": result}
    for key, value in found.items():
        if not isinstance(value, Tensor | int | float):
            where = f"`{key}` of " if key else ""
            raise ValueError(f"Expected {where}`compute` to be a tensor, but got a {type(value).__name__}.")
        if not (key.isprintable() and not set("/\\") & set(key)):
            raise ValueError(f"Expected keys of `compute` without '/', '\\\\' or control characters, but got {key!r}.")
    return {key: torch.as_tensor(value) for key, value in found.items()}


def result_name(name: str, key: str) -> str:
    """Return the logged name of a result: `{name}_{key}`, or `{name}` if the key is empty."""
    return f"{name}_{key}" if key else name


def results(metrics: Mapping[str, Metric]) -> dict[str, dict[str, Tensor]]:
    """Compute and reset the diagnostics that have been updated. Returns a dict: name -> key -> result."""
    found: dict[str, dict[str, Tensor]] = {}
    for name, metric in metrics.items():
        if metric.update_called:  # false if the epoch was resumed after its last observed step
            found[name] = by_key(metric.compute())
            metric.reset()
    return found
