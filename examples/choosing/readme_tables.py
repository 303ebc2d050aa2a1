"""Make the README's tables of numbers from results/, and say which of them the README has otherwise.

    python examples/choosing/readme_tables.py --write    # put them into the README

`reproduce.py` writes the files of results/. A table is found in the README by its first line.
"""

import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import paired  # noqa: E402
from agreements import Row  # noqa: E402
from guard import HEADER, lines  # noqa: E402
from readouts import Readout  # noqa: E402
from recipe import read, readme_command  # noqa: E402

ALL, ALIKE = "the end, whether comparable or not", "the end, one method, temperature and width"
KNOBS = {  # the README's word -> that of the table
    "strength": "strength",
    "temperature": "temperature",
    "projector": "projector",
    "weight decay": "weight",
    "batch": "batch",
    "epochs": "epochs",
    "method": "method",
}
EARLY = "a fifth, one method, temperature and width"
LATER = "the end, runs with a fifth of one method, temperature and width"
Found = Mapping[str, Mapping[str, Row]]  # when -> score -> its row


def found_in(file: str) -> Found:
    found: dict[str, dict[str, Row]] = {}
    for row in read(HERE / "results" / file, Row):
        found.setdefault(row.when, {})[row.score] = row
    return found


def side_by_side(found: Found, columns: Sequence[str], by: str) -> list[list[str]]:
    """Tau and regret of each score of the column `by`, the best tau of that column first."""
    scores = sorted(found[by].values(), key=lambda row: -row.tau)
    beside = {row.score: [found[when].get(row.score) for when in columns] for row in scores}
    return [
        [score, *(text for row in rows for text in ((row.tau_text(), row.regret_text()) if row else ("", "")))]
        for score, rows in beside.items()
    ]


def by_knob(found: Found) -> Iterator[list[str]]:
    """Tau of each score among the runs that differ in one setting, the best mean of a row first."""
    rows = {score: [found[f"the end, {knob}"].get(score) for knob in KNOBS.values()] for score in found[ALL]}

    def mean(cells: Iterable[Row | None]) -> float:
        taus = [row.tau for row in cells if row is not None]
        return sum(taus) / len(taus)

    for score in sorted(rows, key=lambda score: -mean(rows[score])):
        yield [score, *(row.tau_text() if row else "" for row in rows[score])]


def of_study(file: str, data: str) -> dict[tuple[str, ...], list[list[str]]]:
    """The three tables of a study."""
    found = found_in(file)
    runs = {knob: next(iter(found[f"the end, {word}"].values())).runs for knob, word in KNOBS.items()}
    knobs = [f"{knob} ({count})" for knob, count in runs.items()]
    return {
        (data, "one method, temperature and width: tau", "regret", "all runs: tau", "regret"): side_by_side(
            found, (ALIKE, ALL), ALL
        ),
        (f"{data}: tau", *knobs): list(by_knob(found)),
        (data, "at a fifth: tau", "regret", "at the end: tau", "regret"): side_by_side(found, (EARLY, LATER), EARLY),
    }


def tables() -> dict[tuple[str, ...], list[list[str]]]:
    """Header -> lines of each table."""
    studies = of_study("study.csv", "digits") | of_study("study_cifar10.csv", "CIFAR-10")
    files = {"digits": HERE / "results" / "study_end.csv", "CIFAR-10": HERE / "results" / "study_cifar10_end.csv"}
    studies[paired.HEADER] = [line for data, file in files.items() for line in paired.saved(file, data)]
    return studies | {tuple(HEADER): list(lines(read(HERE / "results" / "guard.csv", Readout)))}


if __name__ == "__main__":
    readme_command(__doc__, HERE / "README.md", tables())
