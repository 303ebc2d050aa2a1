"""Checks that several operations on views share."""

__all__ = ["check_image", "check_range", "expect_axes", "height_width"]

from numbers import Real

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import shaped


def expect_axes(axes: str, image: Tensor) -> None:
    """Check the number of axes of a batch of samples. `axes` are their names, such as "N, C, T"."""
    if image.ndim != len(axes.split(",")):
        raise ValueError(
            f"Expected `image` of shape ({axes}), but got {tuple(image.shape)}. Other views take other samples: "
            "VectorViews takes (N, D), SignalViews (N, C, T), and SimCLRViews (N, C, H, W)."
        )


def check_image(image: Tensor, *, allow_uint8: bool = False, color: bool = False, **per_sample: Tensor) -> None:
    """Check that `image` (N, C, H, W) is a batch of images, and that the tensors `per_sample` are (N,).

    Args:
        image: Floating point, or uint8 if `allow_uint8`.
        allow_uint8: Whether uint8 is accepted.
        color: Whether only 1 or 3 channels are accepted.
        **per_sample: Tensors by name. A tensor (1,) is refused, as it would be broadcast to all images.
    """
    shaped("N, C, H, W", image=image)
    if not (image.is_floating_point() or (allow_uint8 and image.dtype == torch.uint8)):
        kinds = "torch.uint8 or a float dtype" if allow_uint8 else "a float dtype"
        raise ValueError(f"Expected `image` of {kinds}, but got {image.dtype}.")
    if color and image.shape[1] not in (1, 3):
        raise ValueError(f"Expected `image` with 1 or 3 channels, but got {image.shape[1]}.")
    shaped("N,", {"N": len(image)}, **per_sample)


def height_width(name: str, size: object) -> tuple[int, int]:
    """Return (height, width) from one positive integer for both, or from two. `name` is used in the message."""
    pair = (size, size) if isinstance(size, int) else size
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        height, width = pair
        if isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0:
            return height, width
    raise ValueError(f"Expected `{name}` to be a positive integer or two of them, but got {size!r}.")


def check_range(interval: str, **arguments: tuple[float, float]) -> None:
    """Check that each argument is a finite, ascending pair (minimum, maximum) in an interval such as "(0, 1]"."""
    low, high = (float(bound) for bound in interval[1:-1].split(","))
    for name, value in arguments.items():
        if isinstance(value, tuple | list) and len(value) == 2 and all(isinstance(each, Real) for each in value):
            least, greatest = value
            above = low <= least if interval[0] == "[" else low < least
            if above and least <= greatest and (greatest <= high if interval[-1] == "]" else greatest < high):
                continue
        signs = ["<=" if bracket in "[]" else "<" for bracket in (interval[0], interval[-1])]
        bound = f"{low} {signs[0]} minimum <= maximum {signs[1]} {high}"
        raise ValueError(f"Expected `{name}` = (minimum, maximum) with {bound}, but got {value!r}.")
