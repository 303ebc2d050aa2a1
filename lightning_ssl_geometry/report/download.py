"""Links in an HTML page that save tables as CSV files, without a script or a server."""

__all__ = ["Numbers", "Saved", "layer_numbers", "listed", "saved", "series_numbers"]

import csv
import io
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from lightning_ssl_geometry.report.logs import Series
from lightning_ssl_geometry.report.records import Layers

_MOST = 600_000  # letters of a link; browsers refuse to save one of more than 2,000,000
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
_QUOTED = {code: quote(chr(code), safe=",") for code in range(128)}


@dataclass(frozen=True)
class Numbers:
    """A table. A row that is shorter than the header is filled with empty cells."""

    header: Sequence[str]
    rows: Sequence[Sequence[str | float]]


@dataclass(frozen=True)
class Saved:
    """A link that saves every `thinned`-th row of a table as the CSV file `file`."""

    file: str
    address: str
    thinned: int = 1


def saved(name: str, numbers: Numbers, most: int = _MOST) -> Saved:
    """Make a link that saves a table as a CSV file of at most `most` characters. Rows are omitted if needed.

    A text that a spreadsheet could read as a formula gets an apostrophe at its start. Special characters of `name`
    become `_` in the file name.

    >>> saved("loss", Numbers(["step", "loss"], [[1, 0.5]]))
    Saved(file='loss.csv', address='data:text/csv;charset=utf-8,step,loss%0A1,0.5%0A', thinned=1)
    """
    every, address = 1, _address(numbers.header, numbers.rows)
    while len(address) > most and every < len(numbers.rows):
        every *= 2
        address = _address(numbers.header, numbers.rows[(len(numbers.rows) - 1) % every :: every])  # with the last
    file = re.sub(r"[^\w.-]+", "_", name).strip("._")[:80] or "numbers"
    return Saved(f"{file}.csv", address, every)


def listed(header: Sequence[str], parts: Iterable[tuple[Sequence[str | float], Sequence[Iterable[Any]]]]) -> Numbers:
    """Join parts (cells, columns) to one table. Each row of a part has the same cells, then an entry of each column."""
    return Numbers(header, [(*cells, *row) for cells, columns in parts for row in zip(*columns, strict=True)])


def series_numbers(found: Iterable[Series]) -> Numbers:
    """Make a table of scalars with one row per value. The column `steps_done` is 0 for values before training."""
    parts = [((each.name,), (each.epoch, each.step, each.value, each.done)) for each in found]
    return listed(("scalar", "epoch", "step", "value", "steps_done"), parts)


def layer_numbers(layers: Layers) -> Numbers:
    """Make a table of all columns of layers.csv."""
    return listed(("layer", "width", *layers.values), [((), (layers.names, layers.width, *layers.values.values()))])


def _address(header: Sequence[str], rows: Sequence[Sequence[str | float]]) -> str:
    file = io.StringIO()
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow([_cell(name) for name in header])
    writer.writerows([_cell(value) for value in row] + [""] * (len(header) - len(row)) for row in rows)
    text = file.getvalue()
    quoted = text.translate(_QUOTED) if text.isascii() else quote(text, safe=",", errors="replace")
    return f"data:text/csv;charset=utf-8,{quoted}"


def _cell(value: str | float) -> str:
    if isinstance(value, str):
        return f"'{value}" if value.startswith(_FORMULA) else value
    number = float(value)
    return f"{number:.0f}" if number.is_integer() and abs(number) < 1e15 else f"{number:.9g}"
