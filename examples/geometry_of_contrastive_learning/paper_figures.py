"""The paper's figures, drawn from finished runs."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from draw_points import Point, points
from numpy.typing import NDArray
from recipe import spread_note

from lightning_ssl_geometry.plots import Caption, Curve, Dash, Dot, curves, dots
from lightning_ssl_geometry.report import read_run
from lightning_ssl_geometry.report.logs import Series

if TYPE_CHECKING:
    from matplotlib.figure import Figure

COLORS = {"small": "blue", "moderate": "orange", "large": "green"}
ACTIONS = ("brightness", "contrast", "hue", "saturation", "translation", "zoom", "rotation")
Groups = Mapping[str, Sequence[Path]]


class Row(NamedTuple):
    """First and last value of a scalar of one run; NaN where there is no first one."""

    group: str
    seed: object
    name: str
    first: float
    last: float


class Rotations(NamedTuple):
    """The rank of 500 rotations of one image, by angles up to `angle`."""

    seed: int
    angle: float
    rank: int


def figure_10(rows: list[Rotations]):
    """The rank by the largest angle."""
    angles = sorted({row.angle for row in rows})
    ranks = np.array([[row.rank for row in rows if row.angle == angle] for angle in angles])
    line = Curve("mean, deviation", np.array(angles), ranks.mean(1), spread=ranks.std(1, ddof=1))
    seeds = ranks.shape[1]
    note = f"32 x 32 pixels, 500 rotations, {seeds} random pixels; singular values above 1% of the largest."
    caption = Caption(title="Rank of the rotations of a one-hot image", notes=(note,))
    return curves([line], xlabel="largest angle, degrees", ylabel="directions", floor=0.0, caption=caption)


def epochs_done(series: Series) -> np.ndarray:
    """How many epochs of training lie before each value."""
    return series.done / series.done[-1] * (series.epoch[-1] + 1)


def over_seeds(paths: Sequence[Path], name: str) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Epochs of training before each readout (R,), and a scalar of each run (S, R)."""
    series = [read_run(path).scalars[name] for path in paths]
    return epochs_done(series[0]), np.stack([each.value for each in series])


def line(label: str, x: NDArray[np.float64], values: NDArray[np.float64], color: str, dash: Dash = "solid") -> Curve:
    """Mean over the runs of `values` (S, R), with their deviation, and the last mean behind the label."""
    spread = values.std(0, ddof=1) if len(values) > 1 else None
    return Curve(f"{label} {values.mean(0)[-1]:.2f}", x, values.mean(0), color, dash=dash, spread=spread)


def figure_3(groups: Groups) -> "Figure":
    """InfoNCE and its bound, over training."""
    lines = []
    for group, runs in groups.items():
        for name, said, dash in (("upper", "bound", "dashed"), ("info_nce", "loss", "solid")):
            x, values = over_seeds(runs, f"probe/bound_{name}")
            lines.append(line(f"{group}, {said}", x, values, COLORS[group], dash))
    run = read_run(next(iter(groups.values()))[0]).scalars
    negatives, temperature = (run[f"probe/bound_{name}"].value[-1] for name in ("negatives", "temperature"))
    note = f"beta = {1 / temperature:g}, {negatives:.0f} negatives for each anchor."
    caption = Caption(
        title="InfoNCE (Eq. 1) and its bound (Prop. 3.1)", notes=(note, spread_note(max(map(len, groups.values()))))
    )
    return curves(lines, xlabel="epochs of training", ylabel="nats", caption=caption)


def figure_7(groups: Groups) -> "Figure":
    """The share of dh that W leaves out, over training."""
    name = "probe/unexplained_variance_full"
    lines = [line(group, *over_seeds(runs, name), COLORS[group]) for group, runs in groups.items()]
    caption = Caption(
        title="Variance of dh that W does not explain", notes=(spread_note(max(map(len, groups.values()))),)
    )
    return curves(lines, xlabel="epochs of training", ylabel="share", floor=0.0, caption=caption)


def figure_7_with_nulls(groups: Groups) -> Iterator[tuple[str, "Figure"]]:
    """The same for each group, beside its two nulls."""
    kinds: tuple[tuple[str, str, Dash], ...] = (
        *(("", "dh", "solid"), ("_random", "random W", "dotted")),
        ("_between_samples", "between samples", "dashed"),
    )
    for group, runs in groups.items():
        lines = [
            line(said, *over_seeds(runs, f"probe/unexplained_variance_full{null}"), COLORS[group], dash)
            for null, said, dash in kinds
        ]
        notes = (
            "Random W: with the singular values of W, and its own dh.",
            spread_note(max(map(len, groups.values()))),
        )
        caption = Caption(title=f"What W does not explain: {group}", notes=notes)
        yield (
            group,
            curves(lines, xlabel="epochs of training", ylabel="share", floor=0.0, ceiling=1.0, caption=caption),
        )


