"""Figures of content and style: what each layer holds, temperatures, spectra of the gradient, weights of outputs."""

__all__ = ["content_style_comparisons", "content_style_panels", "layer_comparison", "layer_panels"]

from collections.abc import Sequence
from dataclasses import replace

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, curves
from lightning_ssl_geometry.report.array_panels import known_arrays, moment_curves, moment_numbers, spectrum_panels
from lightning_ssl_geometry.report.comparison_arrays import spectrum_comparison
from lightning_ssl_geometry.report.comparison_lines import Lines, counted
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, split
from lightning_ssl_geometry.report.groups import Group, average_array, shared_stage
from lightning_ssl_geometry.report.logs import Readouts
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel, same_lines, stage_order, time_name
from lightning_ssl_geometry.report.run import Run

_KINDS: tuple[tuple[str, str, Dash], ...] = (("content", "blue", "solid"), ("style", "orange", "dashed"))
_MOST_NAMED = 3  # groups whose lines carry their names twice
_LAYER, _R2 = "layer, from the input (0) to z", "adjusted R²"
_BY_INDEX = {  # name of the figure -> entry, axes, colour
    "gradient_ratio": ("gradient_ratio", "direction", "change over variance", "violet"),
    "temperatures": ("dimension_temperature", "dimension of z", "temperature", "green"),
    "output_weights": ("output_weights", "output channel", "mean absolute weight", "blue"),
}


def layer_panels(run: Run) -> list[Panel | None]:
    """Draw how much of content and style each layer holds at the end, one panel per stage."""
    stages = {split(array.name)[0] for array in known_arrays(run, "latent_r2_by_layer")}
    return [_by_layer(run, stage) for stage in sorted(stages, key=stage_order)]


def content_style_panels(run: Run) -> list[Panel | None]:
    """Draw other arrays over their index, one panel per stage."""
    spectra = spectrum_panels(run, ["gradient_spectrum"])
    by_index = [_by_index(run, array, name) for name in _BY_INDEX for array in known_arrays(run, _BY_INDEX[name][0])]
    return [*(panel and replace(panel, name="gradient_spectrum") for panel in spectra), *by_index]


def layer_comparison(groups: Sequence[Group], titled: bool) -> Panel | None:
    """Draw how much of content and style each layer holds at the end."""
    stage = shared_stage(groups, ["latent_r2_by_layer"])
    if stage is None:
        return None
    lines = Lines()
    for kind, _, dash in _KINDS:
        _add_last(lines, groups, stage, "latent_r2_by_layer", f"latent_r2_{kind}", 0, dash, kind)
    return _drawn(lines, stage, "latent_r2_by_layer", "latent_r2_by_layer", titled, _LAYER, _R2)


def content_style_comparisons(groups: Sequence[Group], titled: bool) -> list[Panel | None]:
    """Draw other arrays at the end; spectra at the start and at half of the training, too."""
    by_index = [_index_comparison(groups, name, titled) for name in _BY_INDEX]
    return [spectrum_comparison(groups, "gradient_spectrum", titled), *by_index]


def _by_layer(run: Run, stage: str) -> Panel | None:
    """The last readout."""
    found = {split(a.name)[1]: a for a in known_arrays(run, "latent_r2_by_layer") if split(a.name)[0] == stage}
    lines, drawn, said = [], [], []
    for kind, color, dash in _KINDS:
        array = found.get(f"latent_r2_{kind}")
        if array is not None and np.isfinite(array.values[-1]).any():
            y, when = array.values[-1], time_name(run, float(run.time(array)[-1]))
            tips = [f"{kind} {when}, layer {place}: {value:.4g}" for place, value in enumerate(y)]
            lines.append(Curve(f"{kind} {number(float(y[-1]))}", np.arange(float(len(y))), y, color, dash, tips=tips))
            drawn.append(kind)
            said.append(f"{kind} {number(float(y[0]))} at the input, {number(float(y[-1]))} at the end")
    if not lines:
        return None
    figure = curves(lines, xlabel=_LAYER, ylabel=_R2, floor=0.0)
    same = same_lines([(kind, line.x, line.y) for kind, line in zip(drawn, lines, strict=True)])
    entry = ENTRIES["latent_r2_by_layer"]
    label = f"{entry.title}{f' ({stage})' if stage else ''}: {'; '.join(said)}."
    remark = f"{when[0].upper()}{when[1:]}. {same}".strip()
    rows = [(kind, *row) for kind, line in zip(drawn, lines, strict=True) for row in zip(line.x, line.y, strict=True)]
    numbers = Numbers(("latents", "layer", "adjusted R2"), rows)
    return Panel("latent_r2_by_layer", entry.title, figure, label, (entry,), (stage,), remark=remark, numbers=numbers)


