"""Make the README's tables of numbers from results/, and say which of them the README has otherwise.

    python examples/geometry_of_contrastive_learning/readme_tables.py --write    # put them into the README

`reproduce.py` writes the files of results/: copy OUTPUT/<grid>/results.csv to results/<grid>.csv, and the other files
of OUTPUT/strengths as they are. strengths_again.csv is of a repetition on another processor. A table is found in the
README by its first line.
"""

import csv
import math
import sys
from collections.abc import Callable, Iterator, Sequence
from functools import cache, partial
from pathlib import Path

import torch

from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank, singular_values_rank

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from after_training import DIRECTIONS, HIDDEN, LENGTHS, PARTS, POOLS, STRENGTHS, WIDTHS  # noqa: E402
from paper_figures import ACTIONS  # noqa: E402
from recipe import over_seeds, readme_command  # noqa: E402
from reproduce import ONE_BY_ONE, Singular, ranks  # noqa: E402

NINETY_PERCENT = partial(singular_values_rank, tau=0.9, mode="cumulative")
AT_LEAST = partial(singular_values_rank, tau=0.1, mode="absolute")
EPOCHS = (0, 2, 10, 20, 30)  # of the table of the longer runs
SHARES = (("", ""), ("_random", "null: a random W with its own dh"), ("_between_samples", "null: between samples"))
PROJECTORS = ("linear", *(f"MLP {hidden} x {width}" for width in (64, 256) for hidden in (1, 3)))


@cache
def held(grid: str) -> list[dict[str, str]]:
    """The rows of results/GRID.csv."""
    with (HERE / "results" / f"{grid}.csv").open(newline="") as file:
        return list(csv.DictReader(file))


def rows(grid: str, /, **equal: str) -> list[dict[str, str]]:
    """Those of them that have these values."""
    found = [row for row in held(grid) if all(row[key] == value for key, value in equal.items())]
    if not found:
        raise ValueError(f"Expected rows of {equal} in results/{grid}.csv, but got none.")
    return found


def values(grid: str, group: str, name: str, column: str = "last") -> list[float]:
    """A scalar of the runs of a group, in the order of the seeds."""
    return [float(row[column]) for row in rows(grid, group=group, name=name)]


def mean(found: Sequence[float], digits: str) -> str:
    return over_seeds(found, digits).partition(" ±")[0]


def changes(grid: str, group: str, name: str, digits: str, of: Callable[[float], float] = lambda value: value) -> str:
    """Mean before training -> mean and deviation after it, of a function of the scalar."""
    first, last = ([of(value) for value in values(grid, group, name, column)] for column in ("first", "last"))
    return f"{mean(first, digits)} -> {over_seeds(last, digits)}"


def by_strength(cell: Callable[[str], str]) -> list[str]:
    return [cell(strength) for strength in STRENGTHS]


def at_the_end(name: str, digits: str = ".3f") -> list[str]:
    """A scalar of the strengths at the end of training."""
    return by_strength(lambda strength: over_seeds(values("strengths", strength, f"probe/{name}"), digits))


def mean_at_the_end(*names: str, digits: str = ".3f") -> list[str]:
    def cell(strength: str) -> str:
        return "; ".join(mean(values("strengths", strength, f"probe/{name}"), digits) for name in names)

    return by_strength(cell)


def over_time(name: str, digits: str = ".3f", of: Callable[[float], float] = lambda value: value) -> list[str]:
    return by_strength(lambda strength: changes("strengths", strength, f"probe/{name}", digits, of))


def percent(share: float) -> float:
    return 100 * share


def falls(strength: str) -> str:
    """By how much the loss falls during training, and by how much its bound."""
    pairs = (
        zip(*(values("strengths", strength, f"probe/{name}", at) for at in ("first", "last")), strict=True)
        for name in ("bound_info_nce", "bound_upper")
    )
    return "; ".join(over_seeds([first - last for first, last in pair], ".2f") for pair in pairs)


def cosines_change(strength: str) -> str:
    """By how much the cosine of the hardest negative changes during training, and by how much that of the positive."""
    changed = []
    for name, sign in (("bound_repulsion", 1), ("bound_invariance", -1)):  # the invariance part is minus a cosine
        first, last = (values("strengths", strength, f"probe/{name}", at) for at in ("first", "last"))
        changed.append([sign * (after - before) for before, after in zip(first, last, strict=True)])
    return "; ".join(over_seeds(each, ".2f") for each in changed)


