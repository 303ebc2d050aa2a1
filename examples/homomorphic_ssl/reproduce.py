"""Run the arms of one of the paper's tables or figures, and make its table and its figure from the runs.

    python examples/homomorphic_ssl/reproduce.py table1 --root FOLDER --jobs 2

`FOLDER` has MNIST/raw as torchvision lays it out. `law`: the losses of A-SSL and H-SSL beside the equivariance error;
`table1` and `table2`: A-SSL, H-SSL, frozen and supervised, by transformation, with and without structure; `rates`: the
MLP of `table2` by its learning rate, scored on validation images, too; `ink`: how well the MLPs of `table2`, which run
first, know the mean brightness of an image; `strength`: H-SSL over translations, by the limit of the distance and the
number of steps, with frozen beside it; `classifier`: frozen scale networks, by the steps of the classifier; `base_size`
and `distance`: Fig. 2 left and right, with A-SSL and frozen beside them; `escnn`: rotation on an escnn network. With
`--dataset cifar10`, all but `law`, `rates` and `ink` are of CIFAR-10 and the same networks (FOLDER has train/<class>/*
and test/<class>/*), in a folder of their own. Runs that have finished are not repeated, so an interrupted command can
be started again. OUTPUT/<size>/<what>/ has results.csv, a PNG for the figures and, for every run, its report.html.
"""

import argparse
import csv
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np

from lightning_ssl_geometry.plots import Caption, Curve, curves
from lightning_ssl_geometry.report import Run, read_run

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
import ink  # noqa: E402
import law  # noqa: E402
from recipe import (  # noqa: E402
    Fit,
    command,
    each,
    errors_in_one_line,
    finished,
    grid,
    markdown,
    over_seeds,
    parser,
    save,
    write,
)

ARMS = ("a-ssl", "h-ssl", "frozen", "supervised")
MODEL, VIEWS = "--model.init_args.", "--data.init_args.views.init_args."
BACKBONE = f"{MODEL}backbone.init_args."
ACCURATE = f"{BACKBONE}kernels=accurate"
BASE_SIZES = (1, 4, 16, 36, 56)  # of the 8 x 8 positions of MNIST; 56 is the largest patch there that can be moved
DISTANCES = (1, 4, 16, 36, None)  # squared, between two fibers of a pair; None: no limit
APART = (1, 4)  # of these, with pairs that are never a fiber with itself, too
SCORES = ("classifier", "linear evaluation")
JUDGED = {  # split and features of a linear evaluation -> its quantity
    ("test", "trained"): "linear evaluation",
    ("val", "frozen"): "validation before",
    ("val", "trained"): "validation after",
}
STEPS = {400: 20, 1200: 60, 3600: 180}  # of `strength`, and their epochs at laptop size
CLASSIFIER_STEPS = {120: 6, 480: 24}  # of `classifier`, and their epochs at laptop size
RATES = (3e-5, 1e-4, 3e-4, 1e-3, 3e-3)  # of `rates`
CHOSEN = {"a-ssl": 3e-5, "a-ssl far": 3e-4, "h-ssl": 1e-4}  # for the MLP: best on validation images by `rates`, seed 0
DIAGNOSTICS = "lightning_ssl_geometry.diagnostics."
DATASETS = {"mnist": "MNIST", "cifar10": "CIFAR-10"}
BLACK = {"mnist": -0.424, "cifar10": [-2.05, -2.04, -1.75]}  # after normalisation; it enters where an image is moved
# unstructured_scale.yaml is written for laptop.yaml; this is its width and its channels at the paper's size.
WIDTHS = {"laptop": {}, "paper": {"unstructured_scale": (32, 128)}}
EPOCHS = {"translation": 20, "unstructured_translation": 60, "unstructured_scale": 12}  # at laptop size, where not 6
LAYERS = ("layers.2", "layers.5", "layers.8")  # the outputs of the three convolutions, after norm and ReLU


