"""Two SimCLR views of photographs: this package beside lightly's SimCLRTransform in a DataLoader, and others.

    python benchmarks/views.py [--repeats 7] [--images 4096] [--size 32]

All crop, resize, flip, jitter colours (strength 0.5), turn gray and normalise, with the same probabilities, and are
measured without blur and with blur (p = 0.5). Lightly works on PIL images in 2 worker processes, AlbumentationsX on
arrays there, torchaug and this package on batches of 256 from one uint8 tensor, in 2 threads (batches of 64 from 224
pixels on). Peers that are not installed are left out. An image counts once, whatever its number of views. Repeats of
all rows alternate, so that other work on the machine meets each of them; the medians are printed. A second table has
the time of a single core, which other work on the machine disturbs less.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from contextlib import nullcontext, suppress
from functools import partial
from typing import Any

import numpy as np
import torch
from machine import machine
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.views import SimCLRViews, simclr

THREADS = 2
MEAN, STD = torch.tensor([0.485, 0.456, 0.406]), torch.tensor([0.229, 0.224, 0.225])


class Lightly(Dataset[object]):
    """PIL images through lightly's transform, as its documentation has it."""

    def __init__(self, image: Tensor, blur: float) -> None:
        from lightly.transforms.simclr_transform import SimCLRTransform

        self.image = [Image.fromarray(x) for x in image.permute(0, 2, 3, 1).numpy()]
        self.transform = SimCLRTransform(input_size=image.shape[2], cj_strength=0.5, gaussian_blur=blur)

    def __len__(self) -> int:
        """How many images."""
        return len(self.image)

    def __getitem__(self, index: int) -> object:
        """Two views of one image, each (3, H, W)."""
        return self.transform(self.image[index])


class Albumentations(Dataset[object]):
    """Arrays through AlbumentationsX's transforms."""

    def __init__(self, image: Tensor, blur: float) -> None:
        import albumentations as a

        self.image = list(image.permute(0, 2, 3, 1).numpy())
        size, scales = tuple(image.shape[2:]), {"brightness_range": (0.6, 1.4), "contrast_range": (0.6, 1.4)}
        self.transform = a.Compose(
            [
                a.RandomResizedCrop(size),
                a.HorizontalFlip(p=0.5),
                a.ColorJitter(**scales, saturation_range=(0.6, 1.4), hue_range=(-0.1, 0.1), p=0.8),
                a.ToGray(p=0.2),
                *([a.GaussianBlur(sigma_range=(0.1, 2.0), p=blur)] if blur else []),
                a.Normalize(MEAN.tolist(), STD.tolist()),
            ]
        )

    def __len__(self) -> int:
        """How many images."""
        return len(self.image)

    def __getitem__(self, index: int) -> object:
        """Two views of one image, each (3, H, W)."""
        views = (self.transform(image=self.image[index])["image"] for _ in range(2))
        return [torch.from_numpy(view).permute(2, 0, 1) for view in views]


