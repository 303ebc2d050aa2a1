"""Send vectors as histograms, and figures as images, to TensorBoardLogger and WandbLogger."""

__all__ = ["FigureTime", "log_array", "log_comparison", "log_run", "shows_figures"]

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
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


def log_array(
    loggers: Sequence[Logger],
    name: str,
    step: int,
    *,
    values: NDArray[np.float64],
    bins: tuple[float, float] | None = None,
) -> None:
    """Log a vector to TensorBoard and wandb, as a histogram of its finite values.

    With `bins`, the vector is itself a histogram. Its K entries are the fractions in K bins of equal width between
    these two bounds.
    """
    if not shows_figures(loggers):
        return
    counts, edges = _histogram(values) if bins is None else _as_histogram(values, *bins)
    if not len(counts):
        return
    for logger in loggers:
        if isinstance(logger, either(TensorBoardLogger)):
            _to_tensorboard(logger, name, step, counts=counts, edges=edges)
        elif isinstance(logger, either(WandbLogger)):
            import wandb

            histogram = wandb.Histogram(np_histogram=(counts, edges))
            logger.log_metrics({name: histogram}, step=step)  # type: ignore[dict-item]  # passed on to wandb as it is


def log_run(
    loggers: Sequence[Logger],
    run: "Run | Path",
    step: int,
    *,
    drawings: "Drawings | None" = None,
    tables: bool = True,
) -> None:
    """Log the figures of a run's report as images `geometry/{section}/{name}`, and the run's vectors as tables.

    TensorBoard and wandb group images by these names. wandb gets all figures in one row, so that a slider moves over
    them together. Only wandb gets tables. The table `geometry/{stage}/{name}` has the columns epoch, step, 0, 1
    and so on.

    Args:
        loggers: Loggers of any kind. Only TensorBoardLogger and WandbLogger get figures.
        run: A run from `read_run`, or its folder. A ValueError is raised if the folder holds no run.
        step: Step to log.
        drawings: Cache of the figures, so that each is drawn once.
        tables: Whether wandb gets the tables, which hold the whole history.
    """
    from lightning_ssl_geometry.report import read_run
    from lightning_ssl_geometry.report.page import figures_by_section

    able = [logger for logger in loggers if _shows(logger)]
    if not able:
        return
    read = read_run(run) if isinstance(run, Path) else run
    found = figures_by_section(read, drawings=drawings)
    _log_images(able, {f"geometry/{name}": _pixels(figure) for name, figure in found.items()}, step)
    for logger in able:
        if tables and isinstance(logger, either(WandbLogger)):
            _tables(logger, read, step)


def log_comparison(loggers: Sequence[Logger], groups: Mapping[str, Sequence[str | Path]], step: int = 0) -> None:
    """Log the figures that compare groups of runs as images, and to wandb the table of their headline numbers.

    The images are `comparison/{name}`. The table `comparison/numbers` has a row for each group, and for each number
    the mean over the group's runs and their standard deviation, which is missing for a single run.

    Args:
        loggers: Loggers of any kind. Only TensorBoardLogger and WandbLogger get something.
        groups: Maps the name of a group to the folders of its runs.
        step: Step to log.

    Raises:
        FileNotFoundError: If a run does not exist.
        ValueError: If there is no group, a group has no run, or a folder is not that of a run.
    """
    from lightning_ssl_geometry.report.page import comparison_figures, comparison_numbers

    able = [logger for logger in loggers if _shows(logger)]
    if not able:
        return
    columns, rows = comparison_numbers(groups)
    images = {f"comparison/{name}": _pixels(figure) for name, figure in comparison_figures(groups).items()}
    _log_images(able, images, step)
    for logger in able:
        if isinstance(logger, either(WandbLogger)):
            logger.log_table("comparison/numbers", columns, rows, step=step)


def shows_figures(loggers: Sequence[Logger]) -> bool:
    """Whether one of the loggers takes images: TensorBoardLogger or WandbLogger."""
    return any(map(_shows, loggers))


class FigureTime:
    """Limits the time for figures during a fit to a share of the fit's time.

    Args:
        share: The share, in [0, 1]. 1: no limit.

    >>> FigureTime(0.0).allows()
    False
    """

    def __init__(self, share: float) -> None:
        self.share = share
        self._begun = time.monotonic()
        self._spent = self._last = 0.0

    def allows(self) -> bool:
        """Whether there is time to draw the figures once more, if this takes as long as it took before."""
        if self.share >= 1:
            return True
        return self.share > 0 and self._spent + self._last <= self.share * (time.monotonic() - self._begun)

    @contextmanager
    def spending(self) -> Iterator[None]:
        """Count the time of the block."""
        begun = time.monotonic()
        try:
            yield
        finally:
            self._last = time.monotonic() - begun
            self._spent += self._last


def _log_images(loggers: Sequence[Logger], images: Mapping[str, NDArray[np.uint8]], step: int) -> None:
    for logger in loggers:
        if isinstance(logger, either(TensorBoardLogger)):
            for name, image in images.items():
                logger.experiment.add_image(name, image, step, dataformats="HWC")
        elif isinstance(logger, either(WandbLogger)):
            import wandb

            row = {name: wandb.Image(image) for name, image in images.items()}
            logger.log_metrics(row, step=step)  # type: ignore[arg-type]  # passed on to wandb as it is


def _shows(logger: Logger) -> bool:
    return isinstance(logger, either(TensorBoardLogger) + either(WandbLogger))


def _as_histogram(
    fractions: NDArray[np.float64], low: float, high: float
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not np.isfinite(fractions).all():
        return np.empty(0), np.empty(0)
    centers = low + (np.arange(len(fractions)) + 0.5) * (high - low) / len(fractions)
    return np.histogram(centers, min(len(fractions), _MOST_BINS), (low, high), weights=fractions)


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
