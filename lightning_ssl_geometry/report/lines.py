"""Figures of scalars over training."""

__all__ = ["component_panels", "line_panel"]

from collections.abc import Mapping, Sequence
from dataclasses import replace

import numpy as np

from lightning_ssl_geometry.plots import Curve, Dash, Dot, curves, dots
from lightning_ssl_geometry.report.download import Numbers, listed, series_numbers
from lightning_ssl_geometry.report.figures import Plan, View
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.members import logged, printable
from lightning_ssl_geometry.report.numbers import deviation
from lightning_ssl_geometry.report.panel import (
    DASHES,
    Panel,
    caption_of,
    ceiling_of,
    floor_of,
    limits,
    remark_of,
    same_lines,
    shown,
)
from lightning_ssl_geometry.report.tracks import Track, counted, dash_names, mean_of, tracks

_MOST_POINTS = 150
_LOST = "Crosses: a run had no finite number there."
_MOST_COMPONENTS = 30
_MOST_LABELS = 13  # at the ends of lines, one above the other
_TOGETHER = 3  # components in one figure of groups, whose dashes tell them apart
_LOOKS: tuple[tuple[str, Dash], ...] = (
    ("orange", "dotted"), ("green", "solid"), ("blue", "dashed"), ("violet", "dashdot"), ("red", "dashdot"),
)  # fmt: skip
_BETWEEN: tuple[Dash, ...] = ("solid", "dashed", "dotted")


def line_panel(plan: Plan, view: View) -> Panel | None:
    """Draw scalars as lines over training. Return None if there are none, or if a model was only diagnosed."""
    found = tracks(plan, view)
    return None if not found or (view.alone and view.once) else _drawn(plan, view, found)


