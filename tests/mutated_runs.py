"""Seeded changes of the files of a run: of bytes, lines, cells, values and arrays, or of what is in a file's place."""

import csv
import io
import json
import os
import shutil

import numpy as np

ELEMENT = "zebra"  # no page has such an element, so one there is a text of the run that was not escaped
RENDERED = "zebraran"  # what `TEXTS` would become as templates
TEXTS = [
    "<script>window.ran = 1</script>",
    f"<{ELEMENT} onload=run()>",
    f"\"><{ELEMENT} onload='run()'>",
    f"'><{ELEMENT}>",
    f"</style></svg></title></pre><{ELEMENT}>",
    f"</figure></section><{ELEMENT}>&lt;{ELEMENT}&gt;",
    "<!-- <script",
    "]]><![CDATA[",
    '" onmouseover="run()',
    "javascript:run()",
    f"{{{{ '{ELEMENT}' ~ 'ran' }}}}",
    "{% endmacro %}",
    "`<b>`code`</code>",
    "[red]bold[/nope]",
    r"$\frac{x_{$ and \alpha^",
    "=cmd|' /C calc'!A0",
    "\x1b[2J\x1b]0;title\x07",
    "\u202eright\u2066 to left ☃ жук",
    "a\0b",
    "\ud800",
    "../../outside/secret.txt",
    "/" * 300,
    "long " * 5_000,
    "",
    " ",
]
NUMBERS = ["nan", "inf", "-inf", "NaN", "1e308", "-1e308", "1e400", "1e-320", "-0", "0", "-1", "0.5", "9" * 400, "1_0"]
BYTES = [b"\0", b"\xff\xfe", bytes(range(256)), b"\xed\xa0\x80", "жук".encode("cp1251"), b"\r\n", b'"', b"\x80" * 5_000]
DEPTH = 100_000


class Pickled:
    """An object that would write a file if it were loaded."""

    def __reduce__(self):
        return os.system, ("touch ran",)


def mutate(chance, folder, name):
    """Change the file `name` of a run, and return what was changed."""
    path, kind = folder / name, name.rpartition(".")[2]
    changes = {"csv": [_line, _column, _cell, _cell], "json": [_value, _value, _value], "npz": [_array, _array, _array]}
    change = chance.choice([_bytes, _encoded, _place, _nested, _named, *changes.get(kind, [_text, _text])])
    return f"{name}: {change(chance, path)}"


def mutate_several(chance, folder, names):
    """Change several files of a run, or the folder itself."""
    if chance.random() < 0.7:
        return "; ".join(mutate(chance, folder, name) for name in chance.sample(names, min(len(names), 4)))
    said = chance.choice(["a page that is a folder", "a page that is a link", "geometry", "each file", "no file"])
    page, outside = folder / "report.html", folder.parent / "outside"
    page.unlink(missing_ok=True)
    if said == "a page that is a folder":
        page.mkdir()
    elif said == "a page that is a link":
        page.symlink_to(outside / "secret.txt")
    elif said == "geometry":
        shutil.rmtree(folder / "geometry")
        return f"{said}: {chance.choice(_PLACES)(folder / 'geometry')}"
    for name in names if said in ("each file", "no file") else []:
        (folder / name).unlink()
        if said == "each file":
            (folder / name).write_bytes(chance.choice(BYTES))
    return said


def _bytes(chance, path):
    held = path.read_bytes()
    start, end = sorted(chance.randrange(len(held) + 1) for _ in range(2))
    some = chance.choice(BYTES)
    kinds = {
        f"cut at byte {start}": held[:start],
        f"without its first {start} bytes": held[start:],
        f"without bytes {start} to {end}": held[:start] + held[end:],
        "doubled": held + held,
        "emptied": b"",
        f"{some[:8]!r} at byte {start}": held[:start] + some + held[start:],
        f"{some[:8]!r} instead of bytes {start} to {end}": held[:start] + some + held[end:],
        "backwards": held[::-1],
    }
    return _written(path, kinds, chance.choice(list(kinds)))


