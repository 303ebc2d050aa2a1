"""SimCLR under the Trainer against its ceiling: the same network, forward and backward, on ready-made views.

    python benchmarks/end_to_end.py [--channels-last] [--peer]

Made-up 32 x 32 images, batch 256, SmallCNN of width 32, linear projector to 128, NT-Xent, SGD; 2 threads. The ceiling
has neither views, nor Trainer, nor optimizer. Rounds alternate between the contestants, so that a noisy machine
disturbs all alike; each ratio is the median over rounds. `--peer` adds lightly's usual recipe: its SimCLRTransform in a
DataLoader with 2 workers, and its NTXentLoss, on the same network under the same Trainer.
"""

import argparse
import logging
import statistics
import time
import warnings

import lightning as L
import torch
from torch import nn
from torch.utils.data import DataLoader

from lightning_ssl_geometry.data.base import ImageDataModule
from lightning_ssl_geometry.functional import info_nce
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import SmallCNN
from lightning_ssl_geometry.views import SimCLRViews

BATCH, STEPS = 256, 20


class MadeUpImages(ImageDataModule):
    """As many random images as one round takes."""

    def __init__(self, color, channels_last):
        views = SimCLRViews(strength="large", color=color, channels_last=channels_last)
        super().__init__(batch_size=BATCH, views=views, val_fraction=0.0)

    def load(self):
        """Make images."""
        raise RuntimeError


def network(channels_last):
    torch.manual_seed(0)
    backbone = SmallCNN(3, 32)
    if channels_last:
        backbone = backbone.to(memory_format=torch.channels_last)
    return backbone, nn.Linear(256, 128, bias=False)
