"""Run the recipe for every strength and seed, and draw the paper's figures from the runs.

    python examples/geometry_of_contrastive_learning/reproduce.py --size laptop --root FOLDER --output runs/geometry

`FOLDER` has train/<class>/* and test/<class>/* (for `--size paper`: where CIFAR-100 is, or is put; `--size smoke` needs
none). Runs that have finished are not repeated, so an interrupted command can be started again. Grids: `--grid
projectors` (linear, and MLPs of one and three hidden layers in two widths, by strength), `--grid augmentations` (one
added after the other), `--grid long` (small and large, 30 epochs) and `--grid sharp` (large, at beta = 10), all of size
laptop. In OUTPUT/<grid>/ the page comparison.html and PNGs hold the figures, results.csv the first and the last value
of every scalar of every run, spectra.csv the singular values of W before and after training, and each run's folder its
own report.html.

The other grids train no encoder: they take those of the strengths, which are trained first if they are not there.
`--grid pools` measures Figs. 5 and 6 with other views and numbers of samples, and before training. `--grid spread`
counts the directions that the augmentations of each policy span behind each encoder. `--grid alone` trains linear
projectors behind encoders that stand still, with each policy, `--grid regions` small MLPs, and `--grid spans` linear
projectors with augmentations made in h. `--grid generators` fits generators to weaker transformations. Each writes a
results.csv.
"""

import argparse
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lightning_ssl_geometry.functional.groups.rotation import rotation_rank
from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank, singular_values_rank
from lightning_ssl_geometry.report import Run, comparison_figures, read_run, write_comparison

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import after_training  # noqa: E402
from after_training import STRENGTHS  # noqa: E402
from paper_figures import (  # noqa: E402
    Rotations,
    Row,
    epochs_done,
    figure_3,
    figure_7,
    figure_7_with_nulls,
    figure_10,
    gain_spectra,
    gains,
    generators,
    rank_against_accuracy,
)
from recipe import (  # noqa: E402
    Fit,
    command,
    end_if_seeds_are_missing,
    errors_in_one_line,
    finished,
    grid,
    markdown,
    over_seeds,
    parser,
    paths,
    save,
    write,
)

VIEWS = "--data.init_args.views.init_args."
PROJECTOR = "--model.init_args.projector"
# Figure of the paper -> names of the comparison's figures.
FIGURES = {
    "1": ("projector_rank",),
    "4": ("spectrum_h_image",),
    "5": ("hardest_negative_histogram", "hardest_negative_distance"),
    "6": ("label_agreement",),
    "9": ("spectrum_h",),
    "eq_8": ("projection_alignment",),
    "prop_4_1": ("projector_gain_negatives",),
}
OVER_TRAINING = (
    *(f"unexplained_variance_full{null}" for null in ("", "_random", "_between_samples", "_floor")),
    *(f"unexplained_variance_tau{null}" for null in ("", "_random")),
    *("hardest_negative_distance", "hardest_negative_pair", "label_agreement_fine", "projector_rank"),
    *("gain_augmentations", "gain_between_samples", "effective_rank_h", "alignment_cosine", "alignment_random"),
    *(f"bound_{part}" for part in ("info_nce", "upper", "invariance", "repulsion")),
)
LATER = {
    **{"pools": after_training.pools, "spread": after_training.spread, "alone": after_training.alone},
    **{"regions": after_training.regions, "spans": after_training.spans, "generators": after_training.generators},
}
OVER_STRENGTHS = ("strengths", "long", "sharp")  # the grids whose runs have all diagnostics of the strengths' figures
RANK_OF_W = ("probe/projector_rank", "rank of W (90% of the sum of squares)")
RANK_OF_JACOBIAN = ("probe/jacobian_rank", "rank of the projector's Jacobian (90% of variance)")
ONE_BY_ONE = {  # large ones, in the order of Table 2
    "flip": ["crop_scale=[1.0,1.0]", "crop_ratio=[1.0,1.0]", "jitter=0.0", "grayscale=0.0"],
    "flip, gray": ["crop_scale=[1.0,1.0]", "crop_ratio=[1.0,1.0]", "jitter=0.0"],
    "flip, gray, crop": ["jitter=0.0"],
    "flip, gray, crop, jitter": [],
}


