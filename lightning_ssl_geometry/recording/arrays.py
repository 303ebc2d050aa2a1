"""Files for results that are vectors or larger arrays."""

__all__ = ["FIRST", "SEEN", "ArrayFiles"]

from collections.abc import Sequence

import numpy as np
from lightning.pytorch.loggers import Logger
from torch import Tensor

from lightning_ssl_geometry.files import row
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.recording.logged import log_array
from lightning_ssl_geometry.recording.run_files import RunFiles

FIRST = ".first.npz"  # ends the name of a file with the first array of a run
_WIDEST = 512  # values of a vector that is still written as text
SEEN = "rows_seen"  # name of the CSV file with the number of samples behind each result


class ArrayFiles:
    """Writes vectors and larger arrays to the folder `geometry` of a run.

    A vector is appended as a row to `{name}.csv`, whose columns are epoch, step, 0, 1, 2 and so on. A vector of more
    than 512 values is appended to `{name}.npy` instead, in about a third of the space: an array of records with the
    fields `epoch`, `step` and `values` (float32). If there is a CSV file, as of an older version, it is continued. A
    larger array replaces the file `{name}.npz`, which has the entries `values` (float32), `epoch` and `step`.

    Args:
        files: The files of the run.
        loggers: Loggers that get each vector as a histogram (:func:`log_array`).
    """

    def __init__(self, files: RunFiles, loggers: Sequence[Logger] = ()) -> None:
        self.files = files
        self.loggers = loggers

    def append(
        self,
        name: str,
        epoch: int,
        step: int,
        values: Tensor,
        *,
        first: bool = False,
        bins: tuple[float, float] | None = None,
    ) -> None:
        """Write one result to its file. Vectors are also logged.

        Args:
            name: Path in `geometry` without the file ending, such as `val/log_spectrum_h`.
            epoch: Number of the epoch, from 0.
            step: Number of optimizer steps done.
            values: A vector (K,) or a larger array. A ValueError is raised for a scalar. It is also raised if the
                length of a vector differs from earlier rows.
            first: Whether the first of the larger arrays of a run is kept in a file of its own, `{name}.first.npz`.
            bins: If a vector is a histogram, the bounds of its bins.
        """
        if values.ndim == 0:
            raise ValueError(f"Expected {name!r} to have at least one axis, but got a scalar.")
        if values.ndim > 1:
            for ending in self._endings(name, first):
                with self.files.replacing(f"geometry/{name}{ending}") as file:
                    np.savez(file, values=values.float().numpy(force=True), epoch=epoch, step=step)
            return
        if len(values) > _WIDEST and not self._has(f"{name}.csv"):
            self.files.append_record(f"geometry/{name}.npy", row(epoch, step, values.float().numpy(force=True)))
        else:
            cells = [f"{value:.8g}" for value in values.tolist()]
            header = ["epoch", "step", *map(str, range(len(cells)))]
            self.files.append(f"geometry/{name}.csv", header, [epoch, step, *cells])
        index = step if name.startswith("test/") else max(step - 1, 0)
        if self.files.writes:
            log_array(self.loggers, name, index, values=in_float64(values).numpy(force=True), bins=bins)

    def _endings(self, name: str, first: bool) -> list[str]:
        return [*([FIRST] if first and not self._has(f"{name}{FIRST}") else []), ".npz"]

    def _has(self, name: str) -> bool:
        return self.files.writes and self.files.path(f"geometry/{name}").exists()

    def append_seen(self, name: str, epoch: int, step: int, counts: Sequence[int | str]) -> None:
        """Append a row with the numbers of observed samples and views to `geometry/{name}.csv`.

        `counts` has the number of samples on all ranks, the number of views, the width of h, the width of z, and the
        number of views in z. A missing width or number is "". The other arguments are as in :meth:`append`. A file
        that an earlier version has begun keeps its columns, without the views in z.
        """
        header = ["epoch", "step", "samples", "views", "width_h", "width_z", "views_z"]
        if self._has(f"{name}.csv"):
            with self.files.path(f"geometry/{name}.csv").open() as file:
                header = header[: file.readline().count(",") + 1]
        self.files.append(f"geometry/{name}.csv", header, [epoch, step, *counts][: len(header)])
