"""How processor time and memory grow with the size of the problem, beside what the formulas say.

    OMP_NUM_THREADS=1 python benchmarks/growth.py [--only loss page] [--rounds 3]

Each operation runs at four sizes, each a doubling of the one before, in a process of its own. The time is that of the
processors (so other work on the machine disturbs it little), the least of the rounds after a first one on a small
input. The memory is what the operation adds to the largest resident memory of the process (Linux). The exponent is the
slope of a line through the logarithms of the three largest sizes; below a size where constants count, it is lower than
the formula's.
"""

import argparse
import csv
import json
import math
import resource
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

import torch
from machine import machine
from torch import nn

from lightning_ssl_geometry.functional import neural_kernel_trace
from lightning_ssl_geometry.functional.knn import knn_predict
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.measuring import GeometryLoop
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.report import write_comparison, write_report
from lightning_ssl_geometry.views import CropFamily

SMOKE = Path(__file__).parents[1] / "examples" / "simclr" / "smoke.yaml"


class Operation(NamedTuple):
    """What is measured.

    Attributes:
        sizes: Four sizes, each twice the one before.
        of: What the size counts.
        time: The exponent of the time that the formula has.
        memory: The same of the memory.
        prepare: Makes the call from a size and a folder. Only the call is measured.
    """

    sizes: tuple[int, ...]
    of: str
    time: str
    memory: str
    prepare: Callable[[int, Path], Callable[[], object]]


def doubled(first: int) -> tuple[int, ...]:
    return tuple(first << place for place in range(4))


def loss(n: int, _: Path) -> Callable[[], object]:
    z1, z2 = (torch.randn(n, 128, requires_grad=True) for _ in range(2))
    return lambda: InfoNCELoss(temperature=0.5)(z1, z2).backward()


def monitor_rows(n: int, _: Path) -> Callable[[], object]:
    return readout(n, 256)


def monitor_dimensions(d: int, _: Path) -> Callable[[], object]:
    return readout(2048, d)