def claims() -> Iterator[list[str | None]]:
    """The numbers beside the paper's claims, whose words stand in the README."""
    numbers = [
        over_time("projector_rank", ".1f"),
        by_strength(
            lambda name: over_seeds([100 * share for share in values("strengths", name, "accuracy/trained")], ".1f")
        ),
        [cell.replace("; ", " <= ") for cell in mean_at_the_end("bound_info_nce", "bound_upper", digits=".2f")],
        by_strength(falls),
        by_strength(cosines_change),
        by_strength(after_the_first_epoch),
        over_time("effective_rank_h", ".1f"),
        over_time("hardest_negative_distance"),
        by_strength(from_h2),
        by_strength(spread),
        over_time("label_agreement_fine", ".1f", percent),
        over_time("hardest_negative_pair", ".2f"),
        over_time("hardest_negative_between_samples", ".2f"),
        over_time("bound_entropy", ".0f", math.exp),
    ]
    for cells in numbers:
        yield [None, *cells, None]


def relative_gain() -> list[str]:
    """The gain on augmentations over that between samples, of each run."""

    def cell(strength: str) -> str:
        both = (values("strengths", strength, f"probe/gain_{name}") for name in ("augmentations", "between_samples"))
        return over_seeds([one / other for one, other in zip(*both, strict=True)], ".2f")

    return by_strength(cell)


def spread(strength: str) -> str:
    """Counts of the directions of augmentations, before and after training: entropy, 90%, and Eq. 2 at 0.1."""
    of = rows("augmentation_spectra", group=strength)
    seeds = dict.fromkeys(row["seed"] for row in of)
    cells = []
    for rank, digits in ((singular_values_effective_rank, ".1f"), (NINETY_PERCENT, ".0f"), (AT_LEAST, ".0f")):
        ends = []
        for end in ("first", "last"):
            spectra = (torch.tensor([float(row[end]) for row in of if row["seed"] == seed]) for seed in seeds)
            ends.append([float(rank(spectrum)) for spectrum in spectra])
        cells.append(f"{over_seeds(ends[0], digits)} -> {over_seeds(ends[1], digits)}")
    return "; ".join(cells)


def spread_of_policies() -> Iterator[list[str]]:
    """Directions of each policy's augmentations behind each encoder, before and after training, and of samples."""
    views = [(name, {"views": name, "of": "augmentations"}) for name in STRENGTHS]
    views.append(("null: clean samples", {"of": "between samples"}))
    counts = (("effective_rank", "effective rank", ".1f"), ("ninety", "90% of the squares", ".0f"))
    for column, said, digits in (*counts, ("absolute", "at least 0.1 (Eq. 2)", ".0f")):
        for name, which in views:
            cells = []
            for encoder in STRENGTHS:
                found = (rows("spread", encoder=encoder, trained=trained, **which) for trained in "01")
                before, after = ([float(row[column]) for row in of] for of in found)
                cells.append(f"{mean(before, digits)} -> {over_seeds(after, digits)}")
            yield [f"{said}; {name}", *cells]


def overlaps() -> Iterator[list[str]]:
    """How much of the leading directions lies in the columns of W, before and after training."""
    for kind, said in (
        (
            "augmentations",
            "share of the 64 leading directions of augmentations in the columns of W (mean squared cosine of the "
            "principal angles), start -> end",
        ),
        ("between_samples", "null: of those between samples, start -> end"),
    ):
        cells = []
        for strength in STRENGTHS:
            of = rows("angles", group=strength, directions=kind)
            first, last = ([float(row[end]) for row in of] for end in ("first", "last"))
            cells.append(f"{mean(first, '.3f')} -> {over_seeds(last, '.3f')}")
        yield [said, *cells]


