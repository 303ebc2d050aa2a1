"""The cost of GeometryMonitor on lightly's SimCLR, as a share of an epoch.

    python benchmarks/monitor_overhead.py [--rounds 3] [--steps 100] [--batch 128] [--epoch 390] [--threads 1]

The host of examples/attach/lightly_simclr.py (SimCLR with a ResNet-18) with 2048 as the hidden and the output width of
its head, on ready-made pairs of random 32 x 32 images, SGD, float32, CPU; the standard diagnostics with their defaults
(every 50 steps), by taps. Seconds are core time on one thread, which other work on the machine hardly moves. The time
in the monitor's own hooks is that of an observed step and of the readout at the end of an epoch; with that of a step
they give the share of an epoch of any length (`--epoch`, 390 steps: CIFAR-10 in batches of 128). Epochs of `--steps`
steps with and without the monitor take turns; their ratio stands beside it.

It needs lightly.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import torch
from epoch import one_epoch, silence
from lightly.models.modules import SimCLRProjectionHead
from machine import machine
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.loggers import ResumableCSVLogger

sys.path.insert(0, str(Path(__file__).parents[1] / "examples" / "attach"))
from lightly_simclr import Host

TAPS = {"h": "backbone", "z": "projection_head", "projector": "projection_head"}


class Pairs(Dataset):
    """Batches ([x0, x1], label) of random images, the same ones again and again."""

    def __init__(self, steps, batch):
        self.steps = steps
        self.views = list(torch.randn(2, batch, 3, 32, 32))
        self.label = torch.arange(batch) % 10

    def __len__(self):
        return self.steps

    def __getitem__(self, index):
        return self.views, self.label


class SimCLR(Host):
    """The host with the head of lightly's documentation."""

    def __init__(self):
        super().__init__()
        self.projection_head = SimCLRProjectionHead(512, 2048, 2048)


class TimedMonitor(GeometryMonitor):
    """The monitor, and the seconds of its observed steps and of its readout."""

    def __init__(self):
        super().__init__(taps=TAPS, every_n_steps=50)
        self.observed, self.readout = [], 0.0

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx):
        began = time.process_time()
        super().on_train_batch_end(trainer, pl_module, outputs, batch, batch_idx)
        if batch_idx % self.every_n_steps == 0:
            self.observed.append(time.process_time() - began)

    def on_train_epoch_end(self, *arguments):
        began = time.process_time()
        super().on_train_epoch_end(*arguments)
        self.readout = time.process_time() - began


def epoch(steps, batch, *callbacks):
    """Seconds of one epoch under the Trainer."""
    torch.manual_seed(0)
    logger = ResumableCSVLogger(tempfile.mkdtemp())
    loader = DataLoader(Pairs(steps, batch), batch_size=None)
    return one_epoch(SimCLR(), callbacks=callbacks, logger=logger, now=time.process_time, train_dataloaders=loader)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epoch", type=int, default=390)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    silence()
    torch.set_num_threads(options.threads)
    print(machine("lightning", "lightly"))
    epoch(2, options.batch, TimedMonitor())
    rows = [measure(options) for _ in range(options.rounds)]
    print("| ms a step | ms of an observed step | ms of a readout | hooks, of an epoch | epochs with / without |")
    print("| ---: | ---: | ---: | ---: | ---: |")
    step, observed, readout, share, ratio = (statistics.median(column) for column in zip(*rows, strict=True))
    print(f"| {1e3 * step:.0f} | {1e3 * observed:.0f} | {1e3 * readout:.0f} | {100 * share:.1f}% | {ratio:.2f} |")


def measure(options):
    """Seconds of a step, an observed step and a readout, their share of an epoch, and the ratio of two epochs."""
    bare = epoch(options.steps, options.batch)
    monitor = TimedMonitor()
    watched = epoch(options.steps, options.batch, monitor)
    step, observed = bare / options.steps, statistics.mean(monitor.observed)
    count = -(-options.epoch // monitor.every_n_steps)
    return (
        step,
        observed,
        monitor.readout,
        (count * observed + monitor.readout) / (options.epoch * step),
        watched / bare,
    )


if __name__ == "__main__":
    main()
