"""SimCLR under the Trainer against its ceiling, and the cost of GeometryMonitor.

    python benchmarks/end_to_end.py [--rounds 3] [--peer] [--profile]

Made-up 32 x 32 colour images, batch 256, SmallCNN of width 8, linear projector to 128, NT-Xent, SGD;
float32, 2 threads.
The ceiling is the same network, forward and backward, on ready-made views: no views, Trainer, optimizer or loader.
Contestants take turns, so that a busy machine disturbs all alike; a ratio is the median over the rounds of the ratios
within a round. `--peer` adds lightly's recipe on the same network under the same Trainer: its SimCLRTransform in a
DataLoader with 2 workers, and its NTXentLoss (it needs lightly in the environment, and the plain memory layout).

The monitor's row: the standard diagnostics every 50 steps on an epoch of 200 steps; its share is the time spent in its
own hooks, of the same epoch (epochs with and without it differ by less than this machine's noise).

`--profile` prints, in place of all this, what the parts of a step take, by Lightning's profiler.
"""

import argparse
import statistics
import time

import lightning as L
import torch
from epoch import one_epoch, silence
from lightning.pytorch.profilers import PassThroughProfiler, SimpleProfiler
from machine import machine
from torch import nn

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.data import ImageDataModule, Images, Source
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.views import SimCLRViews

BATCH = 256
PARTS = {  # of a step, and their names in Lightning's profiler
    "views": "[LightningDataModule]MadeUpDataModule.on_after_batch_transfer",
    "rows of the images": "[_TrainingEpochLoop].train_dataloader_next",
    "forward and loss": "[Strategy]SingleDeviceStrategy.training_step",
    "backward": "[Strategy]SingleDeviceStrategy.backward",
}
STEP = "[LightningModule]SimCLRModule.optimizer_step"  # with forward and backward


class MadeUpDataModule(ImageDataModule):
    """Random images, as many as `steps` batches take."""

    def __init__(self, steps, views, batch=BATCH):
        super().__init__(batch, views, 0.0, None, None, 0, True)
        self.rows = steps * batch

    def load(self):
        """Make them."""
        made = Images(torch.randint(256, (self.rows, 3, 32, 32), dtype=torch.uint8), torch.arange(self.rows) % 10)
        return Source(made, made, [*map(str, range(10))])


class TimedMonitor(GeometryMonitor):
    """The monitor, and the seconds spent in its hooks."""

    def __init__(self):
        super().__init__(stages=["train"], every_n_steps=50)
        self.seconds = 0.0

    def _timed(self, hook, *arguments):
        began = time.perf_counter()
        hook(*arguments)
        self.seconds += time.perf_counter() - began

    def on_train_batch_start(self, *arguments):
        self._timed(super().on_train_batch_start, *arguments)

    def on_train_batch_end(self, *arguments):
        self._timed(super().on_train_batch_end, *arguments)

    def on_train_epoch_end(self, *arguments):
        self._timed(super().on_train_epoch_end, *arguments)


def network():
    torch.manual_seed(0)
    return SmallCNN(3, 8), nn.Linear(64, 128, bias=False)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=0.01)


def ours(steps, color, channels_last, *callbacks, profiler=None):
    views = SimCLRViews(color=color, channels_last=channels_last)
    module, data = SimCLRModule(*network(), optimizer=sgd), MadeUpDataModule(steps, views)
    return one_epoch(module, callbacks=callbacks, profiler=profiler, datamodule=data) / steps


def ceiling(steps, channels_last, profiler=None):
    profiler = profiler or PassThroughProfiler()
    backbone, projector = network()
    loss = InfoNCELoss()
    views = torch.randn(2 * BATCH, 3, 32, 32)
    views = views.to(memory_format=torch.channels_last) if channels_last else views
    began = time.perf_counter()
    for _ in range(steps):
        with profiler.profile(PARTS["forward and loss"]):
            z1, z2 = projector(backbone(views)).chunk(2)
            value = loss(z1, z2)
        with profiler.profile(PARTS["backward"]):
            value.backward()
    return (time.perf_counter() - began) / steps