def augmentations_and_null_spaces() -> list[list[str]]:
    full, leading = "unexplained_variance_full", "unexplained_variance_tau"
    whose = "directions of W that carry 90%"
    return [
        ["**Prop. 4.1**: gain of W on augmentations, over that between samples", *relative_gain()],
        ["gain on augmentations (1 for isotropic directions)", *at_the_end("gain_augmentations", ".2f")],
        ["null: gain between samples", *at_the_end("gain_between_samples", ".2f")],
        [f"share of augmentations outside the {whose}", *at_the_end("null_space_fraction")],
        ["null: between samples", *at_the_end("null_space_between_samples")],
        [
            "isotropic directions; least of any subspace of that dimension",
            *mean_at_the_end("null_space_isotropic", "null_space_floor"),
        ],
        *overlaps(),
        ["**Eq. 10, Fig. 7**: share of dh outside all of W, start -> end", *over_time(full)],
        *([said, *at_the_end(full + null)] for null, said in SHARES[1:]),
        ["least of any subspace of that dimension", *mean_at_the_end(f"{full}_floor")],
        [f"share of dh outside the {whose}", *at_the_end(leading)],
        *([said, *at_the_end(leading + null)] for null, said in SHARES[1:]),
        ["**Eq. 8 and 9**: cosine of W W^T h1 and dh, start -> end", *over_time("alignment_cosine")],
        ["null: a random W with its own dh", *at_the_end("alignment_random")],
        ["null: the identity in place of W W^T", *at_the_end("alignment_identity")],
        ["for comparison: any negative in place of h*, start -> end", *over_time("alignment_any_negative")],
    ]


def generators(prefix: str) -> Iterator[list[str]]:
    """The gain of W on each one-parameter group, or the R² of its generator."""
    for action in ACTIONS:
        said = f"{action}, in no policy" if action == "rotation" and prefix == "policy_gain" else action
        yield [said, *at_the_end(f"{prefix}_{action}", ".2f")]


def untrained(name: str) -> str:
    found = [value for strength in STRENGTHS for value in values("strengths", strength, f"probe/{name}", "first")]
    return mean(found, ".2f")


def generators_fit() -> Iterator[list[str]]:
    for said, *cells in generators("policy_r2"):
        yield [said, untrained(f"policy_r2_{said}"), *cells]
    yield ["null: shuffled", untrained("policy_r2_shuffled"), *at_the_end("policy_r2_shuffled", ".2f")]


def other_pools(column: str, factor: float, digits: str) -> Iterator[list[str]]:
    for views in ("own", "moderate", "clean"):
        for pool in POOLS["laptop"]:
            found = (of_pool(strength, views, pool) for strength in STRENGTHS)
            cells = [over_seeds([factor * float(row[column]) for row in of], digits) for of in found]
            yield [f"{views}, {pool}", *cells]


def of_pool(strength: str, views: str, pool: int, trained: int = 1) -> list[dict[str, str]]:
    return rows("pools", strength=strength, views=views, pool=str(pool), trained=str(trained))


def from_h2(strength: str) -> str:
    """The distance of h2 to h*, among the most samples and with a run's own views, over two others."""
    cells = []
    for other, digits in (("between_samples", ".2f"), ("pair", ".2f")):
        ends = []
        for trained in (0, 1):
            of = of_pool(strength, "own", POOLS["laptop"][-1], trained)
            ends.append([float(row["from_h2"]) / float(row[other]) for row in of])
        cells.append(f"{mean(ends[0], digits)} -> {over_seeds(ends[1], digits)}")
    return "; ".join(cells)


def after_the_first_epoch(strength: str) -> str:
    """By how much the cosine of h*'s z changes after the first epoch, and by how much that of h2's z."""
    cells = []
    for name, sign in (("repulsion", 1), ("invariance", -1)):  # the invariance part is minus a cosine
        of = rows("over_training", group=strength, name=f"bound_{name}")
        values = {(row["seed"], float(row["epochs"])): float(row["value"]) for row in of}
        last = max(epochs for _, epochs in values)
        seeds = dict.fromkeys(row["seed"] for row in of)
        cells.append(over_seeds([sign * (values[seed, last] - values[seed, 1.0]) for seed in seeds], ".2f"))
    return "; ".join(cells)


def behind_fixed_encoders() -> Iterator[list[str]]:
    for encoder in STRENGTHS:
        for trained in ("untrained", *STRENGTHS):
            found = (rows("alone", encoder=encoder, trained=trained, measured=measured) for measured in STRENGTHS)
            ratios = ([float(row["gain"]) / float(row["between_samples"]) for row in of] for of in found)
            yield [f"{encoder}; {trained}", *(over_seeds(ratio, ".2f") for ratio in ratios)]


