r"""Finite groups of orientations: rotations of the plane, with mirror images or without, and rotations of the hue.

- "rotation": C_n, the rotations :math:`r^k` by k times 360 / n degrees, counter-clockwise as an image is seen.
- "dihedral": D_n, these rotations and :math:`r^k m`, which mirrors an image (left and right) before it rotates it.
- "hue": C_n, the rotations of the colours (r, g, b) about the axis of grays, by k n-ths of a turn (Lengyel et al.,
  Color Equivariant Convolutional Networks, 2023). The colours are not clamped, and need not be in [0, 1].

The element :math:`r^k m^f` has the index f n + k, and :math:`r^k m = m r^{-k}`. Multiples of a quarter turn permute the
pixels. Other rotations interpolate bilinearly.
"""

__all__ = ["Orientation", "hue_matrices", "number_of_orientations", "orient", "relative_orientations"]

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, one_of
from lightning_ssl_geometry.functional.groups.action import quarter_turn
from lightning_ssl_geometry.functional.groups.one_parameter import one_parameter_action
from lightning_ssl_geometry.functional.groups.rotation import rotate

Orientation = Literal["rotation", "dihedral", "hue"]


def number_of_orientations(group: Orientation, turns: int) -> int:
    """Return the number of elements of C_n or D_n for n = `turns` >= 1: n or 2 n.

    >>> number_of_orientations("rotation", 8), number_of_orientations("dihedral", 4)
    (8, 8)
    """
    one_of(get_args(Orientation), group=group)
    at_least(1, turns=turns)
    return 2 * turns if group == "dihedral" else turns


def turns_of(group: Orientation, order: int) -> int:
    """Return n of the C_n or D_n whose elements are the `order` orientations of a network.

    A network without orientations has order 1. Then n is 4 for the plane, and 3 for the hue, which is exact.
    """
    if order == 1:
        return 3 if group == "hue" else 4
    return order // 2 if group == "dihedral" else order


def relative_orientations(group: Orientation, turns: int) -> Tensor:
    r"""Return the indices of :math:`g^{-1} h` for all elements g (rows) and h (columns), int64 (R, R).

    Row g is where the operator :math:`\Gamma_g [z(h)] = z(g^{-1} h)` reads a feature map over the group.

    >>> relative_orientations("rotation", 3).tolist()
    [[0, 1, 2], [2, 0, 1], [1, 2, 0]]
    """
    count = number_of_orientations(group, turns)
    element = torch.arange(count)
    flip, turn = element // turns, element % turns
    sign = 1 - 2 * flip[:, None]
    # (r^k m^f)^-1 r^l m^e = m^f r^(l - k) m^e = r^(+-(l - k)) m^(f + e)
    return (flip[:, None] + flip) % 2 * turns + sign * (turn - turn[:, None]) % turns


def orient(
    x: Tensor, element: Tensor | int, turns: int, group: Orientation = "rotation", fill: Tensor | float = 0.0
) -> Tensor:
    """Transform each image by its own element of a group of orientations, or all images by one.

    Args:
        x: (N, C, H, W), floating point; the result has the same shape and dtype. C = 3 for "hue".
        element: Index of the element from 0 to R - 1, as one integer or as (N,) int64.
        turns: n of C_n or D_n.
        group: "rotation", "dihedral" or "hue".
        fill: Value that enters at the corners if a rotation is not by quarter turns: one number, or (C,).

    Raises:
        ValueError: If a shape or dtype is wrong, an element is out of range, or H != W and an image is turned by 90
            or 270 degrees.

    >>> orient(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), 5, 4, "dihedral").tolist()
    [[[[1.0, 3.0], [2.0, 4.0]]]]
    """
    count = number_of_orientations(group, turns)
    index = torch.as_tensor(element).to(x.device, non_blocking=True)
    if index.dtype != torch.int64 or index.shape not in ((), x.shape[:1]):
        expected = f"an integer or torch.int64 of shape ({len(x)},)"
        raise ValueError(f"Expected `element` to be {expected}, but got {tuple(index.shape)}, {index.dtype}.")
    if index.device.type == "cpu" or isinstance(element, int):  # a GPU would wait for the answer
        wrong = [each for each in index.flatten().tolist() if not 0 <= each < count]
        if wrong:
            raise ValueError(f"Expected `element` from 0 to {count - 1}, but got {wrong[0]}.")
    each = index.expand(len(x))
    turn, flip = each % turns, each // turns
    if group == "hue":
        return one_parameter_action(x, _parts(turns, x)[turn], "hue")
    if group == "dihedral":
        x = torch.where(flip.view(-1, 1, 1, 1) == 1, x.flip(-1), x)
    if isinstance(element, int) and 4 * (element % turns) % turns == 0:
        return _by_quarters(x, 4 * (element % turns) // turns)
    if 4 % turns == 0:
        return _by_quarters(x, 4 // turns * turn)
    value = fill.to(x)[:, None, None] if isinstance(fill, Tensor) and fill.ndim else fill
    turned = rotate(x - value, 360 * _parts(turns, x)[turn]) + value
    exact = 4 * turn % turns == 0  # permuted, not interpolated, so that equal elements do the same in any batch
    if bool(exact.any()):
        quarters = _by_quarters(x, torch.where(exact, 4 * turn // turns, 0))
        turned = torch.where(exact.view(-1, 1, 1, 1), quarters, turned)
    return turned


def _by_quarters(x: Tensor, quarters: Tensor | int) -> Tensor:
    height, width = x.shape[-2:]
    if height != width and bool(torch.as_tensor(quarters % 2 == 1).any()):  # quarter_turn would blame its own argument
        raise ValueError(
            f"Expected square images, or no `element` that turns them by 90 or 270 degrees, but got {height} x {width} "
            "pixels."
        )
    return quarter_turn(x, quarters)


def _parts(turns: int, like: Tensor) -> Tensor:
    """Return k / n of a turn for k from 0 to n - 1, at the precision of `like`, but at least in float32."""
    parts = torch.arange(turns, dtype=torch.float64) / turns
    return parts.to(torch.promote_types(like.dtype, torch.float32)).to(like.device)


def hue_matrices(turns: int) -> Tensor:
    """Return the matrices (n, 3, 3), float64, that turn the hue of colours (r, g, b) by k n-ths of a turn."""
    unit = torch.eye(3, dtype=torch.float64)[:, :, None, None]  # three images of one pixel
    strength = [torch.full((3,), k / turns, dtype=torch.float64) for k in range(turns)]
    return torch.stack([one_parameter_action(unit, each, "hue")[:, :, 0, 0].T for each in strength])
