r"""Batched crops, flips and blurs with parameters per sample, as separable linear maps.

A crop that is resized, flipped or blurred maps an image x, per channel, to :math:`A x B^\top`, with matrices A over
rows and B over columns that depend on the sample: two batched matrix products, whatever the parameters.
"""

__all__ = [
    "blur_matrix",
    "gaussian_blur",
    "horizontal_flip",
    "resize_matrix",
    "resized_crop",
    "separable",
]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.views.validation import check_boxes, check_image, check_per_sample, check_size


def resized_crop(
    image: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int | tuple[int, int]
) -> Tensor:
    """Crop every image to its own box and resize the crop, bilinearly and antialiased.

    As torchvision's `resized_crop(..., antialias=True)` does on floating-point images, one by one.

    Args:
        image: (N, C, H, W), floating point.
        top: (N,) first row of the crop, in pixels.
        left: (N,) first column.
        height: (N,) rows.
        width: (N,) columns.
        size: Of the result, in pixels: its side, or (height, width).

    Returns:
        (N, C, *size), of the image's dtype.

    Raises:
        ValueError: If the image is not a batch of images, or a box is empty or not inside of it.

    >>> image = torch.arange(16.0).view(1, 1, 4, 4)
    >>> one, two = torch.tensor([1]), torch.tensor([2])
    >>> resized_crop(image, one, one, two, two, 2).flatten().tolist()
    [5.0, 6.0, 9.0, 10.0]
    """
    check_image(image)
    rows, columns = check_size("size", size)
    check_boxes(image, top, left, height, width)
    with torch.autocast(image.device.type, enabled=False):
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        a = resize_matrix(top, height, x.shape[2], rows, dtype=x.dtype)
        b = resize_matrix(left, width, x.shape[3], columns, dtype=x.dtype)
        return separable(x, a, b).transpose(0, 1).to(image.dtype).contiguous()


def horizontal_flip(image: Tensor, flip: Tensor) -> Tensor:
    """Mirror the images that `flip` marks, left to right.

    Args:
        image: (N, C, H, W), floating point.
        flip: (N,) bool.

    Returns:
        (N, C, H, W), of the image's dtype.

    Raises:
        ValueError: If the image is not a batch of images or `flip` has another shape.

    >>> horizontal_flip(torch.tensor([1.0, 2.0]).view(1, 1, 1, 2), torch.tensor([True])).flatten().tolist()
    [2.0, 1.0]
    """
    check_image(image)
    check_per_sample("flip", flip, image)
    return torch.where(flip.bool()[:, None, None, None], image.flip(-1), image)


def gaussian_blur(image: Tensor, sigma: Tensor, kernel_size: int | tuple[int, int]) -> Tensor:
    r"""Blur every image with its own Gaussian, the border reflected.

    As torchvision's `gaussian_blur` does: weights :math:`\propto \exp(-t^2 / 2 \sigma^2)` at the pixels
    :math:`|t| \le (k - 1) / 2`, normalised, along both axes.

    Args:
        image: (N, C, H, W), floating point.
        sigma: (N,) standard deviation, > 0, in pixels.
        kernel_size: k, odd: its side, or (height, width), at most twice the image's size minus 1.

    Returns:
        (N, C, H, W), of the image's dtype.

    Raises:
        ValueError: If the image is not a batch of images, `sigma` has another shape or is not positive, or the
            kernel is even or too large to reflect the border.

    >>> gaussian_blur(torch.eye(3).view(1, 1, 3, 3), torch.tensor([1e-3]), 3).view(3, 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 1.0, 0.0], [0.0, 0.0, 1.0]]
    """
    check_image(image)
    check_per_sample("sigma", sigma, image)
    if not bool((sigma > 0).all()):
        raise ValueError(f"Expected `sigma` > 0, but got {sigma.min().item()}.")
    rows, columns = check_size("kernel_size", kernel_size)
    with torch.autocast(image.device.type, enabled=False):
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        a = blur_matrix(sigma, rows, x.shape[2], dtype=x.dtype)
        b = blur_matrix(sigma, columns, x.shape[3], dtype=x.dtype)
        return separable(x, a, b).transpose(0, 1).to(image.dtype).contiguous()


