"""Run what needs a GPU, the most valuable first, within a number of minutes.

    python examples/gpu.py --minutes 60 --data FOLDER

`FOLDER` has MNIST/raw as torchvision lays it out, and cifar10/train/<class>/* and cifar10/test/<class>/*. A job whose
data are not there is left out, and said so. Each job writes to OUTPUT/<job>/ and to OUTPUT/<job>.log; the recipes among
them write the CSVs, tables and figures of their own commands. When the minutes are over, the job that is running is
ended. The same command goes on from there: finished jobs are not repeated, and a recipe continues from the last
checkpoints of its runs. A fit saves one when it is ended, and every five minutes, so that a lost machine takes five
minutes of it. Tests and benchmarks begin anew, so they are begun only if there is time for all of them.
`--list` prints the jobs. `--smoke` runs all of them in miniature, without data and on any machine: 2 cores take some
10 minutes.

It needs Linux or macOS. The tests and benchmarks are those of this repository: run it in a clone, after
`pip install -e . --group test`.
"""

import argparse
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

import torch

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE)]
from recipe import alone, errors_in_one_line, markdown, output_folder  # noqa: E402

STATES, RUNNING = "jobs.json", "running"  # the second has the process group of the latest job
SAVING = (  # a recipe continues from the newest "last*.ckpt"
    "--trainer.callbacks+=lightning.pytorch.callbacks.ModelCheckpoint",
    "--trainer.callbacks.train_time_interval=0:05:00",
    "--trainer.callbacks.filename=last-timed",
)
ENDED = "Ended by {}. The same command goes on from here."
ENDING = [getattr(signal, name) for name in ("SIGTERM", "SIGHUP") if hasattr(signal, name)]


class Job(NamedTuple):
    """One command.

    Attributes:
        name: Its folder in OUTPUT.
        minutes: What we expect on one H100 or H200. None of it is measured yet.
        settles: The question that it answers.
        words: The command after `python`; OUTPUT and DATA stand for folders.
        smoke: The same in miniature.
        data: The folder in DATA that it needs; empty: none.
        whole: Whether it begins anew each time: it is begun only if there is time for all of it.
    """

    name: str
    minutes: int
    settles: str
    words: Sequence[str]
    smoke: Sequence[str]
    data: str = ""
    whole: bool = False


class Taken(NamedTuple):
    """What became of a job, and the minutes that all commands gave it."""

    minutes: float = 0.0
    status: str = ""


def recipe(name: str, what: str, *more: str) -> list[str]:
    return [f"examples/{name}/reproduce.py", *what.split(), "--output", "OUTPUT", "--jobs", "1", "--", *more, *SAVING]


