"""Figures of vectors at a few times of training: spectra, profiles, histograms and quantiles."""

__all__ = ["moment_panels", "without_rounding"]

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, curves
from lightning_ssl_geometry.report.download import Numbers, listed
from lightning_ssl_geometry.report.figures import Plan, View
from lightning_ssl_geometry.report.groups import Average, Group
from lightning_ssl_geometry.report.logs import Floats
from lightning_ssl_geometry.report.members import Member, printable, stage_order
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import (
    Panel,
    caption_of,
    ceiling_of,
    floor_of,
    limits,
    remark_of,
    same_lines,
    shown,
    time_name,
)
from lightning_ssl_geometry.report.readouts import MOST_READOUTS, in_order_of_time, places, readouts_in_words
from lightning_ssl_geometry.report.tracks import COLORS, Track, counted, dash_names, labels, mean_of, shared_stage

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_ROUNDING = 1e-6  # of the largest singular value; rows in single precision leave about 10⁻⁷ in an empty direction
_ROUNDED = "are 0 up to single precision (below 10⁻⁶ of the largest), and not drawn."
_MOST_TIPS = 9  # of a line that is not over time
_END: tuple[str, Dash] = ("", "solid")
_BY_QUANTITY: tuple[Dash, ...] = ("solid", "dashed", "dashdot", "dotted")
_OF_A_FIT = ("train", "val", "probe")  # stages that see the weights of one training


@dataclass(frozen=True)
class _Line:
    track: Track  # the quantity, and how it looks; the mean of a spectrum is of logarithms
    row: int  # the number of the readout
    moment: str  # the time of the readout, in words
    x: Floats  # (K,), or (K + 1,) edges
    y: Floats  # (K,), as it is drawn
    curve: Curve

    @property
    def words(self) -> str:
        group, label = self.track.group.name, self.track.label
        return ", ".join(filter(None, [printable(group, 30), label, "" if label and not group else self.moment]))


