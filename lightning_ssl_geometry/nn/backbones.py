"""Backbones: map images x (N, C, H, W) to representations h (N, D)."""

__all__ = ["ShallowCNN", "SmallCNN", "TimmBackbone"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer
from lightning_ssl_geometry.nn.norms import Norm2d, norm_2d
from lightning_ssl_geometry.spelling import near, one_of_these


class SmallCNN(nn.Sequential):
    """Four 3x3 convolutions, two of them with stride 2, and a global average, for images of 8 to 32 pixels.

    The attribute `out_dim` is D = 8 * `width`.

    Args:
        in_channels: C.
        width: Channels of the first convolution. The others have 2, 4 and 8 times as many.
        norm: "batch" or "group". "group" has 8 groups and no batch statistics. It needs a `width` that is a multiple of
            8.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(self, in_channels: int = 3, width: int = 32, norm: Norm2d = "batch") -> None:
        integer(1, in_channels=in_channels, width=width)
        super().__init__()
        channels = [in_channels, width, 2 * width, 4 * width, 8 * width]
        for i, stride in enumerate((1, 2, 2, 1)):
            self.append(nn.Conv2d(channels[i], channels[i + 1], 3, stride=stride, padding=1, bias=False))
            self.append(norm_2d(norm, channels[i + 1]))
            self.append(nn.ReLU(inplace=True))
        self.append(nn.AdaptiveAvgPool2d(1))
        self.append(nn.Flatten())
        self.out_dim = channels[-1]


class ShallowCNN(nn.Sequential):
    """Two 3x3 convolutions with ReLU, average pooling by 2, and linear layers. The output depends on positions.

    With `hidden_dim=128` and one output for each augmentation, it is the policy network of Koyama et al., Contrastive
    Representation Learning with Trainable Augmentation Channel (2021), Fig. 5. Without `hidden_dim` and with 200
    outputs, it is their encoder, as far as they describe it. Its memory format is `channels_last`.

    Args:
        in_channels: C.
        image_size: Height and width of the images, in pixels.
        out_dim: D, the number of outputs. The last layer has no ReLU.
        width: Channels of each convolution.
        hidden_dim: Outputs of a linear layer with ReLU before the last layer. None: no such layer.
        strides: Stride of each convolution.

    Raises:
        ValueError: If a number is not positive, or the images are too small for the strides.
    """

    def __init__(
        self,
        in_channels: int = 1,
        image_size: int = 20,
        out_dim: int = 200,
        width: int = 32,
        hidden_dim: int | None = None,
        strides: tuple[int, int] = (1, 1),
    ) -> None:
        sizes = {"in_channels": in_channels, "image_size": image_size, "out_dim": out_dim, "width": width}
        sizes |= {"hidden_dim": 1 if hidden_dim is None else hidden_dim}
        integer(1, **sizes)
        if len(strides) != 2:
            raise ValueError(f"Expected `strides` of the 2 convolutions, but got {strides}.")
        side = image_size
        for stride in strides:
            integer(1, strides=stride)
            side = (side - 1) // stride + 1
        if side < 2:
            raise ValueError(f"Expected `strides` to leave at least 2 of {image_size} pixels, but got {strides}.")
        super().__init__()
        for channels, stride in zip((in_channels, width), strides, strict=True):
            self.append(nn.Conv2d(channels, width, 3, stride=stride, padding=1))
            self.append(nn.ReLU(inplace=True))
        self.append(nn.AvgPool2d(2))
        self.append(nn.Flatten())
        features = width * (side // 2) ** 2
        if hidden_dim is not None:
            self.append(nn.Linear(features, hidden_dim))
            self.append(nn.ReLU(inplace=True))
            features = hidden_dim
        self.append(nn.Linear(features, out_dim))
        self.to(memory_format=torch.channels_last)
        self.out_dim = out_dim


class TimmBackbone(nn.Module):
    """Any timm model without its classifier. The attribute `out_dim` is D.

    Args:
        name: timm's name, such as "resnet18" or "vit_tiny_patch16_224".
        in_channels: C.
        pretrained: Whether to download and load timm's pretrained weights.

    Raises:
        ValueError: If timm has no model of that name. The message lists the nearest names.
    """

    def __init__(self, name: str, in_channels: int = 3, pretrained: bool = False) -> None:
        super().__init__()
        import timm

        if not timm.is_model(name):
            hint = one_of_these(near(name, timm.list_models())) or " `timm.list_models()` lists all."
            raise ValueError(f"Expected `name` to be a timm model, but got {name!r}.{hint}")
        network: nn.Module = timm.create_model(name, pretrained=pretrained, in_chans=in_channels, num_classes=0)
        # a head that stays without the classifier has an output of its own
        self.out_dim = int(getattr(network, "head_hidden_size", None) or network.num_features)  # type: ignore[arg-type]
        self.network = network

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C, H, W) to (N, D)."""
        return self.network(x)
