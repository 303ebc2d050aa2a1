"""Figures of scalars over training, and of alignment against uniformity."""

__all__ = [
    "fit_ranges",
    "hypersphere_panels",
    "matching",
    "over_training",
    "own_losses",
    "unknown_panel",
    "unknown_scalars",
]

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, curves, trajectory
from lightning_ssl_geometry.report.download import series_numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, Entry, lookup, split
from lightning_ssl_geometry.report.logs import MOST_DRAWN, Floats, Series
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.panel import (
    DASHES,
    LAYER_COLORS,
    Panel,
    layer_name,
    natural_order,
    printable,
    same_lines,
    stage_order,
    time_axis,
    time_name,
)
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.sheets import Sheet, Wanted

_MOST_POINTS = 150
_PROBE_LOSS = "linear_probe_loss"  # of a classifier beside the model
_ZERO = ("", np.zeros(1), np.zeros(1))  # beside which lines are the same


@dataclass(frozen=True)
class _Line:
    series: Series
    name: str
    color: str
    shown: str = ""  # at the line's end, in front of its last value
    is_percent: bool = False
    dash: Dash | None = None  # instead of that of its data

    @property
    def words(self) -> str:
        return " ".join(filter(None, [self.name, split(self.series.name)[0]]))

    @property
    def scale(self) -> float:
        return 100.0 if self.is_percent else 1.0

    def value(self, value: float) -> str:
        return percent(value) if self.is_percent else number(value)


def matching(run: Run, entry: Entry) -> list[Series]:
    """Find the scalars that an entry is about, by stage; without those per step beside their mean over the epoch."""
    found = [series for name, series in run.scalars.items() if lookup(name) is entry and not _is_step_twin(run, name)]
    return sorted(found, key=lambda series: stage_order(split(series.name)[0]))


def over_training(run: Run, sheet: Sheet) -> Panel | None:
    """Draw quantities that belong together, on all data they were logged for; None if there is none."""
    found = [(want, [s for s in matching(run, ENTRIES[want.key]) if s.drawable]) for want in sheet.wanted]
    if not any(members for want, members in found if not want.baseline):
        return None
    lines = [line for want, members in found for line in _named(want, members)]
    entries = tuple(ENTRIES[want.key] for want, members in found if members)
    panel = _panel(run, sheet.name, sheet.title, sheet.ylabel, lines, entries, sheet.floor)
    if sheet.name == "alpha_req" and (ranges := fit_ranges([run], {split(line.series.name)[0] for line in lines})):
        return replace(panel, remark=f"{ranges} {panel.remark}".strip())
    if sheet.name == "label_agreement" and ENTRIES["label_agreement_coarse"] not in entries:
        return replace(panel, remark=f"Fine labels only: the data has no coarse ones. {panel.remark}".strip())
    return panel


def fit_ranges(runs: Sequence[Run], stages: Collection[str]) -> str:
    """Say in a sentence which eigenvalues the exponents of runs are fitted to; empty where no run says so."""
    found: dict[tuple[float, float], None] = {}
    for run in runs:
        each = {split(s.name): s.value[-1] for s in matching(run, ENTRIES["alpha_req_range"]) if s.finite[-1]}
        for stage, name in each:
            end = name.removesuffix("first") + "last"
            if stage in stages and name.endswith("first") and (stage, end) in each:
                found[float(each[stage, name]), float(each[stage, end])] = None
    said = " or ".join(f"{first:.0f} to {last:.0f}" for first, last in found)
    return f"Fitted to eigenvalues {said}{', which do not compare' if len(found) > 1 else ''}." if said else ""


def own_losses(run: Run) -> dict[str, list[Series]]:
    """Group the scalars that a model calls some loss, such as `train_loss`, where it logs none that is known."""
    known = bool(matching(run, ENTRIES["loss"]))
    own = {name: members for name, members in _unknown(run).items() if name != _PROBE_LOSS}
    return {} if known else {name: members for name, members in own.items() if "loss" in name.lower()}


def unknown_scalars(run: Run) -> dict[str, list[Series]]:
    """Group the other scalars that the glossary does not know by their name behind the stage."""
    losses = own_losses(run)
    return {name: members for name, members in _unknown(run).items() if name not in losses}


