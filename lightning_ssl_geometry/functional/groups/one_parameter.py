r"""Transformations of images by one real number, its strength, which form a group: :math:`t_a t_b = t_{a + b}`.

Section 4 (b) of Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022)
describes augmentations as such groups. These are those of SimCLR's views, without their clamping, and rotation.
"""

__all__ = ["LUMA", "OneParameterGroup", "one_parameter_action"]

import math
from collections.abc import Sequence
from typing import Literal, get_args

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from lightning_ssl_geometry.checks import finite, floating, one_of, positive, shaped
from lightning_ssl_geometry.functional.groups.rotation import rotate

OneParameterGroup = Literal["brightness", "contrast", "saturation", "hue", "zoom", "translation", "rotation"]
LUMA = (0.2989, 0.587, 0.114)
_OF_COLORS = ("brightness", "contrast", "saturation", "hue")


def one_parameter_action(
    image: Tensor,
    strength: Tensor,
    group: OneParameterGroup,
    mean: float | Sequence[float] = 0.0,
    std: float | Sequence[float] = 1.0,
) -> Tensor:
    r"""Transform each image by its own element :math:`t_\epsilon` of a one-parameter group.

    For the colours x of an image, with its luma y = (0.2989 r + 0.587 g + 0.114 b) / 0.9999 (of one channel, y = x):

    - "brightness": :math:`e^\epsilon x`
    - "contrast": :math:`m + e^\epsilon (x - m)`, with the mean m of y over the image
    - "saturation": :math:`y + e^\epsilon (x - y)`
    - "hue": a rotation of (r, g, b) about the axis of grays by :math:`\epsilon` turns
    - "zoom": the image enlarged about its centre by :math:`e^\epsilon`
    - "translation": the image moved to the right by :math:`\epsilon` pixels
    - "rotation": :func:`rotate`, counter-clockwise by :math:`\epsilon` degrees

    The colours are not clamped to [0, 1], since :math:`t_a t_b = t_{a + b}` would not hold then. The last three groups
    interpolate bilinearly, so it holds up to interpolation, and 0 enters at the border. Every t_0 is the identity.

    Args:
        image: (N, C, H, W), floating point. The result has the same shape and dtype.
        strength: epsilon, (N,).
        group: The name of the group. "saturation" and "hue" need C = 3; "brightness" and "contrast" C = 1 or 3.
        mean: What was subtracted from the colours, a number or (C,).
        std: By what they were divided then, a number or (C,). The actions on colours undo this and repeat it.

    Raises:
        ValueError: If `group` is unknown, or a shape, the dtype, the number of channels, a strength or `std` is wrong.

    >>> one_parameter_action(torch.ones(1, 1, 1, 1), torch.tensor([math.log(2)]), "brightness").item()
    2.0
    """
    one_of(get_args(OneParameterGroup), group=group)
    shaped("N, C, H, W", image=image)
    floating(image=image)
    shaped("N,", {"N": len(image)}, strength=strength)
    finite(strength=strength)
    scale, offset = _per_channel("std", std, image), _per_channel("mean", mean, image)
    positive(std=float(scale.min()))
    with torch.autocast(image.device.type, enabled=False):
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        strength = strength.to(x)
        if group in _OF_COLORS:
            scale, offset = scale.to(x), offset.to(x)
            moved = (_recolored(x * scale + offset, strength, group) - offset) / scale
        elif group == "rotation":
            moved = rotate(x, strength)
        else:
            moved = _moved(x, strength, zooms=group == "zoom")
        return moved.to(image.dtype)


def _recolored(x: Tensor, strength: Tensor, group: str) -> Tensor:
    channels = x.shape[1]
    if channels != 3 and (channels != 1 or group in ("saturation", "hue")):
        known = "3 channels" if group in ("saturation", "hue") else "1 or 3 channels"
        raise ValueError(f"Expected `image` with {known} for {group!r}, but got {channels}.")
    strength = strength[:, None, None, None]
    if group == "hue":
        return _hue_turned(x, 2 * math.pi * strength)
    luma = (
        x
        if channels == 1
        else (x * torch.tensor(LUMA, dtype=torch.float64).to(x)[:, None, None]).sum(1, keepdim=True) / sum(LUMA)
    )
    fixed = luma
    if group != "saturation":
        fixed = luma.mean((2, 3), keepdim=True) if group == "contrast" else torch.zeros_like(luma)
    return fixed + strength.exp() * (x - fixed)


def _hue_turned(x: Tensor, angle: Tensor) -> Tensor:
    # Rodrigues' rotation of (r, g, b) about (1, 1, 1) / sqrt(3), which maps red to green at a third of a turn
    r, g, b = x.unbind(1)
    gray = x.mean(1, keepdim=True)
    cross = torch.stack([b - g, r - b, g - r], 1) / math.sqrt(3)
    return gray + angle.cos() * (x - gray) + angle.sin() * cross


def _moved(x: Tensor, strength: Tensor, zooms: bool) -> Tensor:
    one, zero = torch.ones_like(strength), torch.zeros_like(strength)
    scale = (-strength).exp().clamp(max=1e6) if zooms else one  # no pixel is left of an image that small
    shift = zero if zooms else -2 * strength / x.shape[3]  # affine_grid measures x in half widths
    theta = torch.stack([scale, zero, shift, zero, scale, zero], -1).view(-1, 2, 3)
    grid = affine_grid(theta, list(x.shape), align_corners=False)
    return grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False)


def _per_channel(name: str, value: float | Sequence[float], x: Tensor) -> Tensor:
    found = torch.as_tensor(value, dtype=torch.float64)
    finite(**{name: found})
    if found.ndim > 1 or found.numel() not in (1, x.shape[1]):
        raise ValueError(f"Expected `{name}` with 1 or {x.shape[1]} numbers, as `image` has channels, but got {value}.")
    return found.reshape(-1, 1, 1)
