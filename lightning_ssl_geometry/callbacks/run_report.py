"""RunReport: a record of the run beside its logs, and at the end a table in the terminal and a page to open."""

__all__ = ["RunReport"]

import json
import os
import platform
import shlex
import sys
from datetime import datetime
from importlib.metadata import version
from typing import Any

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.callbacks.observer import run_folder


class RunReport(L.Callback):
    """Write `run.json` (model, data, command, seed, versions, machine, status), and the report when a fit ends.

    The record is written when the fit starts and again when it ends, fails or is interrupted. The report is
    `report.html` in the run's folder, one page without outside resources; the same as `ssl-geometry report RUN`
    writes. It reads what Lightning's CSVLogger writes. Rank 0 only.

    Args:
        page: Write the page.
        table: Print the summary table and the path of the page.

    Raises:
        ValueError: When a fit starts, if there is no CSVLogger among the Trainer's loggers.
    """

    def __init__(self, page: bool = True, table: bool = True) -> None:
        super().__init__()
        self.page = page
        self.table = table
        self._record: dict[str, Any] = {}

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the record."""
        if not trainer.fast_dev_run and not any(isinstance(logger, CSVLogger) for logger in trainer.loggers):  # type: ignore[attr-defined]
            raise ValueError("Expected a CSVLogger among the Trainer's `logger`s for RunReport, but got none.")
        seed = os.environ.get("PL_GLOBAL_SEED")
        datamodule = getattr(trainer, "datamodule", None)
        self._record = {
            "model": type(pl_module).__name__,
            "data": type(datamodule).__name__ if datamodule else None,
            "command": _command(),
            "seed": int(seed) if seed else None,
            "started": _now(),
            "ended": None,
            "parameters": sum(p.numel() for p in pl_module.parameters()),
            "world_size": trainer.world_size,
            "precision": str(trainer.precision),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in _PACKAGES},
            "machine": {
                "system": f"{platform.system()} {platform.machine()}",
                "cpus": os.cpu_count(),
                "device": str(pl_module.device),
            },
        }
        self._write(trainer, "running")

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write the record again, the page and the table."""
        self._end(trainer, "finished")

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        """Do the same for what there is, when the fit was interrupted or failed; that error is the one to be seen."""
        if not self._record:
            return
        try:
            self._end(trainer, "interrupted" if isinstance(exception, KeyboardInterrupt) else "failed")
        except (OSError, ValueError) as error:
            rank_zero_warn(f"RunReport could not write the report of this run: {error}")

    def _end(self, trainer: L.Trainer, status: str) -> None:
        for logger in trainer.loggers:
            logger.save()
        self._record["ended"] = _now()
        self._write(trainer, status)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._report(trainer, status)

    def _report(self, trainer: L.Trainer, status: str) -> None:
        from rich.console import Console

        from lightning_ssl_geometry.report import read_run, summary_table, write_report

        folder = self._folder(trainer, status)
        console = Console()
        if self.table:
            console.print(summary_table(read_run(folder)))
        if self.page:
            console.print(
                f"The page of this run: {write_report(folder)}", soft_wrap=True, highlight=False, markup=False
            )

    def _write(self, trainer: L.Trainer, status: str) -> None:
        record = self._record | {"status": status, "epochs": trainer.current_epoch, "steps": trainer.global_step}
        folder = self._folder(trainer, status)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "run.json").write_text(json.dumps(record, indent=2) + "\n")

    def _folder(self, trainer: L.Trainer, status: str) -> Any:
        if status == "running":
            self._path = run_folder(trainer)  # a broadcast: all ranks are here, which a failure does not promise
        return self._path


_PACKAGES = ("lightning-ssl-geometry", "torch", "torchvision", "lightning", "torchmetrics", "numpy")


def _command() -> str:
    program = os.path.basename(sys.argv[0])
    return shlex.join(
        [*(["python", "-m", "lightning_ssl_geometry"] if program == "__main__.py" else [program]), *sys.argv[1:]]
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
