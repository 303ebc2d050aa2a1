r"""Colour operations on batches, with one factor per image and the results of torchvision's v2 operations.

Images (N, C, H, W) are floating point in [0, 1], with C = 1 or 3. Results have the same shape, dtype and range. A wrong
shape or a factor out of range raises a ValueError; pixels out of range are not looked for. Hue, saturation and
grayscale do not change images with one channel.
Three operations change a colour x by a factor f, with the luma :math:`y = 0.2989 r + 0.587 g + 0.114 b`:

    brightness f x,   contrast f x + (1 - f) mean(y),   saturation f x + (1 - f) y,   each clamped to [0, 1].

The hue turns without conversion to HSV. :math:`M` and :math:`m` are the largest and the smallest channel of a colour.
The hue is a position on a hexagon with 6 sides. Its signed distance k from pure red, in sides, has the sign of
:math:`g - b` and the magnitude :math:`|k| = (M - r + g - m + b - m) / (M - m)`. Each channel has the value
:math:`m + (M - m) \, \mathrm{clamp}(2 - |k|, 0, 1)`, where k is the distance from the pure hue of this channel.
"""

__all__ = [
    "LUMA",
    "adjust_brightness",
    "adjust_contrast",
    "adjust_hue",
    "adjust_saturation",
    "color_jitter",
    "grayscale",
    "jitter_planes",
    "luma",
]

from collections.abc import Callable

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import shaped
from lightning_ssl_geometry.functional.groups.one_parameter import LUMA
from lightning_ssl_geometry.views.validation import check_image

_CONTRAST, _SATURATION, _HUE = 1, 2, 3


def adjust_brightness(image: Tensor, factor: Tensor) -> Tensor:
    """Multiply images (N, C, H, W) in [0, 1] by `factor` (N,), >= 0, and clamp the result to [0, 1]."""
    _check_factor(image, factor)
    return _on_planes(image, lambda x: x.mul(_per_sample(factor, x)).clamp(0, 1))


def adjust_contrast(image: Tensor, factor: Tensor) -> Tensor:
    """Blend images (N, C, H, W) in [0, 1] with the mean of their luma, and clamp them to [0, 1].

    `factor` (N,), >= 0, is the weight of each image. At 0, the result is the mean. At 1, nothing changes.

    >>> adjust_contrast(torch.tensor([0.0, 1.0]).view(1, 1, 1, 2), torch.tensor([0.5])).flatten().tolist()
    [0.25, 0.75]
    """
    _check_factor(image, factor)
    return _on_planes(image, lambda x: _blend(luma(x).mean((1, 2), keepdim=True), x, _per_sample(factor, x)))


def adjust_saturation(image: Tensor, factor: Tensor) -> Tensor:
    """Blend images (N, C, H, W) in [0, 1] with their luma, and clamp them to [0, 1].

    `factor` (N,), >= 0, is the weight of each image. At 0, the result is the luma. At 1, nothing changes.
    """
    _check_factor(image, factor)
    if image.shape[1] == 1:
        return image.clone()
    return _on_planes(image, lambda x: _blend(luma(x), x, _per_sample(factor, x)))


def adjust_hue(image: Tensor, shift: Tensor) -> Tensor:
    """Turn the hue of images (N, C, H, W) in [0, 1]. Saturation and value of HSV stay the same.

    `shift` (N,), in [-0.5, 0.5], is the angle in turns. A shift of 1/3 maps red to green.

    >>> red = torch.tensor([1.0, 0.0, 0.0]).view(1, 3, 1, 1)
    >>> adjust_hue(red, torch.tensor([1 / 3])).round().flatten().tolist()
    [0.0, 1.0, 0.0]
    """
    check_image(image, color=True, shift=shift)
    if not bool((shift.abs() <= 0.5).all()):
        raise ValueError(f"Expected `shift` within [-0.5, 0.5], but got {shift[shift.abs().argmax()].item()}.")
    if image.shape[1] == 1:
        return image.clone()
    return _on_planes(image, lambda x: _turn_hue(x, _per_sample(shift, x)))


def grayscale(image: Tensor, gray: Tensor) -> Tensor:
    """Replace every channel by the luma in the images (N, C, H, W) selected by the bool mask `gray` (N,)."""
    check_image(image, color=True, gray=gray)
    return _on_planes(image, lambda x: torch.where(gray.bool()[:, None, None], luma(x), x))


