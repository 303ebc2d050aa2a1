"""The backbones of Keller et al., Homomorphic Self-Supervised Learning, Appendix B, and plain networks for comparison.

Each maps images (N, C_in, H, W) to feature maps z (N, C, |G|, H', W'). The attribute `out_dim` is C. The attribute
`group_shape` is (S, R), the numbers of scales and orientations. Scale s and orientation r have the index s R + r.
"""

__all__ = ["EquivariantCNN", "EquivariantResNet", "UnstructuredCNN", "UnstructuredMLP", "UnstructuredResNet"]

import math
from collections.abc import Sequence
from typing import Literal, get_args

from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer, one_of
from lightning_ssl_geometry.nn.equivariant.basis import BasisType
from lightning_ssl_geometry.nn.equivariant.groups import BackboneGroup, GroupElements, check_exact_size, elements
from lightning_ssl_geometry.nn.equivariant.layers import (
    FilterSettings,
    GroupBatchNorm,
    GroupConv2d,
    LiftingConv2d,
    PaddingMode,
    PointwiseConv2d,
)
from lightning_ssl_geometry.nn.norms import Norm2d, norm_2d

Kernels = Literal["paper", "accurate"]
Layer = tuple[int, int, int]  # kernel size, effective size, stride
_MNIST = ((11, 11, 1), (7, 3, 2), (7, 3, 2))  # kernel size, effective size, stride
_KERNELS = {"paper": _MNIST, "accurate": ((11, 3, 1), (11, 3, 2), (11, 3, 1))}


class EquivariantCNN(nn.Module):
    """Three steerable convolutions, each with a normalisation and a ReLU: the MNIST network of Keller et al. 2022.

    The "paper" kernels have 11, 7 and 7 pixels, and the strides are 1, 2 and 2. So images of 29 x 29 pixels become maps
    of 8 x 8. Images of 28 x 28 pixels become 7 x 7, although the paper states 8 x 8. The "accurate" kernels have 11
    pixels, leave more room around the filters, and have the strides 1, 2 and 1 (29 pixels become 15). For scales, the
    paper's filters are cut off and their maps are sampled coarsely: on MNIST, the equivariance error of an untrained
    network is 0.36 with "paper" and 0.09 with "accurate" (means over pairs of the six scales). Equivariance to quarter
    turns is exact with both, for image sizes 4k + 1, such as 29.

    Attributes: `out_dim` = C = 4 * `width`, `group_shape` = (S, R) for S scales and R orientations, `scales`,
    `rotations`, `orientation` ("rotation", "dihedral", "hue" or None) and `stride`.

    Args:
        in_channels: C_in.
        width: Channels of the first convolution, 32 in the paper. The others have 2 and 4 times as many.
        group: "rotation", "scale", "scale-rotation", "dihedral" (rotations and mirror images), "hue" (rotations of the
            colours, C_in = 3) or "translation". Translations are always in the group.
        scales: Scales of the group, ascending, the first >= 0.5. None: the paper's six scales.
        interaction: Whether a filter's input has all orientations. False: only the filter's own orientation, as in the
            paper.
        scale_interaction: Number of scales in a filter's input, from its own scale upwards. The paper uses 1.
        norm: "batch" or "group". "group" has 8 groups and no batch statistics.
        padding_mode: "zeros", or "circular" for exact equivariance to translations by multiples of `stride` pixels.
        rotations: The number of rotations of the plane or of the hue. None: 4, and 3 for "hue". Rotations of the plane
            by other angles than quarter turns are approximate.
        kernels: "paper", "accurate", or (kernel size, effective size, stride) of each of the three convolutions. None:
            "accurate" for groups with scales or with rotations by other angles than quarter turns, and "paper" for the
            others, which are exact.
        basis_type: "A", "B" or "fitted", the basis functions of all filters (see
            :func:`~lightning_ssl_geometry.nn.equivariant.basis.hermite_gaussian_basis`). "fitted" makes narrow filters
            more equivariant to scale.
        recompute: Whether the backward pass computes the convolutions' inner maps a second time (see
            :class:`FilterBank`): less memory, and more time.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        in_channels: int = 1,
        width: int = 32,
        group: BackboneGroup = "scale",
        scales: Sequence[float] | None = None,
        interaction: bool = False,
        scale_interaction: int = 1,
        norm: Norm2d = "batch",
        padding_mode: PaddingMode = "zeros",
        *,
        rotations: int | None = None,
        kernels: Kernels | tuple[Layer, Layer, Layer] | None = None,
        basis_type: BasisType = "A",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        of_group = elements(group, scales, rotations)
        sampled = len(of_group.scales) > 1 or (of_group.orientation != "hue" and 4 % of_group.rotations)
        default: Kernels = "accurate" if sampled else "paper"
        sizes_of_layers = _layers(default if kernels is None else kernels)
        self.scales, self.rotations, self.group_shape = of_group.scales, of_group.rotations, of_group.shape
        self.orientation = of_group.orientation if of_group.shape[1] > 1 else None
        self._square = _turns_pixels(of_group)
        self.stride = math.prod(stride for _, _, stride in sizes_of_layers)
        channels = [in_channels, width, 2 * width, 4 * width]
        self.layers = nn.Sequential()
        reach = {"scale_size": scale_interaction, "rotation_size": self.group_shape[1] if interaction else 1}
        filters = _filters(of_group, padding_mode, basis_type, recompute=recompute)
        for i, (kernel, effective, stride) in enumerate(sizes_of_layers):
            sizes, filters["stride"] = {"kernel_size": kernel, "effective_size": effective}, stride
            a, b = channels[i : i + 2]
            conv = GroupConv2d(a, b, **sizes, **reach, **filters) if i else LiftingConv2d(a, b, **sizes, **filters)
            self.layers.extend([conv, _norm(norm, channels[i + 1]), nn.ReLU()])
        self.out_dim = channels[-1]

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, |G|, H', W')."""
        if self._square:
            check_exact_size(x.shape[-2], x.shape[-1], self.stride)
        return self.layers(x)


