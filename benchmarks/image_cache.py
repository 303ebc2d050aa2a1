"""Rows per second of a folder of images: decoded once and memory-mapped, beside loaders that decode in each epoch.

    python benchmarks/image_cache.py [--images 4096] [--side 64] [--rounds 3] [--folder FOLDER]

The images are low-frequency noise as JPEG files of --side x --side pixels (64 is Tiny ImageNet's size) in 10 classes. A
row is one image in a batch of 256, in random order, without augmentation: uint8 from `ImageFolderDataModule`, float32
from the others, which is what each hands to the views. "Cold" reads the decoded file after the system was asked to drop
it from its memory (`posix_fadvise`). The disk's row reads this file in order, in blocks of a batch. FOLDER should be on
the disk that is asked about; by default it is a temporary one. Contestants take turns; medians (range) of the rounds.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import numpy as np
from machine import machine
from PIL import Image
from torch.utils.data import DataLoader
from torchvision.datasets import ImageFolder
from torchvision.transforms import ToTensor

from lightning_ssl_geometry.data import ImageFolderDataModule

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


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    for name, default, least in (("images", 4096, 2 * BATCH), ("side", 64, 8), ("rounds", 3, 1)):
        parser.add_argument(f"--{name}", type=int, default=default, help=f"at least {least}")
    parser.add_argument("--folder", type=Path)
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
