"""ResNet backbones: map images x (N, C, H, W) to representations h (N, D)."""

__all__ = ["ResNet"]

from collections.abc import Callable
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer, one_of
from lightning_ssl_geometry.nn.norms import Norm2d, norm_2d

_NormLayer = Callable[[int], nn.Module]
_BLOCKS = {18: (2, 2, 2, 2), 34: (3, 4, 6, 3), 50: (3, 4, 6, 3)}


class ResNet(nn.Module):
    """torchvision's ResNet without its classifier, with any width, and stems for small images.

    Args:
        depth: 18, 34 or 50.
        in_channels: C.
        stem: "cifar": a 3x3 convolution without pooling, SimCLR's stem for 32 x 32 images. "stride": the same with
            stride 2. "imagenet": a 7x7 convolution with stride 2, and max pooling.
        norm: "batch" or "group". "group" has 8 groups and no batch statistics. It needs a `width` that is a multiple of
            8.
        width: Channels of the stem and of the first stage. The next stages have 2, 4 and 8 times as many.

    Attributes:
        out_dim: D, the number of outputs: 8 * `width` (512 by default), or 32 * `width` (2048) for depth 50.
        network: The network. Its layers have torchvision's names: "layer4.2.conv3" is the last convolution of depth 50.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        depth: Literal[18, 34, 50] = 18,
        in_channels: int = 3,
        stem: Literal["cifar", "stride", "imagenet"] = "cifar",
        norm: Norm2d = "batch",
        width: int = 64,
    ) -> None:
        super().__init__()
        integer(1, depth=depth, in_channels=in_channels, width=width)
        one_of(tuple(_BLOCKS), depth=depth)
        one_of(("cifar", "stride", "imagenet"), stem=stem)
        network = _network(depth, width, partial(norm_2d, norm))
        self.out_dim: int = network.fc.in_features
        network.fc = nn.Identity()
        if stem != "imagenet":
            network.conv1 = nn.Conv2d(in_channels, width, 3, stride=1 if stem == "cifar" else 2, padding=1, bias=False)
            network.maxpool = nn.Identity()
        elif in_channels != 3:
            network.conv1 = nn.Conv2d(in_channels, width, 7, stride=2, padding=3, bias=False)
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, D)."""
        return self.network(x)


def _network(depth: int, width: int, norm_layer: _NormLayer) -> Any:
    from torchvision.models import resnet

    make = getattr(resnet, f"resnet{depth}")
    if width == 64:
        return make(norm_layer=norm_layer)
    with torch.device("meta"):
        network = make()  # only its forward is used; all layers with weights are replaced
    block = resnet.Bottleneck if depth == 50 else resnet.BasicBlock
    network.conv1 = nn.Conv2d(3, width, 7, stride=2, padding=3, bias=False)
    network.bn1 = norm_layer(width)
    channels = width
    for i, blocks in enumerate(_BLOCKS[depth]):
        stage = _stage(block, channels, width * 2**i, blocks=blocks, stride=1 if i == 0 else 2, norm_layer=norm_layer)
        setattr(network, f"layer{i + 1}", stage)
        channels = width * 2**i * block.expansion
    network.fc = nn.Linear(channels, 1)
    for layer in network.modules():
        if isinstance(layer, nn.Conv2d):
            nn.init.kaiming_normal_(layer.weight, mode="fan_out", nonlinearity="relu")
    return network


def _stage(block: Any, channels: int, planes: int, blocks: int, stride: int, norm_layer: _NormLayer) -> nn.Sequential:
    out, downsample = planes * block.expansion, None
    if stride != 1 or channels != out:
        downsample = nn.Sequential(nn.Conv2d(channels, out, 1, stride, bias=False), norm_layer(out))
    first = block(channels, planes, stride, downsample, norm_layer=norm_layer)
    return nn.Sequential(first, *(block(out, planes, norm_layer=norm_layer) for _ in range(1, blocks)))
