"""RunReport: writes a record and a page of the run, and prints a table."""

__all__ = ["RunReport"]

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.callbacks.order import Turn, put_in_order
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, run_files
from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.either_lightning import either, package_of
from lightning_ssl_geometry.recording.logged import log_run
from lightning_ssl_geometry.recording.run_files import RunFiles

Kind = Literal["fit", "diagnosis"]


class RunReport(RunCallback):
    """Write the record `run.json` of a run, and a report when a fit ends.

    The record has the model, data, command, seed, versions, machine and status. It is written when the fit starts, and
    again when it ends, fails or is interrupted. The report is the page `report.html` in the run's folder, made from the
    tables of Lightning's CSVLogger. `ssl-geometry report RUN` writes the same page. Only rank 0 writes.

    Args:
        page: Write the page.
        table: Print the summary table and the path of the page.
        kind: "fit": report on fits. "diagnosis": report on `Trainer.test` of a model that is not trained here.
        about: Further entries for `run.json`, such as {"checkpoint": "x.ckpt"}. They replace entries of the same name.
        figures: Send the page's figures to TensorBoardLogger and WandbLogger, and the vectors to wandb.

    Raises:
        ValueError: If `kind` is unknown, or if the Trainer has no CSVLogger when the run starts.
    """

    turn: ClassVar[Turn] = Turn.REPORTS

    def __init__(
        self,
        page: bool = True,
        table: bool = True,
        kind: Kind = "fit",
        about: Mapping[str, str | int | float | None] | None = None,
        figures: bool = True,
    ) -> None:
        super().__init__()
        one_of(get_args(Kind), kind=kind)
        self.page = page
        self.table = table
        self.kind = kind
        self.about = dict(about or {})
        self.figures = figures
        self._record: dict[str, Any] = {}
        self._ended = False
        self._from_step = 0

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        self._ended = False
        self._from_step = trainer.global_step
        put_in_order(trainer, self)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_start(trainer, pl_module)
        if self.kind == "fit" and not trainer.strategy.restore_checkpoint_after_setup:
            self._begin(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)  # before that, the owner of the files is not known
        if self.kind == "fit" and trainer.strategy.restore_checkpoint_after_setup:
            self._begin(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        if self.kind == "fit":
            self._end(trainer, "finished")

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_start(trainer, pl_module)
        if self.kind == "diagnosis":
            self._begin(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        if self.kind == "diagnosis":
            self._end(trainer, "finished")

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if trainer.state.fn == "fit":
            self._from_step = checkpoint["global_step"]

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        try:
            if not self._record and not self._begin_late(trainer, pl_module):
                return
            if isinstance(exception, KeyboardInterrupt):
                self._end(trainer, "interrupted")
            else:
                self._record["error"] = {"type": type(exception).__name__, "message": str(exception)[:_MOST_ERROR]}
                self._end(trainer, "failed")
        except Exception as error:  # from wandb or matplotlib, for example
            rank_zero_warn(f"RunReport could not write the report of this run: {error}")

    def _begin(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.fast_dev_run and not _tables(trainer):  # type: ignore[attr-defined]
            raise ValueError("Expected a CSVLogger among the Trainer's `logger`s for RunReport, but got none.")
        self._files = run_files(trainer)
        self.refuse(trainer, "run.json", "report.html")
        if self.page:
            self._files.own("report.html")  # now, because `ssl-geometry report` may write it during the run
        self._record = _record(trainer, pl_module) | {"kind": self.kind} | self.about
        self._write(trainer, "running")

    def _begin_late(self, trainer: L.Trainer, pl_module: L.LightningModule) -> bool:
        tables = _tables(trainer)
        if self._ended or self.kind != "fit" or trainer.state.fn != "fit" or not tables:
            return False
        alone = trainer.world_size == 1
        self._files = run_files(trainer) if alone else RunFiles(Path(tables[0].log_dir), trainer.is_global_zero)
        try:
            self._files.check("run.json", "report.html")
        except ValueError:  # the files are of another run, which may be why this run failed
            return False
        self._record = _record(trainer, pl_module) | {"kind": self.kind} | self.about
        return True

    def _end(self, trainer: L.Trainer, status: str) -> None:
        with _errors_warned("what the loggers hold"):
            for logger in trainer.loggers:
                logger.save()
        self._record["ended"] = _now()
        with _errors_warned("run.json"):
            self._write(trainer, status)
        self._record, self._ended = {}, True  # a later failure does not belong to this run
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._report(trainer, status)

    def _report(self, trainer: L.Trainer, status: str) -> None:
        from rich.console import Console
        from rich.text import Text

        from lightning_ssl_geometry.report import Drawings, Run, read_run, remarks, summary_table, write_report

        folder = self._files.folder
        assert folder is not None
        logged = bool(self._files.resumed) or any((folder / name).exists() for name in ("metrics.csv", "geometry"))
        if not logged and status == "finished":
            rank_zero_warn("RunReport has no page to write: nothing was logged. Is `log_every_n_steps` too large?")
            return
        if status != "finished" and self.kind == "fit" and not self._has_steps(trainer, logged):
            return
        console, drawings = Console(), Drawings()
        run: Run | None = None
        with _errors_warned("the report of this run"):
            run = read_run(folder)
        if run is None:
            return
        with _errors_warned("the table of this run"):
            if self.table:
                console.print(summary_table(run) if logged else Text(run.name, style="bold"))
                if run.notes:
                    console.print(remarks(run), soft_wrap=True, highlight=False, markup=False)
        with _errors_warned(folder / "report.html"):
            if self.page:
                page = write_report(run, drawings=drawings)
                console.print(f"The page of this run: {page}", soft_wrap=True, highlight=False, markup=False)
        with _errors_warned("the figures to the loggers"):
            if self.figures:
                log_run(trainer.loggers, run, max(trainer.global_step - 1, 0), drawings=drawings)

    def _has_steps(self, trainer: L.Trainer, logged: bool) -> bool:
        earlier = bool(self._files.resumed) or (trainer.ckpt_path is not None and logged)
        return trainer.global_step > 0 or earlier

    def _write(self, trainer: L.Trainer, status: str) -> None:
        done = {"epochs": trainer.current_epoch, "steps": trainer.global_step} if self.kind == "fit" else {}
        begun = {"from_step": self._from_step} if done and self._from_step else {}
        record = self._record | {"status": status} | begun | done
        with self._files.replacing("run.json") as file:
            file.write((json.dumps(record, indent=2) + "\n").encode())


def _tables(trainer: L.Trainer) -> list[CSVLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, either(CSVLogger))]


@contextmanager
def _errors_warned(what: str | Path) -> Iterator[None]:
    try:
        yield
    except Exception as error:  # from a full disk, matplotlib or a logger; the rest must still be written
        rank_zero_warn(f"RunReport could not write {what}: {type(error).__name__}: {error}")


_MOST_ERROR = 10_000
_PACKAGES = ("lightning-ssl-geometry", "torch", "torchvision", "torchmetrics", "timm", "numpy")


def _record(trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
    seed = os.environ.get("PL_GLOBAL_SEED")
    datamodule = getattr(trainer, "datamodule", None)
    packages = (*_PACKAGES, package_of(trainer))
    root, classes = getattr(datamodule, "root", None), getattr(datamodule, "num_classes", None)
    return {
        "model": type(pl_module).__name__,
        "data": type(datamodule).__name__ if datamodule else None,
        "data_path": str(root) if isinstance(root, str | os.PathLike) else None,
        "classes": classes if isinstance(classes, int) else None,
        "command": _command(),
        "seed": int(seed) if seed else None,
        "started": _now(),
        "ended": None,
        "parameters": sum(p.numel() for p in pl_module.parameters()),
        "world_size": trainer.world_size,
        "precision": str(trainer.precision),
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "machine": {
            "system": f"{platform.system()} {platform.machine()}",
            "cpus": os.cpu_count(),
            "device": str(pl_module.device),
        },
    }


def _command() -> str:
    program = os.path.basename(sys.argv[0])
    return shlex.join(
        [*(["python", "-m", "lightning_ssl_geometry"] if program == "__main__.py" else [program]), *sys.argv[1:]]
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
