"""The file `geometry/quantities.json`, which describes all results of a run."""

__all__ = ["NAME", "QuantitiesFile", "meaning", "meanings", "misnamed"]

import inspect
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.files import set_aside
from lightning_ssl_geometry.manifest import FILE, Declared, merged, read_manifest, resumed, undeclared, written
from lightning_ssl_geometry.observe.batch_keys import near
from lightning_ssl_geometry.quantity import Quantity, declared
from lightning_ssl_geometry.recording.run_files import RunFiles

NAME = f"geometry/{FILE}"


class QuantitiesFile:
    """Collects the descriptions of logged names, and writes them to `geometry/quantities.json`.

    A description is a :class:`Declared`. It comes from a callback, from the LightningModule, or from the file of an
    earlier part of the run. If a name has different descriptions, the callback comes before the module, and the module
    before the file.

    Args:
        files: The files of the run.
    """

    def __init__(self, files: RunFiles) -> None:
        self.files = files
        self._earlier: dict[str, Declared] = {}
        self._host: dict[str, Declared] = {}
        self._said: dict[int, dict[str, Declared]] = {}  # id of the callback -> its descriptions
        self._silent: set[str] = set()  # names of results without a description
        self._text: str | None = None
        self._waits = False
        self._warned: set[str] = set()

    def restart(self) -> None:
        """Forget all descriptions before the next run of the Trainer. The file does not change."""
        self._earlier, self._host, self._said, self._text, self._waits = {}, {}, {}, None, False
        self._warned, self._silent = set(), set()

    def carry(self, folder: Path) -> None:
        """Read the descriptions that an earlier part of the run wrote to `folder`."""
        found, failed, notes = _descriptions(folder / NAME)
        self._earlier |= found
        if failed:
            rank_zero_warn(f"{folder / NAME} could not be read: {failed}. The run goes on without what it held.")
        if notes:
            rank_zero_warn(f"{folder / NAME} was read in part: {notes} The run goes on without the entries left out.")

    def expect(self, host: Mapping[str, Declared], said: Mapping[object, Mapping[str, Declared]]) -> None:
        """Set the descriptions of the module (`host`) and of callbacks (`said`). :meth:`write` writes them later.

        Raises a ValueError if two callbacks describe one name differently.
        """
        self._host = dict(host)
        self._take(said)
        self._waits = True

    def write(self) -> None:
        """Write the file if :meth:`expect` has been called since the file was last written."""
        if self._waits:
            self._write()

    def check(self, callback: object, entries: Mapping[str, Declared | None]) -> None:
        """Raise a ValueError if another callback describes one of these names differently.

        `entries` maps names that `callback` logs to their descriptions. An entry is None if `callback` does not
        describe the name. Then no other callback may describe it, and a description from an earlier part of the run is
        dropped.
        """
        others = merged(*(said for other, said in self._said.items() if other != id(callback)))
        merged(others, {name: entry for name, entry in entries.items() if entry})
        if unknown := [name for name, entry in entries.items() if entry is None and name in others]:
            name = unknown[0]
            who = f"a result that {type(callback).__name__} logs and nobody declares"
            raise ValueError(f"Expected one meaning of {name!r}, but got {others[name].in_words} and {who}.")
        self._silent |= {name for name, entry in entries.items() if entry is None}

    def declare(self, said: Mapping[object, Mapping[str, Declared]]) -> None:
        """Add descriptions of callbacks, and write the file. Raises a ValueError if two contradict each other."""
        self._take(said)
        self._write()

    def _take(self, said: Mapping[object, Mapping[str, Declared]]) -> None:
        now = self._said | {id(who): self._said.get(id(who), {}) | dict(entries) for who, entries in said.items()}
        merged(*now.values())
        self._said = now

    def _write(self) -> None:
        self._waits = False
        if not self.files.writes:
            return
        path = self.files.path(NAME)
        if self._text is None and NAME in self.files.names:
            self._earlier |= _own_descriptions(path)
        silent = {name: undeclared(name) for name in sorted(self._silent & self._earlier.keys())}
        whole = resumed(self._earlier, silent | self._host | merged(*self._said.values()))
        self._warn(whole)
        text = written(whole) + "\n"
        if text == self._text or not whole:
            return
        with self.files.replacing(NAME) as file:
            file.write(text.encode())
        with self.files.or_warn(NAME):
            self._text = text if path.exists() and path.read_bytes() == text.encode() else ""  # "": to be tried again

    def _warn(self, whole: Mapping[str, Declared]) -> None:
        for name, each in whole.items():
            before = self._earlier.get(name, each)
            if before.meaning != each.meaning and name not in self._warned:
                self._warned.add(name)
                rank_zero_warn(
                    f"{name} is {each.in_words} from here on, but was {before.in_words} in the earlier part of this "
                    "run. Both are logged under one name, and the page shows them in one line. Log the new one under "
                    "another name."
                )


