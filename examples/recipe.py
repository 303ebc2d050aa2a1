"""What the recipes' scripts share: their arguments, fits in processes of their own, and tables of results."""

import argparse
import csv
import hashlib
import io
import json
import logging
import math
import os
import signal
import subprocess
import sys
import threading
import time
import warnings
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np

from lightning_ssl_geometry.files import replacing

try:
    import fcntl
except ImportError:  # Windows has no such lock
    fcntl = None  # type: ignore[assignment]

COMMAND = "command.json"  # the words of the newest run in a folder, and what its YAML files hold
# Words that keep an encoder without batch norm as it was built: the null of what training gains or loses.
UNTRAINED = [
    "--model.init_args.optimizer.init_args.lr=0.0",
    *(f"--trainer.{name}=1" for name in ("max_epochs", "check_val_every_n_epoch", "limit_train_batches")),
]
_LOGGER = "--trainer.logger.init_args."
REFUSED = 2  # the exit status of a command whose arguments are wrong, or whose files are missing
LOCK = "lock"  # held while a process runs a fit in a folder
_Row = TypeVar("_Row", bound=tuple[Any, ...])  # a NamedTuple


class Fit(NamedTuple):
    """One run of a recipe.

    Attributes:
        name: Printed when the run starts and ends.
        words: The command line after `python`.
        folder: The run writes to a new `version_<n>` in this folder.
        done: Returns what a finished run wrote to the folder, and something false if there is no finished run.
    """

    name: str
    words: list[str]
    folder: Path
    done: Callable[[Path], Any]


def finished(folder: Path) -> Path | None:
    """Find a finished run in a folder, by the `run.json` that RunReport wrote."""
    records = sorted(folder.glob("version_*/run.json"))
    return next((file.parent for file in records if _json(file).get("status") == "finished"), None)


def existing(path: Path) -> Path | None:
    """The path if there is something, else None."""
    return path if path.exists() else None


def _json(file: Path) -> dict[str, Any]:
    """What a file holds; nothing if it is damaged, as after a kill while it was written."""
    try:
        held = json.loads(file.read_text())
    except ValueError:
        return {}
    return held if isinstance(held, dict) else {}


class Help(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Keeps the lines of the description, and says the default of each argument that has a help text and a default."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default == []
        return action.help if nothing else super()._get_help_string(action)


def parser(description: str | None, output: str, *, what: Sequence[str] = ()) -> argparse.ArgumentParser:
    """Make a parser of the arguments that all recipes have, with the choices of `what` to make first."""
    made = argparse.ArgumentParser(description=description, formatter_class=Help)
    if what:
        made.add_argument("what", choices=what)
    made.add_argument("--root", type=lambda text: Path(text).resolve(), help="folder of the data")
    made.add_argument("--output", type=output_folder, default=output, help="folder of the results")
    add_seeds_and_jobs(made, [0, 1, 2], jobs=1)
    made.add_argument("more", nargs="*", help="after --: more arguments of ssl-geometry fit")
    return made


@contextmanager
def errors_in_one_line() -> Iterator[None]:
    """End the command with one line if it is interrupted, or a file or folder cannot be read or written.

    Signs that the terminal does not have, such as ±, are replaced there.
    """
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")
    try:
        yield
    except KeyboardInterrupt:
        print(
            f"{Path(sys.argv[0]).name}: stopped. The same command does not repeat what has finished.", file=sys.stderr
        )
        sys.exit(130)
    except OSError as error:
        print(f"{Path(sys.argv[0]).name}: error: {error}", file=sys.stderr)
        sys.exit(2)


@contextmanager
def processes(jobs: int, start: Callable[[], Any] | None = None) -> Iterator[ProcessPoolExecutor]:
    """Give as many processes as there are jobs; each calls `start` first.

    Ctrl-C ends them at once. If one is killed, the command ends with one line.
    """
    with ProcessPoolExecutor(jobs, get_context("spawn"), _begin, (start,)) as pool:
        for _ in range(jobs):  # a process of the last submission is not watched before another result or submission
            pool.submit(time.sleep, 0)
        try:
            yield pool
        except BrokenProcessPool:
            time.sleep(0.5)  # Ctrl-C goes to all processes, and may reach this one last
            sys.exit("A process was ended, or ran out of memory. The same command does not repeat what has finished.")
        except KeyboardInterrupt:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


def _begin(start: Callable[[], Any] | None) -> None:
    if signal.getsignal(signal.SIGINT) is not signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.SIG_DFL)  # no traceback of each process
    if start:
        start()


