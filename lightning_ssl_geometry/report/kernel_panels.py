"""Figures of the neural kernel: its spectrum, and its blocks by class."""

__all__ = ["kernel_panels"]

import numpy as np

from lightning_ssl_geometry.plots import curves, matrix
from lightning_ssl_geometry.report.array_panels import known_arrays, moment_curves, moment_numbers, resolved
from lightning_ssl_geometry.report.download import Numbers
from lightning_ssl_geometry.report.glossary import ENTRIES, lookup, split
from lightning_ssl_geometry.report.logs import Readouts, Snapshot
from lightning_ssl_geometry.report.numbers import number
from lightning_ssl_geometry.report.panel import Panel
from lightning_ssl_geometry.report.run import Run


def kernel_panels(run: Run) -> list[Panel | None]:
    """Draw one spectrum and one map per stage and output."""
    blocks = ENTRIES["neural_kernel_blocks"]
    maps = [snapshot for name, snapshot in run.snapshots.items() if lookup(name) is blocks]
    spectra = [_spectrum(run, array) for array in known_arrays(run, "neural_kernel_spectrum")]
    return [*spectra, *(_blocks(snapshot) for snapshot in maps)]


def _spectrum(run: Run, array: Readouts) -> Panel | None:
    stage, entry = split(array.name)[0], ENTRIES["neural_kernel_spectrum"]
    drawn = resolved(array.values)
    lines = moment_curves(run, array, drawn, "violet")
    if not any((line.y > 0).any() for line in lines):
        return None
    limits = (1.0, max(2.0, array.values.shape[1]))
    figure = curves(lines, xlabel="index", ylabel="share of the sum", xlim=limits, log=True)
    label = f"{entry.title} ({stage}): {array.values.shape[1]} values, {lines[-1].label} the largest "
    label += f"{number(float(np.nanmax(array.values[-1])))}." if np.isfinite(array.values[-1]).any() else "not finite."
    numbers = moment_numbers(run, array, array.values, "share")
    return Panel(array.name.replace("/", "_"), entry.title, figure, label, (entry,), (stage,), numbers=numbers)


def _blocks(snapshot: Snapshot) -> Panel | None:
    values, entry = snapshot.values, ENTRIES["neural_kernel_blocks"]
    if values.ndim != 2 or values.shape[0] != values.shape[1] or not np.isfinite(values).any():
        return None
    names = [f"class {place}" for place in range(len(values))]
    low = min(0.0, float(np.nanmin(values)))
    figure = matrix(names, values, meaning="cosine", limits=(low, 1.0))
    diagonal = [value for value in values.diagonal() if np.isfinite(value)]
    beside = values[~np.eye(len(values), dtype=bool) & np.isfinite(values)]
    said = [f"{name} {number(float(np.mean(part)))}" for name, part in (("within", diagonal), ("between", beside))
            if len(part)]  # fmt: skip
    rows = [(names[a], names[b], float(values[a, b])) for a, b in np.ndindex(*values.shape)]
    numbers = Numbers(("row", "column", "cosine"), rows)
    label = f"{entry.title}, means: {', '.join(said)}."
    return Panel("neural_kernel_blocks", entry.title, figure, label, (entry,), (split(snapshot.name)[0],),
                 numbers=numbers)  # fmt: skip
