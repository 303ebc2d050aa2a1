"""Find the setting that made a command fail. The error message names this setting, as in `model.init_args.loss`."""

__all__ = [
    "at_key",
    "culprit",
    "explained",
    "in_users_code",
    "misspelt",
    "of_parser",
    "optimizer_error",
    "within_memory",
]

import inspect
import os
import re
import sysconfig
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from functools import partial
from importlib import import_module
from pathlib import Path
from traceback import walk_tb
from types import FrameType
from typing import Any, NamedTuple

import torch
from jsonargparse import ArgumentParser, Namespace
from lightning.fabric.utilities.exceptions import MisconfigurationException
from torch import Tensor, nn
from torch.optim.lr_scheduler import LRScheduler
from torch.overrides import TorchFunctionMode

from lightning_ssl_geometry.cli_messages import of_arguments, one_line
from lightning_ssl_geometry.spelling import did_you_mean, near, one_of_these

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
_NESTING = re.compile(r"""(?:- )?(?:Parser key "(?P<key>[^"]+)":|Problem with given class_path '(?P<cls>[^']+)':)\s*""")
_UNKNOWN = re.compile(r"Option '(\w+)' is not accepted")
_NO_CLASS = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NO_MODULE = re.compile(r"No module named '(?:([\w.]+)\.)?(\w+)'")
_NO_PATH = re.compile(r"Expected a dot import path string: (\w+)")
_NO_KEY = re.compile(r"does not accept option '([\w.]+)'")
_MISSPELT = (_NO_KEY, _UNKNOWN, _NO_CLASS, _NO_MODULE, _NO_PATH)
_OF_A_CLASS = ("class_path", "init_args")
_PACKAGES = {each: each for each in (__package__, "lightning", "torch", "torchmetrics", "torchvision", "timm")}
_CLASS = "Expected a class path, or a mapping with `class_path` and `init_args`, but got neither"
_NOISE = ("Does not validate against any", "Subtypes:", "Errors:")


class _Node(NamedTuple):
    path: str
    made: Callable[..., Any]
    arguments: dict[str, Any]


class _Failed(Exception):
    def __init__(self, node: _Node, cause: Exception) -> None:
        self.node, self.cause = node, cause


def culprit(config: Mapping[str, Any] | Namespace) -> tuple[str, Exception] | None:
    """Build a configuration's objects one by one. Return the key and the error of the first failure, or None."""
    try:
        for key, value in _items(config):
            _build(value, str(key))
    except _Failed as failed:
        return _key(failed.node, failed.cause), failed.cause
    return None


def optimizer_error(config: Mapping[str, Any] | Namespace) -> tuple[str, Exception] | None:
    """Build each optimizer and scheduler of a configuration. Return key and error of the first failure, or None.

    They are built with one parameter that belongs to no model.
    """
    for node in _nodes(config, ""):
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
        held = dict(_items(value))
        owner = str(held.get("class_path", owner))
        value = held.get(int(part) if isinstance(value, list | tuple) else part)
    reason = f"{type(error).__name__}: {said}" if said else type(error).__name__
    if _is_class(value) or _items(value):
        return f"Expected arguments that {dict(_items(value)).get('class_path', owner)} accepts, but got {reason}"
    return f"Expected `{name}` that {owner} accepts, but got {value!r} ({reason})"


def at_key(config: Mapping[str, Any] | Namespace, error: Exception) -> str | None:
    """Return the key of the argument that the message of `error` names, or None."""
    nodes = list(_nodes(config, ""))
    frames: list[FrameType] = [frame for frame, _ in walk_tb(error.__traceback__)]
    for frame in reversed(frames):
        kind = type(frame.f_locals.get("self"))
        for node in nodes:
            if node.made is kind and (name := _named(node, str(error))):
                return f"{node.path}.init_args.{name}"
    return None


