"""Seconds of one readout of every diagnostic of Cosentino et al., beside the forward passes.

    python benchmarks/diagnostics.py [--rounds 3]

A probe set of 4,096 pairs, D = 512, P = 128, float32, 2 threads: made-up representations with a spectrum that falls,
fed in 16 batches and then computed. The linear diagnostics see a linear projector, the others an MLP of two hidden
layers of 512. The encoder that LieGenerator and RotationRank call is a single linear map of 3 x 32 x 32 pixels, so that
what is measured is beside the forward passes, which they need too (counted in the last column).

A last table has the diagnostics that compare all samples with each other to find neighbours: the time of `compute`.
"""

import argparse
import inspect
import statistics
import time
from contextlib import nullcontext

import torch
from machine import machine
from torch import nn

from lightning_ssl_geometry import diagnostics as D
from lightning_ssl_geometry.diagnostics.shared_work import shared_work
from lightning_ssl_geometry.nn import MLPProjector

N, DIM, OUT, BATCHES = 4096, 512, 128, 16
LINEAR = {
    "ProjectorRank": D.ProjectorRank(),
    "EffectiveRank": D.EffectiveRank(),
    "LogSpectrum": D.LogSpectrum(),
    "LogSpectrum, clean images": D.LogSpectrum(),
    "UpperBound": D.UpperBound(contrast_size=N),
    "AugmentationRank": D.AugmentationRank(),
    "NullSpaceFraction": D.NullSpaceFraction(),
    "HardestNegativeDistance": D.HardestNegativeDistance(contrast_size=N),
    "LabelAgreement": D.LabelAgreement(contrast_size=N),
    "UnexplainedVariance": D.UnexplainedVariance(contrast_size=N),
    "LieGenerator, first order": D.LieGenerator(contrast_size=1024),
    "RotationRank": D.RotationRank(),
}
NONLINEAR = {
    "JacobianRank": D.JacobianRank(),
    "LinearRegions": D.LinearRegions(contrast_size=N),
    "LocalUnexplainedVariance": D.LocalUnexplainedVariance(contrast_size=N),
}
OPTIONAL = {"LieGenerator, exponential, 32 dimensions": D.LieGenerator(order="exponential", dimensions=32)}
SHARING = ("EffectiveRank", "LogSpectrum", "HardestNegativeDistance", "LabelAgreement", "UnexplainedVariance")
NEIGHBORS = {  # what is compared with what
    "HardestNegativeDistance": "first views with all second views, cosine of z",
    "LabelAgreement": "the same",
    "UnexplainedVariance": "the same",
    "IntrinsicDimension": "first views with first views, distance in h, for both estimators",
    "NearestNeighbors": "6 images with all images, cosine of h",
    "Clusteredness": "every view, sums of distances within clusters in z, and k-means",
}
FORWARD = {"LieGenerator": 2 * 1024, "RotationRank": 5 * 4 * 200}


def probe_set(projector):
    generator = torch.Generator().manual_seed(0)
    spectrum = torch.logspace(0, -2, DIM)
    base = torch.randn(N, DIM, generator=generator) * spectrum
    h = torch.stack([base + 0.3 * torch.randn(N, DIM, generator=generator) * spectrum for _ in range(2)])
    with torch.no_grad():
        z = projector(h.flatten(0, 1)).unflatten(0, (2, -1))
    label = torch.randint(10, (N,), generator=generator)
    image = torch.randn(N, 3, 32, 32, generator=generator)
    encoder = nn.Sequential(nn.Flatten(), nn.Linear(3 * 32 * 32, DIM)).eval()
    rows = {"h": h, "z": z, "label": label, "index": torch.arange(N), "image": image}
    return rows, {"projector": projector, "encoder": encoder}


def observe(metric, rows, modules):
    wanted = inspect.signature(metric.update).parameters
    for chosen in torch.arange(N).chunk(BATCHES):
        given = {name: row[:, chosen] if name in ("h", "z") else row[chosen] for name, row in rows.items()} | modules
        metric.update(**{name: given[name] for name in wanted if name in given})


def readout(metric, rows, modules):
    """Seconds to observe the set and to compute."""
    began = time.perf_counter()
    observe(metric, rows, modules)
    metric.compute()
    seconds = time.perf_counter() - began
    metric.reset()
    return seconds


def computing(metrics, rows, modules, shares):
    """Seconds to compute all metrics, with or without sharing work, as a readout of the monitor does."""
    for metric in metrics.values():
        observe(metric, rows, modules)
    began = time.process_time()
    with shared_work() if shares else nullcontext():
        for metric in metrics.values():
            metric.compute()
    seconds = time.process_time() - began
    for metric in metrics.values():
        metric.reset()
    return seconds


def print_shared(rounds, rows, modules):
    sharing = {name: metric for name, metric in LINEAR.items() if name in SHARING}
    sharing |= {"ProjectorGain": D.ProjectorGain(contrast_size=N), "Alignment": D.ProjectionAlignment(contrast_size=N)}
    found = [[computing(sharing, rows, modules, shares) for shares in (False, True)] for _ in range(rounds)]
    alone, shared = (statistics.median(seconds) for seconds in zip(*found, strict=True))
    ratio = statistics.median(shared / alone for alone, shared in found)
    print(
        f"computing {len(sharing)} diagnostics: {alone:.2f} s of a processor one by one, {shared:.2f} s in one readout"
    )
    print(f"median ratio: {ratio:.2f}\n")


def print_neighbors(rounds, rows, modules):
    print("\n| diagnostic | what is compared | compute, seconds of a processor |\n| --- | --- | ---: |")
    for name, what in NEIGHBORS.items():
        metric = getattr(D, name)(contrast_size=N)
        seconds = [computing({name: metric}, rows, modules, shares=False) for _ in range(rounds)]
        print(f"| {name} | {what} | {statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f}) |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    torch.set_num_threads(2)
    print(machine())
    torch.manual_seed(0)
    linear = probe_set(nn.Linear(DIM, OUT, bias=False).eval())
    mlp = probe_set(MLPProjector(DIM, DIM, OUT, depth=3).eval())
    sets = [(LINEAR, linear), (NONLINEAR, mlp), (OPTIONAL, linear)]
    found = {name: [] for metrics, _ in sets for name in metrics}
    for _ in range(options.rounds):
        for metrics, (rows, modules) in sets:
            for name, metric in metrics.items():
                found[name].append(readout(metric, rows, modules))
    print_shared(options.rounds, *linear)
    print("| diagnostic | seconds, median (range) | forward passes of an image |\n| --- | ---: | ---: |")
    for name, seconds in found.items():
        spread = f"{statistics.median(seconds):.2f} ({min(seconds):.2f}-{max(seconds):.2f})"
        print(f"| {name} | {spread} | {FORWARD.get(name.split(',')[0], '')} |")
    for metrics, what in ((LINEAR, "the linear projector's"), (LINEAR | NONLINEAR, "all but the optional one")):
        total = sum(statistics.median(found[name]) for name in metrics)
        print(f"| together: {what} | {total:.1f} | |")
    print_neighbors(options.rounds, *linear)


if __name__ == "__main__":
    main()
