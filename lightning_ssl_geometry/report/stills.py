"""Figures without a time axis: matrices, points, images, paths, and values and spectra by layer."""

__all__ = ["image_panel", "layer_panel", "matrix_panels", "path_panels", "point_panel", "similarity_panel",
           "spectra_panels"]  # fmt: skip

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from lightning_ssl_geometry.plots import (
    Curve,
    curves,
    largest_classes,
    matrix,
    overlay,
    policy_maps,
    ramp,
    scatter,
    trajectory,
)
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.report.download import Numbers, listed, series_numbers
from lightning_ssl_geometry.report.figures import Plan, View
from lightning_ssl_geometry.report.groups import average
from lightning_ssl_geometry.report.logs import MOST_DRAWN, Floats, Readouts, Series, Snapshot
from lightning_ssl_geometry.report.members import Member, logged, printable, stage_order
from lightning_ssl_geometry.report.moments import without_rounding
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.panel import Panel, caption_of, remark_of, shown, time_name
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.tracks import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_COMPARED, _MOST_ROWS = 4, 40  # samples of each group; rows of a matrix that can be read
_LONGEST, _MOST_LABELS = 14, 13  # letters of a layer's name, and labelled lines
_FIRSTS = "Of each group, or model, its first run."
_PLACE = "layer, from the representation to the embedding"


def matrix_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw the square matrices of a single run, one figure for each stage."""
    if not view.alone:
        return []
    member, run = plan.drawn[0], view.runs[0]
    found = [(stage, logged(run, name)) for stage, name in member.names.get(0, {}).items()]
    found.sort(key=lambda each: stage_order(each[0]))
    return [_matrix(plan, member, run, stage=stage, values=log.values) for stage, log in found
            if isinstance(log, Snapshot) and log.values.ndim == 2 and 1 < len(log.values) <= _MOST_ROWS
            and log.values.shape[0] == log.values.shape[1] and np.isfinite(log.values).any()]  # fmt: skip


def _matrix(plan: Plan, member: Member, run: Run, stage: str, values: Floats) -> Panel:
    picture, count = member.quantity.picture, len(values)
    declared = picture.names if picture and len(picture.names) == count else ()
    layers = run.layers.names if run.layers and len(run.layers.names) == count and "layer" in plan.title.lower() else ()
    word = member.quantity.xlabel
    counted_ = (f"{place + 1}" if word == "index" else f"{word} {place}" for place in range(count))
    names, (low, high) = declared or layers or tuple(counted_), member.quantity.bounds
    finite = values[np.isfinite(values)]
    least, most = float(finite.min()), float(finite.max())
    scale = shown(member.quantity)[0]
    floor = least if low is None else min(0.0, least) if low < 0 else low
    limits = (scale * floor, scale * (most if high is None else high))
    figure = matrix([printable(name, 20) for name in names], scale * values, meaning=plan.unit, limits=limits)
    label, cells = f"{plan.title}: {_pairs(names, values)}.", _cells(names, values, plan.saved_unit)
    return Panel(plan.name, plan.title, figure, label=label, numbers=cells, members=plan.members, stages=[stage])


def similarity_panel(quantity: Quantity, names: Sequence[str], values: Floats, remark: str = "") -> Panel:
    """Draw the similarities (M, M) between M models."""
    figure = matrix([printable(name, 20) for name in names], values, meaning=quantity.unit)
    label, cells = f"{quantity.title}: {_pairs(names, values)}.", _cells(names, values, quantity.unit)
    return Panel("between_models", quantity.title, figure, label=label, numbers=cells, about=[quantity], remark=remark)


def _pairs(names: Sequence[str], values: Floats) -> str:
    pairs = [(names[a], names[b], float(values[a, b])) for a, b in np.ndindex(*values.shape) if a < b]
    return "; ".join(f"{a} and {b} {number(value)}" for a, b, value in pairs[:20]) or f"{names[0]} alone"


def _cells(names: Sequence[str], values: Floats, unit: str) -> Numbers:
    return listed(
        ("row", "column", unit or "value"), [((a,), (names, row)) for a, row in zip(names, values, strict=True)]
    )


def path_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw one scalar against another as a path over training. Each stage that has both scalars gets a figure."""
    run, (y_of, x_of) = view.runs[0], _sides(plan)
    panels = []
    for stage in sorted(y_of.names[0].keys() & x_of.names.get(0, {}).keys(), key=stage_order):
        y, x = (run.scalars.get(member.names[0][stage]) for member in (y_of, x_of))
        if y is not None and x is not None and (panel := _path(plan, run, stage, above=y, along=x)):
            panels.append(panel)
    return panels


