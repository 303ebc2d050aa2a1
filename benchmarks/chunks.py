"""A step of SimCLR with `chunk_size`: its time and the memory of its process, beside a step of the whole batch.

    python benchmarks/chunks.py --batch 1024 --chunks 64 256

Each row runs in a process of its own, in turns. Memory is the most that the process held in a step, less what it held
before: data, weights and the program itself do not count.
"""

import argparse
import multiprocessing
import resource
import time

import torch
from machine import machine

from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN


def step(chunk: int | None, batch: int) -> tuple[float, float]:
    """Seconds of the second step, and the memory of both in MiB."""
    torch.manual_seed(0)
    module = SimCLRModule(SmallCNN(3, 32, "group"), MLPProjector(256, 256, 64), chunk_size=chunk)
    given = {"views": tuple(torch.rand(2, batch, 3, 32, 32))}
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        start = time.perf_counter()
        module.step(given)["loss"].backward()
        module.zero_grad()
        seconds = time.perf_counter() - start
    return seconds, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) / 1024


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--batch", type=int, default=1024, help="images, with two views each")
    parser.add_argument("--chunks", type=int, nargs="+", default=[64, 256])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    context, arms = multiprocessing.get_context("spawn"), [None, *options.chunks]
    found: dict[int | None, list[tuple[float, float]]] = {arm: [] for arm in arms}
    for _ in range(options.rounds):
        for arm in arms:
            with context.Pool(1) as pool:
                found[arm].append(pool.apply(step, (arm, options.batch)))
    print(machine())
    print(f"Batch of {options.batch} images, SmallCNN of width 32 with group norm, median of {options.rounds}:\n")
    print("| rows of a chunk | memory, MiB | time / whole batch |\n| --- | --- | --- |")
    for arm in arms:
        memory = sorted(row[1] for row in found[arm])[options.rounds // 2]
        ratios = sorted(row[0] / whole[0] for row, whole in zip(found[arm], found[None], strict=True))
        print(f"| {arm or 'whole batch'} | {memory:.0f} | {ratios[options.rounds // 2]:.2f} |")


if __name__ == "__main__":
    main()