def add_seeds_and_jobs(made: argparse.ArgumentParser, seeds: list[int], *, jobs: int) -> None:
    """Add `--seeds`, different numbers, and `--jobs`, with these defaults."""
    add_seeds(made, seeds)
    made.add_argument("--jobs", type=at_least(1), default=jobs, help="runs at a time")


def add_seeds(made: argparse.ArgumentParser, seeds: list[int]) -> None:
    """Add `--seeds`, different numbers, with this default."""
    made.add_argument(
        "--seeds", type=at_least(0, most=2**32 - 1), nargs="+", default=seeds, action=Different, help="of the runs"
    )


def at_least(least: int, most: float = math.inf) -> Callable[[str], int]:
    """Make the type of an argument that is an integer of at least this, and at most that."""

    def read(text: str) -> int:
        try:
            if least <= (number := int(text)) <= most:
                return number
        except ValueError:
            pass
        limits = f">= {least}" if most == math.inf else f"from {least} to {most}"
        raise argparse.ArgumentTypeError(f"Expected an integer {limits}, but got {text!r}.")

    return read


def output_folder(text: str) -> Path:
    path = Path(text).resolve()
    if found := next((each for each in (path, *path.parents) if each.exists() and not each.is_dir()), None):
        raise argparse.ArgumentTypeError(f"Expected a folder, or the name of a new one, but {str(found)!r} is a file.")
    return path


class Different(argparse.Action):
    """Refuses a value that is given twice: it would count twice in a mean, and lower the deviation."""

    def __call__(self, parser: Any, namespace: Any, values: Any, option_string: str | None = None) -> None:
        if len(set(values)) < len(values):
            parser.error(f"argument {option_string}: Expected different numbers, but got {values}.")
        setattr(namespace, self.dest, values)


def logger(folder: Path) -> list[str]:
    """Arguments that make a run write to a folder."""
    return [f"{_LOGGER}save_dir", str(folder.parent), f"{_LOGGER}name", folder.name]


def command(
    options: argparse.Namespace,
    folder: Path,
    *,
    configs: Iterable[Path],
    added: Sequence[str],
    seed: int,
    seeded: Sequence[str] = (),
    data_seed: int | None = None,
    program: Sequence[str] = ("-m", "lightning_ssl_geometry", "fit"),
) -> list[str]:
    """Put together the command line of a run.

    Args:
        options: The recipe's arguments.
        folder: Where the run writes.
        configs: The YAML files, in this order.
        added: The arguments of this arm.
        seed: Of the process, of the data, and of `seeded`.
        seeded: What else has a seed, such as "--model.init_args.".
        data_seed: The data's seed, if it is not that of the process.
        program: What Python runs.
    """
    for word in options.more:
        name = word.partition("=")[0]
        if name == "--seed_everything" or name.endswith(".seed"):
            sys.exit(f"Expected no seed after --, since --seeds gives the seeds, but got {word!r}.")
    words = [*program, *(word for config in configs for word in ("--config", str(config))), *added]
    of_data = f"--data.init_args.seed={seed if data_seed is None else data_seed}"
    words += ["--seed_everything", str(seed), of_data, *(f"{key}seed={seed}" for key in seeded)]
    root = [f"--data.init_args.root={options.root}"] if options.root else []
    return [*words, *logger(folder), *root, *options.more]


