"""Images brought to the size that they have in a batch: resized and padded, or each in a cell of its own."""

__all__ = ["check_box", "fit", "place"]

import torch
from torch import Tensor, nn


def fit(image: Tensor, size: int | None) -> Tensor:
    """Resize the axes that are longer than `size` and pad the shorter ones.

    Args:
        image: uint8 (N, C, H, W).
        size: Height and width in pixels; None leaves the images.

    Returns:
        uint8 (N, C, size, size): zeros around the image, the odd pixel at the bottom and right.
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
        box: int64 (N, 4), top, left, bottom and right (exclusive) in pixels; as :func:`check_box` wants it.
        height: H, of the result.
        width: W, of the result.

    Returns:
        (N, C, H, W), of the image's dtype and on its device.

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
    """Refuse boxes that :func:`place` would write outside of.

    Args:
        box: Integers (N, 4), top, left, bottom and right (exclusive) in pixels.
        image: (N, C, h, w), what is to lie in them.
        height: H, of what the boxes lie in.
        width: W, likewise.

    Raises:
        ValueError: If a box is smaller than the image, or leaves the H x W pixels.
    """
    if box.shape != (len(image), 4):
        raise ValueError(f"Expected `box` of shape ({len(image)}, 4), but got {tuple(box.shape)}.")
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
