"""Figures of samples: tables of pictures, and a value for each class. They show a single run, and compare none."""

__all__ = ["class_panel", "gallery_panel"]

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

from lightning_ssl_geometry.plots import Dot, Tiles, dots, gallery
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.figures import Plan, View
from lightning_ssl_geometry.report.logs import Floats, Snapshot
from lightning_ssl_geometry.report.members import Member, stage_order
from lightning_ssl_geometry.report.panel import Panel, shown, time_name

_MOST_CLASSES, _LOWEST, _HIGHEST = 16, 10, 6


class _Look(NamedTuple):
    """Pictures of one time, with the class and the value of each, if known."""

    when: str
    pictures: Floats
    kinds: Floats | None
    values: Floats | None


def gallery_panel(plan: Plan, view: View) -> Panel | None:
    """Draw the pictures of the stage that was looked at first.

    If a run keeps its first pictures, the first column of the table has samples. The other columns have the pictures
    that belong to a sample, at the first and at the latest look.
    """
    main = plan.drawn[0]
    found = [(stage, log) for stage, log in _snapshots(main, view) if log.values.ndim == 5
             and log.values.shape[2] in (1, 3) and np.isfinite(log.values).any(axis=(0, 1, 3, 4)).all()]  # fmt: skip
    if not found:
        return None
    run = view.runs[0]
    stage, latest, first = _looked_at_first(main, view, found)
    looks = [_look(plan, view, run.snapshots, log=latest, stage=stage)]
    if first is not None and first.values.shape == latest.values.shape:
        looks.insert(0, _look(plan, view, run.firsts, log=first, stage=stage))
    names = _row_names(main, latest.values)
    blocks = [_tiles(plan, look, names, part=part) for look, part in _parts(main, looks)]
    rows = [row for look in looks for row in _rows(look, names)]
    kept = np.flatnonzero(np.isfinite(latest.values).any(axis=(1, 2, 3, 4))).tolist()
    named = [names[row] for row in kept] if _are_named(main) else []
    figure = gallery([_of_rows(each, kept) for each in blocks], names=named)
    sizes = [f"{each.title or 'pictures'}, {len(kept)} by {each.images.shape[1]}" for each in blocks]
    framed = [f", {each.marked.sum()} of them framed" if each.marked.any() else "" for each in blocks]
    said = [size + more for size, more in zip(sizes, framed, strict=True)]
    label, numbers = f"{plan.title}: {'; '.join(said)}.", Numbers(("time", "row", "column", "class", "value"), rows)
    return Panel(plan.name, plan.title, figure, label=label, numbers=numbers, members=plan.members, stages=[stage])


def class_panel(plan: Plan, view: View) -> Panel | None:
    """Draw the values of the classes of the stage that was looked at first, from the lowest value to the highest.

    Of many classes, those at both ends are drawn. If a run keeps its first values, each is drawn beside the latest.
    """
    member = plan.drawn[0]
    found = [(stage, log) for stage, log in _snapshots(member, view) if len(_classes(log))]
    if not found:
        return None
    stage, latest, first = _looked_at_first(member, view, found)
    known = _classes(latest)
    known = known[np.argsort(known[:, 1], kind="stable")]
    before = {kind: value for kind, value, _ in _classes(first).tolist()} if first else {}
    when = [_when(view, log) for log in (first, latest) if log]
    scale, show = shown(member.quantity)
    drawn = [_dot(row, before.get(float(row[0]), np.nan), scale, show=show, when=when[0]) for row in known]
    groups, chances = [("", drawn)], known[:, 2]
    remark = f"Chance is {show(float(chances.min()))} to {show(float(chances.max()))}. "
    if before:
        means = [show(float(np.mean(values))) for values in (list(before.values()), known[:, 1])]
        remark += f"The rings are from the first look, {when[0]}. "
        remark += f"The mean over the classes was {means[0]} {when[0]}, and {means[1]} {when[1]}. "
    if len(drawn) > _MOST_CLASSES:
        groups = [("lowest", drawn[:_LOWEST]), ("highest", drawn[-_HIGHEST:])]
        remark += (
            f"Of {len(drawn)} classes, the {_LOWEST} lowest and the {_HIGHEST} highest are shown. The median of all "
            f"classes is {show(float(np.median(known[:, 1])))}. The CSV file has all."
        )
    ends = [f"{show(value)} for class {kind:.0f}" for kind, value, _ in known[[0, -1]]]
    label = f"{plan.title}: from {' to '.join(ends)}, {len(known)} classes."
    header = ("class", plan.saved_unit, "baseline", *([f"{plan.saved_unit} {when[0]}"] if before else []))
    rows = [(*map(float, row), *([before.get(float(row[0]), "")] if before else [])) for row in known]
    figure = dots(groups, xlabel=plan.unit)
    return Panel(
        plan.name,
        plan.title,
        figure,
        label=label,
        numbers=Numbers(header, rows),
        members=plan.members,
        stages=[stage],
        remark=remark.strip(),
    )


