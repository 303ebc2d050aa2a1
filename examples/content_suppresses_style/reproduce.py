"""Run the arms of one of the paper's figures or tables, and make the figures and the table from the runs.

    python examples/content_suppresses_style/reproduce.py box --jobs 2

`table1`: Table 1, the inverse of the process and what is trained, on the box and on the sphere; `linear`: Fig. 1 left;
`box` and `sphere`: Fig. 1 middle and right; `crossed`: what the loss contrasts, the scale of z and the temperatures, on
the box and on the sphere; `learned`: temperatures that are learned; `table2`: Table 2 and Fig. 2, and `direct_clr`:
Appendix E, both on CIFAR-10 with `--root FOLDER` (train/<class>/*, test/<class>/*; for `--size paper`,
which table2 alone has, where CIFAR-10 is, or is put). Runs that have finished are not repeated, so an interrupted
command can be started again. OUTPUT/<size>/<what>/ has results.csv, the PNGs, comparison.html and, for every run, its
report.html.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from lightning_ssl_geometry.data import LatentProcess
from lightning_ssl_geometry.functional import alignment_uniformity_terms, counter_hash
from lightning_ssl_geometry.plots import Caption, Curve, Dot, curves, dots
from lightning_ssl_geometry.report import comparison_figures, read_run, write_comparison

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from recipe import Fit, command, each, finished, grid, markdown, over_seeds, parser, paths, save, write  # noqa: E402

MODEL, DATA = "--model.init_args.", "--data.init_args."
LOSS = f"{MODEL}loss.init_args."
RULES = "lightning_ssl_geometry.losses."
SPHERE = [f"{DATA}space=sphere", f"{DATA}conditional=von_mises_fisher", f"{DATA}concentration=10.0"]
NORMALIZED = [f"{LOSS}normalize=true", f"{LOSS}similarity=dot"]
UNNORMALIZED = [f"{LOSS}normalize=false", f"{LOSS}similarity=distance"]
WITHOUT_ITSELF = [f"{LOSS}include_self=false"]
STANDARDIZED = [f"{MODEL}standardize=true"]
# Arm -> name and colour of its line in Fig. 1.
LINES = {
    "d_c = 0": ("d_c = 0", "blue"),
    "one tau": ("one tau", "orange"),
    "tau_c < tau_s": ("c below s", "green"),
    "tau_c > tau_s": ("c above s", "violet"),
    "one tau, without itself": ("one, no self", "muted"),
    "one tau, standardized": ("one, stand.", "red"),
    "tau_c < tau_s, standardized": ("c below s, st.", "ink"),
    "one tau, w/o norm": ("one, w/o n.", "red"),
    "tau_c < tau_s, w/o norm": ("c below s, w/o", "ink"),
    "d_c = 2": ("d_c = 2", "muted"),
    "d_c = 4": ("d_c = 4", "orange"),
    "d_c = 4, without itself": ("4, no self", "red"),
    "tau_c < tau_s, without itself": ("c below s, no self", "ink"),
}
# Figure of the paper -> name of the comparison's figure.
FIGURES = {
    "linear": {"1_left": "1"},
    "box": {"1_middle": "1"},
    "sphere": {"1_right": "1"},
    "crossed": {"crossed": "arms"},
    "learned": {"temperatures": "sorted"},
    "table2": {"2_h": "spectrum_h", "2_z": "spectrum_z"},
    "direct_clr": {"4": "output_weights"},
}


def two_temperatures(dim: int, tau_c: float, tau_s: float) -> list[str]:
    """Arguments for a temperature of the first half of the dimensions and one of the others."""
    chosen = {"dim": dim, "tau_c": tau_c, "tau_s": tau_s}
    arguments = [f"{LOSS}temperature.init_args.{name}={value}" for name, value in chosen.items()]
    return [f"{LOSS}temperature={RULES}ContentStyleTemperature", *arguments]


def settings(what: str, size: str) -> Iterator[tuple[str, list[str]]]:
    """Names of the arms, and what each adds to the command line."""
    if what == "table1":
        yield "box", []
        same = [f"{LOSS}temperature=1.0", f"{LOSS}form=CL_ICA", "--trainer.max_epochs=20"]  # as the box has it
        yield "sphere", [*same, f"{DATA}concentration=0.05"]
    elif what == "linear":
        yield "d_c = 0", [f"{DATA}content_dim=0"]
        yield "d_c = 2", [f"{DATA}content_dim=2"]
        yield "d_c = 4", []
        yield "tau_c < tau_s", two_temperatures(8, 0.1, 1.0)
        yield "tau_c > tau_s", two_temperatures(8, 10.0, 1.0)
        yield "d_c = 4, without itself", WITHOUT_ITSELF
        yield "tau_c < tau_s, without itself", [*WITHOUT_ITSELF, *two_temperatures(8, 0.1, 1.0)]
    elif what == "box":
        yield "d_c = 0", [f"{DATA}content_dim=0"]
        yield "one tau", []
        yield "tau_c < tau_s", two_temperatures(6, 0.1, 10.0)
        yield "tau_c > tau_s", two_temperatures(6, 10.0, 1.0)
        yield "one tau, without itself", WITHOUT_ITSELF
        yield "one tau, standardized", STANDARDIZED
        yield "tau_c < tau_s, standardized", [*STANDARDIZED, *two_temperatures(6, 0.1, 10.0)]
    elif what == "sphere":
        yield "d_c = 0", [f"{DATA}content_dim=0"]
        yield "one tau", []
        yield "tau_c < tau_s", two_temperatures(6, 0.01, 0.1)
        yield "tau_c < tau_s, w/o norm", [*two_temperatures(6, 0.01, 1.0), *UNNORMALIZED]
        yield "one tau, w/o norm", [f"{LOSS}temperature=1.0", *UNNORMALIZED]
    elif what == "crossed":
        yield from crossed()
    elif what == "learned":
        yield "learned", []
        yield "one tau", [f"{LOSS}temperature=0.1"]
    elif what == "table2":
        free = [*UNNORMALIZED, *STANDARDIZED]
        yield "regular", []
        yield "w/o norm", [*free, f"{LOSS}temperature=1.0"]
        yield "w/o norm + diff. tau", [*free, *two_temperatures({"laptop": 64, "paper": 256}[size], 0.7, 1.0)]
    else:
        yield "DirectCLR", []


def crossed() -> Iterator[tuple[str, list[str]]]:
    """Every space with every loss; the two temperatures of an arm differ by the same factor in all arms."""
    scales = {"free": ([], 1.0), "standardized": (STANDARDIZED, 1.0), "normalized": (NORMALIZED, 0.1)}
    for space, law in (("box", []), ("sphere", SPHERE)):
        for contrast, negatives in (("with itself", []), ("without itself", WITHOUT_ITSELF)):
            for scale, (words, tau) in scales.items():
                same = [*law, *negatives, *words]
                yield f"{space}, {contrast}, {scale}, one tau", [*same, f"{LOSS}temperature={tau}"]
                yield f"{space}, {contrast}, {scale}, two tau", [*same, *two_temperatures(6, 0.1 * tau, tau)]


def configs(what: str, size: str, arm: str) -> list[Path]:
    """The YAML files of an arm, in their order."""
    if what == "table1":
        names = ["laptop", "table1", *(["sphere"] if arm == "sphere" else [])]
    elif what == "table2":
        names = [{"laptop": "cifar10", "paper": "paper"}[size]]
    elif what == "direct_clr":
        names = ["cifar10", "direct_clr"]
    else:
        names = ["laptop", *{"box": [], "learned": ["sphere", "learned"]}.get(what, [what])]
    return [HERE / f"{name}.yaml" for name in names]


def output(options: argparse.Namespace) -> Path:
    return options.output / options.size / options.what


def fit(options: argparse.Namespace, arm: str, added: list[str], seed: int) -> Fit:
    said = arm.replace("<", "below").replace(">", "above").replace("w/o", "without").replace("=", "")
    folder = output(options) / "_".join(said.replace(",", "").replace(".", "").split()) / f"seed{seed}"
    read = configs(options.what, options.size, arm)
    words = command(options, folder, configs=read, added=added, seed=seed)
    return Fit(f"{arm}, seed {seed}", words, folder, finished)


class Row(NamedTuple):
    """One number of one run, at its end."""

    arm: str
    seed: int
    quantity: str
    value: float


def read(path: Path, arm: str, seed: int) -> Iterator[Row]:
    """Read a run's accuracies, and the last values of its scalars and of each entry of its vectors."""
    run = read_run(path)
    for name, series in run.scalars.items():
        yield Row(arm, seed, name, float(series.value[-1]))
    for name, readouts in run.arrays.items():
        yield from (Row(arm, seed, f"{name}/{place}", float(x)) for place, x in enumerate(readouts.values[-1]))
    for found in run.evaluations:
        yield Row(arm, seed, f"accuracy/{found.features}", found.accuracy)


