r"""Convolutions that are equivariant to scale, orientations and their product, on feature maps z (N, C, |G|, H, W).

The group has S scales and R orientations: rotations, rotations with mirror images, or rotations of the hue. Its element
g = (s, r) has the scale s and the orientation r. Its index on the group axis is s R + r. The filter from channel i to
channel o is

.. math:: \psi_{oi}^{(s, r)} = \sum_f w_{oi,f} \, \psi_f^{(s, r)}

with the fixed functions :math:`\psi_f` of :mod:`lightning_ssl_geometry.nn.equivariant.basis`. A layer is the group
convolution of Keller et al., Homomorphic Self-Supervised Learning, Eq. 4: :math:`z(g) = \sum_h y(h) \psi(g^{-1} h)`. A
quarter turn of the input exactly turns the maps and moves them by a quarter of the orientations; a mirror image and a
rotation of the hue are exact, too. A rotation by another angle and a smaller input act up to the sampling of the basis.
"""

__all__ = ["FilterBank", "FilterSettings", "GroupBatchNorm", "GroupConv2d", "LiftingConv2d", "PointwiseConv2d"]

import math
from abc import abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal, TypedDict, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from lightning_ssl_geometry.checks import at_least, integer, one_of, switch
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.groups.orientation import (
    Orientation,
    hue_matrices,
    number_of_orientations,
    relative_orientations,
)
from lightning_ssl_geometry.nn.equivariant.basis import BasisType, hermite_gaussian_basis, hermite_lines, supports
from lightning_ssl_geometry.nn.equivariant.separable import line_matrices, mirror, pays, separable_conv2d, turn

PaddingMode = Literal["zeros", "circular"]


class FilterSettings(TypedDict, total=False):
    """Optional arguments of :class:`FilterBank`, `LiftingConv2d` and `GroupConv2d`."""

    scales: Sequence[float]
    rotations: int
    orientation: Orientation
    stride: int
    padding: int | None
    padding_mode: PaddingMode
    bias: bool
    basis_type: BasisType
    recompute: bool


@dataclass(frozen=True, kw_only=True)
class FilterBank:
    """The filters, the stride and the padding of an equivariant convolution.

    Attributes:
        in_channels: Input channels for each group element.
        out_channels: Output channels for each group element.
        kernel_size: Width in pixels of the filters at the largest scale, odd.
        effective_size: e. A filter has e^2 weights for each input channel and group element.
        scales: S scales, ascending, the first >= 0.5.
        rotations: n, the number of rotations by multiples of 360 / n degrees, or of rotations of the hue.
        orientation: "rotation" for n orientations, "dihedral" for 2 n of them, which are these rotations of each filter
            and then of its mirror image, or "hue" for n, which turn colours and leave the plane as it is.
        stride: Stride of the convolution.
        padding: Padding in pixels at the largest scale. Smaller filters have less padding. None: `kernel_size // 2`.
        padding_mode: "zeros", or "circular" for exact equivariance to translations by multiples of the stride.
        bias: Whether to add a learned bias to each output channel.
        basis_type: "A", filters of one width; "B", filters of several widths with orders of at most 4; or "fitted", as
            "A" at the largest scale and the nearest filters to these at smaller scales (see
            :func:`~lightning_ssl_geometry.nn.equivariant.basis.hermite_gaussian_basis`).
        recompute: Whether the backward pass computes the convolution's inner maps a second time. Then the layer keeps
            its input alone, which takes less memory and more time. Outputs and gradients are the same.

    Raises:
        ValueError: If a number of channels, the stride, the padding or its mode is out of range.
    """

    in_channels: int
    out_channels: int
    kernel_size: int
    effective_size: int
    scales: Sequence[float] = (1.0,)
    rotations: int = 1
    orientation: Orientation = "rotation"
    stride: int = 1
    padding: int | None = None
    padding_mode: PaddingMode = "zeros"
    bias: bool = False
    basis_type: BasisType = "A"
    recompute: bool = False

    def __post_init__(self) -> None:
        integer(1, in_channels=self.in_channels, out_channels=self.out_channels, stride=self.stride)
        one_of(get_args(PaddingMode), padding_mode=self.padding_mode)
        one_of(get_args(Orientation), orientation=self.orientation)
        integer(1, rotations=self.rotations)
        switch(recompute=self.recompute)
        if self.padding is not None:
            at_least(0, padding=self.padding)

    @property
    def orientations(self) -> int:
        """R, the number of orientations."""
        return number_of_orientations(self.orientation, self.rotations)

    def basis(self) -> list[Tensor]:
        """The basis functions at each scale, (R, e^2, k, k)."""
        turning, mirrored = self.rotations if self.orientation != "hue" else 1, self.orientation == "dihedral"
        found = hermite_gaussian_basis(
            self.kernel_size,
            self.effective_size,
            self.scales,
            rotations=turning,
            mirrored=mirrored,
            basis_type=self.basis_type,
        )
        return [functions.expand(self.orientations, -1, -1, -1) for functions in found]

    @property
    def border(self) -> int:
        """The padding in pixels."""
        return self.kernel_size // 2 if self.padding is None else self.padding