def resize_matrix(
    start: Tensor,
    length: Tensor,
    source: int,
    target: int,
    *,
    flip: Tensor | None = None,
    gain: float = 1.0,
    dtype: torch.dtype,
) -> Tensor:
    r"""The linear map, along one axis, of a crop that is resized bilinearly and antialiased.

    Output pixel i looks at :math:`c_i = (i + 1/2) \, s` of the crop, :math:`s = length / target`, and sees pixel j
    with weight :math:`\propto \max(0, 1 - |j + 1/2 - c_i| / \max(s, 1))`; the weights of the crop's pixels sum to 1.

    Args:
        start: (N,) first pixel of the crop.
        length: (N,) pixels of the crop.
        source: Pixels of the image along this axis.
        target: Pixels of the result.
        flip: (N,) bool: where the result is mirrored; None for nowhere.
        gain: A factor for the whole map.
        dtype: Of the result.

    Returns:
        (N, target, source), rows summing to the gain.

    >>> resize_matrix(torch.tensor([1]), torch.tensor([2]), 4, 2, dtype=torch.float32)
    tensor([[[0., 1., 0., 0.],
             [0., 0., 1., 0.]]])
    """
    start, length = start.to(dtype).unsqueeze(1), length.to(dtype).unsqueeze(1)  # (N, 1)
    step = length / target
    i = torch.arange(target, device=start.device, dtype=dtype) + 0.5
    center = (i if flip is None else torch.where(flip.unsqueeze(1), target - i, i)) * step  # (N, target)
    j = torch.arange(source, device=start.device, dtype=dtype) + 0.5  # (source,)
    if source <= target:  # never shrinks: kept half a pixel inside of the crop, a center sees no pixel outside
        center = torch.minimum(center.clamp_min_(0.5), length - 0.5).add_(start)
        return _hat((gain * j)[None, None], gain * center.unsqueeze(2), gain)
    reach = step.clamp_min(1)
    j = j - start  # (N, source)
    # a pixel outside of the crop is moved out of every reach: cheaper than a mask over the whole matrix
    j = torch.where((j > 0) & (j < length), j / reach, math.inf)
    weight = _hat(j.unsqueeze(1), (center / reach).unsqueeze(2), 1.0)
    return weight.div_(weight.sum(2, keepdim=True).div_(gain))


def blur_matrix(
    sigma: Tensor, kernel_size: int, size: int, *, blur: Tensor | None = None, dtype: torch.dtype
) -> Tensor:
    """The linear map, along one axis, of a Gaussian blur with reflected border.

    Args:
        sigma: (N,) standard deviation, > 0, in pixels.
        kernel_size: Taps, odd, at most 2 `size` - 1.
        size: Pixels along this axis.
        blur: (N,) bool: where the blur acts, elsewhere the map is the identity; None for everywhere.
        dtype: Of the result.

    Returns:
        (N, size, size), rows summing to 1.

    Raises:
        ValueError: If the kernel is even, or too large to reflect the border.

    >>> blur_matrix(torch.tensor([1e3]), 3, 3, dtype=torch.float32)[0, 0].mul(3).round().tolist()
    [1.0, 2.0, 0.0]
    """
    if kernel_size % 2 == 0 or kernel_size > 2 * size - 1:
        raise ValueError(f"Expected `kernel_size` odd and at most {2 * size - 1}, but got {kernel_size}.")
    t = torch.arange(kernel_size, device=sigma.device, dtype=dtype) - kernel_size // 2
    weight = t.div(sigma.to(dtype).unsqueeze(1)).square().mul(-0.5).softmax(1)  # (N, k)
    if blur is not None:
        weight = torch.where(blur.unsqueeze(1), weight, (t == 0).to(dtype))
    i = torch.arange(size, device=sigma.device)
    tap = (i.unsqueeze(1) + t.long()).abs()  # (size, k), reflected at the first pixel
    tap = torch.where(tap < size, tap, 2 * (size - 1) - tap)  # and at the last
    matrix = weight.new_zeros(len(weight), size, size)
    return matrix.scatter_add_(2, tap.expand(len(weight), -1, -1), weight.unsqueeze(1).expand(-1, size, -1))


def separable(image: Tensor, rows: Tensor, columns: Tensor, out: Tensor | None = None) -> Tensor:
    r"""Apply :math:`A x B^\top` to every channel of every image.

    Args:
        image: (N, C, H, W), floating point.
        rows: A, (N, h, H).
        columns: B, (N, w, W).
        out: (C, N, h, w), contiguous, to write to; without it the result can be differentiated.

    Returns:
        (C, N, h, w): the channels come first, as the colour operations like it.

    >>> separable(torch.ones(2, 3, 4, 4), torch.ones(2, 1, 4), torch.ones(2, 1, 4)).flatten().tolist()
    [16.0, 16.0, 16.0, 16.0, 16.0, 16.0]
    """
    n, c, height, width = image.shape
    narrow = torch.bmm(image.reshape(n, c * height, width), columns.transpose(1, 2)).view(n, c, height, -1)
    # one product per channel: the matrices of the sample would have to be copied for a single one
    if out is None:
        return torch.stack([torch.bmm(rows, narrow[:, channel]) for channel in range(c)])
    for channel in range(c):
        torch.bmm(rows, narrow[:, channel], out=out[channel])
    return out


def _hat(x: Tensor, center: Tensor, height: float) -> Tensor:
    """max(0, height - |x - center|), in few passes over the result."""
    distance = torch.sub(x, center).abs_()
    return torch.rsub(distance, height).clamp_min_(0)
