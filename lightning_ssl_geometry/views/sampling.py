"""Compute parameters of views from uniform random numbers, with the distributions of torchvision's v2 transforms."""

__all__ = [
    "CROP_UNIFORMS",
    "JITTER_UNIFORMS",
    "sample_bernoulli",
    "sample_color_jitter",
    "sample_normal",
    "sample_resized_crop",
    "sample_uniform",
]

import itertools
import math

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import shaped
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.views.validation import check_range

_TRIES = 10
CROP_UNIFORMS = 2 * _TRIES + 2
JITTER_UNIFORMS = 5
_ORDERS = tuple(itertools.permutations(range(4)))


def sample_uniform(u: Tensor, low: float, high: float) -> Tensor:
    """Map numbers `u`, uniform on [0, 1), of any shape, to numbers uniform on [low, high)."""
    return low + (high - low) * u


def sample_bernoulli(u: Tensor, probability: float) -> Tensor:
    """Map numbers `u`, uniform on [0, 1), of any shape, to bools that are True with `probability`, in [0, 1]."""
    return u < probability


def sample_normal(u: Tensor) -> Tensor:
    """Map float32 numbers `u`, uniform on the multiples of 2^-24 in [0, 1), to standard normal numbers.

    >>> sample_normal(torch.tensor([0.0, 1 - 2**-24])).double().round(decimals=2).tolist()
    [-5.42, 5.42]
    """
    # 2 u - 1 + 2^-24 is exact in float32, symmetric about 0, and never -1 or 1
    return math.sqrt(2) * torch.special.erfinv(2 * u - 1 + 2.0**-24)


def sample_resized_crop(
    u: Tensor,
    height: int,
    width: int,
    scale: tuple[float, float] = (0.08, 1.0),
    ratio: tuple[float, float] = (3 / 4, 4 / 3),
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Draw crops of random area and aspect ratio, like torchvision's RandomResizedCrop.

    The area is uniform in `scale` x (H W), and width / height is log-uniform in `ratio`. Up to ten sizes are drawn, and
    the first that fits is placed uniformly. If none fits, the result is the largest central crop with an allowed ratio.

    Args:
        u: (N, 22), uniform on [0, 1).
        height: Height H of the images.
        width: Width W of the images.
        scale: Smallest and largest fraction of the image's area, in (0, 1].
        ratio: Smallest and largest width / height, > 0.

    Returns:
        top, left, height and width, (N,) int64 each, in pixels.

    >>> [v.item() for v in sample_resized_crop(torch.full((1, 22), 0.5), 32, 32)]
    [4, 4, 24, 24]
    """
    shaped(f"N, {CROP_UNIFORMS}", u=u)
    check_range("(0, 1]", scale=scale)
    check_range("(0, inf)", ratio=ratio)
    # in float64, a last-digit difference of `exp` between machines hardly ever changes a rounded size
    place, u = u.device, in_float64(u)
    area = height * width * sample_uniform(u[:, :_TRIES], *scale)
    aspect = sample_uniform(u[:, _TRIES : 2 * _TRIES], math.log(ratio[0]), math.log(ratio[1])).exp()
    rows, columns = (area / aspect).sqrt_().round_(), (area * aspect).sqrt_().round_()  # (N, 10)
    fits = (rows > 0) & (rows <= height) & (columns > 0) & (columns <= width)
    first, found = fits.to(torch.uint8).argmax(1, keepdim=True), fits.any(1)
    fallback = _central_crop(height, width, ratio)
    rows = torch.where(found, rows.gather(1, first).squeeze(1), fallback[0])
    columns = torch.where(found, columns.gather(1, first).squeeze(1), fallback[1])
    room = torch.stack([height - rows, width - columns])
    corner = torch.where(found, u[:, 2 * _TRIES :].T * (room + 1), room / 2).floor_()
    top, left = corner.long().to(place)
    return top, left, rows.long().to(place), columns.long().to(place)


def sample_color_jitter(
    u: Tensor,
    brightness: tuple[float, float],
    contrast: tuple[float, float],
    saturation: tuple[float, float],
    hue: tuple[float, float],
) -> tuple[Tensor, Tensor]:
    """Draw the order and the factors of a colour jitter, like torchvision's ColorJitter.

    Args:
        u: (N, 5), uniform on [0, 1).
        brightness: Range of the brightness factor, >= 0.
        contrast: Range of the contrast factor, >= 0.
        saturation: Range of the saturation factor, >= 0.
        hue: Range of the shift of the hue, in turns, within [-0.5, 0.5].

    Returns:
        The order (N, 4) int64 and the factors (N, 4), as arguments of :func:`color_jitter`.
    """
    shaped(f"N, {JITTER_UNIFORMS}", u=u)
    check_range("[0, inf)", brightness=brightness, contrast=contrast, saturation=saturation)
    check_range("[-0.5, 0.5]", hue=hue)
    order = torch.tensor(_ORDERS, device=u.device)[(u[:, 0] * len(_ORDERS)).long()]
    ends = torch.tensor([brightness, contrast, saturation, hue], dtype=u.dtype, device=u.device).T
    return order, ends[0] + (ends[1] - ends[0]) * u[:, 1:]


def _central_crop(height: int, width: int, ratio: tuple[float, float]) -> tuple[float, float]:
    if width / height < ratio[0]:
        return float(round(width / ratio[0])), float(width)
    if width / height > ratio[1]:
        return float(height), float(round(height * ratio[1]))
    return float(height), float(width)