def of_parser(
    message: str, given: Sequence[Mapping[str, Any]], *, command: str = "ssl-geometry", options: Iterable[str] = ()
) -> str:
    """Shorten an error message of jsonargparse to one key and one reason.

    Args:
        message: The message, with a line for each type that jsonargparse tried.
        given: Contents of the YAML files on the command line. They are searched for the full path of the key.
        command: The command whose help is named, such as "ssl-geometry fit".
        options: The options that the parser knows, such as "--trainer.max_epochs".
    """
    if unknown_key := _NO_KEY.search(message):
        return _of_key(unknown_key[1], command, [option.removeprefix("--") for option in options])
    for path, wrong in (each for config in reversed(given) for each in _misspelt_class_keys(config, "")):
        return f"{path}: Expected the keys `class_path` and `init_args`, but got `{wrong}`.{_of_class(wrong)}"
    chain, rest = _descend(message.splitlines())
    if not chain or not rest:
        return of_arguments(message, command, options)
    if (unknown := _UNKNOWN.search(rest)) and chain[-1] == ("cls", "torch.nn.Module"):
        where = ".".join("init_args" if kind == "cls" else part for kind, part in chain[:-1])
        return (
            f"{where}: Expected a `class_path` before the argument `{unknown[1]}`, but got none: name the class first."
        )
    if missing := _NO_CLASS.search(rest):  # without the other types that jsonargparse tried
        rest = f"{missing[0]}."
    rest += _near_class(rest)
    if chain[-1][0] == "cls":
        rest += _near(rest, chain[-1][1])
    for config in reversed(given):
        if found := next(_locate(config, chain, ""), None):
            return f"{found}: {rest}"
    return f"{'.'.join(part.rpartition('.')[2] if kind == 'cls' else part for kind, part in chain)}: {rest}"


def _near(said: str, class_path: str) -> str:
    unknown = _UNKNOWN.search(said)
    made = _imported(class_path) if unknown else None
    if unknown is None or not isinstance(made, type):
        return ""
    known = ArgumentParser(exit_on_error=False).add_class_arguments(made, fail_untyped=False)
    return _nearest(unknown[1], {name: name for name in known})


def _nearest(wrong: str, known: Mapping[str, str]) -> str:
    return one_of_these(known[each] for each in near(wrong, known, most=1))


