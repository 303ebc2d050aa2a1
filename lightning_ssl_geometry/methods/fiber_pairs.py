"""Pairs of fiber bundles for a contrastive loss (Keller, Suau & Zappella 2022, Appendix B).

A fiber is the C features of a feature map at one group element. A base space is a set of b group elements. Its fiber
bundle is the b C features at these elements.
"""

__all__ = ["FIBER_QUANTITIES", "FiberPairs", "Mode"]

from collections.abc import Sequence
from dataclasses import replace
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, inside, one_of, switch, whole
from lightning_ssl_geometry.functional.groups.fibers import (
    Axis,
    FiberGroup,
    Near,
    Pooling,
    base_spaces,
    check_group,
    feature_map,
    fiber_bundle,
    pooling_for,
)
from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS
from lightning_ssl_geometry.methods.classification import ACCURACY, CROSS_ENTROPY
from lightning_ssl_geometry.papers import KELLER

Mode = Literal["h-ssl", "a-ssl", "hybrid"]

_FIBER_LOSS = replace(CONTRASTIVE_LOSS, paper=KELLER, where="Eq. 3")
FIBER_QUANTITIES = {
    "loss": replace(
        _FIBER_LOSS,
        text="The loss that training lowers: the contrastive loss of fibers, plus a classifier's loss where one "
        "is trained along. Compare runs only at the same temperature and batch size.",
    ),
    "ssl_loss": replace(
        _FIBER_LOSS,
        title="Contrastive part of the loss",
        text="The contrastive loss of fibers, without that of the classifier.",
        chart=None,
        unit="loss",
        headline=False,
    ),
    "classifier_loss": replace(
        CROSS_ENTROPY,
        title="Loss of the classifier",
        text="The cross entropy of the classifier on detached features.",
        chart=None,
        headline=False,
        section="probes",
    ),
    "accuracy": ACCURACY,
    "batch_size": BATCH_SIZE,
}