def lightly(steps):
    from lightly.loss import NTXentLoss
    from lightly.transforms import SimCLRTransform
    from torch.utils.data import DataLoader, Dataset
    from torchvision.transforms.functional import to_pil_image

    class Folder(Dataset):
        transform = SimCLRTransform(input_size=32, gaussian_blur=0.0)

        def __len__(self):
            return steps * BATCH

        def __getitem__(self, index):
            return self.transform(to_pil_image(torch.randint(256, (3, 32, 32), dtype=torch.uint8)))

    class Host(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.backbone, self.projector = network()
            self.loss = NTXentLoss()

        def training_step(self, batch, batch_idx):
            z1, z2 = (self.projector(self.backbone(view)) for view in batch)
            return self.loss(z1, z2)

        def configure_optimizers(self):
            return sgd(self.parameters())

    loader = DataLoader(Folder(), batch_size=BATCH, num_workers=2, drop_last=True)
    return one_epoch(Host(), train_dataloaders=loader) / steps


def rows(steps, peer):
    """Milliseconds per step of every contestant, in turns."""
    found = {}
    for layout, last in (("plain", False), ("channels_last", True)):
        found[layout, "ceiling"] = ceiling(steps, last)
        for color in ("exact", "fast"):
            found[layout, f"ours, {color} colour"] = ours(steps, color, last)
    if peer:
        found["plain", "lightly"] = lightly(steps)
    return found


def parts(contestant, steps, *settings):
    """Milliseconds per step of the parts of a step, of the optimizer, and of all else."""
    profiler = SimpleProfiler()
    seconds = contestant(steps, *settings, profiler=profiler)
    spent = {name: sum(profiler.recorded_durations.get(name, [])) / steps for name in (*PARTS.values(), STEP)}
    found = {name: spent[action] for name, action in PARTS.items()}
    inner = found["forward and loss"] + found["backward"]
    found["optimizer"] = max(spent[STEP] - inner, 0.0)
    found |= {"Trainer and all else": seconds - sum(found.values()), "whole": seconds}
    return {name: 1e3 * each for name, each in found.items()}


def print_profile(rounds, steps):
    calls = {}
    for layout, last in (("plain", False), ("channels_last", True)):
        calls[layout, "ceiling"] = lambda v=last: parts(ceiling, steps, v)
        for color in ("exact", "fast"):
            calls[layout, f"ours, {color} colour"] = lambda v=last, c=color: parts(ours, steps, c, v)
    found = [{key: call() for key, call in calls.items()} for _ in range(rounds)]
    names = list(found[0]["plain", "ceiling"])
    print(f"| ms of a step | | {' | '.join(names)} |\n| --- | --- |{' ---: |' * len(names)}")
    for key in calls:
        cells = [f"{statistics.median(each[key][name] for each in found):.1f}" for name in names]
        print(f"| {' | '.join([*key, *cells])} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=40)
    parser.add_argument("--peer", action="store_true")
    parser.add_argument("--monitor-rounds", type=int, default=3)
    parser.add_argument("--profile", action="store_true", help="only the parts of a step")
    options = parser.parse_args()
    silence()
    torch.set_num_threads(2)
    print(machine("torchvision", "lightning", "lightly"))
    rows(2, options.peer and not options.profile)
    if options.profile:
        print_profile(options.rounds, options.steps)
        return
    rounds = [rows(options.steps, options.peer) for _ in range(options.rounds)]
    if rounds:
        print("| layout | contestant | ms a step | of the ceiling |\n| --- | --- | --- | --- |")
    for layout, name in rounds[0] if rounds else ():
        ratio = statistics.median(r[layout, "ceiling"] / r[layout, name] for r in rounds)
        seconds = statistics.median(r[layout, name] for r in rounds)
        print(f"| {layout} | {name} | {1e3 * seconds:.0f} | {ratio:.2f} |")
    shares = []
    for _ in range(options.monitor_rounds):
        monitor = TimedMonitor()
        shares.append(monitor_share(monitor, ours(200, "fast", True, monitor) * 200))
    if shares:
        print(f"\nGeometryMonitor, every 50 steps: {100 * statistics.median(shares):.1f}% of an epoch of 200 steps")
        print(f"(rounds: {', '.join(f'{100 * s:.1f}%' for s in shares)})")


def monitor_share(monitor, epoch):
    """Its hooks' seconds over those of the epoch without them."""
    return monitor.seconds / (epoch - monitor.seconds)


if __name__ == "__main__":
    main()
