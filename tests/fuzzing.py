"""Seeded cases of bad input, each in a child process that is forked after the imports."""

import os
import random
import signal
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import NamedTuple

import torch

COUNT = int(os.environ.get("FUZZ_COUNT", "20"))
SEED = int(os.environ.get("FUZZ_SEED", "0"))
_ONLY = os.environ.get("FUZZ_CASE")


def numbers(count=COUNT):
    """The numbers of the cases: those below `count`, or the one that FUZZ_CASE names."""
    return range(count) if _ONLY is None else [int(_ONLY)]


def chance(*words):
    """A random generator for one case: the same for the same words and FUZZ_SEED."""
    return random.Random(":".join(map(str, (SEED, *words))))


class Outcome(NamedTuple):
    """How a child ended: its status (negative: the signal), and what it printed."""

    status: int | str
    out: str
    err: str


def outcome(function, *arguments, seconds=60):
    """Call a function in a forked child. The status is "hangs" if it takes longer than `seconds`."""
    with tempfile.TemporaryDirectory() as folder:
        out, err = Path(folder) / "out", Path(folder) / "err"
        pid = os.fork()
        if pid == 0:
            _in_child(function, arguments, out, err)
        status = _waited(pid, seconds)
        said = [each.read_text(errors="replace") if each.exists() else "" for each in (out, err)]
    return Outcome(status, *said)


def _in_child(function, arguments, out, err):
    status = 1
    try:
        sys.stdout, sys.stderr = out.open("w"), err.open("w")
        for stream, number in ((sys.stdout, 1), (sys.stderr, 2)):
            os.dup2(stream.fileno(), number)
        warnings.resetwarnings()
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        try:
            function(*arguments)
            status = 0
        except SystemExit as ended:
            status = ended.code if isinstance(ended.code, int) else int(ended.code is not None)
        except BaseException:
            traceback.print_exc()
        sys.stdout.flush()
        sys.stderr.flush()
    finally:
        os._exit(status)


def _waited(pid, seconds):
    end, pause = time.monotonic() + seconds, 0.002
    while time.monotonic() < end:
        found, status = os.waitpid(pid, os.WNOHANG)
        if found:
            return os.waitstatus_to_exitcode(status)
        time.sleep(pause)
        pause = min(0.05, 1.5 * pause)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    return "hangs"


class Failures:
    """The cases of one test that went wrong, each with the command that repeats it."""

    def __init__(self, request):
        self.test = request.node.nodeid
        self.told = []

    def add(self, number, change, reason):
        """Note one case: its number, what was changed, and what is wrong with the outcome."""
        again = f"FUZZ_SEED={SEED} FUZZ_CASE={number} pytest '{self.test}'"
        self.told.append(f"{again}\n  change: {change}\n  {reason}")

    def check(self):
        """Fail if there is any."""
        assert not self.told, f"{len(self.told)} cases:\n\n" + "\n\n".join(self.told)
