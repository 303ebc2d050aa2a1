"""RunCallback: base class of callbacks that write to the folder of a run."""

__all__ = ["RunCallback", "keep_table", "now", "on_rank_zero", "run_files", "run_folder", "starts_anew"]

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
from lightning_ssl_geometry.callbacks.resumption import (
    announce,
    repeat_interrupted_saves,
    resume,
    spare_checkpoints,
    still_unlogged,
    unlogged,
    unspare_checkpoints,
)
from lightning_ssl_geometry.diagnostics.card import quantities_of
from lightning_ssl_geometry.either_lightning import either
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.observe.moment import Moment
from lightning_ssl_geometry.recording.quantities_file import NAME, QuantitiesFile, meanings
from lightning_ssl_geometry.recording.run_files import RunFiles, same

_STAGES = {TrainerFn.FITTING: ("train", "val"), TrainerFn.VALIDATING: ("val",), TrainerFn.TESTING: ("test",)}
_KEY = "ssl_geometry_run"
_OF_A_SEARCH = (".lr_find_", ".scale_batch_size_")  # Lightning's checkpoints of a search for a learning rate or batch
_RUNS: WeakKeyDictionary[Any, "_Run"] = WeakKeyDictionary()
_LOADED: WeakKeyDictionary[L.Trainer, dict[str, Any]] = WeakKeyDictionary()  # by a fit that resumes
_EVALUATED: WeakKeyDictionary[L.Trainer, Moment] = WeakKeyDictionary()  # of the checkpoint of a validation or test
_BATCHES: WeakKeyDictionary[L.Trainer, int] = WeakKeyDictionary()  # that were trained then
_BEGUN: WeakKeyDictionary[L.Trainer, bool] = WeakKeyDictionary()