def _encoded(chance, path):
    text = path.read_bytes().decode("utf-8", errors="replace")
    kinds = {name: text.encode(name, errors="replace") for name in ("utf-16", "utf-32-be", "cp037", "utf-7")}
    kinds |= {"a byte order mark": b"\xef\xbb\xbf" + text.encode(), "lines of a Mac": text.replace("\n", "\r").encode()}
    kinds |= {"latin-1": text.replace("e", "é").encode("latin-1", errors="replace")}
    return _written(path, kinds, chance.choice(list(kinds)))


def _written(path, kinds, said):
    path.write_bytes(kinds[said])
    return said


_PLACES = [
    lambda path: "deleted",
    lambda path: path.mkdir() or "a folder",
    lambda path: path.symlink_to("nothing") or "a link to nothing",
    lambda path: path.symlink_to(path.name) or "a link to itself",
    lambda path: path.symlink_to(path.parent) or "a link to its folder",
    lambda path: path.symlink_to("/dev/zero") or "a link to a device",
    lambda path: path.symlink_to(path.parent / "run.json") or "a link to run.json",
    lambda path: os.mkfifo(path) or "a named pipe",
]


def _place(chance, path):
    path.unlink()
    return chance.choice(_PLACES)(path)


def _nested(chance, path):
    opened, closed = chance.choice([("[", "]"), ('{"a":', "}"), ('{"model": [', "]}"), ("- ", "")])
    whole = chance.random() < 0.5
    path.write_text(opened * DEPTH + (f"1{closed * DEPTH}" if whole else ""))
    return f"{DEPTH} of {opened!r}{', closed' if whole else ''}"


def _named(chance, path):
    """A second file whose name is hostile."""
    stem = chance.choice([text for text in TEXTS if "/" not in text and "\0" not in text and 0 < len(text) < 80])
    name = stem.encode("utf-8", errors="surrogateescape" if stem == "\udcff" else "replace").decode() + path.suffix
    shutil.copy(path, path.with_name(name))
    return f"again as {name!r}"


def _line(chance, path):
    lines = path.read_text().splitlines(keepends=True)
    k, j = chance.randrange(len(lines)), chance.randrange(len(lines))
    kinds = {
        f"lines {k} and {j} swapped": [lines[{k: j, j: k}.get(n, n)] for n in range(len(lines))],
        f"line {k} twice": [*lines[: k + 1], *lines[k:]],
        f"no line {k}": [*lines[:k], *lines[k + 1 :]],
        f"line {k} is text": [*lines[:k], chance.choice(TEXTS) + "\n", *lines[k + 1 :]],
        "only the header": lines[:1],
        "no header": lines[1:],
        "each line 3,000 times": lines[:1] + lines[1:] * 3_000,
    }
    said = chance.choice(list(kinds))
    path.write_bytes("".join(kinds[said]).encode("utf-8", errors="surrogatepass"))
    return said


def _rows(path):
    return list(csv.reader(io.StringIO(path.read_text(), newline="")))


def _save(path, rows):
    file = io.StringIO()
    csv.writer(file, lineterminator="\n").writerows(rows)
    path.write_bytes(file.getvalue().encode("utf-8", errors="surrogatepass"))


def _column(chance, path):
    rows = _rows(path)
    k, j = chance.randrange(len(rows[0])), chance.randrange(len(rows[0]))
    value = chance.choice([*TEXTS, *NUMBERS])
    kinds = {
        f"columns {k} and {j} swapped": lambda row: [row[{k: j, j: k}.get(n, n)] for n in range(len(row))],
        f"the names of columns {k} and {j} swapped": None,
        f"column {k} twice": lambda row: [*row[: k + 1], *row[k:]],
        f"no column {k}": lambda row: [*row[:k], *row[k + 1 :]],
        f"column {k} is {value[:40]!r}": lambda row: [*row[:k], value, *row[k + 1 :]],
        f"column {k} is called {value[:40]!r}": None,
    }
    said = chance.choice(list(kinds))
    if change := kinds[said]:
        body = [change(row) for row in rows[1:]]
        header = rows[0] if said.startswith(f"column {k} is") else change(rows[0])
    else:
        header, body = [*rows[0]], rows[1:]
        header[k], header[j] = (value, header[j]) if "called" in said else (header[j], header[k])
    _save(path, [header, *body])
    return said


