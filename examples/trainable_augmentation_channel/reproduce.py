"""Run the arms of one of the paper's tables, and make the table and the figures from the runs.

    python examples/trainable_augmentation_channel/reproduce.py table1 --root FOLDER --jobs 2

`FOLDER` has MNIST/raw as torchvision lays it out; `--size smoke` needs none. `table1`: ours and SimCLR on the grid,
and Figs. 3, 7 and 8; `as_printed`: the same with the paper's policy network, beta and lambda; `table2`: MNIST as it
is; `lambda` and `lambda_mnist`: several weights of the entropy for Table 1 and 2, judged on validation digits;
`plane`: Fig. 6, embeddings on a circle; `exact`: Eq. 2 without Jensen's inequality; `settle`: the paper's policy
network, with each estimator of phase 2, with the paper's beta and lambda and with ten times them, judged on validation
digits; `long`: the first of them for 10,000 steps; `estimators`: how well the estimators of phase 2 follow the exact
gradient; `policy`: the policy alone, trained with each estimator on a fixed encoder; `bounds`: the losses beside the
mutual information, where it is known (no data).

The smoke size has table1, lambda, estimators, policy and bounds alone; the paper's size is as printed by itself, and
has none of lambda_mnist, settle, long and the last three. Runs that have finished are not repeated, and a run that was
interrupted continues from its last checkpoint. The seeds are 0 to 2, at the paper's size 0 to 3, at the smoke size 0.
OUTPUT/<size>/<what>/ has a CSV and the PNGs, and for runs of the whole method comparison.html and, for every run, its
report.html.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from lightning_ssl_geometry.report import comparison_figures, read_run, write_comparison

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import bounds  # noqa: E402
import estimators  # noqa: E402
import policies  # noqa: E402
from recipe import (  # noqa: E402
    UNTRAINED,
    Fit,
    command,
    each,
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

MODEL = "--model.init_args."
ALONE = {"estimators": estimators.main, "policy": policies.main, "bounds": bounds.main}  # they train no whole method
SIZES = {"smoke": ("table1", "lambda", *ALONE), "paper": ("table1", "table2", "lambda", "plane", "exact")}  # else: all
NUMBERS = {  # of ALONE
    "smoke": {"repeats": 50, "encoder_epochs": 1, "epochs": 1, "images": 300, "test_images": 100},
    "laptop": {"repeats": 400, "encoder_epochs": 5, "epochs": 8, "images": 4000, "test_images": 1000},
}
SEEDS = {"smoke": [0], "laptop": [0, 1, 2], "paper": [0, 1, 2, 3]}
LAMBDAS = {
    "lambda": (0.0, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2),
    "lambda_mnist": (0.0, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2, 0.1, 0.2, 0.5),
}
CONSTANTS = {0.5: 0.0025, 5.0: 0.025}  # beta -> lambda: the paper's, and ten times them
ESTIMATORS = {
    "settle": ("DistinctPairs", "ScoreFunction", "AllPairs", "ExactInformation"),
    "long": ("DistinctPairs",),
}
VALIDATED = [
    "--trainer.callbacks+=lightning_ssl_geometry.callbacks.ChannelEvaluation",
    "--trainer.callbacks.split=val",
    "--trainer.callbacks.pixels=false",
]
# Figure of the paper -> name of the comparison's figure.
FIGURES = {
    "table1": {"3": "policy_maps", "7": "embeddings", "8": "pair_similarity"},
    "plane": {"6": "embeddings"},
}
# Column of the tables -> arm, and how Z is integrated.
COLUMNS = {
    "ours": ("ours", "learned"),
    "ours (top 8)": ("ours", "top"),
    "SimCLR": ("SimCLR", "uniform"),
    "SimCLR (oracle)": ("SimCLR", "oracle"),
    "untrained": ("untrained", "uniform"),
    "untrained (oracle)": ("untrained", "oracle"),
}


def settings(what: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the arms, and what each adds to the command line."""
    overlays = {"as_printed": "as_printed", "table2": "mnist", "lambda_mnist": "mnist", "plane": "plane"}
    overlays |= {"exact": "exact"}
    added = ["--config", str(HERE / f"{overlays[what]}.yaml")] if what in overlays else []
    if what in ("settle", "long"):
        longer = ["--trainer.max_epochs=107"] if what == "long" else []
        printed = ["--config", str(HERE / "as_printed.yaml"), *longer, *VALIDATED]
        for beta, weight in CONSTANTS.items():
            for name in ESTIMATORS[what]:
                estimator = f"{MODEL}policy_gradient=lightning_ssl_geometry.losses.{name}"
                constants = [f"{MODEL}beta={beta}", f"{MODEL}entropy_weight={weight}"]
                yield f"beta {beta:g}, {name}", [*printed, *constants, estimator]
        if what == "settle":
            yield "untrained", [*printed, *UNTRAINED]
    elif what in LAMBDAS:
        weights = LAMBDAS[what]
        yield from ((f"{weight:g}", [*added, *VALIDATED, f"{MODEL}entropy_weight={weight}"]) for weight in weights)
    else:
        yield "ours", added
    if what in ("table1", "as_printed", "table2", "plane"):
        simclr = [*added, "--config", str(HERE / "simclr.yaml")]
        yield "SimCLR", simclr
    if what in ("table1", "table2", "plane"):
        yield "untrained", [*simclr, *UNTRAINED]