def _sides(plan: Plan) -> tuple[Member, Member]:
    sides = {member.quantity.picture.role: member for member in plan.members if member.quantity.picture}
    return sides[""], sides["x"]


def _path(plan: Plan, run: Run, stage: str, above: Series, along: Series) -> Panel | None:
    _, first, second = np.intersect1d(above.done, along.done, return_indices=True)
    y, x, epoch, steps = above.value[first], along.value[second], above.epoch[first], above.step[first]
    kept = (np.abs(x) < MOST_DRAWN) & (np.abs(y) < MOST_DRAWN)
    if not kept.any():
        return None
    names = [printable(member.quantity.title.lower(), 40) for member in _sides(plan)]
    rows = zip(y, x, epoch, steps, strict=True)
    tips = [f"{names[0]} {a:.4g}, {names[1]} {u:.4g} (epoch {e:g}, step {s:g})" for a, u, e, s in rows]
    time = run.time(above)[first][kept]
    ends = (time_name(run, time[0]), time_name(run, time[-1]))
    figure = trajectory(x, y, xlabel=names[1], ylabel=names[0], ends=ends, tips=tips)
    said = [f"{name} from {number(v[kept][0])} to {number(v[kept][-1])}" for name, v in zip(names, (y, x), strict=True)]
    label = f"{plan.title}{f' ({stage})' if stage else ''}: {', '.join(said)}."
    name, numbers = "_".join(filter(None, [stage, plan.name])), series_numbers([above, along])
    return Panel(
        name, plan.title, figure, label=label, numbers=numbers, members=plan.members, stages=[stage], remark=plan.remark
    )


def image_panel(plan: Plan, view: View) -> Panel | None:
    """Draw images with their heat maps. If groups are compared, draw a few samples of each group's first run."""
    images, maps = plan.drawn[0], plan.serving("overlay")
    found = []
    for name, run in _firsts(view):
        x, p = (_latest(run, member, view) for member in (images, maps))
        if x is None or p is None or (x.values.ndim, p.values.ndim) != (3, 3):
            continue
        pairs = zip(x.values, p.values, strict=False)
        kept = [(a, b) for a, b in pairs if np.isfinite(a).all() and np.isfinite(b).all()]
        if kept := kept[: None if view.alone else _COMPARED]:
            found.append((name, np.stack([a for a, _ in kept]), np.stack([b for _, b in kept])))
    if not found:
        return None
    figure = policy_maps(found, caption=caption_of(view, plan.title, [_FIRSTS]))
    said = [f"{_of(name)}{len(x)} samples, up to {number(float(p.max()))}" for name, x, p in found]
    parts = [((name,), (*np.indices(p.shape).reshape(3, -1), p.ravel())) for name, _, p in found]
    return _still(plan, view, figure, said=said, numbers=listed(("run", "sample", "row", "column", "value"), parts))


def point_panel(plan: Plan, view: View) -> Panel | None:
    """Draw embeddings as points if they have two dimensions, else as lines over their dimensions."""
    found: list[tuple[str, Floats, NDArray[np.int64] | None]] = []
    for name, run in _firsts(view):
        z, label = (_latest(run, member, view) for member in (plan.drawn[0], plan.serving("label")))
        if z is None or z.values.ndim != 2 or z.values.shape[1] < 2:
            continue
        kept = np.flatnonzero(np.isfinite(z.values).all(axis=1))
        fits = label is not None and label.values.shape == (len(z.values), 1) and np.isfinite(label.values).all()
        if len(kept):
            classes = label.values[kept, 0].astype(np.int64) if label is not None and fits else None
            found.append((name, z.values[kept], classes))
    if not found:
        return None
    flat, caption = all(z.shape[1] == 2 for _, z, _ in found), caption_of(view, plan.title, [_FIRSTS])
    names = _axes_names(plan, view)
    figure = scatter(found, axes_names=names, caption=caption) if flat else overlay(
        [(name, z) for name, z, _ in found], caption=caption
    )  # fmt: skip
    said = [f"{_of(name)}{len(z)} samples, {_spread(z)} from their mean on average" for name, z, _ in found]
    most = max(z.shape[1] for _, z, _ in found)
    parts = [((name,), ([""] * len(z) if label is None else label, *z.T)) for name, z, label in found]
    numbers = listed(("run", "label", *(f"z{place}" for place in range(1, most + 1))), parts)
    labels = [label for *_, label in found if label is not None]
    colored, others = largest_classes(np.concatenate(labels)) if labels else ([], 0)
    some = f"The {len(colored)} classes with the most points have colours, and {others} others are grey."
    return _still(plan, view, figure, said=said, numbers=numbers, remark=some if others and flat else "")