class Torchaug:
    """Batches through torchaug's transforms, with parameters of its own for each image."""

    def __init__(self, size: int, blur: float) -> None:
        import torchaug.transforms as t

        every = {"num_chunks": -1, "batch_transform": True}
        self.transform = t.SequentialTransform(
            [
                t.RandomResizedCrop(size, **every),
                t.RandomHorizontalFlip(0.5, batch_transform=True),
                t.RandomColorJitter(0.4, 0.4, 0.4, 0.1, p=0.8, **every),
                t.RandomGrayscale(0.2, batch_transform=True),
                *([t.RandomGaussianBlur(max(3, size // 10 | 1), p=blur, batch_transform=True)] if blur else []),
                t.Normalize(MEAN.tolist(), STD.tolist()),
            ]
        )

    def __call__(self, image: Tensor, *_: object) -> object:
        """Two views of images (N, 3, H, W), each of the same shape."""
        return [self.transform(image.float() / 255) for _ in range(2)]


def photographs(n: int, size: int = 32) -> Tensor:
    """Cut patches out of scikit-learn's two photographs, halved in size for small patches: (n, 3, size, size) uint8."""
    generator = np.random.default_rng(0)
    patches = []
    for photo in load_sample_images().images:
        small = np.asarray(Image.fromarray(photo).reduce(2 if size < 128 else 1))
        rows = generator.integers(0, small.shape[0] - size, n // 2)
        columns = generator.integers(0, small.shape[1] - size, n // 2)
        patches += [small[i : i + size, j : j + size] for i, j in zip(rows, columns, strict=True)]
    return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()


def batch_of(image: Tensor) -> int:
    """How many images a batch has."""
    return 256 if image.shape[2] < 224 else 64


def all_views(views: Callable[..., object], image: Tensor) -> None:
    order = torch.randperm(len(image))
    for index in order.split(batch_of(image)):
        views(image[index], index, 0, MEAN, STD)


def all_items(items: Iterable[object]) -> None:
    for _ in items:
        pass


def seconds(function: Callable[[], None], clock: Callable[[], float]) -> float:
    begin = clock()
    function()
    return clock() - begin


def medians(
    rows: dict[str, Callable[[], None]], repeats: int, clock: Callable[[], float]
) -> dict[str, tuple[float, float]]:
    """Per row, the median time, and the median over repeats of the first row's time over its own."""
    for function in rows.values():
        function()
    times = [{name: seconds(function, clock) for name, function in rows.items()} for _ in range(repeats)]
    first = next(iter(rows))
    return {
        name: (statistics.median(t[name] for t in times), statistics.median(t[first] / t[name] for t in times))
        for name in rows
    }


def ours(image: Tensor, blur: float) -> dict[str, Callable[[], None]]:
    rows: dict[str, Callable[[], None]] = {}
    for color in ("exact", "fast"):
        for channels_last in (False, True):
            views = SimCLRViews(blur=blur, color=color, channels_last=channels_last)
            name = f"SimCLRViews, {color} colours{', channels last' if channels_last else ''}"
            rows[name] = partial(all_views, views, image)
    return rows


def peers(image: Tensor, blur: float) -> tuple[dict[str, Dataset[object]], dict[str, Callable[[], None]]]:
    """Return peers that transform single images, lightly first, and what peers do that transform whole batches."""
    single: dict[str, Dataset[object]] = {"lightly": Lightly(image, blur)}
    whole: dict[str, Callable[[], None]] = {}
    with suppress(ImportError):
        single["AlbumentationsX"] = Albumentations(image, blur)
    with suppress(ImportError):
        whole["torchaug"] = partial(all_views, Torchaug(image.shape[2], blur), image)
    return single, whole


def throughput(image: Tensor, blur: float, repeats: int) -> None:
    torch.set_num_threads(THREADS)
    single, whole = peers(image, blur)
    options: dict[str, Any] = {"shuffle": True, "num_workers": THREADS, "persistent_workers": True}
    loaders = {name: DataLoader(data, batch_of(image), **options) for name, data in single.items()}
    theirs = {f"{name}, DataLoader with {THREADS} workers": partial(all_items, each) for name, each in loaders.items()}
    print(f"\n| blur p = {blur}, {THREADS} threads | images/s | times lightly |\n| --- | ---: | ---: |")
    for name, (time_, ratio) in medians({**theirs, **whole, **ours(image, blur)}, repeats, time.perf_counter).items():
        print(f"| {name} | {len(image) / time_:,.0f} | {ratio:.1f} |")


def one_core(image: Tensor, blur: float, repeats: int) -> None:
    torch.set_num_threads(1)
    batch = image[: batch_of(image)]
    single, whole = peers(batch, blur)
    theirs = {name: partial(_every, data, len(batch)) for name, data in single.items()}
    print(f"\n| blur p = {blur}, one core | core-ms per {len(batch)} images | times lightly |\n| --- | ---: | ---: |")
    for name, (time_, ratio) in medians({**theirs, **whole, **ours(batch, blur)}, repeats, time.process_time).items():
        print(f"| {name} | {1e3 * time_:,.1f} | {ratio:.1f} |")


def _every(data: Dataset[object], n: int) -> None:
    all_items(map(data.__getitem__, range(n)))


def chunks(image: Tensor, repeats: int) -> None:
    """Print the time of a batch by the number of pixels that are made at once and by the number of threads."""
    simclr.one_thread = lambda *_: nullcontext()  # here all cells have the threads that they name
    batch = image[: batch_of(image)]
    columns = [(threads, power) for threads in (1, THREADS) for power in (17, 19, 21)]
    names = [f"{threads} threads, 2^{power}" for threads, power in columns]
    print(f"\n| {len(batch)} images, ms by pixels at once | {' | '.join(names)} |\n| --- |{' ---: |' * len(names)}")
    for color in ("exact", "fast"):
        cells = []
        for threads, power in columns:
            torch.set_num_threads(threads)
            views = SimCLRViews(blur=0.0, color=color, chunk_size=max(1, 2**power // image[0, 0].numel()))
            found = medians({"": partial(all_views, views, batch)}, repeats, time.perf_counter)
            cells.append(f"{1e3 * found[''][0]:.0f}")
        print(f"| {color} | {' | '.join(cells)} |", flush=True)


def deviation(image: Tensor) -> None:
    index = torch.arange(len(image))
    print("\n| strength | mean of abs(fast - exact), in 1/255 | root mean square |\n| --- | ---: | ---: |")
    for strength in ("small", "moderate", "large"):
        exact, fast = (torch.cat(SimCLRViews(strength=strength, color=c)(image, index)) for c in ("exact", "fast"))
        difference = 255 * (fast - exact)
        print(f"| {strength} | {difference.abs().mean():.2f} | {difference.square().mean().sqrt():.2f} |")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--images", type=int, default=4096)
    parser.add_argument("--size", type=int, default=32, help="height and width in pixels")
    parser.add_argument(
        "--chunks", action="store_true", help="the time by pixels at once and threads, and nothing else"
    )
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # lightly's and PIL's deprecations
    image = photographs(arguments.images, arguments.size)
    print(machine("torchvision", "lightly", "pillow", "albumentationsx", "torchaug", size=arguments.size))
    if arguments.chunks:
        chunks(image, arguments.repeats)
        return
    for blur in (0.0, 0.5):
        throughput(image, blur, arguments.repeats)
        one_core(image, blur, arguments.repeats)
    deviation(image)


if __name__ == "__main__":
    main()
