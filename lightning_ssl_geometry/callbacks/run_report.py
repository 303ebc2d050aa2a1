"""RunReport: writes a record and a page of the run, and prints a table."""

__all__ = ["RunReport"]

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, Literal, get_args
from weakref import WeakKeyDictionary, ref

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.callbacks.objective import Objective
from lightning_ssl_geometry.callbacks.order import Turn, put_in_order
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, keep_table, now, run_files
from lightning_ssl_geometry.checks import inside, one_of
from lightning_ssl_geometry.either_lightning import either
from lightning_ssl_geometry.recording.logged import FigureTime, log_run, shows_figures
from lightning_ssl_geometry.recording.run_files import RunFiles
from lightning_ssl_geometry.recording.run_record import RunRecord, described, errors_warned

Kind = Literal["fit", "diagnosis"]
_FITTED: WeakKeyDictionary[L.Trainer, tuple["ref[L.LightningModule]", type]] = WeakKeyDictionary()


class RunReport(RunCallback):
    """Write the record `run.json` of a run, and a report when a fit ends.

    The record has the model, data, command, seed, versions, machine and status. It is written when the fit starts, and
    again when it ends, fails or is interrupted. The report is the page `report.html` in the run's folder, made from the
    table `metrics.csv` of Lightning's CSVLogger. If the Trainer has other loggers only, RunReport adds a
    :class:`lightning_ssl_geometry.loggers.ResumableCSVLogger` that writes to the folder of the first.
    The entry `objective` names the log of the loss that `training_step` returns, with which the page begins. If the
    module does not log its loss, RunReport logs the mean of each epoch as `train/objective`.
    `ssl-geometry report RUN` writes the same page. `Trainer.validate` and `Trainer.test` add their results to the page,
    after a fit or with a checkpoint of the run in this folder. Only rank 0 writes.

    Args:
        page: Write the page.
        table: Print the summary table and the path of the page.
        kind: "fit": report on fits. "diagnosis": report on `Trainer.test` of a model that is not trained here.
        about: Further entries for `run.json`, such as {"checkpoint": "x.ckpt"}. They replace entries of the same name.
            Entries that are added to the attribute `about` during the run are written when it ends.
        figures: Send the page's figures to TensorBoardLogger and WandbLogger, and the vectors to wandb.
        figures_share: The figures are sent after epochs of the training, too, as long as this takes at most this share
            of the time of the fit. They are always sent after the first epoch and at the end. 0: only at the end. 1:
            after each epoch.

    Raises:
        ValueError: If `kind` is unknown, `figures_share` is not in [0, 1], if the Trainer has no logger when the run
            starts, or if a Trainer that has fitted one model gets another one without a checkpoint: in a fit any other
            one, in `Trainer.test` and `Trainer.validate` one of another class.
    """

    turn: ClassVar[Turn] = Turn.REPORTS

    def __init__(
        self,
        page: bool = True,
        table: bool = True,
        kind: Kind = "fit",
        about: Mapping[str, str | int | float | None] | None = None,
        figures: bool = True,
        *,
        figures_share: float = 0.05,
    ) -> None:
        super().__init__()
        one_of(get_args(Kind), kind=kind)
        inside("[0, 1]", figures_share=figures_share)
        if isinstance(figures_share, bool):
            raise ValueError(f"Expected `figures_share` to be a number in [0, 1], but got {figures_share}.")
        self.page = page
        self.table = table
        self.kind = kind
        self.about = dict(about or {})
        self.figures = figures
        self._time = FigureTime(figures_share)
        self._record: RunRecord | None = None
        self._ended = False
        self._from_step = 0
        self._objective = Objective()

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        keep_table(trainer)
        self._ended = False
        self._objective = Objective()
        self._from_step = trainer.global_step
        self._time = FigureTime(self._time.share)
        put_in_order(trainer, self)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._refuse_another_model(trainer, pl_module)
        super().on_fit_start(trainer, pl_module)
        if self.kind == "fit" and not trainer.strategy.restore_checkpoint_after_setup:
            self._begin(trainer, pl_module)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)  # before that, the owner of the files is not known
        _FITTED[trainer] = ref(pl_module), type(pl_module)
        if self.kind == "fit" and trainer.strategy.restore_checkpoint_after_setup:
            self._begin(trainer, pl_module)

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        super().on_train_batch_end(trainer, pl_module, outputs, batch=batch, batch_idx=batch_idx)
        self._objective.see(outputs, trainer.accumulate_grad_batches)

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_start(trainer, pl_module)
        if self.kind == "fit" and trainer.global_step > self._from_step:  # the logs of an epoch are whole now
            self._send_figures(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_epoch_end(trainer, pl_module)
        before = self._objective.name
        self._objective.end_epoch(trainer, pl_module)
        if before is None and self._objective.is_own:
            self.declare(self._objective.meanings())

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_fit_end(trainer, pl_module)
        if self.kind == "fit":
            self._end(trainer, "finished")

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._refuse_another_model(trainer, pl_module)
        super().on_validation_start(trainer, pl_module)

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._refuse_another_model(trainer, pl_module)
        super().on_test_start(trainer, pl_module)
        if self.kind == "diagnosis":
            self._begin(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_test_end(trainer, pl_module)
        if self.kind == "diagnosis":
            self._end(trainer, "finished")
        else:
            self._add_to_page(trainer)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_validation_end(trainer, pl_module)
        if trainer.state.fn == "validate" and self.kind == "fit":
            self._add_to_page(trainer)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        super().on_load_checkpoint(trainer, pl_module, checkpoint)
        if trainer.state.fn == "fit":
            self._from_step = checkpoint["global_step"]

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        super().on_exception(trainer, pl_module, exception)
        with errors_warned("the report of this run"):
            if self._record is None and not self._begin_late(trainer, pl_module):
                return
            if isinstance(exception, KeyboardInterrupt):
                self._end(trainer, "interrupted")
            else:
                self._end(trainer, "failed", exception)

    def _refuse_another_model(self, trainer: L.Trainer, model: L.LightningModule) -> None:
        fitted, its_class = _FITTED.get(trainer, (None, None))
        if self.kind != "fit" or fitted is None or fitted() is model:
            return
        if trainer.global_step == 0 or trainer.ckpt_path is not None:
            return
        name = type(model).__name__
        if trainer.state.fn != "fit" and type(model) is its_class:  # perhaps loaded from a checkpoint of this run
            rank_zero_warn(
                f"This Trainer has fitted another {name}. The page of that run shows the results of this one, too. "
                "Give `ckpt_path` to have them at the step of a checkpoint, or use a Trainer with a logger of its own."
            )
        else:
            self._ended = True  # the failure does not belong to the run of the first model
            raise ValueError(
                "Expected the model that this Trainer has fitted, as its run's folder and page are of one model, but "
                f"got another {name}. Make a Trainer with a logger of its own for it."
            )

    def _begin(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if not trainer.fast_dev_run and not trainer.loggers:  # type: ignore[attr-defined]
            raise ValueError("Expected a `logger` of the Trainer for RunReport, but got none.")
        self.refuse(trainer, "run.json", "report.html")
        self._record = self._recorded(run_files(trainer))
        self._record.begin(self._entries(trainer, pl_module), self._done(trainer))

    def _begin_late(self, trainer: L.Trainer, pl_module: L.LightningModule) -> bool:
        tables = _tables(trainer)
        if self._ended or self.kind != "fit" or trainer.state.fn != "fit" or not tables:
            return False
        alone = trainer.world_size == 1
        files = run_files(trainer) if alone else RunFiles(Path(tables[0].log_dir), trainer.is_global_zero)
        try:
            files.check("run.json", "report.html")
        except ValueError:  # the files are of another run, which may be why this run failed
            return False
        self._record = self._recorded(files)
        self._record.take(self._entries(trainer, pl_module), self._done(trainer))
        return True

    def _end(self, trainer: L.Trainer, status: str, error: BaseException | None = None) -> None:
        with errors_warned("what the loggers hold"):
            for logger in trainer.loggers:
                logger.save()
        record, self._record, self._ended = self._record, None, True  # a later failure does not belong to this run
        assert record is not None
        record.entries |= self.about | ({"objective": self._objective.name} if self._objective.name else {})
        record.end(status, self._done(trainer), error)
        if trainer.is_global_zero and not trainer.fast_dev_run:  # type: ignore[attr-defined]
            self._show(trainer, record, status)

    def _show(self, trainer: L.Trainer, record: RunRecord, status: str) -> None:
        if not record.has_results and status == "finished":
            rank_zero_warn("RunReport has no page to write: nothing was logged. Is `log_every_n_steps` too large?")
            return
        earlier = bool(record.files.resumed) or (trainer.ckpt_path is not None and record.has_results)
        if status == "finished" or self.kind != "fit" or trainer.global_step > 0 or earlier:
            record.show(trainer.loggers, max(trainer.global_step - 1, 0))

    def _send_figures(self, trainer: L.Trainer) -> None:
        folder = self._record.files.folder if self._record and self._record.has_results else None
        wanted = self.figures and trainer.is_global_zero and folder is not None and shows_figures(trainer.loggers)
        if not wanted or not self._time.allows():
            return
        assert folder is not None
        with self._time.spending(), errors_warned("the figures to the loggers"):
            for logger in trainer.loggers:
                logger.save()
            log_run(trainer.loggers, folder, trainer.global_step - 1, tables=False)

    def _add_to_page(self, trainer: L.Trainer) -> None:
        files = run_files(trainer)
        if trainer.is_global_zero and "run.json" in files.names:  # of a fit of this folder
            for logger in trainer.loggers:
                logger.save()
            self._recorded(files).show(trainer.loggers, max(now(trainer).step - 1, 0))

    def _recorded(self, files: RunFiles) -> RunRecord:
        return RunRecord(files, page=self.page, table=self.table, figures=self.figures)

    def _done(self, trainer: L.Trainer) -> dict[str, int]:
        if self.kind != "fit":
            return {}
        begun = {"from_step": self._from_step} if self._from_step else {}
        return begun | {"epochs": trainer.current_epoch, "steps": trainer.global_step}

    def _entries(self, trainer: L.Trainer, pl_module: L.LightningModule) -> dict[str, Any]:
        datamodule = getattr(trainer, "datamodule", None)
        root, classes = getattr(datamodule, "root", None), getattr(datamodule, "num_classes", None)
        found = described(pl_module)
        own = {
            "data": type(datamodule).__name__ if datamodule else None,
            "data_path": str(root) if isinstance(root, str | os.PathLike) else None,
            "classes": classes if isinstance(classes, int) else None,
            "world_size": trainer.world_size,
            "precision": str(trainer.precision),
            "machine": found["machine"] | {"device": str(pl_module.device)},
        }
        return found | own | {"kind": self.kind} | self.about


def _tables(trainer: L.Trainer) -> list[CSVLogger]:
    return [logger for logger in trainer.loggers if isinstance(logger, either(CSVLogger))]
