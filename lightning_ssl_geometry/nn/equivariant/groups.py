"""The groups of equivariant backbones besides translation, and the image sizes with exact equivariance."""

__all__ = ["PAPER_SCALES", "BackboneGroup", "check_exact_size", "elements"]

import warnings
from collections.abc import Sequence
from typing import Literal, get_args

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.nn.equivariant.basis import check_scales

BackboneGroup = Literal["translation", "rotation", "scale", "scale-rotation"]
PAPER_SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)


def elements(group: BackboneGroup, scales: Sequence[float] | None = None) -> tuple[tuple[float, ...], int]:
    """Return the scales and the number of orientations of a group.

    Args:
        group: "translation": one scale, one orientation. "rotation": one scale, four orientations. "scale": all scales,
            one orientation. "scale-rotation": all scales, four orientations.
        scales: Ascending, the first >= 1. Only for groups with scales. None: the six scales of Keller et al., Appendix
            B.

    Raises:
        ValueError: If `group` is unknown, if `scales` is out of range, or if a group without scales is given `scales`.
    """
    one_of(get_args(BackboneGroup), group=group)
    if "scale" not in group and scales is not None:
        raise ValueError(f"Expected no `scales` for `group` = {group!r}, but got {tuple(scales)}.")
    chosen = PAPER_SCALES if scales is None else tuple(scales)
    check_scales(chosen)
    return chosen if "scale" in group else (1.0,), 4 if "rotation" in group else 1


def check_exact_size(height: int, width: int, stride: int) -> None:
    """Warn if a strided network is only approximately equivariant to quarter turns.

    Equivariance is exact if height - 1 and width - 1 are multiples of `stride`, the product of the network's strides.
    """
    if (height - 1) % stride or (width - 1) % stride:
        near = (height - 1) // stride * stride + 1
        sizes = ", ".join(str(near + i * stride) for i in range(-1, 3) if near + i * stride > stride)
        warnings.warn(
            f"Images of {height} x {width} pixels make a network of total stride {stride} only approximately "
            f"equivariant to quarter turns. Exact are sizes {stride} k + 1, such as {sizes}: see `image_size` of the "
            "DataModules.",
            stacklevel=3,
        )