class EquivariantResNet(nn.Module):
    """The residual networks of Keller et al. 2022: ResNet-20 for CIFAR-10, and a larger one for Tiny ImageNet.

    The layers are a lifting convolution (image to group) with 9 channels, a group convolution, and stages of
    pre-activation blocks. The defaults are for CIFAR-10. For Tiny ImageNet, set `blocks=2`, `widths=(1, 2, 4, 8)` and
    `strides=(1, 2, 2, 2)`. Equivariance to quarter turns is exact for image sizes 4k + 1 (8k + 1 for Tiny ImageNet).

    Attributes: `out_dim` = C, `group_shape` = (S, R) for S scales and R orientations, `scales`, `rotations`,
    `orientation` ("rotation", "dihedral", "hue" or None) and the total `stride`.

    Args:
        in_channels: C_in.
        width: Channels of the group convolution before the stages, 64 in the paper.
        group: "rotation", "scale", "scale-rotation", "dihedral" (rotations and mirror images), "hue" (rotations of the
            colours, C_in = 3) or "translation". Translations are always in the group.
        scales: Scales of the group, ascending, the first >= 0.5. None: the paper's six scales.
        widths: Channels of each stage, as multiples of `width`.
        strides: Stride of each stage.
        blocks: Blocks of each stage.
        norm: "batch" or "group". "group" has 8 groups and no batch statistics.
        padding_mode: "zeros", or "circular" for exact equivariance to translations by multiples of the total stride.
        rotations: The number of rotations of the plane or of the hue. None: 4, and 3 for "hue". Rotations of the plane
            by other angles than quarter turns are approximate.
        basis_type: "A", "B" or "fitted", the basis functions of all filters (see
            :func:`~lightning_ssl_geometry.nn.equivariant.basis.hermite_gaussian_basis`).
        recompute: Whether the backward pass computes the convolutions' inner maps a second time (see
            :class:`FilterBank`): less memory, and more time.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        in_channels: int = 3,
        width: int = 64,
        group: BackboneGroup = "scale",
        scales: Sequence[float] | None = None,
        widths: Sequence[int] = (2, 4, 8),
        strides: Sequence[int] = (1, 2, 2),
        blocks: int = 3,
        norm: Norm2d = "batch",
        padding_mode: PaddingMode = "zeros",
        *,
        rotations: int | None = None,
        basis_type: BasisType = "A",
        recompute: bool = False,
    ) -> None:
        super().__init__()
        stages = _stages(widths, strides, blocks)
        integer(1, in_channels=in_channels, width=width, blocks=blocks)
        of_group = elements(group, scales, rotations)
        self.scales, self.rotations, self.group_shape = of_group.scales, of_group.rotations, of_group.shape
        self.orientation = of_group.orientation if of_group.shape[1] > 1 else None
        self._square = _turns_pixels(of_group)
        filters = _filters(of_group, padding_mode, basis_type, recompute=recompute)
        self.layers = nn.Sequential(
            LiftingConv2d(in_channels, 9, kernel_size=7, effective_size=7, **filters),
            GroupConv2d(9, width, kernel_size=7, effective_size=3, **filters),
            _norm(norm, width),
            nn.ReLU(),
        )
        channels = width
        for factor, stride in stages:
            self.layers.append(_equivariant_block(channels, factor * width, stride, norm=norm, filters=filters))
            channels = factor * width
        self.stride, self.out_dim = math.prod(strides), channels

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, |G|, H', W')."""
        if self._square:
            check_exact_size(x.shape[-2], x.shape[-1], self.stride)
        return self.layers(x)