def arm(
    name: str,
    group: str,
    options: argparse.Namespace,
    *,
    overlay: str | None = None,
    base_size: int | None = None,
    rate: float | None = None,
) -> list[str]:
    """What an arm adds to the command line after the config of its size.

    `overlay` is the YAML of its network; without one, it is that of the group. Without a rate, it has that of the
    config.
    """
    overlay = overlay or group
    added = [] if overlay == "scale" else ["--config", str(HERE / f"{overlay}.yaml")]
    if overlay in WIDTHS[options.size]:
        width, channels = WIDTHS[options.size][overlay]
        added += [f"{BACKBONE}width={width}", f"{MODEL}classifier.init_args.channels={channels}"]
    if options.size == "laptop":
        added += [f"--trainer.max_epochs={EPOCHS[overlay]}"] if overlay in EPOCHS else []
    added += [] if rate is None else [f"{MODEL}optimizer.init_args.lr={rate}"]
    if options.dataset == "cifar10":
        added += [f"{BACKBONE}in_channels=3", "--data=lightning_ssl_geometry.data.ImageFolderDataModule"]
        added += ["--data.init_args.image_size=33", f"--data.init_args.cache={options.output / 'cache'}"]
    if name in ("supervised", "frozen"):
        return [*added, "--config", str(HERE / "supervised.yaml"), f"{MODEL}train_backbone={name == 'supervised'}"]
    if not overlay.startswith("unstructured"):
        layers = LAYERS if overlay == group else ()
        added += measured(group, options.dataset, layers=layers, gap=base_size in (None, 1))
    added += [] if base_size is None else [f"{MODEL}base_size={base_size}"]
    if not name.startswith("a-ssl"):
        return added
    far = [f"{VIEWS}max_shift=0.5"] if name == "a-ssl far" else []  # half of the side: parts of digits leave
    return [*added, f"{MODEL}mode=a-ssl", f"{VIEWS}action={group}", f"{VIEWS}num_views=2", *far]


def measured(group: str, dataset: str, *, layers: Sequence[str], gap: bool) -> list[str]:
    """Measure the equivariance error of layers, or of the output without any, before and after training.

    With `gap`, measure that of the losses of single fibers, too.
    """
    own = {"group": group, "fill": BLACK[dataset]}
    of_layers = own | {"layers": list(layers)} if layers else own
    diagnostics = {"loss_gap": {"class_path": f"{DIAGNOSTICS}LossGap", "init_args": own}} if gap else {}
    diagnostics["equivariance"] = {"class_path": f"{DIAGNOSTICS}EquivarianceError", "init_args": of_layers}
    given = {"stages": ["probe"], "probe_size": 250, "probe_every_n_epochs": 1000, "diagnostics": diagnostics}
    added = ["--trainer.callbacks+=lightning_ssl_geometry.callbacks.GeometryMonitor"]
    return [*added, *(f"--trainer.callbacks.{name}={json.dumps(value)}" for name, value in given.items())]


Cells = Iterator[tuple[str, list[str]]]  # names of cells, and what each adds to the command line


def table1(options: argparse.Namespace) -> Cells:
    for group in ("rotation", "translation", "scale"):
        yield from ((f"{group}, {name}", arm(name, group, options)) for name in ARMS)
    # A-SSL moves images by 20%, 1.5 places of the map: a mean squared distance of 3.5, for 21 without a limit.
    yield "translation, h-ssl near", [*arm("h-ssl", "translation", options), *_limit(4)]
    yield from ((f"scale (11/3), {name}", [*arm(name, "scale", options), ACCURATE]) for name in ARMS)


def table2(options: argparse.Namespace) -> Cells:
    """Two networks without structure; of CIFAR-10 the one for scale, as in the paper."""
    chosen = CHOSEN if options.size == "laptop" else {}
    for name in (*ARMS, "a-ssl far") if options.dataset == "mnist" else ():
        added = arm(name, "translation", options, overlay="unstructured_translation", rate=chosen.get(name))
        yield f"translation, {name}", added
    yield from ((f"scale, {name}", arm(name, "scale", options, overlay="unstructured_scale")) for name in ARMS)


def rates(options: argparse.Namespace) -> Cells:
    validated = ["--config", str(HERE / "validated.yaml")]
    for rate in RATES:
        for name in CHOSEN:
            added = arm(name, "translation", options, overlay="unstructured_translation", rate=rate)
            yield f"{name}, {rate:g}", [*validated, *added]


def strength(options: argparse.Namespace) -> Cells:
    for steps, epochs in STEPS.items():
        as_long = [f"--trainer.max_epochs={epochs}"]
        for limit in (None, 18, 4):
            added = [*arm("h-ssl", "translation", options), *as_long, *_limit(limit)]
            yield f"{steps} steps, {limit or 'none'}", added
        yield f"{steps} steps, frozen", [*arm("frozen", "translation", options), *as_long]


def classifier(options: argparse.Namespace) -> Cells:
    for kernels, added in (("paper's", []), ("11/3", [ACCURATE])):
        for steps, epochs in CLASSIFIER_STEPS.items():
            as_long = [*added, f"--trainer.max_epochs={epochs}"]
            yield f"{kernels}, {steps}", [*arm("frozen", "scale", options), *as_long]


def base_size(options: argparse.Namespace) -> Cells:
    for size in BASE_SIZES:
        for limit in (None, 1):
            added = arm("h-ssl", "translation", options, base_size=size)
            yield f"{size}" if limit is None else f"{size}, near", [*added, *_limit(limit)]
    yield from _beside(options)


