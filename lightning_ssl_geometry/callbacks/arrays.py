"""Arrays over training as CSV files: one file per name, one row per readout, readable by numpy and pandas."""

__all__ = ["ArrayFiles"]

import csv
import os
from pathlib import Path

from torch import Tensor


class ArrayFiles:
    """A folder of CSV files with the columns epoch, step, 0, 1, 2, ...

    Args:
        folder: Made when the first row is written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def append(self, name: str, epoch: int, step: int, values: Tensor) -> None:
        """Write one row of a one-dimensional array to `{name}.csv`.

        Raises:
            ValueError: If the array is not one-dimensional, or its length differs from that of earlier rows.
        """
        if values.ndim != 1:
            raise ValueError(f"Expected {name!r} to be a scalar or one-dimensional, but got {tuple(values.shape)}.")
        path = self.folder / f"{name}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        header = ["epoch", "step", *map(str, range(len(values)))]
        if not path.exists():
            path.write_text(",".join(header) + "\n")
        with path.open("r+", newline="") as file:
            if (width := file.readline().count(",") + 1) != len(header):
                raise ValueError(
                    f"Expected {width - 2} values for {name!r}, as in earlier rows, but got {len(values)}."
                )
            file.seek(0, os.SEEK_END)
            csv.writer(file, lineterminator="\n").writerow([epoch, step, *(f"{v:.8g}" for v in values.tolist())])

    def keep_until(self, step: int) -> None:
        """Drop the rows behind a step, in every file; a file without rows goes."""
        for path in sorted(self.folder.rglob("*.csv")):
            header, *rows = self._read(path)
            kept = [row for row in rows if len(row) == len(header) and int(row[1]) <= step] if step else []
            if kept:
                path.write_text("".join(",".join(row) + "\n" for row in [header, *kept]))
            else:
                path.unlink()

    @staticmethod
    def _read(path: Path) -> list[list[str]]:
        with path.open(newline="") as file:
            return list(csv.reader(file))
