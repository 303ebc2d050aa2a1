"""Explain the results of a diagnostic, method, probe or callback: the texts of `ssl-geometry describe`."""

__all__ = ["described", "table"]

import importlib
import inspect
import re
import textwrap
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from typing import NamedTuple

from lightning import LightningModule
from torch import nn
from torchmetrics import Metric

import lightning_ssl_geometry as package
from lightning_ssl_geometry import callbacks, diagnostics, methods
from lightning_ssl_geometry.callbacks.run_callback import RunCallback
from lightning_ssl_geometry.diagnose.observed import diagnosis_diagnostics
from lightning_ssl_geometry.diagnostics.card import card, quantities_of, words
from lightning_ssl_geometry.diagnostics.standard import standard_diagnostics
from lightning_ssl_geometry.observe.feed import result_name
from lightning_ssl_geometry.quantity import SECTIONS, Quantity
from lightning_ssl_geometry.spelling import near, one_of_these

_ROOMS = (diagnostics, methods, callbacks)
_WIDTH, _MOST_NEAR = 100, 3
_ROLE = re.compile(r":\w+:`~?\.?(?:\w+\.)*(\w+)`")  # of Sphinx, as in :class:`~package.room.Name`
_ARGUMENTS = re.compile(r"^Args:\n((?:(?: .*)?\n?)+)", re.MULTILINE)
_STAGES = ("train", "val", "test", "probe")


def described(name: str) -> str:
    """Return the text about a class, the import path of a class, or the name of a logged value.

    Raises:
        ValueError: If `name` is unknown. The message lists the nearest classes.
    """
    known = _classes()
    if inspect.isclass(kind := known.get(name) or getattr(package, name, None)):
        return _card(kind, name)
    if found := _of_log(name):
        if len(found) > 1:
            owners = ", ".join(each.owner for each in found)
            raise ValueError(f"Expected a name of one class, but {name!r} is logged by {owners}. Name one.")
        return f"{name!r} is a log of {found[0].owner}.\n\n{_of_result(found[0], known[found[0].owner])}"
    if "." in name and "/" not in name and all(name.split(".")):
        return _card(_imported(name), name)
    hint = one_of_these(_offered(name)) or " `ssl-geometry describe` lists all."
    raise ValueError(f"Expected the name of a class or of a log, or an import path, but got {name!r}.{hint}")


def table() -> str:
    """Return a table of all classes, by section."""
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


def _offered(name: str) -> list[str]:
    base = name.rpartition("/")[2].lower()
    snake = {each: "_".join(words(each).lower().split()) for each in _classes()}
    parts = base.split("_")
    begun = ["_".join(parts[:count]) for count in range(len(parts), 0, -1)]
    by_words = [[owner for owner in snake if f"{snake[owner]}_".startswith(f"{each}_")] for each in begun]
    first = next(filter(None, by_words), [])
    return list(dict.fromkeys([*first, *near(base, snake)]))[:_MOST_NEAR]


def _card(kind: type, name: str) -> str:
    with _as_value_error(f"{name!r} to be a class that can be described"):
        quantities = quantities_of(kind)
        wrong = quantities and not _maps(quantities)
        said = f"{kind.__name__} to map texts to Quantity, but got {quantities!r}" if wrong else _text(kind, quantities)
    if wrong:
        raise ValueError(f"Expected `quantities` of {said}.")
    return said


def _of_result(log: "_Log", kind: type) -> str:
    quantities, logs = quantities_of(kind), _logs(kind)
    if log.key not in quantities or len(quantities) == 1:
        return _card(kind, log.owner)
    plain = "_".join(words(log.owner).lower().split())
    made = {key: key if issubclass(kind, LightningModule) else result_name(plain, key) for key in quantities}
    names = {key: next(iter(logs.get(key, [])), made[key]).rpartition("/")[2] for key in quantities}
    others = ", ".join(name for key, name in names.items() if key != log.key)
    said = textwrap.fill(f"Others of {log.owner}: {others}.", _WIDTH, break_on_hyphens=False)
    return f"{card(kind, _logged(kind), only=log.key)}\n\n{said}"


def _maps(quantities: object) -> bool:
    return isinstance(quantities, Mapping) and all(
        isinstance(key, str) and isinstance(each, Quantity) for key, each in quantities.items()
    )