class RunCallback(L.Callback):
    """Base of callbacks that write to the run's folder. A subclass that overrides a hook must call `super()`.

    The file `geometry/quantities.json` describes the results of a run. A callback has its descriptions in the attribute
    `quantities`. Its method :meth:`logs` says which results they describe, and :meth:`declare` adds descriptions. A
    LightningModule can have an attribute `quantities`, too, with keys such as "loss" for "val/loss". When a fit starts,
    a ValueError is raised if another run wrote quantities.json or metrics.csv to the folder.
    """

    fits = True  # not a validation or test, whose checkpoint must not take back what a fit has written
    _quantities: QuantitiesFile | None = None

    @property
    def part(self) -> str:
        """Name that distinguishes this callback from others of its class, or ""."""
        return ""

    def logs(self) -> dict[str, str]:
        """Return a dict from the names of logs and files to the keys of their descriptions in `quantities`."""
        return {}

    def declare(self, entries: Mapping[str, Declared]) -> None:
        """Add descriptions by logged name. Raises a ValueError if another callback describes a name differently."""
        if self._quantities is not None:
            self._quantities.declare({self: entries})

    def check(self, entries: Mapping[str, Declared | None]) -> None:
        """Raise a ValueError if another callback describes one of the names in `entries` differently.

        `entries` maps names to descriptions. An entry is None if this callback does not describe the name.
        """
        if self._quantities is not None:
            self._quantities.check(self, entries)

    def setup(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        self.fits = stage == "fit"
        run = _run(trainer)
        run.files.reopen()
        run.quantities.restart()
        self._quantities = run.quantities
        _BEGUN.pop(trainer, None)
        _LOADED.pop(trainer, None)
        _EVALUATED.pop(trainer, None)
        unspare_checkpoints(trainer)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer not in _LOADED and not trainer.strategy.restore_checkpoint_after_setup and trainer.global_step == 0:
            self.refuse(trainer, NAME, *["metrics.csv"] * _has_resumable_table(trainer))

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _begin_once(trainer)
        self.refuse(trainer, NAME)
        _expect(trainer, pl_module)

    def on_fit_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _begin_once(trainer)
        _expect(trainer, pl_module)
        self._write_meanings()
        run_files(trainer).write_waiting()

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        self._write_meanings()  # a fit that fails earlier leaves no file

    def on_validation_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _say_moment(trainer, pl_module)

    def on_test_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _say_moment(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.VALIDATING:
            _own_table(trainer)
            _expect(trainer, pl_module)

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.state.fn == TrainerFn.VALIDATING:
            self._write_meanings()

    def on_test_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        _own_table(trainer)
        _expect(trainer, pl_module)

    def on_test_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._write_meanings()

    def _write_meanings(self) -> None:
        if self._quantities is not None:
            self._quantities.write()

    def refuse(self, trainer: L.Trainer, *names: str, arrays: Iterable[str] = ()) -> None:
        """Raise a ValueError, on all ranks, if another run wrote one of these files to the folder.

        `names` are names of files in the run's folder. `arrays` are names of results, such as "val/log_spectrum_h", and
        their files are checked, too. Files of a run that this run resumes are allowed.
        """
        on_rank_zero(trainer, partial(run_files(trainer).check, *names, arrays=arrays))

    def on_save_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        files = run_files(trainer)
        if _KEY not in checkpoint and files.folder is not None:
            own = {"run": files.run, "folder": str(files.folder.resolve()), "files": sorted(files.names)}
            restored = _LOADED.get(trainer)
            checkpoint[_KEY] = own | (unlogged(trainer, checkpoint) if restored is None else still_unlogged(restored))

    def on_load_checkpoint(self, trainer: L.Trainer, pl_module: L.LightningModule, checkpoint: dict[str, Any]) -> None:
        if trainer.ckpt_path and Path(trainer.ckpt_path).name.startswith(_OF_A_SEARCH):
            return  # restored within the fit
        state = checkpoint.get(_KEY, {})
        if state:
            run_files(trainer).adopt(state)
        if trainer.state.fn == TrainerFn.FITTING:
            first, loaded = trainer not in _LOADED, {"step": checkpoint["global_step"], "epoch": checkpoint["epoch"]}
            _LOADED[trainer] = dict(state) | loaded
            if first:
                announce(trainer, run_files(trainer), _LOADED[trainer])
        elif state and run_files(trainer).run == state["run"]:
            _EVALUATED[trainer] = Moment(checkpoint["epoch"], checkpoint["global_step"])
            loop = checkpoint.get("loops", {}).get("fit_loop", {}).get("epoch_loop.state_dict", {})
            _BATCHES[trainer] = loop.get("_batches_that_stepped", checkpoint["global_step"])

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if trainer in _LOADED:
            spare_checkpoints(trainer)
        else:
            repeat_interrupted_saves(trainer)


def now(trainer: L.Trainer) -> Moment:
    """Return the epoch and the step of a Trainer. If it evaluates a checkpoint of this run, return the checkpoint's."""
    return _EVALUATED.get(trainer, Moment(trainer.current_epoch, trainer.global_step))


def starts_anew(trainer: L.Trainer, stage: str) -> bool:
    """Whether a fit starts at step 0. `setup` of a callback must then clear the state of an earlier fit."""
    return stage == "fit" and trainer.global_step == 0  # `setup` comes before the callbacks' state is loaded


class _Run(NamedTuple):
    files: RunFiles
    quantities: QuantitiesFile


def run_files(trainer: L.Trainer) -> RunFiles:
    """Return the files of a Trainer's run. Trainers with the same logger share one object.

    All ranks must make the first call together. :class:`RunCallback` makes it in `setup`.
    """
    return _run(trainer).files


def _run(trainer: L.Trainer) -> _Run:
    if trainer.fast_dev_run:  # type: ignore[attr-defined]
        files = RunFiles(None, quiet=True)
        return _Run(files, QuantitiesFile(files))
    tables = (each for each in trainer.loggers if isinstance(each, either(CSVLogger)))
    logger = next(tables, next(iter(trainer.loggers), None))
    key = trainer if logger is None else logger
    if key not in _RUNS:
        folder = None if logger is None else trainer.strategy.broadcast(_folder(trainer, logger))
        files = RunFiles(None if folder is None else Path(folder), trainer.is_global_zero)
        _RUNS[key] = _Run(files, QuantitiesFile(files))
    return _RUNS[key]


def _expect(trainer: L.Trainer, host: L.LightningModule) -> None:
    said: dict[object, dict[str, Declared]] = {}
    said |= {each: meanings(each, each.logs(), part=each.part) for each in callbacks_of(trainer, RunCallback)}
    _run(trainer).quantities.expect(_host_entries(trainer, host), said)


def _say_moment(trainer: L.Trainer, host: L.LightningModule) -> None:
    if (moment := _EVALUATED.get(trainer)) is not None:  # the Trainer itself begins at step 0
        step = max(_BATCHES[trainer] - 1, 0)  # not of each optimizer, as the fit has logged
        host.log_dict({"epoch": float(moment.epoch), "step": float(step)}, batch_size=1)


def _host_entries(trainer: L.Trainer, host: L.LightningModule) -> dict[str, Declared]:
    quantities = quantities_of(host)
    keys = list(quantities) if isinstance(quantities, Mapping) else []
    stages = _STAGES.get(trainer.state.fn, ()) if trainer.state.fn else ()
    return meanings(host, {f"{stage}/{key}": key for stage in stages for key in keys}, "learning")


def run_folder(trainer: L.Trainer) -> Path | None:
    """Return the folder of a Trainer's run, or None without a logger or with `fast_dev_run`.

    The folder is the `log_dir` of the first CSVLogger. Without a CSVLogger, it is `save_dir/name/version` of the first
    logger. All ranks must make the first call together.
    """
    return run_files(trainer).folder


def keep_table(trainer: L.Trainer) -> None:
    """If a Trainer has loggers but no CSVLogger, add one that writes metrics.csv to the run's folder."""
    run = _run(trainer)
    if run.files.folder is None or any(isinstance(each, either(CSVLogger)) for each in trainer.loggers):
        return
    table = ResumableCSVLogger(run.files.folder, "", "")
    _RUNS[table] = run
    trainer.loggers = [*trainer.loggers, table]


def _own_table(trainer: L.Trainer) -> None:
    """Let a later fit of this Trainer write to the table that its validation or test begins."""
    files = run_files(trainer)
    if _has_resumable_table(trainer) and files.writes and not files.path("metrics.csv").exists():
        files.own("metrics.csv")


def _has_resumable_table(trainer: L.Trainer) -> bool:
    folder, tables = run_folder(trainer), [each for each in trainer.loggers if isinstance(each, ResumableCSVLogger)]
    return any(same(Path(table.log_dir), folder) for table in tables)


def _folder(trainer: L.Trainer, logger: Any) -> str:
    if isinstance(logger, either(CSVLogger)):
        return logger.log_dir
    version = logger.version if isinstance(logger.version, str) else f"version_{logger.version}"
    return os.path.join(logger.save_dir or trainer.default_root_dir, str(logger.name), version)


def _begin_once(trainer: L.Trainer) -> None:
    (files, quantities), loaded = _run(trainer), _LOADED.pop(trainer, None)
    if _BEGUN.get(trainer) or files.folder is None:
        return
    _BEGUN[trainer] = True
    if loaded is not None:
        on_rank_zero(trainer, partial(resume, trainer, files, quantities=quantities, loaded=loaded))
    elif trainer.global_step == 0:
        on_rank_zero(trainer, partial(_start, trainer, files))


def _start(trainer: L.Trainer, files: RunFiles) -> None:
    for table in trainer.loggers:
        if isinstance(table, ResumableCSVLogger):
            if same(Path(table.log_dir), files.folder):
                files.own("metrics.csv")
            if files.fitted:
                table.rewind(0, files.aside("metrics.csv"))
    files.start_anew()


def on_rank_zero(trainer: L.Trainer, action: Callable[[], None]) -> None:
    """Call `action` on rank 0. If it raises a ValueError or an OSError, raise this error on all ranks."""
    found: Exception | None = None
    if trainer.is_global_zero:
        try:
            action()
        except (ValueError, OSError) as error:
            found = error
    found = trainer.strategy.broadcast(found)  # no rank waits for a rank 0 that failed
    if found is not None:
        raise found
