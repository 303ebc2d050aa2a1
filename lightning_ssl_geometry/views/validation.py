"""Checks that every operation on views shares; each names the argument, what was expected and what came."""

__all__ = ["check_batch", "check_boxes", "check_image", "check_per_sample", "check_range", "check_size"]

import math

import torch
from torch import Tensor


def check_image(image: Tensor, *, allow_uint8: bool = False, color: bool = False) -> None:
    """Check that `image` is a batch of images.

    Args:
        image: (N, C, H, W), floating point in [0, 1], or uint8.
        allow_uint8: Whether uint8 is welcome.
        color: Whether the operation is defined on 1 or 3 channels only.

    Raises:
        ValueError: If the number of dimensions, the dtype or the number of channels is another.

    >>> check_image(torch.rand(2, 3, 8, 8), color=True)
    """
    if image.ndim != 4:
        raise ValueError(f"Expected `image` of shape (N, C, H, W), but got shape {tuple(image.shape)}.")
    if not (image.is_floating_point() or (allow_uint8 and image.dtype == torch.uint8)):
        kinds = "torch.uint8 or a floating-point dtype" if allow_uint8 else "a floating-point dtype"
        raise ValueError(f"Expected `image` of {kinds}, but got {image.dtype}.")
    if color and image.shape[1] not in (1, 3):
        raise ValueError(f"Expected `image` with 1 or 3 channels, but got {image.shape[1]}.")


def check_batch(image: Tensor, index: Tensor, mean: Tensor | None, std: Tensor | None) -> None:
    """Check what comes with a batch of images that views are made of.

    Args:
        image: (N, C, H, W).
        index: (N,) int64.
        mean: (C,), or None.
        std: (C,), or None.

    Raises:
        ValueError: If `index`, `mean` or `std` has another shape, or `index` another dtype.

    >>> check_batch(torch.rand(2, 3, 8, 8), torch.arange(2), None, torch.ones(3))
    """
    n, c = image.shape[:2]
    if index.shape != (n,) or index.dtype != torch.int64:
        got = f"shape {tuple(index.shape)} and {index.dtype}"
        raise ValueError(f"Expected `index` of shape ({n},) and torch.int64, but got {got}.")
    for name, value in {"mean": mean, "std": std}.items():
        if value is not None and value.shape != (c,):
            raise ValueError(f"Expected `{name}` of shape ({c},), but got shape {tuple(value.shape)}.")


def check_per_sample(name: str, value: Tensor, image: Tensor) -> None:
    """Check that `value` has one entry per image: a broadcast would silently give every image the same one.

    Args:
        name: The argument's name.
        value: Expected of shape (N,).
        image: (N, C, H, W).

    Raises:
        ValueError: If the shape is another.

    >>> check_per_sample("sigma", torch.ones(2), torch.rand(2, 3, 8, 8))
    """
    if value.shape != image.shape[:1]:
        raise ValueError(f"Expected `{name}` of shape ({image.shape[0]},), but got shape {tuple(value.shape)}.")


def check_size(name: str, size: object) -> tuple[int, int]:
    """Read a size as (height, width).

    Args:
        name: The argument's name.
        size: A positive integer, or two of them.

    Returns:
        (height, width) in pixels.

    Raises:
        ValueError: If it is neither.

    >>> check_size("size", 32)
    (32, 32)
    """
    pair = (size, size) if isinstance(size, int) else size
    if isinstance(pair, (tuple, list)) and len(pair) == 2:
        height, width = pair
        if isinstance(height, int) and isinstance(width, int) and height > 0 and width > 0:
            return height, width
    raise ValueError(f"Expected `{name}` to be a positive integer or two of them, but got {size!r}.")


def check_range(name: str, value: tuple[float, float], low: float, high: float, *, open_low: bool = False) -> None:
    """Check that `value` is (minimum, maximum), in this order, within bounds.

    Args:
        name: The argument's name.
        value: Two numbers.
        low: The least admissible minimum.
        high: The greatest admissible maximum; infinity itself never is.
        open_low: Whether `low` itself is excluded.

    Raises:
        ValueError: If it is not.

    >>> check_range("scale", (0.08, 1.0), 0.0, 1.0, open_low=True)
    """
    if len(value) == 2:
        least, greatest = value
        if (low < least if open_low else low <= least) and least <= greatest <= high and greatest < math.inf:
            return
    bound = f"{low} {'<' if open_low else '<='} minimum <= maximum {'<' if high == math.inf else '<='} {high}"
    raise ValueError(f"Expected `{name}` = (minimum, maximum) with {bound}, but got {value!r}.")


def check_boxes(image: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor) -> None:
    """Check that every crop is non-empty and lies inside of its image.

    Args:
        image: (N, C, H, W).
        top: (N,) first row.
        left: (N,) first column.
        height: (N,) rows.
        width: (N,) columns.

    Raises:
        ValueError: If one does not; this reads the values, so it waits for an accelerator.

    >>> one = torch.ones(1)
    >>> check_boxes(torch.rand(1, 3, 8, 8), one, one, 7 * one, 7 * one)
    """
    for name, value in {"top": top, "left": left, "height": height, "width": width}.items():
        check_per_sample(name, value, image)
    rows, columns = image.shape[-2:]
    inside = (top >= 0) & (left >= 0) & (height > 0) & (width > 0) & (top + height <= rows) & (left + width <= columns)
    if not bool(inside.all()):
        bad = int((~inside).nonzero()[0])
        box = tuple(v[bad].item() for v in (top, left, height, width))
        raise ValueError(
            f"Expected crops (top, left, height, width) inside of {rows} x {columns} pixels, "
            f"but got {box} for sample {bad}."
        )
