"""Resize or pad images, and place images on larger black images."""

__all__ = ["check_box", "fit", "place"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import shaped


def fit(image: Tensor, size: int | None) -> Tensor:
    """Resize or pad uint8 images (N, C, H, W) to (N, C, size, size). If `size` is None, return them unchanged.

    An axis longer than `size` is resized. A shorter axis is padded with zeros on both sides. If the number of zeros is
    odd, the bottom or right side has one more.
    """
    if size is None or image.shape[2:] == (size, size):
        return image
    height, width = (min(length, size) for length in image.shape[2:])
    if image.shape[2:] != (height, width):
        from torchvision.transforms.v2.functional import resize

        image = resize(image, [height, width], antialias=True)
    top, left = (size - height) // 2, (size - width) // 2
    return nn.functional.pad(image, (left, size - width - left, top, size - height - top))


def place(image: Tensor, box: Tensor, height: int, width: int) -> Tensor:
    """Place images (N, C, h, w) on black images (N, C, height, width), each in the middle of its box.

    `box` is int64 (N, 4): top, left, bottom and right in pixels. Bottom and right are exclusive. If two opposite
    margins cannot be equal, the bottom or right margin has one more pixel.
    """
    n, c, h, w = image.shape
    top, left, bottom, right = box.unbind(1)
    first = width * ((top + bottom - h) // 2) + (left + right - w) // 2
    pixel = (width * torch.arange(h, device=box.device)[:, None] + torch.arange(w, device=box.device)).flatten()
    position = first[:, None] + pixel  # (N, h w)
    canvas = image.new_zeros(n, c, height * width)
    return canvas.scatter_(2, position[:, None].expand(-1, c, -1), image.flatten(2)).view(n, c, height, width)


def check_box(box: Tensor, image: Tensor, height: int, width: int) -> None:
    """Raise a ValueError if a box is smaller than its image, or not inside of `height` x `width` pixels."""
    shaped("N, 4", {"N": len(image)}, box=box)
    top, left, bottom, right = box.long().unbind(1)
    h, w = image.shape[2:]
    held = (bottom - top >= h) & (right - left >= w)
    inside = (top >= 0) & (left >= 0) & (bottom <= height) & (right <= width)
    if not (bad := ~(held & inside)).any():
        return
    raise ValueError(
        f"Expected `box` to hold images of {h} x {w} pixels and lie within {height} x {width}, "
        f"but got {box[bad][0].tolist()}."
    )