class _SteerableConv2d(nn.Module):
    # The input of each filter has `reach` group elements.

    def __init__(self, bank: FilterBank, reach: int) -> None:
        super().__init__()
        self.in_channels, self.out_channels = bank.in_channels, bank.out_channels
        self.kernel_size, self.effective_size = bank.kernel_size, bank.effective_size
        self.scales, self.rotations, self.orientation = tuple(bank.scales), bank.rotations, bank.orientation
        self.orientations, self.basis_type = bank.orientations, bank.basis_type
        self.stride, self.padding, self.padding_mode = bank.stride, bank.border, bank.padding_mode
        self.recompute = bank.recompute
        for s, functions in enumerate(bank.basis()):
            self.register_buffer(f"basis_{s}", functions.to(torch.get_default_dtype()), persistent=False)
        self.supports = supports(self.kernel_size, self.scales)
        # Three axes: torch treats a parameter of five axes as a 3D filter, which has no `torch.channels_last`.
        self.weight = nn.Parameter(torch.empty(self.out_channels, self.in_channels, reach * self.effective_size**2))
        self.bias = nn.Parameter(torch.zeros(self.out_channels)) if bank.bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    @abstractmethod
    def filters(self) -> list[Tensor]:
        """Return the filters, one tensor for each convolution in the layer."""

    @abstractmethod
    def _maps(self, x: Tensor) -> Tensor:
        """Return the output of the layer."""

    def _run(self, x: Tensor) -> Tensor:
        if self.recompute:
            z: Tensor = checkpoint(self._maps, x, use_reentrant=False, preserve_rng_state=False)
            return z
        return self._maps(x)

    def extra_repr(self) -> str:
        names = (
            "kernel_size",
            "effective_size",
            "scales",
            "rotations",
            "orientation",
            "stride",
            "padding",
            "padding_mode",
            "basis_type",
        )
        settings = ", ".join(f"{name}={getattr(self, name)!r}" for name in names)
        return f"{self.in_channels}, {self.out_channels}, {settings}"

    def _basis(self, s: int) -> Tensor:
        return getattr(self, f"basis_{s}")

    def _convolve(self, x: Tensor, filters: Tensor) -> Tensor:
        # Narrow filters get less padding, so that the output size does not depend on the width of the filters.
        padding = self.padding - (self.kernel_size - filters.shape[-1]) // 2
        if padding < 0:
            x = x[..., -padding:padding, -padding:padding]
        elif padding and self.padding_mode == "circular":
            x = F.pad(x, (padding,) * 4, mode="circular")
        pad = padding if self.padding_mode == "zeros" else 0
        return F.conv2d(x, filters, stride=self.stride, padding=max(0, pad))

    def _finish(self, z: Tensor) -> Tensor:
        return z if self.bias is None else z + self.bias.to(z.dtype)[:, None, None, None]


