"""Rows per second of a folder of images: decoded once and memory-mapped, beside loaders that decode in each epoch.

    python benchmarks/image_cache.py [--images 4096] [--side 64] [--rounds 3] [--folder FOLDER]
    python benchmarks/image_cache.py --mapped 6 [--folder FOLDER]    # a decoded file of 6 GiB

The images are low-frequency noise as JPEG files of --side x --side pixels (64 is Tiny ImageNet's size) in 10 classes. A
row is one image in a batch of 256, in random order, without augmentation: uint8 from `ImageFolderDataModule`, float32
from the others, which is what each hands to the views. "Cold" reads the decoded file after the system was asked to drop
it from its memory (`posix_fadvise`). The disk's row reads this file in order, in blocks of a batch. FOLDER should be on
the disk that is asked about; by default it is a temporary one. Contestants take turns; medians (range) of the rounds.

`--mapped` writes decoded files of random bytes, and reads a whole epoch in random order with reading ahead, 100 batches
without, and the file in order. To see a file that is larger than the memory, limit the memory of this process from
outside, for example by `systemd-run --scope -p MemoryMax=2G`. Each contestant has a file of its own, since a virtual
disk may remember what was read.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import torch
from machine import machine
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

from lightning_ssl_geometry.data import ImageFolderDataModule
from lightning_ssl_geometry.data.base import Images, _Slices
from lightning_ssl_geometry.data.loader import BatchLoader, GlobalBatchSampler

BATCH, WORKERS = 256, 2


def write_images(folder: Path, count: int, side: int) -> None:
    generator = np.random.default_rng(0)
    for place in range(count):
        path = folder / "train" / str(place % 10) / f"{place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        coarse = Image.fromarray(generator.integers(256, size=(side // 4, side // 4, 3), dtype=np.uint8))
        coarse.resize((side, side), Image.Resampling.BICUBIC).save(path, quality=90)


def seconds(batches: Callable[[], Iterable[object]]) -> float:
    start = time.perf_counter()
    for _ in batches():
        pass
    return time.perf_counter() - start


def forget(path: Path) -> None:
    """Ask the system to drop a file from its memory."""
    descriptor = os.open(path, os.O_RDONLY)
    os.fsync(descriptor)
    os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    os.close(descriptor)


def in_order(path: Path, block: int) -> Iterable[bytes]:
    with path.open("rb", buffering=0) as file:
        while read := file.read(block):
            yield read


def decoding(data: ImageFolderDataModule, folder: Path, workers: int) -> float:
    """Seconds in which the images are decoded anew."""
    for path in folder.glob(".ssl_geometry-*"):
        path.unlink()
    data.workers, start = workers, time.perf_counter()
    data.prepare_data()
    return time.perf_counter() - start


def peers(folder: Path) -> dict[str, DataLoader]:
    loading = {"batch_size": BATCH, "shuffle": True, "num_workers": WORKERS, "drop_last": True}
    found = {"torchvision": DataLoader(ImageFolder(folder / "train", ToTensor()), **loading)}
    try:
        from lightly.data import LightlyDataset
    except ImportError:
        return found
    return found | {"lightly": DataLoader(LightlyDataset(str(folder / "train"), transform=ToTensor()), **loading)}


def mapped(gib: int, side: int, folder: Path) -> None:
    """Print rows per second of a large decoded file, which the memory does not hold at first."""
    size, block = 3 * side**2, np.random.default_rng(0).integers(256, size=(4096, 3, side, side), dtype=np.uint8)
    rows = gib * 2**30 // block.nbytes * len(block)
    contestants = ("random order, reading ahead", "random order, 100 batches, without", "in order")
    print(f"{rows:,} rows of {side} x {side} pixels\n\n| | rows/s | MiB/s |\n| --- | ---: | ---: |")
    for name in contestants:
        path = folder / "x.npy"
        with path.open("wb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": (rows, 3, side, side)}
            np.lib.format.write_array_header_1_0(file, header)
            for _ in range(rows // len(block)):
                file.write(block)
        forget(path)
        images = Images(torch.from_numpy(np.load(path, mmap_mode="c")), None, is_mapped="ahead" in name)
        source = _Slices(images, torch.arange(rows), None, split="train", augmented=True)
        loader = BatchLoader(source, GlobalBatchSampler(rows, BATCH, shuffle=True))
        batches = 100 if "without" in name else len(loader)
        took = seconds(
            partial(in_order, path, BATCH * size) if name == "in order" else partial(islice, loader, batches)
        )
        speed = min(batches * BATCH, rows) / took
        print(f"| {name} | {speed:,.0f} | {speed * size / 2**20:,.0f} |", flush=True)
        path.unlink()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, default, least in (("images", 4096, 2 * BATCH), ("side", 64, 8), ("rounds", 3, 1)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"at least {least}")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--mapped", type=int, metavar="GIB", help="only measure decoded files of this size")
    asked = parser.parse_args()
    for name, least in (("images", 2 * BATCH), ("side", 8), ("rounds", 1)):
        if getattr(asked, name) < least:
            parser.error(f"argument --{name}: Expected a number >= {least}, but got {getattr(asked, name)}.")
    return asked


def main() -> None:
    asked = arguments()
    print(machine("torchvision", "lightly", "pillow"))
    with tempfile.TemporaryDirectory(dir=asked.folder) as made:
        folder = Path(made)
        if asked.mapped:
            mapped(asked.mapped, asked.side, folder)
            return
        write_images(folder, asked.images, asked.side)
        data = ImageFolderDataModule(str(folder), asked.side, BATCH, val_fraction=0.0, test_fraction=0.1)
        once = {workers: [decoding(data, folder, workers) for _ in range(asked.rounds)] for workers in (WORKERS, 0)}
        data.setup()
        (decoded,) = folder.glob(".ssl_geometry-*.npy")
        calls: dict[str, Callable[[], float]] = {}
        for name, loader in peers(folder).items():
            calls[f"{name}, DataLoader with {WORKERS} workers"] = lambda loader=loader: seconds(lambda: loader)

        def cold() -> float:
            forget(decoded)
            return seconds(data.training_loader)

        def disk() -> float:
            forget(decoded)
            return seconds(lambda: in_order(decoded, BATCH * 3 * asked.side**2))

        calls |= {
            "ImageFolderDataModule, cold": cold,
            "ImageFolderDataModule, warm": lambda: seconds(data.training_loader),
        }
        calls["the decoded file in order, cold"] = disk
        times: dict[str, list[float]] = {name: [] for name in calls}
        for _ in range(asked.rounds):
            for name, call in calls.items():
                times[name].append(call())
        of_file = asked.images
        rows = {name: of_file if "file" in name else len(data.training_loader()) * BATCH for name in calls}
        rows |= {name: asked.images // BATCH * BATCH for name in calls if "DataLoader" in name}
    for workers, found in once.items():
        name = f"decoding once, {f'{workers} processes' if workers else 'threads'}"
        rows[name], times[name] = asked.images, found
    print(f"{asked.images} images of {asked.side} x {asked.side} pixels\n")
    print("| | rows/s, median (range) |\n| --- | ---: |")
    for name, found in times.items():
        speeds = sorted(rows[name] / value for value in found)
        print(f"| {name} | {statistics.median(speeds):,.0f} ({speeds[0]:,.0f}-{speeds[-1]:,.0f}) |")


if __name__ == "__main__":
    main()
