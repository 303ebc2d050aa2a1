"""Errors of configuration files that are no YAML, or whose YAML is no mapping or holds a key twice."""

__all__ = ["of_file"]

from collections.abc import Iterator
from pathlib import Path

import yaml

from lightning_ssl_geometry.cli_messages import one_line

_MOST = 100_000  # values; aliases of aliases can hold billions in a few lines


def of_file(name: str) -> str | None:
    """Return one line about what is wrong with a configuration file and where, or None.

    A file that does not exist is not an error here: the parser reports it.
    """
    path = Path(name)
    try:
        if not path.is_file():
            return None
        text = path.read_bytes().decode("utf-8-sig")
        root = yaml.compose(text, Loader=yaml.SafeLoader)
        if not isinstance(root, yaml.MappingNode) or [each.value for _, each in root.value] in ([], [""]):
            return f"{name}: Expected a mapping with keys such as `model` and `data`, but got {_kind(root)}."
        if _size(root, {}) > _MOST:
            return f"{name}: Expected at most {_MOST} values, but its aliases stand for more."
        for key, first in _twice(root, set()):
            return (
                f"{name}, line {key.start_mark.line + 1}: Expected each key once, but `{key.value}` is also in line "
                f"{first.start_mark.line + 1}."
            )
        yaml.safe_load(text)
    except UnicodeDecodeError as error:
        return f"{name}: Expected a text file in UTF-8, but byte {error.start} is none of it."
    except RecursionError:
        return f"{name}: Expected a YAML file, but its values are nested too deeply."
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        where = f", line {mark.line + 1}, column {mark.column + 1}" if mark else ""
        problem = one_line(error.problem or str(error)).removeprefix("but ")
        return f"{name}{where}: Expected a YAML file, but {problem}."
    except (yaml.YAMLError, OSError, ValueError) as error:
        return f"{name}: Expected a YAML file, but {one_line(str(error))}."
    return None


def _kind(node: yaml.Node | None) -> str:
    if isinstance(node, yaml.ScalarNode):
        return f"`{one_line(str(node.value), 40)}`"
    return "a list" if isinstance(node, yaml.SequenceNode) else "no values"


def _inner(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.MappingNode):
        return [value for _, value in node.value]
    return node.value if isinstance(node, yaml.SequenceNode) else []


def _size(node: yaml.Node, known: dict[int, int]) -> int:
    """Count the values in a node. One that holds itself has more than any number."""
    if id(node) not in known:
        known[id(node)] = _MOST + 1  # until it is counted
        known[id(node)] = min(_MOST + 1, 1 + sum(_size(each, known) for each in _inner(node)))
    return known[id(node)]


def _twice(node: yaml.Node | None, seen: set[int]) -> Iterator[tuple[yaml.ScalarNode, yaml.ScalarNode]]:
    """Yield each key that its mapping holds twice, with the first one of this name."""
    if node is None or id(node) in seen:
        return
    seen.add(id(node))
    firsts: dict[tuple[str, str], yaml.ScalarNode] = {}
    for key, _ in node.value if isinstance(node, yaml.MappingNode) else []:
        if isinstance(key, yaml.ScalarNode) and firsts.setdefault((key.tag, key.value), key) is not key:
            yield key, firsts[key.tag, key.value]
    for each in _inner(node):
        yield from _twice(each, seen)
