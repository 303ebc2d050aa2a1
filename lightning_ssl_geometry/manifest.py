"""The manifest of a run: the file geometry/quantities.json, which describes each logged value.

The keys follow netCDF's CF conventions where possible (`long_name`, `units`, `valid_range`, `references`).
"""

__all__ = ["FILE", "Declared", "merged", "read_manifest", "resumed", "undeclared", "written"]

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from lightning_ssl_geometry.quantity import Chart, Paper, Picture, Quantity, Verdict

FILE = "quantities.json"
_RENAMED = {
    "title": "long_name",
    "short": "short_name",
    "unit": "units",
    "bounds": "valid_range",
    "paper": "references",
}
_MOST_ENTRIES, _LONGEST = 5_000, 4_000
_MOST_VERDICTS = 20  # of one quantity
_NAMED, _LONGEST_NAME = 3, 80  # for the note on entries that are left out
_SWITCHES = ("renamed", "silent", "caveat")
_PARTS = {"paper": Paper, "chart": Chart, "picture": Picture}


@dataclass(frozen=True, kw_only=True)
class Declared:
    """The description of one logged value.

    Attributes:
        quantity: What the value means.
        section: The section of the report. If the quantity has no section, it is the section of the class.
        diagnostic: Name of the class that computes the value.
        key: The key of the value in the attribute `quantities` of that class.
        part: The part of the model, such as "layers_3": the rest of the logged name after the key.
        space: The tensor that the value is computed from, such as "h" or "h_image". Empty if there is none, or more
            than one.
        renamed: Whether `space` is no argument of the `update` of the class.
        width: Number of dimensions of the tensor `space`. None: unknown.
        reads: Names of the tensors and modules that the `update` of the class takes. Empty: unknown.
        earlier: Descriptions of other meanings that the same name had before the run was resumed.
        undefined: Why some of its values are NaN.
        silent: Whether the value was described before the run was resumed, but not since. The report then does not
            explain it.
    """

    quantity: Quantity
    section: str = "other"
    diagnostic: str = ""
    key: str = ""
    part: str = ""
    space: str = ""
    renamed: bool = False
    width: int | None = None
    reads: tuple[str, ...] = field(default=(), compare=False)
    earlier: tuple[str, ...] = field(default=(), compare=False)
    undefined: tuple[str, ...] = field(default=(), compare=False)
    silent: bool = False

    @property
    def meaning(self) -> tuple[str, ...]:
        """The fields that two values of the same meaning share. Explanations are left out."""
        if self.silent:
            return ("", self.key, "", "")  # its name alone
        quantity = self.quantity
        meant = (quantity.title, quantity.unit, f"{quantity.percent}")
        return (self.diagnostic, self.key, self.part, self.space, *meant)

    @property
    def in_words(self) -> str:
        """The meaning of the value as a text with title, unit and class."""
        if self.silent:
            return "a result that nobody declares"
        where = f" of {_named(self.space)}" if self.space else ""
        unit = f", in {_named(self.quantity.unit)}" if self.quantity.unit else ""
        percent = ", shown in percent" if self.quantity.percent else ""
        source = [_named(self.diagnostic)] if self.diagnostic else []
        source += [_named(self.key) if self.key else "its only result"]
        source += [f"part {_named(self.part)}"] if self.part else []
        return f"{self.quantity.title!r}{where}{unit}{percent} ({', '.join(source)})"

    def __post_init__(self) -> None:
        object.__setattr__(self, "section", self.quantity.section or self.section)
        object.__setattr__(self, "quantity", replace(self.quantity, section=""))


def undeclared(name: str) -> Declared:
    """Return a description for a logged value that nobody has described since the run was resumed."""
    base = name.partition("/")[2] or name
    text = "Nobody declared what this log means in the latest part of the run."
    return Declared(quantity=Quantity(title=base, text=text), key=base, silent=True)


def merged(*manifests: Mapping[str, Declared]) -> dict[str, Declared]:
    """Join the descriptions of several callbacks. Raise a ValueError if they give a logged name different meanings."""
    found: dict[str, Declared] = {}
    for manifest in manifests:
        for name, each in manifest.items():
            if (before := found.setdefault(name, each)) != each:
                raise ValueError(f"Expected one meaning of {name!r}, but got {before.in_words} and {each.in_words}.")
    return found


def resumed(earlier: Mapping[str, Declared], now: Mapping[str, Declared]) -> dict[str, Declared]:
    """Join the descriptions from before a resume (`earlier`) with the current descriptions (`now`).

    If the meaning of a logged name has changed, its description is the current one. The attribute `earlier` of this
    description then contains the description from before the resume.
    """
    found = dict(earlier)
    for name, each in now.items():
        before = earlier.get(name, each)
        said = dict.fromkeys([*before.earlier, *([] if before.meaning == each.meaning else [_cut(before.in_words)])])
        found[name] = replace(each, earlier=tuple(text for text in said if text != _cut(each.in_words)))
    return found


