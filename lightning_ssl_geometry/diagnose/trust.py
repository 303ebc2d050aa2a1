"""Ask before a run's config.yaml is used. Importing the classes that it names can run foreign code."""

__all__ = ["TRUSTED", "ask", "foreign_names", "read_plain_yaml"]

import os
import pkgutil
import re
import sys
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

TRUSTED = ("lightning_ssl_geometry", "torch.nn", "torch.optim", "torchvision", "timm")
_DOTTED = re.compile(r"[^\W\d]\w*(?:\.[^\W\d]\w*)+")
_STRUCTURE = re.compile(r"[\[{\n]|:\s")  # in a text that may be a config in itself
_ARRAYS = (b"\x93NUMPY", b"PK\x03\x04")  # how .npy and .npz begin: no text, so that the parser reads no config
_PYTHON_TAG = re.compile(r"tag:yaml\.org,2002:(python/[\w./:]+)")
_DEEPEST = 50
_AGREED = ("y", "yes")


def read_plain_yaml(path: Path) -> Any:
    """Read a YAML file. Raises a ValueError if it is invalid or contains Python objects."""
    import yaml

    try:
        return yaml.safe_load(path.read_text("utf-8"))
    except (yaml.YAMLError, RecursionError, UnicodeError) as error:
        raise ValueError(f"Expected {path} to be plain YAML, but {_reason(error)}.") from error


def foreign_names(held: Any) -> list[str]:
    """Return the paths of files and the importable Python names in a config, except names in the packages `TRUSTED`.

    >>> foreign_names({"model": {"class_path": "os.System", "init_args": {"act": "torch.nn.ReLU"}}})
    ['os.System']
    """
    found = (name for text in _texts(held, 0) for name in _named(text))
    return [name for name in dict.fromkeys(found) if not _is_trusted(name)]


def ask(config: Path, trust: bool) -> None:
    """Ask the user for permission if a run's config.yaml would import anything outside of the packages `TRUSTED`.

    If `trust` is true, no question is asked. Raises a ValueError if the file is not plain YAML, if the user refuses, or
    if there is no terminal for the question.
    """
    if trust or not config.is_file():
        return
    held = read_plain_yaml(config)
    parts = {name: held.get(name) for name in ("model", "data")} if isinstance(held, dict) else {}
    names = foreign_names(parts)
    if not names:
        return
    what = f"{config} names {', '.join(names)}"
    if not (sys.stdin.isatty() and sys.stdout.isatty()):
        raise ValueError(
            f"Expected --trust, as {what}, which would be imported and run, but got none. "
            "Give it if you trust whoever wrote the run."
        )
    print(f"{what}. To build the network, these are imported and run, whatever they hold.")
    if input("Do you trust whoever wrote the run? [y/N] ").strip().lower() not in _AGREED:
        raise ValueError(f"Expected your trust, as {what}, but the answer was no. Nothing was imported.")
    if sys.argv[1:2] == ["diagnose"]:
        sys.argv.append("--trust")  # further processes are started with the same command, and ask no more


def _texts(value: Any, depth: int) -> Iterator[str]:
    if depth > _DEEPEST:
        raise ValueError(f"Expected a config of at most {_DEEPEST} levels, but got more.")
    if isinstance(value, dict):
        for inner in value.values():
            yield from _texts(inner, depth + 1)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from _texts(inner, depth + 1)
    elif isinstance(value, str):
        inner = _parsed(value)  # jsonargparse also parses texts that are YAML
        if isinstance(inner, dict | list):
            yield from _texts(inner, depth + 1)
        else:
            yield inner if isinstance(inner, str) else value


def _parsed(text: str) -> Any:
    import yaml

    try:
        return yaml.safe_load(text)
    except (yaml.YAMLError, RecursionError):
        return text


def _named(text: str) -> Iterator[str]:
    if "\0" not in text and os.path.isfile(text) and not _has_arrays(text):  # the parser reads it in a class's place
        yield text
    names = _DOTTED.findall(text) if _STRUCTURE.search(text) else [text.strip()]  # the parser imports a whole text
    names = [name for name in names if _DOTTED.fullmatch(name)]
    yield from (name for name in names if _is_importable(name.partition(".")[0]))


def _has_arrays(path: str) -> bool:
    try:
        with open(path, "rb") as file:
            return file.read(8).startswith(_ARRAYS)
    except OSError:
        return False


def _is_importable(top: str) -> bool:
    try:
        return find_spec(top) is not None  # it does not import the package
    except (ValueError, ImportError):
        return top in sys.modules


def _is_trusted(name: str) -> bool:
    if not _is_within(name):  # only trusted packages are imported below
        return False
    try:
        found = pkgutil.resolve_name(name)
    except (ImportError, AttributeError, ValueError):
        return True  # there is nothing that could be built, as the parser will say
    return _is_within(getattr(found, "__module__", None) or "")


def _is_within(name: str) -> bool:
    return any(f"{name}.".startswith(f"{trusted}.") for trusted in TRUSTED)


def _reason(error: Exception) -> str:
    if asked := _PYTHON_TAG.search(str(error)):
        return f"it asks for a Python object (!!{asked[1]}), which is never built"
    if isinstance(error, RecursionError):
        return "it is nested too deeply"
    return f"it is none: {' '.join(str(error).split())}"
