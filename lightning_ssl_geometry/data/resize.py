"""Resizing and padding of images to their size in a batch, and placing each in a cell of a larger image."""

__all__ = ["check_box", "fit", "place"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import shaped


def fit(image: Tensor, size: int | None) -> Tensor:
    """Resize the axes that are longer than `size` pixels, and pad the shorter ones with zeros; None leaves the images.

    uint8 (N, C, H, W) becomes uint8 (N, C, size, size); of an odd number of zeros, one more is at the bottom or right.
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
    """Put each image in the middle of its box on zeros, the odd pixel at the box's bottom and right.

    Args:
        image: (N, C, h, w), of any dtype.
        box: int64 (N, 4), top, left, bottom and right (exclusive) in pixels, that :func:`check_box` accepts.
        height: H, height of the result (N, C, H, W).
        width: W, width of the result.

    >>> place(torch.ones(1, 1, 1, 1), torch.tensor([[1, 0, 3, 2]]), 3, 3)[0, 0].tolist()
    [[0.0, 0.0, 0.0], [1.0, 0.0, 0.0], [0.0, 0.0, 0.0]]
    """
    n, c, h, w = image.shape
    top, left, bottom, right = box.unbind(1)
    first = width * ((top + bottom - h) // 2) + (left + right - w) // 2
    pixel = (width * torch.arange(h, device=box.device)[:, None] + torch.arange(w, device=box.device)).flatten()
    position = first[:, None] + pixel  # (N, h w)
    canvas = image.new_zeros(n, c, height * width)
    return canvas.scatter_(2, position[:, None].expand(-1, c, -1), image.flatten(2)).view(n, c, height, width)


def check_box(box: Tensor, image: Tensor, height: int, width: int) -> None:
    """Check the arguments of :func:`place`.

    Raises:
        ValueError: If a box is smaller than the image, or not within the H x W pixels.
    """
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