def inverse_rows(arm: str, seed: int) -> Iterator[Row]:
    """Table 1's row f = g^-1: the terms of the loss for the true latents, and their deviation over samples."""
    law = {"space": "box"} if arm == "box" else {"space": "sphere", "conditional": "von_mises_fisher"}
    process = LatentProcess(10, 2, **law, style_scale=0.05, concentration=0.05)
    z1, z2 = process.sample(counter_hash(seed, torch.arange(10_000))).double()
    similarity = {"similarity": "distance", "normalize": False} if arm == "box" else {}
    terms = alignment_uniformity_terms(z1, z2, 1.0, **similarity)
    for name, term in terms._asdict().items():
        yield Row(arm, seed, f"inverse_{name}", term.mean().item())
        yield Row(arm, seed, f"inverse_{name}_std", term.std().item())


def spread(rows: list[Row], arm: str, quantity: str) -> str:
    return over_seeds([row.value for row in rows if (row.arm, row.quantity) == (arm, quantity)], ".3f")


QUANTITIES = {
    "table1": {
        **{f"g^-1, {name}": f"inverse_{name}" for name in ("align", "uniform", "total")},
        **{f"g^-1, {name}, deviation over samples": f"inverse_{name}_std" for name in ("align", "uniform", "total")},
        **{f"f_InfoNCE, {name}": f"val/loss_terms_{name}" for name in ("align", "uniform", "total")},
        "R^2 of content in z": "val/latent_r2_content_z",
        "R^2 of style in z": "val/latent_r2_style_z",
    },
    "table2": {"after p.": "accuracy/projector", "before p.": "accuracy/trained", "untrained": "accuracy/frozen"}
    | {f"effective rank of {x}": f"val/effective_rank_{x}" for x in "hz"}
    | {f"participation ratio of {x}": f"val/variance_rank_{x}_participation_ratio" for x in "hz"}
    | {f"first direction's share of {x}": f"val/variance_rank_{x}_leading_share" for x in "hz"},
    "direct_clr": {"r": "accuracy/trained", "h": "accuracy/backbone.network.layer4.0"}
    | {f"mean absolute weight, {which}": f"val/output_weights_{which}" for which in ("used", "unused")},
}
LATENTS = {
    "content in h": "val/latent_r2_content_h",
    "content in z": "val/latent_r2_content_z",
    "style in h": "val/latent_r2_style_h",
    "style in z": "val/latent_r2_style_z",
    "MCC": "val/mcc_mean",
    "effective rank of z": "val/effective_rank_z",
    "tau_c < tau_s": "val/temperature_order_auc",
}


