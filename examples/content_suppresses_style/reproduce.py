"""Run the arms of one of the paper's figures or tables, and make the figures and the table from the runs.

    python examples/content_suppresses_style/reproduce.py box --jobs 2

`table1`: Table 1, the inverse of the process and what is trained, on the box and on the sphere; `linear`: Fig. 1 left;
`sweep`: the same with more temperatures, on the box and on the sphere; `box` and `sphere`: Fig. 1 middle and right;
`crossed`: what the loss contrasts, the scale of z and the temperatures, on the box and on the sphere; `crossed_wide`:
the same with the widths of the published code; `rules`: the temperatures of Prop. 2 and 3; `learned`: temperatures that
are learned; `classes`: Lemma 1, content that is a class; `table2`: Table 2 and Fig. 2, and `direct_clr`: Appendix E,
both on CIFAR-10 with `--root FOLDER` (train/<class>/*, test/<class>/*; for `--size paper`, which table2 alone has,
where CIFAR-10 is, or is put). Runs that have finished are not repeated, so an interrupted command can be started
again. OUTPUT/<size>/<what>/ has results.csv, the PNGs, comparison.html and, for every run, its report.html.
"""

import argparse
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from lightning_ssl_geometry.data import LatentProcess
from lightning_ssl_geometry.functional import alignment_uniformity_terms, counter_hash
from lightning_ssl_geometry.plots import Caption, Curve, Dash, Dot, curves, dots
from lightning_ssl_geometry.report import comparison_figures, read_run, write_comparison

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent)]
from arms import ARMS, CHANGES, changes, configs, settings  # noqa: E402
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
    paths,
    save,
    spread_note,
    write,
)

# Figure -> the arms that it shows -> name, colour and dash of the line. The tables have all arms.
LINES: dict[str, dict[str, tuple[str, str, Dash]]] = {
    "linear": {
        "d_c = 0": ("d_c = 0", "blue", "solid"),
        "d_c = 2": ("d_c = 2", "violet", "solid"),
        "d_c = 4": ("d_c = 4", "orange", "solid"),
        "d_c = 4, without itself": ("d_c = 4, dotted", "orange", "dotted"),
        "tau_c < tau_s": ("tau_c < tau_s", "green", "solid"),
        "tau_c < tau_s, without itself": ("the same, dotted", "green", "dotted"),
        "tau_c > tau_s": ("tau_c > tau_s", "red", "solid"),
        "untrained": ("untrained", "ink", "solid"),
    },
    "box": {
        "d_c = 0": ("no content", "blue", "solid"),
        "one tau": ("one tau", "orange", "solid"),
        "tau_c < tau_s": ("tau_c < tau_s", "violet", "solid"),
        "one tau, standardized": ("one, standardized", "red", "solid"),
        "tau_c < tau_s, standardized": ("two, standardized", "green", "solid"),
        "untrained": ("untrained", "ink", "solid"),
    },
    "sphere": {
        "d_c = 0": ("no content", "blue", "solid"),
        "one tau": ("one tau", "orange", "solid"),
        "tau_c < tau_s": ("tau_c < tau_s", "green", "solid"),
        "one tau, w/o norm": ("one, not norm.", "violet", "solid"),
        "tau_c < tau_s, w/o norm": ("two, not norm.", "red", "solid"),
        "untrained": ("untrained", "ink", "solid"),
    },
    "table2": {
        "regular": ("regular", "blue", "solid"),
        "w/o norm": ("w/o norm", "orange", "solid"),
        "w/o norm + diff. tau": ("diff. tau", "green", "solid"),
        "w/o norm, tau = P": ("tau = P", "violet", "solid"),
        "w/o norm + diff. tau, tau = P": ("diff., tau = P", "ink", "solid"),
        "w/o norm, dot, tau = P": ("dot, tau = P", "red", "solid"),
    },
}
SMOKE = ("--trainer.max_epochs=1", "--trainer.limit_train_batches=10", "--trainer.check_val_every_n_epoch=1")
# Figure of the paper -> name of the comparison's figure.
FIGURES = {
    "linear": {"1_left_w": "W", "1_left_wg": "W g"},
    "box": {"1_middle": "1"},
    "sphere": {"1_right": "1"},
    "crossed": {"crossed": "arms"},
    "crossed_wide": {"crossed_wide": "arms"},
    "learned": {"temperatures": "sorted"},
    "classes": {"classes": "over_training"},
    "table2": {"2": "spectra"},
    "direct_clr": {"4": "output_weights"},
}


