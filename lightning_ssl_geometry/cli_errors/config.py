"""Walk through a configuration: its keys, and the classes that it names."""

__all__ = ["Node", "imported", "is_class", "items", "named_argument", "nodes"]

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from jsonargparse import Namespace


class Node(NamedTuple):
    """An object of a configuration: its key, its class or function, and the arguments of this."""

    path: str
    made: Callable[..., Any]
    arguments: dict[str, Any]


def items(config: Any) -> list[tuple[Any, Any]]:
    """Return the (key, value) pairs of a mapping, or (position, value) of a list. Other values have none."""
    if isinstance(config, Namespace):
        return list(vars(config).items())
    if isinstance(config, Mapping):
        return list(config.items())
    return list(enumerate(config)) if isinstance(config, list | tuple) else []


def imported(class_path: str) -> Callable[..., Any]:
    """Import a class or function by its path. Raises an error if there is none."""
    from jsonargparse._util import import_object

    return import_object(class_path)


def is_class(value: Any) -> bool:
    """Whether a value of a configuration names a class."""
    return isinstance(value, Namespace | Mapping) and isinstance(dict(items(value)).get("class_path"), str)


def nodes(value: Any, path: str) -> Iterator[Node]:
    """Yield each object that a value of a configuration names, outer ones first. `path` is the key of the value."""
    if is_class(value):
        held = dict(items(value))
        yield Node(path, imported(held["class_path"]), dict(items(held.get("init_args"))))
    for key, inner in items(value):
        yield from nodes(inner, f"{path}.{key}" if path else str(key))


def named_argument(node: Node, said: str) -> str | None:
    """Return the first argument of an object that a message names in backticks, or None."""
    for name in re.findall(r"`(\w+)`", said):
        if name in node.arguments:
            return name
    return None