def one_by_one() -> Iterator[list[str]]:
    of = partial(values, "augmentations")
    for group, said in zip(ONE_BY_ONE, ("flip", "+ grayscale", "+ crop", "+ jitter"), strict=True):
        distances = (of(group, f"probe/hardest_negative_{name}") for name in ("distance", "pair"))
        yield [
            said,
            over_seeds(of(group, "probe/projector_rank"), ".1f"),
            over_seeds([100 * value for value in of(group, "accuracy/trained")], ".1f"),
            changes("augmentations", group, "probe/augmentation_rank", ".1f"),
            over_seeds(of(group, "probe/effective_rank_h"), ".1f"),
            ", ".join(mean(found, ".2f") for found in distances),
            over_seeds([100 * value for value in of(group, "probe/label_agreement_fine")], ".1f"),
        ]


def projectors() -> Iterator[list[str]]:
    for strength in STRENGTHS:
        for projector in PROJECTORS:
            group = f"{projector}, {strength}"
            of = partial(values, "projectors", group)
            unexplained, null, cosine, random = (
                over_seeds(of(f"probe/{name}"), digits)
                for name, digits in (
                    ("local_unexplained_variance_full", ".3f"),
                    ("local_unexplained_variance_full_between_samples", ".3f"),
                    ("alignment_cosine", ".2f"),
                    ("alignment_random", ".2f"),
                )
            )
            yield [
                group,
                changes("projectors", group, "probe/jacobian_rank", ".1f"),
                over_seeds([100 * value for value in of("accuracy/trained")], ".1f"),
                over_seeds(of("probe/linear_regions_visited"), ".0f"),
                f"{unexplained} ({null})",
                f"{cosine} ({random})",
                over_seeds(of("probe/effective_rank_h"), ".1f"),
            ]


def sharper() -> Iterator[list[str]]:
    """Large augmentations at beta = 2 and at beta = 10."""
    grids = ("strengths", "sharp")

    def change(said: str, name: str, digits: str, of: Callable[[float], float] = lambda value: value) -> list[str]:
        return [said, *(changes(grid, "large", name, digits, of) for grid in grids)]

    for said, name in (("loss", "info_nce"), ("bound", "upper")):
        yield change(f"{said} (Fig. 3)", f"probe/bound_{name}", ".2f")
    yield change("exp of the entropy of the negatives' weights", "probe/bound_entropy", ".0f", math.exp)
    yield change("**Eq. 8 and 9**: cosine of W W^T h1 and dh", "probe/alignment_cosine", ".3f")
    for null, said in (
        ("random", "null: a random W with its own dh"),
        ("identity", "null: the identity in place of W W^T"),
        ("any_negative", "for comparison: any negative in place of h*"),
    ):
        yield change(said, f"probe/alignment_{null}", ".3f")
    yield change("**Eq. 10**: share of dh outside all of W", "probe/unexplained_variance_full", ".3f")
    for null, said in SHARES[1:]:
        yield change(said, f"probe/unexplained_variance_full{null}", ".3f")
    yield change("gain of W on augmentations", "probe/gain_augmentations", ".2f")
    yield change("null: between samples", "probe/gain_between_samples", ".2f")
    yield change("rank of W (90%)", "probe/projector_rank", ".1f")
    yield change("labels shared with h*, %", "probe/label_agreement_fine", ".1f", percent)
    yield [
        "linear evaluation of h, %",
        *(over_seeds([100 * value for value in values(grid, "large", "accuracy/trained")], ".1f") for grid in grids),
    ]


def spans() -> Iterator[list[str]]:
    """The rank of W and its relative gain, by the length and the span of augmentations."""
    for length in (f"{length:g}" for length in LENGTHS):
        for dimensions in dict.fromkeys(row["dimensions"] for row in rows("spans", length=length)):
            found = [rows("spans", encoder=name, length=length, dimensions=dimensions) for name in STRENGTHS]
            ranks = [over_seeds([float(row["rank"]) for row in of], ".1f") for of in found]
            ratios = [
                mean([float(row["gain"] or "nan") / float(row["between_samples"] or "nan") for row in of], ".2f")
                for of in found
            ]
            cells = [f"{rank}; {ratio}" if ratio else rank for rank, ratio in zip(ranks, ratios, strict=True)]
            yield [f"{length}, {dimensions}" if float(length) else "no augmentations", *cells]


def weaker() -> Iterator[list[str]]:
    """R² of generators of transformations at full and at an eighth of the strength, in 32 and all 128 directions."""
    for action in ACTIONS:
        for dimensions in map(str, DIRECTIONS):
            cells = []
            for encoder in STRENGTHS:
                of = {
                    part: [
                        float(row["r2"])
                        for row in rows("generators", encoder=encoder, action=action, dimensions=dimensions)
                        if float(row["part"]) == part
                    ]
                    for part in (PARTS[0], PARTS[-1])
                }
                first, last = of.values()
                cells.append(f"{mean(first, '.2f')} -> {over_seeds(last, '.2f')}")
            yield [f"{action}, {dimensions}", *cells]


