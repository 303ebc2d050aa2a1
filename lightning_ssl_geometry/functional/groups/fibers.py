r"""Fiber bundles of feature maps, which Homomorphic Self-Supervised Learning contrasts in place of augmented images.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), Sections 2 and 3. A feature map z has C channels
at every element g of a group G. The vector z(g) in R^C is a *fiber*. A *base space* g_0 is an ordered set of elements.
The fibers of a base space, concatenated, are a *fiber bundle* z(g_0). The group's operator moves the base space:

.. math:: \Gamma_g [z(g_0)] = z(g^{-1} \cdot g_0)

The fiber bundles of two moved base spaces are a positive pair (Eq. 3), in place of two transformed images (Eq. 2).

A group here is a product of axes: scales, orientations, rows and columns. The orientations are rotations ("rotation")
or rotations of the hue ("hue"), which are cyclic, or rotations and mirror images ("dihedral"), which do not commute:
there, a base space is one element. Along other axes a base space cannot be moved beyond the border, since there is no
padding (Appendix B).
"""

__all__ = [
    "FiberGroup",
    "Near",
    "Pooling",
    "base_spaces",
    "feature_map",
    "fiber_bundle",
    "nearby_bases",
    "topographic_distance",
]

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import ascending, inside, one_of

Axis = Literal["scale", "rotation", "dihedral", "hue", "translation"]
Pooling = Literal["mean", "area", "window"]
_OF_ORIENTATIONS = ("rotation", "dihedral", "hue")
_PAIRS = 1 << 22  # of base spaces that are compared at once


class FiberGroup(NamedTuple):
    """A group as a product of axes with lengths `shape`. Elements are numbered with the last axis varying fastest."""

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
    *,
    pooling: Pooling = "mean",
    scales: Sequence[float] | None = None,
) -> tuple[Tensor, FiberGroup]:
    """Turn the output of a backbone into a feature map on a group; axes that `group` does not name are averaged.

    If an image is made smaller by a factor s, its features at the smallest scale are those that the image itself has at
    scale s, on a part of the map that is smaller by s, too. So the mean over rows and columns changes. `pooling` has
    two means that do not change, if the network is equivariant: "area" and "window".

    Args:
        z: (N, C, S R, H, W) for S scales and R orientations, or (N, C, H, W) without a group axis. Scale s and
            orientation r have the index s R + r.
        group: "scale", "translation", one of "rotation", "dihedral" and "hue", or several of these, in any order.
            Without "translation", the maps are averaged over rows and columns (Appendix B of Keller et al. 2022).
        group_shape: (S, R); needed if `group` has both scales and orientations. None: the group axis has only
            orientations if `group` has them, and otherwise only scales.
        circular: Whether rows and columns are cyclic, as they are for a network with circular padding.
        pooling: How maps are averaged over rows and columns. "mean": the mean over the whole map, as in the paper.
            "area": this mean times (s_1 / s)^2 at scale s, where s_1 is the smallest scale. It fits features that are 0
            on the background. "window": the mean over the middle of the map, s / s_S of its height and width at scale
            s, where s_S is the largest scale. It sees no background, and at small scales not the rim of the image.
        scales: The S scales. Needed for "area" and "window".

    Returns:
        The feature map (N, C, |G|), and its group of |G| elements. The group's axes are in the order scales,
        orientations, rows, columns.

    Raises:
        ValueError: If `group` is unknown, z has no axis for it, `group_shape` does not fit z, or `pooling` does not fit
            `group`.

    >>> feature_map(torch.rand(2, 8, 4, 5, 5), "rotation")[1]
    FiberGroup(shape=(4,), cyclic=(True,))
    """
    names = check_group(group)
    pooling_for(names, pooling)
    if z.ndim == 4:
        z = z.unsqueeze(2)
    if z.ndim != 5:
        raise ValueError(f"Expected `z` with a group axis, of shape (N, C, |G|, H, W), but got {tuple(z.shape)}.")
    levels, rotations = _group_shape(names, group_shape, z.shape[2])
    shape, z = tuple(z.shape), z.unflatten(2, (levels, rotations))  # (N, C, S, R, H, W)
    lengths = {"scale": levels, "orientation": rotations, "row": z.shape[4], "column": z.shape[5]}
    axes = {"scale": ("scale",), "translation": ("row", "column")} | dict.fromkeys(_OF_ORIENTATIONS, ("orientation",))
    chosen = [axis for name in names for axis in axes[name]]
    for name in names:
        if name != "translation" and lengths[axes[name][0]] == 1:
            raise ValueError(
                f"Expected `z` with a group axis of more than one {name}, a feature map (N, C, |G|, H, W), but got "
                f"{shape}."
            )
    if pooling != "mean":
        if scales is not None:
            ascending(1, scales=scales)
        if scales is None or len(scales) != levels:
            raise ValueError(f"Expected {levels} `scales` for `pooling` = {pooling!r}, but got {scales}.")
        z = z * _weights(pooling, scales, z)
    averaged = [2 + place for place, axis in enumerate(lengths) if axis not in chosen]
    z = z.mean(averaged) if averaged else z
    closes = {"scale": False, "orientation": True, "row": circular, "column": circular}
    return z.flatten(2), FiberGroup(tuple(lengths[a] for a in chosen), tuple(closes[a] for a in chosen))


