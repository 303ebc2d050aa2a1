"""Seconds and memory of the neural kernel of 512 samples, 8 outputs and 1e6 parameters, beside a loop and nngeometry.

    python benchmarks/neural_kernel.py [--threads 2] [--generic]
    python benchmarks/neural_kernel.py --samples 128    # fewer samples
    python benchmarks/neural_kernel.py --profile 128    # where the time goes, by layer, for 128 samples

Each contestant runs in a process of its own, so that its largest resident memory is its own. The peer is the loop over
samples with `torch.func.jacrev`, then products of the Jacobian's rows. The whole Jacobian takes 16 GB, so the peer
keeps 128 samples of it at a time and builds these again for each pair of blocks; only the first time is counted, as if
memory were no matter. nngeometry is left out where it is not installed; it gets batches of 128 samples. The resident
memory of a process that has imported torch and made network and samples is listed too: what a contestant adds is the
difference.
"""

import argparse
import itertools
import json
import resource
import subprocess
import sys
import tempfile
import time
from importlib.util import find_spec
from pathlib import Path
from unittest.mock import patch

import torch
from machine import machine
from torch import nn
from torch.func import functional_call, jacrev

from lightning_ssl_geometry.functional import neural_kernel, neural_kernel_trace
from lightning_ssl_geometry.functional.neural_kernel import chunking
from lightning_ssl_geometry.functional.neural_kernel.gram import cheapest

BLOCK = 128


def mlp():
    widths = [32, 700, 700, 700, 8]
    layers = [(nn.Linear(a, b), nn.ReLU()) for a, b in itertools.pairwise(widths)]
    return nn.Sequential(*[each for pair in layers for each in pair][:-1]), (32,)


def cnn():
    widths = [3, 64, 128, 256, 256]
    layers = [
        (nn.Conv2d(a, b, 3, stride=2, padding=1), nn.BatchNorm2d(b), nn.ReLU()) for a, b in itertools.pairwise(widths)
    ]
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(256, 8))
    return nn.Sequential(*[each for row in layers for each in row], *head).eval(), (3, 32, 32)


NETWORKS = {"MLP": mlp, "CNN": cnn}  # each gives a network and the shape of a sample


def made(which, samples):
    """The network with random weights, and random samples."""
    torch.manual_seed(0)
    network, shape = NETWORKS[which]()
    return network, torch.randn(samples, *shape)


def loop(network, x):
    """The kernel and the seconds that count."""
    values = {name: parameter.detach() for name, parameter in network.named_parameters()}
    jacobian = jacrev(lambda w, point: functional_call(network, w, (point[None],))[0])
    count = len(x)
    kernel, seconds = torch.zeros(8 * count, 8 * count), 0.0
    for i, rows in enumerate(x.split(BLOCK)):
        start = time.perf_counter()
        left = built(jacobian, values, rows)
        seconds += time.perf_counter() - start
        for j, columns in enumerate(x.split(BLOCK)[: i + 1]):
            right = left if j == i else built(jacobian, values, columns)
            start = time.perf_counter()
            for a, b, first, second in ((i, j, left, right), (j, i, right, left))[: 1 + (i != j)]:
                kernel[a * 8 * BLOCK : (a + 1) * 8 * BLOCK, b * 8 * BLOCK : (b + 1) * 8 * BLOCK] = first @ second.T
            seconds += time.perf_counter() - start
    return kernel.view(count, 8, count, 8).permute(0, 2, 1, 3), seconds


def built(jacobian, values, x):
    rows = torch.empty(len(x), 8, sum(value.numel() for value in values.values()))
    for row, point in zip(rows, x, strict=True):
        row.copy_(torch.cat([part.flatten(1) for part in jacobian(values, point).values()], 1))
    return rows.flatten(0, 1)


def nngeometry(network, x):
    from nngeometry.gram import GramMatrix
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(x), batch_size=BLOCK)
    return GramMatrix(network, loader).to_torch().permute(1, 3, 0, 2)


CONTESTANTS = {
    "loop": loop,
    "nngeometry": nngeometry,
    "neural_kernel": neural_kernel,
    "neural_kernel_trace": neural_kernel_trace,
    "neural_kernel_trace, generic": lambda network, x: neural_kernel_trace(network, x, by_layer=False),
    "nothing": lambda network, x: torch.zeros(1),
}