def meaning(
    thing: object, key: str, space: str = "", width: int | None = None, *, rename: Mapping[str, str] | None = None
) -> Declared | None:
    """Return the description of one result of a Metric, or None if the Metric does not describe this result.

    A Metric has its descriptions in the attribute `quantities`, a dict from keys to Quantity. A ValueError is raised if
    the attribute is something else. A Metric without the attribute gets a description with its class name and `key` as
    title. `key` is the key of the result if the Metric returns a dict, else "". `space` is the name of the tensor that
    the Metric gets, such as "h", or "". `width` is the size of the last axis of this tensor. `rename` maps arguments of
    `update` to the names of the tensors that they get, where these differ.
    """
    quantities = quantities_of(thing)
    if getattr(thing, "quantities", None):
        if not (isinstance(quantities, Mapping) and all(isinstance(each, Quantity) for each in quantities.values())):
            who = type(thing).__name__
            raise ValueError(
                f"Expected `quantities` of {who} to map keys of results to Quantity, but got {quantities!r}."
            )
        found = declared(quantities, key)
    else:
        whole = quantities[""]
        found = key, replace(whole, title=f"{whole.title}, {key.replace('_', ' ')}") if key else whole
    if found is None:
        return None
    known, quantity = found
    part = key.removeprefix(known).removeprefix("_")
    own = tuple(inspect.signature(thing.update).parameters) if isinstance(thing, Metric) else ()
    about = {"part": part, "space": space, "width": width, "renamed": bool(space) and space not in (own or (space,))}
    reads = tuple((rename or {}).get(argument, argument) for argument in own)
    return _entry(type(thing), known, quantity, section="other", reads=reads, **about)


def misnamed(thing: object, results: Iterable[str]) -> str:
    """Return a message if `thing` describes a result that is not in `results`, and does not describe one that is.

    A misspelt key has both effects. A description alone has no message, as a Metric may return a result only sometimes.
    """
    quantities = getattr(thing, "quantities", None)
    if not isinstance(quantities, Mapping):
        return ""
    found = {key: declared(quantities, key) for key in results}
    unknown = [key for key, entry in found.items() if entry is None]
    unused = [key for key in quantities if key not in {entry[0] for entry in found.values() if entry}]
    if not (unknown and unused):
        return ""
    said, hints = ", ".join(map(repr, unused)), "".join(near(key, unknown) for key in unused)
    return f"`{type(thing).__name__}.quantities` declares {said}, which `compute` did not return.{hints}"


def meanings(thing: object, names: Mapping[str, str], section: str = "other", part: str = "") -> dict[str, Declared]:
    """Return the descriptions of the logs and files of a callback or module, by logged name.

    `thing` is the callback or module. It has its descriptions in the attribute `quantities`. `names` maps logged names
    to keys of this attribute. Names with unknown keys are omitted. `section` is the section of the report if `thing`
    has none. `part` is a name that distinguishes `thing` from others of its class, or "".
    """
    quantities = quantities_of(thing)
    if not isinstance(quantities, Mapping):  # another library's attribute of the same name
        return {}
    found = {name: (key, quantities.get(key)) for name, key in names.items()}
    owner = next((kind for kind in type(thing).__mro__ if "quantities" in vars(kind)), type(thing))
    return {
        name: _entry(owner, key, quantity, section=section, part=part)
        for name, (key, quantity) in found.items()
        if isinstance(quantity, Quantity)
    }


def _entry(kind: type, key: str, quantity: Quantity, *, section: str, **about: Any) -> Declared:
    own = getattr(kind, "section", section)
    section = own if isinstance(own, str) else section
    return Declared(quantity=quantity, section=section, diagnostic=kind.__name__, key=key, **about)


def _own_descriptions(path: Path) -> dict[str, Declared]:
    found, failed, notes = _descriptions(path)
    if failed:
        rank_zero_warn(f"{path} could not be read: {failed}. It is now {set_aside(path)}; the run goes on without it.")
    if notes:
        rank_zero_warn(
            f"{path} was read in part: {notes} The file is now {set_aside(path)}; the run goes on without the entries "
            "left out."
        )
    return found


def _descriptions(path: Path) -> tuple[dict[str, Declared], str, str]:
    # with the reason why a file is unreadable, and notes on entries that were left out
    try:
        found, notes = read_manifest(path.read_text(encoding="utf-8")) if path.exists() else ({}, [])
    except (ValueError, RecursionError, OSError) as error:
        return {}, str(error), ""
    return found, "", " ".join(notes)