def check_group(group: Axis | Sequence[Axis]) -> tuple[Axis, ...]:
    """Return the names in the order scale, rotation, translation; raise a ValueError for invalid names."""
    names = (group,) if isinstance(group, str) else tuple(group) if isinstance(group, Iterable) else ()
    if not names or len(set(names)) < len(names) or not set(names) <= set(get_args(Axis)):
        raise ValueError(f"Expected `group` to be one or several of {get_args(Axis)}, but got {group!r}.")
    if len(turned := [name for name in names if name in _OF_ORIENTATIONS]) > 1:
        raise ValueError(f"Expected `group` with one of {_OF_ORIENTATIONS}, which share an axis, but got {turned}.")
    return tuple(name for name in get_args(Axis) if name in names)


def pooling_for(names: Sequence[Axis], pooling: Pooling) -> Pooling:
    """Return `pooling`. Raise a ValueError if it is unknown, or needs another group than the axes `names`."""
    one_of(get_args(Pooling), pooling=pooling)
    if pooling != "mean" and ("scale" not in names or "translation" in names):
        raise ValueError(
            f"Expected `pooling` = 'mean' for a group without scales or with translations, but got {pooling!r} for "
            f"{tuple(names)}."
        )
    return pooling


def _weights(pooling: Pooling, scales: Sequence[float], z: Tensor) -> Tensor:
    """Return factors (S, 1, H, W) for maps z (N, C, S, R, H, W), with which a mean over (H, W) is that of `pooling`."""
    scale = torch.tensor(scales, dtype=torch.promote_types(z.dtype, torch.float32)).to(z.device, non_blocking=True)
    if pooling == "area":
        return (scale[0] / scale).square().view(-1, 1, 1, 1).to(z.dtype)
    shares = []
    for length in z.shape[-2:]:
        middle = torch.arange(length, dtype=scale.dtype, device=z.device) - (length - 1) / 2
        half = (scale / scale[-1] * length / 2)[:, None]  # of the window; pixel i spans i - 1/2 to i + 1/2
        share = torch.minimum(middle + 0.5, half) - torch.maximum(middle - 0.5, -half)
        shares.append(share.clamp_min(0) * (length / 2 / half))
    return torch.einsum("sh,sw->shw", *shares)[:, None].to(z.dtype)


def base_spaces(group: FiberGroup, size: int = 1, *, device: torch.device | None = None) -> Tensor:
    """List all positions :math:`g^{-1} g_0` of a base space g_0, an ordered set of b group elements.

    The base space has the first b elements of a box. The box is the smallest one that has at least b elements and can
    be moved. If several boxes are smallest, the most cubic one is taken. Along a cyclic axis, the base space moves all
    the way round. Along other axes, it moves up to the border.

    Args:
        group: The group, from :func:`feature_map`.
        size: b, from 1 to |G|, the number of elements. If no axis is cyclic, the box must be smaller than the group.
        device: Device of the result.

    Returns:
        int64 (B, b): for each of B positions, the b elements as indices of the last axis of a feature map (N, C, |G|).

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
    r"""Compute the squared distance :math:`\|g_1 - g_2\|_2^2` between group elements, in steps along the axes, int64.

    `g1` and `g2` are int64 indices of elements; their shapes are broadcast. With `wrap`, a cyclic axis is measured
    along the shorter way round. Section 4 of Keller et al. 2022 uses the distance without `wrap`.

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
    bases: Tensor,
    group: FiberGroup,
    max_distance: float | None = None,
    *,
    min_distance: float = 0.0,
    wrap: bool = False,
) -> tuple[Tensor, Tensor]:
    """Find the base spaces near each base space; two base spaces near each other may be a positive pair.

    Args:
        bases: (B, b), B base spaces of b group elements, from :func:`base_spaces`.
        group: The group, from :func:`feature_map`.
        max_distance: Largest :func:`topographic_distance` of the first elements of near base spaces; None: no limit.
        min_distance: Smallest such distance. At 0, a base space is near itself.
        wrap: Whether distances along a cyclic axis are those of the shorter way round.

    Returns:
        Two int64 tensors. Row i of the first, (B, M), begins with the base spaces near base space i, in ascending
        order. The second, (B,), counts them, and M is the largest count. The rest of a row has no meaning.

    Raises:
        ValueError: If no base space is near another one, or if one has none near it.
    """
    near = Near(min_distance, max_distance, wrap)
    count = near.counts(bases, group)
    orders = [
        within.int().argsort(dim=1, descending=True, stable=True)[:, : int(count.max())].clone()
        for within in near.masks(bases[:, 0], bases[:, 0], group)
    ]
    return torch.cat(orders), count