class FiberPairs:
    """Draws the positive pairs for the contrastive loss of Keller et al. 2022 from feature maps.

    A base space is a set of b group elements. Its fiber bundle is the b C features at these elements. A positive pair
    is the fiber bundles of two base spaces in one view ("h-ssl") or of one base space in two views ("a-ssl").

    Args:
        mode: "h-ssl", "a-ssl", or "hybrid" for both kinds of pairs.
        group: The axes of the feature map's group: "scale", "translation", one of "rotation", "dihedral" and "hue", or
            several of these.
        base_size: b, the number of group elements in a base space, >= 1.
        max_distance: Largest squared distance between the base spaces of a pair, >= 1. None: no limit.
        min_distance: Smallest such distance, >= 0. At 0, a base space may be a pair with itself.
        wrap_distance: Whether the distance along a cyclic axis is measured in the shorter direction.
        circular: Whether rows and columns are cyclic axes.
        pooling: How maps are averaged over rows and columns: "mean", "area" or "window", see
            :func:`~lightning_ssl_geometry.functional.groups.fibers.feature_map`.
    """

    def __init__(
        self,
        mode: Mode,
        group: Axis | Sequence[Axis],
        *,
        base_size: int = 1,
        max_distance: float | None = None,
        min_distance: float = 0.0,
        wrap_distance: bool = False,
        circular: bool = False,
        pooling: Pooling = "mean",
    ) -> None:
        self.group = check_group(group)
        one_of(get_args(Mode), mode=mode)
        whole(1, base_size=base_size)
        switch(wrap_distance=wrap_distance, circular=circular)
        if base_size > 1 and "translation" in self.group and len(self.group) > 1:
            raise ValueError(
                f"Expected `base_size` = 1 for translation with {self.group[0]}, but got {base_size}: a larger base "
                "space would have to be transformed, too."
            )
        if "dihedral" in self.group and (base_size > 1 or max_distance is not None or min_distance > 1):
            raise ValueError(
                "Expected `base_size` = 1 and no `max_distance` for rotations with mirror images, which have no common "
                f"axis, but got {base_size}, {max_distance} and `min_distance` = {min_distance}."
            )
        if mode == "a-ssl" and max_distance is not None:
            raise ValueError(
                f"Expected no `max_distance` for `mode` = 'a-ssl', whose pairs have none, but got {max_distance}."
            )
        if max_distance is not None:
            at_least(1, max_distance=max_distance)  # so that two different base spaces are a pair
        inside("[0, inf)", min_distance=min_distance)
        if mode == "a-ssl" and min_distance:
            raise ValueError(
                f"Expected no `min_distance` for `mode` = 'a-ssl', whose pairs have none, but got {min_distance}."
            )
        if max_distance is not None and min_distance > max_distance:
            raise ValueError(f"Expected `min_distance` <= `max_distance` = {max_distance}, but got {min_distance}.")
        self.mode, self.base_size = mode, base_size
        self.max_distance, self.min_distance = max_distance, min_distance
        self.wrap_distance, self.circular = wrap_distance, circular
        self.pooling = pooling_for(self.group, pooling)
        limited = max_distance is not None or min_distance > 0
        self._near = Near(min_distance, max_distance, wrap_distance) if limited else None
        self._bases: dict[tuple[object, ...], Tensor] = {}

    @property
    def num_views(self) -> int:
        """V, the number of views of each sample: 1 for "h-ssl", otherwise 2."""
        return 1 if self.mode == "h-ssl" else 2

    def chosen(self, views: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        """Return the first V views of a batch. Raise a ValueError if it has fewer."""
        if len(views) < self.num_views:
            wanted = f"{self.num_views} `views` in a batch for `mode` = {self.mode!r}"
            raise ValueError(f"Expected {wanted}, but got {len(views)}.")
        return views[: self.num_views]

    def __call__(
        self,
        features: Tensor,
        uniform: Tensor,
        shape: tuple[int, int] | None,
        scales: Sequence[float] | None = None,
    ) -> Tensor:
        """Return the fiber bundles of positive pairs, (2, N, b C).

        For "hybrid", the shape is (3, N, b C), and the first bundle forms a pair with each of the others.

        Args:
            features: (V N, C, |G|, H, W) or (V N, C, H, W), feature maps of V = `num_views` views, one after the other.
            uniform: (N, 2), random numbers in [0, 1) that choose the base spaces of each sample.
            shape: (S, R), the numbers of scales and orientations on the group axis. None if there is no group axis.
            scales: The S scales. Needed for other `pooling` than "mean".

        Raises:
            ValueError: If the features do not fit the group, or no pair is within `max_distance`.
        """
        if features.ndim not in (4, 5):
            raise ValueError(
                f"Expected `backbone` to return a feature map with a group axis, (N, C, |G|, H, W), for `mode` = "
                f"{self.mode!r}, but got shape {tuple(features.shape)}."
            )
        if shape is None and features.ndim == 5 and features.shape[2] > 1:
            raise ValueError(
                "Expected `group_shape` (scales, orientations) for a `backbone` without that attribute, whose group "
                f"axis has length {features.shape[2]}, but got None."
            )
        maps, group = feature_map(
            features, self.group, shape, circular=self.circular, pooling=self.pooling, scales=scales
        )
        bases = self._base_spaces(group, maps.device)
        view = maps.unflatten(0, (self.num_views, -1))  # (V, N, C, |G|)
        first, second = (uniform * len(bases)).long().unbind(1)
        if self._near is not None:
            second = self._near.draw(bases, first, uniform[:, 1], group=group)
        if self.mode == "h-ssl":
            pairs = [(view[0], first), (view[0], second)]
        elif self.mode == "a-ssl":
            pairs = [(view[0], first), (view[1], first)]
        else:
            pairs = [(view[0], first), (view[1], first), (view[0], second)]
        return torch.stack([fiber_bundle(z, bases[place]) for z, place in pairs])

    def _base_spaces(self, group: FiberGroup, device: torch.device) -> Tensor:
        key = (group, device)
        if key not in self._bases:
            whole = self.mode == "a-ssl" and self.base_size == group.order  # which need not be moved
            bases = torch.arange(group.order)[None] if whole else base_spaces(group, self.base_size)
            if self._near is not None:
                self._near.counts(bases, group)  # at least one for each
            self._bases[key] = bases.to(device)
        return self._bases[key]
