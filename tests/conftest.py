"""Fixtures for all tests: the real data's folder, and gloo processes that stay for the test run."""

import gc
import os
import pickle
from multiprocessing.connection import Listener
from pathlib import Path

import pytest
import ranks
import torch
from forked import SERVER
from hypothesis import Phase, settings

os.environ["JSONARGPARSE_DEPRECATION_WARNINGS"] = "off"  # Lightning's CLI calls what jsonargparse has deprecated
ALONE = ("cuda", "faults", "fuzz", "long")  # folders
_GPU = torch.cuda.is_available()
_ANY_TIME = {"deadline": None, "database": None, "phases": (Phase.explicit, Phase.generate, Phase.shrink)}
settings.register_profile("few", max_examples=12, derandomize=True, **_ANY_TIME)
settings.register_profile("many", max_examples=1000, **_ANY_TIME)
settings.load_profile("few")


def pytest_ignore_collect(collection_path, config):
    """What takes long runs alone: `pytest tests/cuda`, or `faults`, `fuzz` or `long`."""
    given = [str(word) for word in config.invocation_params.args]
    if collection_path.name in ALONE and not any(collection_path.name in word for word in given):
        return True
    return None


def pytest_collection_finish():
    """Spare the garbage collector what was imported, a million objects and more."""
    gc.collect()
    gc.freeze()


def pytest_unconfigure():
    """Give it back, or nanobind reports leaks at the interpreter's end."""
    gc.unfreeze()


@pytest.fixture(autouse=True)
def _seed():
    seeded = torch if _GPU else torch.default_generator  # without a GPU, torch keeps each call and its stack for later
    seeded.manual_seed(0)


@pytest.fixture(scope="session")
def real_data() -> Path:
    """The folder that holds MNIST/raw and cifar10-jpeg.tar.xz, named by SSL_GEOMETRY_DATA."""
    folder = os.environ.get("SSL_GEOMETRY_DATA")
    if not folder:
        pytest.skip("SSL_GEOMETRY_DATA names no folder with the real data")
    return Path(folder)


class Processes:
    """Call a module-level `function(rank, *args)` in all processes and return [result of rank 0, ...]."""

    def __init__(self, folder: Path, count: int = 2) -> None:
        self.listener = Listener(str(folder / "socket"), family="AF_UNIX")
        places = [str(folder / name) for name in ("socket", "store")]
        self.processes = [SERVER.Process(target=ranks.main, args=(rank, *places, count)) for rank in range(count)]
        for process in self.processes:
            process.start()
        self.listener._listener._socket.settimeout(300)  # a process that dies at its start must not be waited for
        connections = [self.listener.accept() for _ in range(count)]
        self.connections = [connection for _, connection in sorted((c.recv(), c) for c in connections)]

    def __call__(self, function, *args):
        task = pickle.dumps((function.__code__.co_filename, function.__name__, args))
        for connection in self.connections:
            connection.send_bytes(task)
        answers = []
        for rank, connection in enumerate(self.connections):
            if not connection.poll(120):
                self.stop()
                raise TimeoutError(f"rank {rank} did not answer within 120 s")
            answers.append(pickle.loads(connection.recv_bytes()))
        errors = [f"rank {rank}:\n{text}" for rank, (kind, text) in enumerate(answers) if kind == "error"]
        assert not errors, "\n".join(errors)
        return [result for _, result in answers]

    def stop(self) -> None:
        for process in self.processes:
            process.kill()
            process.join()
        self.listener.close()


@pytest.fixture(scope="session")
def two_processes(tmp_path_factory):
    """A pair of persistent gloo processes, started once per test run."""
    yield from _processes(tmp_path_factory, 2)


@pytest.fixture(scope="session")
def four_processes(tmp_path_factory):
    """Four persistent gloo processes, started once per test run."""
    yield from _processes(tmp_path_factory, 4)


def _processes(tmp_path_factory, count):
    started = Processes(tmp_path_factory.mktemp("ranks"), count)
    yield started
    started.stop()