def output(options: argparse.Namespace) -> Path:
    return options.output / options.size / options.what


def fit(options: argparse.Namespace, arm: str, added: list[str], seed: int) -> Fit:
    said = (
        arm.replace("(", " ")
        .replace(")", "")
        .replace("<", "below")
        .replace(">", "above")
        .replace("w/o", "without")
        .replace("=", "")
    )
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
    maps = {"inverse": (z1, z2)} | ({"harmonics": (harmonics(z1), harmonics(z2))} if arm == "sphere" else {})
    for kind, views in maps.items():
        for name, term in alignment_uniformity_terms(*views, 1.0, **similarity)._asdict().items():
            yield Row(arm, seed, f"{kind}_{name}", term.mean().item())
            yield Row(arm, seed, f"{kind}_{name}_std", term.std().item())


def harmonics(z: Tensor) -> Tensor:
    """A map of the sphere's two content dimensions alone, (N, 6): cos and sin of 1, 2 and 3 times their angle."""
    angle = torch.atan2(z[:, 1], z[:, 0])[:, None] * torch.arange(1, 4, dtype=z.dtype)
    return torch.cat([angle.cos(), angle.sin()], dim=1)


def spread(rows: list[Row], arm: str, quantity: str) -> str:
    return over_seeds([row.value for row in rows if (row.arm, row.quantity) == (arm, quantity)], ".3f")


