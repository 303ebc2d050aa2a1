"""Seeded changes of a YAML config: of its tree (keys and values), or of its text."""

import copy
import importlib
import inspect
import re
from typing import NamedTuple

import yaml

VALUES = {
    "null": None,
    "negative": -1,
    "zero": 0,
    "huge": 10**30,
    "large": 2**40,
    "huge float": 1e300,
    "NaN": float("nan"),
    "infinity": float("inf"),
    "half": 0.5,
    "text": "many",
    "empty text": "",
    "unicode": "жук\u202e☃",
    "NUL": "a\0b",
    "long text": "x" * 5000,
    "true": True,
    "list": [1, "a"],
    "empty list": [],
    "mapping": {"a": 1},
    "empty mapping": {},
    "class of nothing": {"class_path": "torch.nn.NoSuchThing"},
    "another class": {"class_path": "torch.nn.Identity"},
    "deep": [[[[[[[[1]]]]]]]],
    "date": "2001-01-01",
}
CLASSES = [
    *("torch.nn.Identiti", "torch.nn", "torch", "os.system", "builtins.int", "no_such_module.Class", ""),
    *("lightning_ssl_geometry.methods.SimCLRModul", "..", "torch.nn.Identity", "lightning.Trainer", "a b", 7),
]


class Mutation(NamedTuple):
    """A changed text, what was changed, the path of the key (None: of the text), and whether it must be refused."""

    text: str
    said: str
    path: tuple | None
    refused: bool


def mutation(chance, text):
    """Change the text of a config."""
    if chance.random() < 0.2:
        return _of_text(chance, text)
    config = yaml.safe_load(text)
    path = chance.choice(list(_paths(config)))
    return chance.choice([_deleted, _misspelt, _valued, _valued, _valued, _nested, _moved, _renamed])(
        chance, config, path
    )


def _paths(value, path=()):
    """The path of each key and element."""
    for key, inner in value.items() if isinstance(value, dict) else enumerate(value):
        yield (*path, key)
        if isinstance(inner, dict | list):
            yield from _paths(inner, (*path, key))


def _around(config, path):
    for part in path[:-1]:
        config = config[part]
    return config


def _made(config, said, path, refused=False):
    return Mutation(yaml.safe_dump(config, allow_unicode=True, sort_keys=False), said, path, refused)


def _deleted(chance, config, path):
    del _around(config, path)[path[-1]]
    return _made(config, f"delete {_dotted(path)}", path)


def _misspelt(chance, config, path):
    path = _up_to_key(path)
    name = path[-1]
    spelt = _misspelling(chance, name)
    around = _around(config, path)
    if spelt in around or chance.random() < 0.2:
        spelt += "_zebra"
    changed = {spelt if key == name else key: value for key, value in around.items()}
    around.clear()
    around.update(changed)
    return _made(config, f"misspell {_dotted(path)} as {spelt!r}", (*path[:-1], spelt), path[-2:-1] != ("diagnostics",))


def _misspelling(chance, name):
    k = chance.randrange(len(name))
    kinds = [name[:k] + name[k + 1 :], name[:k] + "x" + name[k:], name.upper(), f"{name} ", name + "s"]
    kinds.append(name.replace("_", "-") if "_" in name else f"_{name}")
    return chance.choice([each for each in kinds if each and each != name])


def _up_to_key(path):
    while isinstance(path[-1], int):
        path = path[:-1]
    return path


def _valued(chance, config, path):
    name = chance.choice(list(VALUES))
    _around(config, path)[path[-1]] = copy.deepcopy(VALUES[name])
    return _made(config, f"{_dotted(path)} = {name}", path)


def _nested(chance, config, path):
    """One level too deep or too shallow, or a list for a mapping and the reverse."""
    around = _around(config, path)
    value = around[path[-1]]
    kinds = {"in a list": [value], "in a mapping": {path[-1]: value}, "twice": [value, copy.deepcopy(value)]}
    if isinstance(value, dict):
        kinds |= {"as a list of pairs": [{key: each} for key, each in value.items()], "its keys": list(value)}
    if isinstance(value, list):
        kinds["as a mapping"] = {str(key): each for key, each in enumerate(value)}
    said = chance.choice(list(kinds))
    around[path[-1]] = kinds[said]
    return _made(config, f"{_dotted(path)} {said}", path)


