"""Figures that compare groups of runs, such as strengths of augmentation with several seeds each."""

__all__ = ["comparison_figures", "comparison_panels"]

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.report.channel_panels import channel_comparisons
from lightning_ssl_geometry.report.comparison_arrays import (
    histogram_comparisons,
    rotation_comparison,
    spectrum_comparison,
    threshold_comparisons,
)
from lightning_ssl_geometry.report.comparison_dots import are_diagnoses, sheet_dots
from lightning_ssl_geometry.report.comparison_evaluation import evaluation_comparison
from lightning_ssl_geometry.report.comparison_lines import Lines, counted
from lightning_ssl_geometry.report.content_style_panels import content_style_comparisons, layer_comparison
from lightning_ssl_geometry.report.drawn import Drawings
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.groups import Average, Group, average_scalar, read_groups, shared_stage
from lightning_ssl_geometry.report.layer_panels import layer_quantity_comparisons
from lightning_ssl_geometry.report.numbers import number, percent
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.scalar_panels import fit_ranges
from lightning_ssl_geometry.report.sheets import SECTIONS, SHEETS, Sheet, Wanted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_SPECTRA = ("spectrum_h_image", "spectrum_h", "spectrum_z", "projector_spectrum")
_OF_AUGMENTATIONS = ("augmentation_spectrum", "jacobian_spectrum")


def comparison_figures(groups: Mapping[str, Sequence[str | Path]]) -> "dict[str, Figure]":
    r"""Draw all figures that compare groups of runs, by name.

    One colour per group; a line is the mean over its runs, a band their standard deviation (ddof = 1). Of several
    stages, the one that most groups have, "probe" before "val", "train" and "test". Figures are there for what the
    glossary knows and a run has; names are those of the quantities: "projector_rank", "linear_probe", "spectrum_h".

    Args:
        groups: Name -> the folders of its runs, such as one per seed. Of more than six, colours repeat.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, or a folder is no run.

    Warns:
        UserWarning: If there is a figure that could not be drawn; it is left out.

    >>> import tempfile
    >>> runs = [Path(tempfile.mkdtemp()) for _ in range(2)]
    >>> for run in runs:
    ...     _ = (run / "metrics.csv").write_text("epoch,step,train/loss\n0,9,4.5\n1,19,4.0\n")
    >>> list(comparison_figures({"small": runs}))
    ['loss']
    """
    drawings = Drawings()
    drawn = comparison_panels(read_groups(groups), drawings, titled=True)
    drawings.warn("The comparison")
    return {panel.name: panel.figure for panel in chain.from_iterable(drawn.values())}


def comparison_panels(groups: Sequence[Group], drawings: Drawings, titled: bool = False) -> dict[str, list[Panel]]:
    """Draw all figures, by section; with their titles in them, to stand alone, or without.

    Args:
        groups: What is compared.
        drawings: Keeps what could not be drawn.
        titled: Whether titles are in the figures.
    """
    once, of = are_diagnoses(groups), drawings.of
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and shown so
        drawn = {section: _sheets(groups, section, drawings, titled) for section in SECTIONS}
        drawn["probes"] += of("linear evaluation", lambda: evaluation_comparison(groups, titled))
        drawn["ranks"] += [] if once else of("other thresholds", lambda: threshold_comparisons(groups, titled))
        for section, keys in (("spectra", _SPECTRA), ("augmentations", _OF_AUGMENTATIONS)):
            for key in keys:
                drawn[section] += of(ENTRIES[key].title, partial(spectrum_comparison, groups, key, titled))
        drawn["augmentations"] += of("rotations", lambda: rotation_comparison(groups, titled))
        drawn["channel"] += of("augmentation channel", lambda: channel_comparisons(groups, titled))
        drawn["layers"] += of("layers", lambda: layer_quantity_comparisons(groups, titled))
        layers, rest = of("latents by layer", lambda: layer_comparison(groups, titled)), drawn["content_style"]
        content = of("content and style", lambda: content_style_comparisons(groups, titled))
        drawn["content_style"] = [*layers, *rest, *content]
        negatives = of("hardest negatives", lambda: histogram_comparisons(groups, titled)[: 1 if once else None])
        drawn["neighbors"] += negatives
    return drawn