def _unknown(run: Run) -> dict[str, list[Series]]:
    groups: dict[str, list[Series]] = {}
    for name, series in run.scalars.items():
        if lookup(name) is None and not _is_step_twin(run, name):
            groups.setdefault(split(name)[1], []).append(series)
    return groups


def unknown_panel(run: Run, base: str, members: Sequence[Series], entries: tuple[Entry, ...] = ()) -> Panel | None:
    """Draw one scalar that the glossary does not know; None if it never was a finite number."""
    members = sorted((s for s in members if s.drawable), key=lambda s: stage_order(split(s.name)[0]))
    lines = _named(Wanted("", color="blue"), members)
    return _panel(run, f"other_{base}", base, "value", lines, entries) if lines else None


def hypersphere_panels(run: Run) -> list[Panel | None]:
    """Draw a trajectory for each stage that has both at the same steps, and lines for what is left."""
    found = {key: {split(s.name)[0]: s for s in matching(run, ENTRIES[key])} for key in ("alignment", "uniformity")}
    both = [stage for stage in found["alignment"] if stage in found["uniformity"]]
    drawn = {stage: _trajectory(run, stage, found["alignment"][stage], found["uniformity"][stage]) for stage in both}
    lines = []
    for key, members in found.items():
        alone = [series for stage, series in members.items() if not drawn.get(stage) and series.drawable]
        if alone:
            lines.append(_panel(run, key, ENTRIES[key].title, key, _named(Wanted(key), alone), (ENTRIES[key],)))
    return [*drawn.values(), *lines]


def _is_step_twin(run: Run, name: str) -> bool:
    return name.endswith("_step") and name.removesuffix("_step") in run.scalars


def _named(want: Wanted, members: Sequence[Series]) -> list[_Line]:
    """Name a quantity's first line after it, and the others after their data."""
    if want.key == "projector_rank":
        return _layers(members)
    if want.baseline:
        return _baselines(want, members)
    is_percent = want.key in ENTRIES and ENTRIES[want.key].percent
    stages = [split(series.name)[0] for series in members]
    first = want.name or (stages[0] if len(stages) > 1 else "")
    shown = [first, *stages[1:]][: len(stages)]
    return [_Line(series, want.name, want.color, text, is_percent) for series, text in zip(members, shown, strict=True)]


def _baselines(want: Wanted, members: Sequence[Series]) -> list[_Line]:
    """Draw a baseline once for all data that have the same; grey, and named."""
    kept: list[Series] = []
    for series in members:
        if not any(same_lines([("", s.step, s.value), ("", series.step, series.value), _ZERO]) for s in kept):
            kept.append(series)
    is_percent = ENTRIES[want.key].percent
    return [_Line(series, want.name, want.color, want.name, is_percent, want.dash) for series in kept]


def _said(lines: Sequence[_Line]) -> str:
    """Name lines that the eye cannot tell apart."""
    return same_lines([(printable(line.words or line.name, 30), line.series.step, line.series.value) for line in lines])


def _layers(members: Sequence[Series]) -> list[_Line]:
    """A projector's layers, each once: its weights are the same on all data."""
    once = {split(series.name)[1]: series for series in reversed(members)}
    names = {base: printable(layer_name(rest), 16) if (rest := base[len("projector_rank_") :]) else "" for base in once}
    return [
        _Line(once[base], names[base], LAYER_COLORS[place % len(LAYER_COLORS)], names[base] and f"{names[base]}:")
        for place, base in enumerate(sorted(once, key=natural_order))
    ]


