"""How this recipe's figures are kept: rows in a CSV, a Markdown table, and what made them."""

import csv
import os
import platform
import resource
import sys
from collections.abc import Iterable, Sequence
from datetime import date
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

_PACKAGES = ("torch", "lightning", "scikit-learn", "numpy")


def write(rows: Sequence[NamedTuple], path: Path) -> Path:
    """Write rows of one kind to a CSV, numbers to six digits."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w", newline="") as file:
        writer = csv.writer(file, lineterminator="\n")
        writer.writerow(rows[0]._fields)
        writer.writerows([f"{cell:.6g}" if isinstance(cell, float) else cell for cell in row] for row in rows)
    return path


def save(figure: Any, path: Path) -> Path:
    """Write a figure as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """A table."""
    whole = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in whole)


def made_by(seconds: float) -> str:
    """The line below the tables: machine, versions, date, command and time, of the clock and of the processors."""
    own, fits = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    busy = own.ru_utime + own.ru_stime + fits.ru_utime + fits.ru_stime
    packages = ", ".join(f"{name} {version(name)}" for name in _PACKAGES)
    words = " ".join([Path(sys.argv[0]).name, *sys.argv[1:]])
    machine = f"{os.cpu_count()} cores of {platform.machine()}, {platform.system()}"
    time = f"{seconds:.0f} s, {busy:.0f} s of processor time"
    return f"{machine}; Python {platform.python_version()}, {packages}; {date.today()}; `{words}`: {time}"