def _classes(log: Snapshot) -> Floats:
    """Return the rows (number, value, baseline) of the classes that have a value."""
    values = log.values
    return values[np.isfinite(values).all(axis=1)] if values.ndim == 2 and values.shape[1] == 3 else np.empty((0, 3))


def _looked_at_first(
    member: Member, view: View, found: Sequence[tuple[str, Snapshot]]
) -> tuple[str, Snapshot, Snapshot | None]:
    """Return the stage that was looked at first, with its latest array and, if it is older, with its first one."""
    begun = {stage: view.runs[0].firsts.get(member.names[0][stage]) for stage, _ in found}
    stage, latest = min(found, key=lambda each: min(log.step for log in (begun[each[0]], each[1]) if log))
    first = begun[stage]
    return stage, latest, first if first is not None and first.step < latest.step else None


def _when(view: View, log: Snapshot) -> str:
    run = view.runs[0]
    return time_name(run, log.step / run.steps_per_epoch if run.steps_per_epoch else log.step)


def _snapshots(member: Member, view: View) -> list[tuple[str, Snapshot]]:
    if not view.alone:
        return []
    held = view.runs[0].snapshots
    names = sorted(member.names.get(0, {}).items(), key=lambda each: stage_order(each[0]))
    return [(stage, held[name]) for stage, name in names if name in held]


def _look(plan: Plan, view: View, held: Mapping[str, Snapshot], *, log: Snapshot, stage: str) -> _Look:
    def beside(role: str) -> Floats | None:
        member = plan.serving(role)
        found = held.get(member.names.get(0, {}).get(stage, "")) if member else None
        return found.values if found and found.values.shape == log.values.shape[:2] else None

    return _Look(_when(view, log), log.values, kinds=beside("label"), values=beside("overlay"))


def _dot(row: Floats, before: float, scale: float, *, show: Callable[[float], str], when: str) -> Dot:
    kind, value, chance = map(float, row)
    tip = f"class {kind:.0f}: {show(value)}, chance {show(chance)}"
    tip += f", {when} {show(before)}" if np.isfinite(before) else ""
    return Dot(f"class {kind:.0f}", scale * value, np.nan, text=show(value), color="blue", tip=tip, bounds=(0.0, scale),
               before=scale * before)  # fmt: skip


def _are_named(member: Member) -> bool:
    return bool(member.quantity.picture and member.quantity.picture.names)


def _row_names(member: Member, pictures: Floats) -> list[str]:
    names = member.quantity.picture.names if member.quantity.picture else ()
    return list(names) if len(names) == len(pictures) else [f"sample {row + 1}" for row in range(len(pictures))]


def _parts(member: Member, looks: list[_Look]) -> list[tuple[_Look, tuple[str, slice]]]:
    picture, word = member.quantity.picture, member.quantity.xlabel
    if not (picture and picture.first):
        return [(looks[0], ("", slice(None)))]
    others = [(look, (f"{word}, {look.when}", slice(1, None))) for look in looks]
    return [(looks[0], ("sample", slice(0, 1))), *others]


def _tiles(plan: Plan, look: _Look, names: list[str], part: tuple[str, slice]) -> Tiles:
    title, cut = part
    count, width = look.pictures.shape[:2]
    marked = np.zeros((count, width), dtype=bool) if look.kinds is None else look.kinds != look.kinds[:, :1]
    value = plan.serving("overlay")
    word = value.quantity.label or value.quantity.title if value else ""
    tips = [[""] * width for _ in names]
    for row, column in np.ndindex(count, width):
        kind = [] if look.kinds is None else [f"class {look.kinds[row, column]:.0f}"]
        much = [] if look.values is None or not column else [f"{word} {look.values[row, column]:.3g}"]
        tips[row][column] = ", ".join([names[row], *kind, *much])
    return Tiles(title, look.pictures[:, cut], marked[:, cut], tips=[tip[cut] for tip in tips])


def _rows(look: _Look, names: list[str]) -> list[tuple[str | float, ...]]:
    def cell(values: Floats | None, row: int, column: int) -> str | float:
        return "" if values is None else float(values[row, column])

    return [(look.when, names[row], column + 1, cell(look.kinds, row, column), cell(look.values, row, column))
            for row, column in np.ndindex(*look.pictures.shape[:2])]  # fmt: skip


def _of_rows(tiles: Tiles, rows: list[int]) -> Tiles:
    return Tiles(tiles.title, tiles.images[rows], tiles.marked[rows], tips=[tiles.tips[row] for row in rows])
