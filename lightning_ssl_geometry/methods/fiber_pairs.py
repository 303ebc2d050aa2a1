"""Which fiber bundles of feature maps are contrasted as a pair (Keller, Suau & Zappella 2022, Appendix B)."""

__all__ = ["FiberPairs", "Mode"]

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, one_of
from lightning_ssl_geometry.functional.groups.fibers import (
    Axis,
    FiberGroup,
    base_spaces,
    check_group,
    feature_map,
    fiber_bundle,
    nearby_bases,
)

Mode = Literal["h-ssl", "a-ssl", "hybrid"]


class FiberPairs:
    """Draws base spaces, and takes the fiber bundles of feature maps that lie over them.

    Args:
        mode: "h-ssl": one view in two base spaces; "a-ssl": two views in one base space; "hybrid": view 1 and view 2 in
            one base space, and view 1 in another.
        group: What the fibers lie along: "scale", "rotation", "translation" or several of them.
        base_size: |g_0| = b, how many fibers a base space has.
        max_distance: The largest squared distance between the two base spaces of a pair; None: no limit.
        wrap_distance: Whether cyclic axes are measured the shorter way round.
        circular: Whether rows and columns are cyclic.

    Raises:
        ValueError: If an argument is out of its range.
    """

    def __init__(
        self,
        mode: Mode,
        group: Axis | Sequence[Axis],
        *,
        base_size: int = 1,
        max_distance: float | None = None,
        wrap_distance: bool = False,
        circular: bool = False,
    ) -> None:
        self.group = check_group(group)
        _check(mode, self.group, base_size, max_distance)
        self.mode, self.base_size, self.max_distance = mode, base_size, max_distance
        self.wrap_distance, self.circular = wrap_distance, circular
        self._bases: dict[tuple[object, ...], tuple[Tensor, ...]] = {}

    @property
    def views(self) -> int:
        """How many views of each sample are looked at."""
        return 1 if self.mode == "h-ssl" else 2

    def __call__(self, features: Tensor, uniform: Tensor, shape: tuple[int, int] | None) -> Tensor:
        """Take the fiber bundles that are contrasted.

        Args:
            features: Feature maps of V views, one view after the other: (V N, C, |G|, H, W), or (V N, C, H, W).
            uniform: (N, 2), numbers in [0, 1) that choose the base spaces of each sample.
            shape: (S, R), how many scales and orientations the group axis has.

        Returns:
            (2, N, b C), the pairs; (3, N, b C) for "hybrid".

        Raises:
            ValueError: If the features do not fit the group, or no pair lies within `max_distance`.
        """
        maps, group = feature_map(features, self.group, shape, self.circular)
        bases, *near = self._base_spaces(group, maps.device)
        view = maps.unflatten(0, (self.views, -1))  # (V, N, C, |G|)
        first, second = (uniform * len(bases)).long().unbind(1)
        if near:
            order, count = near
            second = order[first, (uniform[:, 1] * count[first]).long()]
        if self.mode == "h-ssl":
            pairs = [(view[0], first), (view[0], second)]
        elif self.mode == "a-ssl":
            pairs = [(view[0], first), (view[1], first)]
        else:
            pairs = [(view[0], first), (view[1], first), (view[0], second)]
        return torch.stack([fiber_bundle(z, bases[place]) for z, place in pairs])

    def _base_spaces(self, group: FiberGroup, device: torch.device) -> tuple[Tensor, ...]:
        """The base spaces of a group and, with a limit, which are near each; made once."""
        key = (group, device)
        if key not in self._bases:
            whole = self.mode == "a-ssl" and self.base_size == group.order  # which need not be moved
            bases = torch.arange(group.order)[None] if whole else base_spaces(group, self.base_size)
            near = (
                ()
                if self.max_distance is None
                else nearby_bases(bases, group, self.max_distance, wrap=self.wrap_distance)
            )
            self._bases[key] = tuple(part.to(device) for part in (bases, *near))
        return self._bases[key]


def _check(mode: Mode, names: tuple[Axis, ...], base_size: int, max_distance: float | None) -> None:
    one_of(get_args(Mode), mode=mode)
    at_least(1, base_size=base_size)
    if base_size > 1 and "translation" in names and len(names) > 1:
        raise ValueError(
            f"Expected `base_size` = 1 for translation with {names[0]}, but got {base_size}: that would have to "
            "transform the base space, too."
        )
    if mode == "a-ssl" and max_distance is not None:
        raise ValueError(
            f"Expected no `max_distance` for `mode` = 'a-ssl', whose pairs have none, but got {max_distance}."
        )
    if max_distance is not None and not max_distance >= 1:
        raise ValueError(
            f"Expected `max_distance` >= 1, so that two different base spaces are a pair, but got {max_distance}."
        )
