"""Modules that reduce feature maps (N, C, |G|, H, W) to vectors or logits."""

__all__ = ["GroupClassifier", "GroupConvClassifier", "GroupPool"]

from collections.abc import Sequence
from typing import Literal

from torch import Tensor, nn

from lightning_ssl_geometry.checks import one_of, shaped
from lightning_ssl_geometry.nn.equivariant.groups import BackboneGroup, elements
from lightning_ssl_geometry.nn.equivariant.layers import FilterSettings, GroupConv2d


class GroupPool(nn.Module):
    """Reduce a feature map to one vector per image: pool over the group, then average over space.

    Maps (N, C, |G|, H, W) or (N, C, H, W) to (N, C). A vector (N, D) is not changed.

    Args:
        mode: "max" or "mean" over the group. Both are invariant to permutations of the group.

    Raises:
        ValueError: If `mode` is unknown. A call raises it if the input has another number of axes.
    """

    def __init__(self, mode: Literal["max", "mean"] = "max") -> None:
        super().__init__()
        one_of(("max", "mean"), mode=mode)
        self.mode = mode

    def forward(self, z: Tensor) -> Tensor:
        if z.ndim not in (2, 4, 5):
            wanted = "(N, C, |G|, H, W), (N, C, H, W) or (N, D)"
            raise ValueError(f"Expected `z` of shape {wanted}, but got {tuple(z.shape)}.")
        if z.ndim == 5:
            z = z.amax(2) if self.mode == "max" else z.mean(2)
        return z.mean((-2, -1)) if z.ndim == 4 else z


class GroupClassifier(nn.Module):
    """Maximum over the group, batch norm, ReLU, mean over space, batch norm, linear layer.

    Keller et al. 2022 use it for CIFAR-10 (Appendix B).

    Args:
        channels: C.
        num_classes: Number of classes.
    """

    def __init__(self, channels: int, num_classes: int) -> None:
        super().__init__()
        self.norm, self.last_norm = nn.BatchNorm2d(channels), nn.BatchNorm1d(channels)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, C, |G|, H, W) to logits (N, classes)."""
        shaped("N, C, |G|, H, W", z=z)
        return self.linear(self.last_norm(self.norm(z.amax(2)).relu().mean((-2, -1))))


class GroupConvClassifier(nn.Module):
    """Group convolution, maximum over the group, mean over space, linear layer, as in Keller et al. 2022 for MNIST.

    The convolution (Appendix B) has kernel size 7, effective size 3, stride 2 and no padding, which reduces maps of 7
    or 8 pixels to one pixel. For smaller maps, use :class:`GroupClassifier`.

    Args:
        channels: C.
        num_classes: Number of classes.
        group: The group of the backbone.
        scales: The scales of the backbone.
        rotations: The number of rotations of the backbone.
    """

    def __init__(
        self,
        channels: int,
        num_classes: int,
        group: BackboneGroup = "scale",
        scales: Sequence[float] | None = None,
        *,
        rotations: int | None = None,
    ) -> None:
        super().__init__()
        chosen, turns, orientation = elements(group, scales, rotations)
        filters = FilterSettings(scales=chosen, rotations=turns, orientation=orientation, stride=2, padding=0)
        self.conv = GroupConv2d(channels, channels, kernel_size=7, effective_size=3, **filters)
        self.linear = nn.Linear(channels, num_classes)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, C, |G|, H, W) to logits (N, classes)."""
        return self.linear(self.conv(z).amax(2).mean((-2, -1)))