def component_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw each entry of a vector as a line over training."""
    found = tracks(plan, view)
    if not found:
        return []
    picture = plan.drawn[0].quantity.picture
    names = picture.names if picture else ()
    count = min(found[0].mean.mean.shape[1], _MOST_COMPONENTS)
    named = [printable(names[place], 24) if place < len(names) else f"{place + 1}" for place in range(count)]
    size, panels = (count if view.alone else _TOGETHER), []
    for number, start in enumerate(range(0, count, size), start=1):
        part = enumerate(range(start, min(start + size, count)))
        rows = [_component(track, named[place], place, at=at, view=view) for at, place in part for track in found]
        more = replace(plan, name=f"{plan.name}_{number}", title=f"{plan.title}, continued")
        panels.append(_drawn(plan if number == 1 else more, view, rows))
    return panels


def _component(track: Track, name: str, place: int, at: int, view: View) -> Track:
    std = None if track.mean.std is None else track.mean.std[:, place]
    monitored = ", ".join(filter(None, [name, track.label])) if view.alone else name
    track = replace(track, mean=replace(track.mean, mean=track.mean.mean[:, place], std=std), label=monitored)
    if view.alone:
        color, dash = _LOOKS[at % len(_LOOKS)]
        return replace(track, color=color, dash=dash, name=f"{monitored}:")
    return replace(track, dash=_BETWEEN[at], name="" if at else track.name)


def _drawn(plan: Plan, view: View, found: Sequence[Track]) -> Panel:
    once = all(run.is_diagnosis for track in found for run in track.group.runs)
    return (_dots if once else _lines)(plan, view, found)


def _lines(plan: Plan, view: View, found: Sequence[Track]) -> Panel:
    drawn = [curve for track in found for curve in _background(track, view)]
    drawn += [_curve(track, view, label=label) for track, label in zip(found, _end_labels(found, view), strict=True)]
    end = max([float(curve.x.max()) for curve in drawn if len(curve.x)], default=0.0)
    stages = list(dict.fromkeys(track.stage for track in found))
    words = [track.label if len(stages) == 1 and view.alone and track.label else track.words for track in found]
    named = [(printable(name or plan.title, 30), _time(track, view), track.mean.mean)
             for name, track in zip(words, found, strict=True)]  # fmt: skip
    same = same_lines(named)
    remark = remark_of(plan, view, stages)
    notes = () if view.alone else (remark if view.titled else "", *_notes(found, view), same)
    dashes = dash_names((track.dash, track.label) for track in found if track.label)
    caption = caption_of(view, plan.title, notes, named=dashes)
    figure = curves(
        drawn, xlabel=view.time_label, ylabel=plan.unit, xlim=_limits(view) if view.alone else (0.0, end or 1.0),
        floor=floor_of(plan.drawn), ceiling=ceiling_of(plan, view), caption=caption,
    )  # fmt: skip
    label = f"{plan.title} over training: {'; '.join(map(_in_words, found))}."
    sizes = sorted({_values_per_point(track, view) for track in found} - {1})
    thick = f"Thick lines are means of {' or '.join(map(str, sizes))} values each." if sizes else ""
    said = " ".join(filter(None, [remark, thick, same if view.alone else ""]))
    return Panel(plan.name, plan.title, figure, label=label, numbers=_numbers(plan, view, found), members=plan.members,
                 stages=stages, dashed=view.alone, remark=said)  # fmt: skip


def _end_labels(found: Sequence[Track], view: View) -> list[str]:
    # one label for all lines of a quantity that end at the same number; if there are too many, the most important
    ends: dict[tuple[int, str, str, str], list[int]] = {}
    for place, track in enumerate(found):
        name = track.name if view.alone or track.name or track.member.quantity.baseline else track.label
        if name or not (view.alone and track.member.quantity.baseline):
            value = shown(track.member.quantity)[1](
                float(_averaged(track.mean.mean, _values_per_point(track, view))[-1])
            )
            ends.setdefault((id(track.member), track.group.name, track.label, value), []).append(place)
    kept = sorted(ends.items(), key=lambda each: not _leads(found[each[1][0]]))[:_MOST_LABELS]
    labels = [""] * len(found)
    for (*_, value), places in kept:
        names = [found[place].name or _of_line(found[place]) for place in places]
        stages = [name for name in dict.fromkeys(names) if name in DASHES]
        labels[places[0]] = f"{', '.join(stages) if names[0] in DASHES else names[0]} {value}".strip()
    return labels


def _of_line(track: Track) -> str:
    return "" if track.member.quantity.baseline else track.label  # its colour and dash name it


def _leads(track: Track) -> bool:
    return bool(track.name) and track.name not in DASHES and not track.member.quantity.baseline


def _curve(track: Track, view: View, label: str) -> Curve:
    scale = shown(track.member.quantity)[0]
    mean, size = track.mean, _values_per_point(track, view)
    time, value = _averaged(_time(track, view), size), _averaged(mean.mean, size)
    return Curve(
        label, time, scale * value, color=track.color, dash=track.dash, tips=_tips(track, view, value, size=size),
        spread=None if mean.std is None else scale * mean.std, bounds=limits(track.member.quantity),
    )  # fmt: skip


def _tips(track: Track, view: View, value: Floats, size: int) -> list[str]:
    mean, words = track.mean, printable(track.words, 40)
    name = (f"{words}: " if words else "") + ("mean " if size > 1 else "")
    if not view.alone:
        pairs = zip(value, mean.spread, strict=True)
        return [f"{name}{y:.4g}" + (f" ± {s:.2g}" if np.isfinite(s) else "") for y, s in pairs]
    ends = slice(size - 1, None, size) if size > 1 else slice(None)
    tips = [
        f"{name}{y:.5g} ({f'epoch {e:g}, step {s:g}' if d else 'before training'})"
        for y, e, s, d in zip(value, mean.epoch[ends], mean.step[ends], mean.done[ends], strict=False)
    ]
    return tips + [f"{name}{value[-1]:.5g}"] * (len(value) - len(tips))  # the last stretch may be shorter


def _background(track: Track, view: View) -> list[Curve]:
    if not view.alone:
        return []
    run, (scale, _) = view.runs[0], shown(track.member.quantity)
    twin = f"{track.mean.name}_step"
    if (behind := run.scalars.get(twin)) is not None and twin not in run.declared:
        return [Curve("", run.time(behind), scale * behind.value, color=track.color, faint=True)]
    if _values_per_point(track, view) > 1:
        return [Curve("", track.mean.time, scale * track.mean.mean, color=track.color, faint=True)]
    return []


def _dots(plan: Plan, view: View, found: Sequence[Track]) -> Panel:
    blocks: dict[str, list[Dot]] = {}
    for track in found:
        blocks.setdefault("" if view.alone else track.label, []).append(_dot(track, view))
    missing = [group.name for group in view.groups if not any(track.group is group for track in found)]
    remark = remark_of(plan, view, {track.stage for track in found})
    notes = [f"Without: {printable(', '.join(missing), 50)}." if missing else "", remark if view.titled else ""]
    named = [(printable(name, 40), rows) for name, rows in blocks.items()]
    figure = dots(named, xlabel=plan.unit, caption=caption_of(view, plan.title, notes))
    words = [f"{row.label} {name} {row.text}".replace("  ", " ") for name, rows in blocks.items() for row in rows]
    numbers = Numbers(
        ("group", "scalar", "mean", "standard deviation", "runs"),
        [(each.group.name, mean.name, float(mean.mean[-1]), float(mean.spread[-1]), mean.runs)
         for each in found for mean in [each.mean]],
    )  # fmt: skip
    label = f"{plan.title}: {'; '.join(words)}."
    return Panel(plan.name, plan.title, figure, label=label, numbers=numbers, members=plan.members, remark=remark)


def _dot(track: Track, view: View) -> Dot:
    scale, show = shown(track.member.quantity)
    mean, std = (float(values[-1]) for values in (track.mean.mean, track.mean.spread))
    text = show(mean) + (f" ± {deviation(mean, std, scale != 1.0)}" if np.isfinite(std) else "")
    tip = f"{printable(track.words, 40)}: {scale * mean:.5g}"
    label = track.label if view.alone else printable(track.group.name, 16)
    return Dot(
        label, scale * mean, scale * std, text=text, color=track.color, tip=tip, bounds=limits(track.member.quantity)
    )


def _notes(found: Sequence[Track], view: View) -> tuple[str, str]:
    stage = found[0].stage
    drawn = {track.label: track.member for track in found if not track.member.quantity.baseline}
    means = {
        name: {group.name: mean_of(member, group, stage, view=view) for group in view.groups}
        for name, member in drawn.items()
    }
    texts = dict.fromkeys(counted(each) for each in means.values())
    on = f"Data: {stage}. " if stage else ""
    runs = next(iter(texts), "") if len(texts) == 1 else " ".join(counted(each, name) for name, each in means.items())
    return on + runs, _LOST if any(not np.isfinite(track.mean.mean).all() for track in found) else ""


def _numbers(plan: Plan, view: View, found: Sequence[Track]) -> Numbers:
    means = [(track, track.mean) for track in found]
    if not view.alone:
        axis = view.time_label
        parts = [((each.group.name, each.label), (_time(each, view), mean.mean, mean.spread)) for each, mean in means]
        return listed(("group", "quantity", axis, "mean", "standard deviation"), parts)
    if plan.kind == "components":
        parts = [((track.stage, track.label), (mean.epoch, mean.step, mean.mean)) for track, mean in means]
        return listed(("data", "quantity", "epoch", "step", "value"), parts)
    logs = (logged(view.runs[0], mean.name) for _, mean in means)
    return series_numbers(log for log in logs if isinstance(log, Series))


def _time(track: Track, view: View) -> Floats:
    return track.mean.when(view.by_epochs or view.alone)


def _limits(view: View) -> tuple[float, float]:
    run = view.runs[0]
    logs: list[Mapping[str, Series] | Mapping[str, Readouts]] = [run.scalars, run.arrays]
    times = np.concatenate([np.zeros(1), *(run.time(item) for log in logs for item in log.values())])
    return float(times.min()), float(times.max()) or 1.0


def _values_per_point(track: Track, view: View) -> int:
    return -(-len(track.mean.mean) // _MOST_POINTS) if view.alone else 1


def _averaged(values: Floats, size: int) -> Floats:
    padded = np.append(values, np.full(-len(values) % size, np.nan)).reshape(-1, size)
    finite = np.isfinite(padded)
    count = finite.sum(1)
    return np.where(finite, padded, 0.0).sum(1) / np.where(count, count, np.nan)


def _in_words(track: Track) -> str:
    _, show = shown(track.member.quantity)
    value = track.mean.mean[np.isfinite(track.mean.mean)]
    first = show(float(value[0])) if len(value) else "NaN"
    return f"{track.words} from {first} to {show(float(track.mean.mean[-1]))}".strip()
