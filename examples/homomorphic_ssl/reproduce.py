"""Run the arms of one of the paper's tables or figures, and make its table and its figure from the runs.

    python examples/homomorphic_ssl/reproduce.py table1 --root FOLDER --jobs 2

`FOLDER` has MNIST/raw as torchvision lays it out. `law`: the losses of A-SSL and H-SSL beside the equivariance error;
`table1` and `table2`: A-SSL, H-SSL, frozen and supervised, by
transformation, with and without structure; `escnn`: rotation on an escnn network; `base_size` and `distance`: Fig. 2
left and right. Runs that have finished are not repeated, so an interrupted command can be started again.
OUTPUT/<size>/<what>/ has results.csv, a PNG for the figures and, for every run, its report.html.
"""

import argparse
import csv
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lightning_ssl_geometry.plots import Curve, curves
from lightning_ssl_geometry.report import read_run

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import law  # noqa: E402
from recipe import Fit, command, each, grid, markdown, over_seeds, parser, save, write  # noqa: E402

ARMS = ("a-ssl", "h-ssl", "frozen", "supervised")
MODEL, VIEWS = "--model.init_args.", "--data.init_args.views.init_args."
BASE_SIZES = (1, 4, 16, 36, 56)  # of the 8 x 8 positions; 56 is the largest patch that can be moved
DISTANCES = (1, 4, 16, 36, 98)  # squared; 98 is from corner to corner, so no limit
# The overlays without structure are written for laptop.yaml; these are their widths and channels at the paper's size.
WIDTHS = {"laptop": {}, "paper": {"unstructured_translation": (128, 128), "unstructured_scale": (32, 128)}}


def arm(name: str, group: str, size: str, unstructured: bool = False) -> list[str]:
    """What an arm adds to the command line after the config of its size."""
    overlay = f"unstructured_{group}" if unstructured else group
    added = [] if overlay == "scale" else ["--config", str(HERE / f"{overlay}.yaml")]
    if overlay in WIDTHS[size]:
        width, channels = WIDTHS[size][overlay]
        added += [f"{MODEL}backbone.init_args.width={width}", f"{MODEL}classifier.init_args.channels={channels}"]
    added += ["--trainer.max_epochs=20"] if group == "translation" and size == "laptop" else []
    if name in ("supervised", "frozen"):
        added += ["--config", str(HERE / "supervised.yaml"), f"{MODEL}train_backbone={name == 'supervised'}"]
    if name == "a-ssl":
        added += [f"{MODEL}mode=a-ssl", f"{VIEWS}action={group}", f"{VIEWS}num_views=2"]
    return added


def settings(what: str, size: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the cells, and what each adds to the command line."""
    if what == "table1":
        for group in ("rotation", "translation", "scale"):
            yield from ((f"{group}, {name}", arm(name, group, size)) for name in ARMS)
    elif what == "table2":
        for group in ("translation", "scale"):
            yield from ((f"{group}, {name}", arm(name, group, size, unstructured=True)) for name in ARMS)
    elif what == "escnn":
        for name in ("h-ssl", "frozen"):
            added = arm(name, "rotation", size)
            yield f"rotation (escnn), {name}", ["--config", str(HERE / "escnn.yaml"), *added[2:]]
    else:
        changed, values = {"base_size": ("base_size", BASE_SIZES), "distance": ("max_distance", DISTANCES)}[what]
        for value in values:
            yield f"{value}", [*arm("h-ssl", "translation", size), f"{MODEL}{changed}={value}"]


def output(options: argparse.Namespace) -> Path:
    return options.output / options.size / options.what


def scores(path: Path) -> dict[str, float]:
    """The test scores of a finished run; empty if there is none."""
    for file in sorted(path.glob("version_*/metrics.csv")):
        with file.open() as opened:
            rows = [row for row in csv.DictReader(opened) if row.get("test/accuracy")]
        if rows:
            found = {"classifier": float(rows[-1]["test/accuracy"])}
            judged = {e.features: e.accuracy for e in read_run(file.parent).evaluations if e.labels == "all"}
            return found | {"linear evaluation": judged["trained"]}
    return {}


def fit(options: argparse.Namespace, cell: str, added: list[str], seed: int) -> Fit:
    folder = output(options) / cell.replace(", ", "_") / f"seed{seed}"
    seeded = [VIEWS] if f"{MODEL}train_backbone" in " ".join(added) else [VIEWS, MODEL]
    program = (str(HERE / "fit_and_test.py"), "fit")
    configs = [HERE / f"{options.size}.yaml"]
    words = command(options, folder, configs=configs, added=added, seed=seed, seeded=seeded, program=program)
    return Fit(f"{cell}, seed {seed}", words, folder, scores)


class Row(NamedTuple):
    """One score of one run on the test set."""

    cell: str
    seed: int
    score: str
    accuracy: float


def table(rows: list[Row], score: str) -> str:
    """Markdown: a row for each transformation (or setting), a column for each arm."""
    by_cell: dict[str, list[float]] = {}
    for row in rows:
        if row.score == score:
            by_cell.setdefault(row.cell, []).append(100 * row.accuracy)
    found = {cell: over_seeds(values, ".1f") for cell, values in by_cell.items()}
    if not any(", " in cell for cell in found):
        return markdown(["", f"{score}, %"], found.items())
    groups = dict.fromkeys(cell.split(", ")[0] for cell in found)
    lines = [[group, *(found.get(f"{group}, {name}", "") for name in ARMS)] for group in groups]
    return markdown([f"{score}, %", *ARMS], lines)


def figure(rows: list[Row], xlabel: str):
    """Fig. 2: accuracy against a setting, mean and standard deviation over seeds."""
    lines = []
    for score, color in zip(dict.fromkeys(row.score for row in rows), ("blue", "orange"), strict=True):
        by_cell: dict[int, list[float]] = {}
        for row in rows:
            if row.score == score:
                by_cell.setdefault(int(row.cell), []).append(100 * row.accuracy)
        spread = [np.std(values, ddof=1) if len(values) > 1 else 0.0 for values in by_cell.values()]
        mean = np.array([np.mean(values) for values in by_cell.values()])
        lines.append(Curve(score, np.array(list(by_cell), dtype=float), mean, color=color, spread=np.array(spread)))
    return curves(lines, xlabel=xlabel, ylabel="test accuracy, %")


def main() -> None:
    what = ("law", "table1", "table2", "escnn", "base_size", "distance")
    arguments = parser(__doc__, "runs/homomorphic", what=what)
    arguments.add_argument("--size", choices=("laptop", "paper"), default="laptop")
    options = arguments.parse_intermixed_args()
    if options.what == "law":
        law.main(options)
        return
    found = each(grid(options, dict(settings(options.what, options.size)), fit))
    rows = [Row(cell, seed, score, accuracy) for cell, seed, of in found for score, accuracy in of.items()]
    write(rows, output(options) / "results.csv", ".4f")
    print(*(table(rows, score) for score in dict.fromkeys(row.score for row in rows)), sep="\n\n")
    if options.what in ("base_size", "distance"):
        xlabel = {"base_size": "base space, fibers", "distance": "largest squared distance of a pair"}[options.what]
        print(save(figure(rows, xlabel), output(options) / f"{options.what}.png"))


if __name__ == "__main__":
    main()
