"""A CSVLogger that continues an existing metrics.csv when a run resumes, and a comparison of runs for other loggers."""

__all__ = ["ResumableCSVLogger", "log_comparison"]

import csv
import io
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

from lightning.fabric.loggers.logger import rank_zero_experiment
from lightning.pytorch.loggers.csv_logs import CSVLogger, ExperimentWriter
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.files import append, replacing, set_aside, unfinished
from lightning_ssl_geometry.recording.logged import log_comparison


class ResumableCSVLogger(CSVLogger):
    """Lightning's CSVLogger, but metrics.csv survives kills and resumes.

    A row that the Trainer logs is appended at once. An existing metrics.csv is continued, and an incomplete last row is
    removed. A file that is not a table is renamed to `metrics.csv.unreadable-1`. If the disk is full, the logger warns
    once and keeps the rows in memory until it can write them.

    The callbacks of this package call :meth:`rewind` when a run resumes from a checkpoint. Rows logged after the
    checkpoint then move to `superseded-1/metrics.csv` in the run's folder. Without these callbacks, the rows stay.

    Args:
        save_dir: Folder of all runs. It must be on a local file system, otherwise a ValueError is raised.
        name: Folder of this experiment's runs, within `save_dir`.
        version: Folder of this run, within `name`: a number or a name. None: the next free number.
        prefix: Text before the names of metrics.
        flush_logs_every_n_steps: Rows that the Trainer does not log are appended at steps that are a multiple of this
            number.
    """

    def __init__(
        self,
        save_dir: str | Path,
        name: str | None = "lightning_logs",
        version: int | str | None = None,
        prefix: str = "",
        flush_logs_every_n_steps: int = 1,
    ) -> None:
        if "://" in str(save_dir):
            raise ValueError(f"Expected `save_dir` on a local file system, but got {str(save_dir)!r}.")
        super().__init__(save_dir, name, version, prefix, flush_logs_every_n_steps)

    @property
    @rank_zero_experiment
    def experiment(self) -> "_Table":
        if self._experiment is None:
            self._experiment = _Table(self.log_dir)
        return self._experiment  # type: ignore[return-value]

    def continue_version(self, folder: Path) -> None:
        """Log to the folder of an earlier run, if that is one of this logger's versions and none was asked for."""
        if self._version is None and folder.parent.resolve() == Path(self.root_dir).resolve():
            self._version = folder.name

    def rewind(
        self, step: int, superseded: Path, epoch: int | None = None, *, read: Collection[int] | None = None
    ) -> None:
        """Move the rows logged after a checkpoint to the file `superseded`. Without such rows, the file is not created.

        `step` is the number of batches trained at the checkpoint. Rows of this step and of later steps are moved. A row
        of exactly this step stays if all its values are from the stage "test". If `epoch` is given, the rows of this
        and later epochs are moved instead, whatever their step. If `read` is given, rows of exactly this step stay if
        their epoch is one of these.
        """
        self.experiment.rewind(step, superseded, epoch, read=read)


class _Table(ExperimentWriter):
    # The parent's `metrics` holds the rows that are not yet written.

    def __init__(self, log_dir: str) -> None:
        super().__init__(log_dir)
        self._path = Path(self.metrics_file_path)
        self._warned = False
        for left in unfinished(self._path):
            left.unlink()
        self._load()

    def _check_log_dir_exists(self) -> None:
        pass  # the parent's method deletes an earlier metrics.csv

    def save(self) -> None:
        if not self.metrics:
            return
        try:
            self._save()
        except OSError as error:
            if not self._warned:
                self._warned = True
                rank_zero_warn(f"{self._path} cannot be written now: {error}. The training goes on; rows are kept.")

    def _save(self) -> None:
        keys = sorted(set(self.metrics_keys).union(*self.metrics))
        if keys != self.metrics_keys or not self._path.exists():
            rows = self._rows()
            self._replace(keys, [*rows, *self.metrics])
        else:
            append(self._path, _table(keys, self.metrics))
        self.metrics_keys, self.metrics = keys, []

    def rewind(
        self, step: int, superseded: Path, epoch: int | None = None, *, read: Collection[int] | None = None
    ) -> None:
        rows = self._rows()
        early = [_before(row, step, read or ()) if epoch is None else _of_earlier_epoch(row, epoch) for row in rows]
        later = [row for row, kept in zip(rows, early, strict=True) if not kept]
        if not later:
            return
        with replacing(superseded) as file:
            file.write(_table(self.metrics_keys, later, header=True).encode())
        self._replace(self.metrics_keys, [row for row, kept in zip(rows, early, strict=True) if kept])

    def _load(self) -> None:
        if not self._path.exists():
            return
        text = self._path.read_bytes().decode(errors="replace")
        whole, end, rest = text.rpartition("\n")
        header = next(csv.reader(io.StringIO(whole + end, newline="")), [])
        if "step" not in header or "\0" in text:
            aside = set_aside(self._path)
            rank_zero_warn(f"{self._path} could not be read: expected a table with a column `step`. It is now {aside}.")
            return
        self.metrics_keys = header
        if rest:
            self._replace(header, self._rows())

    def _rows(self) -> list[dict[str, Any]]:
        if not self._path.exists():
            return []
        whole, end, _ = self._path.read_bytes().decode(errors="replace").rpartition("\n")
        header, *lines = csv.reader(io.StringIO(whole + end, newline=""))
        return [dict(zip(header, line, strict=True)) for line in lines if len(line) == len(header)]

    def _replace(self, keys: Sequence[str], rows: Sequence[Mapping[str, Any]]) -> None:
        with replacing(self._path) as file:
            file.write(_table(keys, rows, header=True).encode())


def _table(keys: Sequence[str], rows: Sequence[Mapping[str, Any]], header: bool = False) -> str:
    text = io.StringIO()
    writer = csv.DictWriter(text, keys)
    if header:
        writer.writeheader()
    writer.writerows(rows)
    return text.getvalue()


def _of_earlier_epoch(row: Mapping[str, Any], epoch: int) -> bool:
    try:
        return float(row["epoch"]) < epoch
    except (ValueError, KeyError):
        return True


def _before(row: Mapping[str, Any], step: int, read: Collection[int]) -> bool:
    try:
        own = int(float(row["step"]))
    except (ValueError, OverflowError):
        return True
    tested = all(name.startswith("test/") for name, cell in row.items() if cell and name not in ("epoch", "step"))
    return own < step or (own == step > 0 and tested) or (own == step and _epoch_of(row) in read)


def _epoch_of(row: Mapping[str, Any]) -> int | None:
    try:
        return int(float(row["epoch"]))
    except (ValueError, KeyError, OverflowError):
        return None