class Near(NamedTuple):
    """Which base spaces are near each other: by the :func:`topographic_distance` of their first elements.

    Attributes:
        least: Smallest distance. At 0, a base space is near itself.
        most: Largest distance. None: no limit.
        wrap: Whether distances along a cyclic axis are those of the shorter way round.
    """

    least: float = 0.0
    most: float | None = None
    wrap: bool = False

    def counts(self, bases: Tensor, group: FiberGroup) -> Tensor:
        """Count the base spaces near each of `bases` (B, b), int64 (B,), with the errors of :func:`nearby_bases`."""
        inside("[0, inf)", min_distance=self.least)
        count = torch.cat([within.sum(1) for within in self.masks(bases[:, 0], bases[:, 0], group)])
        alone = self.least <= 0 and bool((count == 1).all())  # each is near itself alone
        if alone or (self.most is not None and self.most < 1):
            raise ValueError(
                f"Expected `max_distance` >= 1, so that two different base spaces are a pair, but got {self.most}."
            )
        if not count.all():
            raise ValueError(
                f"Expected `min_distance` with a second base space for each first one, but {int((count == 0).sum())} "
                f"of {len(count)} have none at squared distances from {self.least} to {self.most}."
            )
        return count

    def draw(self, bases: Tensor, first: Tensor, uniform: Tensor, *, group: FiberGroup) -> Tensor:
        """Draw, for each of N base spaces, one of those near it, each with equal probability.

        No table of all pairs of base spaces is made: the memory is that of some millions of distances.

        Args:
            bases: (B, b), B base spaces, from :func:`base_spaces`.
            first: int64 (N,), indices of base spaces that have others near them.
            uniform: (N,), random numbers in [0, 1).
            group: The group, from :func:`feature_map`.

        Returns:
            int64 (N,), indices of base spaces.
        """
        elements, drawn = bases[:, 0], []
        parts = uniform.split(_rows(len(elements)))
        for within, u in zip(self.masks(elements[first], elements, group), parts, strict=True):
            place = (u * within.sum(1)).long() + 1  # of the drawn one among those near, from 1
            drawn.append((within.cumsum(1) == place[:, None]).int().argmax(1))
        return torch.cat(drawn)

    def masks(self, rows: Tensor, elements: Tensor, group: FiberGroup) -> Iterator[Tensor]:
        """Yield whether each of `rows` is near each of `elements` (B,), in parts (n, B) of some millions of values."""
        most = math.inf if self.most is None else self.most
        for part in rows.split(_rows(len(elements))):
            distance = topographic_distance(part[:, None], elements, group, wrap=self.wrap)
            yield (distance <= most) & (distance >= self.least)


def _rows(count: int) -> int:
    return max(1, _PAIRS // count)


def fiber_bundle(z: Tensor, elements: Tensor) -> Tensor:
    """Concatenate b fibers z[n, :, g] of each sample n, at b group elements g, to a fiber bundle (N, b C).

    Args:
        z: (N, C, |G|), C channels of N samples at |G| group elements.
        elements: int64 (N, b), the indices of b group elements for each sample.

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
        oriented = not set(names).isdisjoint(_OF_ORIENTATIONS)
        if "scale" in names and oriented:
            raise ValueError(f"Expected `group_shape` (scales, orientations) for {names}, but got None.")
        return (1, order) if oriented else (order, 1)
    whole = isinstance(given, Sequence) and len(given) == 2 and all(isinstance(n, int) and n >= 1 for n in given)
    if not whole or given[0] * given[1] != order:
        raise ValueError(
            f"Expected `group_shape` (scales, orientations) with a product of {order}, the group axis of `z`, but got "
            f"{given}."
        )
    return given


def _smallest_box(group: FiberGroup, size: int) -> tuple[int, ...]:
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