JOBS = (
    Job(
        name="cuda",
        minutes=8,
        settles="functions, diagnostics, methods and contracts on CUDA beside the CPU, mixed precision",
        words=["-m", "pytest", "-q", "tests/cuda"],
        smoke=["-m", "pytest", "-q", "tests/cuda", "-k", "alignment or uniformity"],
        whole=True,
    ),
    Job(
        name="benchmarks",
        minutes=10,
        settles="speed of views, losses, ResNet-18, kernel and crops, beside bare products and ceilings",
        words=["benchmarks/gpu.py", "--csv", "OUTPUT/results.csv"],
        smoke=["benchmarks/gpu.py", "--csv", "OUTPUT/results.csv", "--device", "cpu", "--quick", "--tasks", "losses"],
        whole=True,
    ),
    Job(
        name="channel",
        minutes=15,
        settles="CRL-TAC and SimCLR with the paper's constants (Table 1 of Koyama et al.)",
        words=recipe("trainable_augmentation_channel", "table1 --size paper --seeds 0 --root DATA"),
        smoke=recipe("trainable_augmentation_channel", "table1 --size smoke --seeds 0"),
        data="MNIST",
    ),
    Job(
        name="geometry",
        minutes=30,
        settles="ResNet-18, 200 epochs: rank of W, tangent plane, bound (Figs. 1 to 7 of Cosentino et al.)",
        words=recipe(
            "geometry_of_contrastive_learning",
            "--size paper --seeds 0 --root DATA/cifar10",
            "--data=lightning_ssl_geometry.data.ImageFolderDataModule",
            "--data.init_args.image_size=32",
            "--data.init_args.batch_size=1024",
            "--trainer.max_epochs=200",
            "--trainer.precision=bf16-mixed",
        ),
        smoke=recipe("geometry_of_contrastive_learning", "--size smoke --seeds 0"),
        data="cifar10",
    ),
    Job(
        name="box",
        minutes=20,
        settles="Table 1 of Rusak et al. at 6,144 samples and 100,000 steps, box and sphere",
        words=recipe(
            "content_suppresses_style",
            "table1 --seeds 0",
            "--data.init_args.batch_size=6144",
            "--trainer.max_epochs=100",
            "--trainer.check_val_every_n_epoch=10",
        ),
        smoke=recipe("content_suppresses_style", "linear --size smoke --seeds 0"),
    ),
    Job(
        name="fibers",
        minutes=60,
        settles="Table 1 of Keller et al. at width 32 on 60,000 digits",
        words=recipe(
            "homomorphic_ssl",
            "table1 --size paper --seeds 0 --root DATA",
            "--trainer.devices=1",
            "--trainer.strategy=auto",
            "--trainer.sync_batchnorm=false",
            "--data.init_args.batch_size=4096",
            "--trainer.max_epochs=100",
        ),
        smoke=recipe(
            "homomorphic_ssl",
            "distance --seeds 0",
            "--data=lightning_ssl_geometry.data.DigitsDataModule",
            "--data.init_args.subset=60",
            "--data.init_args.batch_size=20",
            "--data.init_args.image_size=29",
            "--trainer.max_steps=2",
        ),
        data="MNIST",
    ),
)


def run(job: Job, words: Sequence[str], folder: Path, *, deadline: float, lock: int) -> str:
    """Run one job until it ends or the time is over, and return what became of it. The job holds the lock, too."""
    with (folder / f"{job.name}.log").open("a") as log:
        process = subprocess.Popen(
            [sys.executable, *words],
            cwd=HERE.parent,
            stdout=log,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            pass_fds=[lock],
        )
        (folder / RUNNING).write_text(str(process.pid))
        try:
            code = process.wait(max(deadline - time.monotonic(), 1.0))
        except subprocess.TimeoutExpired:
            end(process)
            return "cut off"
        except BaseException:  # such as Ctrl-C: the job has a session of its own, which it would not reach
            end(process)
            raise
    return "finished" if code == 0 else f"failed ({code})"


def end(process: subprocess.Popen[bytes], patience: float = 60.0) -> None:
    """Ask a job and all its children to end, which lets a fit save a checkpoint, and kill what is left then."""
    for kind in (signal.SIGINT, *ENDING):
        signal.signal(kind, signal.SIG_IGN)  # a second one would leave the job alive
    with suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
        waited = time.monotonic() + patience
        while time.monotonic() < waited:
            process.poll()  # a child that has ended and was not asked is still there
            os.killpg(process.pid, 0)  # until there is none
            time.sleep(0.1)
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def placed(words: Sequence[str], folder: Path, data: Path | None) -> list[str]:
    """The words with the folders in place."""
    folders = {"OUTPUT": str(folder), "DATA": str(data)}
    return [re.sub("OUTPUT|DATA", lambda found: folders[found[0]], word) for word in words]


def known(states: Path) -> dict[str, Taken]:
    """What a file says of jobs."""
    if not states.exists():
        return {}
    try:
        return {
            name: Taken(float(minutes), str(status))
            for name, [minutes, status] in json.loads(states.read_text()).items()
        }
    except (AttributeError, OverflowError, RecursionError, TypeError, ValueError):
        sys.exit(f"{states} is damaged. Remove it: recipes then find their finished runs again.")


def keep(found: dict[str, Taken], states: Path) -> None:
    """Write the states of the jobs, so that a kill in between leaves the old ones."""
    new = states.with_suffix(".part")
    new.write_text(json.dumps(found, indent=1))
    new.replace(states)