def distance(options: argparse.Namespace) -> Cells:
    for limit in DISTANCES:
        added = [*arm("h-ssl", "translation", options), *_limit(limit)]
        yield f"{limit or 'none'}", added
        if limit in APART:
            yield f"{limit}, apart", [*added, f"{MODEL}min_distance=1"]
    yield from _beside(options)


def on_escnn(options: argparse.Namespace) -> Cells:
    for name in ("h-ssl", "frozen"):
        yield f"rotation (escnn), {name}", arm(name, "rotation", options, overlay="escnn")


def _beside(options: argparse.Namespace) -> Cells:
    """What Fig. 2 draws beside H-SSL."""
    return ((name, arm(name, "translation", options)) for name in ("a-ssl", "frozen"))


def _limit(distance: int | None) -> list[str]:
    return [] if distance is None else [f"{MODEL}max_distance={distance}"]


CELLS: dict[str, Callable[[argparse.Namespace], Cells]] = {
    "table1": table1,
    "table2": table2,
    "rates": rates,
    "strength": strength,
    "classifier": classifier,
    "base_size": base_size,
    "distance": distance,
    "escnn": on_escnn,
}
XLABELS = {"base_size": "fibers of a base space", "distance": "largest squared distance of a pair"}  # of the figures


def output(options: argparse.Namespace) -> Path:
    of = "" if options.dataset == "mnist" else f"_{options.dataset}"
    return options.output / options.size / f"{options.what}{of}"


def scores(path: Path) -> dict[str, float]:
    """The test scores of a finished run, and what was measured before and after training; empty if there is none."""
    for file in sorted(path.glob("version_*/metrics.csv")):
        try:
            with file.open() as opened:
                rows = list(csv.DictReader(opened))
            if tests := [row for row in rows if row.get("test/accuracy")]:
                found = {"classifier": float(tests[-1]["test/accuracy"])}
                if losses := [float(row["val/ssl_loss"]) for row in rows if row.get("val/ssl_loss")]:
                    found["validation loss after"] = losses[-1]
                run = read_run(file.parent)  # with the parts before it, if the run was resumed
                judged = [e for e in run.evaluations if e.labels == "all"]
                if not judged and (file.parent / "linear_evaluation.csv").exists():
                    raise ValueError("linear_evaluation.csv has no rows")
                return found | {JUDGED[e.details["split"], e.features]: e.accuracy for e in judged} | _probed(run)
        except (LookupError, ValueError, csv.Error) as error:
            sys.exit(f"{file.parent} is damaged ({type(error).__name__}: {error}). Delete it to run it again.")
    return {}


def _probed(run: Run) -> dict[str, float]:
    """Quantity -> value before and after training, of the stage "probe"."""
    found = {}
    for name, series in sorted(run.scalars.items()):
        if name.startswith("probe/"):
            for when, place in (("before", series.done == 0), ("after", series.done > 0)):
                if values := series.value[place].tolist():
                    found[f"{name.removeprefix('probe/')} {when}"] = values[-1]
    return found


def fit(options: argparse.Namespace, cell: str, added: list[str], seed: int) -> Fit:
    folder = output(options) / cell.replace(", ", "_").replace("/", "-") / f"seed{seed}"
    seeded = [VIEWS] if f"{MODEL}train_backbone" in " ".join(added) else [VIEWS, MODEL]
    program = (str(HERE / "fit_and_test.py"), "fit")
    configs = [HERE / f"{options.size}.yaml"]
    words = command(options, folder, configs=configs, added=added, seed=seed, seeded=seeded, program=program)
    return Fit(f"{cell}, seed {seed}", words, folder, scores)


def known_ink(options: argparse.Namespace) -> Iterator[tuple[str, int, dict[str, float]]]:
    """(cell, seed, R^2 of the ink) of the MLPs of `table2`."""
    of_table2 = argparse.Namespace(**vars(options) | {"what": "table2"})
    cells = {cell: added for cell, added in table2(of_table2) if cell.startswith("translation")}
    runs = grid(of_table2, cells, lambda *given: fit(*given)._replace(done=finished))
    return ((cell, seed, ink.ink_r2(path, options.root)) for cell, seed, path in each(runs))


class Row(NamedTuple):
    """One value of one run: a score on the test set, or what was measured before or after training."""

    cell: str
    seed: int
    quantity: str
    value: float


def table(rows: list[Row], score: str) -> str:
    """Markdown: a row for each transformation (or setting), a column for each arm."""
    per_cent = {cell: [100 * value for value in values] for cell, values in by_cell(rows, score).items()}
    found = {cell: over_seeds(values, ".1f") for cell, values in per_cent.items()}
    if not any(", " in cell for cell in found):
        return markdown(["", f"{score}, %"], found.items())
    columns = list(dict.fromkeys(cell.partition(", ")[2] for cell in found))
    groups = dict.fromkeys(cell.partition(", ")[0] for cell in found)
    lines = [[group, *(found.get(f"{group}, {name}" if name else group, "") for name in columns)] for group in groups]
    return markdown([f"{score}, %", *columns], lines)


