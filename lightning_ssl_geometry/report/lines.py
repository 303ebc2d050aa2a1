"""Figures of scalars over training: lines, and where nothing was trained, a dot for each value."""

__all__ = ["component_panels", "line_panel"]

from collections.abc import Mapping, Sequence
from dataclasses import replace
from textwrap import wrap

import numpy as np

from lightning_ssl_geometry.plots import Caption, Curve, Dash, Dot, curves, dots
from lightning_ssl_geometry.report.download import Numbers, series_numbers
from lightning_ssl_geometry.report.figures import Plan, View, logged, printable
from lightning_ssl_geometry.report.logs import Floats, Readouts, Series
from lightning_ssl_geometry.report.numbers import deviation
from lightning_ssl_geometry.report.panel import Panel, ceiling_of, floor_of, limits, remark_of, same_lines, shown
from lightning_ssl_geometry.report.tracks import Track, counted, dash_names, mean_of, spread_of, tracks

_MOST_POINTS = 150
_WIDTH = 58  # letters in a line of notes
_LOST = "Crosses: a run had no finite number there."
_MOST_COMPONENTS = 30
_TOGETHER = 3  # components in one figure of groups, whose dashes tell them apart


def line_panel(plan: Plan, view: View) -> Panel | None:
    """Draw quantities that belong together; None if there is none, or one run alone was not trained."""
    found = tracks(plan, view)
    if not found or (view.alone and view.once):
        return None
    if all(run.is_diagnosis for track in found for run in track.group.runs):
        return _dots(plan, view, found)
    return _lines(plan, view, found)


