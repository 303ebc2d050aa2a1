"""Arrays over training, for numpy: rows of a CSV file, one per readout; with more axes, the latest readout as NPZ."""

__all__ = ["ArrayFiles"]

import csv
import os
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from lightning.pytorch.loggers import Logger
from torch import Tensor

from lightning_ssl_geometry.callbacks.loggers import log_array


class ArrayFiles:
    """A folder of files that numpy reads: CSV with the columns epoch, step, 0, 1, 2, ..., and NPZ.

    An array of one axis is a row of `{name}.csv`. Of one with more axes, such as images, the latest readout is kept:
    `{name}.npz` with `values` in float32, `epoch` and `step`.

    Args:
        folder: Made when the first array is written.
        loggers: Get what has one axis, too, as :func:`log_array` says.
    """

    def __init__(self, folder: Path, loggers: Sequence[Logger] = ()) -> None:
        self.folder = folder
        self.loggers = loggers

    def append(self, name: str, epoch: int, step: int, values: Tensor) -> None:
        """Write one readout, and log it.

        Args:
            name: With its stage: `val/log_spectrum_h`.
            epoch: Counted from 0.
            step: Optimizer steps done. Scalars of a fit are logged with the index of the last one, one less, and so is
                what goes to the loggers.
            values: (K,), or with more axes.

        Raises:
            ValueError: If the array is a scalar, or its length differs from that of earlier rows.
        """
        if values.ndim == 0:
            raise ValueError(f"Expected {name!r} to have at least one axis, but got a scalar.")
        path = self.folder / f"{name}.{'csv' if values.ndim == 1 else 'npz'}"
        path.parent.mkdir(parents=True, exist_ok=True)
        (_append_row if values.ndim == 1 else _replace)(path, name, epoch, step, values)
        if values.ndim == 1:
            index = step if name.startswith("test/") else max(step - 1, 0)
            log_array(self.loggers, name, index, values.double().numpy(force=True))

    def keep_until(self, step: int) -> None:
        """Drop what is from behind a step: rows, and files that hold nothing else."""
        for path in sorted(self.folder.rglob("*.csv")):
            header, *rows = _read(path)
            kept = [row for row in rows if len(row) == len(header) and int(row[1]) <= step] if step else []
            if kept:
                path.write_text("".join(",".join(row) + "\n" for row in [header, *kept]))
            else:
                path.unlink()
        for path in self.folder.rglob("*.npz"):
            with np.load(path) as file:
                kept_step = int(file["step"])
            if not step or kept_step > step:
                path.unlink()


def _append_row(path: Path, name: str, epoch: int, step: int, values: Tensor) -> None:
    header = ["epoch", "step", *map(str, range(len(values)))]
    if not path.exists():
        path.write_text(",".join(header) + "\n")
    with path.open("r+", newline="") as file:
        if (width := file.readline().count(",") + 1) != len(header):
            raise ValueError(f"Expected {width - 2} values for {name!r}, as in earlier rows, but got {len(values)}.")
        file.seek(0, os.SEEK_END)
        csv.writer(file, lineterminator="\n").writerow([epoch, step, *(f"{v:.8g}" for v in values.tolist())])


def _replace(path: Path, name: str, epoch: int, step: int, values: Tensor) -> None:
    """Write beside the file and rename: an interrupted run leaves a whole one."""
    beside = path.with_suffix(".part")
    with beside.open("wb") as file:
        np.savez(file, values=values.float().numpy(force=True), epoch=epoch, step=step)
    beside.replace(path)


def _read(path: Path) -> list[list[str]]:
    with path.open(newline="") as file:
        return list(csv.reader(file))