def _axes_names(plan: Plan, view: View) -> list[str]:
    picture = plan.drawn[0].quantity.picture
    names = list(picture.names) if picture and len(picture.names) == 2 else []
    share = _latest(view.runs[0], plan.serving("x"), view) if view.alone else None
    if not names or share is None or share.values.shape != (1, 2) or not np.isfinite(share.values).all():
        return names
    return [f"{name}, {percent(part)} of the variance" for name, part in zip(names, share.values[0], strict=True)]


def layer_panel(plan: Plan, view: View) -> Panel | None:
    """Draw a quantity over the layers, from the representation h to the embedding z."""
    member = plan.drawn[0]
    scale, show = shown(member.quantity)
    means = [(group, average(group, lambda run: _column(run, member, view))) for group in view.groups]
    found = [(group, mean, mean.mean[0]) for group, mean in means
             if mean is not None and np.isfinite(mean.mean[0]).any()]  # fmt: skip
    if not found:
        return None
    drawn, said = [], []
    for group, mean, y in found:
        last, named = show(float(y[np.isfinite(y)][-1])), zip(_names(view, len(y)), y, strict=True)
        tips = [f"{_of(group.name)}{name}: {scale * value:.5g}" for name, value in named]
        label = f"{printable(group.name, _LONGEST)} {last}".strip()
        spread, x = None if mean.std is None else scale * mean.std[0], np.arange(float(len(y)))
        drawn.append(Curve(label, x, scale * y, color=group.color, tips=tips, spread=spread))
        said.append(f"{group.name} ends at {last}".strip())
    drawn += _nulls_of(plan, view) if view.alone else []
    names = [printable(name, _LONGEST) for name in _names(view, max(len(y) for *_, y in found))]
    notes = [counted({group.name: mean for group, mean in means})]
    figure = curves(drawn, xlabel=_PLACE, ylabel=plan.unit, names=names, caption=caption_of(view, plan.title, notes))
    label, remark = f"{plan.title}: {'; '.join(said)}.", remark_of(plan, view, [""])
    parts = [((group.name,), (range(1, len(y) + 1), y, mean.spread[0])) for group, mean, y in found]
    numbers = listed(("group", "layer's place", "mean", "standard deviation"), parts)
    if view.alone and (layers := view.runs[0].layers):
        numbers = listed(("layer", "width", plan.saved_unit), [((), (layers.names, layers.width, found[0][2]))])
    return Panel(plan.name, plan.title, figure, label=label, numbers=numbers, members=plan.members, remark=remark)


def _nulls_of(plan: Plan, view: View) -> list[Curve]:
    scale, show = shown(plan.drawn[0].quantity)
    found = [(each.quantity, _column(view.runs[0], each, view)) for each in plan.members if each.quantity.baseline]
    known = [(quantity, log.values[0]) for quantity, log in found if log is not None]
    return [
        Curve(f"{(quantity.label or quantity.title).lower()} {show(float(y[np.isfinite(y)][-1]))}",
              np.arange(float(len(y))), scale * y, color="muted", dash="dotted")
        for quantity, y in known if np.isfinite(y).any()
    ]  # fmt: skip


