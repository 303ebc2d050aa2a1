r"""Fibers of a feature map, which Homomorphic Self-Supervised Learning contrasts in place of augmented images.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), Sections 2 and 3. A feature map z has C channels
at every element g of a group G. The vector z(g) in R^C is a *fiber*. A *base space* g_0 is an ordered set of elements,
and its fibers, concatenated, are a *fiber bundle*. The operator of the group moves the base space:

.. math:: \Gamma_g [z(g_0)] = z(g^{-1} \cdot g_0)

The fiber bundles of two moved base spaces are a positive pair (Eq. 3), as two transformed images are elsewhere (Eq. 2).

A group here is a product of axes: rows and columns (translation), scales, orientations. Orientations are cyclic. Along
the other axes a base space cannot be moved beyond the border, since there is no padding (Appendix B).
"""

__all__ = ["FiberGroup", "base_spaces", "feature_map", "fiber_bundle", "nearby_bases", "topographic_distance"]

import itertools
import math
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside

Axis = Literal["scale", "rotation", "translation"]


class FiberGroup(NamedTuple):
    """A finite group as a product of axes: their lengths, and which are cyclic. The last axis varies fastest."""

    shape: tuple[int, ...]
    cyclic: tuple[bool, ...]

    @property
    def order(self) -> int:
        """|G|, the number of elements."""
        return math.prod(self.shape)


def feature_map(
    z: Tensor,
    group: Axis | Sequence[Axis],
    group_shape: tuple[int, int] | None = None,
    circular: bool = False,
) -> tuple[Tensor, FiberGroup]:
    """Arrange a backbone's output over the elements of a group, and average over all other axes of the maps.

    Args:
        z: (N, C, S R, H, W), element (s, r) at index s R + r; or (N, C, H, W), without a group axis.
        group: One or several of "scale", "rotation" and "translation", in any order. Without "translation", the maps
            are averaged over space (Appendix B).
        group_shape: (S, R), needed if `group` has "scale" and "rotation". None: the group axis has only orientations if
            `group` has "rotation", and otherwise only scales.
        circular: Whether rows and columns are cyclic, as they are for a network with circular padding.

    Returns:
        The feature map (N, C, |G|), and the group. Its axes are in the order scales, orientations, rows, columns.

    Raises:
        ValueError: If `group` is unknown, z has no axis for it, or `group_shape` does not fit z.

    >>> feature_map(torch.rand(2, 8, 4, 5, 5), "rotation")[1]
    FiberGroup(shape=(4,), cyclic=(True,))
    """
    names = check_group(group)
    if z.ndim == 4:
        z = z.unsqueeze(2)
    if z.ndim != 5:
        raise ValueError(f"Expected `z` with a group axis, of shape (N, C, |G|, H, W), but got {tuple(z.shape)}.")
    scales, rotations = _group_shape(names, group_shape, z.shape[2])
    shape, z = tuple(z.shape), z.unflatten(2, (scales, rotations))  # (N, C, S, R, H, W)
    lengths = {"scale": scales, "rotation": rotations, "row": z.shape[4], "column": z.shape[5]}
    chosen = [axis for name in names for axis in (("row", "column") if name == "translation" else (name,))]
    for name in names:
        if name != "translation" and lengths[name] == 1:
            raise ValueError(f"Expected `z` with a group axis of more than one {name}, but got {shape}.")
    averaged = [2 + place for place, axis in enumerate(lengths) if axis not in chosen]
    z = z.mean(averaged) if averaged else z
    closes = {"scale": False, "rotation": True, "row": circular, "column": circular}
    return z.flatten(2), FiberGroup(tuple(lengths[a] for a in chosen), tuple(closes[a] for a in chosen))