def _moved(chance, config, path):
    """A key in another mapping."""
    path = _up_to_key(path)
    value = _around(config, path).pop(path[-1])
    places = [(), *(each for each in _paths(config) if isinstance(_at(config, each), dict))]
    place = chance.choice(places)
    inner = _at(config, place)
    refused = path[-1] not in inner and place != path[:-1] and place[:1] != path[:1]
    refused = refused and not _is_argument(path[-1], _at(config, place[:-1]) if place else {})
    inner[path[-1]] = value
    return _made(config, f"{_dotted(path)} moved into {_dotted(place) or 'the top'}", (*place, path[-1]), refused)


def _is_argument(name, held):
    """Whether a class in a config has an argument of this name."""
    module, _, kind = held.get("class_path", "").rpartition(".") if isinstance(held, dict) else ("", "", "")
    return bool(module) and name in inspect.signature(getattr(importlib.import_module(module), kind)).parameters


def _at(config, path):
    for part in path:
        config = config[part]
    return config


def _renamed(chance, config, path):
    """A wrong class."""
    places = [each for each in _paths(config) if each[-1] == "class_path"]
    if not places:
        return _valued(chance, config, path)
    path = chance.choice(places)
    wrong = chance.choice(CLASSES)
    _around(config, path)[path[-1]] = wrong
    known = wrong in ("torch.nn.Identity", "builtins.int", "lightning.Trainer")
    return _made(config, f"{_dotted(path)} = {wrong!r}", path, not known)


def _dotted(path):
    return ".".join(map(str, path))


def _of_text(chance, text):
    """Changes after which a text may be no YAML, or a YAML that says a key twice."""
    lines = text.splitlines()
    keys = [k for k, line in enumerate(lines) if re.match(r"\s*[\w-]+:", line)]
    k = chance.choice(keys)
    said, refused, changed = chance.choice(_TEXTS)
    lines = changed(lines, k)
    return Mutation("\n".join(lines) + "\n", f"line {k + 1}: {said}", None, refused)


def _with(change):
    return lambda lines, k: [*lines[:k], *change(lines[k]), *lines[k + 1 :]]


_TEXTS = [
    ("a tab", True, _with(lambda line: ["\t" + line])),
    ("an unclosed bracket", True, _with(lambda line: [line + " [1, 2"])),
    ("an unclosed brace", True, _with(lambda line: [line.partition(":")[0] + ": {a: 1"])),
    ("an unclosed quote", True, _with(lambda line: [line.partition(":")[0] + ': "a'])),
    ("an unknown alias", True, _with(lambda line: [line.partition(":")[0] + ": *nothing"])),
    ("a Python object", True, _with(lambda line: [line.partition(":")[0] + ": !!python/object/apply:os.system [ls]"])),
    ("a control character", True, _with(lambda line: [line + " \x07"])),
    ("a key twice", True, _with(lambda line: [line.partition(":")[0] + ": 7", line])),
    ("one space more", False, _with(lambda line: [" " + line])),
    ("one space less", False, _with(lambda line: [line.removeprefix(" ")])),
    ("no colon", False, _with(lambda line: [line.replace(":", "", 1)])),
    ("a document's end", False, _with(lambda line: ["---", line])),
    ("cut here", False, lambda lines, k: lines[:k]),
    ("only this line", False, lambda lines, k: [lines[k]]),
    ("nothing", False, lambda lines, k: []),
    ("only text", False, lambda lines, k: ["hello"]),
    ("only a list", False, lambda lines, k: ["- a", "- b"]),
    ("line twice", False, _with(lambda line: [line, line])),
    ("a byte order mark", False, lambda lines, k: ["\ufeff" + lines[0], *lines[1:]]),
]
