"""Make the README's tables of numbers from results/, and say which of them the README has otherwise.

    python examples/homomorphic_ssl/readme_tables.py --write    # put them into the README

`reproduce.py` writes the files of results/: copy OUTPUT/laptop/<what>/results.csv to results/<what>.csv (<what> ends
with _cifar10 for CIFAR-10). A table is found in the README by its first line.
"""

import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import law  # noqa: E402
from recipe import over_seeds, read, readme_command  # noqa: E402
from reproduce import ARMS, BASE_SIZES, CLASSIFIER_STEPS, DISTANCES, RATES, SCORES, STEPS, Row, by_cell  # noqa: E402

PAPER = {  # file -> transformation -> test accuracies in %, as far as we know them
    "table1": {
        "rotation": {"h-ssl": 70.3, "frozen": 87.2, "supervised": 99.4},
        "translation": {"h-ssl": 96.0, "frozen": 94.1, "supervised": 99.2},
        "scale": {"h-ssl": 98.3, "frozen": 94.7, "supervised": 99.3},
    },
    "table2": {
        "translation": {"a-ssl": 87.6, "frozen": 83.0, "supervised": 98.6},
        "scale": {"a-ssl": 95.2, "frozen": 87.2, "supervised": 99.3},
    },
    "table1_cifar10": {
        "rotation": {"a-ssl": 46.1, "h-ssl": 48.3, "frozen": 38.4, "supervised": 73.0},
        "translation": {"a-ssl": 39.2, "h-ssl": 36.3, "frozen": 40.4, "supervised": 76.2},
        "scale": {"a-ssl": 59.4, "h-ssl": 56.7, "frozen": 41.1, "supervised": 78.0},
    },
    "table2_cifar10": {"scale": {"a-ssl": 53.6, "h-ssl": 37.5, "frozen": 43.6, "supervised": 67.9}},
}
_BESIDE_TABLE1 = {
    "translation": {"translation, pairs at most two places apart": ["", "translation, h-ssl near", "", ""]},
    "scale": {"scale, kernels of 11 pixels (11/3)": [f"scale (11/3), {name}" for name in ARMS]},
}
BESIDE: dict[str, dict[str, dict[str, list[str]]]] = {  # file, transformation -> further line -> its cells, by arm
    "table1": _BESIDE_TABLE1,
    "table1_cifar10": _BESIDE_TABLE1,
    "table2": {"translation": {"MLP, shifts by half of the side": ["translation, a-ssl far", "", "", ""]}},
    "table2_cifar10": {},
}
MLPS = {"a-ssl": "A-SSL", "a-ssl far": "A-SSL, shifts by half of the side", "h-ssl": "H-SSL"}  # trained without labels
WITHOUT = {"translation": "MLP, translation", "scale": "CNN (6 x CHW), scale"}  # structure


def scores(what: str, score: str, cells: Sequence[str]) -> list[str]:
    """Mean and deviation over seeds of each cell, in %, from results/WHAT.csv."""
    found = by_cell(read(HERE / "results" / f"{what}.csv", Row), score)
    return [over_seeds([100 * value for value in found.get(cell, [])], ".1f") for cell in cells]


def by_arm(what: str, score: str) -> Iterator[list[str]]:
    """A line for each transformation; behind the classifier's accuracy, that of the paper."""
    for group, known in PAPER[what].items():
        cells = scores(what, score, [f"{group}, {name}" for name in ARMS])
        if score == "classifier":
            cells = [
                f"{cell} ({known[name]})" if name in known else cell for name, cell in zip(ARMS, cells, strict=True)
            ]
        yield [WITHOUT[group] if what.startswith("table2") else group, *cells]
        for said, beside in BESIDE[what].get(group, {}).items():
            yield [said, *scores(what, score, beside)]


def by_steps() -> Iterator[list[str]]:
    """The frozen scale networks by the steps of the classifier."""
    for score in SCORES:
        for kernels, said in (("paper's", "paper's kernels"), ("11/3", "11/3")):
            cells = [f"{kernels}, {steps}" for steps in CLASSIFIER_STEPS]
            yield [f"{score}, %, {said}", *scores("classifier", score, cells)]


