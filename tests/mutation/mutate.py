"""Change one thing in the package's source, run the tests that reach it, and note whether one of them fails.

mutmut and cosmic-ray are the known tools for this; neither was measured here. This tool exists because importing torch
and lightning takes longer (8 s and more) than the tests that a mutant needs, so they are imported once: each mutant
runs in a forked child that loads the changed source in place of the file, which stays as it is.

First, every test file of a room runs unchanged, and notes the processor time of each test and the functions that it
calls. This baseline is kept in the folder for temporary files. A test file runs unchanged again when the file itself
has changed, or a file of `ROOMS` one of whose functions it called. After other changes the baseline may be stale: of a
fixture in another file, of an imported constant, of the package outside of `ROOMS`, or of a library. Then a mutant may
miss a test that calls its function by now, and counts as survived. The script prints where the baseline is, and
deleting that file makes the baseline anew.

A mutant then meets the tests that call its function, the cheap ones first: those of the file that mirrors the
module, its doctests, and then those of the other files of `ROOMS`. A failed test, an error or a test that takes 5 times
as long (and 10 s more) kills the mutant. Tests of two processes are left out, since the second one has the source as
it is, and so are tests of more than `--longest` seconds. Of other files, the cheapest tests run, `--wider` seconds
in all.

    python tests/mutation/mutate.py --rooms losses --share 0.1 --seed 0 --minutes 10
    python tests/mutation/mutate.py --changed main

Results are appended to results.csv; a mutant that is there is not run again, but for survivors with `--again`. The
file survivors.csv holds the mutants that no test can kill, with the reason.
"""

import argparse
import csv
import gc
import hashlib
import json
import math
import multiprocessing
import os
import re
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable
from contextlib import suppress
from importlib import import_module
from importlib.machinery import SourceFileLoader
from itertools import accumulate
from multiprocessing.connection import wait
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(HERE.parent))

from mutation.mutants import Mutant, mutants, mutated  # noqa: E402

PACKAGE = "lightning_ssl_geometry"
ROOMS = {  # the folder of the sources, and the tests that may kill its mutants
    "functional": ("tests/functional", "tests/losses", "tests/test_losses.py", "tests/test_precision.py"),
    "losses": ("tests/losses", "tests/test_losses.py", "tests/functional", "tests/methods"),
    "nn/equivariant": (
        *("tests/nn", "tests/methods/test_hssl.py", "tests/functional/test_group_action.py"),
        "tests/functional/test_orientation.py",
    ),
    "methods": (
        *("tests/methods", "tests/test_contract.py", "tests/test_declarations.py"),
        *("tests/test_hostile_checkpoints.py", "tests/functional/test_orientation.py"),
    ),
}
IMPORTED = "torch lightning.pytorch.cli torchmetrics torchvision sklearn.datasets scipy.stats pandas hypothesis "
IMPORTED += "matplotlib.pyplot jsonargparse lightly.loss timm sklearn.linear_model sklearn.neighbors scipy.integrate"
OPTIONS = ["-x", "-q", "-p", "no:cacheprovider", "-p", "no:xdist"]
RESULTS, EQUIVALENT = HERE / "results.csv", HERE / "survivors.csv"
GRACE = 10  # seconds of the processor that a test may take in any case
COLUMNS = ["module", "line", "column", "before", "after", "outcome", "test", "seconds", "date", "key"]


class Recorder:
    """Notes the processor time of each test, and the package's functions that it calls."""

    def __init__(self, longest: float = math.inf) -> None:
        self.tests: dict[str, tuple[float, list[str]]] = {}
        self.failed: list[str] = []

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        calls: set[tuple[str, int]] = set()
        start = time.process_time()
        sys.settrace(lambda frame, *_: calls.add((frame.f_code.co_filename, frame.f_code.co_firstlineno)))
        try:
            return (yield)
        finally:
            sys.settrace(None)
            own = [f"{path.removeprefix(f'{ROOT}/')}:{line}" for path, line in calls if f"/{PACKAGE}/" in path]
            self.tests[item.nodeid] = (time.process_time() - start, own)

    def pytest_collection_modifyitems(self, items):
        items[:] = [item for item in items if "two_processes" not in getattr(item, "fixturenames", ())]

    def pytest_runtest_logreport(self, report):
        if report.failed:
            self.failed.append(report.nodeid)


class Killer:
    """Runs the chosen tests, the cheap ones first, and notes the first that fails."""

    def __init__(self, seconds: dict[str, float], note: Path) -> None:
        self.seconds, self.note = seconds, note

    def pytest_collection_modifyitems(self, items):
        items[:] = sorted((i for i in items if i.nodeid in self.seconds), key=lambda item: self.seconds[item.nodeid])

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item):
        self.note.write_text(item.nodeid)
        signal.setitimer(signal.ITIMER_PROF, GRACE + 5 * self.seconds[item.nodeid])
        try:
            return (yield)
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0)

    def pytest_collectreport(self, report):
        if report.failed:
            self.note.write_text(f"import of {report.nodeid}")