def regions() -> Iterator[list[str]]:
    for hidden in HIDDEN:
        for width in WIDTHS:
            found = (rows("regions", encoder=name, hidden=str(hidden), width=str(width)) for name in STRENGTHS)
            cells = [
                " -> ".join(over_seeds([float(row[key]) for row in of], ".0f") for key in ("first", "last"))
                for of in found
            ]
            yield [f"{hidden} x {width}", *cells]


def longer() -> Iterator[list[str]]:
    for strength in ("small", "large"):

        def at(epoch: int, name: str, strength: str = strength) -> float:
            found = (
                row for row in rows("long_over_training", group=strength, name=name) if float(row["epochs"]) == epoch
            )
            return float(next(found)["value"])

        named = ("share of dh outside all of W (Eq. 10)", *(said for _, said in SHARES[1:]))
        for (null, _), said in zip(SHARES, named, strict=True):
            yield [f"{strength}: {said}", *(f"{at(epoch, f'unexplained_variance_full{null}'):.3f}" for epoch in EPOCHS)]
        distances = [[at(epoch, f"hardest_negative_{name}") for name in ("pair", "distance")] for epoch in EPOCHS]
        yield [f"{strength}: distance to h2, to h*", *(f"{pair:.2f}, {negative:.2f}" for pair, negative in distances)]
        gain = [at(epoch, "gain_augmentations") / at(epoch, "gain_between_samples") for epoch in EPOCHS]
        yield [
            f"{strength}: gain on augmentations over that between samples (Prop. 4.1)",
            *(f"{value:.2f}" for value in gain),
        ]
        yield [f"{strength}: rank of W (90%)", *(f"{at(epoch, 'projector_rank'):.0f}" for epoch in EPOCHS)]


def tables() -> dict[tuple[str, ...], Sequence[Sequence[str | None]]]:
    """Header -> lines of each table."""
    policies = tuple(f"on {strength}" for strength in STRENGTHS)
    singular = [
        Singular(row["group"], row["seed"], int(row["index"]), float(row["first"]), float(row["last"]))
        for row in held("spectra")
    ]
    spectra = ranks(singular).splitlines()
    header, _, *by_threshold = ([cell.strip() for cell in line.strip("|").split("|")] for line in spectra)
    return {
        ("claim (paper)", *STRENGTHS, "holds?"): list(claims()),
        tuple(header): by_threshold,
        ("quantity at the end, and its nulls", *STRENGTHS): augmentations_and_null_spaces(),
        ("gain of W, at the end", *STRENGTHS): [
            *generators("policy_gain"),
            ["null: between samples", *at_the_end("policy_gain_between_samples", ".2f")],
        ],
        ("R² of the generator", "untrained", *STRENGTHS): list(generators_fit()),
        ("distance to h*; views, pool", *STRENGTHS): list(other_pools("distance", 1, ".3f")),
        ("labels shared with h*, % (chance 10.0); views, pool", *STRENGTHS): list(other_pools("agreement", 100, ".1f")),
        ("count; views of", *(f"encoder of {strength}" for strength in STRENGTHS)): list(spread_of_policies()),
        ("encoder; W trained with", *policies): list(behind_fixed_encoders()),
        (
            *("augmentations", "rank of W (90%)", "linear evaluation, %", "rank of augmentations"),
            *("effective rank of h", "distance to h*, to h2", "labels shared with h*, %"),
        ): list(one_by_one()),
        (
            *("projector, strength", "rank of the Jacobian", "linear evaluation, %", "regions", "unexplained"),
            *("alignment", "effective rank of h"),
        ): list(projectors()),
        ("hidden layers x width, untrained -> trained", *STRENGTHS): list(regions()),
        ("large, start -> end", "beta = 2", "beta = 10"): list(sharper()),
        ("length and number of dimensions", *STRENGTHS): list(spans()),
        ("R², full strength -> an eighth; directions", *STRENGTHS): list(weaker()),
        ("after epochs", *map(str, EPOCHS)): list(longer()),
    }


if __name__ == "__main__":
    readme_command(__doc__, HERE / "README.md", tables())