def contest(name, which, options, folder):
    """Run one contestant, keep its result, and say what it took."""
    torch.set_num_threads(options.threads)
    network, x = made(which, options.samples)
    neural_kernel_trace(nn.Linear(2, 2), torch.ones(2, 2))  # torch imports parts of itself at the first gradient
    start = time.perf_counter()
    found = CONTESTANTS[name](network, x)
    seconds = time.perf_counter() - start
    if isinstance(found, tuple):
        found, seconds = found
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    torch.save(found.clone(), folder / f"{name}.pt")
    parameters = sum(parameter.numel() for parameter in network.parameters())
    print(json.dumps({"seconds": seconds, "peak": peak, "parameters": parameters}))


def profile(which, samples, threads):
    """Print the multiplications and seconds of each layer's part, beside those of one product of matrices."""
    torch.set_num_threads(threads)
    network, x = made(which, samples)
    neural_kernel(network, x[:8])
    found, add = [], chunking.add_products

    def timed(kernel, left, right, room):
        start = time.perf_counter()
        add(kernel, left, right, room=room)
        seconds = time.perf_counter() - start
        way, _, cost = cheapest(left, right, room)
        (_, _, groups, places, out), inner = left.g.shape, left.a.shape[-1]
        by_gradients = cheapest(left, right, room=0)[2]  # the formula that needs no room
        found.append((inner, out, places, way, groups * cost / 2, groups * by_gradients / 2, seconds))

    with patch.object(chunking, "add_products", timed):
        start = time.perf_counter()
        neural_kernel(network, x)
        whole = time.perf_counter() - start
    square = torch.randn(2048, 2048)
    start = time.perf_counter()
    for _ in range(3):
        square @ square
    rate = 3 * 2048**3 / (time.perf_counter() - start)
    print("| inputs x outputs | positions | formula | multiplications | by gradients | share of the time |")
    print("| --- | ---: | --- | ---: | ---: | ---: |")
    for inner, out, places, way, cost, weights, seconds in found:
        share = f"{seconds / whole:.2f}"
        print(f"| {inner} x {out} | {places} | {way} | {cost:.1e} | {weights:.1e} | {share} |")
    products, floor = sum(row[6] for row in found), sum(row[4] for row in found) / rate
    by_gradients = sum(row[5] for row in found) / rate
    print(
        f"\n{whole:.2f} s, of which products {products:.2f} s. At the rate of a product of 2,048 x 2,048 matrices, the"
    )
    print(f"multiplications alone take {floor:.2f} s, and by gradients {by_gradients:.2f} s.")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--samples", type=int, default=512)
    parser.add_argument("--generic", action="store_true", help="the generic path too, which takes minutes")
    parser.add_argument("--networks", nargs="+", default=list(NETWORKS), choices=NETWORKS)
    parser.add_argument("--profile", type=int, metavar="SAMPLES", help="only say where the time goes")
    parser.add_argument("--contestant", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.contestant:
        name, which, folder = arguments.contestant
        contest(name, which, arguments, Path(folder))
        return
    torch.set_num_threads(arguments.threads)
    print(machine())
    if arguments.profile:
        for which in arguments.networks:
            print(f"\n{which}, {arguments.profile} samples\n")
            profile(which, arguments.profile, arguments.threads)
        return
    print("| network | what | seconds | times the loop | peak, GiB | largest error, of the largest value |")
    print("| --- | --- | ---: | ---: | ---: | ---: |")
    left_out = [] if arguments.generic else ["neural_kernel_trace, generic"]
    left_out += [] if find_spec("nngeometry") else ["nngeometry"]
    names = [name for name in CONTESTANTS if name not in left_out]
    for which in arguments.networks:
        with tempfile.TemporaryDirectory() as folder:
            rows(which, names, arguments, Path(folder))


def rows(which, names, options, folder):
    first = None
    for name in names:
        given = ["--threads", str(options.threads), "--samples", str(options.samples)]
        command = [sys.executable, __file__, *given, "--contestant", name, which, str(folder)]
        took = json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        first = first or took
        error = "" if name == "nothing" else f"{deviation(folder, name):.1e}"
        ratio = "" if name == "nothing" else f"{first['seconds'] / took['seconds']:.1f}"
        label = f"{which}, {took['parameters']:,} parameters"
        print(
            f"| {label} | {name} | {took['seconds']:.1f} | {ratio} | {took['peak'] / 2**30:.2f} | {error} |", flush=True
        )


def deviation(folder, name):
    exact, found = torch.load(folder / "loop.pt"), torch.load(folder / f"{name}.pt")
    exact = exact if found.ndim == 4 else exact.diagonal(dim1=2, dim2=3).mean(2)
    return ((found - exact).abs().max() / exact.abs().max()).item()


if __name__ == "__main__":
    main()