def _text(kind: type, quantities: Mapping[str, Quantity]) -> str:
    text = _ROLE.sub(r"`\1`", inspect.cleandoc(kind.__doc__ or ""))
    if quantities:
        lines = [card(kind, _logged(kind))]
    else:
        first = textwrap.wrap(text.split("\n\n")[0], _WIDTH)
        lines = [kind.__name__, *first, "", "It declares no results of its own."]
    if arguments := _ARGUMENTS.search(text):
        lines += ["", "Its arguments:", arguments[1].rstrip()]
    return "\n".join(lines)


def _row(name: str, titles: Sequence[str], width: int) -> str:
    said = ", ".join(dict.fromkeys(titles))
    return textwrap.fill(said, _WIDTH, initial_indent=f"  {name:{width}}  ", subsequent_indent=" " * (width + 4))


def _classes() -> dict[str, type]:
    found = {name: getattr(room, name) for room in _ROOMS for name in room.__all__}
    return {name: thing for name, thing in found.items() if inspect.isclass(thing)}


def _logs(kind: type) -> dict[str, list[str]]:
    if kind not in _classes().values() or not getattr(kind, "quantities", {}):
        return {}
    found: dict[str, list[str]] = defaultdict(list)
    if issubclass(kind, RunCallback):
        for name, key in kind().logs().items():
            found[key].append(name)
    standard = standard_diagnostics(samples=True)
    for name, metric in (standard | _of_a_diagnosis()).items():
        stage = "<stage>" if name in standard else "test"
        for key in metric.quantities if type(metric) is kind else ():  # type: ignore[union-attr]
            found[key].append(f"{stage}/{result_name(name, key)}")
    return found


@cache
def _of_a_diagnosis() -> dict[str, Metric]:
    return diagnosis_diagnostics(nn.Linear(1, 1), labels=True)


def _logged(kind: type) -> dict[str, list[str]]:
    """As `_logs`. For a class that only a diagnosis has, the names also have the form of names that a user chooses."""
    logs = _logs(kind)
    own = {key: f"<stage>/{result_name('<name of the diagnostic>', key)}" for key in logs if issubclass(kind, Metric)}
    free = {key: not any(name.startswith("<stage>/") for name in names) for key, names in logs.items()}
    return {key: [own[key], *names] if key in own and free[key] else names for key, names in logs.items()}


class _Log(NamedTuple):
    owner: str
    key: str | None  # None: it is not known which result of the owner
    stage: str


def _of_log(name: str) -> list[_Log]:
    stage, _, base = name.rpartition("/")
    parts, known = base.split("_"), _known_logs()
    for count in range(len(parts), 0, -1):
        if found := known.get(_plain("".join(parts[:count]))):
            rest = "_".join(parts[count:])
            exact = [each for each in found.values() if each.stage == stage]
            exact = exact or [each for each in found.values() if each.stage == "<stage>" and stage in ("", *_STAGES)]
            return [each._replace(key=_key_of(each, rest)) for each in exact or found.values()]
    return []


@cache
def _known_logs() -> dict[str, dict[str, _Log]]:
    known: dict[str, dict[str, _Log]] = defaultdict(dict)  # name without underscores -> owner -> log
    for owner, kind in _classes().items():
        quantities: Mapping[str, Quantity] = getattr(kind, "quantities", {})
        logs = [(key, each.rpartition("/")) for key, held in _logs(kind).items() for each in held]
        named: list[tuple[str | None, str, str]] = [(key, stage, each) for key, (stage, _, each) in logs]
        if issubclass(kind, LightningModule):
            named += [(key, "", key) for key in set(quantities) - {""}]
        elif quantities:
            named.append((None, "", owner))
        for key, stage, each in named:
            known[_plain(each)].setdefault(owner, _Log(owner, key, stage))
    return known


def _key_of(log: _Log, rest: str) -> str | None:
    """Return the key of a result, where the name of a log ends with `rest` behind the name that is known."""
    quantities = quantities_of(_classes()[log.owner])
    begun = [key for key in quantities if key and f"{rest}_".startswith(f"{key}_")]
    return max(begun, key=len, default=log.key)


def _plain(name: str) -> str:
    return name.replace("_", "").lower()


def _imported(path: str) -> type:
    module, _, name = path.rpartition(".")
    with _as_value_error(f"{path!r} to be importable"):
        found = getattr(importlib.import_module(module), name)
        is_class = inspect.isclass(found)
    if not is_class:
        raise ValueError(f"Expected {path!r} to be a class, but got a {type(found).__name__}.")
    return found


@contextmanager
def _as_value_error(expected: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise
    except BaseException as error:
        raise ValueError(f"Expected {expected}, but: {type(error).__name__}: {error}") from error