def table(what: str, rows: list[Row]) -> str:
    """Markdown: a row for each arm, mean and standard deviation over seeds."""
    names, arms = QUANTITIES.get(what, LATENTS), dict.fromkeys(row.arm for row in rows)
    lines = [[arm, *(spread(rows, arm, name) for name in names.values())] for arm in arms]
    return markdown(["", *names], lines)


def places(rows: list[Row], arm: str, name: str) -> np.ndarray:
    """The vectors of an arm's runs, (seeds, entries)."""
    found = {}
    for row in rows:
        if row.arm == arm and row.quantity.startswith(f"{name}/"):
            found.setdefault(row.seed, []).append(row.value)
    return np.array(list(found.values()))


def normalized(rows: list[Row], arm: str) -> tuple[np.ndarray, np.ndarray]:
    """Singular values of W, and of W g from the covariance of z, divided by the largest, as means over seeds."""
    of_w = places(rows, arm, "val/projector_singular_values")
    of_wg = np.exp(places(rows, arm, "val/log_spectrum_z"))
    return tuple((values / values.max(1, keepdims=True)).mean(0) for values in (of_w, of_wg))


def spectra(rows: list[Row]) -> str:
    """Markdown: Fig. 1 left in numbers."""
    lines = []
    for arm in dict.fromkeys(row.arm for row in rows):
        lines.append([arm, *(" ".join(f"{value:.2f}" for value in values) for values in normalized(rows, arm))])
    return markdown(["", "of W", "of W g"], lines)


def by_index(rows: list[Row]):
    """Fig. 1 left, of W g."""
    lines = []
    for arm in dict.fromkeys(row.arm for row in rows):
        values = normalized(rows, arm)[1]
        name, color = LINES[arm]
        lines.append(Curve(f"{name} {values[-1]:.2f}", np.arange(1.0, len(values) + 1), values, color))
    caption = Caption(title="Singular values of W g over their largest", notes=("Means over seeds.",))
    return curves(lines, xlabel="index", ylabel="normalised singular value", floor=0.0, caption=caption)


