"""What callbacks that write files share: one run, its folder, and the checkpoints that know both."""

__all__ = ["RunCallback", "run_files", "run_folder", "starts_anew"]

import os
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from weakref import WeakKeyDictionary

import lightning as L
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.trainer.states import TrainerFn

from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.callbacks.quantities_file import NAME, QuantitiesFile, host_entries, meanings
from lightning_ssl_geometry.callbacks.resumption import resume, unlogged
from lightning_ssl_geometry.callbacks.run_files import RunFiles, same
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.manifest import Declared

_KEY = "ssl_geometry_run"
_RUNS: WeakKeyDictionary[Any, "_Run"] = WeakKeyDictionary()
_LOADED: WeakKeyDictionary[L.Trainer, dict[str, Any]] = WeakKeyDictionary()
_BEGUN: WeakKeyDictionary[L.Trainer, bool] = WeakKeyDictionary()


class RunCallback(L.Callback):
    """Base of the callbacks that write to the run's folder; an override of one of these hooks must call it.

    `geometry/quantities.json` says what logs and files mean. A callback declares its own with `quantities` and
    :meth:`logs`, or with :meth:`declare`. A host declares its scalars in `quantities`, by their names without the
    stage.
    """

    _quantities: QuantitiesFile | None = None

    @property
    def part(self) -> str:
        """What tells this callback from others of its class; empty where nothing has to."""
        return ""

    def logs(self) -> dict[str, str]:
        """Name what this callback logs or writes in any case: logged name -> its key in the class's `quantities`."""
        return {}

    def declare(self, entries: Mapping[str, Declared]) -> None:
        """Declare what results mean, once they are known, by their logged names.

        Raises:
            ValueError: If another callback declares one of the names differently.
        """
        if self._quantities is not None:
            self._quantities.declare({self: entries})

    def check(self, entries: Mapping[str, Declared | None]) -> None:
        """Refuse, as a ValueError, what :meth:`declare` would refuse, or an undeclared result of a declared name."""
        if self._quantities is not None:
            self._quantities.check(self, entries)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        """Find the run's folder, on all ranks together."""
        run = _run(trainer)
        run.files.reopen()
        run.quantities.restart()
        self._quantities = run.quantities
        _BEGUN.pop(trainer, None)
        _LOADED.pop(trainer, None)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Refuse a folder with scalars of another run before anything is written, unless a checkpoint is loaded."""
        if trainer not in _LOADED and not trainer.strategy.restore_checkpoint_after_setup and trainer.global_step == 0:
            self.refuse(trainer, NAME, *["metrics.csv"] * _is_table(trainer))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin a history, or go on behind the step that a checkpoint brought."""
        _begin(trainer)
        self.refuse(trainer, NAME)
        _expect(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Begin or continue the history also for a finished run that was resumed, which starts no training."""
        _begin(trainer)
        _expect(trainer, pl_module)
        self._write_meanings()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        """Write what the logs mean after the first step: a fit that fails before it leaves no file."""
        self._write_meanings()

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Find what is to be logged outside a fit."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            _expect(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what the logs mean."""
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._write_meanings()

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Find what is to be logged."""
        _expect(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Write what the logs mean."""
        self._write_meanings()

    def _write_meanings(self) -> None:
        if self._quantities is not None:
            self._quantities.write()

    def refuse(self, trainer: L.Trainer, *names: str, arrays: Iterable[str] = ()) -> None:
        """Refuse, on all ranks together, files that neither this run nor the one that it resumes wrote.

        Args:
            trainer: Of the run.
            names: Of files in the run's folder.
            arrays: Names of diagnostics with their stage: "val/log_spectrum_h".

        Raises:
            ValueError: If there is such a file.
        """
        _together(trainer, partial(run_files(trainer).check, *names, arrays=arrays))

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Put the run, its folder, its files and what is not yet logged into the checkpoint."""
        files = run_files(trainer)
        if _KEY not in checkpoint and files.folder is not None:
            own = {"run": files.run, "folder": str(files.folder.resolve()), "files": sorted(files.names)}
            checkpoint[_KEY] = own | unlogged(trainer, checkpoint)

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        """Take over the files of the run that wrote the checkpoint, if it wrote them to this folder."""
        state = checkpoint.get(_KEY, {})
        if state:
            run_files(trainer).adopt(state)
        if trainer.state.fn == TrainerFn.FITTING:
            _LOADED[trainer] = dict(state) | {"step": checkpoint["global_step"], "epoch": checkpoint["epoch"]}


def starts_anew(trainer: L.Trainer, stage: str) -> bool:
    """Whether a callback's `setup` belongs to a fit from step 0, where results of an earlier fit have to go.

    Lightning calls `setup` before callbacks get their state from a checkpoint. A Trainer that has made steps already
    goes on with its fit.
    """
    return stage == "fit" and trainer.global_step == 0


class _Run(NamedTuple):
    files: RunFiles
    quantities: QuantitiesFile


def run_files(trainer: L.Trainer) -> RunFiles:
    """Return the files of a Trainer's run, the same object for all callbacks; one logger means one run.

    All ranks must call for the first time together, which :class:`RunCallback` does in `setup`.
    """
    return _run(trainer).files


def _run(trainer: L.Trainer) -> _Run:
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        files = RunFiles(None, quiet=True)
        return _Run(files, QuantitiesFile(files))
    logger = next((each for each in trainer.loggers if isinstance(each, CSVLogger)), next(iter(trainer.loggers), None))
    key = trainer if logger is None else logger
    if key not in _RUNS:
        folder = None if logger is None else trainer.strategy.broadcast(_folder(trainer, logger))
        files = RunFiles(None if folder is None else Path(folder), trainer.is_global_zero)
        _RUNS[key] = _Run(files, QuantitiesFile(files))
    return _RUNS[key]


def _expect(trainer: L.Trainer, host: L.LightningModule) -> None:
    """Find what host and callbacks log or write in any case."""
    said: dict[L.Callback, dict[str, Declared]] = {}
    said |= {each: meanings(each, each.logs(), part=each.part) for each in callbacks_of(trainer, RunCallback)}
    _run(trainer).quantities.expect(host_entries(trainer, host), said)


def run_folder(trainer: L.Trainer) -> Path | None:
    """Return the folder of the run's files: None without a logger, and in a trial (`fast_dev_run`).

    It is the `log_dir` of the first CSVLogger; without one, `save_dir/name/version` of the first logger, where
    ModelCheckpoint has its folder `checkpoints`. All ranks must call for the first time together.
    """
    return run_files(trainer).folder


def _is_table(trainer: L.Trainer) -> bool:
    """Whether metrics.csv in the run's folder is a table that a resumed run continues."""
    folder, tables = run_folder(trainer), [each for each in trainer.loggers if isinstance(each, ResumableCSVLogger)]
    return any(same(Path(table.log_dir), folder) for table in tables)


def _folder(trainer: L.Trainer, logger: Any) -> str:
    if isinstance(logger, CSVLogger):
        return logger.log_dir
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    return os.path.join(logger.save_dir or trainer.default_root_dir, str(logger.name), version)


def _begin(trainer: L.Trainer) -> None:
    """Begin the history of a fit, or continue it at its step, once per fit."""
    (files, quantities), loaded = _run(trainer), _LOADED.pop(trainer, None)
    if _BEGUN.get(trainer) or files.folder is None:
        return
    _BEGUN[trainer] = True
    if loaded is not None:
        _together(trainer, partial(resume, trainer, files, quantities=quantities, loaded=loaded))
    elif trainer.global_step == 0:
        _together(trainer, partial(_start, trainer, files))


def _start(trainer: L.Trainer, files: RunFiles) -> None:
    for table in trainer.loggers:
        if isinstance(table, ResumableCSVLogger):
            if same(Path(table.log_dir), files.folder):
                files.own("metrics.csv")
            table.rewind(0, files.aside("metrics.csv"))
    files.rewind(0)


def _together(trainer: L.Trainer, action: Callable[[], None]) -> None:
    """Act on rank 0; an error there is raised on all ranks, so that none waits."""
    found: Exception | None = None
    if trainer.is_global_zero:
        try:
            action()
        except (ValueError, OSError) as error:
            found = error
    found = trainer.strategy.broadcast(found)
    if found is not None:
        raise found
