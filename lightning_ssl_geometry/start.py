"""Prepare a run of the command line: find its last checkpoint, and do not overwrite another run."""

__all__ = ["RunCLI", "SaveConfig", "prepare"]

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
from lightning.fabric.plugins.environments.slurm import SLURMEnvironment
from lightning.pytorch.callbacks import Checkpoint, ModelCheckpoint
from lightning.pytorch.cli import LightningCLI, SaveConfigCallback
from lightning.pytorch.loggers import CSVLogger

from lightning_ssl_geometry.callbacks import last_checkpoint
from lightning_ssl_geometry.callbacks.run_callback import RunCallback, run_files
from lightning_ssl_geometry.cli_lightning import GeometryCLI
from lightning_ssl_geometry.cli_messages import end
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.recording.run_files import RunFiles


class SaveConfig(RunCallback, SaveConfigCallback):
    """Write `config.yaml` to the run's folder, if there is a folder.

    If a run resumes in the same folder with a different configuration, the old file moves to `superseded-*`.
    """

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        super().setup(trainer, pl_module, stage)
        files = run_files(trainer)
        if files.folder is not None and not files.path("config.yaml").exists():
            self._write(files)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        super().on_train_start(trainer, pl_module)
        self.refuse(trainer, "config.yaml")
        files = run_files(trainer)
        if files.writes and (path := files.path("config.yaml")).exists() and path.read_text() != self._text():
            (aside := files.aside("config.yaml")).parent.mkdir(parents=True, exist_ok=True)
            path.rename(aside)
            self._write(files)

    def _write(self, files: RunFiles) -> None:
        with files.replacing("config.yaml") as file:
            file.write(self._text().encode())

    def _text(self) -> str:
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder) / "config.yaml"
            self.parser.save(self.config, path, skip_none=False, multifile=False)
            return path.read_text()


class RunCLI(GeometryCLI):
    """Lightning's CLI for any LightningModule and LightningDataModule, whose runs do not overwrite each other.

    Args:
        args: The command line behind `ssl-geometry`. None: `sys.argv[1:]`.
        run: Whether `args` has a subcommand, which is run.
        parser_kwargs: Arguments of the parser.
    """

    def __init__(self, args: list[str] | None, run: bool, parser_kwargs: dict[str, Any]) -> None:
        super().__init__(
            L.LightningModule,
            L.LightningDataModule,
            subclass_mode_model=True,
            subclass_mode_data=True,
            auto_configure_optimizers=False,
            seed_everything_default=0,
            save_config_callback=SaveConfig,
            parser_kwargs=parser_kwargs,
            args=args,
            run=run,
        )

    def before_fit(self) -> None:
        """Check the run's folder before Lightning runs a command."""
        prepare(self)

    before_validate = before_test = before_predict = before_fit


def prepare(cli: LightningCLI) -> None:
    """Check the run's folder and find its last checkpoint. If a setting is wrong, print one line and exit.

    With `fast_dev_run`, remove the callbacks that save checkpoints.
    """
    trainer: Any = cli.trainer
    if trainer.fast_dev_run:  # ModelCheckpoint with `save_last` would save to the current folder
        trainer.callbacks = [each for each in trainer.callbacks if not isinstance(each, Checkpoint)]
        return
    settings = cli.config_init[str(cli.subcommand)]
    with _one_line("trainer.logger"):
        _refuse_to_delete(trainer)
    if settings.get("ckpt_path") == "last":
        with _one_line("ckpt_path"):
            settings["ckpt_path"] = _last(trainer)
    if cli.subcommand == "fit" and not settings.get("ckpt_path") and not SLURMEnvironment.detect():
        with _one_line("trainer.logger"):
            _refuse_another_runs_folder(trainer)


@contextmanager
def _one_line(key: str) -> Iterator[None]:
    try:
        yield
    except ValueError as error:
        end(f"{key}: {error}")


def _refuse_to_delete(trainer: L.Trainer) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, CSVLogger) and not isinstance(logger, ResumableCSVLogger):
            path = Path(logger.log_dir) / "metrics.csv"
            if path.exists():
                raise ValueError(
                    f"Expected a folder without metrics.csv, but Lightning's CSVLogger would delete {path}. Choose "
                    "another `version`, or use lightning_ssl_geometry.loggers.ResumableCSVLogger, which appends to it."
                )


def _refuse_another_runs_folder(trainer: L.Trainer) -> None:
    for logger in trainer.loggers:
        if isinstance(logger, ResumableCSVLogger) and (path := Path(logger.log_dir) / "metrics.csv").exists():
            raise ValueError(
                f"Expected a new folder for a run without a checkpoint, but got one with {path}. Resume that run with "
                "`--ckpt_path last`, or choose another `version`."
            )


def _last(trainer: Any) -> str:
    saving = [each for each in trainer.callbacks if isinstance(each, ModelCheckpoint)]
    places = [Path(each.dirpath) for each in saving if each.dirpath]
    logger = next(iter(trainer.loggers), None)
    if logger is None and not places:
        places = [Path(trainer.default_root_dir) / "checkpoints"]
    found = [path for place in places for path in place.glob("last*.ckpt")]
    if found:
        return str(max(found, key=lambda path: path.stat().st_mtime))
    if places or logger is None:
        looked = ", ".join(map(str, places))
        raise ValueError(f"Expected a last checkpoint in {looked}, but there is none. Name a checkpoint's file.")
    return str(last_checkpoint(Path(logger.save_dir or trainer.default_root_dir) / str(logger.name)))