def check_group(group: Axis | Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the names in the order scale, rotation, translation.

    Raises:
        ValueError: If there is no name, an unknown or a repeated one.
    """
    names = (group,) if isinstance(group, str) else tuple(group)
    if not names or len(set(names)) < len(names) or not set(names) <= set(get_args(Axis)):
        raise ValueError(f"Expected `group` to be one or several of {get_args(Axis)}, but got {group!r}.")
    return tuple(name for name in get_args(Axis) if name in names)


def base_spaces(group: FiberGroup, size: int = 1, *, device: torch.device | None = None) -> Tensor:
    """List all base spaces to which a base space g_0 can be moved: g^-1 g_0 for every g that keeps it in the group.

    A base space is an ordered set of b elements, here a contiguous patch: the first b elements of the smallest box that
    holds b elements and fits into the group at several positions. Of equally small boxes, the most cubic is taken.
    Along a cyclic axis the patch moves all the way round, along another axis up to the border.

    Args:
        group: The group, from :func:`feature_map`.
        size: b >= 1. With a cyclic axis, at most |G|; otherwise such that the box fits at several positions.
        device: Device of the result.

    Returns:
        int64 (B, b): the indices of the elements of each base space along the last axis of z (N, C, |G|).

    Raises:
        ValueError: If `size` is out of range, or a base space of that size cannot be moved.

    >>> base_spaces(FiberGroup((4,), (True,)), 2).tolist()
    [[0, 1], [1, 2], [2, 3], [3, 0]]
    """
    inside(f"[1, {group.order}]", base_size=size)
    box = _smallest_box(group, size)
    starts = [range(n if cyclic else n - b + 1) for n, b, cyclic in zip(group.shape, box, group.cyclic, strict=True)]
    offsets = torch.tensor(list(itertools.product(*map(range, box)))[:size], device=device)  # (b, axes)
    moves = torch.tensor(list(itertools.product(*starts)), device=device)  # (B, axes)
    shape = torch.tensor(group.shape, device=device)
    places = (moves[:, None] + offsets) % shape  # (B, b, axes)
    strides = torch.tensor([math.prod(group.shape[i + 1 :]) for i in range(len(group.shape))], device=device)
    return (places * strides).sum(-1)


def topographic_distance(g1: Tensor, g2: Tensor, group: FiberGroup, *, wrap: bool = False) -> Tensor:
    r"""Squared distance between elements of a group in steps along its axes, :math:`\|g_1 - g_2\|_2^2`, int64.

    Section 4 of Keller et al. uses it as an approximation, "where a more correct measure would be computed using the
    topology of the group". With `wrap`, the distance along a cyclic axis is that of the shorter way round. `g1` and
    `g2` are int64 indices of elements, whose shapes are broadcast to the shape of the result.

    >>> topographic_distance(torch.tensor(0), torch.tensor(3), FiberGroup((4,), (True,))).item()
    9
    """
    total: Tensor = torch.zeros((), dtype=torch.int64, device=g1.device)
    for axis, (length, cyclic) in enumerate(zip(group.shape, group.cyclic, strict=True)):
        stride = math.prod(group.shape[axis + 1 :])
        steps = (g1 // stride % length - g2 // stride % length).abs()
        if wrap and cyclic:
            steps = torch.minimum(steps, length - steps)
        total = total + steps.square()
    return total


def nearby_bases(
    bases: Tensor, group: FiberGroup, max_distance: float | None = None, *, wrap: bool = False
) -> tuple[Tensor, Tensor]:
    """Find the base spaces that may form positive pairs with each base space: those within a distance.

    Args:
        bases: (B, b), from :func:`base_spaces`.
        group: The group.
        max_distance: The largest :func:`topographic_distance` of the first elements of two base spaces; None: no limit.
        wrap: Whether distances along a cyclic axis are those of the shorter way round.

    Returns:
        int64 (B, B): row i has first the indices of the base spaces within the distance of base space i (also i
        itself), then the others. int64 (B,): the number of base spaces within the distance.

    Raises:
        ValueError: If no two different base spaces are within the distance.
    """
    first = bases[:, 0]
    distance = topographic_distance(first[:, None], first, group, wrap=wrap)
    within = distance <= (math.inf if max_distance is None else max_distance)
    if not (within & (distance > 0)).any():
        raise ValueError(
            f"Expected `max_distance` >= 1, so that two different base spaces are a pair, but got {max_distance}."
        )
    return within.int().argsort(dim=1, descending=True, stable=True), within.sum(1)


def fiber_bundle(z: Tensor, elements: Tensor) -> Tensor:
    """Return the fiber bundle of one base space for each feature map: its vectors z(g), concatenated to (N, b C).

    Args:
        z: (N, C, |G|).
        elements: int64 (N, b), the indices of the elements of each sample's base space, in the order of the result.

    Raises:
        ValueError: If the shapes do not fit each other.

    >>> fiber_bundle(torch.arange(6.0).view(1, 2, 3), torch.tensor([[2, 0]])).tolist()
    [[2.0, 5.0, 0.0, 3.0]]
    """
    if z.ndim != 3 or elements.ndim != 2 or len(z) != len(elements):
        shapes = f"{tuple(z.shape)} and {tuple(elements.shape)}"
        raise ValueError(f"Expected `z` of shape (N, C, |G|) and `elements` of shape (N, b), but got {shapes}.")
    return z.transpose(1, 2).gather(1, elements[:, :, None].expand(-1, -1, z.shape[1])).flatten(1)


def _group_shape(names: tuple[Axis, ...], given: tuple[int, int] | None, order: int) -> tuple[int, int]:
    if given is None:
        if "scale" in names and "rotation" in names:
            raise ValueError(f"Expected `group_shape` (scales, orientations) for {names}, but got None.")
        return (1, order) if "rotation" in names else (order, 1)
    if given[0] * given[1] != order:
        raise ValueError(f"Expected `group_shape` with a product of {order}, the group axis of `z`, but got {given}.")
    return given


def _smallest_box(group: FiberGroup, size: int) -> tuple[int, ...]:
    """Return the sides of the smallest (then most cubic) box of >= `size` elements that fits at several positions."""
    boxes = (
        box
        for box in itertools.product(*(range(1, n + 1) for n in group.shape))
        if math.prod(box) >= size
        and any(cyclic or b < n for b, n, cyclic in zip(box, group.shape, group.cyclic, strict=True) if n > 1)
    )
    best = min(boxes, key=lambda box: (math.prod(box), max(box)), default=None)
    if best is None:
        largest = group.order - math.prod(group.shape) // max(group.shape)
        raise ValueError(
            f"Expected `base_size` of at most {largest}, but got {size}. In a group of shape {group.shape} without "
            "cyclic axes, a larger base space cannot be moved."
        )
    return best