def run_pytest(plugin: object, files: Iterable[str], folder: Path) -> int:
    """Run test files in this process, which is a child of its own; nothing is printed."""
    sys.dont_write_bytecode = False
    gc.unfreeze = lambda: None  # what conftest.py calls at the end: pytest would then collect all imports, for 0.8 s
    nowhere = os.open(folder / "output", os.O_WRONLY | os.O_CREAT)
    os.dup2(nowhere, 1)
    os.dup2(nowhere, 2)
    return int(pytest.main([*OPTIONS, f"--basetemp={folder / 'pytest'}", *files], plugins=[plugin]))


def observed(test_file: str, folder: Path) -> None:
    """The child that runs a test file unchanged."""
    recorder = Recorder()
    run_pytest(recorder, [test_file], folder)
    (folder / "answer").write_text(json.dumps({"tests": recorder.tests, "failed": recorder.failed}))


def attacked(mutant: Mutant, stages: list[dict[str, float]], folder: Path) -> None:
    """The child that runs the tests on a mutant."""
    os.setsid()
    resource.setrlimit(resource.RLIMIT_CPU, 2 * (int(60 + 5 * sum(sum(each.values()) for each in stages)),))
    path = ROOT / mutant.module
    name = mutant.module.removesuffix(".py").replace("/", ".")
    original = SourceFileLoader.get_code

    def get_code(loader, fullname):
        if fullname == name:
            return compile(mutated(path.read_text(), mutant), str(path), "exec")
        return original(loader, fullname)

    SourceFileLoader.get_code = get_code
    (folder / "note").write_text("import")
    try:
        import_module(name)  # before pytest, which loads a file with doctests from the disk
    except Exception:
        (folder / "answer").write_text("killed")
        return
    for seconds in stages:
        code = run_pytest(Killer(seconds, folder / "note"), sorted({test.split("::")[0] for test in seconds}), folder)
        if code not in (0, 5):
            (folder / "answer").write_text("killed")
            return
    (folder / "answer").write_text("survived")


def baseline(rooms: list[str], cache: Path, modules: list[str]) -> dict[str, dict]:
    """For each test file: the seconds and the called functions of its tests, read from the cache where they hold."""
    known = json.loads(cache.read_text()) if cache.exists() else {}
    files = sorted({str(p.relative_to(ROOT)) for room in rooms for each in ROOMS[room] for p in test_files(each)})
    found = {}
    for file in [*files, *modules]:
        if file not in known or known[file]["key"] != fingerprint(file, known[file]["tests"]):
            with tempfile.TemporaryDirectory() as name:
                child = multiprocessing.get_context("fork").Process(target=observed, args=(file, Path(name)))
                child.start()
                child.join()
                if not (Path(name) / "answer").exists():
                    sys.exit(f"{file} fails without a change:\n{(Path(name) / 'output').read_text()[-2000:]}")
                answer = json.loads((Path(name) / "answer").read_text())
            if answer["failed"]:
                sys.exit(f"Expected tests that pass without a change, but these fail: {answer['failed']}.")
            known[file] = {"key": fingerprint(file, answer["tests"]), "tests": answer["tests"]}
            cache.write_text(json.dumps(known))
        found[file] = known[file]["tests"]
    return found


def fingerprint(file: str, tests: dict[str, tuple[float, list[str]]]) -> str:
    """The digest of a test file, and of the files of `ROOMS` whose functions its tests called."""
    called = {call.rpartition(":")[0] for _, calls in tests.values() for call in calls}
    rooms = tuple(f"{PACKAGE}/{room}/" for room in ROOMS)
    paths = [file, *sorted(path for path in called if path.startswith(rooms))]
    contents = {path: (ROOT / path).read_text() for path in paths if (ROOT / path).exists()}
    return hashlib.sha256(json.dumps(contents).encode()).hexdigest()


def test_files(name: str) -> list[Path]:
    """The test files of a folder, or a file itself."""
    path = ROOT / name
    return [path] if path.is_file() else sorted(path.rglob("test_*.py"))