class LiftingConv2d(_SteerableConv2d):
    """Convolution of images with filters for every group element: (N, C_in, H, W) to (N, C_out, |G|, H', W').

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: Width in pixels of the filters at the largest scale, odd.
        effective_size: e. A filter has e^2 weights for each input channel.
        **other: `scales`, `rotations`, `orientation`, `stride`, `padding`, `padding_mode`, `bias`, `basis_type` and
            `recompute` of :class:`FilterBank`.

    Raises:
        ValueError: If an argument is out of range. A call raises it if the input has a wrong shape.
    """

    @by_position("scales", "rotations", "stride", "padding", "padding_mode", "bias")
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        effective_size: int,
        **other: Unpack[FilterSettings],
    ) -> None:
        sizes = {"kernel_size": kernel_size, "effective_size": effective_size}
        super().__init__(FilterBank(in_channels=in_channels, out_channels=out_channels, **sizes, **other), reach=1)
        if self.orientation == "hue":
            if in_channels != 3:
                raise ValueError(f"Expected `in_channels` = 3 for `orientation` = 'hue', but got {in_channels}.")
            # z_r(x) is the convolution of the colours turned back, M^-r x, whose filter is that of x times M^-r.
            back = hue_matrices(self.rotations).transpose(1, 2)
            self.register_buffer("turned_colors", back.to(torch.get_default_dtype()), persistent=False)

    turned_colors: Tensor

    def filters(self) -> list[Tensor]:
        """Return the filters of each group element, (C_out, C_in, k, k). The width k depends on the scale."""
        return [
            (self._colored(r) @ psi.flatten(1)).unflatten(-1, psi.shape[1:])
            for s in range(len(self.scales))
            for r, psi in enumerate(self._basis(s))
        ]

    def _colored(self, r: int) -> Tensor:
        if self.orientation != "hue":
            return self.weight
        return torch.einsum("ocf,cd->odf", self.weight, self.turned_colors[r].to(self.weight.dtype))

    def forward(self, x: Tensor) -> Tensor:
        if x.ndim != 4 or x.shape[1] != self.in_channels:
            raise ValueError(f"Expected `x` of shape (N, {self.in_channels}, H, W), but got {tuple(x.shape)}.")
        return self._run(x)

    def _maps(self, x: Tensor) -> Tensor:
        # A clone: with one channel any layout counts as channels last, but convolutions choose by the strides.
        x = x.movedim(1, -1).clone(memory_format=torch.contiguous_format).movedim(-1, 1)
        filters = self.filters()
        if len(set(self.supports)) == 1:
            filters = [torch.cat(filters)]
        maps = [self._convolve(x, wide) for wide in filters]
        return self._finish(_from_channels(maps, self.out_channels))