def settings(grid: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the groups to compare, and what each adds to the command line."""
    if grid in OVER_STRENGTHS:
        names = {"strengths": STRENGTHS, "long": ("small", "large"), "sharp": ("large",)}[grid]
        yield from ((name, [f"{VIEWS}strength={name}"]) for name in names)
    elif grid == "augmentations":
        for name, changed in ONE_BY_ONE.items():
            yield name, [f"{VIEWS}strength=large", *(f"{VIEWS}{change}" for change in changed)]
    else:
        for strength in STRENGTHS:
            views = f"{VIEWS}strength={strength}"
            yield f"linear, {strength}", [views]
            for width in (64, 256):
                for hidden in (1, 3):
                    yield f"MLP {hidden} x {width}, {strength}", [views, *mlp(hidden, width)]


def mlp(hidden: int, width: int) -> list[str]:
    arguments = {"in_dim": 128, "hidden_dim": width, "out_dim": 64, "depth": hidden + 1}
    return [
        f"{PROJECTOR}=lightning_ssl_geometry.nn.MLPProjector",
        *(f"{PROJECTOR}.init_args.{name}={value}" for name, value in arguments.items()),
    ]


def fit(options: argparse.Namespace, group: str, added: list[str], seed: int) -> Fit:
    folder = options.output / options.grid / group.replace(", ", "_").replace(" ", "") / f"seed{seed}"
    overlay = {"strengths": [], "long": ["long"], "sharp": ["sharp"]}.get(options.grid, ["grid"])
    configs = [HERE / f"{name}.yaml" for name in (options.size, *overlay)]
    words = command(options, folder, configs=configs, added=added, seed=seed, seeded=[VIEWS])
    return Fit(f"{group}, seed {seed}", words, folder, finished)


def check_whole(groups: dict[str, list[Path]]) -> None:
    """End the command if a finished run has fewer readouts or other evaluations than another: a file is damaged."""
    runs = [run for _, run in each_run(groups)]
    evaluated = [{(found.features, str(found.labels)) for found in run.evaluations} for run in runs]
    for run, found in zip(runs, evaluated, strict=True):
        if lost := set().union(*evaluated) - found or ({("trained", "all")} - found):
            said = ", ".join(f"{features} ({labels} labels)" for features, labels in sorted(lost))
            sys.exit(_damaged(run.folder / "linear_evaluation.csv", f"an evaluation of {said}", "none"))
    counts = [min((len(s.value) for name, s in run.scalars.items() if _probed(name)), default=0) for run in runs]
    most = max(counts)
    for run, count in zip(runs, counts, strict=True):
        if count < most:
            sys.exit(_damaged(run.folder / "metrics.csv", f"{most} readouts", f"{count}, fewer than in another run"))
        of_kind = [other for other in runs if other.scalars.keys() == run.scalars.keys()]  # of the same projector
        for name in {name for other in of_kind for name in other.arrays if _probed(name)}:
            rows = len(run.arrays[name].values) if name in run.arrays else 0
            expected = max(len(other.arrays[name].values) for other in of_kind if name in other.arrays)
            if rows < expected:
                file = run.folder / "geometry" / f"{name}.csv"
                sys.exit(_damaged(file, f"{expected} readouts", f"{rows}, fewer than in another run"))


def _probed(name: str) -> bool:
    return name.startswith("probe/")


def _damaged(file: Path, expected: str, got: str) -> str:
    version = next((folder for folder in file.parents if folder.name.startswith("version_")), file.parent)
    return f"Expected {expected} in {file}, but got {got}. Delete {version} to run it again."


def results(groups: dict[str, list[Path]]) -> list[Row]:
    """Every scalar of every run, and the linear evaluation."""
    rows = []
    for group, runs in groups.items():
        for run in map(read_run, runs):
            seed = run.info["seed"]
            rows += [Row(group, seed, name, *map(float, s.value[[0, -1]])) for name, s in run.scalars.items()]
            for found in run.evaluations:
                labels = "" if found.labels == "all" else f", {found.labels} labels per class"
                rows.append(Row(group, seed, f"accuracy/{found.features}{labels}", np.nan, found.accuracy))
    return rows


def table(rows: list[Row]) -> str:
    """Markdown: first -> last readout, mean and standard deviation over seeds, a column for each group."""
    groups, names = (list(dict.fromkeys(column)) for column in ([r.group for r in rows], [r.name for r in rows]))
    lines = [
        [name, *(_cell([row for row in rows if (row.group, row.name) == (group, name)]) for group in groups)]
        for name in names
    ]
    return markdown(["", *groups], lines)


def _cell(rows: list[Row]) -> str:
    first = np.array([row.first for row in rows])
    start = "" if np.isnan(first).any() or not rows else f"{first.mean():.3g} -> "
    return start + over_seeds([row.last for row in rows], ".3g", ".2g")


def each_run(groups: dict[str, list[Path]]) -> Iterator[tuple[str, Run]]:
    """Read the runs, one after the other, with the names of their groups."""
    return ((group, run) for group, runs in groups.items() for run in map(read_run, runs))


class Singular(NamedTuple):
    """A singular value of the projector's weight W, or of the augmentations v, before and after training."""

    group: str
    seed: object
    index: int
    first: float
    last: float


def spectra(groups: dict[str, list[Path]], of: str = "projector") -> list[Singular]:
    """The singular values of W of every run with a linear projector, or those of "augmentation", v = h2 - h1."""
    rows = []
    for group, run in each_run(groups):
        found = run.arrays.get(f"probe/{of}_singular_values")
        if found is None and f"probe/{of}_rank" in run.scalars:
            sys.exit(f"Expected {of} singular values in {run.folder}, but got none. Delete it to run it again.")
        if found:
            pairs = zip(found.values[0].tolist(), found.values[-1].tolist(), strict=True)
            rows += [Singular(group, run.info["seed"], index, *pair) for index, pair in enumerate(pairs, start=1)]
    return rows


class Angle(NamedTuple):
    """Principal angles of the columns of W with as many leading directions of some displacements.

    `first` and `last` are the means of their squared cosines, before and after training: the share of one subspace that
    lies in the other. It is P / D for a random one.
    """

    group: str
    seed: object
    directions: str
    first: float
    last: float


def angles(groups: dict[str, list[Path]]) -> list[Angle]:
    """The overlap of W with augmentations, displacements between samples, and h1 - h*, of every run."""
    rows = []
    for group, run in each_run(groups):
        for kind in ("augmentations", "between_samples", "negatives"):
            found = run.arrays.get(f"probe/gain_{kind}_angles")
            if found is None and f"probe/gain_{kind}" in run.scalars:
                sys.exit(f"Expected angles of {kind} in {run.folder}, but got none. Delete it to run it again.")
            if found:
                ends = (float((np.cos(np.deg2rad(found.values[place])) ** 2).mean()) for place in (0, -1))
                rows.append(Angle(group, run.info["seed"], kind, *ends))
    return rows


def ranks(rows: list[Singular]) -> str:
    """Markdown: the rank of W by several thresholds, of an untrained W and of the trained ones."""
    names = {
        f"sum of squares, {100 * tau:g}%": partial(singular_values_rank, tau=tau, mode="cumulative")
        for tau in (0.9, 0.99)
    }
    names |= {"entropy (effective rank)": singular_values_effective_rank}
    names |= {f"{tau:g} of the largest": partial(singular_values_rank, tau=tau, mode="relative") for tau in (0.1, 0.01)}
    names |= {
        f"Eq. 2 as printed, tau = {tau:g}": partial(singular_values_rank, tau=tau, mode="absolute")
        for tau in (0.5, 0.1, 0.01)
    }
    groups, lines = dict.fromkeys(row.group for row in rows), []
    for name, of in names.items():
        cells = [name]
        for which, chosen in (("first", [next(iter(groups))]), *(("last", [group]) for group in groups)):
            seeds = dict.fromkeys(row.seed for row in rows if row.group in chosen)
            found = [
                torch.tensor([getattr(row, which) for row in rows if (row.group, row.seed) == (chosen[0], seed)])
                for seed in seeds
            ]
            cells.append(over_seeds([float(of(each)) for each in found], ".1f"))
        lines.append(cells)
    return markdown(["rank of W by", "untrained", *groups], lines)


def bound_holds(groups: dict[str, list[Path]]) -> str:
    """Whether L <= L_upper (Prop. 3.1) at every readout of every run."""
    gaps = []
    for path in (path for runs in groups.values() for path in runs):
        scalars = read_run(path).scalars
        if "probe/bound_upper" in scalars:
            gaps += list(scalars["probe/bound_upper"].value - scalars["probe/bound_info_nce"].value)
    return f"L <= L_upper at {sum(gap >= 0 for gap in gaps)} of {len(gaps)} readouts" if gaps else ""


def rotations(seeds: int = 5) -> list[Rotations]:
    """Rotations of a random one-hot image of 32 x 32 pixels."""
    rows = []
    for seed in range(seeds):
        generator = torch.Generator().manual_seed(seed)
        image = torch.zeros(1, 32, 32)
        image.view(-1)[torch.randint(32 * 32, (1,), generator=generator)] = 1.0
        for angle in (2.0, 5.0, 10.0, 20.0, 45.0, 90.0, 135.0, 180.0):
            rows.append(Rotations(seed, angle, int(rotation_rank(image, angle, 500, generator=generator))))
    return rows


class Moment(NamedTuple):
    """A value of one run after some epochs of training."""

    group: str
    seed: object
    epochs: float
    name: str
    value: float


def moments(groups: dict[str, list[Path]]) -> list[Moment]:
    """How what Figs. 1, 5, 6 and 7 and Prop. 4.1 show changes during training."""
    rows = []
    for group, run in each_run(groups):
        for name in OVER_TRAINING:
            if series := run.scalars.get(f"probe/{name}"):
                pairs = zip(epochs_done(series).tolist(), series.value.tolist(), strict=True)
                rows += [Moment(group, run.info["seed"], epochs, name, value) for epochs, value in pairs]
    return rows


def draw(options: argparse.Namespace, groups: dict[str, list[Path]]) -> None:
    output = options.output / options.grid
    check_whole(groups)
    rows = results(groups)
    write(rows, output / "results.csv", nan="")
    print(table(rows), bound_holds(groups), sep="\n\n")
    if options.grid in OVER_STRENGTHS:
        write(moments(groups), output / "over_training.csv", ".4g")
    if singular := spectra(groups):
        write(singular, output / "spectra.csv")
        print(ranks(singular))
    if of_views := spectra(groups, "augmentation"):
        write(of_views, output / "augmentation_spectra.csv")
    if overlaps := angles(groups):
        write(overlaps, output / "angles.csv")
    if options.grid in OVER_STRENGTHS:
        drawn = comparison_figures(groups)
        named = {f"figure_{n}_{key}": drawn[key] for n, keys in FIGURES.items() for key in keys if key in drawn}
        named |= {"figure_3_upper_bound": figure_3(groups), "figure_7_unexplained_variance": figure_7(groups)}
        named |= {f"figure_7_{group}": figure for group, figure in figure_7_with_nulls(groups)}
        named |= {"figure_prop_4_1_gains": gains(rows), "figure_prop_4_3_generators": generators(rows)}
        named |= {f"figure_prop_4_1_along_{group}": figure for group, figure in gain_spectra(groups)}
        if options.grid == "strengths":
            write(turned := rotations(), output / "rotations.csv")
            named["figure_10_rotations"] = figure_10(turned)
        named["figure_1_linear_evaluation"] = rank_against_accuracy(rows, *RANK_OF_W)
    else:
        rank = RANK_OF_W if options.grid == "augmentations" else RANK_OF_JACOBIAN
        named = {"rank_against_accuracy": rank_against_accuracy(rows, *rank)}
    if len(groups) <= 4:
        print(write_comparison(groups, output / "comparison.html", title=f"Geometry, {options.size}: {options.grid}"))
    for name, figure in named.items():
        print(save(figure, output / f"{name}.png"))


def main() -> None:
    arguments = parser(__doc__, "runs/geometry")
    sizes = "of the networks and the data; projectors, augmentations, long and sharp have laptop alone, and the grids "
    sizes += "that train no encoder laptop and smoke"
    arguments.add_argument("--size", choices=("smoke", "laptop", "paper"), default="laptop", help=sizes)
    grids = ("strengths", "projectors", "augmentations", "long", "sharp", *LATER)
    arguments.add_argument("--grid", choices=grids, default="strengths", help="what is varied")
    options = arguments.parse_args()
    elsewhere = any(word.startswith("--data.init_args.root") for word in options.more)
    if options.size == "laptop" and options.root is None and not elsewhere:
        arguments.error("Expected --root FOLDER with --size laptop, but got none.")
    if options.size != "paper" and options.root and not options.root.is_dir():
        arguments.error(f"Expected --root to be a folder of images, but {options.root} is none.")
    known = ("laptop", "smoke") if options.grid in LATER else ("laptop",)
    if options.grid != "strengths" and options.size not in known:
        arguments.error(f"Expected --size {' or '.join(known)} with --grid {options.grid}, but got {options.size}.")
    if later := LATER.get(options.grid):
        options.grid = "strengths"
        later(options, grid(options, dict(settings("strengths")), fit))
    else:
        runs = grid(options, dict(settings(options.grid)), fit, every_seed=False)
        draw(options, paths(runs))
        end_if_seeds_are_missing(runs, options.seeds)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
