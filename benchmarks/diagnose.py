"""How much of a diagnosis is the network's forward pass: a ResNet-18 on 10,000 images of 32 x 32.

    python benchmarks/diagnose.py --images 10000 --repeats 3

Without labels' linear evaluation. The images are noise. One
network has timm's stem (a 7 x 7 convolution of stride 2 and a pooling: 2 x 2 pixels are left of 64), the other the
stem for CIFAR. Shares of one run's wall time are compared, so other work on the machine matters little.
"""

import argparse
import statistics
import tempfile
import time
import warnings
from pathlib import Path

import torch
from torch import nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source
from lightning_ssl_geometry.diagnose import Subject, diagnose
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
        model = Subject(host, "backbone", projector="projector")
        diagnose(model, data, Path(folder), accelerator="cpu", progress=False)
        seconds = time.perf_counter() - start
    return seconds, host.backbone.seconds / seconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--images", type=int, default=10000)
    parser.add_argument("--repeats", type=int, default=3)
    options = parser.parse_args()
    warnings.filterwarnings("ignore")
    print("| network | seconds | share of forward passes |\n| --- | --- | --- |")
    networks = {"ResNet-18, timm's stem": lambda: TimmBackbone("resnet18"), "ResNet-18, CIFAR's stem": lambda: ResNet()}
    rows = {name: [share(make(), options.images) for _ in range(options.repeats)] for name, make in networks.items()}
    for name, found in rows.items():
        seconds, shares = (statistics.median(values) for values in zip(*found, strict=True))
        print(
            f"| {name} | {seconds:.1f} | {shares:.2f} ({min(s for _, s in found):.2f}-{max(s for _, s in found):.2f}) |"
        )


if __name__ == "__main__":
    main()