def moment_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw vectors at the start, middle and end of training. A figure of several quantities shows only the end."""
    stages = sorted({stage for member in plan.drawn for stage in member.names.get(0, {})}, key=stage_order)
    if not view.alone:
        stages = [stage for stage in [shared_stage(plan.drawn, view)] if stage is not None]
    rows: Sequence[int | None] = (-1, 0) if plan.kind == "histogram" and not view.alone and not view.once else (None,)
    of_weights = all(member.quantity.of_weights for member in plan.drawn)  # the same on all data
    found = {(stage, row): _lines(plan, view, stage, row=row) for stage in stages for row in rows}
    if of_weights and view.alone:
        found = _of_one_fit(found)
    drawn: list[tuple[str, int | None, list[_Line]]] = []
    for (stage, row), lines in found.items():
        again = of_weights and any(_alike(lines, before) for _, _, before in drawn)
        if any(np.isfinite(line.y).any() for line in lines) and not again:
            drawn.append((stage, row, lines))
    return [_panel(plan, view, stage, row=row, lines=lines) for stage, row, lines in drawn]


def _of_one_fit(found: dict[tuple[str, int | None], list[_Line]]) -> dict[tuple[str, int | None], list[_Line]]:
    """Leave out all stages of a fit but the one with the most readouts: they see the same weights at other steps."""
    readouts = {stage: sum(len(line.track.mean.step) for line in lines) for (stage, _), lines in found.items()}
    fit = [stage for stage in readouts if stage in _OF_A_FIT]
    kept = max(fit, key=lambda stage: readouts[stage], default=None)
    return {(stage, row): lines for (stage, row), lines in found.items() if stage not in fit or stage == kept}


def _panel(plan: Plan, view: View, stage: str, row: int | None, lines: Sequence[_Line]) -> Panel:
    title = plan.title if row is None else f"{plan.title}, {'start' if row == 0 else 'end'}"
    same = same_lines([(words, x, np.log(y) if _log(plan) else y) for words, x, y in map(_shape, lines)])
    remark, rounded = remark_of(plan, view, [stage]), _rounded(plan, lines)
    means = {group.name: _mean(plan.drawn[0], group, stage, view=view, plan=plan) for group in view.groups}
    counts = (f"Data: {stage}. " if stage else "") + counted(means)
    averaged = "Averaged as logarithms." if _log(plan) and any(line.track.mean.runs > 1 for line in lines) else ""
    named = dash_names((line.curve.dash, line.track.label or line.moment) for line in lines)
    every = _every(plan, view, lines) if row is None else []
    figure = curves(
        [line.curve for line in lines], xlabel=_xlabel(plan), ylabel=plan.unit, xlim=_xlim(plan, lines),
        floor=_floor(plan), ceiling=ceiling_of(plan, view) if plan.kind in ("profile", "quantiles") else None,
        log=_log(plan),
        caption=caption_of(view, title, [counts, averaged, rounded, same, remark if view.titled else ""], named=named),
        behind=in_order_of_time(every, tips=2),
    )  # fmt: skip
    name = f"{stage}_{plan.name}" if view.alone and stage else plan.name + ("_start" if row == 0 else "")
    label = f"{title}{f' ({stage})' if stage else ''}: {'; '.join(map(_in_words, lines))}."
    said = " ".join(filter(None, [remark, *([rounded, same] if view.alone else [])]))
    beside = _linear(plan, lines, every) if every and _log(plan) else None
    ends = (every[0].label, every[-1].label, readouts_in_words(len(lines[0].track.mean.time))) if every else ()
    return Panel(
        name,
        title,
        figure,
        label=label,
        numbers=_numbers(plan, view, lines),
        members=plan.members,
        stages=[stage],
        remark=said,
        readouts=ends,
        beside=beside,
    )


def _every(plan: Plan, view: View, lines: Sequence[_Line]) -> list[Curve]:
    # none if the figure shows all readouts as it is, or several quantities or groups
    track = lines[0].track
    count = len(track.mean.time)
    if (
        not view.alone
        or len(plan.drawn) > 1
        or plan.kind == "histogram"
        or count <= len(_looks_by_row(track.mean.time))
    ):
        return []
    rows = np.unique(np.linspace(0, count - 1, min(count, MOST_READOUTS)).astype(int))
    return [_line(plan, view, track, at=int(at), ended=True).curve for at in rows]


def _linear(plan: Plan, lines: Sequence[_Line], every: Sequence[Curve]) -> "Figure":
    drawn = [replace(line.curve, tips=(), spread=None) for line in lines]
    behind = in_order_of_time(every, tips=1)
    return curves(drawn, xlabel=_xlabel(plan), ylabel=plan.unit, xlim=_xlim(plan, lines), floor=0.0, log=False,
                  behind=behind)  # fmt: skip


def _lines(plan: Plan, view: View, stage: str, row: int | None) -> list[_Line]:
    several, found = len(plan.drawn) > 1, list[_Line]()
    for place, member in enumerate(plan.drawn):
        for track in _tracks(plan, view, member, stage=stage):
            at_end = row is not None or several or (not view.alone and plan.kind != "spectrum")
            looks = {-1 if row is None else row: _END} if at_end else _looks_by_row(track.mean.time)
            for at, (muted, dash) in looks.items():
                color = (muted or COLORS[place % len(COLORS)]) if view.alone else track.group.color
                dash = _BY_QUANTITY[place % len(_BY_QUANTITY)] if several and not view.alone else dash
                ended = view.alone or (dash == "solid" and place == 0) or (several and place == 0)
                found.append(_line(plan, view, replace(track, color=color, dash=dash), at=at, ended=ended))
    groups = {id(line.track.group) for line in found}
    for member in (each for each in plan.members if each.quantity.baseline):
        for track in _tracks(plan, view, member, stage=stage):
            line = _line(plan, view, replace(track, color="muted", dash="dashed"), at=-1, ended=view.alone)
            known = [each for each in found if each.track.member is member]
            if id(track.group) in groups and not any(same_lines([_shape(line), _shape(each)]) for each in known):
                found.append(line)
    return found


def _tracks(plan: Plan, view: View, member: Member, stage: str) -> list[Track]:
    label = labels(plan)[id(member)] if len(plan.drawn) > 1 or member.quantity.baseline else ""
    means = [(group, _mean(member, group, stage, view=view, plan=plan)) for group in view.groups]
    return [Track(member, group, stage, mean=mean, color=group.color, dash="solid", name="", label=label)
            for group, mean in means if mean is not None and len(mean.step)]  # fmt: skip


def _line(plan: Plan, view: View, track: Track, at: int, ended: bool) -> _Line:
    mean, (scale, show) = track.mean, shown(track.member.quantity)
    y, std = mean.mean[at], None if mean.std is None else mean.std[at]
    if _log(plan):
        values = np.exp(y)
        y, std = without_rounding(values), None if std is None else np.exp(std)
    y, std = scale * y, std if std is None or _log(plan) else scale * std
    x, when = (
        _x_values(plan, track.group, track.stage, view=view, size=len(y)),
        time_name(track.group.runs[0], float(mean.time[at])),
    )
    last, stepped = y[np.isfinite(y)][-1:], len(x) > len(y)
    value = show(float(last[0]) / scale) if len(last) and plan.kind == "profile" else ""
    if view.alone:
        end = f"{track.label} {value}" if track.label else when
    else:
        end = f"{printable(track.group.name, 14)} {value}" if ended else ""
    line = _Line(track, at, when, x=x, y=y, curve=Curve("", x[: len(y)], y))
    said = f"{line.words}, {_xlabel(plan)}"
    told = range(len(y)) if stepped else places(len(y), _MOST_TIPS)
    tips = [f"{said} {x[at]:.4g}: {y[at]:.4g}" if at in told else "" for at in range(len(y))]
    if stepped:  # the last edge has the height of the last bin
        y, tips, std = np.append(y, y[-1]), [*tips, tips[-1]], None if std is None else np.append(std, std[-1])
    if _log(plan):  # rounding is 0, which has no place on the axis: what is lost would have a cross
        rounding = np.isnan(y) & np.isfinite(values)
        y, std = np.where(rounding, 0.0, y), None if std is None else np.where(rounding, np.nan, std)
    bounds = (0.0, np.inf) if stepped or _log(plan) else limits(track.member.quantity)
    curve = Curve(end.strip(), x, y, color=track.color, dash=track.dash, tips=tips, spread=std, stepped=stepped,
                  factor=_log(plan), bounds=bounds)  # fmt: skip
    return replace(line, curve=curve)


def _mean(member: Member, group: Group, stage: str, view: View, plan: Plan) -> Average | None:
    logarithm = bool(member.quantity.picture and member.quantity.picture.logarithm)

    def transform(values: Floats) -> Floats:
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            if logarithm != _log(plan):
                values = np.exp(values) if logarithm else np.log(values)
        return np.where(values == np.inf, np.nan, values) if _log(plan) else values

    return mean_of(member, group, stage, view=view, transform=transform)


def _looks_by_row(time: Floats) -> dict[int, tuple[str, Dash]]:
    half = int(np.abs(time - (time[0] + time[-1]) / 2).argmin())
    looks: dict[int, tuple[str, Dash]] = {0: ("muted", "dotted"), half: ("muted", "dashed")}
    looks |= {0: ("muted", "dotted"), len(time) - 1: ("", "solid")}
    return dict(sorted(looks.items()))


def without_rounding(sigma: Floats) -> Floats:
    """Replace the singular values in a spectrum (K,) that are rounding errors by NaN."""
    largest = np.where(np.isfinite(sigma), sigma, 0.0).max()
    return np.where((sigma < _ROUNDING * largest) | (sigma <= 0), np.nan, sigma)


def _rounded(plan: Plan, lines: Sequence[_Line]) -> str:
    if not _log(plan):
        return ""
    ended = [line for line in lines if line.row in (-1, len(line.track.mean.step) - 1)]
    lost = {line.words: int((line.curve.y == 0).sum()) for line in ended}
    said = [
        f"{f'{name}: ' if len(lost) > 1 else ''}{count} of {len(lines[0].y)}" for name, count in lost.items() if count
    ]
    return f"{', '.join(said)} values {_ROUNDED}" if said else ""


def _x_values(plan: Plan, group: Group, stage: str, view: View, size: int) -> Floats:
    if plan.kind == "histogram":
        low, high = plan.drawn[0].quantity.bounds
        return np.linspace(low or 0.0, 1.0 if high is None else high, size + 1)
    if plan.kind == "quantiles":
        return np.linspace(0.0, 100.0, size)
    if (member := plan.serving("x")) and (mean := _mean(member, group, stage, view=view, plan=plan)) and len(mean.step):
        x = mean.mean[-1]
        if x.shape == (size,) and np.isfinite(x).all() and (np.diff(x) > 0).all():
            return x
    return np.arange(1.0, size + 1)


def _xlabel(plan: Plan) -> str:
    return printable(plan.drawn[0].quantity.xlabel, 40)


def _xlim(plan: Plan, lines: Sequence[_Line]) -> tuple[float, float] | None:
    if plan.serving("x"):
        return None
    low, high = min(line.x[0] for line in lines), max(line.x[-1] for line in lines)
    return float(low), float(max(high, low + 1))


def _floor(plan: Plan) -> float | None:
    counts = plan.kind == "histogram" or all(member.quantity.bounds[0] == 0 for member in plan.drawn)
    return None if _log(plan) else 0.0 if counts else floor_of(plan.drawn)


def _log(plan: Plan) -> bool:
    return plan.kind == "spectrum"


def _alike(lines: Sequence[_Line], others: Sequence[_Line]) -> bool:
    if len(lines) != len(others):
        return False
    return all(np.array_equal(a.y, b.y, equal_nan=True) for a, b in zip(lines[-1:], others[-1:], strict=True))


def _shape(line: _Line) -> tuple[str, Floats, Floats]:
    return line.words, line.x[: len(line.y)], line.y


def _in_words(line: _Line) -> str:
    value = line.y[np.isfinite(line.y)]
    if not len(value):
        return f"{line.words}: no finite value"
    return f"{line.words}: {len(value)} values from {number(float(value[0]))} to {number(float(value[-1]))}"


def _numbers(plan: Plan, view: View, lines: Sequence[_Line]) -> Numbers:
    parts = []
    for line in lines:
        track, mean, at = line.track, line.track.mean, line.row
        x = (line.x[1:] + line.x[:-1]) / 2 if len(line.x) > len(line.y) else line.x
        values, std = (np.exp(each[at]) if _log(plan) else each[at] for each in (mean.mean, mean.spread))
        cells = (mean.name, mean.epoch[at], mean.step[at])
        grouped = (track.group.name, track.label or line.moment)
        parts.append((cells, (x, values)) if view.alone else (grouped, (x, values, std)))
    kind = "geometric " if _log(plan) else ""
    alone = ("array", "epoch", "step", _xlabel(plan), plan.saved_unit)
    grouped_by = ("group", "quantity", _xlabel(plan), f"{kind}mean", f"{kind}standard deviation")
    return listed(alone if view.alone else grouped_by, parts)
