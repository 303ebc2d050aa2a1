"""What was measured of each layer, from the representation through the projector: layers.csv."""

__all__ = ["Layers", "read_layers"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.logs import Floats, floats, read_rows


@dataclass(frozen=True)
class Layers:
    """Scalars of layers, in the order of the forward pass.

    Attributes:
        names: L of them, as the file has them: `h` first, `z` last.
        width: (L,), how many dimensions a layer has; NaN where the file does not say.
        values: (L,) each by name, such as `effective_rank`; NaN where there is no number.
    """

    names: tuple[str, ...]
    width: Floats
    values: Mapping[str, Floats] = field(default_factory=dict)


def read_layers(path: Path) -> tuple[Layers | None, list[str]]:
    """Read the columns layer, width and one for each scalar; a column without a number is left out.

    Returns:
        None where there is no such file or it names no layer, and notes on what was left out.
    """
    if not path.is_file():
        return None, []
    rows, notes = read_rows(path, path.name)
    if not rows:
        return None, notes
    if "layer" not in rows[0]:
        return None, [*notes, f"{path.name} has no column `layer`; it was left out."]
    columns = {name: [row[name].strip() for row in rows] for name in rows[0] if name != "layer"}
    parsed = {name: floats(cells) for name, cells in columns.items()}
    lost = sum(bool(cell) for cells in columns.values() for cell in cells)
    lost -= sum(int(np.isfinite(values).sum()) for values in parsed.values())
    if lost:
        notes.append(f"{path.name}: left out cells that are not finite numbers, {lost} in all.")
    width = parsed.pop("width", np.full(len(rows), np.nan))
    kept = {name: np.where(np.isfinite(values), values, np.nan) for name, values in parsed.items()}
    kept = {name: values for name, values in kept.items() if np.isfinite(values).any()}
    return Layers(tuple(row["layer"] for row in rows), width, kept), notes