def color_jitter(image: Tensor, order: Tensor, factor: Tensor) -> Tensor:
    """Adjust brightness, contrast, saturation and hue of each image, in an order of its own.

    Args:
        image: (N, C, H, W), floating point in [0, 1], C = 1 or 3.
        order: (N, 4) int64, each row a permutation of 0 (brightness), 1 (contrast), 2 (saturation) and 3 (hue).
        factor: (N, 4), the factors of brightness, contrast and saturation, >= 0, and the shift of the hue in turns.
    """
    check_image(image, color=True)
    shaped("N, 4", {"N": len(image)}, order=order, factor=factor)
    permuted = (order.sort(1).values == torch.arange(4, device=order.device)).all(1)
    if not bool(permuted.all()):
        bad = order[~permuted][0].tolist()
        raise ValueError(f"Expected rows of `order` that are permutations of 0, 1, 2, 3, but got {bad}.")
    _check_factor(image, factor[:, :3].amin(1))
    # grouped by the position of the hue, which is the slowest operation
    x, hue_at = _planes(image), (order == _HUE).long().argmax(1)
    groups = [(hue_at == position).nonzero().squeeze(1) for position in range(4)]
    jittered = [jitter_planes(x[:, rows], order[rows], factor[rows], hue_at=hue) for hue, rows in enumerate(groups)]
    return _to_batch(torch.cat(jittered, 1)[:, torch.cat(groups).argsort()], image)


def jitter_planes(x: Tensor, order: Tensor, factor: Tensor, hue_at: int, *, in_place: bool = False) -> Tensor:
    """Apply :func:`color_jitter` to images (C, N, H, W). The hue changes at the same step for all images.

    Args:
        x: (C, N, H, W), floating point in [0, 1], C = 1 or 3.
        order: (N, 4), as for :func:`color_jitter`, with 3 (hue) in column `hue_at`.
        factor: (N, 4), as for :func:`color_jitter`.
        hue_at: Step of the hue: 0, 1, 2 or 3.
        in_place: Whether to overwrite x. This is faster but not differentiable.
    """
    strength = factor.gather(1, order)  # (N, 4), in the order of application
    use_mean, use_luma = (order == _CONTRAST), (order == _SATURATION)
    strength, use_mean, use_luma = (v.T.to(x.dtype)[:, :, None, None] for v in (strength, use_mean, use_luma))
    out = x if in_place else None
    for position in range(4):
        if position != hue_at:
            y = luma(x)
            reference = torch.addcmul(y.mean((1, 2), keepdim=True) * use_mean[position], y, use_luma[position])
            x = _blend(reference, x, strength[position], out=out)
        elif len(x) == 3:
            x = _turn_hue(x, strength[position], out=out)
    return x


def luma(x: Tensor) -> Tensor:
    """Return the luma (N, H, W) of colours x (C, N, H, W), or the single channel if C = 1."""
    if len(x) == 1:
        return x[0]
    return torch.mul(x[0], LUMA[0]).add_(x[1], alpha=LUMA[1]).add_(x[2], alpha=LUMA[2])


def _blend(reference: Tensor, x: Tensor, factor: Tensor, out: Tensor | None = None) -> Tensor:
    blended = torch.lerp(reference, x, factor, out=out)
    return torch.clamp(blended, 0, 1, out=out)


def _turn_hue(x: Tensor, shift: Tensor, out: Tensor | None = None) -> Tensor:
    # the formula at the top of this file, for x (3, N, H, W) and a shift (N, 1, 1) in turns
    r, g, b = x
    high = torch.maximum(torch.maximum(r, g), b)
    low = torch.minimum(torch.minimum(r, g), b)
    angle = (high - r).add_(g).add_(b).sub_(low, alpha=2)
    chroma = high.sub_(low)
    angle = torch.copysign(angle.div_(chroma.clamp_min(1e-12)), g - b)  # k, in [-3, 3]; arbitrary for gray
    pure = torch.arange(0, 6, 2, dtype=x.dtype, device=x.device)[:, None, None, None]  # red, green, blue
    offset = (6 * shift - pure + 3).remainder_(6).sub_(3)  # (3, N, 1, 1), in [-3, 3)
    distance = torch.add(angle, offset, out=out)  # (3, N, H, W), in [-6, 6]
    # clamp(2 - |k|, 0, 1) with period 6 is | |k| - 3 | clamped to [1, 2], less 1
    return distance.abs_().sub_(3).abs_().clamp_(1, 2).mul_(chroma).add_(low.sub_(chroma))


def _per_sample(value: Tensor, x: Tensor) -> Tensor:
    return value.to(x.dtype)[:, None, None]


def _on_planes(image: Tensor, operation: Callable[[Tensor], Tensor]) -> Tensor:
    return _to_batch(operation(_planes(image)), image)


def _planes(image: Tensor) -> Tensor:
    # half precision is too coarse for hues
    return image.to(torch.promote_types(image.dtype, torch.float32)).transpose(0, 1)


def _to_batch(x: Tensor, image: Tensor) -> Tensor:
    return x.transpose(0, 1).to(image.dtype).contiguous()


def _check_factor(image: Tensor, factor: Tensor) -> None:
    check_image(image, color=True, factor=factor)
    if not bool((factor >= 0).all()):
        raise ValueError(f"Expected `factor` >= 0, but got {factor.min().item()}.")
