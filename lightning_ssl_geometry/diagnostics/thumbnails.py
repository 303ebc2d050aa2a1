"""Small images of a few samples, as parts of the state of a diagnostic."""

__all__ = ["STRETCHED", "are_images", "consistent", "thumbnails"]

from typing import Any

from torch import Tensor
from torch.nn.functional import interpolate

from lightning_ssl_geometry.checks import class_numbers

STRETCHED = "In each colour channel, black is the darkest value of this figure, and full brightness the brightest one."

_SIDE = 48  # pixels


def are_images(value: Any) -> bool:
    """Return whether a value is a tensor of images (N, C, H, W) with pixels, which are real numbers."""
    return isinstance(value, Tensor) and value.ndim == 4 and all(value.shape[1:]) and not value.is_complex()


def thumbnails(image: Tensor, like: Tensor | None = None) -> Tensor:
    """Return images (N, C, H, W) in float32 with at most 48 pixels on a side. Each pixel is the mean of an area.

    Images with neither one nor three channels become gray: the mean of their channels. If `like` (N, C, H, W) is given,
    the thumbnails have the size and the number of channels of its thumbnails.
    """
    like, image = image if like is None else like, image.float()
    channels = like.shape[1] if like.shape[1] in (1, 3) else 1
    height, width = (max(1, round(each * min(1, _SIDE / max(like.shape[2:])))) for each in like.shape[2:])
    if image.shape[1] != channels:
        image = image.mean(1, keepdim=True).expand(-1, channels, -1, -1)
    return image if image.shape[2:] == (height, width) else interpolate(image, (height, width), mode="area")


def consistent(known: bool | None, label: Tensor | None) -> bool:
    """Return whether a batch has labels. If this differs from `known` of earlier batches, raise a ValueError.

    A ValueError is also raised if the labels are no integers (N,).
    """
    if known is not None and known != (label is not None):
        raise ValueError("Expected `label` in every batch or in none, but got both.")
    if label is not None:
        class_numbers("label", label)
    return label is not None
