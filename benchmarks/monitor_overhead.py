"""The cost of GeometryMonitor on lightly's SimCLR, as a share of an epoch.

    python benchmarks/monitor_overhead.py [--rounds 3] [--steps 100] [--batch 128] [--epoch 390] [--threads 1]

SimCLR with a ResNet-18 as lightly's documentation builds it (hidden and output width of the head: 2048), on ready-made
pairs of random 32 x 32 images, SGD, float32, CPU; the standard diagnostics with their defaults (every 50 steps), by
taps. Seconds are core time on one thread, which other work on the machine hardly moves. The time in the monitor's own
hooks is that of an observed step and of the readout at the end of an epoch; with that of a step they give the share
of an epoch of any length (`--epoch`, 390 steps: CIFAR-10 in batches of 128). Epochs of `--steps` steps with and without
the monitor take turns; their ratio stands beside it.

It needs lightly.
"""

import argparse
import logging
import statistics
import tempfile
import time
import warnings

import lightning as L
import torch
from lightly.loss import NTXentLoss
from lightly.models.modules import SimCLRProjectionHead
from torch import nn
from torch.utils.data import DataLoader, Dataset
from torchvision.models import resnet18

from lightning_ssl_geometry.callbacks import GeometryMonitor
from lightning_ssl_geometry.loggers import ResumableCSVLogger

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


class SimCLR(L.LightningModule):
    """As lightly's documentation has it."""

    def __init__(self):
        super().__init__()
        self.backbone = nn.Sequential(*list(resnet18().children())[:-1])
        self.projection_head = SimCLRProjectionHead(512, 2048, 2048)
        self.criterion = NTXentLoss()

    def training_step(self, batch, batch_idx):
        z0, z1 = (self.projection_head(self.backbone(x).flatten(1)) for x in batch[0])
        return self.criterion(z0, z1)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.06)


class Clock(L.Callback):
    """Seconds from the first training batch's start to the end of the epoch's last hook."""

    def on_train_epoch_start(self, *_):
        self.began = time.process_time()

    def on_train_epoch_end(self, *_):
        self.seconds = time.process_time() - self.began


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
    clock = Clock()
    trainer = L.Trainer(
        max_epochs=1,
        accelerator="cpu",
        logger=ResumableCSVLogger(tempfile.mkdtemp()),
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, clock],
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(SimCLR(), DataLoader(Pairs(steps, batch), batch_size=None))
    return clock.seconds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--batch", type=int, default=128)
    parser.add_argument("--epoch", type=int, default=390)
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(options.threads)
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
