"""Crops beside a Python loop of slices, and sums over all crops beside embedding every crop.

    python benchmarks/crops.py [--root data] [--images 10000] [--rounds 15] [--threads 2]

The crops of CRL-TAC: 289 of 20 x 20 pixels from images of 84 x 84, one channel, float32.

Crops: `CropFamily.forward` beside `torch.stack` of one slice each, on Python integers made beforehand, which is in the
loop's favour. 2,048 random crops are the 8 views of 256 images; 18,496 are all crops of 64 images. The output is the
same. A copy of the output, ready made, is the floor.

Sums over the family: `CropFamily.integrate` with uniform weights beside the same network on every crop, 256 at a time
in both, without gradients: Conv2d(1, 32, 3), ReLU, Conv2d(32, 32, 3), ReLU, AvgPool2d(2), Linear(2048, 200). Each image
has one patch of 28 x 28 pixels in one of 3 x 3 cells: a digit of MNIST's test set where `--root` has MNIST/raw in it,
else a made-up blot that fills its middle 20 x 20 pixels, as digits do at most. The images pass in blocks of 250 to
both; every `--every`-th block also has all of its crops embedded. Sums agree to 1e-5.

Contestants take turns, so that a busy machine disturbs all alike; a ratio is the median over the rounds, or blocks, of
the ratios within one. In each turn crops are made twice and the second time counts: what the first waits for is memory
that the contestant before has given back to the system.
"""

import argparse
import statistics
import time

import torch
from machine import machine
from torch import nn

from lightning_ssl_geometry.data import MNISTDataModule
from lightning_ssl_geometry.views import CropFamily

SIDE, CELL, BLOCK, CHUNK = 84, 28, 250, 256
FAMILY = CropFamily()
GENERATOR = torch.Generator().manual_seed(0)


def patches(n, root):
    """(n, 28, 28): digits, or blots."""
    if root:
        digits = MNISTDataModule(root).load().test.image
        return digits[torch.arange(n) % len(digits)].view(n, CELL, CELL) / 255
    smooth = nn.functional.interpolate(torch.rand(n, 1, 5, 5, generator=GENERATOR), 20, mode="bilinear")
    return nn.functional.pad(smooth.squeeze(1), [4] * 4)


def shifted(n, root):
    """(n, 1, 84, 84): each patch in a cell of its own."""
    image = torch.zeros(n, 3, CELL, 3, CELL)
    row, column = torch.randint(3, (2, n), generator=GENERATOR)
    image[torch.arange(n), row, :, column] = patches(n, root)
    return image.view(n, 1, SIDE, SIDE)


def timed(call, *arguments):
    began = time.perf_counter()
    result = call(*arguments)
    return time.perf_counter() - began, result


def in_turns(contestants, rounds):
    """Seconds of each contestant in each round."""
    seconds = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, call in contestants.items():
            call()
            seconds[name].append(timed(call)[0])
    return seconds


def ratio(seconds, other, name):
    return statistics.median(a / b for a, b in zip(seconds[other], seconds[name], strict=True))


def crops(n, pairs, rounds):
    """One table's rows: crops per second."""
    image = torch.rand(n, 1, SIDE, SIDE, generator=GENERATOR)
    sample = torch.arange(pairs) // (pairs // n)
    every = pairs == n * len(FAMILY)
    member = torch.arange(pairs) % 289 if every else torch.randint(289, (pairs,), generator=GENERATOR)
    corners = [(i, *corner) for i, corner in zip(sample.tolist(), FAMILY.corner[member].tolist(), strict=True)]
    ready = FAMILY(image, sample, member)
    contestants = {
        "loop of slices": lambda: torch.stack([image[i, :, r : r + 20, c : c + 20] for i, r, c in corners]),
        "CropFamily": lambda: FAMILY(image, sample, member),
        "copy of the output": ready.clone,
    }
    if not torch.equal(contestants["loop of slices"](), ready):
        raise SystemExit("crops differ")
    seconds = in_turns(contestants, rounds)
    for name, took in seconds.items():
        middle = statistics.median(took)
        times = ratio(seconds, "loop of slices", name)
        print(f"| {pairs:,} | {name} | {1e3 * middle:.2f} | {pairs / middle:,.0f} | {times:.1f} |")


def every_crop(network, image, weight):
    """Sums over all crops, each of them embedded."""
    pairs = torch.cartesian_prod(torch.arange(len(image)), torch.arange(len(FAMILY)))
    h = torch.cat([network(FAMILY(image, *part.unbind(1))) for part in pairs.split(CHUNK)])
    return torch.einsum("snk,nkd->snd", weight, h.unflatten(0, (len(image), -1)))


def sums(image, every):
    """One table's rows: a pass over the images."""
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 32, 3), nn.ReLU(), nn.Conv2d(32, 32, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten()]
    network = nn.Sequential(*layers, nn.Linear(2048, 200)).eval()
    weight = torch.full((1, BLOCK, len(FAMILY)), 1 / len(FAMILY))
    ours, both = [], {"every crop": [], "CropFamily.integrate": []}
    for i, block in enumerate(image.split(BLOCK)):
        w = weight[:, : len(block)]
        took, z = timed(FAMILY.integrate, network, block, w, CHUNK)
        ours.append(took)
        if i % every == 0:
            other, expected = timed(every_crop, network, block, w)
            torch.testing.assert_close(z, expected, atol=1e-5, rtol=0)
            both["every crop"].append(other)
            both["CropFamily.integrate"].append(took)
    embedded = sum(len(FAMILY.distinct(part)[0]) for part in image[:BLOCK].split(50)) / len(image[:BLOCK])
    share = len(both["every crop"]) / len(ours)
    for name, total in {"every crop": sum(both["every crop"]) / share, "CropFamily.integrate": sum(ours)}.items():
        views = f"{embedded if name != 'every crop' else len(FAMILY):.0f}"
        print(f"| {name} | {views} | {total:.0f} | {ratio(both, 'every crop', name):.1f} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--root", help="folder that has MNIST/raw in it; none: made-up blots")
    parser.add_argument("--images", type=int, default=10_000)
    parser.add_argument("--every", type=int, default=8, help="one in how many blocks has every crop embedded")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    print(machine())
    print("| crops | contestant | ms | crops/s | times the loop |\n| ---: | --- | ---: | ---: | ---: |")
    for n, pairs in ((256, 2048), (64, 64 * len(FAMILY))):
        crops(n, pairs, options.rounds)
    image = shifted(options.images, options.root)
    kind = "digits of MNIST" if options.root else "made-up blots"
    print(f"\n| {options.images:,} images of {kind} | embedded per image | seconds | times every crop |")
    print("| --- | ---: | ---: | ---: |")
    with torch.no_grad():
        sums(image, options.every)


if __name__ == "__main__":
    main()
