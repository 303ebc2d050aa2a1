"""README's table of diagnostics and the page `docs/readings.md`, made of what the classes declare.

    python docs/readings.py            # are both as they would be made?
    python docs/readings.py --write    # make them

A class with `section` and `quantities` that a room offers in its `__all__` is among them; nothing else is listed here.
"""

__all__ = ["page", "table", "with_table"]

import argparse
import inspect
import re
import sys
from collections.abc import Iterable, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))  # what the repository declares, not what happens to be installed

from lightning_ssl_geometry.cost import LETTERS, Cost  # noqa: E402
from lightning_ssl_geometry.diagnostics.card import range_of  # noqa: E402
from lightning_ssl_geometry.quantity import SECTIONS, Paper, Quantity  # noqa: E402

ROOMS = ("diagnostics", "callbacks", "methods")
_BEGIN, _END = "<!-- made by docs/readings.py: diagnostics -->", "<!-- end -->"
_UNCHANGED = {
    "rotation": "a rotation of the space",
    "scale": "another scale",
    "translation": "a shift of all rows",
    "permutation": "another order of the samples",
}
_INTRO = """# What each number says

<!-- made by docs/readings.py -->

Every quantity on the page of a run, with what low and high values mean, between which bounds it lies and where it comes
from. The sentences stand beside the code that computes the numbers, in the class that is named, and the page of a run
shows the same ones. N is the number of samples, V of views, D and P are the dimensions of h and z.
"""
_COST = """The work of each update and of each readout (`compute`), and the memory in between, grow as these sums do.
If a diagnostic keeps a fixed number of samples, N is at most that number. Settings, views and logarithms count as
constants. A term may be left out if others exceed it wherever there are more samples than dimensions. Each class
declares the sums as its `cost`. The contracts `cost` and `memory` of
{func}`~lightning_ssl_geometry.testing.check_diagnostic` count operations and bytes for several n, N and D, and compare.
The other letters are not varied.
"""


def declaring(*rooms: str) -> list[type]:
    """Find the classes of rooms that declare quantities."""
    modules = [import_module(f"lightning_ssl_geometry.{room}") for room in rooms]
    found = [getattr(module, name) for module in modules for name in module.__all__]
    return [each for each in found if inspect.isclass(each) and getattr(each, "quantities", None)]


def table(classes: Iterable[type]) -> str:
    """Write a Markdown table: a row for each section of the page, with its diagnostics, those of one paper together."""
    rows: dict[str, dict[str, list[str]]] = {}
    for each in classes:
        if any(not _serves(quantity) for quantity in _quantities(each).values()):
            papers = rows.setdefault(_section(each), {})
            papers.setdefault(_papers(_quantities(each).values()), []).append(f"`{each.__name__}`")
    lines = [f"| {_heading(section)} | {_joined(rows[section])} |" for section in _ordered(rows)]
    return "\n".join(["| on the page | diagnostics |", "| --- | --- |", *lines])


def page(classes: Sequence[type]) -> str:
    """Write the page: a heading for each section, and below it one for each quantity that is drawn; then all costs."""
    sections: dict[str, dict[tuple[str, str], list[str]]] = {}
    sources: dict[Paper, None] = {}
    for each in classes:
        quantities = _quantities(each)
        for key, quantity in quantities.items():
            if not _serves(quantity):
                entries = sections.setdefault(quantity.section or _section(each), {})
                entry = _entry(quantity, _beside(key, quantities)), _limits(quantity)
                entries.setdefault(entry, []).append(_named(each, key))
                sources |= {quantity.paper: None} if quantity.paper else {}
    parts = [_INTRO]
    for section in _ordered(sections):
        parts.append(f"## {_heading(section)}\n")
        for (entry, limits), names in sections[section].items():
            parts.append(f"{entry}\n\n{'; '.join(names)}.{f' {limits}' if limits else ''}\n")
    papers = [f"- {_linked(paper)}: {_text(paper.title)}" for paper in sorted(sources, key=lambda paper: paper.short)]
    costs = [each for each in classes if getattr(each, "cost", None)]
    return "\n".join([*parts, *([_costs(costs)] if costs else []), "## Papers\n", *papers, ""])


def with_table(readme: str, made: str) -> str:
    """Put a table into the place that the README keeps for it.

    Raises:
        ValueError: If there is no such place, or more than one.
    """
    place = re.compile(f"{re.escape(_BEGIN)}\n.*?{re.escape(_END)}", re.DOTALL)
    if len(place.findall(readme)) != 1:
        raise ValueError(f"Expected `readme` with {_BEGIN!r} and {_END!r} once, but got {len(place.findall(readme))}.")
    return place.sub(lambda _: f"{_BEGIN}\n{made}\n{_END}", readme)


def _costs(classes: Iterable[type]) -> str:
    """Write a section with a table: a row for each class, and below it what the letters mean."""
    rows = []
    for each in sorted(classes, key=lambda each: each.__name__):
        cost: Cost = each.cost  # type: ignore[attr-defined]
        said = f"`{cost.compute}`" + (f" (not counted: {_text(cost.uncounted)})" if cost.uncounted else "")
        rows.append(f"| `{each.__name__}` | `{cost.update}` | {said} | `{cost.memory}` |")
    letters = [f"- `{letter}`: {meaning}" for letter, meaning in LETTERS.items()]
    head = ["| diagnostic | an update | a readout | memory |", "| --- | --- | --- | --- |"]
    return "\n".join(["## Cost\n", _COST, *letters, "", *head, *rows, ""])