def _left_by(fit: Fit) -> Path | None:
    """The newest whole checkpoint that an interrupted run of a fit has left, if its command line was the same."""
    if not _ran_before(fit) or not any(word.startswith(_LOGGER) for word in fit.words):
        return None
    first = _kept(fit).get("first", 0)
    for version in sorted((each for each in _versions(fit.folder) if each >= first), reverse=True):
        found = fit.folder.glob(f"version_{version}/checkpoints/last*.ckpt")
        if whole := [path for path in found if zipfile.is_zipfile(path)]:
            return max(whole, key=lambda path: path.stat().st_mtime)
    return None


def _versions(folder: Path) -> list[int]:
    names = (path.name.removeprefix("version_") for path in folder.glob("version_*"))
    return [int(name) for name in names if name.isdigit()]


def _kept(fit: Fit) -> dict[str, Any]:
    """What is known of the newest run in a fit's folder: its words, and the number of its first version."""
    return _json(path) if (path := fit.folder / COMMAND).exists() else {}


def _ran_before(fit: Fit) -> bool:
    """Whether the newest run in a fit's folder had the same words, and YAML files with the same contents."""
    return {key: value for key, value in _kept(fit).items() if key != "first"} == _said(fit.words)


def _said(words: Sequence[str]) -> dict[str, list[str]]:
    """The words of a command line, the contents of its YAML files in place of their paths, without where it writes."""
    own = [part for word in words for part in (word.split("=", 1) if word.startswith(("--config=", "-c=")) else [word])]
    files = [place + 1 for place, word in enumerate(own[:-1]) if word == "--config" or (word == "-c" and place)]
    digests = [hashlib.sha256(Path(own[place]).read_bytes()).hexdigest() for place in files]
    scripts = [place for place, word in enumerate(own[:1]) if word.endswith(".py")]
    named = [Path(word).name if place in files + scripts else word for place, word in enumerate(own)]
    writes = [  # another folder is no other run
        place
        for place, word in enumerate(named)
        if word.startswith(_LOGGER) or word in ("--folder", "--encoder", "--run", "--output")
    ]
    kept = [word for place, word in enumerate(named) if place not in writes and place - 1 not in writes]
    return {"words": kept, "configs": digests}


def _check(fit: Fit) -> None:
    """End the command if the finished run in a fit's folder had another command line or other YAML files."""
    if not (fit.folder / COMMAND).exists() or _ran_before(fit):
        return
    before, now = _kept(fit).get("words", []), _said(fit.words)["words"]
    found = [word for word in before if word not in now]
    wanted = [word for word in now if word not in before]
    what = f"{found} for {wanted}" if found or wanted else "other contents of the YAML files"
    sys.exit(f"{fit.name}: {fit.folder} has a finished run with {what}. Give another --output, or delete that folder.")


def run_all(fits: Iterable[Fit], jobs: int) -> None:
    """Run the fits that have not finished; an interrupted recipe can be started again.

    Two commands with one folder share the work: each leaves a fit that the other one runs to the end, and waits for it
    then.
    """
    run = partial(_run, jobs=jobs, refused=threading.Event())
    with ThreadPoolExecutor(jobs) as pool:
        fits = list(fits)
        free = list(pool.map(partial(run, waits=False), fits))
        list(pool.map(partial(run, waits=True), [fit for fit, ran in zip(fits, free, strict=True) if not ran]))


def _run(fit: Fit, jobs: int, waits: bool, refused: threading.Event) -> bool:
    """Run a fit. Return False if another process runs it; with `waits`, wait until it ends, or run it then.

    `refused` is set when a run refuses its arguments. No further run is started then.
    """
    if refused.is_set():
        return True
    if fit.done(fit.folder):
        _check(fit)
        return True
    fit.folder.mkdir(parents=True, exist_ok=True)
    with alone(fit.folder, waits) as lock:
        if lock is None:
            return False
        if fit.done(fit.folder):  # another command has run it in the meantime
            _check(fit)
        else:
            try:
                _run_here(fit, jobs, lock)
            except SystemExit:
                refused.set()
                raise
        return True