def _named(text: str) -> str:  # in quotes, so that its commas do not look like separators
    return text if text.isidentifier() else repr(text)


def _cut(words: str) -> str:
    return words if len(words) <= _LONGEST else f"{words[: _LONGEST - 1]}…"


def written(manifest: Mapping[str, Declared]) -> str:
    """Return the descriptions as JSON, in the order in which the report shows them."""
    return json.dumps({name: _attributes(each) for name, each in manifest.items()}, indent=1, ensure_ascii=False)


def read_manifest(text: str) -> tuple[dict[str, Declared], list[str]]:
    """Read the descriptions from JSON. Return the valid descriptions, and sentences about the malformed ones.

    A ValueError is raised if the text is not a JSON object, and a RecursionError if it is nested too deeply.
    """
    held = json.loads(text)
    if not isinstance(held, dict):
        raise ValueError(f"it holds a {type(held).__name__} instead of an object")
    found: dict[str, Declared] = {}
    for name, entry in list(held.items())[:_MOST_ENTRIES]:
        try:
            found[name] = _declared(entry)
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
    return found, _lost(held, found)


def _lost(held: Mapping[str, Any], found: Mapping[str, Declared]) -> list[str]:
    notes = []
    if lost := [name for name in list(held)[:_MOST_ENTRIES] if name not in found]:
        named = ", ".join(name if len(name) <= _LONGEST_NAME else f"{name[:_LONGEST_NAME]}…" for name in lost[:_NAMED])
        more = ", ..." if len(lost) > _NAMED else ""
        entries = "entry was" if len(lost) == 1 else "entries were"
        notes.append(
            f"geometry/{FILE}: {len(lost):,} malformed {entries} left out: {named}{more}. "
            "Their results are shown without a text."
        )
    if len(held) > _MOST_ENTRIES:
        notes.append(f"geometry/{FILE} has {len(held):,} entries; only the first {_MOST_ENTRIES:,} were read.")
    return notes


def _attributes(declared: Declared) -> dict[str, Any]:
    held = [(field, getattr(declared.quantity, field.name)) for field in fields(Quantity)]
    plain = {field.name: _plain(value) for field, value in held if value != field.default}
    about = {
        field.name: _plain(getattr(declared, field.name)) for field in fields(Declared) if field.name != "quantity"
    }
    return {_RENAMED.get(name, name): value for name, value in plain.items()} | {
        name: value for name, value in about.items() if value not in ("", None, False, [])
    }


def _plain(value: object) -> object:
    if isinstance(value, Paper | Chart | Picture | Verdict):
        return {field.name: _plain(held) for field in fields(value) if (held := getattr(value, field.name))}
    if isinstance(value, tuple):  # texts, verdicts, or bounds; JSON has no infinite number
        return [None if isinstance(each, float) and not math.isfinite(each) else _plain(each) for each in value]
    return value


def _declared(entry: Mapping[str, Any]) -> Declared:
    named = {_RENAMED.get(field.name, field.name): field for field in fields(Quantity)}
    held = {field.name: entry[name] for name, field in named.items() if name in entry}
    about = {field.name: entry[field.name] for field in fields(Declared) if field.name in entry}
    checked = {name: _checked(name, value) for name, value in held.items()}
    return Declared(quantity=Quantity(**checked), **{name: _checked(name, value) for name, value in about.items()})


def _checked(name: str, value: Any) -> Any:
    if name in _PARTS:
        return _part(_PARTS[name], value)
    if name == "verdicts":
        return tuple(_part(Verdict, each) for each in _list(value)[:_MOST_VERDICTS])
    if name == "bounds":
        low, high = map(_bound, value if isinstance(value, list) else ())
        return low, high
    if name == "picks":
        return _bound(value) if value is None or isinstance(value, int | float) else _text(value)
    if name == "width":
        return value if value is None else _int(value)
    if name in ("invariances", "comparable", "names", "reads", "earlier", "undefined"):
        return tuple(_text(each) for each in _list(value)[:_LONGEST])
    if name in (
        "percent",
        "baseline",
        "delayed",
        "headline",
        "shown",
        "logarithm",
        "first",
        "parts",
        "of_weights",
        *_SWITCHES,
    ):
        return value is True
    return None if name == "better" and value is None else _text(value)


def _part(kind: Any, value: Mapping[str, Any]) -> Any:
    names = {field.name for field in fields(kind)}
    return kind(**{key: _checked(key, part) for key, part in value.items() if key in names})


def _list(value: object) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError("no list")
    return value


def _text(value: object) -> str:
    if not isinstance(value, str) or len(value) > _LONGEST:
        raise ValueError("no text")
    return value


def _bound(value: object) -> float | None:
    if value is None:
        return None
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ValueError("no number")
    return float(value)


def _int(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 2**53:
        raise ValueError("no count")
    return value
