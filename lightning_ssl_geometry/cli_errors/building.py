"""Find the setting with which an object of a configuration cannot be built."""

__all__ = ["BAD_VALUES", "culprit", "explained", "optimizer_error"]

import inspect
import re
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import torch
from jsonargparse import Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import nn
from torch.optim.lr_scheduler import LRScheduler

from lightning_ssl_geometry.cli_errors.config import Node, imported, is_class, items, named_argument, nodes
from lightning_ssl_geometry.cli_messages import one_line

BAD_VALUES = (
    ValueError,
    TypeError,
    RuntimeError,
    OverflowError,
    MemoryError,
    OSError,
    ImportError,
    MisconfigurationException,
)
_LATE = (torch.optim.Optimizer, LRScheduler)


class _Failed(Exception):
    def __init__(self, node: Node, cause: Exception) -> None:
        self.node, self.cause = node, cause


def culprit(config: Mapping[str, Any] | Namespace) -> tuple[str, Exception] | None:
    """Build a configuration's objects one by one. Return the key and the error of the first failure, or None."""
    try:
        for key, value in items(config):
            _build(value, str(key))
    except _Failed as failed:
        return _key(failed.node, failed.cause), failed.cause
    return None


def optimizer_error(config: Mapping[str, Any] | Namespace) -> tuple[str, Exception] | None:
    """Build each optimizer and scheduler of a configuration. Return key and error of the first failure, or None.

    They are built with one parameter that belongs to no model.
    """
    for node in nodes(config, ""):
        if isinstance(node.made, type) and issubclass(node.made, _LATE):
            try:
                _try_late(node.made, node.arguments)
            except BAD_VALUES as error:
                if name := _decisive(node):  # without a name, the made-up parameter may be the reason
                    return f"{node.path}.init_args.{name}", error
    return None


def explained(config: Mapping[str, Any] | Namespace, key: str, error: Exception) -> str:
    """Return an error message about the setting `key`."""
    said = one_line(str(error))
    if isinstance(error, ImportError) and (named := error.name or "".join(re.findall(r"`([\w-]+)`", said)[:1])):
        return f"Expected the package `{named}` to be installed, but it is not: pip install {named}"
    if said.startswith("Expected "):
        return said
    value: Any = config
    owner, name = key.partition(".")[0], key.rpartition(".")[2]
    for part in key.split("."):
        held = dict(items(value))
        owner = str(held.get("class_path", owner))
        value = held.get(int(part) if isinstance(value, list | tuple) else part)
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if is_class(value) or items(value):
        return f"Expected arguments that {dict(items(value)).get('class_path', owner)} accepts, but got {reason}"
    return f"Expected `{name}` that {owner} accepts, but got {value!r} ({reason})"


def _build(value: Any, path: str) -> Any:
    if not is_class(value):
        inner = [(key, _build(each, f"{path}.{key}")) for key, each in items(value)]
        if isinstance(value, list | tuple):
            return [each for _, each in inner]
        return dict(inner) if isinstance(value, Namespace | Mapping) else value
    held = dict(items(value))
    arguments = {key: _build(each, f"{path}.init_args.{key}") for key, each in items(held.get("init_args"))}
    node = Node(path, imported(held["class_path"]), arguments | dict(items(held.get("dict_kwargs"))))
    if _lacks(node.made, node.arguments):
        return partial(node.made, **node.arguments)
    try:
        return node.made(**node.arguments)
    except BAD_VALUES as error:
        raise _Failed(node, error) from error


def _lacks(made: Callable[..., Any], arguments: Mapping[str, Any]) -> bool:
    if isinstance(made, type) and issubclass(made, _LATE):
        return True
    try:
        inspect.signature(made).bind(**arguments)
    except TypeError:
        return True
    except ValueError:  # it has no signature: it is written in C
        return False
    return False


def _try_late(made: Any, arguments: Mapping[str, Any]) -> None:
    parameters = [nn.Parameter(torch.zeros(1, 1))]
    if issubclass(made, torch.optim.Optimizer):
        made(parameters, **arguments)
    else:
        made(torch.optim.SGD(parameters, lr=0.1), **arguments)


def _key(node: Node, error: Exception) -> str:
    name = named_argument(node, str(error)) or _decisive(node)
    return f"{node.path}.init_args.{name}" if name else node.path


def _decisive(node: Node) -> str | None:
    for name in node.arguments:
        less = {key: value for key, value in node.arguments.items() if key != name}
        try:
            if isinstance(node.made, type) and issubclass(node.made, _LATE):
                _try_late(node.made, less)
            else:
                node.made(**less)
        except Exception:  # whatever it is, this argument alone is not the reason
            continue
        return name
    return None
