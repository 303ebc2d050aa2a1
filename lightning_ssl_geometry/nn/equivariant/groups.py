"""The groups of equivariant backbones besides translation, and the image sizes with exact equivariance."""

__all__ = ["PAPER_SCALES", "BackboneGroup", "GroupElements", "check_exact_size", "elements"]

import warnings
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from lightning_ssl_geometry.checks import integer, one_of
from lightning_ssl_geometry.functional.groups.orientation import Orientation, number_of_orientations
from lightning_ssl_geometry.nn.equivariant.basis import check_scales

BackboneGroup = Literal["translation", "rotation", "scale", "scale-rotation", "dihedral", "hue"]
PAPER_SCALES = (1.0, 1.25, 1.33, 1.5, 1.66, 1.75)
_TURNS: dict[str, int] = {"rotation": 4, "scale-rotation": 4, "dihedral": 4, "hue": 3}  # by default


class GroupElements(NamedTuple):
    """The scales of a group, and its orientations: the rotations of the plane or of the hue, maybe with mirror images.

    Attributes:
        scales: S scales, ascending.
        rotations: n of C_n or D_n.
        orientation: "rotation", "dihedral" or "hue".
    """

    scales: tuple[float, ...]
    rotations: int
    orientation: Orientation

    @property
    def shape(self) -> tuple[int, int]:
        """(S, R), the numbers of scales and orientations."""
        return len(self.scales), number_of_orientations(self.orientation, self.rotations)


def elements(
    group: BackboneGroup, scales: Sequence[float] | None = None, rotations: int | None = None
) -> GroupElements:
    """Return the scales and the orientations of a group.

    Args:
        group: "translation": one scale, one orientation. "rotation": one scale, and rotations. "scale": all scales, one
            orientation. "scale-rotation": all scales, and rotations. "dihedral": one scale, rotations and mirror
            images. "hue": one scale, and rotations of the hue.
        scales: Ascending, the first >= 0.5. Only for groups with scales. None: the six scales of Keller et al.,
            Appendix B.
        rotations: The number of rotations, >= 2, for groups that have them. None: 4, and 3 for "hue".

    Raises:
        ValueError: If `group` is unknown, if an argument is out of range, or if a group without scales or rotations is
            given some.
    """
    one_of(get_args(BackboneGroup), group=group)
    if "scale" not in group and scales is not None:
        raise ValueError(f"Expected no `scales` for `group` = {group!r}, but got {tuple(scales)}.")
    if rotations is not None:
        if group not in _TURNS:
            raise ValueError(f"Expected no `rotations` for `group` = {group!r}, but got {rotations}.")
        integer(2, rotations=rotations)
    chosen = PAPER_SCALES if scales is None else tuple(scales)
    check_scales(chosen)
    turns = rotations or _TURNS.get(group, 1)
    orientation: Orientation = "dihedral" if group == "dihedral" else "hue" if group == "hue" else "rotation"
    return GroupElements(chosen if "scale" in group else (1.0,), turns, orientation)


def check_exact_size(height: int, width: int, stride: int) -> None:
    """Warn if a strided network is only approximately equivariant to quarter and half turns and to mirror images.

    Equivariance is exact if height - 1 and width - 1 are multiples of `stride`, the product of the network's strides.
    """
    if (height - 1) % stride or (width - 1) % stride:
        near = (height - 1) // stride * stride + 1
        sizes = ", ".join(str(near + i * stride) for i in range(-1, 3) if near + i * stride > stride)
        warnings.warn(
            f"Images of {height} x {width} pixels make a network of total stride {stride} only approximately "
            "equivariant to quarter and half turns and mirror images. Exact are sizes "
            f"{stride} k + 1, such as {sizes}: see `image_size` of the DataModules.",
            stacklevel=3,
        )
