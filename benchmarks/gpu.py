"""What a GPU does: views, losses, a ResNet-18 under the Trainer, the neural kernel and sums over all crops.

    python benchmarks/gpu.py [--device cuda] [--quick] [--csv FILE]

Every time is torch's own measurement (`torch.utils.benchmark`), which waits for the device. Ratios are within one run.
`--quick` takes small sizes, to try the command; `--device cpu` runs it without a GPU.
"""

import argparse
import csv
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from end_to_end import BATCH, MadeUpDataModule, sgd
from epoch import one_epoch, silence
from machine import machine
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize
from torch.utils.benchmark import Timer

from lightning_ssl_geometry.functional import neural_kernel_trace
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import ResNet
from lightning_ssl_geometry.views import CropFamily, SimCLRViews


class Row(NamedTuple):
    """Milliseconds of one contestant, and its speed beside the first one of the same task."""

    task: str
    contestant: str
    milliseconds: float
    times: float
    memory: float  # the most of the device's memory beyond what is held before, in MiB; NaN on the CPU


def measured(task: str, contestants: dict[str, Callable[[], object]], device: torch.device, quick: bool) -> list[Row]:
    rows: list[Row] = []
    for name, call in contestants.items():
        try:
            call()
            memory = peak(call, device)
            timer = Timer("call()", globals={"call": call}, num_threads=torch.get_num_threads())
            milliseconds = 1e3 * timer.blocked_autorange(min_run_time=0.1 if quick else 2.0).median
        except torch.OutOfMemoryError:
            milliseconds = memory = float("nan")
            torch.cuda.empty_cache()
        first = rows[0].milliseconds if rows else milliseconds
        rows.append(Row(task, name, milliseconds, first / milliseconds, memory))
        held = "" if device.type == "cpu" else f"{memory:,.0f}"
        print(f"| {task} | {name} | {milliseconds:,.2f} | {rows[-1].times:.2f} | {held} |", flush=True)
    return rows


def peak(call: Callable[[], object], device: torch.device) -> float:
    if device.type != "cuda":
        return float("nan")
    torch.cuda.synchronize()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_allocated()
    call()
    torch.cuda.synchronize()
    return (torch.cuda.max_memory_allocated() - before) / 2**20


