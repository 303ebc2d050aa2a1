"""Send vectors as histograms, and figures as images, to TensorBoardLogger and WandbLogger."""

__all__ = ["log_array", "log_run"]

from collections.abc import Sequence
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from lightning.pytorch.loggers import Logger, TensorBoardLogger, WandbLogger
from numpy.typing import NDArray

from lightning_ssl_geometry.either_lightning import either

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from lightning_ssl_geometry.report import Drawings, Run

_BINS, _MOST_BINS = 64, 512  # wandb accepts at most 512 bins
_MOST = 1e100  # larger values are left out, as in the figures


def log_array(loggers: Sequence[Logger], name: str, step: int, values: NDArray[np.float64]) -> None:
    """Log a vector to TensorBoard and wandb, as a histogram of its finite values.

    If `name` ends in "histogram", the vector is itself a histogram. Its K entries are the fractions in K bins of equal
    width over [0, 2].
    """
    if not any(map(_shows, loggers)):
        return
    counts, edges = _as_histogram(values) if name.endswith("histogram") else _histogram(values)
    if not len(counts):
        return
    for logger in loggers:
        if isinstance(logger, either(TensorBoardLogger)):
            _to_tensorboard(logger, name, step, counts=counts, edges=edges)
        elif isinstance(logger, either(WandbLogger)):
            import wandb

            histogram = wandb.Histogram(np_histogram=(counts, edges))
            logger.log_metrics({name: histogram}, step=step)  # type: ignore[dict-item]  # passed on to wandb as it is


def log_run(loggers: Sequence[Logger], run: "Run | Path", step: int, *, drawings: "Drawings | None" = None) -> None:
    """Log the figures of a run's report as images `figures/{name}`, and the run's vectors as tables.

    Only wandb gets tables. The table `geometry/{stage}/{name}` has the columns of the CSV file of that name.

    Args:
        loggers: Loggers of any kind. Only TensorBoardLogger and WandbLogger get figures.
        run: A run from `read_run`, or its folder. A ValueError is raised if the folder holds no run.
        step: Step to log.
        drawings: Cache of the figures, so that each is drawn once.
    """
    from lightning_ssl_geometry.report import figures, read_run

    able = [logger for logger in loggers if _shows(logger)]
    if not able:
        return
    read = read_run(run) if isinstance(run, Path) else run
    for name, figure in figures(read, drawings=drawings).items():
        image = _pixels(figure)
        for logger in able:
            if isinstance(logger, either(TensorBoardLogger)):
                logger.experiment.add_image(f"figures/{name}", image, step, dataformats="HWC")
            elif isinstance(logger, either(WandbLogger)):
                logger.log_image(f"figures/{name}", [image], step)
    for logger in able:
        if isinstance(logger, either(WandbLogger)):
            _tables(logger, read, step)


def _shows(logger: Logger) -> bool:
    return isinstance(logger, either(TensorBoardLogger) + either(WandbLogger))


def _as_histogram(fractions: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not np.isfinite(fractions).all():
        return np.empty(0), np.empty(0)
    centers = (np.arange(len(fractions)) + 0.5) * 2 / len(fractions)
    return np.histogram(centers, min(len(fractions), _MOST_BINS), (0.0, 2.0), weights=fractions)


def _histogram(values: NDArray[np.float64]) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    values = values[np.abs(values) < _MOST]  # this also removes NaN
    if not len(values):
        return np.empty(0), np.empty(0)
    low, high = float(values.min()), float(values.max())
    size = max(abs(low), abs(high))
    if high - low <= 1e-9 * size:  # too narrow a range for numpy to divide into bins
        low, high = low - (0.5 * size or 0.5), high + (0.5 * size or 0.5)
    counts, edges = np.histogram(values, _BINS, (low, high))
    return counts.astype(np.float64), edges


def _to_tensorboard(
    logger: TensorBoardLogger, name: str, step: int, counts: NDArray[np.float64], edges: NDArray[np.float64]
) -> None:
    centers = (edges[1:] + edges[:-1]) / 2
    logger.experiment.add_histogram_raw(
        name,
        min=float(edges[0]),
        max=float(edges[-1]),
        num=float(counts.sum()),
        sum=float(counts @ centers),
        sum_squares=float(counts @ centers**2),
        bucket_limits=edges[1:].tolist(),
        bucket_counts=counts.tolist(),
        global_step=step,
    )


def _tables(logger: WandbLogger, run: "Run", step: int) -> None:
    for array in run.arrays.values():
        columns = ["epoch", "step", *map(str, range(array.values.shape[1]))]
        rows = np.column_stack([array.epoch, array.step, array.values]).tolist()
        logger.log_table(f"geometry/{array.name}", columns, rows, step=step)


def _pixels(figure: "Figure") -> NDArray[np.uint8]:
    from PIL import Image

    file = BytesIO()
    figure.savefig(file, format="png", dpi=144)
    return np.asarray(Image.open(file).convert("RGB"))