def spectra_panels(plan: Plan, view: View) -> list[Panel]:
    """Draw the spectra of the layers of a single run, from grey for the first layer to violet for the last.

    There is one figure for each stage. If there are many layers, some lines have no label.
    """
    if not view.alone:
        return []
    member, run = plan.drawn[0], view.runs[0]
    found = [(stage, logged(run, name)) for stage, name in member.names.get(0, {}).items()]
    found.sort(key=lambda each: stage_order(each[0]))
    panels = [_spectra(plan, view, stage=stage, values=log.values) for stage, log in found
              if isinstance(log, Snapshot) and log.values.ndim == 2]  # fmt: skip
    return [panel for panel in panels if panel is not None]


def _spectra(plan: Plan, view: View, stage: str, values: Floats) -> Panel | None:
    picture = plan.drawn[0].quantity.picture
    sigma = np.exp(values) if picture and picture.logarithm else values
    sigma = np.array([without_rounding(row) for row in sigma])
    kept = np.flatnonzero(np.isfinite(sigma).any(axis=1))
    if not len(kept):
        return None
    names, every = _names(view, len(sigma)), int(np.ceil(len(kept) / _MOST_LABELS))
    drawn = [_spectrum(names[row], sigma[row], labelled=(len(kept) - 1 - place) % every == 0, color=color)
             for place, (row, color) in enumerate(zip(kept, ramp(len(kept)), strict=True))]  # fmt: skip
    figure = curves(drawn, xlabel="index", ylabel=plan.unit, log=True, caption=caption_of(view, plan.title, []))
    said = [f"{names[row]} from {number(float(line.y[0]))} to {number(float(line.y[-1]))}"
            for row, line in zip(kept, drawn, strict=True)]  # fmt: skip
    parts = [((names[row],), (line.x, line.y)) for row, line in zip(kept, drawn, strict=True)]
    label, numbers = f"{plan.title}: {'; '.join(said[:20])}.", listed(("layer", "index", plan.saved_unit), parts)
    name = "_".join(filter(None, [stage, plan.name]))
    return Panel(name, plan.title, figure, label=label, numbers=numbers, members=plan.members, stages=[stage])


def _spectrum(name: str, sigma: Floats, labelled: bool, color: str) -> Curve:
    index = np.flatnonzero(np.isfinite(sigma))
    x = (index + 1).astype(np.float64)
    tips = [f"{name}, index {place + 1}: {sigma[place]:.4g}" for place in index]
    return Curve(printable(name, _LONGEST) if labelled else "", x, sigma[index], color=color, tips=tips)


def _column(run: Run, member: Member, view: View) -> Readouts | None:
    log = view.logged(run, member, "")
    return log if isinstance(log, Readouts) else None


def _names(view: View, count: int) -> list[str]:
    held = [run.layers.names for run in view.runs if run.layers]
    places = [{names[at] for names in held if at < len(names)} for at in range(count)]
    return [next(iter(names)) if len(names) == 1 else f"{at}" for at, names in enumerate(places, start=1)]


def _firsts(view: View) -> list[tuple[str, Run]]:
    return [(printable(group.name, 30), group.runs[0]) for group in view.groups]


def _latest(run: Run, member: Member | None, view: View) -> Snapshot | None:
    names: Mapping[str, str] = {} if member is None else member.names.get(view.place(run), {})
    logs = (logged(run, names[stage]) for stage in sorted(names, key=stage_order))
    return next((log for log in logs if isinstance(log, Snapshot)), None)


def _still(
    plan: Plan, view: View, figure: "Figure", *, said: Sequence[str], numbers: Numbers, remark: str = ""
) -> Panel:
    found = [(stage, logged(view.runs[place], name)) for member in plan.members for place, names in member.names.items()
             for stage, name in names.items()]  # fmt: skip
    stages = sorted((stage for stage, _ in found), key=stage_order)[:1]
    steps = sorted({log.step for _, log in found if isinstance(log, Snapshot)})
    steps_said = f"After {' or '.join(map(number, steps))} steps." if any(steps) else ""
    remark = " ".join(filter(None, [steps_said, remark]))
    label = f"{plan.title}: {'; '.join(said)}."
    return Panel(
        plan.name, plan.title, figure, label=label, numbers=numbers, members=plan.members, stages=stages, remark=remark
    )


def _of(name: str) -> str:
    return f"{name}, " if name else ""


def _spread(z: Floats) -> str:
    return number(float(np.linalg.norm(z - z.mean(0), axis=1).mean()))
