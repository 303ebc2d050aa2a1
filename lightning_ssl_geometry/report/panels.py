"""The figures of a run, by section: which of its logs stand together."""

__all__ = ["MOST_UNKNOWN", "figures", "panels"]

import re
from dataclasses import replace
from itertools import chain, count, islice
from typing import TYPE_CHECKING

import numpy as np

from lightning_ssl_geometry.report.array_panels import (
    known_arrays,
    spectrum_panels,
    unknown_array_panel,
    unknown_arrays,
)
from lightning_ssl_geometry.report.channel_panels import channel_panels
from lightning_ssl_geometry.report.content_style_panels import content_style_panels, layer_panels
from lightning_ssl_geometry.report.evaluation import evaluation_panel
from lightning_ssl_geometry.report.glossary import ENTRIES
from lightning_ssl_geometry.report.kernel_panels import kernel_panels
from lightning_ssl_geometry.report.layer_panels import layer_quantities
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.projector_panels import histogram_panels, rotation_panels, threshold_panel
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.scalar_panels import (
    hypersphere_panels,
    over_training,
    own_losses,
    unknown_panel,
    unknown_scalars,
)
from lightning_ssl_geometry.report.sheets import SECTIONS, SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_UNKNOWN = 24


def figures(run: Run) -> "dict[str, Figure]":
    """Draw all figures of a run, by name, to be saved one by one: `figures(run)["loss"].savefig("loss.png", dpi=200)`.

    Args:
        run: As :func:`read_run` returns it.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from lightning_ssl_geometry.report.logs import Series
    >>> series = Series("train/loss", np.arange(3.0), np.arange(3.0), np.array([4.0, 3.0, 2.5]))
    >>> list(figures(Run(Path("."), "run", scalars={"train/loss": series})))
    ['loss']
    """
    named: dict[str, Figure] = {}
    for panel in chain.from_iterable(panels(run).values()):
        name = re.sub(r"\W+", "_", panel.name).strip("_") or "figure"
        free = (each for each in chain([name], (f"{name}_{k}" for k in count(2))) if each not in named)
        named[next(free)] = panel.figure
    return named


def panels(run: Run) -> dict[str, list[Panel]]:
    """Draw all figures of a run, by section; of unknown scalars and arrays no more than `MOST_UNKNOWN`."""
    with np.errstate(over="ignore"):  # what overflows is infinite, and shown so
        drawn = {name: _sheets(run, name) for name in SECTIONS}
        drawn["learning"] += [] if run.is_diagnosis else _losses(run)
        drawn["probes"].append(evaluation_panel(run))
        drawn["ranks"] = [_with_sizes(run, panel) for panel in drawn["ranks"]] + [threshold_panel(run)]
        drawn["spectra"] += spectrum_panels(run, ("spectrum_h_image", "spectrum_h", "spectrum_z", "projector_spectrum"))
        spectra = spectrum_panels(run, ("augmentation_spectrum", "jacobian_spectrum"))
        drawn["augmentations"] += [*spectra, *rotation_panels(run)]
        drawn["channel"] += channel_panels(run)
        drawn["neighbors"] += histogram_panels(run)
        drawn["content_style"] = [*layer_panels(run), *drawn["content_style"], *content_style_panels(run)]
        drawn["hypersphere"] = [*([] if run.is_diagnosis else hypersphere_panels(run)), *drawn["hypersphere"]]
        drawn["layers"] += layer_quantities(run)
        drawn["dynamics"] += kernel_panels(run)
        drawn["other"] = _unknown(run)
    return {name: [panel for panel in section if panel] for name, section in drawn.items()}


def _sheets(run: Run, section: str) -> list[Panel | None]:
    """Of a diagnosis none: its scalars are a table."""
    wanted = [sheet for sheet in SHEETS.get(section, ()) if sheet.where != "groups" and not run.is_diagnosis]
    return [over_training(run, sheet) for sheet in wanted]


def _with_sizes(run: Run, panel: Panel | None) -> Panel | None:
    """Say of the effective ranks how high they could be."""
    if panel is None or panel.name != "effective_rank":
        return panel
    arrays = {"D": known_arrays(run, "spectrum_h"), "P": known_arrays(run, "spectrum_z")}
    known = [f"{letter} = {found[0].values.shape[1]}" for letter, found in arrays.items() if found]
    return replace(panel, remark=f"Here {' and '.join(known)}. {panel.remark}".strip()) if known else panel


def _losses(run: Run) -> list[Panel | None]:
    return [unknown_panel(run, base, members, (ENTRIES["loss"],)) for base, members in own_losses(run).items()]


def _unknown(run: Run) -> list[Panel | None]:
    unknown = {} if run.is_diagnosis else unknown_scalars(run)
    scalars = (unknown_panel(run, base, members) for base, members in unknown.items())
    arrays = (unknown_array_panel(run, array) for array in unknown_arrays(run))
    return list(islice((panel for panel in chain(scalars, arrays) if panel), MOST_UNKNOWN))
