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
from lightning_ssl_geometry.report.evaluation import evaluation_panel
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.run import Run
from lightning_ssl_geometry.report.scalar_panels import (
    Wanted,
    hypersphere_panels,
    over_training,
    unknown_panel,
    unknown_scalars,
)

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
        sections = {
            "learning": _learning(run),
            "probes": [_probes(run), evaluation_panel(run)],
            "ranks": _ranks(run),
            "spectra": spectrum_panels(run),
            "hypersphere": [
                *hypersphere_panels(run),
                over_training(
                    run, "gaussian_potential", "Gaussian potential", "mean kernel", [Wanted("gaussian_potential")]
                ),
            ],
            "other": _unknown(run),
        }
    return {name: [panel for panel in section if panel] for name, section in sections.items()}


def _learning(run: Run) -> list[Panel | None]:
    bound = [Wanted("info_nce", "InfoNCE"), Wanted("upper_bound", "bound", "orange")]
    terms = [Wanted("invariance", "invariance", "blue"), Wanted("repulsion", "repulsion", "orange")]
    return [
        over_training(run, "loss", "Loss", "loss", [Wanted("loss")]),
        over_training(run, "upper_bound", "InfoNCE and its upper bound", "nats", bound),
        over_training(run, "bound_terms", "The bound's two terms", "cosine", terms),
    ]


def _probes(run: Run) -> Panel | None:
    wanted = [Wanted("linear_probe", "linear", "blue"), Wanted("knn_probe", "kNN", "green")]
    return over_training(run, "probes", "Probes during training", "accuracy, %", wanted)


def _ranks(run: Run) -> list[Panel | None]:
    wanted = [Wanted("effective_rank_h", "h", "blue"), Wanted("effective_rank_z", "z", "orange")]
    effective = over_training(run, "effective_rank", "Effective rank", "directions", wanted, floor=0.0)
    arrays = {"D": known_arrays(run, "spectrum_h"), "P": known_arrays(run, "spectrum_z")}
    known = [f"{letter} = {found[0].values.shape[1]}" for letter, found in arrays.items() if found]
    if effective and known:
        effective = replace(effective, remark=f"Here {' and '.join(known)}. {effective.remark}".strip())
    projector = [Wanted("projector_rank", color="green")]
    return [effective, over_training(run, "projector_rank", "Projector rank", "directions", projector, floor=0.0)]


def _unknown(run: Run) -> list[Panel | None]:
    scalars = (unknown_panel(run, base, members) for base, members in unknown_scalars(run).items())
    arrays = (unknown_array_panel(run, array) for array in unknown_arrays(run))
    return list(islice((panel for panel in chain(scalars, arrays) if panel), MOST_UNKNOWN))
