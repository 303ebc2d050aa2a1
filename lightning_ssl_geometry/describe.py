"""The command `ssl-geometry describe`: what the results of a diagnostic, a method, a probe or a callback mean."""

__all__ = ["run"]

import argparse
import difflib
import importlib
import inspect
import textwrap
from collections import defaultdict
from collections.abc import Mapping, Sequence

from lightning_ssl_geometry import callbacks, diagnostics, methods
from lightning_ssl_geometry.diagnostics.card import card, quantities_of
from lightning_ssl_geometry.quantity import SECTIONS, Quantity

_DESCRIPTION = """Say what the results of a diagnostic, a method, a probe or a callback mean: title, what low and high
say, range, paper. Without a name, list what there is."""
_ROOMS = (diagnostics, methods, callbacks)
_WIDTH = 100


def run(args: Sequence[str]) -> None:
    """Run the command line, without the word `describe` itself; an unknown name ends it with one line, and exit code 2.

    Args:
        args: The name of a class of this package, or the import path of another; none for a table of all.
    """
    parser = argparse.ArgumentParser("ssl-geometry describe", description=_DESCRIPTION)
    parser.add_argument("name", nargs="?", help="such as LiDAR, LinearProbe or your_package.YourMetric")
    name = parser.parse_args(args).name
    try:
        print(_table() if name is None else _described(_named(name)))
    except ValueError as error:
        parser.exit(2, f"{parser.prog}: {' '.join(str(error).split())}\n")


def _described(kind: type) -> str:
    quantities = quantities_of(kind)
    if not quantities:
        first = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0]
        return "\n".join([kind.__name__, *textwrap.wrap(first, _WIDTH), "", "It declares no results of its own."])
    if not isinstance(quantities, Mapping) or not all(isinstance(each, Quantity) for each in quantities.values()):
        raise ValueError(f"Expected `quantities` of {kind.__name__} to map keys to Quantity, but got {quantities!r}.")
    return card(kind)


def _table() -> str:
    """List the titles of all results by section and class."""
    titles: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    for name, kind in _classes().items():
        declared: Mapping[str, Quantity] = getattr(kind, "quantities", {})
        for quantity in declared.values():
            section = quantity.section or getattr(kind, "section", "other")
            titles[section][name].append(quantity.title)
    width = max((len(name) for of_section in titles.values() for name in of_section), default=0)
    lines: list[str] = []
    for section in (*SECTIONS, *sorted(titles.keys() - SECTIONS.keys())):
        if section in titles:
            lines += ["", SECTIONS.get(section, section)]
            lines += [_row(name, said, width) for name, said in sorted(titles[section].items())]
    return "\n".join([*lines[1:], "", "ssl-geometry describe NAME says what one of them means."])


def _row(name: str, titles: Sequence[str], width: int) -> str:
    said = ", ".join(dict.fromkeys(titles))
    return textwrap.fill(said, _WIDTH, initial_indent=f"  {name:{width}}  ", subsequent_indent=" " * (width + 4))


def _classes() -> dict[str, type]:
    """The public classes of the rooms that log something."""
    found = {name: getattr(room, name) for room in _ROOMS for name in room.__all__}
    return {name: thing for name, thing in found.items() if inspect.isclass(thing)}


def _named(name: str) -> type:
    """Find a class of this package by its name, or any by its import path."""
    known = _classes()
    if name in known:
        return known[name]
    if "." in name:
        return _imported(name)
    lower = {each.lower(): each for each in known}
    near = [lower[each] for each in difflib.get_close_matches(name.lower(), lower)]
    offered = f"Near: {', '.join(near)}." if near else "`ssl-geometry describe` lists all."
    raise ValueError(f"Expected the name of a class of this package, or an import path, but got {name!r}. {offered}")


def _imported(path: str) -> type:
    module, _, name = path.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever the module of somebody else raises
        raise ValueError(f"Expected {path!r} to be importable, but: {type(error).__name__}: {error}") from error
    if not inspect.isclass(found):
        raise ValueError(f"Expected {path!r} to be a class, but got a {type(found).__name__}.")
    return found
