"""Errors of keys and classes that do not exist, from the messages of jsonargparse."""

__all__ = ["misspelt", "of_parser"]

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib import import_module
from typing import Any

from jsonargparse import ArgumentParser

from lightning_ssl_geometry.cli_errors.config import imported, items
from lightning_ssl_geometry.cli_messages import of_arguments, one_line
from lightning_ssl_geometry.spelling import did_you_mean, near, one_of_these

_NESTING = re.compile(r"""(?:- )?(?:Parser key "(?P<key>[^"]+)":|Problem with given class_path '(?P<cls>[^']+)':)\s*""")
_UNKNOWN = re.compile(r"Option '(\w+)' is not accepted")
_NO_CLASS = re.compile(r"module '([\w.]+)' has no attribute '(\w+)'")
_NO_MODULE = re.compile(r"No module named '(?:([\w.]+)\.)?(\w+)'")
_NO_PATH = re.compile(r"Expected a dot import path string: (\w+)")
_NO_KEY = re.compile(r"(?:Group '([\w.]+)' )?does not accept option '([\w.]+)'")
_MISSPELT = (_NO_KEY, _UNKNOWN, _NO_CLASS, _NO_MODULE, _NO_PATH)
_OF_A_CLASS = ("class_path", "init_args")
_OURS = __package__.partition(".")[0]
_PACKAGES = {each: each for each in (_OURS, "lightning", "torch", "torchmetrics", "torchvision", "timm")}
_CLASS = "Expected a class path, or a mapping with `class_path` and `init_args`, but got neither"
_NOISE = ("Does not validate against any", "Subtypes:", "Errors:")


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
        key = ".".join(filter(None, unknown_key.groups()))
        return _of_key(key, command, [option.removeprefix("--") for option in options])
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


def misspelt(message: str, files: Mapping[str, Mapping[str, Any]]) -> str:
    """Return a sentence with the path in `files` whose contents have the misspelt word of a message, or ""."""
    of_class = [name for name, held in files.items() if any(_misspelt_class_keys(held, ""))]
    found = next(filter(None, (each.search(message) for each in _MISSPELT)), None)
    wrong = found[found.lastindex or 0] if found else None
    parts = set(wrong.split(".")) if wrong else set()
    holds = [name for name, held in files.items() if parts and parts <= set(_words(held))]
    return "".join(f" It is in {name}." for name in (of_class or holds)[-1:])


def _near(said: str, class_path: str) -> str:
    unknown = _UNKNOWN.search(said)
    made = imported(class_path) if unknown else None
    if unknown is None or not isinstance(made, type):
        return ""
    known = ArgumentParser(exit_on_error=False).add_class_arguments(made, fail_untyped=False)
    return _nearest(unknown[1], {name: name for name in known})


def _nearest(wrong: str, known: Mapping[str, str]) -> str:
    return one_of_these(known[each] for each in near(wrong, known, most=1))


def _words(held: Any) -> Iterator[str]:
    for key, inner in items(held):
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
    for key, inner in items(held):
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
        known = {name: f"{_OURS}.{name}" for name in dir(import_module(_OURS))}
        wrong = found[1]
    else:
        return ""
    return _nearest(wrong, known)


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
    for key, inner in items(value):
        yield from _locate(inner, chain, f"{path}.{key}")
