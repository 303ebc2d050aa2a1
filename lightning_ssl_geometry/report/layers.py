"""What was measured of each layer, from the representation through the projector: layers.csv."""

__all__ = ["Layers", "read_layers"]

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from lightning_ssl_geometry.report.files import read_table
from lightning_ssl_geometry.report.logs import MOST_DRAWN, Floats, floats

_MOST_LAYERS = 200


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
        None where the file names no layer, and notes on what was left out.

    Raises:
        OSError: If it cannot be opened.
        ValueError: If it is no file, or no table.
    """
    table, notes = read_table(path, path.name)
    if not table.rows:
        return None, notes
    if "layer" not in table.columns:
        return None, [*notes, f"{path.name} has no column `layer`; it was left out."]
    if len(table.rows) > _MOST_LAYERS or len(table.columns) > _MOST_LAYERS:
        shape = f"{len(table.rows):,} rows and {len(table.columns):,} columns"
        return None, [*notes, f"{path.name} has {shape}, and no more than {_MOST_LAYERS} are read; it was left out."]
    columns = {name: [cell.strip() for cell in table.column(name)] for name in table.columns if name != "layer"}
    parsed = {name: floats(cells) for name, cells in columns.items()}
    lost = sum(bool(cell) for cells in columns.values() for cell in cells)
    lost -= sum(int(np.isfinite(values).sum()) for values in parsed.values())
    if lost:
        notes.append(f"{path.name}: left out cells that are not finite numbers, {lost} in all.")
    if huge := sum(int((np.abs(values[np.isfinite(values)]) > MOST_DRAWN).sum()) for values in parsed.values()):
        notes.append(f"{path.name}: left out cells beyond ±{MOST_DRAWN:.0e}, {huge} in all.")
    parsed = {name: np.where(np.abs(values) < MOST_DRAWN, values, np.nan) for name, values in parsed.items()}
    width = parsed.pop("width", np.full(len(table.rows), np.nan))
    kept = {name: values for name, values in parsed.items() if np.isfinite(values).any()}
    return Layers(tuple(table.column("layer")), width, kept), notes
