r"""Backbones built with escnn, which are equivariant to K rotations.

Cesa et al., A Program to Build E(N)-Equivariant Steerable CNNs (2022). escnn is an optional dependency. A backbone maps
images x (N, C_in, H, W) to z (N, C, K, H', W'): C fields, each with one value for each rotation. With :math:`R` the
rotation by 360 / K degrees, counter-clockwise as an image is displayed,

.. math:: z(R x)_r = R\, z(x)_{r - 1 \bmod K}
"""

__all__ = ["EscnnBackbone", "EscnnCNN"]

import math
from collections import OrderedDict
from collections.abc import Iterator, Sequence
from types import ModuleType
from typing import Any, Self

from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer
from lightning_ssl_geometry.nn.equivariant.groups import check_exact_size

_CACHES = ("filter", "matrix", "expanded_bias")  # what escnn's layers derive from their weights in eval mode


class EscnnBackbone(nn.Module):
    """A backbone from an escnn network that maps images to regular fields of a cyclic group of rotations.

    A regular field has one value for each of the K rotations. The attribute `out_dim` is C, the number of regular
    fields, and `group_shape` is (scales, rotations) = (1, K).

    escnn's layers stay in training mode here, so that they compute their filters in every pass. Checkpoints with cached
    filters of eval mode can be loaded.

    In escnn, all layers of equal shape share one sampled basis. So `network.double()` and `network.cuda()` also change
    the basis of other networks. If two networks differ in dtype or device, build their layers with `recompute=True`.

    An outermost `SequentialModule` is replaced by a `torch.nn.Sequential` with the same layers and names. Conversion to
    SyncBatchNorm works if `network` has no other `SequentialModule`.

    Args:
        network: An `escnn.nn.EquivariantModule`. Its `in_type` must have only trivial representations, one per channel.
            Its `out_type` must have only regular representations of `escnn.gspaces.rot2dOnR2(n)`.

    Raises:
        ImportError: If escnn is missing.
        ValueError: If `network` is not an escnn module with these types. Groups with flips, continuous groups and
            groups in three dimensions are not supported.
    """

    def __init__(self, network: nn.Module) -> None:
        super().__init__()
        _, enn = _escnn()
        _check(network)
        # escnn's container refuses the `add_module` by which SyncBatchNorm's conversion replaces a layer
        flat = type(network) is enn.SequentialModule
        self.network = nn.Sequential(OrderedDict(network._modules)) if flat else network  # type: ignore[arg-type]
        self.in_type: Any = network.in_type
        self.out_dim = len(network.out_type)  # type: ignore[arg-type]
        self.group_shape = (1, int(network.out_type.gspace.rotations_order))  # type: ignore[union-attr, arg-type]
        self.register_state_dict_post_hook(_drop_caches)
        self.register_load_state_dict_pre_hook(_load_without_caches)
        self._expand_at_every_pass()

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, K, H', W')."""
        return self.network(self.in_type(x)).tensor.unflatten(1, (self.out_dim, self.group_shape[1]))

    def train(self, mode: bool = True) -> Self:
        """Set the mode of all layers except those that would cache filters in eval mode."""
        super().train(mode)
        self._expand_at_every_pass()
        return self

    def _expand_at_every_pass(self) -> None:
        for _, layer in _expanding(self):
            layer.train()


class EscnnCNN(EscnnBackbone):
    """The MNIST network of Keller et al. 2022, built with escnn: convolutions, each with BatchNorm and ReLU.

    Layer i has 2^i * `width` regular fields and no bias. Its padding is half of its kernel size, rounded down. The
    statistics of BatchNorm are over the batch, space and the rotations of a field. The filters are escnn's steerable
    filters, limited in frequency.

    Equivariance to rotations by multiples of 90 degrees is exact (up to rounding) for square images of suitable size.
    The size less 1 must be a multiple of the product of the strides. For example, MNIST padded to 29 x 29 pixels gives
    H' = 8. For other angles and sizes, equivariance is approximate.

    Args:
        in_channels: C_in.
        width: Regular fields of the first convolution.
        rotations: K, the number of rotations.
        kernel_sizes: Kernel size of each convolution, odd.
        strides: Stride of each convolution.

    Raises:
        ImportError: If escnn is missing.
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        in_channels: int = 1,
        width: int = 32,
        rotations: int = 4,
        kernel_sizes: Sequence[int] = (11, 7, 7),
        strides: Sequence[int] = (1, 2, 2),
    ) -> None:
        integer(1, in_channels=in_channels, width=width, rotations=rotations)
        if not kernel_sizes or min(kernel_sizes) < 1 or not all(size % 2 for size in kernel_sizes):
            raise ValueError(f"Expected `kernel_sizes` of positive odd numbers, but got {list(kernel_sizes)}.")
        if len(strides) != len(kernel_sizes) or min(strides) < 1:
            raise ValueError(f"Expected `strides` of {len(kernel_sizes)} positive numbers, but got {list(strides)}.")
        gspaces, enn = _escnn()
        space = gspaces.rot2dOnR2(rotations)
        source = enn.FieldType(space, in_channels * [space.trivial_repr])
        layers = []
        for i, (size, stride) in enumerate(zip(kernel_sizes, strides, strict=True)):
            fields = enn.FieldType(space, 2**i * width * [space.regular_repr])
            geometry = {"kernel_size": size, "stride": stride, "padding": size // 2}
            # with a basis of its own: the shared one would move with other networks' `.double()` and `.cuda()`
            layers.append(enn.R2Conv(source, fields, **geometry, bias=False, recompute=True))
            layers.append(enn.InnerBatchNorm(fields))
            layers.append(enn.ReLU(fields, inplace=True))
            source = fields
        super().__init__(enn.SequentialModule(*layers))
        self.stride = math.prod(strides)

    def forward(self, x: Tensor) -> Tensor:
        """Map (N, C_in, H, W) to (N, C, K, H', W'). Warn if the image size makes equivariance approximate."""
        if self.group_shape[1] > 1:
            check_exact_size(x.shape[-2], x.shape[-1], self.stride)
        return super().forward(x)


def _escnn() -> tuple[ModuleType, ModuleType]:
    try:
        from escnn import gspaces
        from escnn import nn as enn
    except ImportError as error:
        raise ImportError(
            "Expected escnn to be installed, but got: "
            f"{error}. Run `pip install 'lightning-ssl-geometry[escnn]'`; it builds py3nj, which needs a Fortran "
            "compiler (gfortran), and which escnn does without: with uv, leave it out by `override-dependencies = "
            "[\"py3nj ; sys_platform == 'never'\"]` under `[tool.uv]`. The extra holds numpy below 2, so give it an "
            "environment of its own."
        ) from error
    return gspaces, enn


def _check(network: nn.Module) -> None:
    gspaces, enn = _escnn()
    if not isinstance(network, enn.EquivariantModule):
        raise ValueError(f"Expected `network` to be an escnn EquivariantModule, but got {type(network).__name__}.")
    inputs, outputs = network.in_type, network.out_type
    space = outputs.gspace
    if not isinstance(space, gspaces.GSpace2D) or space.flips_order or space.rotations_order < 1:
        raise ValueError(
            "Expected `network.out_type` over a cyclic group of rotations of the plane, escnn.gspaces.rot2dOnR2(n) "
            f"with n >= 1 and without flips, but got {space}."
        )
    if not all(field == space.regular_repr for field in outputs.representations):
        raise ValueError(f"Expected `network.out_type` of regular representations only, but got {_names(outputs)}.")
    if not all(field.is_trivial() for field in inputs.representations):
        raise ValueError(f"Expected `network.in_type` of trivial representations only, but got {_names(inputs)}.")


def _names(fields: Any) -> str:
    return ", ".join(sorted({field.name for field in fields.representations}))


def _expanding(module: nn.Module) -> Iterator[tuple[str, nn.Module]]:
    _, enn = _escnn()
    kinds = (enn.R2Conv, enn.R2ConvTransposed, enn.TensorProductModule)
    return ((name, child) for name, child in module.named_modules(remove_duplicate=False) if isinstance(child, kinds))


def _drop_caches(module: nn.Module, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    for name, _layer in _expanding(module):
        for cache in _CACHES:
            state_dict.pop(f"{prefix}{name}.{cache}", None)


def _load_without_caches(module: EscnnBackbone, state_dict: dict[str, Any], prefix: str, *_: Any) -> None:
    module._expand_at_every_pass()  # `network.eval()` may have been called directly
    _drop_caches(module, state_dict, prefix)