def misspelt(message: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence with the path in `files` whose contents have the misspelt word of a message, or ""."""
    of_class = [name for name, held in files.items() if any(_misspelt_class_keys(held, ""))]
    found = next(filter(None, (each.search(message) for each in _MISSPELT)), None)
    wrong = found[found.lastindex or 0] if found else None
    parts = set(wrong.split(".")) if wrong else set()
    holds = [name for name, held in files.items() if parts and parts <= set(_words(held))]
    return "".join(f" It is in {name}." for name in (of_class or holds)[-1:])


def _words(held: Any) -> Iterator[str]:
    for key, inner in _items(held):
        yield from (str(key), *_words(inner), *(re.split(r"\W+", inner) if isinstance(inner, str) else ()))


def _of_key(wrong: str, command: str, known: Sequence[str]) -> str:
    """Return the message about a key that is none, with the first part of the key that is wrong."""
    parts = wrong.split(".")
    begun = {".".join(each.split(".")[:depth]) for each in known for depth in range(1, each.count(".") + 2)}
    right = next(
        depth for depth in range(len(parts)) if ".".join(parts[: depth + 1]) not in begun or depth + 1 == len(parts)
    )
    outer, inner = ".".join(parts[:right]), parts[right]
    beside = {each.rpartition(".")[2]: each for each in begun if each.rpartition(".")[0] == outer}
    key = ".".join(parts[: right + 1])
    return f"{key}: Expected a key of `{command}`, but got `{inner}`.{_nearest(inner, beside)}"


def _misspelt_class_keys(held: Any, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(held, Mapping) and set(_OF_A_CLASS) & set(held):
        others = [key for key in held if isinstance(key, str) and key not in (*_OF_A_CLASS, "dict_kwargs")]
        yield from ((path, key) for key in others if _of_class(key))
    for key, inner in _items(held):
        yield from _misspelt_class_keys(inner, f"{path}.{key}" if path else str(key))


def _of_class(key: str) -> str:
    return did_you_mean(key, _OF_A_CLASS)


def _near_class(said: str) -> str:
    if found := _NO_MODULE.search(said):
        outer, wrong = found[1], found[2]
        known = {name: f"{outer}.{name}" for name in dir(import_module(outer))} if outer else _PACKAGES
    elif found := _NO_CLASS.search(said):
        known = {name: f"{found[1]}.{name}" for name in dir(import_module(found[1]))}
        wrong = found[2]
    elif found := _NO_PATH.search(said):
        package = import_module(__package__)
        known = {name: f"{__package__}.{name}" for name in dir(package)}
        wrong = found[1]
    else:
        return ""
    return _nearest(wrong, known)


def within_memory() -> AbstractContextManager[Any]:
    """Return a context manager in which a CPU tensor larger than the machine's memory raises a ValueError."""
    return _WithinMemory()


class _WithinMemory(TorchFunctionMode):
    def __init__(self) -> None:
        super().__init__()
        names = ("SC_PHYS_PAGES", "SC_PAGE_SIZE")
        known = all(name in getattr(os, "sysconf_names", {}) for name in names)
        self.limit = os.sysconf(names[0]) * os.sysconf(names[1]) if known else float("inf")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        if isinstance(result, Tensor) and result.device.type == "cpu" and result.nbytes > self.limit:
            raise ValueError(
                f"Expected tensors that fit into {self.limit / 2**30:.0f} GiB of memory, but got one of shape "
                f"{tuple(result.shape)}."
            )
        return result


def _items(config: Any) -> list[tuple[Any, Any]]:
    if isinstance(config, Namespace):
        return list(vars(config).items())
    if isinstance(config, Mapping):
        return list(config.items())
    return list(enumerate(config)) if isinstance(config, list | tuple) else []


def _imported(class_path: str) -> Callable[..., Any]:
    from jsonargparse._util import import_object

    return import_object(class_path)


def _is_class(value: Any) -> bool:
    return isinstance(value, Namespace | Mapping) and isinstance(dict(_items(value)).get("class_path"), str)


def _nodes(value: Any, path: str) -> Iterator[_Node]:
    if _is_class(value):
        held = dict(_items(value))
        yield _Node(path, _imported(held["class_path"]), dict(_items(held.get("init_args"))))
    for key, inner in _items(value):
        yield from _nodes(inner, f"{path}.{key}" if path else str(key))


def _build(value: Any, path: str) -> Any:
    if not _is_class(value):
        inner = [(key, _build(each, f"{path}.{key}")) for key, each in _items(value)]
        if isinstance(value, list | tuple):
            return [each for _, each in inner]
        return dict(inner) if isinstance(value, Namespace | Mapping) else value
    held = dict(_items(value))
    arguments = {key: _build(each, f"{path}.init_args.{key}") for key, each in _items(held.get("init_args"))}
    node = _Node(path, _imported(held["class_path"]), arguments | dict(_items(held.get("dict_kwargs"))))
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


def _key(node: _Node, error: Exception) -> str:
    name = _named(node, str(error)) or _decisive(node)
    return f"{node.path}.init_args.{name}" if name else node.path


def _named(node: _Node, said: str) -> str | None:
    for name in re.findall(r"`(\w+)`", said):
        if name in node.arguments:
            return name
    return None


def _decisive(node: _Node) -> str | None:
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


def _descend(lines: list[str]) -> tuple[list[tuple[str, str]], str]:
    """Return the keys and classes that lead to jsonargparse's first error, and the reason of the error."""
    chain: list[tuple[str, str]] = []
    while lines:
        lines = [line for line in lines if not line.strip().startswith(_NOISE)]
        head = lines[0].strip() if lines else ""
        if not (match := _NESTING.match(head)):
            branch = next((k for k, line in enumerate(lines) if _NESTING.match(line.strip())), None)
            if branch is None or not head.startswith("- "):
                break
            lines = lines[branch:]
            continue
        kind = "key" if match["key"] else "cls"
        chain.append((kind, match[kind]))
        indent = len(lines[0]) - len(lines[0].lstrip())
        body = []
        for line in lines[1:]:
            if len(line) - len(line.lstrip()) <= indent and line.strip():
                break
            body.append(line)
        lines = ([head[match.end() :]] if head[match.end() :] else []) + body or lines[1:]
    said = [line.strip().removeprefix("- ").removesuffix(".") for line in lines]
    said = [_CLASS if "has no attribute 'keys'" in each else each for each in said if each and not _is_noise(each)]
    return chain, one_line(". ".join(said) + ".") if said else ""


def _is_noise(said: str) -> bool:
    long = said.startswith("Given value: ") and len(said) > 100
    return long or said.startswith(("Given value type", "Expected a path but", *_NOISE))


def _locate(value: Any, chain: Sequence[tuple[str, str]], path: str) -> Iterator[str]:
    if not chain:
        yield path
        return
    kind, name = chain[0]
    if kind == "key":
        for part in name.split("."):
            if not isinstance(value, Mapping) or part not in value:
                return
            value, path = value[part], f"{path}.{part}" if path else part
        yield from _locate(value, chain[1:], path)
        return
    if isinstance(value, Mapping) and str(value.get("class_path", "")).rpartition(".")[2] == name.rpartition(".")[2]:
        if len(chain) == 1:
            yield path
        else:
            yield from _locate(value.get("init_args"), chain[1:], f"{path}.init_args")
        return
    for key, inner in _items(value):
        yield from _locate(inner, chain, f"{path}.{key}")


def in_users_code(error: BaseException) -> bool:
    """Return whether the traceback contains a file other than those of this package, Python and installed packages."""
    known = [Path(__file__).parent, *(Path(sysconfig.get_path(each)) for each in ("stdlib", "purelib", "platlib"))]
    files = [Path(frame.f_code.co_filename) for frame, _ in walk_tb(error.__traceback__)]
    return any(file.is_file() and not any(file.is_relative_to(each) for each in known) for file in files)
