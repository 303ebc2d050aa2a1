"""What the recipes' scripts share: fits run side by side, each a process of its own, its log beside what it writes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple


class Fit(NamedTuple):
    """One run of a recipe.

    Attributes:
        name: What is printed.
        words: The command line after `python`.
        folder: Where the run writes, in a `version_<n>` of its own.
        done: Finds what a finished run wrote in the folder; nothing of another.
    """

    name: str
    words: list[str]
    folder: Path
    done: Callable[[Path], Any]


def finished(folder: Path) -> Path | None:
    """The folder of a finished run of those in a folder, by what RunReport wrote."""
    records = sorted(folder.glob("version_*/run.json"))
    return next((file.parent for file in records if json.loads(file.read_text())["status"] == "finished"), None)


def logger(folder: Path) -> list[str]:
    """What lets a run write to a folder."""
    to = "--trainer.logger.init_args."
    return [f"{to}save_dir", str(folder.parent), f"{to}name", folder.name]


def run_all(fits: Iterable[Fit], jobs: int) -> None:
    """Run those that have not finished, so that an interrupted recipe can be given again."""
    with ThreadPoolExecutor(jobs) as pool:
        for started in [pool.submit(_run, fit, jobs) for fit in fits]:
            started.result()


def _run(fit: Fit, jobs: int) -> None:
    if fit.done(fit.folder):
        return
    fit.folder.mkdir(parents=True, exist_ok=True)
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"}
    print(f"{fit.name} ...", flush=True)
    log = fit.folder / "log.txt"
    with log.open("w") as file:
        code = subprocess.run([sys.executable, *fit.words], stdout=file, stderr=subprocess.STDOUT, env=environment)
    # A run that wrote all it had to write is one, whatever the process did at its exit.
    print(f"{fit.name}: {'done' if fit.done(fit.folder) else f'failed ({code.returncode}), see {log}'}", flush=True)
