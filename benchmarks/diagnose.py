"""How much of a diagnosis is the network's forward pass: a ResNet-18 on 10,000 images of 32 x 32.

    python benchmarks/diagnose.py --images 10000 --repeats 3
    python benchmarks/diagnose.py --images 10000 --repeats 1 --stem cifar

Without linear evaluation, the page included. The images are noise. timm's stem is a 7 x 7 convolution of stride 2 and
a pooling, which leave little of 32 x 32 pixels to work on; with the stem for CIFAR a pass takes 15 times as long.
Shares of one run's wall time are compared, so other work on the machine matters little.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from machine import machine
from torch import nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source
from lightning_ssl_geometry.diagnose import DiagnosedModel, diagnose
from lightning_ssl_geometry.nn import MLPProjector, ResNet, TimmBackbone


class RandomImages(ImageDataModule):
    """Ten classes of noise about a colour of their own."""

    def __init__(self, n: int) -> None:
        super().__init__(batch_size=256, val_fraction=0.0)
        self.n = n

    def load(self) -> Source:
        generator = torch.Generator().manual_seed(0)
        label = torch.arange(self.n) % 10
        image = torch.randint(0, 206, (self.n, 3, 32, 32), generator=generator, dtype=torch.uint8)
        images = Images(image + 5 * label.byte()[:, None, None, None], label)
        return Source(images, images, [str(name) for name in range(10)])


class Timed(nn.Module):
    """Count the seconds in a network's forward passes."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.network, self.seconds = network, 0.0

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        start = time.perf_counter()
        out = self.network(x)
        self.seconds += time.perf_counter() - start
        return out


class Host(nn.Module):
    """A network and a projector."""

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        self.backbone, self.projector = Timed(network), MLPProjector(512, 512, 128)


def share(network: nn.Module, n: int) -> tuple[float, float]:
    """Seconds of a diagnosis, page included, and the share of them in the backbone."""
    host = Host(network)
    with tempfile.TemporaryDirectory() as folder:
        data = RandomImages(n)
        data.setup()
        start = time.perf_counter()
        model = DiagnosedModel(host, "backbone", projector="projector")
        diagnose(model, data, Path(folder), accelerator="cpu", progress=False)
        seconds = time.perf_counter() - start
    return seconds, host.backbone.seconds / seconds


NETWORKS = {"timm": lambda: TimmBackbone("resnet18"), "cifar": lambda: ResNet()}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--stem", choices=sorted(NETWORKS), default="timm")
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print(machine("lightning", "timm"))
    found = [share(NETWORKS[options.stem](), options.images) for _ in range(options.repeats)]
    seconds, shares = zip(*found, strict=True)
    print("| stem | images | seconds | share of forward passes |\n| --- | --- | --- | --- |")
    middle, low, high = statistics.median(shares), min(shares), max(shares)
    times = f"{statistics.median(seconds):.1f}"
    print(f"| {options.stem} | {options.images} | {times} | {middle:.2f} ({low:.2f} to {high:.2f}) |")


if __name__ == "__main__":
    main()