def gain_spectra(groups: Groups) -> Iterator[tuple[str, "Figure"]]:
    """Prop. 4.1 for each group: how much of three kinds of directions each singular vector of W holds."""
    kinds: tuple[tuple[str, Dash], ...] = (
        *(("augmentations", "solid"), ("between_samples", "dashed")),
        ("negatives", "dotted"),
    )
    dashes = [(dash, kind.replace("_", " ")) for kind, dash in kinds]
    for group, runs in groups.items():
        lines = []
        for kind, dash in kinds:
            y = np.stack([read_run(path).arrays[f"probe/gain_{kind}_along"].values[-1] for path in runs]).mean(0)
            lines.append(Curve("", np.arange(1.0, len(y) + 1), y, COLORS[group], dash=dash))
        title = f"Along the singular vectors of W: {group}"
        caption = Caption(title=title, dashes=dashes, notes=(f"Mean of {len(runs)} runs.",))
        drawn = curves(lines, xlabel="singular vector", ylabel="variance, isotropic = 1", floor=0.0, caption=caption)
        yield group, drawn


def gains(rows: list[Row]):
    """Prop. 4.1: the gain of W on augmentations beside that between samples, before and after training."""
    chart = []
    for strength in dict.fromkeys(row.group for row in rows):
        dots_of = []
        for name, said in (("augmentations", "augmentations"), ("between_samples", "between samples")):
            of = [row for row in rows if (row.group, row.name) == (strength, f"probe/gain_{name}")]
            color = COLORS[strength] if name == "augmentations" else "muted"
            for when, values in (("", [row.last for row in of]), ("untrained: ", [row.first for row in of])):
                std = float(np.std(values, ddof=1)) if len(values) > 1 else np.nan
                mean = float(np.mean(values))
                dots_of.append(Dot(f"{when}{said}", mean, std, f"{mean:.2f}", "muted" if when else color))
        chart.append((strength, dots_of))
    notes = ("Null: between samples.", spread_note(len({row.seed for row in rows})))
    caption = Caption(title="Gain of W on two kinds of displacements", notes=notes)
    return dots(chart, xlabel="gain: squared length behind W, isotropic = 1", caption=caption)


def generators(rows: list[Row]):
    """Prop. 4.3: the gain of W on each group of transformations, beside that between samples."""
    chart = []
    for strength in dict.fromkeys(row.group for row in rows):
        dots_of = []
        for name in (*ACTIONS, "between_samples"):
            found = [r.last for r in rows if (r.group, r.name) == (strength, f"probe/policy_gain_{name}")]
            if not np.isfinite(found).all() or not found:
                continue  # digits have no hue
            said = {"rotation": "rotation (in no policy)", "between_samples": "between samples"}.get(name, name)
            color = "muted" if name == "between_samples" else COLORS[strength]
            std = float(np.std(found, ddof=1)) if len(found) > 1 else np.nan
            dots_of.append(Dot(said, float(np.mean(found)), std, f"{np.mean(found):.2f}", color))
        chart.append((strength, dots_of))
    caption = Caption(title="Gain of W after training", notes=(spread_note(len({row.seed for row in rows})),))
    return dots(chart, xlabel="gain, isotropic = 1", caption=caption)


def rank_against_accuracy(rows: Sequence[Row], rank: str, xlabel: str) -> "Figure":
    """Draw a point for each run: a rank, and the accuracy of linear evaluation on test images."""
    found = []
    for group in dict.fromkeys(row.group for row in rows):
        ranks, accuracies = (
            [row.last for row in rows if (row.group, row.name) == (group, name)] for name in (rank, "accuracy/trained")
        )
        name, _, strength = group.rpartition(", ")
        label = name.removeprefix("MLP ") if strength in COLORS and name else group
        pairs = sorted(zip(ranks, accuracies, strict=True), reverse=True)  # the name stands right of the last one
        for number, (x, y) in enumerate(pairs):
            found.append(Point("" if number else label, float(x), 100 * float(y), COLORS.get(strength, "blue")))
    colors = [(color, name) for name, color in COLORS.items() if any(f", {name}" in row.group for row in rows)]
    caption = Caption(title="Linear evaluation of h against the projector's rank", notes=("A point for each run.",))
    return points(found, xlabel=xlabel, ylabel="test accuracy, %", colors=colors, caption=caption)