def chosen(mutant: Mutant, room: str, known: dict[str, dict], longest: float, wider: float) -> list[dict[str, float]]:
    """The tests for a mutant: first the doctests and the file that mirrors the module, then others that reach it."""
    allowed = {mutant.module, *(str(path.relative_to(ROOT)) for each in ROOMS[room] for path in test_files(each))}
    target = f"{mutant.module}:{mutant.scope}" if mutant.scope else f"{mutant.module}:"
    reach: dict[str, dict[str, float]] = {}
    for file in sorted(allowed & set(known)):
        for test, (seconds, calls) in known[file].items():
            if seconds <= longest and (any(c == target or (not mutant.scope and c.startswith(target)) for c in calls)):
                reach.setdefault(file, {})[test] = seconds
    stem = Path(mutant.module).stem
    first = {f for f in reach if stem in Path(f).stem} - {mutant.module} or set(
        sorted(reach, key=lambda f: -len(reach[f]))[:1]
    )
    stages = [{}, {}]
    for file, tests in reach.items():
        stages[file not in first | {mutant.module}].update(tests)
    if not mutant.scope:  # a constant may be imported elsewhere
        every = {t: s for file in allowed & set(known) for t, (s, _) in known[file].items() if s <= longest}
        stages.append({test: s for test, s in every.items() if test not in stages[0] | stages[1]})
    return [stage for stage in (stages[0], *(cheapest(stage, wider) for stage in stages[1:])) if stage]


def cheapest(tests: dict[str, float], most: float) -> dict[str, float]:
    """The cheap tests, so many that all together take at most `most` seconds."""
    ordered = sorted(tests.items(), key=lambda pair: pair[1])
    return {
        test: s for (test, s), total in zip(ordered, accumulate(s for _, s in ordered), strict=True) if total <= most
    }


class Results:
    """The file of results: the last row of a mutant holds."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.rows: dict[tuple[str, str], dict[str, str]] = {}
        if path.exists():
            with path.open(newline="") as file:
                self.rows = {(row["module"], row["key"]): row for row in csv.DictReader(file)}

    def add(self, mutant: Mutant, outcome: str, test: str, seconds: float) -> None:
        """Append a row."""
        row = {name: str(getattr(mutant, name, "")) for name in COLUMNS}
        row |= {"outcome": outcome, "test": test, "seconds": f"{seconds:.1f}", "date": time.strftime("%Y-%m-%d")}
        new = not self.path.exists()
        with self.path.open("a", newline="") as file:
            writer = csv.DictWriter(file, COLUMNS, lineterminator="\n")
            writer.writerows([*([dict(zip(COLUMNS, COLUMNS, strict=True))] if new else []), row])
        self.rows[mutant.module, mutant.key] = row


def equivalent() -> dict[tuple[str, str], dict[str, str]]:
    """The mutants that no test can kill, with the reason."""
    with EQUIVALENT.open(newline="") as file:
        return {(row["module"], row["key"]): row for row in csv.DictReader(file)}


def every_mutant(rooms: list[str]) -> dict[str, list[Mutant]]:
    """The mutants of each room, but for the file whose tests need the extra `escnn`."""
    paths = {room: [p for p in sorted((ROOT / PACKAGE / room).rglob("*.py")) if p.stem != "escnn"] for room in rooms}
    return {room: [m for p in found for m in mutants(p, str(p.relative_to(ROOT)))] for room, found in paths.items()}


def place(mutant: Mutant, seed: int) -> float:
    """A mutant's place in [0, 1), as if drawn: the sample of a share holds the places below it."""
    digest = hashlib.sha256(f"{seed} {mutant.module} {mutant.key}".encode()).digest()
    return int.from_bytes(digest[:8]) / 2**64


def changed_lines(revision: str) -> set[tuple[str, int]]:
    """The lines of the package that differ from a revision."""
    command = ["git", "diff", "-U0", "--no-color", "--relative", revision, "--", PACKAGE]
    shown = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout
    found, path = set(), ""
    for line in shown.splitlines():
        if line.startswith("+++ "):
            path = line[4:].removeprefix("b/")
        elif match := re.match(r"@@ \S+ \+(\d+)(?:,(\d+))? @@", line):
            start, count = int(match[1]), int(match[2] or 1)
            found |= {(path, each) for each in range(start, start + count)}
    return found


def wilson(hits: int, total: int, z: float = 1.959964) -> tuple[float, float]:
    """The 95% interval of Wilson (1927) for a share."""
    if not total:
        return 0.0, 1.0
    share, scale = hits / total, 1 + z * z / total
    middle = (share + z * z / (2 * total)) / scale
    half = z / scale * math.sqrt(share * (1 - share) / total + z * z / (4 * total * total))
    return max(0.0, middle - half), min(1.0, middle + half)