def table(jobs: Sequence[Job], found: dict[str, Taken]) -> str:
    rows = []
    for job in jobs:
        state = found.get(job.name, Taken())
        rows.append([job.name, job.data, str(job.minutes), f"{state.minutes:.1f}", state.status, job.settles])
    return markdown(["job", "needs", "minutes on a GPU, expected", "taken", "status", "settles"], rows)


def minutes(text: str) -> float:
    """Read the argument --minutes."""
    try:
        if 0 < (found := float(text)) < float("inf"):
            return found
    except ValueError:
        pass
    raise argparse.ArgumentTypeError(f"Expected a number > 0, but got {text!r}.")


def main() -> None:
    names = [job.name for job in JOBS]
    made = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--minutes", type=minutes, default=60.0, help="when to end (60)")
    made.add_argument("--data", type=Path, help="folder that has MNIST/raw and cifar10/")
    made.add_argument("--output", type=output_folder, default=Path("runs/gpu").resolve(), help="folder (runs/gpu)")
    made.add_argument("--jobs", nargs="+", choices=names, default=names, metavar="JOB", help=", ".join(names))
    made.add_argument("--list", action="store_true", help="print the jobs, and end")
    made.add_argument("--smoke", action="store_true", help="all in miniature, on any machine")
    options = made.parse_args()
    jobs = [job for job in JOBS if job.name in options.jobs]
    folder = options.output / "smoke" if options.smoke else options.output
    states = folder / STATES
    found = known(states)
    if options.list:
        print(table(jobs, found))
        return
    if not options.smoke and not torch.cuda.is_available():
        made.error("Expected a GPU, or --smoke, but torch finds none.")
    if options.data and not options.data.is_dir():
        made.error(f"Expected --data to be a folder, but there is none at {options.data}.")
    folder.mkdir(parents=True, exist_ok=True)
    if options.smoke:
        os.environ["SSL_GEOMETRY_DEVICE"] = "cpu"
    for kind in ENDING:  # as by Ctrl-C: the job ends, too
        signal.signal(kind, lambda number, _: sys.exit(ENDED.format(signal.Signals(number).name)))
    with alone(folder, waits=False) as lock:
        if lock is None:
            running = folder / RUNNING
            group = f", of process group {running.read_text()}," if running.exists() else ""
            sys.exit(f"Another command, or a job that it left behind{group} is running in {folder}.")
        try:
            run_all(jobs, folder, lock=lock, options=options)
        except KeyboardInterrupt:
            sys.exit(ENDED.format("Ctrl-C"))
    found = known(states)
    print(table(jobs, found))
    if any(found.get(job.name, Taken()).status.startswith("failed") for job in jobs):
        sys.exit(f"Some jobs failed: see their logs in {folder}.")


def run_all(jobs: Sequence[Job], folder: Path, *, lock: int, options: argparse.Namespace) -> None:
    """Run the jobs that have not finished, until the minutes are over."""
    states, deadline = folder / STATES, time.monotonic() + 60 * options.minutes
    found, data = known(states), options.data and options.data.resolve()
    for job in jobs:
        state = found.get(job.name, Taken())
        if state.status == "finished" or time.monotonic() >= deadline:
            continue
        if not options.smoke and job.data and not (data and (data / job.data).is_dir()):
            found[job.name] = state._replace(status=f"left out: no {job.data} in --data {options.data}")
            keep(found, states)
            continue
        if not options.smoke and job.whole and time.monotonic() + 60 * job.minutes > deadline:
            found[job.name] = state._replace(status=f"left out: it needs {job.minutes} minutes at once")
            keep(found, states)
            continue
        print(f"{job.name} ...", flush=True)
        began = time.monotonic()
        words = placed(job.smoke if options.smoke else job.words, folder / job.name, data)
        status = "cut off"  # if this process is killed
        found[job.name] = state._replace(status=status)
        keep(found, states)
        try:
            status = run(job, words, folder, deadline=deadline, lock=lock)
        finally:
            found[job.name] = Taken(state.minutes + (time.monotonic() - began) / 60, status)
            keep(found, states)
            print(f"{job.name}: {status}, {found[job.name].minutes:.1f} minutes, {folder / job.name}.log", flush=True)


if __name__ == "__main__":
    with errors_in_one_line():
        main()