class _Block(nn.Module):
    def __init__(self, first: nn.Module, second: nn.Module, shortcut: nn.Module | None) -> None:
        super().__init__()
        self.first, self.second, self.shortcut = first, second, shortcut

    def forward(self, z: Tensor) -> Tensor:
        x = self.first(z)
        return self.second(x) + (z if self.shortcut is None else self.shortcut(x))


def _equivariant_block(
    in_channels: int, out_channels: int, stride: int, *, norm: Norm2d, filters: FilterSettings
) -> _Block:
    sizes = {"kernel_size": 7, "effective_size": 3}
    strided = FilterSettings(**filters)
    strided["stride"] = stride
    second = nn.Sequential(
        GroupConv2d(in_channels, out_channels, **sizes, **strided),
        _norm(norm, out_channels),
        nn.ReLU(),
        GroupConv2d(out_channels, out_channels, **sizes, **filters),
    )
    changes = in_channels != out_channels or stride > 1
    shortcut = PointwiseConv2d(in_channels, out_channels, stride) if changes else None
    return _Block(nn.Sequential(_norm(norm, in_channels), nn.ReLU()), second, shortcut)


def _plain_block(in_channels: int, out_channels: int, stride: int) -> _Block:
    second = nn.Sequential(
        nn.Conv2d(in_channels, out_channels, 7, stride=stride, padding=3, bias=False),
        nn.BatchNorm2d(out_channels),
        nn.ReLU(inplace=True),
        nn.Conv2d(out_channels, out_channels, 7, padding=3, bias=False),
    )
    changes = in_channels != out_channels or stride > 1
    shortcut = nn.Conv2d(in_channels, out_channels, 1, stride=stride, bias=False) if changes else None
    return _Block(nn.Sequential(nn.BatchNorm2d(in_channels), nn.ReLU()), second, shortcut)