def report(found: dict[str, list[Mutant]], results: Results) -> str:
    """A table by room, and the survivors that have no reason."""
    known = equivalent()
    lines = ["| room | mutants | run | equivalent | killed | share (95%) |", "| --- | --- | --- | --- | --- | --- |"]
    left = []
    for room, each in found.items():
        run = [m for m in each if (m.module, m.key) in results.rows]
        counted = [m for m in run if (m.module, m.key) not in known]
        alive = [m for m in counted if results.rows[m.module, m.key]["outcome"] == "survived"]
        hits, total = len(counted) - len(alive), len(counted)
        low, high = wilson(hits, total)
        share = f"{hits / max(total, 1):.1%} ({low:.1%} to {high:.1%})"
        lines.append(f"| `{room}` | {len(each)} | {len(run)} | {len(run) - total} | {hits} | {share} |")
        left += [f"{m.module}:{m.line}: {m.before} -> {m.after}    [{m.key}]  {m.text}" for m in alive]
    return "\n".join([*lines, "", *left])


def attack(todo: list[tuple[str, Mutant]], known: dict, results: Results, options: argparse.Namespace) -> None:
    """Run mutants, `--jobs` at a time, until all are done or the time is over."""
    start, todo = time.monotonic(), todo[::-1]
    running: dict[int, tuple] = {}
    fork = multiprocessing.get_context("fork")
    while todo or running:
        while todo and len(running) < options.jobs and time.monotonic() - start < 60 * options.minutes:
            room, mutant = todo.pop()
            stages = chosen(mutant, room, known, options.longest, wider=options.wider)
            folder = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
            child = fork.Process(target=attacked, args=(mutant, stages, Path(folder.name)))
            child.start()
            limit = time.monotonic() + 300 + 20 * sum(sum(each.values()) for each in stages)
            running[child.sentinel] = (child, mutant, folder, time.monotonic(), limit)
        if not running:
            return
        done = set(wait(list(running), timeout=1))
        for sentinel, (child, mutant, folder, began, limit) in list(running.items()):
            if sentinel in done or time.monotonic() > limit:
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                child.join()
                answer, note = Path(folder.name) / "answer", Path(folder.name) / "note"
                outcome = answer.read_text() if answer.exists() else "timeout"
                test = note.read_text() if note.exists() and outcome != "survived" else ""
                results.add(mutant, outcome, test, time.monotonic() - began)
                print(f"{outcome:8} {mutant.module}:{mutant.line}  {mutant.before} -> {mutant.after}", flush=True)
                folder.cleanup()
                del running[sentinel]


def main(words: list[str] | None = None) -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--rooms", nargs="+", choices=ROOMS, default=list(ROOMS))
    parser.add_argument("--only", default="", help="a part of the modules' paths")
    parser.add_argument("--constants", action="store_true", help="only numbers")
    parser.add_argument("--share", type=float, default=1.0, help="the share of each room's mutants to run")
    parser.add_argument("--seed", type=int, default=0, help="seed of the sample")
    parser.add_argument("--changed", metavar="REV", help="only lines that differ from this revision")
    parser.add_argument("--again", action="store_true", help="run those that survived once more")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--minutes", type=float, default=math.inf, help="start no mutant after this time")
    parser.add_argument("--longest", type=float, default=10.0, help="leave out tests of more seconds")
    parser.add_argument("--wider", type=float, default=15.0, help="the most seconds of tests in files of other modules")
    parser.add_argument("--results", type=Path, default=RESULTS)
    parser.add_argument("--report", action="store_true", help="run nothing, show the table")
    options = parser.parse_args(words)
    results, found = Results(options.results), every_mutant(options.rooms)
    lines = changed_lines(options.changed) if options.changed else None
    excused = equivalent()

    def wanted(mutant: Mutant) -> bool:
        row = results.rows.get((mutant.module, mutant.key))
        new = row is None or (options.again and row["outcome"] == "survived")
        return (
            new
            and (mutant.module, mutant.key) not in excused
            and options.only in mutant.module
            and (not options.constants or re.fullmatch(r"[\d.e+-]+", mutant.before) is not None)
            and (lines is None or (mutant.module, mutant.line) in lines)
            and place(mutant, options.seed) < options.share
        )

    todo = [(room, mutant) for room, each in found.items() for mutant in each if wanted(mutant)]
    todo.sort(key=lambda pair: (options.rooms.index(pair[0]), place(pair[1], options.seed)))  # any end leaves a sample
    if todo and not options.report:
        os.chdir(ROOT)
        os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"  # they would warn of modules that are imported already
        for name in IMPORTED.split():
            with suppress(ImportError):
                import_module(name)
        gc.collect()
        gc.freeze()  # else the children's collections copy the memory of all that is imported
        modules = sorted({mutant.module for _, mutant in todo})
        cache = Path(tempfile.gettempdir()) / f"mutation_{hashlib.sha256(str(ROOT).encode()).hexdigest()[:8]}.json"
        print(f"baseline: {cache}", flush=True)
        known = baseline(sorted({room for room, _ in todo}), cache, modules)
        attack(todo, known, results, options)
    print(report(found, results))


if __name__ == "__main__":
    main()