def _panel(
    run: Run,
    name: str,
    title: str,
    ylabel: str,
    lines: Sequence[_Line],
    entries: tuple[Entry, ...] = (),
    floor: float | None = None,
) -> Panel:
    xlabel, xlim = time_axis(run)
    drawn = [curve for line in lines for curve in _background(run, line)] + [_curve(run, line) for line in lines]
    figure = curves(drawn, xlabel=xlabel, ylabel=ylabel, xlim=xlim, floor=floor)
    stages = tuple(dict.fromkeys(split(line.series.name)[0] for line in lines))
    label = f"{title} over training: {'; '.join(map(_in_words, lines))}."
    sizes = sorted({_stretch(line.series) for line in lines} - {1})
    remark = f"Thick lines are means of {' or '.join(map(str, sizes))} values each. " if sizes else ""
    remark = (remark + _said(lines)).strip()
    numbers = series_numbers(line.series for line in lines)
    return Panel(name, title, figure, label, entries, stages, dashed=True, remark=remark, numbers=numbers)


def _curve(run: Run, line: _Line) -> Curve:
    series, size = line.series, _stretch(line.series)
    time, value = _averaged(run.time(series), size), _averaged(series.value, size)
    label = f"{line.shown} {line.value(float(value[-1]))}".strip()
    ends = slice(size - 1, None, size) if size > 1 else slice(None)
    name = (f"{printable(line.words, 40)}: " if line.words else "") + ("mean " if size > 1 else "")
    rows = zip(value, series.epoch[ends], series.step[ends], strict=False)
    tips = [f"{name}{value:.5g} (epoch {epoch:g}, step {step:g})" for value, epoch, step in rows]
    tips += [f"{name}{value[-1]:.5g}"] * (len(value) - len(tips))  # the last stretch may be shorter
    return Curve(label, time, line.scale * value, line.color, line.dash or DASHES[split(series.name)[0]], tips=tips)


def _background(run: Run, line: _Line) -> list[Curve]:
    """Every value, where the line in front has means: its own, or the twin that was logged per step."""
    behind = run.scalars.get(f"{line.series.name}_step") or (line.series if _stretch(line.series) > 1 else None)
    if behind is None:
        return []
    return [Curve("", run.time(behind), line.scale * behind.value, line.color, faint=True)]


def _stretch(series: Series) -> int:
    """How many values a point of the line stands for: a line of hundreds of noisy values would be a carpet."""
    return -(-len(series.value) // _MOST_POINTS)


def _averaged(values: Floats, size: int) -> Floats:
    """Means of stretches of `size`, of what is finite in them; NaN where nothing is."""
    padded = np.append(values, np.full(-len(values) % size, np.nan)).reshape(-1, size)
    finite = np.isfinite(padded)
    count = finite.sum(1)
    return np.where(finite, padded, 0.0).sum(1) / np.where(count, count, np.nan)


def _in_words(line: _Line) -> str:
    value = line.series.value[line.series.finite]
    return f"{line.words} from {line.value(float(value[0]))} to {line.value(float(line.series.value[-1]))}".strip()


def _trajectory(run: Run, stage: str, alignment: Series, uniformity: Series) -> Panel | None:
    steps, first, second = np.intersect1d(alignment.step, uniformity.step, return_indices=True)
    y, x, epoch = alignment.value[first], uniformity.value[second], alignment.epoch[first]
    kept = (np.abs(x) < MOST_DRAWN) & (np.abs(y) < MOST_DRAWN)
    if not kept.any():
        return None
    rows = zip(y, x, epoch, steps, strict=True)
    tips = [f"alignment {a:.4g}, uniformity {u:.4g} (epoch {e:g}, step {s:g})" for a, u, e, s in rows]
    time = run.time(alignment)[first][kept]
    ends = (time_name(run, time[0]), time_name(run, time[-1]))
    figure = trajectory(
        x, y, xlabel="uniformity (left: more spread)", ylabel="alignment (down: views closer)", ends=ends, tips=tips
    )
    x, y = x[kept], y[kept]
    ranges = f"alignment from {number(y[0])} to {number(y[-1])}, uniformity from {number(x[0])} to {number(x[-1])}."
    label = f"Alignment against uniformity{f' ({stage})' if stage else ''}: {ranges}"
    entries = tuple(ENTRIES[key] for key in ("trajectory", "alignment", "uniformity"))
    numbers = series_numbers([alignment, uniformity])
    return Panel(f"trajectory_{stage}", "Alignment against uniformity", figure, label, entries, (stage,),
                 numbers=numbers)  # fmt: skip
