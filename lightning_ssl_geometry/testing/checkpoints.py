"""The contracts of a method on its checkpoints and copies."""

__all__ = ["checkpoint", "copies", "resumed", "resumed_within_an_epoch"]

import copy
import inspect
import pickle
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_ssl_geometry.testing.fits import MethodCase, same_weights, silent
from lightning_ssl_geometry.testing.updates import pickled

_PLAIN = (bool, int, float, str)


def resumed(case: MethodCase) -> str | None:
    """Ask that a fit that is resumed between two epochs ends with the same weights."""
    same_weights(case.resumed(0, -1).module, case.plain.module, "after a resume between two epochs")
    return None


def resumed_within_an_epoch(case: MethodCase) -> str | None:
    """Ask that a fit that is resumed within an epoch ends with the same weights."""
    steps = int(case.plain.trainer.num_training_batches)
    if steps < 2:
        return "an epoch has one batch"
    same_weights(case.resumed(1, steps // 2 - 1).module, case.plain.module, "after a resume within an epoch")
    return None


def checkpoint(case: MethodCase) -> str | None:
    """Ask that a checkpoint is read without pickle, holds all weights, and builds the module from its arguments."""
    path = case.folder / "whole.ckpt"
    with silent():
        case.plain.trainer.save_checkpoint(path)
    fresh = copy.deepcopy(case.module)
    fresh.load_state_dict(_read(path)["state_dict"])
    trained = copy.deepcopy(case.plain.module).cpu()
    same_weights(fresh.cpu(), trained, "after loading a checkpoint")
    if case.module.hparams and (networks := _networks(case)) is not None:
        same_weights(_built(case, path, networks), trained, "after `load_from_checkpoint`")
    return None


def copies(case: MethodCase) -> str | None:
    """Ask that copies by pickle and by deepcopy have the weights."""
    trained = case.plain.module
    for name, made in (("pickle", pickled(trained)), ("deepcopy", copy.deepcopy(trained))):
        same_weights(made, trained, f"in a copy by {name}")
    return None


def _read(path: Path) -> Mapping[str, Any]:
    try:
        return torch.load(path, weights_only=True, map_location="cpu")
    except pickle.UnpicklingError as error:
        held = re.search(r"GLOBAL (\S+)", str(error))
        raise AssertionError(
            f"A checkpoint cannot be read with `weights_only=True`, as it holds {held[1] if held else 'an object'}. "
            "Save tensors, numbers and text only: `save_hyperparameters(ignore=[...])` leaves out arguments."
        ) from error


def _networks(case: MethodCase) -> dict[str, Any] | None:
    """Return copies of the networks that hyper-parameters leave out, by argument, or None if one is not found."""
    found = {}
    for name, each in _arguments(case).items():
        network = getattr(case.module, name, None)
        if name in case.module.hparams:
            continue
        if isinstance(network, nn.Module):
            found[name] = copy.deepcopy(network)
        elif "Module" in str(each.annotation):
            return None
    return found


def _built(case: MethodCase, path: Path, networks: Mapping[str, Any]) -> Any:
    """Return what `load_from_checkpoint` makes. Raise an AssertionError if it fails, or if an argument is forgotten."""
    kind, arguments = type(case.module), _arguments(case)
    try:
        made = kind.load_from_checkpoint(path, map_location="cpu", **networks)
    except Exception as error:
        left = [name for name in arguments if name not in case.module.hparams and name not in networks]
        why = f" `save_hyperparameters` does not save {left}." if left else ""
        raise AssertionError(
            f"`load_from_checkpoint` does not build the module.{why} It raises {type(error).__name__}: "
            f"{' '.join(str(error).split())}"
        ) from error
    for name in arguments:
        theirs, ours = getattr(made, name, None), getattr(case.module, name, None)
        known = ours, getattr(case.plain.module, name, None)  # before and after the fit
        assert not isinstance(ours, _PLAIN) or theirs in known, (
            f"`load_from_checkpoint` builds a module with `{name}` = {theirs!r}, not {ours!r}. Save the argument by "
            "`save_hyperparameters`."
        )
    return made


def _arguments(case: MethodCase) -> dict[str, inspect.Parameter]:
    kinds = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = inspect.signature(type(case.module)).parameters
    return {name: each for name, each in found.items() if each.kind in kinds}
