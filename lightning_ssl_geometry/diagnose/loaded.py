"""Loaded: a network with its weights, ready to be diagnosed."""

__all__ = ["Loaded"]

from dataclasses import dataclass
from typing import Any

import lightning as L
from lightning.pytorch import LightningDataModule
from torch import nn

from lightning_ssl_geometry.observe.tokens import Token


@dataclass
class Loaded:
    """A network with its weights and, if known, the normalisation and the size of its training images."""

    network: nn.Module
    about: dict[str, Any]  # entries for run.json, such as the checkpoint
    normalization: tuple[tuple[float, ...], tuple[float, ...]] | None = None  # mean and deviation per channel
    image_size: int | None = None  # height and width in pixels
    data: LightningDataModule | None = None  # on which the network was trained
    token: Token | None = None  # with which the network makes h of its tokens, if it says so

    @property
    def module(self) -> L.LightningModule:
        """The network as a LightningModule."""
        assert isinstance(self.network, L.LightningModule)
        return self.network