def _sheets(groups: Sequence[Group], section: str, drawings: Drawings, titled: bool) -> list[Panel]:
    draw = sheet_dots if are_diagnoses(groups) else _sheet
    wanted = [sheet for sheet in SHEETS.get(section, ()) if sheet.where != "run"]
    return [panel for sheet in wanted for panel in drawings.of(sheet.title, partial(draw, groups, sheet, titled))]


def _sheet(groups: Sequence[Group], sheet: Sheet, titled: bool) -> Panel | None:
    """Draw one figure of scalars; None if no group has what it is about."""
    wanted = [want for want in sheet.wanted if want.compared]
    stage = shared_stage(groups, [want.key for want in wanted if not want.baseline])
    if stage is None:
        return None
    found = {want: {group.name: average_scalar(group, want.key, stage) for group in groups} for want in wanted}
    found = {want: averages for want, averages in found.items() if any(averages.values())}
    if _is_once(groups, found):
        return sheet_dots(groups, sheet, titled)
    lines = _gathered(groups, found)
    if not any(np.isfinite(line.y).any() for line in lines.curves):
        return None
    lines.notes = [*_counts(found, stage), *lines.notes]
    if sheet.name == "label_agreement" and not any(want.key == "label_agreement_coarse" for want in found):
        lines.notes.append("Fine labels only: the data has no coarse ones.")
    if sheet.name == "alpha_req":
        lines.notes.append(fit_ranges([run for group in groups for run in group.runs], {stage}))
    end = max(float(line.x.max()) for line in lines.curves)
    figure = lines.draw(sheet.title if titled else "", xlabel=_time_label(groups), ylabel=sheet.ylabel,
                        xlim=(0.0, end or 1.0), floor=sheet.floor)  # fmt: skip
    label = f"{sheet.title} over training{f' ({stage})' if stage else ''}: {'; '.join(lines.said)}."
    entries, numbers = tuple(ENTRIES[want.key] for want in found), lines.numbers(_time_label(groups))
    return Panel(sheet.name, sheet.title, figure, label, entries, numbers=numbers)


def _is_once(groups: Sequence[Group], found: Mapping[Wanted, Mapping[str, Average | None]]) -> bool:
    """Whether only diagnoses have a quantity, which are no training to draw it over."""
    having = {name for averages in found.values() for name, each in averages.items() if each}
    return bool(having) and are_diagnoses([group for group in groups if group.name in having])


def _gathered(groups: Sequence[Group], found: Mapping[Wanted, Mapping[str, Average | None]]) -> Lines:
    """Lines of all groups; only those of the first quantity carry the group's name."""
    lines = Lines()
    by_epochs = _by_epochs(groups)
    labelled: set[str] = set()
    for want, averages in found.items():
        scale = 100.0 if ENTRIES[want.key].percent else 1.0
        there = [(group, each) for group in groups if (each := averages[group.name]) and len(each.step)]
        if want.baseline:
            rows = [(group, each.time if by_epochs else each.step, scale * each.mean) for group, each in there]
            lines.add_baselines(rows, want.dash, want.name)
            continue
        lines.dashes |= {want.dash: want.name} if want.name and there else {}
        for group, each in there:
            x, show = each.time if by_epochs else each.step, percent if scale == 100.0 else number
            last = show(float(each.mean[-1]))
            value = None if group.name in labelled else last
            lines.add(group, x, scale * each.mean, None if each.std is None else scale * each.std, want.dash,
                      value=value, word=want.name)  # fmt: skip
            labelled.add(group.name)
            lines.said.append(f"{group.name} {want.name} from {show(float(each.mean[0]))} to {last}")
    return lines


def _counts(found: Mapping[Wanted, Mapping[str, Average | None]], stage: str) -> list[str]:
    """Say on which data and of how many runs; for each quantity where they differ."""
    texts = {want: counted(averages) for want, averages in found.items() if not want.baseline}
    on = f"Data: {stage}. " if stage else ""
    if len(set(texts.values())) == 1:
        return [on + next(iter(texts.values()))]
    return [on + " ".join(counted(found[want], want.name or want.key) for want in texts)]


def _by_epochs(groups: Sequence[Group]) -> bool:
    return all(run.time_unit == "epochs" for group in groups for run in group.runs)


def _time_label(groups: Sequence[Group]) -> str:
    return f"{'epochs' if _by_epochs(groups) else 'steps'} of training"