def component_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw each entry of an array over training, a few in each figure of groups."""
    found = tracks(plan, view)
    if not found:
        return []
    picture = plan.drawn[0].quantity.picture
    names = picture.names if picture else ()
    count = min(found[0].mean.mean.shape[1], _MOST_COMPONENTS)
    shown_names = [printable(names[place], 24) if place < len(names) else f"{place + 1}" for place in range(count)]
    parts = (
        [range(count)] if view.alone else [range(at, min(at + _TOGETHER, count)) for at in range(0, count, _TOGETHER)]
    )
    panels = []
    for number, part in enumerate(parts, start=1):
        rows = [
            _component(track, shown_names[place], place, at, view) for at, place in enumerate(part) for track in found
        ]
        more = replace(plan, name=f"{plan.name}_{number}", title=f"{plan.title}, continued")
        called = plan if number == 1 else more
        once = all(run.is_diagnosis for track in found for run in track.group.runs)
        panels.append((_dots if once else _lines)(called, view, rows))
    return panels


def _component(track: Track, name: str, place: int, at: int, view: View) -> Track:
    """One entry of an array as a quantity of its own."""
    mean = replace(
        track.mean, mean=track.mean.mean[:, place], std=None if track.mean.std is None else track.mean.std[:, place]
    )
    looks: tuple[tuple[str, Dash], ...] = (
        ("orange", "dotted"),
        ("green", "solid"),
        ("blue", "dashed"),
        ("violet", "dashdot"),
        ("red", "dashdot"),
    )
    color, dash = looks[at % len(looks)]
    if view.alone:
        return replace(track, mean=mean, color=color, dash=dash, name=f"{name}:", label=name)
    between: Dash = ("solid", "dashed", "dotted")[at]
    return replace(track, mean=mean, dash=between, name="" if at else track.name, label=name)


def _lines(plan: Plan, view: View, found: Sequence[Track]) -> Panel:
    drawn = [curve for track in found for curve in _background(track, view)] + [_curve(track, view) for track in found]
    end = max([float(curve.x.max()) for curve in drawn if len(curve.x)], default=0.0)
    xlim = _limits(view) if view.alone else (0.0, end or 1.0)
    same = same_lines(
        [(printable(track.words or plan.title, 30), _time(track, view), track.mean.mean) for track in found]
    )
    stages = list(dict.fromkeys(track.stage for track in found))
    remark = remark_of(plan, view, stages)
    notes = [] if view.alone else _notes(found, view, [remark] if view.titled else [], same)
    named = dash_names((track.dash, track.label) for track in found if track.label)
    caption = Caption(plan.title if view.titled else "", () if view.alone else named, notes)
    figure = curves(
        drawn,
        xlabel=view.time_label,
        ylabel=plan.unit,
        xlim=xlim,
        floor=floor_of(plan.drawn),
        ceiling=ceiling_of(plan, view),
        caption=caption,
    )
    label = f"{plan.title} over training: {'; '.join(map(_in_words, found))}."
    sizes = sorted({_stretch(track, view) for track in found} - {1})
    thick = f"Thick lines are means of {' or '.join(map(str, sizes))} values each." if sizes else ""
    said = " ".join(filter(None, [remark, thick, same if view.alone else ""]))
    return Panel(
        plan.name, plan.title, figure, label, _numbers(plan, view, found), plan.members, stages, view.alone, said
    )


def _curve(track: Track, view: View) -> Curve:
    scale, show = shown(track.member.quantity)
    mean, size = track.mean, _stretch(track, view)
    time, value = _averaged(_time(track, view), size), _averaged(mean.mean, size)
    named = track.name or view.alone
    label = (
        f"{track.name} {show(float(value[-1]))}".strip()
        if named and not (track.member.quantity.baseline and not view.alone)
        else ""
    )
    label = track.name if track.member.quantity.baseline and view.alone and not track.name else label
    spread = None if mean.std is None else scale * mean.std
    return Curve(
        label,
        time,
        scale * value,
        track.color,
        track.dash,
        tips=_tips(track, view, value, size),
        spread=spread,
        bounds=limits(track.member.quantity),
    )


def _tips(track: Track, view: View, value: Floats, size: int) -> list[str]:
    mean, words = track.mean, printable(track.words, 40)
    name = (f"{words}: " if words else "") + ("mean " if size > 1 else "")
    if not view.alone:
        pairs = zip(value, spread_of(mean), strict=True)
        return [f"{name}{y:.4g}" + (f" ± {s:.2g}" if np.isfinite(s) else "") for y, s in pairs]
    ends = slice(size - 1, None, size) if size > 1 else slice(None)
    tips = [
        f"{name}{y:.5g} ({f'epoch {e:g}, step {s:g}' if d else 'before training'})"
        for y, e, s, d in zip(value, mean.epoch[ends], mean.step[ends], mean.done[ends], strict=False)
    ]
    return tips + [f"{name}{value[-1]:.5g}"] * (len(value) - len(tips))  # the last stretch may be shorter


def _background(track: Track, view: View) -> list[Curve]:
    """Every value of one run, where the line in front has means: its own, or those logged per step beside it."""
    if not view.alone:
        return []
    run, (scale, _) = view.runs[0], shown(track.member.quantity)
    twin = f"{track.mean.name}_step"
    if (behind := run.scalars.get(twin)) is not None and twin not in run.declared:
        return [Curve("", run.time(behind), scale * behind.value, track.color, faint=True)]
    if _stretch(track, view) > 1:
        return [Curve("", track.mean.time, scale * track.mean.mean, track.color, faint=True)]
    return []


def _dots(plan: Plan, view: View, found: Sequence[Track]) -> Panel:
    """The last value of each group, a block of rows for each quantity."""
    blocks: dict[str, list[Dot]] = {}
    for track in found:
        blocks.setdefault("" if view.alone else track.label, []).append(_dot(track, view))
    missing = [group.name for group in view.groups if not any(track.group is group for track in found)]
    notes = [f"Without: {printable(', '.join(missing), 50)}."] if missing else []
    remark = remark_of(plan, view, {track.stage for track in found})
    caption = Caption(plan.title if view.titled else "", (), notes + (wrap(remark, _WIDTH) if view.titled else []))
    figure = dots([(printable(name, 40), rows) for name, rows in blocks.items()], xlabel=plan.unit, caption=caption)
    said = "; ".join(
        f"{row.label} {name} {row.text}".replace("  ", " ") for name, rows in blocks.items() for row in rows
    )
    rows = [
        (
            track.group.name,
            track.mean.name,
            float(track.mean.mean[-1]),
            float(spread_of(track.mean)[-1]),
            track.mean.runs,
        )
        for track in found
    ]
    numbers = Numbers(("group", "scalar", "mean", "standard deviation", "runs"), rows)
    return Panel(plan.name, plan.title, figure, f"{plan.title}: {said}.", numbers, plan.members, remark=remark)


def _dot(track: Track, view: View) -> Dot:
    scale, show = shown(track.member.quantity)
    mean, std = (float(values[-1]) for values in (track.mean.mean, spread_of(track.mean)))
    text = show(mean) + (f" ± {deviation(mean, std, scale != 1.0)}" if np.isfinite(std) else "")
    tip = f"{printable(track.words, 40)}: {scale * mean:.5g}"
    label = track.label if view.alone else printable(track.group.name, 16)
    return Dot(label, scale * mean, scale * std, text, track.color, tip, limits(track.member.quantity))


def _notes(found: Sequence[Track], view: View, first: Sequence[str], same: str) -> list[str]:
    """Say on which data and of how many runs, for each quantity where they differ."""
    stage = found[0].stage
    drawn = {track.label: track.member for track in found if not track.member.quantity.baseline}
    means = {
        name: {group.name: mean_of(member, group, stage, view) for group in view.groups}
        for name, member in drawn.items()
    }
    texts = dict.fromkeys(counted(each) for each in means.values())
    on = f"Data: {stage}. " if stage else ""
    runs = next(iter(texts), "") if len(texts) == 1 else " ".join(counted(each, name) for name, each in means.items())
    lost = _LOST if any(not np.isfinite(track.mean.mean).all() for track in found) else ""
    return [line for note in (*first, on + runs, lost, same) if note for line in wrap(note, _WIDTH)]


def _numbers(plan: Plan, view: View, found: Sequence[Track]) -> Numbers:
    """Of one run its values as they were logged; of groups, mean and standard deviation."""
    if view.alone and plan.kind != "components":
        logs = (logged(view.runs[0], track.mean.name) for track in found)
        return series_numbers(log for log in logs if isinstance(log, Series))
    if view.alone:
        rows = [(track.stage, track.label, *row) for track in found
                for row in zip(track.mean.epoch, track.mean.step, track.mean.mean, strict=True)]  # fmt: skip
        return Numbers(("data", "quantity", "epoch", "step", "value"), rows)
    rows = [(track.group.name, track.label, *row) for track in found
            for row in zip(_time(track, view), track.mean.mean, spread_of(track.mean), strict=True)]  # fmt: skip
    return Numbers(("group", "quantity", view.time_label, "mean", "standard deviation"), rows)


def _time(track: Track, view: View) -> Floats:
    return track.mean.time if view.by_epochs or view.alone else track.mean.done


def _limits(view: View) -> tuple[float, float]:
    """Limits of the time axis, the same for all figures of a run."""
    run = view.runs[0]
    logs: list[Mapping[str, Series] | Mapping[str, Readouts]] = [run.scalars, run.arrays]
    times = np.concatenate([np.zeros(1), *(run.time(item) for log in logs for item in log.values())])
    return float(times.min()), float(times.max()) or 1.0


def _stretch(track: Track, view: View) -> int:
    """How many values a point of the line stands for: a line of hundreds of noisy values would be a carpet."""
    return -(-len(track.mean.mean) // _MOST_POINTS) if view.alone else 1


def _averaged(values: Floats, size: int) -> Floats:
    """Means of stretches of `size`, of what is finite in them; NaN where nothing is."""
    padded = np.append(values, np.full(-len(values) % size, np.nan)).reshape(-1, size)
    finite = np.isfinite(padded)
    count = finite.sum(1)
    return np.where(finite, padded, 0.0).sum(1) / np.where(count, count, np.nan)


def _in_words(track: Track) -> str:
    _, show = shown(track.member.quantity)
    value = track.mean.mean[np.isfinite(track.mean.mean)]
    first = show(float(value[0])) if len(value) else "NaN"
    return f"{track.words} from {first} to {show(float(track.mean.mean[-1]))}".strip()
