"""Checkpoints save the scalars that are not logged yet. A resumed fit logs these scalars."""

__all__ = [
    "announce",
    "repeat_interrupted_saves",
    "resume",
    "spare_checkpoints",
    "still_unlogged",
    "unlogged",
    "unspare_checkpoints",
]

import json
import math
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

import lightning as L
from lightning.pytorch.callbacks import ModelCheckpoint
from lightning.pytorch.loggers import CSVLogger
from lightning.pytorch.trainer.states import TrainerFn
from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry.callbacks.order import callbacks_of
from lightning_ssl_geometry.either_lightning import either
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.recording.quantities_file import NAME, QuantitiesFile
from lightning_ssl_geometry.recording.run_files import HISTORY, RunFiles, same
from lightning_ssl_geometry.report.files import attempt, read_table

_SAVED: WeakKeyDictionary[ModelCheckpoint, int] = WeakKeyDictionary()  # what spare_checkpoints has replaced


def unlogged(trainer: L.Trainer, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """Return the entries of a checkpoint that let a resumed fit log every scalar exactly once.

    `scalars` maps the names of scalars that are not logged yet to their values. `scalars_step` is the step of these
    scalars. `logged` is the first step for which a resumed fit computes the scalars itself. `within_epoch` says whether
    the epoch has further batches.
    """
    if trainer.state.fn != TrainerFn.FITTING:
        return {}
    # ModelCheckpoint saves at the end of an epoch or batch, before the loggers get its scalars. A resumed fit does not
    # compute them again.
    loop: Any = trainer.fit_loop.epoch_loop
    epoch: Any = trainer.fit_loop.epoch_progress.total
    count, batch = loop._batches_that_stepped, loop.batch_progress.total
    connector = trainer._logger_connector
    next_count = count + (not loop._should_accumulate())
    current = loop.batch_progress.current
    within = {"within_epoch": current.processed > 0 and epoch.processed < epoch.ready and not _all_done(loop)}
    if batch.processed < batch.ready and not loop._should_accumulate():
        # A signal saved in the middle of a batch, which the resumed fit repeats. Lightning 2.6 would count it twice.
        checkpoint["loops"]["fit_loop"]["epoch_loop.state_dict"]["_batches_that_stepped"] = count - 1
    if batch.completed < batch.processed:  # saved at the end of a batch
        logs = connector.should_update_logs and not loop._should_accumulate()
        scalars = _plain(trainer, connector.metrics["log"] if logs else {})
        return within | {"logged": next_count, "scalars": scalars, "scalars_step": count}
    if trainer.validating:
        return within | {"logged": next_count}
    scalars = _plain(trainer, connector.metrics["log"] if epoch.completed < epoch.processed else {})  # of an epoch
    return within | {"logged": count, "scalars": scalars, "scalars_step": count - 1}


def still_unlogged(loaded: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same entries for a fit that has restored the checkpoint of `loaded` and has not begun to train."""
    names = ("within_epoch", "logged", "scalars", "scalars_step")
    return {name: loaded[name] for name in names if name in loaded}


def _all_done(loop: Any) -> bool:
    current = loop.batch_progress.current
    return loop._num_ready_batches_reached() and current.processed == current.ready


def _plain(trainer: L.Trainer, scalars: Mapping[str, Any]) -> dict[str, float]:
    found = {name: float(value) for name, value in scalars.items()}
    return found | {"epoch": trainer.current_epoch} if found else {}


def announce(trainer: L.Trainer, files: RunFiles, loaded: Mapping[str, Any]) -> None:
    """Name the earlier folder in history.json of a new folder, for the case that the fit fails before its first step.

    `loaded` is as in :func:`resume`. If another run wrote to the folder, nothing is written.
    """
    earlier = _earlier_folder(trainer, loaded) if files.writes else None
    if files.folder is None or not files.writes or same(earlier, files.folder):
        return
    if files.path(HISTORY).exists() and _run_of(files.folder) != files.run:
        return
    try:
        files.check("metrics.csv", NAME)
    except ValueError:
        return
    files.note_resumption(_entry(trainer, files.folder, earlier, loaded=loaded), begun=False)


def spare_checkpoints(trainer: L.Trainer) -> None:
    """Let no ModelCheckpoint save the state of a fit that failed between the restored checkpoint and the first step.

    The optimizers may not be restored yet, and the restored checkpoint has the same step.
    """
    for each in callbacks_of(trainer, ModelCheckpoint):
        _SAVED.setdefault(each, each._last_global_step_saved)
        each._last_global_step_saved = trainer.global_step


def unspare_checkpoints(trainer: L.Trainer) -> None:
    """Undo :func:`spare_checkpoints`, for the next fit."""
    for each in callbacks_of(trainer, ModelCheckpoint):
        each._last_global_step_saved = _SAVED.pop(each, each._last_global_step_saved)


def repeat_interrupted_saves(trainer: L.Trainer) -> None:
    """Let each ModelCheckpoint whose `last.ckpt` an exception has interrupted save it on the exception.

    ModelCheckpoint writes the checkpoint of a step first and `last.ckpt` after it. It saves nothing on an exception
    that comes between, since the step is saved already.
    """
    for each in callbacks_of(trainer, ModelCheckpoint):
        if each.save_last is True and each._last_checkpoint_saved not in ("", each.last_model_path):
            each._last_global_step_saved = 0


def resume(trainer: L.Trainer, files: RunFiles, quantities: QuantitiesFile, loaded: Mapping[str, Any]) -> None:
    """Continue the files of a run from a checkpoint, and log the scalars that the checkpoint holds.

    `loaded` is the dict that the run saved in the checkpoint, with `step` and `epoch`. Files and rows that were written
    after the checkpoint are moved to another folder. If the run continues in another folder, the descriptions in the
    earlier folder are added to `quantities`. Raises a ValueError if another run wrote metrics.csv.
    """
    assert files.folder is not None
    earlier = _earlier_folder(trainer, loaded)
    logged = int(loaded.get("logged", loaded["step"]))
    tables = [each for each in trainer.loggers if isinstance(each, either(CSVLogger))]
    if same(earlier, files.folder):
        files.rewind(loaded["step"])
        _say_deleted(tables, files.folder, logged)
    elif earlier is not None:
        quantities.carry(earlier)
    for table in tables:
        if isinstance(table, ResumableCSVLogger):
            if same(Path(table.log_dir), files.folder):
                files.own("metrics.csv")
            table.rewind(logged, files.aside("metrics.csv"))
    files.note_resumption(_entry(trainer, files.folder, earlier, loaded=loaded), begun=True)
    _log_late(tables, earlier, loaded)


def _entry(trainer: L.Trainer, folder: Path, earlier: Path | None, loaded: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "from": None if earlier is None else os.path.relpath(earlier.resolve(), folder.resolve()),
        "run": loaded.get("run"),
        "checkpoint": os.path.relpath(trainer.ckpt_path, folder) if trainer.ckpt_path else None,
        "step": loaded["step"],
        "logged": int(loaded.get("logged", loaded["step"])),
        "epoch": loaded["epoch"],
        "within_epoch": bool(loaded.get("within_epoch", False)),
        "time": datetime.now().astimezone().isoformat(timespec="seconds"),
    }


def _log_late(tables: Sequence[CSVLogger], earlier: Path | None, loaded: Mapping[str, Any]) -> None:
    scalars, step = loaded.get("scalars") or {}, loaded.get("scalars_step", 0)
    if not scalars:
        return
    path = None if earlier is None else earlier / "metrics.csv"
    rows = _table_rows(path) if path and path.is_file() else []
    there = [row for row in rows if row.get("step") == str(step)]  # where an epoch is one step, also of before training
    if all(any(_holds(row, name, value) for row in there) for name, value in scalars.items()):
        return
    for table in tables:
        table.log_metrics(dict(scalars), step=step)
        table.save()


def _holds(row: Mapping[str, str], name: str, value: float) -> bool:
    try:
        found = float(row.get(name) or "")
    except ValueError:
        return False
    return found == value or (math.isnan(found) and math.isnan(value))


def _table_rows(path: Path) -> list[dict[str, str]]:
    found, _ = attempt(path.name, lambda: read_table(path, path.name))
    table = found[0] if found else None
    return [dict(zip(table.columns, row, strict=True)) for row in table.rows] if table else []


def _say_deleted(tables: Sequence[CSVLogger], folder: Path, logged: int) -> None:
    for table in tables:
        lost = logged and not isinstance(table, ResumableCSVLogger) and not (folder / "metrics.csv").exists()
        if lost and same(Path(table.log_dir), folder):
            rank_zero_warn(
                f"Lightning's CSVLogger has deleted the scalars before step {logged} in {folder / 'metrics.csv'}, as "
                "it does with every such file. lightning_ssl_geometry.loggers.ResumableCSVLogger keeps them."
            )


def _earlier_folder(trainer: L.Trainer, loaded: Mapping[str, Any]) -> Path | None:
    named = [Path(loaded["folder"])] if "folder" in loaded else []
    near = [Path(trainer.ckpt_path).resolve().parent.parent] if trainer.ckpt_path else []
    for folder in [*named, *near]:  # a run whose folder was moved is found by its checkpoint
        if _run_of(folder) == loaded.get("run") and any((folder / name).exists() for name in (HISTORY, "metrics.csv")):
            return folder
    return named[0] if named else None


def _run_of(folder: Path) -> str | None:
    try:
        return json.loads((folder / HISTORY).read_bytes())["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