def by_layer(rows: list[Row]):
    """Fig. 1 middle and right: how much of the style each layer holds, mean and deviation over seeds."""
    lines = []
    for arm in dict.fromkeys(row.arm for row in rows):
        values = places(rows, arm, "val/latent_r2_style")
        name, color = LINES[arm]
        x, label = np.arange(float(values.shape[1])), f"{name} {values.mean(0)[-1]:.2f}"
        lines.append(Curve(label, x, values.mean(0), color, spread=values.std(0, ddof=min(1, len(values) - 1))))
    caption = Caption(title="Style by layer", notes=("Of z at the right. Mean and standard deviation over seeds.",))
    return curves(lines, xlabel="layer, from the input (0) to z", ylabel="adjusted R²", floor=0.0, caption=caption)


def sorted_temperatures(rows: list[Row]):
    """The sorted temperatures of each seed; the order of outputs differs between seeds, so there is no mean."""
    lines = []
    for seed, color in zip(sorted({row.seed for row in rows}), ("blue", "green", "violet"), strict=False):
        name = "val/dimension_temperature/"
        found = [r.value for r in rows if (r.arm, r.seed) == ("learned", seed) and r.quantity.startswith(name)]
        lines.append(Curve(f"seed {seed}", np.arange(1.0, len(found) + 1), np.sort(found), color))
    caption = Caption(title="Learned temperatures, sorted")
    return curves(lines, xlabel="output, by its temperature", ylabel="temperature", floor=0.0, caption=caption)


def by_arm(rows: list[Row]):
    """The crossed arms: how much of the style z and h hold, mean and deviation over seeds."""
    groups: dict[str, list[Dot]] = {}
    for arm in dict.fromkeys(row.arm for row in rows):
        space, contrast, label = arm.split(", ", 2)
        h, z = (
            np.array([r.value for r in rows if (r.arm, r.quantity) == (arm, LATENTS[f"style in {x}"])]) for x in "hz"
        )
        std = z.std(ddof=1) if len(z) > 1 else np.nan
        text, color = over_seeds(z, ".2f"), "orange" if space == "box" else "blue"
        groups.setdefault(f"{space}, {contrast}", []).append(Dot(label, z.mean(), std, text, color, before=h.mean()))
    seeds = len({row.seed for row in rows})
    of_seeds = "Mean and standard deviation over seeds." if seeds > 1 else "One seed."
    caption = Caption(title="Style in z", notes=(f"Rings: in h. {of_seeds}",))
    return dots(list(groups.items()), xlabel="adjusted R² of the style", caption=caption)


def draw(options: argparse.Namespace, runs: dict[str, list[Path]], rows: list[Row]) -> None:
    """The page of all runs, and the paper's figures."""
    print(write_comparison(runs, output(options) / "comparison.html"))
    drawn = comparison_figures(runs)
    if options.what in ("box", "sphere"):
        drawn["1"] = by_layer(rows)
    if options.what == "linear":
        drawn["1"] = by_index(rows)
    if options.what == "crossed":
        drawn["arms"] = by_arm(rows)
    if options.what == "learned":
        drawn["sorted"] = sorted_temperatures(rows)
    for number, name in FIGURES.get(options.what, {}).items():
        if name in drawn:
            print(save(drawn[name], output(options) / f"figure_{number}.png"))


def main() -> None:
    what = ("table1", "linear", "box", "sphere", "crossed", "learned", "table2", "direct_clr")
    arguments = parser(__doc__, "runs/content_suppresses_style", what=what)
    arguments.add_argument("--size", choices=("laptop", "paper"), default="laptop")
    options = arguments.parse_intermixed_args()
    if options.size == "paper" and options.what != "table2":
        arguments.error(f"Expected table2 for --size paper, but got {options.what}.")
    runs = grid(options, dict(settings(options.what, options.size)), fit)
    rows = [row for arm, seed, path in each(runs) for row in read(path, arm, seed)]
    if options.what == "table1":
        rows += [row for arm, seed, _ in each(runs) for row in inverse_rows(arm, seed)]
    write(rows, output(options) / "results.csv", ".5g")
    print(table(options.what, rows))
    if options.what == "linear":
        print(spectra(rows))
    draw(options, paths(runs), rows)


if __name__ == "__main__":
    main()