def views(device: torch.device, quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    for side, count in ((32, 64 if quick else 1024), (224, 8 if quick else 256)):
        image = torch.randint(256, (count, 3, side, side), dtype=torch.uint8, device=device)
        index, moments = torch.arange(count, device=device), (torch.full((3,), 0.5), torch.full((3,), 0.25))
        moments = tuple(each.to(device) for each in moments)
        made = {
            f"{color}, {'channels last' if last else 'plain'}": SimCLRViews(color=color, channels_last=last, blur=0.5)
            for color in ("exact", "fast")
            for last in (False, True)
        }
        calls = {name: partial(v, image, index, 0, *moments) for name, v in made.items()}
        yield f"two views of {count} images of {side} pixels", calls


def eager(z1: Tensor, z2: Tensor) -> Tensor:
    """NT-Xent as it is written in a few lines."""
    z = normalize(torch.cat([z1, z2]), dim=1)
    similarity = (z @ z.T / 0.5).fill_diagonal_(-torch.inf)
    return cross_entropy(similarity, torch.arange(len(z), device=z.device).roll(len(z1)))


def losses(device: torch.device, quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    ours = InfoNCELoss(temperature=0.5)
    for n in (256, 512) if quick else (4096, 16384, 65536):
        z1, z2 = (torch.randn(n, 128, device=device, requires_grad=True) for _ in range(2))
        z = torch.cat([z1, z2]).detach()

        def bare(z: Tensor = z) -> object:
            s = z @ z.T
            return s @ z, s.T @ z

        def descend(loss: Callable[..., Tensor], z: tuple[Tensor, Tensor] = (z1, z2)) -> object:
            return torch.autograd.grad(loss(*z), z)

        yield (
            f"NT-Xent, N = {n:,}",
            {
                "bare products": bare,
                "this package": lambda d=descend: d(ours),
                "eager": lambda d=descend: d(eager),
            },
        )


def steps(device: torch.device, quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    """Whole epochs under the Trainer, beside forward and backward of the network on ready-made views."""
    count = 2 if quick else 40
    for precision in ("32-true", "bf16-mixed"):
        for last in (False, True):
            for compiled in (False, True) if device.type == "cuda" else (False,):
                words = [precision, "channels last" if last else "plain", *(["compiled"] if compiled else [])]
                calls = {
                    "ceiling": lambda p=precision, v=last, c=compiled: ceiling(device, count, p, last=v, compiled=c),
                    "SimCLRModule": lambda p=precision, v=last, c=compiled: trained(
                        device, count, p, last=v, compiled=c
                    ),
                }
                yield f"{count} steps of ResNet-18, {', '.join(words)}", calls


def network(compiled: bool) -> tuple[nn.Module, nn.Module]:
    torch.manual_seed(0)
    backbone = ResNet(18, stem="cifar")
    return (torch.compile(backbone) if compiled else backbone), nn.Linear(512, 128, bias=False)


def ceiling(device: torch.device, count: int, precision: str, *, last: bool, compiled: bool) -> None:
    backbone, projector = (each.to(device) for each in network(compiled))
    layout = torch.channels_last if last else torch.contiguous_format
    backbone, loss = backbone.to(memory_format=layout), InfoNCELoss()
    ready = torch.randn(2 * BATCH, 3, 32, 32, device=device).to(memory_format=layout)
    for _ in range(count):
        with torch.autocast(device.type, torch.bfloat16, enabled=precision != "32-true"):
            z1, z2 = projector(backbone(ready)).chunk(2)
            value = loss(z1, z2)
        value.backward()


def trained(device: torch.device, count: int, precision: str, *, last: bool, compiled: bool) -> None:
    module = SimCLRModule(*network(compiled), optimizer=sgd)
    data = MadeUpDataModule(count, SimCLRViews(color="exact", channels_last=last))
    accelerator = "gpu" if device.type == "cuda" else "cpu"
    one_epoch(module, datamodule=data, accelerator=accelerator, precision=precision)


def kernels(device: torch.device, quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    n = 16 if quick else 256
    layers = [nn.Conv2d(3, 64, 3, 2, 1), nn.ReLU(), nn.Conv2d(64, 128, 3, 2, 1), nn.ReLU(), nn.Flatten()]
    net = nn.Sequential(*layers, nn.Linear(8192, 8)).to(device)
    x = torch.randn(n, 3, 32, 32, device=device)
    calls: dict[str, Callable[[], object]] = {
        "Jacobians": lambda: neural_kernel_trace(net, x, by_layer=False),
        "layer by layer": lambda: neural_kernel_trace(net, x),
    }
    yield f"trace of the neural kernel of a CNN, {n} images", calls


def crops(device: torch.device, quick: bool) -> Iterator[tuple[str, dict[str, Callable[[], object]]]]:
    count, family = 4 if quick else 512, CropFamily()
    image = torch.zeros(count, 1, 84, 84, device=device)
    image[:, :, 30:56, 30:56] = torch.rand(count, 1, 26, 26, device=device)
    net = nn.Sequential(nn.Conv2d(1, 32, 3), nn.ReLU(), nn.AvgPool2d(2), nn.Flatten(), nn.Linear(2592, 200)).to(device)
    weight = torch.full((1, count, len(family)), 1 / len(family), device=device)
    pairs = torch.cartesian_prod(torch.arange(count), torch.arange(len(family))).to(device)

    @torch.no_grad()
    def every() -> object:
        h = torch.cat([net(family(image, *part.unbind(1))) for part in pairs.split(4096)])
        return torch.einsum("snk,nkd->snd", weight, h.unflatten(0, (count, -1)))

    calls = {"every crop": every, "integrate": torch.no_grad()(lambda: family.integrate(net, image, weight))}
    yield f"means over {len(family)} crops of {count} images", calls


TASKS: dict[str, Any] = {"views": views, "losses": losses, "kernels": kernels, "crops": crops, "steps": steps}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", type=torch.device, default=torch.device("cuda"))
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS))
    parser.add_argument("--csv", type=Path, help="write the rows to this file, too")
    options = parser.parse_args()
    if options.device.type == "cuda" and not torch.cuda.is_available():
        parser.error("Expected a GPU, or --device cpu, but torch finds none.")
    silence()
    gpu = {"GPU": torch.cuda.get_device_name()} if options.device.type == "cuda" else {}
    print(machine("lightning", **gpu))
    print("| task | contestant | ms | speed, of the first | memory, MiB |\n| --- | --- | ---: | ---: | ---: |")
    rows: list[Row] = []
    for task in options.tasks:
        for title, contestants in TASKS[task](options.device, options.quick):
            rows += measured(title, contestants, options.device, options.quick)
    if options.csv:
        options.csv.parent.mkdir(parents=True, exist_ok=True)
        with options.csv.open("w", newline="") as file:
            csv.writer(file).writerows([Row._fields, *rows])


if __name__ == "__main__":
    main()
