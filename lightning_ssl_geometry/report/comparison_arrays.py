"""Comparisons of what is no scalar: spectra, ranks at thresholds, histograms, rotations."""

__all__ = ["histogram_comparisons", "rotation_comparison", "spectrum_comparison", "threshold_comparisons"]

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.plots import Dash
from lightning_ssl_geometry.report.array_panels import ROUNDED, known_arrays, moments
from lightning_ssl_geometry.report.comparison_dots import are_diagnoses
from lightning_ssl_geometry.report.comparison_lines import Lines, counted
from lightning_ssl_geometry.report.glossary import ENTRIES, split
from lightning_ssl_geometry.report.groups import Average, Group, average, average_array, shared_stage
from lightning_ssl_geometry.report.logs import Floats, Readouts
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel, natural_order, printable
from lightning_ssl_geometry.report.projector_panels import THRESHOLDS, Mode, bin_edges, rank_at, threshold_name
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_WHEN: dict[Dash, str] = {"dotted": "start", "dashed": "half", "solid": "end"}
_BAND: dict[Mode, tuple[Dash, ...]] = {"relative": ("dotted", "solid", "dashed"), "cumulative": ("solid", "dashed")}


def spectrum_comparison(groups: Sequence[Group], key: str, titled: bool) -> Panel | None:
    """Draw spectra at the start, at half of the training and at the end; means are those of logarithms."""
    stage = shared_stage(groups, [key])
    if stage is None:
        return None
    found = {group.name: average_array(group, key, stage, log=True) for group in groups}
    when = dict.fromkeys(_WHEN, "") if are_diagnoses(groups) else _WHEN
    lines, lost = Lines(notes=[_on(stage, found)], factor=True), dict.fromkeys(found, 0)
    for group, each in _there(groups, found):
        for row, (_, dash) in moments(each.time).items():
            kept = np.isfinite(each.mean[row])
            index, y = 1.0 + np.flatnonzero(kept).astype(np.float64), np.exp(each.mean[row][kept])
            std = np.exp(each.std[row][kept]) if each.std is not None and dash == "solid" else None
            lost[group.name] = max(lost[group.name], int(np.sum(~kept)))
            if len(y):
                lines.add(group, index, y, std, dash, value="" if dash == "solid" else None, word=when[dash])
                lines.dashes[dash] = when[dash]
                name = ", ".join(filter(None, [group.name, when[dash]]))
                lines.said.append(f"{name}: {len(y)} values from {number(y[0])} to {number(y[-1])}")
    if not lines.curves:
        return None
    lines.notes += ["Averaged as logarithms."] if any(each and each.runs > 1 for each in found.values()) else []
    lines.notes += _rounded(found, lost)
    title = ENTRIES[key].title
    figure = lines.draw(title if titled else "", xlabel="index", ylabel="singular value")
    return _panel(key, title, figure, lines, key)


def _rounded(found: Mapping[str, Average | None], lost: Mapping[str, int]) -> list[str]:
    said = [f"{printable(name)} {lost[name]} of {each.mean.shape[1]}" for name, each in found.items()
            if each and lost[name]]  # fmt: skip
    return [f"Values that {ROUNDED}, and not drawn: {', '.join(said)}."] if said else []


def histogram_comparisons(groups: Sequence[Group], titled: bool) -> list[Panel | None]:
    """Draw the distances to the hardest negative of all groups at the end, and at the start."""
    key = "hardest_negative_histogram"
    stage = shared_stage(groups, [key])
    found = {group.name: average_array(group, key, stage, name=key) for group in groups} if stage is not None else {}
    if not _there(groups, found):
        return []
    title = ENTRIES[key].title
    return [
        _histogram(groups, found, stage or "", -1, key, title if are_diagnoses(groups) else f"{title}, end", titled),
        _histogram(groups, found, stage or "", 0, f"{key}_start", f"{title}, start", titled),
    ]


def _histogram(
    groups: Sequence[Group],
    found: Mapping[str, Average | None],
    stage: str,
    row: int,
    name: str,
    title: str,
    titled: bool,
) -> Panel:
    lines = Lines(notes=[_on(stage, found)])
    for group, each in _there(groups, found):
        edges, y = bin_edges(each.mean.shape[1]), 100 * each.mean[row]
        std = None if each.std is None else 100 * np.append(each.std[row], each.std[row][-1])
        lines.add(group, edges, np.append(y, y[-1]), std, stepped=True)
        around = float((edges[1:] + edges[:-1]) @ np.nan_to_num(y) / 2 / max(float(np.nansum(y)), 1e-9))
        lines.said.append(f"{group.name} around {number(around)}")
    figure = lines.draw(title if titled else "", xlabel="distance of unit vectors", ylabel="samples, %",
                        xlim=(0.0, 2.0), floor=0.0)  # fmt: skip
    return _panel(name, title, figure, lines, "hardest_negative_histogram")


