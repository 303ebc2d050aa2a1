"""The figures of a run, by section: which of its logs stand together."""

__all__ = ["MOST_UNKNOWN", "figures", "panels"]

import re
from dataclasses import replace
from functools import partial
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
from lightning_ssl_geometry.report.drawn import Drawings
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
from lightning_ssl_geometry.report.seen import BOUNDED, in_words
from lightning_ssl_geometry.report.sheets import SECTIONS, SHEETS

if TYPE_CHECKING:
    from matplotlib.figure import Figure

MOST_UNKNOWN = 24
_SPECTRA = ("spectrum_h_image", "spectrum_h", "spectrum_z", "projector_spectrum")
_OF_AUGMENTATIONS = ("augmentation_spectrum", "jacobian_spectrum")


def figures(run: Run) -> "dict[str, Figure]":
    """Draw all figures of a run, by name, to be saved one by one: `figures(run)["loss"].savefig("loss.png", dpi=200)`.

    Args:
        run: As :func:`read_run` returns it.

    Warns:
        UserWarning: If there is a figure that could not be drawn; it is left out.

    >>> import numpy as np
    >>> from pathlib import Path
    >>> from lightning_ssl_geometry.report.logs import Series
    >>> series = Series("train/loss", np.arange(3.0), np.arange(3.0), np.array([4.0, 3.0, 2.5]))
    >>> list(figures(Run(Path("."), "run", scalars={"train/loss": series})))
    ['loss']
    """
    named: dict[str, Figure] = {}
    drawings = Drawings()
    for panel in chain.from_iterable(panels(run, drawings).values()):
        name = re.sub(r"\W+", "_", panel.name).strip("_") or "figure"
        free = (each for each in chain([name], (f"{name}_{k}" for k in count(2))) if each not in named)
        named[next(free)] = panel.figure
    drawings.warn(run.name)
    return named


def panels(run: Run, drawings: Drawings) -> dict[str, list[Panel]]:
    """Draw all figures of a run, by section; of unknown scalars and arrays no more than `MOST_UNKNOWN`.

    Args:
        run: As :func:`read_run` returns it.
        drawings: Keeps what could not be drawn.
    """
    of = drawings.of
    with np.errstate(over="ignore", invalid="ignore"):  # what overflows is infinite, and shown so
        drawn = {name: _sheets(run, name, drawings) for name in SECTIONS}
        drawn["learning"] += [] if run.is_diagnosis else _losses(run, drawings)
        drawn["probes"] += of("linear evaluation", lambda: evaluation_panel(run))
        drawn["ranks"] = [_with_sizes(run, panel) for panel in drawn["ranks"]]
        drawn["ranks"] += of("ranks at other thresholds", lambda: threshold_panel(run))
        drawn["spectra"] += of("spectra", lambda: spectrum_panels(run, _SPECTRA))
        drawn["augmentations"] += of("spectra of augmentations", lambda: spectrum_panels(run, _OF_AUGMENTATIONS))
        drawn["augmentations"] += of("rotations", lambda: rotation_panels(run))
        drawn["channel"] += of("augmentation channel", lambda: channel_panels(run))
        drawn["neighbors"] += of("hardest negatives", lambda: histogram_panels(run))
        layers, rest = of("latents by layer", lambda: layer_panels(run)), drawn["content_style"]
        drawn["content_style"] = [*layers, *rest, *of("content and style", lambda: content_style_panels(run))]
        path = [] if run.is_diagnosis else of("alignment and uniformity", lambda: hypersphere_panels(run))
        drawn["hypersphere"] = [*path, *drawn["hypersphere"]]
        drawn["layers"] += of("layers", lambda: layer_quantities(run))
        drawn["dynamics"] += of("neural kernel", lambda: kernel_panels(run))
        drawn["other"] = _unknown(run, drawings)
    return {name: [_with_rows(run, panel) for panel in section] for name, section in drawn.items()}


def _sheets(run: Run, section: str, drawings: Drawings) -> list[Panel]:
    """Of a diagnosis none: its scalars are a table."""
    wanted = [sheet for sheet in SHEETS.get(section, ()) if sheet.where != "groups" and not run.is_diagnosis]
    found = (drawings.of(sheet.title, partial(over_training, run, sheet)) for sheet in wanted)
    return list(chain.from_iterable(found))


def _with_sizes(run: Run, panel: Panel) -> Panel:
    """Say of the effective ranks how high they could be."""
    if panel.name != "effective_rank":
        return panel
    arrays = {"D": known_arrays(run, "spectrum_h"), "P": known_arrays(run, "spectrum_z")}
    known = [f"{letter} = {found[0].values.shape[1]}" for letter, found in arrays.items() if found]
    return replace(panel, remark=f"Here {' and '.join(known)}. {panel.remark}".strip()) if known else panel


def _with_rows(run: Run, panel: Panel) -> Panel:
    """Say where the rows of a readout bound a rank or a spectrum."""
    keys = [key for key in BOUNDED if ENTRIES[key] in panel.entries]
    said = dict.fromkeys(in_words(run, stage, key) for stage in panel.stages for key in keys)
    words = " ".join(filter(None, said))
    return replace(panel, remark=f"{panel.remark} {words}".strip()) if words else panel


def _losses(run: Run, drawings: Drawings) -> list[Panel]:
    entries = (ENTRIES["loss"],)
    found = own_losses(run).items()
    return list(
        chain.from_iterable(
            drawings.of(base, partial(unknown_panel, run, base, members, entries)) for base, members in found
        )
    )


def _unknown(run: Run, drawings: Drawings) -> list[Panel]:
    unknown = {} if run.is_diagnosis else unknown_scalars(run)
    scalars = (drawings.of(base, partial(unknown_panel, run, base, members)) for base, members in unknown.items())
    arrays = (drawings.of(array.name, partial(unknown_array_panel, run, array)) for array in unknown_arrays(run))
    return list(islice(chain.from_iterable(chain(scalars, arrays)), MOST_UNKNOWN))