def _cell(chance, path):
    rows = _rows(path)
    k = chance.randrange(len(rows))
    j = chance.randrange(len(rows[k]))
    rows[k][j] = chance.choice([*TEXTS, *NUMBERS])
    _save(path, rows)
    return f"row {k}, column {j} is {rows[k][j][:40]!r}"


def _value(chance, path):
    """Another value or another key somewhere in a JSON file."""
    held = json.loads(path.read_text())
    places = list(_places(held))
    if not places:
        return _bytes(chance, path)
    around, key = chance.choice(places)
    values = [None, True, -1, 0, 0.5, 10**400, float("nan"), float("-inf"), [], {}, [[1]], {"a": {"b": 1}}]
    said = chance.choice(["deleted", "in a list", "renamed", "a value", "a text", "a text"])
    if said == "deleted":
        del around[key]
    elif said == "in a list":
        around[key] = [around[key]] * 2
    elif said == "renamed" and isinstance(around, dict):
        new = chance.choice(TEXTS)
        around[new] = around.pop(key)
        said = f"renamed {new[:40]!r}"
    else:
        around[key] = chance.choice(values if said == "a value" else TEXTS)
        said = f"{around[key]!r:.40}"
    path.write_text(json.dumps(held))
    return f"{key}: {said}"


def _places(held):
    for key, inner in held.items() if isinstance(held, dict) else enumerate(held):
        yield held, key
        if isinstance(inner, dict | list):
            yield from _places(inner)


def _text(chance, path):
    lines = path.read_text().splitlines()
    k, text = chance.randrange(len(lines)), chance.choice(TEXTS)
    key = lines[k].partition(":")[0]
    kinds = {f"line {k} is {text[:40]!r}": text, f"the value of line {k} is {text[:40]!r}": f"{key}: {text!r}"}
    kinds[f"line {k} asks for an object"] = f"{key}: !!python/object/apply:os.system ['touch ran']"
    kinds[f"line {k} has aliases of itself"] = f"{key}: &a [*a, *a]"
    said = chance.choice(list(kinds))
    path.write_bytes("\n".join([*lines[:k], kinds[said], *lines[k + 1 :]]).encode("utf-8", errors="surrogatepass"))
    return said


def _array(chance, path):
    with np.load(path) as file:
        held = dict(file)
    key = chance.choice([*["values"] * 2 * ("values" in held), *held])
    values = held[key].astype(np.float64)
    some = np.where(np.random.default_rng(chance.randrange(10**6)).random(values.shape) < 0.3, True, False)
    kinds = {
        "deleted": None,
        "pickled": np.array([Pickled()], dtype=object),
        "text": np.full(values.shape, TEXTS[0]),
        "complex": values + 1j,
        "whole numbers": np.nan_to_num(values).clip(-128, 127).astype(np.int8),
        "true": values > 0,
        "emptied": values[:0] if values.ndim else values.reshape(1)[:0],
        "one axis more": values[None],
        "one axis less": values.reshape(-1),
        "on its side": values.T,
        "one row": values[:1] if values.ndim else values,
        "doubled": np.concatenate([values, values]) if values.ndim else np.stack([values, values]),
        "negative": -values,
        "zero": np.zeros_like(values),
        **{
            f"{each} everywhere": np.full_like(values, float(each))
            for each in ("nan", "inf", "1e308", "-1e99", "1e-320")
        },
        **{f"{number} in places": np.where(some, float(number), values) for number in ("nan", "-inf", "1e308", "1e90")},
    }
    said = chance.choice(list(kinds))
    held[key] = kinds[said]
    np.savez(path, **{name: each for name, each in held.items() if each is not None})
    return f"{key}: {said}"