def by_rate() -> Iterator[list[str]]:
    """Linear evaluation of the MLP on validation images, untrained and by the learning rate."""
    for name, said in MLPS.items():
        cells = [f"{name}, {rate:g}" for rate in RATES]
        yield [said, *scores("rates", "validation before", cells[:1]), *scores("rates", "validation after", cells)]


def by_ink() -> Iterator[list[str]]:
    """R^2 of the ink before and after training."""
    rows = read(HERE / "results" / "ink.csv", Row)
    for when in ("before", "after"):
        found = by_cell(rows, f"ink, R2 {when}")
        yield [f"{when} training", *(over_seeds(found[f"translation, {name}"], ".3f") for name in (*MLPS, *ARMS[2:]))]


def by_strength() -> Iterator[list[str]]:
    """H-SSL over translations by the number of steps and the limit of the distance, and the frozen network."""
    for score in SCORES:
        for steps in STEPS:
            cells = [f"{steps} steps, {limit}" for limit in ("none", 18, 4, "frozen")]
            yield [f"{score}, %, {steps:,} steps", *scores("strength", score, cells)]


def by_setting(what: str, settings: Sequence[object]) -> list[list[str]]:
    return [[f"{score}, %", *scores(what, score, [str(setting or "none") for setting in settings])] for score in SCORES]


def by_distance() -> list[list[str]]:
    """Accuracies by the limit of the distance, of all pairs and of pairs of different patches."""
    apart = [f"{limit}, apart" for limit in DISTANCES]
    other = [[f"{score}, %, never the same patch", *scores("distance", score, apart)] for score in SCORES]
    return [*by_setting("distance", DISTANCES), *other]


def by_base_size(what: str) -> list[list[str]]:
    """Accuracies by the base size, of all pairs and of pairs at most one place apart."""
    cells = [f"{size}, near" for size in BASE_SIZES]
    near = [[f"{score}, %, distance at most 1", *scores(what, score, cells)] for score in SCORES]
    return [*by_setting(what, BASE_SIZES), *near]


def tables() -> dict[tuple[str, ...], list[list[str]]]:
    """Header -> lines of each table."""
    arms = ("A-SSL", "H-SSL", "frozen", "supervised")
    measured = law.table(read(HERE / "results" / "law.csv", law.Row)).splitlines()
    header, _, *lines = ([cell.strip() for cell in line.strip("|").split("|")] for line in measured)
    limits = [str(each or "none") for each in DISTANCES]
    on_escnn = [f"rotation (escnn), {name}" for name in ("h-ssl", "frozen")]
    return {
        tuple(header): lines,
        **{(f"{score}, %", *arms): list(by_arm("table1", score)) for score in SCORES},
        ("frozen, scale", *(f"{steps} steps" for steps in CLASSIFIER_STEPS)): list(by_steps()),
        ("linear evaluation on validation images, %", "untrained", *(f"{rate:g}" for rate in RATES)): list(by_rate()),
        ("R^2 of the ink", *MLPS.values(), *ARMS[2:]): list(by_ink()),
        ("largest squared distance", "none", "18", "4", "frozen"): list(by_strength()),
        **{(f"{score} without structure, %", *arms): list(by_arm("table2", score)) for score in SCORES},
        **{(f"{score} on CIFAR-10, %", *arms): list(by_arm("table1_cifar10", score)) for score in SCORES},
        **{
            (f"{score} without structure on CIFAR-10, %", *arms): list(by_arm("table2_cifar10", score))
            for score in SCORES
        },
        ("base space, fibers of the 8 x 8 (left)", *map(str, BASE_SIZES)): by_base_size("base_size"),
        ("base space, fibers of the 9 x 9 (left, CIFAR-10)", *map(str, BASE_SIZES)): by_base_size("base_size_cifar10"),
        ("largest squared distance of a pair (right)", *limits): by_distance(),
        ("largest squared distance of a pair (right, CIFAR-10)", *limits): by_setting("distance_cifar10", DISTANCES),
        ("rotation", "H-SSL", "frozen"): [[f"{score}, %", *scores("escnn", score, on_escnn)] for score in SCORES],
    }


if __name__ == "__main__":
    readme_command(__doc__, HERE / "README.md", tables())