QUANTITIES = {
    "table1": {
        **{f"g^-1, {name}": f"inverse_{name}" for name in ("align", "uniform", "total")},
        **{f"g^-1, {name}, deviation over samples": f"inverse_{name}_std" for name in ("align", "uniform", "total")},
        **{f"content alone, {name}": f"harmonics_{name}" for name in ("align", "uniform", "total")},
        **{f"f_InfoNCE, {name}": f"val/loss_terms_{name}" for name in ("align", "uniform", "total")},
        "R^2 of content in z": "val/latent_r2_content_z",
        "R^2 of style in z": "val/latent_r2_style_z",
    },
    "table2": {"after p.": "accuracy/projector", "before p.": "accuracy/trained", "untrained": "accuracy/frozen"}
    | {f"effective rank of {x}": f"val/effective_rank_{x}" for x in "hz"}
    | {f"participation ratio of {x}": f"val/variance_rank_{x}_participation_ratio" for x in "hz"}
    | {f"first direction's share of {x}": f"val/variance_rank_{x}_leading_share" for x in "hz"},
    "classes": {
        f"{name}, {x}": f"val/collapse_{x}_{key}"
        for x in "hz"
        for name, key in {"within classes": "within_class", "lengths": "equinorm", "angles": "simplex"}.items()
    }
    | {"participation ratio of z": "val/variance_rank_z_participation_ratio"},
    "direct_clr": {"r": "accuracy/trained", "h": "accuracy/backbone.network.layer4.0"}
    | {f"mean absolute weight, {which}": f"val/output_weights_{which}" for which in ("used", "unused")},
}
LATENTS = {
    "content in x": "val/latent_r2_content/0",
    "style in x": "val/latent_r2_style/0",
    "content in h": "val/latent_r2_content_h",
    "content in z": "val/latent_r2_content_z",
    "style in h": "val/latent_r2_style_h",
    "style in z": "val/latent_r2_style_z",
    "MCC": "val/mcc_mean",
    "effective rank of z": "val/effective_rank_z",
    "outputs ordered by tau": "val/temperature_order_auc",
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


def by_index(rows: list[Row], which: int):
    """Fig. 1 left, of W (0) or of W g (1)."""
    lines = []
    for arm, (name, color, dash) in LINES["linear"].items():
        values = normalized(rows, arm)[which]
        lines.append(Curve(name, np.arange(1.0, len(values) + 1), values, color, dash=dash))
    title = f"Singular values of {('W', 'W g')[which]} over their largest"
    caption = Caption(title=title, notes=("d = 8, means over seeds. Dotted: the anchor is not among its negatives.",))
    return curves(lines, xlabel="index", ylabel="normalised singular value", floor=0.0, caption=caption)


def before_and_after(rows: list[Row]):
    """Fig. 2: the spectra of h and z, means over seeds, each over its largest value."""
    lines = []
    for arm, (name, color, _) in LINES["table2"].items():
        kinds: tuple[tuple[str, Dash], ...] = (("h", "solid"), ("z", "dashed"))
        for x, dash in kinds:
            found = places(rows, arm, f"val/log_spectrum_{x}")
            if found.size:
                share = np.exp(found - found[:, :1]).mean(0)
                label = name if x == "h" else ""
                lines.append(Curve(label, np.arange(1.0, len(share) + 1), share, color, dash=dash))
    notes = ("Solid: h, before the projector. Dashed: z, after it. Means over seeds.",)
    caption = Caption(title="Singular values over their largest", notes=notes)
    return curves(lines, xlabel="index", ylabel="singular value", log=True, caption=caption)


def by_layer(rows: list[Row], what: str):
    """Fig. 1 middle and right: how much of style and content each layer holds, mean and deviation over seeds."""
    lines = []
    for arm, (name, color, _) in LINES[what].items():
        kinds: tuple[tuple[str, Dash], ...] = (("style", "solid"), ("content", "dashed"))
        for kind, dash in kinds:
            found = places(rows, arm, f"val/latent_r2_{kind}")
            if not found.size:
                continue  # d_c = 0
            values = np.concatenate([found[:, :13:2], found[:, -1:]], axis=1)  # the input, six activations, and z
            spread = values.std(0, ddof=min(1, len(values) - 1))
            label = name if kind == "style" else ""
            x = np.arange(float(values.shape[1]))
            lines.append(Curve(label, x, values.mean(0), color, dash=dash, spread=spread, bounds=(-np.inf, 1.0)))
    names = ("x", "1", "2", "3", "4", "5", "h", "z")
    notes = ("Solid: style. Dashed: content. Mean and standard deviation over seeds.",)
    caption = Caption(title="Latents by layer", notes=notes)
    return curves(lines, xlabel="layer", ylabel="adjusted R²", floor=0.0, ceiling=1.0, names=names, caption=caption)


def temperatures(rows: list[Row], arm: str) -> np.ndarray:
    """The sorted temperatures of each seed, (seeds, outputs): the order of the outputs differs between seeds."""
    return np.sort(places(rows, arm, "val/dimension_temperature"), axis=1)


def sorted_temperatures(rows: list[Row], content: float, style: float):
    """The learned temperatures beside 2 sigma^2, the temperatures for which the inverse of g has the least loss."""
    arm = changes(content, style)
    found = temperatures(rows, arm)
    output, half = np.arange(1.0, found.shape[1] + 1), found.shape[1] // 2
    truth = np.repeat([2 * content**2, 2 * style**2], [half, len(output) - half])
    lines = [Curve("2 sigma²", output, truth, "ink", dash="dashed")]
    of_style = [row.value for row in rows if (row.arm, row.quantity) == (arm, LATENTS["style in z"])]
    for values, r2, color in zip(found, of_style, ("blue", "orange", "green"), strict=False):
        lines.append(Curve(f"R² {r2:.2f}", output, values, color))
    notes = (f"sigma = {content:g} for content and {style:g} for style. A line for each seed; R² of the style in z.",)
    caption = Caption(title="Learned temperatures, sorted", notes=notes)
    return curves(lines, xlabel="output, by its temperature", ylabel="temperature", floor=0.0, caption=caption)


def learned_table(rows: list[Row]) -> str:
    """Markdown: learned temperatures of content and style, the means of the lower and the upper half, and the truth."""
    lines = []
    for content, style in CHANGES:
        lower, upper = (part.mean(1) for part in np.array_split(temperatures(rows, changes(content, style)), 2, axis=1))
        cells = [over_seeds(part, ".3f") for part in (lower, upper)]
        lines.append([f"{content:g}, {style:g}", *cells, f"{2 * content**2:.3f}", f"{2 * style**2:.3f}"])
    return markdown(["sigma of content, style", "lower half", "upper half", "2 sigma_c^2", "2 sigma_s^2"], lines)


def by_arm(rows: list[Row]):
    """The crossed arms: how much of the style z and h hold, mean and deviation over seeds."""
    groups: dict[str, list[Dot]] = {}
    for arm in dict.fromkeys(row.arm for row in rows):
        *place, label = arm.split(", ", 2)
        h, z = (
            np.array([r.value for r in rows if (r.arm, r.quantity) == (arm, LATENTS[f"style in {x}"])]) for x in "hz"
        )
        std = z.std(ddof=1) if len(z) > 1 else np.nan
        text, color = over_seeds(z, ".2f"), "orange" if place[0] == "box" else "blue"
        dot = Dot(label, z.mean(), std, text, color, before=h.mean())
        groups.setdefault(", ".join(place), []).append(dot)
    notes = (f"Rings: in h. {spread_note(len({row.seed for row in rows}))}",)
    caption = Caption(title="Style in z", notes=notes)
    return dots(list(groups.items()), xlabel="adjusted R² of the style", caption=caption)


def over_training(runs: dict[str, list[Path]]):
    """Lemma 1: the spread within classes over that between classes, over the epochs, as means over seeds."""
    lines = []
    for (arm, folders), color in zip(runs.items(), ("blue", "ink", "orange", "violet"), strict=True):
        kinds: tuple[tuple[str, Dash], ...] = (("h", "solid"), ("z", "dashed"))
        for x, dash in kinds:
            series = [read_run(folder).scalars[f"val/collapse_{x}_within_class"] for folder in folders]
            epochs, values = 1 + np.asarray(series[0].epoch, float), np.mean([each.value for each in series], axis=0)
            lines.append(Curve(arm if x == "h" else "", epochs, values, color, dash=dash))
    notes = ("Solid: h. Dashed: z. Means over seeds.",)
    caption = Caption(title="Spread within classes over that between them", notes=notes)
    return curves(lines, xlabel="epochs of training", ylabel="ratio", log=True, caption=caption)


def draw(options: argparse.Namespace, runs: dict[str, list[Path]], rows: list[Row]) -> None:
    """The page of all runs, and the paper's figures."""
    print(write_comparison(runs, output(options) / "comparison.html"))
    drawn = comparison_figures(runs)
    if options.what in ("box", "sphere"):
        drawn["1"] = by_layer(rows, options.what)
    if options.what == "linear":
        drawn |= {"W": by_index(rows, 0), "W g": by_index(rows, 1)}
    if options.what == "table2":
        drawn["spectra"] = before_and_after(rows)
    if options.what in ("crossed", "crossed_wide"):
        drawn["arms"] = by_arm(rows)
    if options.what == "classes":
        drawn["over_training"] = over_training(runs)
    if options.what == "learned":
        drawn["sorted"] = sorted_temperatures(rows, *CHANGES[0])
    for number, name in FIGURES.get(options.what, {}).items():
        if name in drawn:
            print(save(drawn[name], output(options) / f"figure_{number}.png"))


def main() -> None:
    arguments = parser(__doc__, "runs/content_suppresses_style", what=(*ARMS, "table2"))
    arguments.add_argument("--size", choices=("smoke", "laptop", "paper"), default="laptop")
    options = arguments.parse_intermixed_args()
    if options.size == "paper" and options.what != "table2":
        arguments.error(f"Expected table2 for --size paper, but got {options.what}.")
    if options.size == "smoke":
        if options.what in ("table2", "direct_clr"):
            arguments.error(f"Expected synthetic data for --size smoke, but got {options.what}.")
        options.more = [*SMOKE, *options.more]
        print("Ten steps of each run: the numbers only show that the command works.")
    runs = grid(options, settings(options.what, options.size), fit)
    rows = [row for arm, seed, path in each(runs) for row in read(path, arm, seed)]
    if options.what == "table1":
        rows += [row for arm, seed, _ in each(runs) if arm in ("box", "sphere") for row in inverse_rows(arm, seed)]
    write(rows, output(options) / "results.csv", ".5g")
    print(table(options.what, rows))
    if options.what in ("linear", "sweep"):
        print(spectra(rows))
    if options.what == "learned":
        print(learned_table(rows))
    draw(options, paths(runs), rows)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
