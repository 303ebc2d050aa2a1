"""What `python` would run, in processes that are forked after the imports: in a new interpreter they take seconds.

The processes are forked from one that only imports: it has no threads, and nothing that the tests have changed. So a
fit there is as one in a process of its own. What the interpreter does before the imports and at its end needs a real
one.
"""

import multiprocessing
import os
import runpy
import signal
import sys
import warnings
from pathlib import Path
from subprocess import CompletedProcess
from tempfile import TemporaryDirectory

SERVER = multiprocessing.get_context("forkserver")
ROOMS = ("callbacks", "data", "diagnose.command", "methods", "report.page", "report.svg", "start")
OTHERS = ("rich.progress", "sklearn.linear_model", "sklearn.datasets", "timm.optim", "torchvision.transforms.v2")
SERVER.set_forkserver_preload([*OTHERS, *(f"lightning_ssl_geometry.{room}" for room in ROOMS)])
COMMAND = ["-m", "lightning_ssl_geometry"]


def start(words, folder=".", *, stdout=os.devnull, stderr=os.devnull, environment=None):
    """Start `python *words`, with "-m" or a script; what it prints is added to files."""
    streams = [os.path.abspath(path) for path in (stdout, stderr)]
    process = SERVER.Process(target=_run, args=(list(words), folder, streams, dict(environment or os.environ)))
    process.start()
    return process


def run(words, folder=".", environment=None):
    """Run `python *words` to its end, like `subprocess.run` that captures text."""
    with TemporaryDirectory() as written:
        stdout, stderr = (Path(written, name) for name in ("stdout", "stderr"))
        process = start(words, folder, stdout=stdout, stderr=stderr, environment=environment)
        process.join()
        return CompletedProcess(words, process.exitcode, *(path.read_text() for path in (stdout, stderr)))


def run_into_a_file(words, *, stdout, stderr, env, pass_fds=()):
    """In the place of `subprocess.run` in examples/recipe.py."""
    process = start(words[1:], stdout=stdout.name, stderr=stdout.name, environment=env)
    process.join()
    return CompletedProcess(words, process.exitcode)


def _run(words, folder, streams, environment):
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    for number, path in enumerate(streams, 1):
        os.dup2(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND), number)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    warnings.simplefilter("ignore")
    if words[0] == "-m":
        sys.path.insert(0, os.getcwd())
        sys.argv = words[1:]
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        sys.path.insert(0, os.path.dirname(words[0]))
        sys.argv = words
        runpy.run_path(words[0], run_name="__main__")