@contextmanager
def alone(folder: Path, waits: bool) -> Iterator[int | None]:
    """Lock a folder, and yield the lock's file descriptor, or None if another process has locked it.

    A process that inherits the descriptor holds the lock, too: a fit that outlives its recipe is not run twice.
    """
    with (folder / LOCK).open("w") as file:
        if fcntl is not None:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | (0 if waits else fcntl.LOCK_NB))
            except BlockingIOError:
                yield None
                return
        yield file.fileno()


def _run_here(fit: Fit, jobs: int, lock: int) -> None:
    threads = str(max(1, (os.cpu_count() or 1) // jobs))
    environment = os.environ | {"OMP_NUM_THREADS": threads, "OMP_WAIT_POLICY": "passive"}
    print(f"{fit.name} ...", flush=True)
    checkpoint = _left_by(fit)
    first = _kept(fit).get("first", 0) if _ran_before(fit) else max(_versions(fit.folder), default=-1) + 1
    with replacing(fit.folder / COMMAND) as file:
        file.write(json.dumps(_said(fit.words) | {"first": first}).encode())
    resumed = [] if checkpoint is None else ["--ckpt_path", str(checkpoint)]
    log = fit.folder / "log.txt"
    with log.open("w") as output:
        code = subprocess.run(
            [sys.executable, *fit.words, *resumed],
            stdout=output,
            stderr=subprocess.STDOUT,
            env=environment,
            pass_fds=[lock] if fcntl is not None else [],
        )
    done = fit.done(fit.folder)  # a run that wrote everything is finished, even if its process failed at its exit
    said = "done" if done else f"failed ({code.returncode}), see {log}: {_last_line(log)}"
    print(f"{fit.name}: {said}", flush=True)
    if code.returncode == REFUSED and not done:
        sys.exit(f"{fit.name}: wrong arguments or missing files (exit status {REFUSED}); no other run is started.")


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").split("\n")
    return next((line.strip() for line in reversed(lines) if line.strip()), "")


def grid(
    options: argparse.Namespace, arms: Mapping[str, list[str]], fit: Callable[..., Fit], every_seed: bool = True
) -> dict[str, dict[int, Any]]:
    """Run each arm with each seed.

    Args:
        options: The recipe's arguments.
        arms: Arm -> what it adds to the command line.
        fit: Makes the Fit of (options, arm, what it adds, seed).
        every_seed: End the command if any run is missing; otherwise only if an arm has no finished run at all, and
            :func:`end_if_seeds_are_missing` says it at the end.

    Returns:
        Arm -> seed -> what `Fit.done` found.
    """
    fits = {(arm, seed): fit(options, arm, words, seed) for seed in options.seeds for arm, words in arms.items()}
    run_all(fits.values(), options.jobs)
    done = {place: found for place, one in fits.items() if (found := one.done(one.folder))}
    runs = {arm: {seed: done[arm, seed] for seed in options.seeds if (arm, seed) in done} for arm in arms}
    missing: list[Any] = [arm for arm in arms if not runs[arm]]
    if every_seed:
        missing = [(arm, seed) for arm in arms for seed in options.seeds if (arm, seed) not in done]
    if missing:
        sys.exit(f"No finished run of {missing}: see the log.txt of each, or give fewer --seeds.")
    return runs


def end_if_seeds_are_missing(runs: Mapping[str, Mapping[int, Any]], seeds: Sequence[int]) -> None:
    """End the command with a message if an arm has no finished run of a seed, after its tables have been made."""
    if missing := [(arm, seed) for arm, found in runs.items() for seed in seeds if seed not in found]:
        sys.exit(f"No finished run of {missing}: the tables and figures above are of fewer seeds there.")


def paths(runs: Mapping[str, Mapping[int, Path]]) -> dict[str, list[Path]]:
    """Arm -> its runs' folders, as a comparison takes them."""
    return {arm: list(of_seeds.values()) for arm, of_seeds in runs.items()}


def network_of(path: Path, root: Path | None, *, trained: bool = True) -> tuple[Any, Any]:
    """The model of a finished run, in eval mode, and its data, set up.

    Args:
        path: Folder of the run, with its config.yaml and checkpoints/last.ckpt.
        root: Folder of the data. None: that of the config.
        trained: Whether the model has the weights of the checkpoint. Otherwise it has those of the run's beginning.

    Raises:
        OSError: If a file of the run is missing or damaged.
    """
    import yaml

    from lightning_ssl_geometry.cli import lightning_cli
    from lightning_ssl_geometry.diagnose import load_weights

    for library in ("pytorch", "fabric"):  # which would say the seed and the devices of each network
        logging.getLogger(f"lightning.{library}").setLevel(logging.WARNING)
    with _undamaged(path / "config.yaml"):
        whole = yaml.safe_load((path / "config.yaml").read_text())  # of `fit`, with arguments that only it has
        words = [f"--{key}={json.dumps(whole[key])}" for key in ("seed_everything", "model", "data")]
    words += ["--trainer.accelerator=cpu", "--trainer.logger=false"]
    words += [f"--data.init_args.root={root}"] if root else []
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "LightningCLI's args parameter")  # beside the arguments of the script
        cli = lightning_cli(words, run=False)
    cli.datamodule.setup()
    if trained:
        with _undamaged(path / "checkpoints" / "last.ckpt"):
            load_weights(cli.model, path / "checkpoints" / "last.ckpt")
    return cli.model.eval(), cli.datamodule


@contextmanager
def _undamaged(file: Path) -> Iterator[None]:
    """End the command with one line if a file of a finished run is damaged."""
    import yaml

    try:
        yield
    except (KeyError, TypeError, ValueError, yaml.YAMLError) as error:
        said = f"{type(error).__name__}: {' '.join(str(error).split())}"
        raise OSError(f"{file} cannot be read ({said}). Delete its run's folder to run it again.") from error


@contextmanager
def mean_statistics(model: Any) -> Iterator[None]:
    """Let batch norms of a model take the mean of the statistics of the batches that they see in this block.

    The momentum of training would mix these with the values of a new layer, mean 0 and variance 1.
    """
    from torch.nn.modules.batchnorm import _BatchNorm

    norms = [(layer, layer.momentum, layer.training) for layer in model.modules() if isinstance(layer, _BatchNorm)]
    for layer, _, _ in norms:
        layer.reset_running_stats()
        layer.train().momentum = None
    try:
        yield
    finally:
        for layer, momentum, training in norms:
            layer.train(training).momentum = momentum


def each(runs: Mapping[str, Mapping[int, Any]]) -> Iterator[tuple[str, int, Any]]:
    """(arm, seed, what was found) of every run."""
    return ((arm, seed, found) for arm, of_seeds in runs.items() for seed, found in of_seeds.items())


def write(
    rows: Sequence[NamedTuple] | Sequence[Mapping[str, Any]], path: Path, digits: str = ".6g", nan: str = "nan"
) -> Path:
    """Write rows of one kind to a CSV, floats with these digits."""
    records = [row if isinstance(row, Mapping) else row._asdict() for row in rows]
    path.parent.mkdir(parents=True, exist_ok=True)
    begun = path.with_name(f"{path.name}.{os.getpid()}")  # whole, or not there: the command may be stopped at any time
    try:
        with begun.open("w", newline="") as file:
            writer = csv.DictWriter(file, list(records[0]), lineterminator="\n")
            writer.writeheader()
            writer.writerows({name: _cell(value, digits, nan) for name, value in row.items()} for row in records)
        return begun.replace(path)
    except OSError:
        begun.unlink(missing_ok=True)
        raise


def read(path: Path, kind: type[_Row]) -> list[_Row]:
    """Read rows that :func:`write` wrote, of this kind. End the command if the file is damaged or has none."""
    try:
        with path.open(newline="") as file:
            rows = [
                kind(*(convert(cells[name]) for name, convert in kind.__annotations__.items()))
                for cells in csv.DictReader(file)
            ]
    except (KeyError, OSError, TypeError, ValueError, csv.Error) as error:
        sys.exit(f"{path} cannot be read ({type(error).__name__}: {error}). Remove it, and make it again.")
    if not rows:
        names = ", ".join(kind.__annotations__)
        sys.exit(f"Expected rows of {names} in {path}, but it has none. Remove it, and make it again.")
    return rows


def _cell(value: object, digits: str, nan: str) -> object:
    if not isinstance(value, float):
        return value
    return nan if math.isnan(value) else f"{value:{digits}}"


def save(figure: Any, path: Path) -> Path:
    """Write a figure as a PNG."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path


def markdown(header: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    """Make a Markdown table."""
    whole = [header, ["---"] * len(header), *lines]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in whole)


def replace_tables(path: Path, tables: Mapping[Sequence[str], Sequence[Sequence[str | None]]], *, write: bool) -> int:
    """Compare tables of a Markdown file with these, by their headers, and write them there if `write` is true.

    Args:
        path: The Markdown file.
        tables: Header -> lines, of cells. None leaves a cell as it is.
        write: Whether to change the file.

    Returns:
        The number of tables that are otherwise in the file, and still are.
    """
    text, others = path.read_text(), 0
    for header, lines in tables.items():
        first = markdown(header, []).partition("\n")[0]
        if (start := text.find(f"{first}\n")) < 0:
            raise ValueError(f"Expected a table in {path} with the first line {first!r}, but got none.")
        end = start
        while text[end : end + 1] == "|":
            end = text.index("\n", end) + 1
        old = text[start:end].splitlines()
        if any(None in cells for cells in lines):
            lines = [_filled(cells, line) for cells, line in zip(lines, old[2:], strict=True)]
        made = markdown(header, lines) + "\n"
        if text[start:end] != made:
            changed = [line for line in made.splitlines() if line not in old]
            print(f"{path.name}: {'written' if write else 'otherwise in the file'}:", first, *changed, sep="\n")
            text, others = text[:start] + made + text[end:], others + 1
    if write and others:
        path.write_text(text)
    return 0 if write else others


def readme_command(description: str | None, readme: Path, tables: Mapping[Sequence[str], Any]) -> None:
    """The command line of a script that compares a README's tables, or writes them: ends with the number of others."""
    arguments = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("--write", action="store_true", help="put the tables into the README")
    sys.exit(replace_tables(readme, tables, write=arguments.parse_args().write))


def _filled(cells: Sequence[str | None], line: str) -> list[str]:
    """Cells of a table's line, with those of the line in the file in place of None."""
    there = line.strip("| ").split(" | ")
    return [old if cell is None else cell for cell, old in zip(cells, there, strict=True)]


def spread_note(count: int) -> str:
    """The note of a figure on what a line and its band are."""
    return "Mean and standard deviation over seeds." if count > 1 else "One seed."


def over_seeds(values: Sequence[float], digits: str, spread_digits: str = "") -> str:
    """Mean and standard deviation as text; no deviation of one value, and no text of none, or of NaN alone."""
    found = np.asarray(values)
    if not len(found) or np.isnan(found).all():
        return ""
    return f"{found.mean():z{digits}}" + (f" ± {found.std(ddof=1):{spread_digits or digits}}" if len(found) > 1 else "")