def rotation_comparison(groups: Sequence[Group], titled: bool) -> Panel | None:
    """Draw the rank of rotations against their largest angle, at the start and at the end."""
    stage = shared_stage(groups, ["rotation"])
    if stage is None:
        return None
    names = ("rotation_angles", "rotation_pixels", "rotation_h")
    angles, pixels, h = ({g.name: average_array(g, "rotation", stage, name=name) for g in groups} for name in names)
    lines = Lines(notes=[_on(stage, h)])
    for group, each in _there(groups, h):
        if (x := _angles(angles[group.name], each)) is not None:
            _add_rotation(lines, group, x, each)
    if not lines.curves:
        return None
    base = [
        (g, x, each.mean[-1]) for g, each in _there(groups, pixels) if (x := _angles(angles[g.name], each)) is not None
    ]
    lines.add_baselines(base, "dashed", "pixels")
    title = ENTRIES["rotation"].title
    figure = lines.draw(title if titled else "", xlabel="largest angle, degrees", ylabel="directions", floor=0.0)
    return _panel("rotation", title, figure, lines, "rotation")


def _add_rotation(lines: Lines, group: Group, x: Floats, each: Average) -> None:
    """At the start and at the end, or once."""
    looks: dict[int, Dash] = {0: "dotted"}
    looks[len(each.step) - 1] = "solid"
    for row, dash in looks.items():
        y, std = each.mean[row], None if each.std is None else each.std[row]
        value = number(float(y[-1])) if dash == "solid" else None
        lines.add(group, x, y, std, dash, value=value, word=_WHEN[dash])
        lines.dashes[dash] = f"h, {_WHEN[dash]}"
        lines.said.append(f"{group.name}, {_WHEN[dash]}, up to {number(float(y[-1]))}")


def _angles(angles: Average | None, of: Average) -> Floats | None:
    same = angles and len(angles.step) and angles.mean.shape[1] == of.mean.shape[1] and np.isfinite(angles.mean).all()
    return angles.mean[-1] if angles and same else None


def threshold_comparisons(groups: Sequence[Group], titled: bool) -> list[Panel | None]:
    """Draw the projector's rank at relative thresholds, and at shares of the sum of squares."""
    return [_thresholds(groups, "relative", titled), _thresholds(groups, "cumulative", titled)]


def _thresholds(groups: Sequence[Group], mode: Mode, titled: bool) -> Panel | None:
    stage = shared_stage(groups, ["projector_spectrum"])
    if stage is None:
        return None
    asked = [tau for kind, tau, *_ in THRESHOLDS if kind == mode]
    lines = Lines()
    by_epochs = all(run.time_unit == "epochs" for group in groups for run in group.runs)
    for tau, dash in zip(asked, _BAND[mode], strict=True):
        found = {group.name: average(group, partial(_ranks, stage=stage, mode=mode, tau=tau)) for group in groups}
        lines.notes = [_on(stage, found)]
        lines.dashes[dash] = threshold_name(mode, tau)
        for group, each in _there(groups, found):
            x, y = each.time if by_epochs else each.step, each.mean[:, 0]
            value = number(float(y[-1])) if dash == "solid" else None
            lines.add(group, x, y, None if each.std is None else each.std[:, 0], dash, value=value,
                      word=threshold_name(mode, tau))  # fmt: skip
            lines.said.append(f"{group.name} at {threshold_name(mode, tau)} ends at {number(float(y[-1]))}")
    if not any(np.isfinite(line.y).any() for line in lines.curves):
        return None
    title = "Projector rank at other thresholds" if mode == "relative" else "Projector rank by share of the squares"
    end = max(float(line.x.max()) for line in lines.curves)
    figure = lines.draw(title if titled else "", xlabel=f"{'epochs' if by_epochs else 'steps'} of training",
                        ylabel="directions", xlim=(0.0, end or 1.0), floor=0.0)  # fmt: skip
    return _panel(f"projector_rank_{mode}", title, figure, lines, "projector_thresholds")


def _ranks(run: Run, stage: str, mode: Mode, tau: float) -> Readouts | None:
    """The rank of a projector's last layer in one column, as it was when each spectrum was read out."""
    found = [a for a in known_arrays(run, "projector_spectrum", every=True) if split(a.name)[0] == stage]
    if not found:
        return None
    array = max(found, key=lambda each: natural_order(split(each.name)[1]))
    sigma = np.exp(array.values) if split(array.name)[1].startswith("log_") else array.values
    rank = rank_at(sigma, mode, tau)
    kept = np.isfinite(rank)
    return Readouts(array.name, array.epoch[kept], array.step[kept], rank[kept, None]) if kept.any() else None


def _there(groups: Sequence[Group], found: Mapping[str, Average | None]) -> list[tuple[Group, Average]]:
    return [(group, each) for group in groups if (each := found.get(group.name)) and len(each.step)]


def _on(stage: str, found: Mapping[str, Average | None]) -> str:
    return (f"Data: {stage}. " if stage else "") + counted(found)


def _panel(name: str, title: str, figure: "Figure", lines: Lines, key: str) -> Panel:
    xname = str(figure.axes[0].get_xlabel())
    return Panel(name, title, figure, f"{title}: {'; '.join(lines.said)}.", (ENTRIES[key],),
                 numbers=lines.numbers(xname))  # fmt: skip
