"""Latents drawn anew in every step, against the training step that they feed.

    python benchmarks/latent_dgp.py [--rounds 5]

The first table: sampling 6,144 pairs of 10 latents and mixing them, beside one training step on them (forward, backward
and Adam) of the 7-layer encoder of Zimmermann et al., 10-100-500-500-500-500-100-10, with InfoNCE on squared distances.
The second: steps of 1,024 pairs under the Trainer with LatentDGPDataModule, beside the same with ready-made
observations. One thread and its core's time, which other work on the machine disturbs less; contestants take turns, and
a ratio is the median over the rounds of the ratios within a round.
"""

import argparse
import statistics
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from epoch import one_epoch, silence
from machine import machine
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.data import InvertibleMLP, LatentDGPDataModule
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPBackbone

PROCESSES: dict[str, dict[str, Any]] = {
    "box, uniform and normal": {},
    "sphere, uniform and von Mises-Fisher": {"space": "sphere", "conditional": "von_mises_fisher"},
}
DIM, HIDDEN = 10, (100, 500, 500, 500, 500, 100)


def adam(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.Adam(parameters, lr=1e-4)


def contrast() -> InfoNCELoss:
    return InfoNCELoss(1.0, normalize=False, symmetric=False, negatives="same", similarity="distance")


def process(batch_size: int, steps: int, mixing: nn.Module, settings: dict[str, Any]) -> LatentDGPDataModule:
    sizes = {"batch_size": batch_size, "epoch_size": steps * batch_size, "val_size": 0}
    return LatentDGPDataModule(DIM, DIM // 2, mixing=mixing, **(settings | sizes))


def seconds(function: Callable[[], Any]) -> float:
    began = time.process_time()
    function()
    return time.process_time() - began


def drawing_and_stepping(mixing: nn.Module, settings: dict[str, Any]) -> tuple[float, float]:
    """Core seconds of drawing 6,144 pairs, and of one step on them."""
    data = process(6144, 1, mixing, settings)
    (batch,) = data.train_dataloader()
    encoder = MLPBackbone(DIM, HIDDEN, DIM)
    optimizer, loss = adam(encoder.parameters()), contrast()

    def step(views: tuple[torch.Tensor, ...]) -> None:
        optimizer.zero_grad()
        loss(*encoder(torch.cat(views)).chunk(2)).backward()
        optimizer.step()

    draw = partial(data.on_after_batch_transfer, batch, 0)
    views = draw()["views"]
    step(views)
    return min(seconds(draw) for _ in range(5)), min(seconds(partial(step, views)) for _ in range(2))


def fit(steps: int, **data: Any) -> float:
    """Core seconds of one step, in an epoch under the Trainer."""
    torch.manual_seed(0)
    module = SimCLRModule(MLPBackbone(DIM, HIDDEN, DIM), nn.Identity(), contrast(), optimizer=adam)
    return one_epoch(module, now=time.process_time, **data) / steps


def drawn_and_ready_made(mixing: nn.Module, settings: dict[str, Any], steps: int) -> tuple[float, float]:
    """Core seconds of a step on drawn observations, and on ready-made ones."""
    data = process(1024, steps, mixing, settings)
    ready = [{"views": data.on_after_batch_transfer(batch, 0)["views"]} for batch in data.train_dataloader()]
    return fit(steps, datamodule=data), fit(steps, train_dataloaders=DataLoader(ready, batch_size=None))


def medians(rounds: list[tuple[float, float]]) -> tuple[float, float, float]:
    first, second = (statistics.median(times) for times in zip(*rounds, strict=True))
    return first, second, statistics.median(a / b for a, b in rounds)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=20)
    options = parser.parse_args()
    silence()
    torch.set_num_threads(1)
    mixing = InvertibleMLP(DIM)
    print(machine("lightning"))
    drawing: dict[str, list[tuple[float, float]]] = {name: [] for name in PROCESSES}
    training: dict[str, list[tuple[float, float]]] = {name: [] for name in PROCESSES}
    for _ in range(options.rounds):
        for name, settings in PROCESSES.items():
            drawing[name].append(drawing_and_stepping(mixing, settings))
            training[name].append(drawn_and_ready_made(mixing, settings, options.steps))
    print("\n| 6,144 pairs | drawing and mixing, ms | one step, ms | share |\n| --- | ---: | ---: | ---: |")
    for name, rounds in drawing.items():
        draw, step, share = medians(rounds)
        print(f"| {name} | {1e3 * draw:.1f} | {1e3 * step:.0f} | {share:.1%} |")
    print("\n| 1,024 pairs, Trainer | drawn, steps/s | ready-made, steps/s | ratio |\n| --- | ---: | ---: | ---: |")
    for name, rounds in training.items():
        drawn, ready, ratio = medians(rounds)
        print(f"| {name} | {1 / drawn:.1f} | {1 / ready:.1f} | {1 / ratio:.2f} |")


if __name__ == "__main__":
    main()