def _quantities(each: type) -> Mapping[str, Quantity]:
    return each.quantities  # type: ignore[attr-defined]


def _section(each: type) -> str:
    return getattr(each, "section", "other")


def _heading(section: str) -> str:
    return SECTIONS.get(section, section)


def _ordered(sections: Iterable[str]) -> list[str]:
    """Sections in the order of the page, a diagnostic's own ones at the end."""
    order = list(SECTIONS)
    return sorted(sections, key=lambda section: (order.index(section) if section in order else len(order), section))


def _serves(quantity: Quantity) -> bool:
    """Tell whether a result only says how to read another."""
    role = quantity.picture.role if quantity.picture else ""
    return (
        quantity.baseline or not quantity.shown or role in ("label", "overlay") or not (quantity.low or quantity.text)
    )


def _beside(key: str, quantities: Mapping[str, Quantity]) -> list[Quantity]:
    """The baselines of a result: its null, and those that are nobody's null and have its key before their own.

    A baseline whose key begins with that of no result is shown beside the first one.
    """
    nulls = {quantity.null for quantity in quantities.values()}
    drawn = [name for name, quantity in quantities.items() if not _serves(quantity)]
    own = [null] if (null := quantities[key].null) and null in quantities else []
    for name, quantity in quantities.items():
        if quantity.baseline and name not in nulls:
            before = [each for each in drawn if each and name.startswith(f"{each}_")]
            own += [name] if key == max(before, key=len, default=drawn[0]) else []
    return [quantities[name] for name in own]


def _entry(quantity: Quantity, beside: Iterable[Quantity]) -> str:
    """One quantity, without the classes that compute it."""
    said = " ".join(part for part in (quantity.text, _range(quantity), _remark(quantity)) if part)
    bullets = [("Low", quantity.low), ("High", quantity.high)]
    bullets += [(f"Beside it, {each.title}", each.text or each.low) for each in beside]
    lines = [f"- **{_text(name)}.** {_text(sentence)}" for name, sentence in bullets if sentence]
    blocks = [f"### {_text(quantity.title)}", _text(said), "\n".join(lines)]
    return "\n\n".join(block for block in blocks if block)


def _range(quantity: Quantity) -> str:
    said = range_of(quantity)
    said = said.replace(quantity.cap, f"`{quantity.cap}`") if quantity.cap else said
    return f"{said[0].upper()}{said[1:]}." if said else ""


def _remark(quantity: Quantity) -> str:
    return quantity.chart.remark if quantity.chart else ""


def _limits(quantity: Quantity) -> str:
    same = _listed([_UNCHANGED[each] for each in quantity.invariances])
    models = _listed(quantity.comparable)
    return " ".join(
        [f"Unchanged by {same}."] * bool(same) + [f"Models may be compared that differ in {models}."] * bool(models)
    )


def _listed(words: Iterable[str]) -> str:
    *some, last = [*words] or [""]
    return f"{', '.join(some)} and {last}" if some else last


def _named(each: type, key: str) -> str:
    """A class, the key of its result, and where that is from."""
    quantity = _quantities(each)[key]
    name = f"`{each.__name__}`, `{key}`" if key else f"`{each.__name__}`"
    where = f", {_text(quantity.where)}" if quantity.where else ""
    return f"{name} ({_linked(quantity.paper)}{where})" if quantity.paper else name


def _linked(paper: Paper) -> str:
    return f"[{_text(paper.short)}]({paper.address})" if paper.address else _text(paper.short)


def _papers(quantities: Iterable[Quantity]) -> str:
    return ", ".join(dict.fromkeys(quantity.paper.short for quantity in quantities if quantity.paper))


def _joined(papers: Mapping[str, list[str]]) -> str:
    return "; ".join(f"{', '.join(names)}{f' ({papers})' if papers else ''}" for papers, names in papers.items())


def _text(words: str) -> str:
    """Escape what Markdown would take for markup, but not code."""
    parts = re.split("(`[^`]*`)", words)
    return "".join(part if part.startswith("`") else re.sub(r"([*<\[\]|])", r"\\\1", part) for part in parts)


def main(arguments: list[str] | None = None) -> int:
    """Make the files, or compare; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write README.md and docs/readings.md")
    parser.add_argument("--root", type=Path, default=ROOT, help=argparse.SUPPRESS)
    options: Any = parser.parse_args(arguments)
    readme, readings = options.root / "README.md", options.root / "docs" / "readings.md"
    observers = declaring("diagnostics", "callbacks")
    made = {readme: with_table(readme.read_text(), table(observers)), readings: page(declaring(*ROOMS))}
    stale = [path for path, text in made.items() if not path.exists() or path.read_text() != text]
    for path in stale:
        if options.write:
            path.write_text(made[path])
        print(f"{path.relative_to(options.root)}: {'written' if options.write else 'not as the classes declare'}")
    return int(bool(stale) and not options.write)


if __name__ == "__main__":
    sys.exit(main())
