"""RunFolder: the files of a run of a training loop without Lightning's Trainer."""

__all__ = ["RunFolder"]

import itertools
import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from lightning.pytorch.utilities import rank_zero_warn

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.loggers import ResumableCSVLogger
from lightning_ssl_geometry.recording.arrays import ArrayFiles
from lightning_ssl_geometry.recording.quantities_file import QuantitiesFile
from lightning_ssl_geometry.recording.run_files import HISTORY, RunFiles


class RunFolder:
    """Makes the folder of a run, and writes its scalars. Only rank 0 writes.

    Args:
        folder: Folder of all runs. Each run gets a new folder `version_*` in it. None: no file is written.
    """

    def __init__(self, folder: str | Path | None) -> None:
        self.root = None if folder is None else _resolved(folder)
        self.files = RunFiles(None, quiet=True)
        self.quantities = QuantitiesFile(self.files)
        self.arrays = ArrayFiles(self.files)
        self._table: ResumableCSVLogger | None = None
        self._state: Mapping[str, Any] | None = None

    def open(self) -> None:
        """Make the folder, or continue the folder of the run that :meth:`resume` named. All ranks call this method."""
        if self.root is None:
            return
        writes = distributed.rank() == 0
        # also an error, so that no rank waits for a rank 0 that fails
        found = distributed.broadcast(self._found_or_error() if writes else None)
        if isinstance(found, ValueError):
            raise found
        self.files.place(found, writes)
        if not writes:
            return
        self._table = ResumableCSVLogger(found.parent.parent, found.parent.name, found.name)
        if self._state is not None and found == Path(self._state["folder"]):
            self._continue(self._state)
        self.files.own("metrics.csv")

    def log(self, scalars: Mapping[str, float], step: int) -> None:
        """Append a row to metrics.csv."""
        if self._table is not None:
            self._table.log_metrics(dict(scalars), step)
            self._table.save()

    def state(self) -> dict[str, Any]:
        """Return the entries of a checkpoint that let another process continue this folder."""
        folder = self.files.folder
        if folder is None:
            return {}
        return {"run": self.files.run, "folder": str(folder.resolve()), "files": sorted(self.files.names)}

    def resume(self, state: Mapping[str, Any]) -> None:
        """Continue the run that saved `state` in a checkpoint, when the folder is opened."""
        self._state = state if "folder" in state else None

    def _found_or_error(self) -> Path | ValueError:
        try:
            return self._found()
        except OSError as error:
            return _unusable(self.root, error)

    def _found(self) -> Path:
        assert self.root is not None
        if self._state is not None:
            earlier = Path(self._state["folder"])
            if _run_of(earlier) == self._state["run"]:
                return earlier
            rank_zero_warn(f"{earlier} is no longer the folder of the run that is resumed. The run gets a new folder.")
        for number in itertools.count(_next_version(self.root)):
            try:  # two runs that begin at the same time must not share a folder
                (found := self.root / f"version_{number}").mkdir(parents=True)
            except FileExistsError:
                continue
            return found
        raise AssertionError

    def _continue(self, state: Mapping[str, Any]) -> None:
        self.files.adopt(state)
        assert self._table is not None
        step, epoch, read = state["step"], state["epoch"], state.get("read")
        if read is None:  # of an earlier version
            self.files.rewind(step, epoch=epoch)
            self._table.rewind(step, self.files.aside("metrics.csv"), epoch=epoch)
        else:  # a checkpoint and a readout may share a step
            self.files.rewind(step, read=read)
            self._table.rewind(max(step - 1, 0), self.files.aside("metrics.csv"), read=read)
        entry = {"from": ".", "run": state["run"], "checkpoint": None, "step": state["step"], "logged": state["step"]}
        entry |= {"epoch": state["epoch"], "within_epoch": False}
        entry |= {"time": datetime.now().astimezone().isoformat(timespec="seconds")}
        self.files.note_resumption(entry, begun=True)


def _resolved(folder: str | Path) -> Path:
    """Return an absolute path, which a later change of the working directory does not move."""
    try:
        root = Path(folder).resolve()
        above = next((each for each in (root, *root.parents) if each.exists()), root)
    except (OSError, RuntimeError, ValueError) as error:  # a loop of links, a name too long, a null character
        raise _unusable(folder, error) from error
    if not above.is_dir():
        raise _unusable(folder, f"{above} is a file")
    return root


def _unusable(folder: object, why: object) -> ValueError:
    return ValueError(
        f"Expected `folder` to be a folder to write in, but got {str(folder)!r}: {why}. Name another one."
    )


def _next_version(root: Path) -> int:
    names = (path.name.removeprefix("version_") for path in root.glob("version_*"))
    return max((int(name) for name in names if name.isdecimal()), default=-1) + 1


def _run_of(folder: Path) -> str | None:
    try:
        found: str = json.loads((folder / HISTORY).read_bytes())["run"]
    except (OSError, ValueError, KeyError, TypeError):
        return None
    return found
