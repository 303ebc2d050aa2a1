"""Table: a table on the page."""

__all__ = ["Table"]

from collections.abc import Collection, Sequence
from dataclasses import dataclass

from lightning_ssl_geometry.report.download import Saved


@dataclass(frozen=True)
class Table:
    """A table on the page."""

    header: Sequence[str]
    rows: Sequence[Sequence[str]]  # the first cell of each is its name
    chosen: Sequence[int] = ()  # rows that are bold
    saved: Saved | None = None  # the whole table as a link
    remark: str = ""  # a sentence below it
    look: str = ""  # a class of the style
    best: Collection[tuple[int, int]] = ()  # (row, column) of the cells that are bold; the row's name is column 0
    faint: Collection[tuple[int, int]] = ()  # cells that are grey
    colors: Sequence[str] = ()  # of the rows' names
