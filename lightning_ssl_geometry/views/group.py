r"""The views of homomorphic self-supervised learning: an image, moved by random elements of a group.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), augment with one group at a time: translations
of up to a fifth of the image, quarter turns, or changes of scale down to 1 / 1.75. The operators are those of
:mod:`lightning_ssl_geometry.functional.group_action`; the element of every view is known, so a loss or a diagnostic
can use it.
"""

__all__ = ["GroupViews"]

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.groups.action import quarter_turn, rescale, translate
from lightning_ssl_geometry.random import counter_uniform
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views.base import ImageViews, Normalization
from lightning_ssl_geometry.views.sampling import sample_uniform
from lightning_ssl_geometry.views.validation import check_range

Action = Literal["translation", "rotation", "scale"]
_UNIFORMS = 4


class GroupViews(ImageViews):
    """Views of a batch of images that are moved by random group elements, black where nothing is.

    A view is a function of (seed, epoch, sample index, view) and the image, as with :class:`SimCLRViews`, and so is
    its element: the same on every device and in every batch. An action's draw does not depend on what other actions
    there are. Leave `index` on the CPU, and nothing waits for an accelerator. Half-precision images are worked on in
    float32. Several actions compose in the order scale, rotation, translation, whatever the order they are named in.

    Args:
        action: "translation" by whole pixels, "rotation" by quarter turns (square images), "scale" about the centre,
            or several of them; None or an empty sequence: the views are the images.
        num_views: V, how many views of each image.
        max_shift: In [0, 1]: translations are uniform within this fraction of the image's side, rounded to pixels,
            up and down as well as left and right.
        scale: Least and greatest factor, > 0, between which factors are uniform; above 1 the border is cut off.
        seed: Of the elements.

    Raises:
        ValueError: If one of these is not as it says.

    >>> views = GroupViews("rotation", seed=1)
    >>> image, index = torch.rand(4, 3, 32, 32), torch.arange(4)
    >>> a, b = views(image, index, epoch=3)
    >>> g, _ = views.elements(index, 3, 32, 32)
    >>> g.shape, torch.equal(a, quarter_turn(image, g[:, 0].long()))
    (torch.Size([4, 1]), True)
    """

    def __init__(
        self,
        action: Action | Sequence[Action] | None = None,
        num_views: int = 2,
        max_shift: float = 0.2,
        scale: tuple[float, float] = (0.57, 1.0),
        seed: int = 0,
    ) -> None:
        super().__init__()
        self.actions = _in_order(action)
        if not isinstance(num_views, int) or num_views < 1:
            raise ValueError(f"Expected `num_views` to be an integer >= 1, but got {num_views!r}.")
        if not 0 <= max_shift <= 1:
            raise ValueError(f"Expected `max_shift` in [0, 1], but got {max_shift}.")
        check_range("scale", scale, 0.0, math.inf, open_low=True)
        self.num_views, self.max_shift, self.scale, self.seed = num_views, max_shift, scale, seed

    def batch_entries(self, index: Tensor, epoch: int, height: int, width: int) -> Batch:
        """Return the elements as `g`."""
        return {"g": self.elements(index, epoch, height, width)}

    def elements(self, index: Tensor, epoch: int, height: int, width: int) -> tuple[Tensor, ...]:
        """The group element of every view, which :meth:`forward` moves it by.

        Args:
            index: (N,) int64, the position of each sample in its data set.
            epoch: Of the training.
            height: H, of the images.
            width: W, of the images.

        Returns:
            V tensors on the CPU, float32 (N, columns). The columns, of the actions that there are: translation has
            the rows downwards and the columns to the right, in pixels; rotation the quarter turns counter-clockwise,
            0 to 3; scale the factor.

        Raises:
            ValueError: If images are turned that are not square.

        >>> GroupViews(["scale", "translation"], num_views=1, scale=(0.5, 0.5)).elements(torch.arange(2), 0, 5, 5)
        (tensor([[0.0000, 1.0000, 0.5000],
                [1.0000, 1.0000, 0.5000]]),)
        """
        if "rotation" in self.actions and height != width:
            raise ValueError(f"Expected square images where they are turned, but got {height} x {width} pixels.")
        view = torch.arange(self.num_views).unsqueeze(1)
        u = counter_uniform(self.seed, epoch, index.cpu(), view, size=_UNIFORMS)  # (V, N, 4)
        reach = torch.tensor([round(self.max_shift * side) for side in (height, width)])
        drawn = {
            "translation": (u[..., :2].double() * (2 * reach + 1)).floor() - reach,
            "rotation": (4 * u[..., 2:3]).floor(),
            "scale": sample_uniform(u[..., 3:], *self.scale),
        }
        return torch.cat([u[..., :0], *(drawn[name].float() for name in self.actions)], -1).unbind()

    def extra_repr(self) -> str:
        """The settings, as `print(module)` shows them."""
        names = ("actions", "num_views", "max_shift", "scale", "seed")
        return ", ".join(f"{name}={getattr(self, name)!r}" for name in names)

    def _views(self, image: Tensor, index: Tensor, epoch: int, normalize: Normalization | None) -> tuple[Tensor, ...]:
        dtype = image.dtype if image.is_floating_point() else torch.float32
        x = image / 255 if image.dtype == torch.uint8 else image.to(torch.promote_types(dtype, torch.float32))
        pair = normalize or (x.new_zeros(()), x.new_ones(()))
        mean, std = (value.to(x.dtype)[..., None, None] for value in pair)
        elements = self.elements(index, epoch, *image.shape[2:])
        return tuple(self._moved(x, g).sub(mean).div_(std).to(dtype) for g in elements)

    def _moved(self, x: Tensor, g: Tensor) -> Tensor:
        """The images x (N, C, H, W), moved by the elements g (N, columns)."""
        if "scale" in self.actions:
            x = rescale(x, g[:, -1])
        if "rotation" in self.actions:
            x = quarter_turn(x, g[:, 2 if "translation" in self.actions else 0].long())
        return translate(x, g[:, :2].long()) if "translation" in self.actions else x


def _in_order(action: Action | Sequence[Action] | None) -> tuple[Action, ...]:
    """The actions named, in the order of the columns of their elements."""
    choices: tuple[Action, ...] = get_args(Action)
    named = () if action is None else (action,) if isinstance(action, str) else tuple(action)
    for name in named:
        if name not in choices:
            raise ValueError(f"Expected `action` of {', '.join(map(repr, choices))}, but got {name!r}.")
    if len(set(named)) < len(named):
        raise ValueError(f"Expected each `action` once, but got {named}.")
    return tuple(name for name in choices if name in named)
