"""Files for diagnostics whose results are vectors or larger arrays."""

__all__ = ["SEEN", "ArrayFiles"]

from collections.abc import Sequence

import numpy as np
from lightning.pytorch.loggers import Logger
from torch import Tensor

from lightning_ssl_geometry.callbacks.loggers import log_array
from lightning_ssl_geometry.callbacks.run_files import RunFiles

SEEN = "rows_seen"  # name of the CSV file with the number of samples behind each result


class ArrayFiles:
    """Writes results that are vectors or larger arrays to the folder `geometry` of a run.

    A vector becomes a row of `{name}.csv`, with the columns epoch, step, 0, 1, 2, .... An array with more axes, such as
    an image, replaces the contents of `{name}.npz`: `values` in float32, `epoch` and `step`.

    Args:
        files: The files of the run.
        loggers: Loggers that get each vector as a histogram, by :func:`log_array`.
    """

    def __init__(self, files: RunFiles, loggers: Sequence[Logger] = ()) -> None:
        self.files = files
        self.loggers = loggers

    def append(self, name: str, epoch: int, step: int, values: Tensor) -> None:
        """Write one result to its file, and log it if it is a vector.

        Args:
            name: Path below `geometry` without the ending, such as `val/log_spectrum_h`.
            epoch: Number of the epoch, from 0.
            step: Number of optimizer steps done. In a fit, the loggers get step - 1, the index of the last step, which
                is also the step of the scalars.
            values: (K,), or with more axes. A ValueError if it is a scalar or has another length than earlier rows.
        """
        if values.ndim == 0:
            raise ValueError(f"Expected {name!r} to have at least one axis, but got a scalar.")
        if values.ndim > 1:
            with self.files.replacing(f"geometry/{name}.npz") as file:
                np.savez(file, values=values.float().numpy(force=True), epoch=epoch, step=step)
            return
        cells = [f"{value:.8g}" for value in values.tolist()]
        header = ["epoch", "step", *map(str, range(len(cells)))]
        self.files.append(f"geometry/{name}.csv", header, [epoch, step, *cells])
        index = step if name.startswith("test/") else max(step - 1, 0)
        if self.files.writes:
            log_array(self.loggers, name, index, values=values.double().numpy(force=True))

    def append_seen(self, name: str, epoch: int, step: int, counts: Sequence[int | str]) -> None:
        """Append a row to `geometry/{name}.csv`, which tells from how many samples the results were computed.

        Args:
            name: Path below `geometry` without the ending, such as `val/rows_seen`.
            epoch: Number of the epoch, from 0.
            step: Number of optimizer steps done.
            counts: Samples on all ranks, views, and the dimensions of h and z, "" for a missing h or z.
        """
        header = ["epoch", "step", "samples", "views", "width_h", "width_z"]
        self.files.append(f"geometry/{name}.csv", header, [epoch, step, *counts])