def readout(n: int, d: int) -> Callable[[], object]:
    """Observe n samples in batches, and compute the standard diagnostics of a linear projector."""
    model = nn.ModuleDict({"backbone": nn.Identity(), "projector": nn.Linear(d, d // 4, bias=False)})
    h = torch.randn(2, n, d) * torch.logspace(0, -2, d)
    with torch.no_grad():
        z = model["projector"](h)
    index = torch.arange(n)

    def call() -> None:
        loop = GeometryLoop(model, None, every_n_steps=1)
        for rows in index.split(256):
            with loop.step() as seen, torch.no_grad():
                seen |= {"h": h[:, rows], "z": z[:, rows], "index": rows}
        loop.read_out()
        loop.close()

    return call


def knn(n: int, _: Path) -> Callable[[], object]:
    h, bank, label = torch.randn(1024, 256), torch.randn(n, 256), torch.arange(n) % 10
    return lambda: knn_predict(h, bank, label, 10)


def kernel(n: int, _: Path) -> Callable[[], object]:
    network, x = nn.Sequential(SmallCNN(in_channels=3, width=8), nn.Linear(64, 4)).eval(), torch.randn(n, 3, 16, 16)
    return lambda: neural_kernel_trace(network, x)


def crops(n: int, _: Path) -> Callable[[], object]:
    family, image = CropFamily(), torch.randn(n, 1, 84, 84)
    network = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(8 * 81, 16))
    weight = torch.full((1, n, 289), 1 / 289)

    def call() -> None:
        with torch.no_grad():
            family.integrate(network, image, weight)

    return call


def page(epochs: int, folder: Path) -> Callable[[], object]:
    run = longer(folder, epochs)
    return lambda: write_report(run, folder / "page.html")


def comparison(runs: int, folder: Path) -> Callable[[], object]:
    run = longer(folder, 20)
    groups = {f"group {place}": [run] for place in range(runs)}
    return lambda: write_comparison(groups, folder / "comparison.html")


def longer(folder: Path, epochs: int) -> Path:
    """A run of so many epochs: a short fit, whose last epoch is repeated in its tables."""
    made = [sys.executable, "-m", "lightning_ssl_geometry", "fit", "--config", str(SMOKE)]
    subprocess.run(made, cwd=folder, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    run = folder / "runs" / "simclr_smoke" / "version_0"
    for path in (run / "metrics.csv", *(run / "geometry").rglob("*.csv")):
        repeat(path, epochs)
    return run


def repeat(path: Path, epochs: int) -> None:
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    last = [row for row in rows if row["epoch"] == "1"]
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(row for row in rows if row["epoch"] in ("0", "1"))
        for more in range(1, epochs - 1):
            for row in last:
                writer.writerow(row | {"epoch": 1 + more, "step": int(row["step"]) + 5 * more})


OPERATIONS = {
    "loss": Operation(doubled(1024), "pairs", "2", "1", loss),
    "monitor, rows": Operation(doubled(2048), "samples", "1", "0", monitor_rows),
    "monitor, width": Operation(doubled(128), "dimensions", "2 to 3", "2", monitor_dimensions),
    "kNN": Operation(doubled(8192), "rows of the bank", "1", "1", knn),
    "neural kernel": Operation(doubled(32), "samples", "1 to 2", "1 to 2", kernel),
    "289 crops": Operation(doubled(64), "images", "1", "0", crops),
    "page": Operation(doubled(50), "epochs", "1", "1", page),
    "comparison": Operation(doubled(2), "runs", "1", "1", comparison),
}


@contextmanager
def quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def measure(name: str, size: int, rounds: int) -> tuple[float, float]:
    """Seconds of processor time, and MiB, in this process."""
    operation = OPERATIONS[name]
    with tempfile.TemporaryDirectory() as folder, quiet():
        for place in ("small", "whole"):
            (Path(folder) / place).mkdir()
        operation.prepare(operation.sizes[0] // 2, Path(folder) / "small")()
        call = operation.prepare(size, Path(folder) / "whole")
        before, seconds = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, []
        for _ in range(rounds):
            start = time.process_time()
            call()
            seconds.append(time.process_time() - start)
        return min(seconds), (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 2**10


def exponent(sizes: tuple[int, ...], values: list[float]) -> str:
    """The slope in the logarithms of the three largest sizes; none if a value is 0."""
    if min(values[1:]) <= 0:
        return ""
    x, y = ([math.log(value) for value in each[1:]] for each in (sizes, values))
    mean = sum(x) / 3
    return f"{sum((a - mean) * b for a, b in zip(x, y, strict=True)) / sum((a - mean) ** 2 for a in x):.2f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--only", nargs="+", choices=list(OPERATIONS), default=list(OPERATIONS))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--one", nargs=2, help=argparse.SUPPRESS)  # of a child: operation and size
    asked = parser.parse_args()
    if asked.rounds < 1:
        parser.error(f"argument --rounds: Expected a number >= 1, but got {asked.rounds}.")
    if asked.one:
        print(json.dumps(measure(asked.one[0], int(asked.one[1]), asked.rounds)))
        return
    print(machine())
    print("| | size | seconds of a processor | exponent (formula) | added, MiB | exponent (formula) |")
    print("| --- | --- | --- | ---: | --- | ---: |")
    for name in asked.only:
        operation, found = OPERATIONS[name], []
        for size in operation.sizes:
            words = [sys.executable, __file__, "--rounds", str(asked.rounds), "--one", name, str(size)]
            found.append(json.loads(subprocess.check_output(words, text=True).splitlines()[-1]))
        seconds, memory = (list(values) for values in zip(*found, strict=True))
        cells = [", ".join(map(str, operation.sizes)) + f" {operation.of}"]
        cells += [
            ", ".join(f"{value:.2g}" for value in seconds),
            f"{exponent(operation.sizes, seconds)} ({operation.time})",
        ]
        cells += [
            ", ".join(f"{value:.0f}" for value in memory),
            f"{exponent(operation.sizes, memory)} ({operation.memory})",
        ]
        print(f"| {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
