"""Two SimCLR views of 32 x 32 photographs: this package beside lightly's SimCLRTransform in a DataLoader.

    python benchmarks/views.py [--repeats 7] [--images 4096]

Both crop, resize, flip, jitter colours (strength 0.5), turn gray and normalise, with the same probabilities, and are
measured without blur and with blur (p = 0.5). Lightly works on PIL images in 2 worker processes, this package on
batches of 256 from one uint8 tensor, in 2 threads. An image counts once, whatever its number of views. Repeats of all
rows alternate, so that other work on the machine meets each of them; the medians are printed. A second table has the
time of a single core, which other work on the machine disturbs less.
"""

import argparse
import statistics
import time
import warnings
from collections.abc import Callable, Iterable
from functools import partial

import numpy as np
import torch
from machine import machine
from PIL import Image
from sklearn.datasets import load_sample_images
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.views import SimCLRViews

BATCH, THREADS = 256, 2
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


def photographs(n: int) -> Tensor:
    """Cut patches of 32 x 32 pixels out of scikit-learn's two photographs, halved in size: (n, 3, 32, 32) uint8."""
    generator = np.random.default_rng(0)
    patches = []
    for photo in load_sample_images().images:
        small = np.asarray(Image.fromarray(photo).reduce(2))
        rows = generator.integers(0, small.shape[0] - 32, n // 2)
        columns = generator.integers(0, small.shape[1] - 32, n // 2)
        patches += [small[i : i + 32, j : j + 32] for i, j in zip(rows, columns, strict=True)]
    return torch.from_numpy(np.stack(patches)).permute(0, 3, 1, 2).contiguous()


def all_views(views: SimCLRViews, image: Tensor) -> None:
    order = torch.randperm(len(image))
    for index in order.split(BATCH):
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


def throughput(image: Tensor, blur: float, repeats: int) -> None:
    torch.set_num_threads(THREADS)
    loader = DataLoader(Lightly(image, blur), BATCH, shuffle=True, num_workers=THREADS, persistent_workers=True)
    theirs = {f"lightly, DataLoader with {THREADS} workers": partial(all_items, loader)}
    print(f"\n| blur p = {blur}, {THREADS} threads | images/s | times lightly |\n| --- | ---: | ---: |")
    for name, (time_, ratio) in medians({**theirs, **ours(image, blur)}, repeats, time.perf_counter).items():
        print(f"| {name} | {len(image) / time_:,.0f} | {ratio:.1f} |")


def one_core(image: Tensor, blur: float, repeats: int) -> None:
    torch.set_num_threads(1)
    data = Lightly(image[:BATCH], blur)
    theirs = {"lightly": lambda: all_items(map(data.__getitem__, range(BATCH)))}
    print(f"\n| blur p = {blur}, one core | core-ms per {BATCH} images | times lightly |\n| --- | ---: | ---: |")
    for name, (time_, ratio) in medians({**theirs, **ours(image[:BATCH], blur)}, repeats, time.process_time).items():
        print(f"| {name} | {1e3 * time_:,.1f} | {ratio:.1f} |")


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
    arguments = parser.parse_args()
    warnings.filterwarnings("ignore")  # lightly's and PIL's deprecations
    image = photographs(arguments.images)
    print(machine("torchvision", "lightly", "pillow"))
    for blur in (0.0, 0.5):
        throughput(image, blur, arguments.repeats)
        one_core(image, blur, arguments.repeats)
    deviation(image)


if __name__ == "__main__":
    main()