class UnstructuredCNN(nn.Module):
    """A plain CNN for comparison with EquivariantCNN: the same layers with `copies` times as many channels.

    This is "CNN (6 x CHW)" of Table 2 of Keller et al. 2022. The output (N, 4 * `width`, copies, H', W') has the shape
    of an equivariant feature map, but the network is not equivariant. `group_shape` is (copies, 1).

    Args:
        in_channels: C_in.
        width: Channels of the EquivariantCNN's first convolution, 32 in the paper.
        copies: |G|, the number of group elements of the EquivariantCNN.

    Raises:
        ValueError: If an argument is not positive.
    """

    def __init__(self, in_channels: int = 1, width: int = 32, copies: int = 6) -> None:
        integer(1, in_channels=in_channels, width=width, copies=copies)
        super().__init__()
        channels = [in_channels, width * copies, 2 * width * copies, 4 * width * copies]
        self.layers = nn.Sequential()
        for i, (kernel, _, stride) in enumerate(_MNIST):
            conv = nn.Conv2d(channels[i], channels[i + 1], kernel, stride=stride, padding=kernel // 2, bias=False)
            self.layers.extend([conv, nn.BatchNorm2d(channels[i + 1]), nn.ReLU(inplace=True)])
        self.out_dim, self.group_shape = 4 * width, (copies, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, copies, H', W')."""
        return self.layers(x).unflatten(1, (self.out_dim, -1))


class UnstructuredResNet(nn.Module):
    """A plain ResNet for comparison with EquivariantResNet: the same layers with `copies` times as many channels.

    `group_shape` is (copies, 1), although the network is not equivariant.

    Args:
        in_channels: C_in.
        width: Channels of the EquivariantResNet before its stages, 64 in Keller et al. 2022.
        copies: |G|, the number of group elements of the EquivariantResNet.
        widths: Channels of each stage of the EquivariantResNet, as multiples of `width`.
        strides: Stride of each stage.
        blocks: Blocks of each stage.

    Raises:
        ValueError: If an argument is not positive, or the numbers of strides and widths differ.
    """

    def __init__(
        self,
        in_channels: int = 3,
        width: int = 64,
        copies: int = 6,
        widths: Sequence[int] = (2, 4, 8),
        strides: Sequence[int] = (1, 2, 2),
        blocks: int = 3,
    ) -> None:
        integer(1, in_channels=in_channels, width=width, copies=copies, blocks=blocks)
        stages = _stages(widths, strides, blocks)
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(in_channels, 9 * copies, 7, padding=3, bias=False),
            nn.Conv2d(9 * copies, width * copies, 7, padding=3, bias=False),
            nn.BatchNorm2d(width * copies),
            nn.ReLU(inplace=True),
        )
        channels = width
        for factor, stride in stages:
            self.layers.append(_plain_block(channels * copies, factor * width * copies, stride))
            channels = factor * width
        self.out_dim, self.group_shape = channels, (copies, 1)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, copies, H', W')."""
        return self.layers(x).unflatten(1, (self.out_dim, -1))


class UnstructuredMLP(nn.Module):
    """A plain MLP for comparison with translation-equivariant networks. Its output is reshaped to a feature map.

    In Keller et al. 2022 (Appendix B), the layers have 784, 1024 and 2048 outputs. The 2048 outputs become `out_dim` =
    128 channels at 4 x 4 positions. The network is not equivariant to translations.

    Args:
        in_features: C_in H W of the images.
        width: Channels of the feature map, 128 in the paper. All numbers of outputs are multiplied by `width` / 128.
        side: Height and width of the feature map.

    Raises:
        ValueError: If an argument is not positive.
    """

    def __init__(self, in_features: int, width: int = 128, side: int = 4) -> None:
        integer(1, in_features=in_features, width=width, side=side)
        super().__init__()
        features = [in_features, round(784 * width / 128), 8 * width, side * side * width]
        self.layers = nn.Sequential(nn.Flatten())
        for i in range(3):
            linear = nn.Linear(features[i], features[i + 1], bias=False)
            self.layers.extend([linear, nn.BatchNorm1d(features[i + 1]), nn.ReLU(inplace=True)])
        self.out_dim, self.side = width, side

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, 1, side, side)."""
        return self.layers(x).unflatten(1, (self.side, self.side, 1, self.out_dim)).permute(0, 4, 3, 1, 2)


def _filters(
    group: GroupElements, padding_mode: PaddingMode, basis_type: BasisType, *, recompute: bool
) -> FilterSettings:
    of_group = FilterSettings(scales=group.scales, rotations=group.rotations, orientation=group.orientation)
    return FilterSettings(**of_group, padding_mode=padding_mode, basis_type=basis_type, recompute=recompute)


def _layers(kernels: Kernels | Sequence[Layer]) -> Sequence[Layer]:
    if isinstance(kernels, str):
        one_of(get_args(Kernels), kernels=kernels)
        return _KERNELS[kernels]
    if not _sized(kernels, 3) or not all(_sized(layer, 3) and {*map(type, layer)} == {int} for layer in kernels):
        wanted = "three of (kernel size, effective size, stride)"
        raise ValueError(f"Expected `kernels` to be 'paper', 'accurate', or {wanted}, but got {kernels}.")
    return kernels


def _sized(value: object, size: int) -> bool:
    return isinstance(value, Sequence) and len(value) == size


def _turns_pixels(group: GroupElements) -> bool:
    """Whether the group has half turns or mirror images, which are exact on images of suitable sizes only."""
    return group.orientation != "hue" and (group.rotations % 2 == 0 or group.orientation == "dihedral")


def _norm(name: Norm2d, channels: int) -> nn.Module:
    if name == "batch":
        return GroupBatchNorm(channels)
    return norm_2d(name, channels)  # GroupNorm takes its statistics over group and space


def _stages(widths: Sequence[int], strides: Sequence[int], blocks: int) -> list[tuple[int, int]]:
    if len(widths) != len(strides) or not widths:
        raise ValueError(f"Expected as many `strides` as `widths`, but got {list(strides)} and {list(widths)}.")
    firsts = zip(widths, strides, strict=True)
    return [(width, stride if block == 0 else 1) for width, stride in firsts for block in range(blocks)]