class GroupConv2d(_SteerableConv2d):
    """Convolution over the group and space: (N, C_in, |G|, H, W) to (N, C_out, |G|, H', W').

    Args:
        in_channels: C_in.
        out_channels: C_out.
        kernel_size: Width in pixels of the filters at the largest scale, odd.
        effective_size: e. A filter has e^2 weights for each channel and group element of its input.
        scale_size: Number of scales in a filter's input, from its own scale upwards. Scales above the largest are
            zeros.
        rotation_size: Number of orientations in a filter's input: 1 (its own) or R (all): `rotations`, or twice as many
            for "dihedral".
        **other: `scales`, `rotations`, `orientation`, `stride`, `padding`, `padding_mode`, `bias`, `basis_type` and
            `recompute` of :class:`FilterBank`.

    Raises:
        ValueError: If an argument is out of range. A call raises it if the input has a wrong shape.
    """

    relative: Tensor

    @by_position("scales", "rotations", "scale_size", "rotation_size", "stride", "padding", "padding_mode", "bias")
    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int,
        effective_size: int,
        *,
        scale_size: int = 1,
        rotation_size: int = 1,
        **other: Unpack[FilterSettings],
    ) -> None:
        sizes = {"kernel_size": kernel_size, "effective_size": effective_size}
        bank = FilterBank(in_channels=in_channels, out_channels=out_channels, **sizes, **other)
        if not 1 <= scale_size <= len(bank.scales):
            raise ValueError(f"Expected `scale_size` from 1 to {len(bank.scales)}, the scales, but got {scale_size}.")
        if rotation_size not in (1, bank.orientations):
            wanted = f"1 or `rotations` = {bank.rotations}"
            wanted = wanted if bank.orientation != "dihedral" else f"1 or 2 `rotations` = {bank.orientations}"
            raise ValueError(f"Expected `rotation_size` to be {wanted}, but got {rotation_size}.")
        super().__init__(bank, reach=scale_size * rotation_size)
        self.scale_size, self.rotation_size = scale_size, rotation_size
        relative = relative_orientations(self.orientation, self.rotations)  # g^-1 h, for rows g
        self.register_buffer("relative", relative, persistent=False)
        kind: Literal["A", "fitted"] = "fitted" if self.basis_type == "fitted" else "A"  # those of "B" are no products
        for s, lines in enumerate(hermite_lines(kernel_size, effective_size, self.scales, basis_type=kind)):
            self.register_buffer(f"lines_{s}", lines.to(torch.get_default_dtype()), persistent=False)

    def filters(self) -> list[Tensor]:
        """Return the filters of each group element, (C_out, C, k, k).

        C is the number of input channels times the number of group elements in a filter's input. k is the width. With
        `rotation_size` > 1, one tensor contains the filters of all orientations at a scale.
        """
        return [filters for s in range(len(self.scales)) for filters in self._filters_at(s)]

    def forward(self, z: Tensor) -> Tensor:
        order = len(self.scales) * self.orientations
        if z.ndim != 5 or z.shape[1:3] != (self.in_channels, order):
            wanted = f"(N, {self.in_channels}, {order}, H, W)"
            raise ValueError(f"Expected `z` of shape {wanted}, but got {tuple(z.shape)}.")
        return self._run(z)

    def _maps(self, z: Tensor) -> Tensor:
        reached = self._all_orientations_inputs(z) if self.rotation_size > 1 else self._own_orientation_inputs(z)
        maps = [self._at_scale(s, images) for s, images in enumerate(reached)]
        return self._finish(_from_channels([m for at_scale in maps for m in at_scale], self.out_channels))

    def _at_scale(self, s: int, images: list[Tensor]) -> list[Tensor]:
        size = list(images[0].shape[-2:])
        out_size = [(length + 2 * self.padding - self.kernel_size) // self.stride + 1 for length in size]
        channels = images[0].shape[1], self.rotation_size * self.out_channels
        on_processor = self.weight.device.type == "cpu"  # the rule is measured on no other device
        separable = self.orientation == "hue" or 4 % self.rotations == 0  # others have no separable filters
        separable = separable and self.basis_type != "B"
        if (
            on_processor
            and separable
            and pays(*channels, self.effective_size, support=self.supports[s], size=size, out_size=out_size)
        ):
            return self._separable(s, images, size, out_size=out_size)
        return [self._convolve(x, filters) for x, filters in zip(images, self._filters_at(s), strict=True)]

    def _separable(self, s: int, images: list[Tensor], size: list[int], out_size: list[int]) -> list[Tensor]:
        padding = self.padding - (self.kernel_size - self.supports[s]) // 2
        circular = self.padding_mode == "circular"
        lines, axes = getattr(self, f"lines_{s}"), list(zip(size, out_size, strict=True))
        matrices = {
            at: line_matrices(lines, *at, stride=self.stride, padding=padding, circular=circular) for at in axes
        }  # one if square
        weights = self._join([self._turned(weight, r) for r, weight in enumerate(self._weights_at(s))])
        pairs = zip(images, weights, strict=True)
        return [separable_conv2d(x, weight, *(matrices[at] for at in axes)) for x, weight in pairs]

    def _turned(self, weight: Tensor, r: int) -> Tensor:
        if self.orientation == "hue":
            return weight
        flip, k = divmod(r, self.rotations)
        return turn(mirror(weight) if flip else weight, 4 // self.rotations * k)

    def _filters_at(self, s: int) -> list[Tensor]:
        pairs = zip(self._weights_at(s), self._basis(s), strict=True)
        return self._join([(weight @ psi.flatten(1)).unflatten(-1, psi.shape[1:]) for weight, psi in pairs])

    def _weights_at(self, s: int) -> list[Tensor]:
        # For each orientation (C_out, C, e^2), where C is input channels times group elements.
        weight = self.weight.unflatten(-1, (self.scale_size, self.rotation_size, self.effective_size**2))
        weight = weight[:, :, : len(self.scales) - s]  # only scales from s up
        if self.rotation_size > 1:
            weights = [weight[:, :, :, row] for row in self.relative]  # the weights of the input's orientations h
        else:
            weights = [weight] * self.orientations
        return [each.permute(0, 2, 3, 1, 4).flatten(1, 3) for each in weights]

    def _join(self, weights: list[Tensor]) -> list[Tensor]:
        return weights if self.rotation_size == 1 else [torch.cat(weights)]

    def _own_orientation_inputs(self, z: Tensor) -> list[list[Tensor]]:
        # For each scale and orientation, the maps at this and the next larger scales as channels.
        slices = _slices(z).split(len(z))
        reached = [slices[k :: self.orientations][: self.scale_size] for k in range(len(slices))]
        images = [seen[0] if len(seen) == 1 else torch.cat(seen, dim=1) for seen in reached]
        return [images[k : k + self.orientations] for k in range(0, len(images), self.orientations)]

    def _all_orientations_inputs(self, z: Tensor) -> list[list[Tensor]]:
        # For each scale, the maps of all orientations at this and the next larger scales as channels.
        z = z.permute(0, 3, 4, 2, 1).unflatten(3, (len(self.scales), self.orientations))  # (N, H, W, S, R, C_in)
        windows = [z[:, :, :, s : s + self.scale_size] for s in range(len(self.scales))]
        return [[window.flatten(3).permute(0, 3, 1, 2)] for window in windows]


class PointwiseConv2d(nn.Conv2d):
    """A 1x1 convolution without bias. All group elements have the same weights.

    Args:
        in_channels: C_in.
        out_channels: C_out.
        stride: Stride of the convolution.
    """

    def __init__(self, in_channels: int, out_channels: int, stride: int = 1) -> None:
        super().__init__(in_channels, out_channels, 1, stride=stride, bias=False)

    def forward(self, z: Tensor) -> Tensor:
        """Map (N, C_in, |G|, H, W) to (N, C_out, |G|, H', W')."""
        return _per_slice(super().forward, z)


class GroupBatchNorm(nn.BatchNorm2d):
    """Batch norm of (N, C, |G|, H, W). Each channel has one mean and variance over samples, group and space."""

    def forward(self, z: Tensor) -> Tensor:
        if z.permute(0, 3, 4, 2, 1).is_contiguous():  # group next to channels: as columns
            maps = super().forward(z.permute(0, 1, 3, 4, 2).flatten(3))
            return maps.unflatten(3, (z.shape[4], z.shape[2])).permute(0, 1, 4, 2, 3)
        return _per_slice(super().forward, z)


# In memory, the channels come last. The group axis comes first, or next to the channels if filters have all
# orientations as input. So batch norm and convolutions need no copy.
def _per_slice(function: Callable[[Tensor], Tensor], z: Tensor) -> Tensor:
    maps = function(_slices(z))  # one batch, so the order of samples must not matter
    return maps.unflatten(0, (z.shape[2], z.shape[0])).permute(1, 2, 0, 3, 4)


def _slices(z: Tensor) -> Tensor:
    # (|G| N, C, H, W)
    return z.permute(2, 0, 3, 4, 1).flatten(0, 1).permute(0, 3, 1, 2)  # no copy if the group is outermost in memory


def _from_channels(maps: list[Tensor], channels: int) -> Tensor:
    # A map is (N, k C, H, W), with k >= 1 group elements.
    slices = [at.unflatten(1, (-1, channels)).permute(1, 0, 3, 4, 2) for at in maps]  # (.., N, H, W, C)
    return (slices[0] if len(slices) == 1 else torch.cat(slices)).permute(1, 4, 0, 2, 3)
