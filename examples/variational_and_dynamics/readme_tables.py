"""Make the README's tables of numbers from results/, and say which of them the README has otherwise.

    python examples/variational_and_dynamics/readme_tables.py --write    # put them into the README

`reproduce.py` writes the files of results/; figure_1_long.csv is the figure_1.csv of the network that was trained for
longer, and figure_1_seeds.csv has those of three seeds. A table is found in the README by its first line.
"""

import csv
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import dynamics  # noqa: E402
import figure_1  # noqa: E402
import figure_3  # noqa: E402
import flows  # noqa: E402
import kernel_identities  # noqa: E402
from recipe import over_seeds, read, readme_command  # noqa: E402

NAMES: dict[str, dict[str, str]] = {  # experiment of `dynamics` -> arm in the file -> arm in the README
    "Sec. 4.2": {},
    "Thm. 4.2": {"network": "network (Eq. 15)", "free points": "free points (Eq. 14)"},
    "Remark 4.4": {f"collinear, {size}": f"on a line, {size}" for size in dynamics.SIZES},
    "Prop. A.1 (2)": {"k f": "length"},
}


class SeedRow(NamedTuple):
    """One number of Fig. 1 with one seed."""

    seed: int
    data: str
    features: str
    quantity: str
    value: float


def held(name: str, kind: type[Any]) -> list[Any]:
    """The rows of results/NAME.csv."""
    return read(HERE / "results" / f"{name}.csv", kind)


def lines(table: str) -> list[list[str]]:
    """The cells of the lines of a Markdown table."""
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]


def named(table: str, names: dict[str, str]) -> list[list[str]]:
    """The same, with the README's names at the beginning of lines, where the files have others."""
    return [[names.get(name, name), *cells] for name, *cells in lines(table)]


def identities() -> list[kernel_identities.Row]:
    """The errors of the kernel's identities, whose places are numbers or the names of activations."""
    with (HERE / "results" / "kernel_identities.csv").open(newline="") as file:
        return [
            kernel_identities.Row(
                row["identity"],
                row["at"] if row["at"] in kernel_identities.ACTIVATIONS else float(row["at"]),
                int(row["seed"]),
                float(row["error"]),
            )
            for row in csv.DictReader(file)
        ]


def of_the_dynamics() -> Iterator[tuple[tuple[str, ...], list[list[str]]]]:
    """Header -> lines of the tables of `dynamics`."""
    rows = held("dynamics", dynamics.Row)
    for experiment, over, places, digits in dynamics.TABLES:
        yield (over, *map(str, places)), named(dynamics.table(rows, experiment, places, digits), NAMES[experiment])
    yield ("step", "predicted time", "measured", "measured / predicted"), lines(dynamics.times_table(rows))


def of_figure_1() -> list[list[str]]:
    """Both networks of CIFAR-10; the pixels are in the first file."""
    rows = held("figure_1", figure_1.Row)
    longer = [row for row in held("figure_1_long", figure_1.Row) if row.features != "pixels"]
    trained = {f"trained {of}": f"{of}, trained for 30 epochs" for of in "hz"}
    wide = [
        [f"{data}, twice the width", trained.get(of, of), *cells] for data, of, *cells in lines(figure_1.table(longer))
    ]
    return lines(figure_1.table(rows)) + wide


def of_seeds() -> Iterator[list[str]]:
    """Fig. 1's quantities with three seeds: the mean and the deviation."""
    rows = held("figure_1_seeds", SeedRow)
    for data, features in dict.fromkeys((row.data, row.features) for row in rows):
        of = [row for row in rows if (row.data, row.features) == (data, features)]
        cells = (over_seeds([row.value for row in of if row.quantity == name], ".3f") for name in figure_1.QUANTITIES)
        yield [figure_1.DATA[data].title, features, *cells]


def tables() -> dict[tuple[str, ...], Sequence[Sequence[str | None]]]:
    """Header -> lines of each table."""
    errors = identities()
    return {
        ("data", "features", *figure_1.QUANTITIES.values()): of_figure_1(),
        ("three seeds", "features", *figure_1.QUANTITIES.values()): list(of_seeds()),
        ("K", *map(str, figure_3.TABLED)): lines(figure_3.losses_table(held("figure_3", figure_3.Loss))),
        ("", "slope", "offset", "R²"): lines(figure_3.lines_table(held("figure_3_threshold", figure_3.Threshold))),
        ("Fig. 5", *flows.HEADER): flows.table(held("figure_5", flows.Row)),
        ("Fig. 6", *flows.HEADER): flows.table(held("figure_6", flows.Row)),
        **dict(of_the_dynamics()),
        ("Prop. 4.3", "largest relative error"): lines(kernel_identities.closed_form_table(errors)),
        ("", "over", "error at first", "at last", "power", "expected"): lines(kernel_identities.laws_table(errors)),
    }


if __name__ == "__main__":
    readme_command(__doc__, HERE / "README.md", tables())
