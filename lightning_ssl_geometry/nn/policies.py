"""Policies: map images x (N, C, H, W) to logits (N, K) of K augmentations.

Any network with K outputs can be a policy.
"""

__all__ = ["ConvPolicy"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer


class ConvPolicy(nn.Module):
    """Scores every crop of a `CropFamily` by its content, with the same convolutions at every position.

    Two 3x3 convolutions have the total stride `reduction`. The next convolution has the size of a crop and the stride
    of the crops. So the logit of a crop depends only on this crop and a few pixels around it. A policy with linear
    layers over the image could prefer crops by position, and the encoder could learn positions in place of content.

    Height and width of the images should be multiples of `reduction`. Otherwise there may be more logits than crops,
    and :class:`CRLTACModule` raises an error.

    Args:
        in_channels: C.
        size: Height and width of the crops, in pixels.
        stride: Pixels between neighbouring crops.
        width: Channels of all convolutions.
        reduction: 1, 2 or 4: stride of the first two convolutions together. It must divide `size` and `stride`.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self, in_channels: int = 1, size: int = 20, stride: int = 4, width: int = 32, reduction: int = 4
    ) -> None:
        integer(1, in_channels=in_channels, size=size, stride=stride, width=width)
        if reduction not in (1, 2, 4) or size % reduction or stride % reduction:
            wanted = f"1, 2 or 4 and to divide {size} (`size`) and {stride} (`stride`)"
            raise ValueError(f"Expected `reduction` to be {wanted}, but got {reduction}.")
        super().__init__()
        strides = {1: (1, 1), 2: (2, 1), 4: (2, 2)}[reduction]
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, width, 3, stride=strides[0], padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, 3, stride=strides[1], padding=1),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, width, size // reduction, stride=stride // reduction),
            nn.ReLU(inplace=True),
            nn.Conv2d(width, 1, 1),
        ).to(memory_format=torch.channels_last)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, K), with the crops row by row."""
        return self.layers(x).flatten(1)
