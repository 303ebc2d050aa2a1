"""RunRecord: the record `run.json` of a run, and the page, the table and the figures when the run ends."""

__all__ = ["RunRecord", "described", "errors_warned"]

import json
import os
import platform
import shlex
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_warn
from torch import nn

from lightning_ssl_geometry.either_lightning import package_of
from lightning_ssl_geometry.recording.logged import log_run
from lightning_ssl_geometry.recording.run_files import RunFiles

_MOST_ERROR = 10_000
_PACKAGES = ("lightning-ssl-geometry", "torch", "torchvision", "torchmetrics", "timm", "numpy")


class RunRecord:
    """Writes `run.json` when a run begins and when it ends, and shows the run at its end. Only rank 0 writes.

    Args:
        files: The files of the run.
        page: Write the page `report.html`.
        table: Print the summary table and the path of the page.
        figures: Send the page's figures to TensorBoardLogger and WandbLogger, and the vectors to wandb.
    """

    def __init__(self, files: RunFiles, page: bool = True, table: bool = True, figures: bool = True) -> None:
        self.files = files
        self.page = page
        self.table = table
        self.figures = figures
        self.entries: dict[str, Any] = {}

    def begin(self, entries: Mapping[str, Any], done: Mapping[str, int]) -> None:
        """Write the record of a run that begins. `done` has the numbers of epochs and steps so far, if it trains."""
        if self.page:
            self.files.own("report.html")  # now, because `ssl-geometry report` may write it during the run
        self.take(entries, done)
        self._write("running", done)

    def take(self, entries: Mapping[str, Any], done: Mapping[str, int]) -> None:
        """Take over the entries of a run that begins. A resumed run began when its first part did.

        Its entry `parts` has the start and the end of each part. The end is None if the part was killed.
        """
        self.entries = dict(entries)
        if earlier := self._earlier_parts() if done.get("from_step") else []:
            own = {"started": entries["started"], "ended": None}
            self.entries |= {"started": earlier[0]["started"], "parts": [*earlier, own]}

    def end(self, status: str, done: Mapping[str, int], error: BaseException | None = None) -> None:
        """Write the record of a run that ended with a status: "finished", "failed" or "interrupted"."""
        if error is not None:
            self.entries["error"] = {"type": type(error).__name__, "message": str(error)[:_MOST_ERROR]}
        self.entries["ended"] = _now()
        if "parts" in self.entries:
            self.entries["parts"][-1]["ended"] = self.entries["ended"]
        with errors_warned("run.json"):
            self._write(status, done)

    def show(self, loggers: Sequence[Logger] = (), step: int = 0) -> None:
        """Print the table, write the page, and send the figures to the loggers, at a step. Errors become warnings."""
        from rich.console import Console
        from rich.text import Text

        from lightning_ssl_geometry.report import Drawings, Run, read_run, remarks, summary_table, write_report

        folder = self.files.folder
        if folder is None or not self.files.writes:
            return
        console, drawings = Console(), Drawings()
        run: Run | None = None
        with errors_warned("the report of this run"):
            run = read_run(folder)
        if run is None:
            return
        with errors_warned("the table of this run"):
            if self.table:
                console.print(summary_table(run) if self.has_results else Text(run.name, style="bold"))
                if said := remarks(run):
                    console.print(said, soft_wrap=True, highlight=False, markup=False)
        with errors_warned(folder / "report.html"):
            if self.page:
                page = write_report(run, drawings=drawings)
                console.print(f"The page of this run: {page}", soft_wrap=True, highlight=False, markup=False)
        with errors_warned("the figures to the loggers"):
            if self.figures:
                log_run(loggers, run, step, drawings=drawings)

    @property
    def has_results(self) -> bool:
        """Whether the folder has results of this run, or of one that this run resumes."""
        folder = self.files.folder
        if folder is None:
            return False
        return bool(self.files.resumed) or any((folder / name).exists() for name in ("metrics.csv", "geometry"))

    def _earlier_parts(self) -> list[dict[str, Any]]:
        folder = self.files.folder
        if folder is None:
            return []
        if "run.json" in self.files.names and (parts := _parts(folder)):
            return parts
        elsewhere = self.files.resumed[-1]["from"] if self.files.resumed else None
        return _parts(folder / elsewhere) if elsewhere else []

    def _write(self, status: str, done: Mapping[str, int]) -> None:
        with self.files.replacing("run.json") as file:
            file.write(
                (json.dumps(self.entries | {"status": status} | dict(done), indent=2, default=str) + "\n").encode()
            )


def described(model: nn.Module) -> dict[str, Any]:
    """Return the entries of `run.json` that any training has: model, command, seed, versions and machine."""
    seed = os.environ.get("PL_GLOBAL_SEED")
    packages = (*_PACKAGES, package_of(model))
    return {
        "model": type(model).__name__,
        "data": None,
        "data_path": None,
        "classes": None,
        "loss_temperature": _loss_temperature(model),
        "command": _command(),
        "seed": int(seed) if seed else None,
        "started": _now(),
        "ended": None,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "world_size": 1,
        "precision": None,
        "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
        "machine": {"system": f"{platform.system()} {platform.machine()}", "cpus": os.cpu_count(), "device": "cpu"},
    }


@contextmanager
def errors_warned(what: str | Path) -> Iterator[None]:
    """Turn an error in the block into a warning that `what` could not be written."""
    try:
        yield
    except Exception as error:  # from a full disk, matplotlib or a logger; the rest must still be written
        rank_zero_warn(f"Could not write {what}: {type(error).__name__}: {error}")


def _parts(folder: Path) -> list[dict[str, Any]]:
    try:
        record = json.loads((folder / "run.json").read_bytes())
        parts = record.get("parts") or [record]
        return [{"started": each["started"], "ended": each["ended"]} for each in parts]
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return []  # the run goes on without it


def _loss_temperature(model: nn.Module) -> float | None:
    """Return the attribute `temperature` of the model's loss, or None if there is not exactly one such number."""
    losses = (module for module in model.modules() if "loss" in type(module).__name__.lower())
    temperatures = (getattr(loss, "temperature", None) for loss in losses)
    found = {float(each) for each in temperatures if isinstance(each, float | int) and not isinstance(each, bool)}
    return found.pop() if len(found) == 1 else None


def _command() -> str:
    program = os.path.basename(sys.argv[0])
    return shlex.join(
        [*(["python", "-m", "lightning_ssl_geometry"] if program == "__main__.py" else [program]), *sys.argv[1:]]
    )


def _now() -> str:
    return datetime.now().astimezone().isoformat(timespec="seconds")