def by_cell(rows: list[Row], quantity: str) -> dict[str, list[float]]:
    """Cell -> the values of its runs, in the order of the seeds."""
    found: dict[str, list[float]] = {}
    for row in rows:
        if row.quantity == quantity:
            found.setdefault(row.cell, []).append(row.value)
    return found


def measurements(rows: list[Row]) -> str:
    """Markdown: what was measured before -> after training, for each cell that has it."""
    names = list(dict.fromkeys(row.quantity.rpartition(" ")[0] for row in rows if row.quantity not in SCORES))
    cells = dict.fromkeys(row.cell for row in rows if row.quantity not in SCORES)
    both = {name: [by_cell(rows, f"{name} {when}") for when in ("before", "after")] for name in names}
    lines = [
        [cell, *(" -> ".join(over_seeds(when[cell], ".3f") for when in both[name] if cell in when) for name in names)]
        for cell in cells
    ]
    return markdown(["before -> after training", *names], lines)


def figure(rows: list[Row], score: str, xlabel: str, data: str):
    """Fig. 2 on these data: the change of an accuracy from that of the first setting, mean and deviation over seeds."""
    of_seed: dict[str, dict[int, float]] = {}
    for row in rows:
        if row.quantity == score:
            of_seed.setdefault(row.cell, {})[row.seed] = row.value
    seeds = sorted(set.intersection(*(set(values) for values in of_seed.values())))  # of all cells
    if not seeds:
        sys.exit(f"Expected a seed that all cells of the figure have, but {', '.join(of_seed)} have none in common.")
    found = {cell: np.array([values[seed] for seed in seeds]) for cell, values in of_seed.items()}
    beside = {"a-ssl": ("A-SSL", "orange"), "frozen": ("frozen", "muted")}
    names = [cell for cell in found if cell not in beside and ", " not in cell]
    first = found[names[0]]
    changes = {cell: 100 * (values / first - 1) for cell, values in found.items()}
    series = {"H-SSL": ([changes[name] for name in names], "blue", "solid")}
    if f"{names[0]}, near" in found:
        series["H-SSL, distance 1"] = ([changes[f"{name}, near"] for name in names], "green", "solid")
    for name, (said, color) in beside.items():
        if name in changes:
            series[said] = ([changes[name]] * len(names), color, "dashed")
    lines = []
    for name, (values, color, dash) in series.items():
        spread = np.array([v.std(ddof=1) if len(v) > 1 else 0.0 for v in values])
        y = np.array([v.mean() for v in values])
        lines.append(Curve(name, np.arange(len(names), dtype=float), y, color=color, dash=dash, spread=spread))
    note = (
        f"Mean and standard deviation of {len(first)} seeds, each beside its own accuracy at {names[0]} "
        f"({100 * first.mean():.1f}% in the mean)."
    )
    caption = Caption(f"Fig. 2 on {data}: {score}, by {xlabel}", notes=(note,))
    return curves(lines, xlabel=xlabel, ylabel="relative change of test accuracy, %", names=names, caption=caption)


def main() -> None:
    arguments = parser(__doc__, "runs/homomorphic", what=("law", "ink", *CELLS))
    arguments.add_argument("--size", choices=("laptop", "paper"), default="laptop")
    arguments.add_argument("--dataset", choices=tuple(DATASETS), default="mnist")
    options = arguments.parse_intermixed_args()
    if options.dataset != "mnist" and (options.size == "paper" or options.what in ("law", "rates", "ink")):
        arguments.error(f"argument --dataset: Expected mnist for {options.what} of size {options.size}.")
    if options.size == "paper" and options.what in ("law", "strength", "classifier", "rates"):
        arguments.error(f"argument --size: Expected laptop for {options.what}, whose steps and rates are of this size.")
    if options.what == "law":
        law.main(options)
        return
    found = (
        known_ink(options) if options.what == "ink" else each(grid(options, dict(CELLS[options.what](options)), fit))
    )
    rows = [Row(cell, seed, name, value) for cell, seed, of in found for name, value in of.items()]
    write(rows, output(options) / "results.csv", ".4f")
    print(*(table(rows, score) for score in SCORES if by_cell(rows, score)), sep="\n\n")
    if any(row.quantity not in SCORES for row in rows):
        print(f"\n{measurements(rows)}")
    if options.what in XLABELS:
        for score in SCORES:
            name = f"{options.what}_{score.replace(' ', '_')}.png"
            print(save(figure(rows, score, XLABELS[options.what], DATASETS[options.dataset]), output(options) / name))


if __name__ == "__main__":
    with errors_in_one_line():
        main()
