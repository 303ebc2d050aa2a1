"""Views of homomorphic self-supervised learning: images transformed by random group elements.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), use one group at a time: translations of up to a
fifth of the image, quarter turns, or scales down to 1 / 1.75. Losses and diagnostics can use the group elements. Other
groups are finer rotations, rotations with mirror images, and rotations of the hue.
"""

__all__ = ["GroupViews"]

from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry import checks
from lightning_ssl_geometry.checks import inside, integer, one_of
from lightning_ssl_geometry.functional.groups.action import rescale, translate
from lightning_ssl_geometry.functional.groups.orientation import number_of_orientations, orient
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views.base import ImageViews, Normalization
from lightning_ssl_geometry.views.sampling import sample_uniform
from lightning_ssl_geometry.views.validation import check_range

Action = Literal["translation", "rotation", "scale", "dihedral", "hue"]
_UNIFORMS = 6


class GroupViews(ImageViews):
    """Images transformed by random group elements. Pixels from outside the image are black.

    The group element of a view depends only on (seed, epoch, sample index, number of the view). It is the same on every
    device and in every batch. The random numbers of one action do not depend on the other actions. Shifts, turns and
    scale factors are uniformly distributed. The actions are applied in the order hue, scale, rotation, translation.

    Args:
        action: "translation" (by whole pixels), "rotation" (by multiples of 360 / `turns` degrees, of square images),
            "dihedral" (the same, and in half of the views of the mirror image), "scale" (about the centre), "hue"
            (rotations of the colours by multiples of 1 / `hues` of a turn, not clamped), or several of them. None or an
            empty sequence: the views are the images.
        num_views: V, the number of views of each image.
        max_shift: Largest translation in each direction, as a fraction of the image's side, in [0, 1].
        scale: Smallest and largest scale factor, > 0. Factors above 1 cut the border.
        seed: Seed of the group elements.
        turns: The number of rotations, >= 2. If it is not 2 or 4, they interpolate bilinearly.
        hues: The number of rotations of the hue, >= 2.
    """

    def __init__(
        self,
        action: Action | Sequence[Action] | None = None,
        num_views: int = 2,
        max_shift: float = 0.2,
        scale: tuple[float, float] = (0.57, 1.0),
        seed: int = 0,
        *,
        turns: int = 4,
        hues: int = 3,
    ) -> None:
        super().__init__()
        self.actions = _in_order(action)
        integer(2, turns=turns, hues=hues)
        self.turns, self.hues = turns, hues
        integer(1, num_views=num_views)
        checks.seed(seed=seed)
        inside("[0, 1]", max_shift=max_shift)
        check_range("(0, inf)", scale=scale)
        self.num_views, self.max_shift, self.scale, self.seed = num_views, max_shift, scale, seed

    def batch_entries(self, index: Tensor, epoch: int, height: int, width: int) -> Batch:
        """Return {"g": the group elements of the views, from :meth:`elements`}."""
        return {"g": self.elements(index, epoch, height=height, width=width)}

    def elements(self, index: Tensor, epoch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """Return the group elements of all views as V tensors (N, columns), float32, on the CPU.

        The actions have columns in this order. Translation has two, the pixels downwards and to the right. Rotation has
        one, the counter-clockwise turns from 0 to n - 1. Scale has one, the factor. Dihedral has one, the index of
        :func:`~lightning_ssl_geometry.functional.groups.orientation.orient`, from 0 to 2 n - 1. Hue has one, the turns.

        Args:
            index: (N,) int64, the position of each sample in its data set.
            epoch: Epoch of the training.
            height: H of the images.
            width: W of the images, equal to H if "rotation" or "dihedral" is an action.

        >>> views = GroupViews(["scale", "translation"], num_views=1, scale=(0.5, 0.5))
        >>> views.elements(torch.arange(2), 0, height=5, width=5)[0].tolist()
        [[0.0, 1.0, 0.5], [1.0, 1.0, 0.5]]
        """
        if not {"rotation", "dihedral"}.isdisjoint(self.actions) and height != width:
            raise ValueError(f"Expected square images for rotations, but got {height} x {width} pixels.")
        view = torch.arange(self.num_views).unsqueeze(1)
        u = counter_uniform(self.seed, epoch, index.cpu(), view, size=_UNIFORMS)  # (V, N, 6)
        reach = torch.tensor([round(self.max_shift * side) for side in (height, width)])
        drawn = {
            "translation": (in_float64(u[..., :2]) * (2 * reach + 1)).floor() - reach,
            "rotation": (self.turns * u[..., 2:3]).floor(),
            "scale": sample_uniform(u[..., 3:4], *self.scale),
            "dihedral": (number_of_orientations("dihedral", self.turns) * u[..., 4:5]).floor(),
            "hue": (self.hues * u[..., 5:]).floor(),
        }
        return torch.cat([u[..., :0], *(drawn[name].float() for name in self.actions)], -1).unbind()

    def extra_repr(self) -> str:
        names = ("actions", "num_views", "max_shift", "scale", "seed", "turns", "hues")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _views(self, image: Tensor, index: Tensor, epoch: int, normalize: Normalization | None) -> tuple[Tensor, ...]:
        dtype = image.dtype if image.is_floating_point() else torch.float32
        x = image / 255 if image.dtype == torch.uint8 else image.to(torch.promote_types(dtype, torch.float32))
        pair = normalize or (x.new_zeros(()), x.new_ones(()))
        mean, std = (value.to(x.dtype)[..., None, None] for value in pair)
        elements = self.elements(index, epoch, height=image.shape[2], width=image.shape[3])
        return tuple(self._moved(x, g).sub(mean).div_(std).to(dtype) for g in elements)

    def _moved(self, x: Tensor, g: Tensor) -> Tensor:
        widths = {name: 2 if name == "translation" else 1 for name in self.actions}
        columns = dict(zip(self.actions, g.split(list(widths.values()), dim=1), strict=True)) if widths else {}
        if "hue" in columns:
            x = orient(x, columns["hue"][:, 0].long(), self.hues, group="hue")
        if "scale" in columns:
            x = rescale(x, columns["scale"][:, 0])
        for group in ("rotation", "dihedral"):
            if group in columns:
                x = orient(x, columns[group][:, 0].long(), self.turns, group=group)
        return translate(x, columns["translation"].long()) if "translation" in columns else x


def _in_order(action: Action | Sequence[Action] | None) -> tuple[Action, ...]:
    choices: tuple[Action, ...] = get_args(Action)
    if not isinstance(action, str | Sequence | None):
        raise ValueError(f"Expected `action` to be a name, a list of names or None, but got {action!r}.")
    named = () if action is None else (action,) if isinstance(action, str) else tuple(action)
    for name in named:
        one_of(choices, action=name)
    if len(set(named)) < len(named):
        raise ValueError(f"Expected each `action` once, but got {named}.")
    if {"rotation", "dihedral"} <= set(named):
        raise ValueError(f"Expected `action` with one of 'rotation' and 'dihedral', but got {named}.")
    return tuple(name for name in choices if name in named)