def _by_index(run: Run, array: Readouts, name: str) -> Panel | None:
    """At the start, at half of the training and at the end."""
    key, xlabel, ylabel, color = _BY_INDEX[name]
    lines = moment_curves(run, array, array.values, color)
    if not any(np.isfinite(line.y).any() for line in lines):
        return None
    figure = curves(lines, xlabel=xlabel, ylabel=ylabel, xlim=(1.0, max(2.0, array.values.shape[1])), floor=0.0)
    entry, stage = ENTRIES[key], split(array.name)[0]
    last = lines[-1].y[np.isfinite(lines[-1].y)]
    ends = f"from {number(float(last.min()))} to {number(float(last.max()))}" if len(last) else "without a finite value"
    label = f"{entry.title}{f' ({stage})' if stage else ''}: {lines[-1].label} {ends}."
    remark = same_lines([(line.label, line.x, line.y) for line in lines])
    numbers = moment_numbers(run, array, array.values)
    return Panel(name, entry.title, figure, label, (entry,), (stage,), remark=remark, numbers=numbers)


def _index_comparison(groups: Sequence[Group], name: str, titled: bool) -> Panel | None:
    key, xlabel, ylabel, _ = _BY_INDEX[name]
    stage = shared_stage(groups, [key])
    if stage is None:
        return None
    lines = Lines()
    _add_last(lines, groups, stage, key, "", 1)
    return _drawn(lines, stage, name, key, titled, xlabel, ylabel)


def _add_last(
    lines: Lines,
    groups: Sequence[Group],
    stage: str,
    key: str,
    array: str,
    first: int,
    dash: Dash = "solid",
    word: str = "",
) -> None:
    """Add the last readout that the runs of each group share, with its place from `first` on."""
    found = {group.name: average_array(group, key, stage, name=array) for group in groups}
    for group in groups:
        each = found[group.name]
        if each is None or not len(each.step):
            continue
        y, std = each.mean[-1], None if each.std is None else each.std[-1]
        named = len(groups) > _MOST_NAMED and any(curve.color == group.color for curve in lines.curves)
        value = None if named else number(float(y[-1]))
        lines.add(group, first + np.arange(float(len(y))), y, std, dash, value=value, word=word)
        lines.said.append(" ".join(filter(None, [group.name, word, number(float(y[0])), "to", number(float(y[-1]))])))
        lines.dashes |= {dash: word} if word else {}
    if note := counted(found):
        lines.notes = lines.notes or [(f"Data: {stage}. " if stage else "") + note]


def _drawn(lines: Lines, stage: str, name: str, key: str, titled: bool, xlabel: str, ylabel: str) -> Panel | None:
    if not any(np.isfinite(line.y).any() for line in lines.curves):
        return None
    entry = ENTRIES[key]
    figure = lines.draw(entry.title if titled else "", xlabel=xlabel, ylabel=ylabel, floor=0.0)
    label = f"{entry.title} at the end: {'; '.join(lines.said)}."
    return Panel(name, entry.title, figure, label, (entry,), (stage,), numbers=lines.numbers(xlabel))
