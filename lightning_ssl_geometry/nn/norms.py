"""Normalisation layers by name."""

__all__ = ["Norm1d", "Norm2d", "norm_1d", "norm_2d"]

from typing import Literal, get_args

from torch import nn

Norm1d = Literal["batch", "layer", "none"]
Norm2d = Literal["batch", "group"]


def norm_1d(name: Norm1d, features: int) -> nn.Module:
    """Make a normalisation of (N, features): "batch", "layer" or "none". Raise a ValueError for another name."""
    if name == "batch":
        return nn.BatchNorm1d(features)
    if name == "layer":
        return nn.LayerNorm(features)
    if name == "none":
        return nn.Identity()
    raise ValueError(f"Expected `norm` to be one of {get_args(Norm1d)}, but got {name!r}.")


def norm_2d(name: Norm2d, channels: int) -> nn.Module:
    """Make a normalisation of (N, channels, H, W): "batch", or "group" with 8 groups.

    Raise a ValueError for another name, or if `channels` is not a multiple of 8 for "group".
    """
    if name == "batch":
        return nn.BatchNorm2d(channels)
    if name == "group":
        if channels % 8:
            raise ValueError(f"Expected a multiple of 8 channels for `norm='group'`, but got {channels}.")
        return nn.GroupNorm(8, channels)
    raise ValueError(f"Expected `norm` to be one of {get_args(Norm2d)}, but got {name!r}.")