def output(options: argparse.Namespace) -> Path:
    return options.output / options.size / options.what


def fit(options: argparse.Namespace, arm: str, added: list[str], seed: int) -> Fit:
    folder = output(options) / arm / f"seed{seed}"
    configs = [HERE / f"{options.size}.yaml"]
    words = command(options, folder, configs=configs, added=added, seed=seed, seeded=[MODEL])
    return Fit(f"{arm}, seed {seed}", words, folder, finished)


class Row(NamedTuple):
    """One number of one run."""

    arm: str
    seed: int
    quantity: str
    weighting: str
    value: float


def read(path: Path, arm: str, seed: int, split: str) -> Iterator[Row]:
    """Read the accuracies of a run on a split, and the measures of its policy and its embeddings."""
    accuracies = [each for each in read_run(path).evaluations if each.details["split"] == split]
    with (path / "augmentation_channel.csv").open() as file:
        measures = [row for row in csv.DictReader(file) if row["split"] == split]
    if not accuracies or not measures or not all(row["value"] for row in measures):
        tables = "linear_evaluation.csv or augmentation_channel.csv"
        sys.exit(f"{arm}, seed {seed}: {tables} in {path} is damaged. Delete that folder, and start the command again.")
    for found in accuracies:
        if found.labels == "all":
            level, _, weighting = found.features.partition(", ")
            yield Row(arm, seed, level, weighting, found.accuracy)
    for row in measures:
        yield Row(arm, seed, row["quantity"], row["weighting"], float(row["value"]))


def spread(rows: list[Row], arm: str, quantity: str, weighting: str) -> str:
    found = [r.value for r in rows if (r.arm, r.quantity, r.weighting) == (arm, quantity, weighting)]
    return over_seeds(found, ".4f")


def arms_table(rows: list[Row]) -> str:
    """Markdown: Table 1 or 2, with the potential and the mass on crops that are not empty below."""
    names = {"head": "projection head", "f": "f output", "gaussian_potential": "Gaussian potential of the head"}
    names |= {"nonempty_mass": "mass on crops that are not empty", "entropy": "entropy, nats"}
    columns = {name: cell for name, cell in COLUMNS.items() if cell[0] in {row.arm for row in rows}}
    lines = [
        [name, *(spread(rows, arm, quantity, weighting) for arm, weighting in columns.values())]
        for quantity, name in names.items()
    ]
    pixels = spread(rows, rows[0].arm, "pixels", "")
    return f"{markdown(['', *columns], lines)}\n\nraw pixels: {pixels}"


def settings_table(what: str, rows: list[Row]) -> str:
    """Markdown: a row for each setting that was tried."""
    names = {"entropy": "entropy, nats", "nonempty_mass": "mass, not empty", "head": "head", "f": "f"}
    names |= {"gaussian_potential": "Gaussian potential"}
    names |= {"cell": "cell from Z"} if any(row.quantity == "cell" for row in rows) else {}
    arms = dict.fromkeys(row.arm for row in rows)
    lines = [[arm, *(spread(rows, arm, name, "learned") for name in names)] for arm in arms]
    return markdown([what, *names.values()], lines)


def draw(options: argparse.Namespace, runs: dict[str, list[Path]]) -> None:
    """The page of all runs, and the paper's figures."""
    print(write_comparison(runs, output(options) / "comparison.html"))
    shown = {arm: folders for arm, folders in runs.items() if arm != "untrained"}
    if options.what == "plane":  # of every run: some collapse
        shown = {f"{arm}, {folder.parent.name}": [folder] for arm, folders in shown.items() for folder in folders}
    drawn = comparison_figures(shown)
    for number, name in FIGURES.get(options.what, {}).items():
        print(save(drawn[name], output(options) / f"figure_{number}_{name}.png"))


def main() -> None:
    trained = ("table1", "as_printed", "table2", "lambda", "lambda_mnist", "plane", "exact", "settle", "long")
    what = (*trained, *ALONE)
    arguments = parser(__doc__, "runs/augmentation_channel", what=what)
    arguments.add_argument("--size", choices=("smoke", "laptop", "paper"), default="laptop")
    arguments.set_defaults(seeds=None)
    options = arguments.parse_intermixed_args()
    if options.what not in (known := SIZES.get(options.size, (options.what,))):
        arguments.error(f"Expected one of {', '.join(known)} for --size {options.size}, but got {options.what}.")
    options.seeds = options.seeds or SEEDS[options.size]
    if options.what in ALONE:
        if options.more and options.what == "bounds":  # it fits no model
            arguments.error(f"Expected nothing after -- with {options.what}, but got {' '.join(options.more)}.")
        vars(options).update(NUMBERS[options.size])
        ALONE[options.what](options)
        return
    runs = grid(options, dict(settings(options.what)), fit)
    split = "val" if options.what in ("settle", *LAMBDAS) else "test"
    rows = [row for arm, seed, path in each(runs) for row in read(path, arm, seed, split)]
    if options.what in ("settle", "long"):
        vars(options).update(NUMBERS[options.size])
        for arm, seed, path in each(runs):
            known = policies.by_cell(options, path, seed)
            rows += [Row(arm, seed, name, "learned", value) for name, value in known.items()]
    write(rows, output(options) / "results.csv", ".4f")
    tried = options.what in (*LAMBDAS, "settle", "long")
    print(settings_table(options.what, rows) if tried else arms_table(rows))
    draw(options, paths(runs))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
