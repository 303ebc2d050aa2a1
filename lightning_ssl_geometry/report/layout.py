"""Which sections of a page share a row, how many columns it has, and which texts stand below which figure."""

__all__ = ["Below", "Explained", "below", "in_rows"]

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.panel import Panel

_COLUMNS = 3  # figures in a row
_Row = list[tuple[str, int]]


@dataclass(frozen=True)
class Explained:
    """The texts of a quantity that are new to a section."""

    quantity: Quantity
    text: str
    high: str
    low: str
    like: Mapping[str, str]  # "High and low" -> title of the earlier quantity that has the same texts


@dataclass(frozen=True)
class Below:
    """The texts below a figure."""

    texts: Sequence[Explained] = ()
    named: bool = False  # each text says which quantity it is about
    remark: str = ""
    explained_at: Sequence[Panel] = ()  # earlier figures of the section, which have texts of this one
    remarked_at: Panel | None = None  # the earlier figure that has the remark of this one


def in_rows(counts: Mapping[str, int]) -> list[_Row]:
    """Distribute sections over rows, in their order. A row is a list of (section, its columns).

    `counts` are the numbers of figures of the sections, 0 for a section that needs the whole width. Sections that fit
    into one row share it. A section with one figure shares the row of a larger neighbor, which then has two columns. A
    row has three columns, but a row of two figures has two, so that nothing of its width is empty.
    """
    rows: list[list[str]] = []
    for name, count in counts.items():
        used = sum(counts[each] or _COLUMNS for each in rows[-1]) if rows else _COLUMNS
        if 0 < count <= _COLUMNS - used:
            rows[-1].append(name)
        else:
            rows.append([name])
    place = 0
    while place + 1 < len(rows):
        pair = [*rows[place], *rows[place + 1]]
        if len(pair) == 2 and 1 in (sizes := [counts[name] for name in pair]) and 0 not in sizes:
            rows[place : place + 2] = [pair]
        place += 1
    return [[(name, _columns(counts[name], len(row))) for name in row] for row in rows]


def _columns(count: int, sections: int) -> int:
    # of a section with `count` figures, in a row of so many sections
    return min(count, _COLUMNS - 1) if sections > 1 or count == _COLUMNS - 1 else _COLUMNS


def below(panels: Sequence[Panel]) -> list[Below]:
    """Return the texts below the figures of a section. A text that an earlier figure has is left out and pointed to."""
    known, ends, said = dict[str, Panel](), dict[str, Quantity](), dict[str, Panel]()
    found = []
    for panel in panels:
        texts, at = list[Explained](), dict[str, Panel]()
        for quantity in panel.quantities:
            words = "\n".join((quantity.title, quantity.text, quantity.low, quantity.high))
            if words in known:
                at[known[words].name] = known[words]
                continue
            known[words] = panel
            texts.append(_explained(quantity, ends))
        first = said.setdefault(panel.remark, panel)
        again = first is not panel and bool(panel.remark)
        found.append(
            Below(texts, named=len(panel.quantities) > 1, remark="" if again else panel.remark,
                  explained_at=[*at.values()], remarked_at=first if again else None)
        )  # fmt: skip
    return found


def _explained(quantity: Quantity, ends: dict[str, Quantity]) -> Explained:
    new, like = dict[str, str](), dict[str, list[str]]()
    for word, said in (("text", quantity.text), ("high", quantity.high), ("low", quantity.low)):
        first = ends.setdefault(said, quantity)
        new[word] = said if first is quantity else ""
        if said and first is not quantity:
            like.setdefault(first.title, []).append(word)
    listed = {" and ".join(words).capitalize(): title for title, words in like.items()}
    return Explained(quantity, like=listed, **new)
