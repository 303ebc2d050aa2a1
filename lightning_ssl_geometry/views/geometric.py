r"""Crops, flips and blurs of batches, with parameters per image.

Each operation maps each channel x of an image to :math:`A x B^\top`, with matrices A and B that depend on the image.
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

from lightning_ssl_geometry.views.validation import check_image, height_width


def resized_crop(
    image: Tensor, top: Tensor, left: Tensor, height: Tensor, width: Tensor, size: int | tuple[int, int]
) -> Tensor:
    """Crop every image to its own box and resize the crop, like torchvision's `resized_crop(..., antialias=True)`.

    Args:
        image: (N, C, H, W), floating point.
        top: (N,), first row of the crop, in pixels.
        left: (N,), first column of the crop, in pixels.
        height: (N,), number of rows of the crop.
        width: (N,), number of columns of the crop.
        size: Height and width of the result in pixels: one number for both, or two.

    Returns:
        (N, C, *size), of the image's dtype.

    Raises:
        ValueError: If a shape is wrong, or a box is empty or not inside its image. This check waits for the GPU.

    >>> one, two = torch.tensor([1]), torch.tensor([2])
    >>> resized_crop(torch.arange(16.0).view(1, 1, 4, 4), one, one, height=two, width=two, size=2).flatten().tolist()
    [5.0, 6.0, 9.0, 10.0]
    """
    check_image(image, top=top, left=left, height=height, width=width)
    rows, columns = height_width("size", size)
    h, w = image.shape[2:]
    inside = (top >= 0) & (left >= 0) & (height > 0) & (width > 0) & (top + height <= h) & (left + width <= w)
    if not bool(inside.all()):
        bad = int((~inside).nonzero()[0])
        box = tuple(value[bad].item() for value in (top, left, height, width))
        said = f"Expected crops (top, left, height, width) inside of {h} x {w} pixels"
        raise ValueError(f"{said}, but got {box} for sample {bad}.")
    with torch.autocast(image.device.type, enabled=False):
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        a = resize_matrix(top, height, source=x.shape[2], target=rows, dtype=x.dtype)
        b = resize_matrix(left, width, source=x.shape[3], target=columns, dtype=x.dtype)
        return separable(x, a, b).transpose(0, 1).to(image.dtype).contiguous()


def horizontal_flip(image: Tensor, flip: Tensor) -> Tensor:
    """Mirror floating-point images (N, C, H, W) left to right where the bool mask `flip` (N,) is true."""
    check_image(image, flip=flip)
    return torch.where(flip.bool()[:, None, None, None], image.flip(-1), image)


def gaussian_blur(image: Tensor, sigma: Tensor, kernel_size: int | tuple[int, int]) -> Tensor:
    r"""Blur every image with its own Gaussian and a reflected border, like torchvision's `gaussian_blur`.

    Along each axis, the weights :math:`\propto \exp(-t^2 / 2 \sigma^2)` at :math:`|t| \le (k - 1) / 2` pixels sum to 1.

    Args:
        image: (N, C, H, W), floating point. The result has the same shape and dtype.
        sigma: (N,) standard deviation, > 0, in pixels.
        kernel_size: k in pixels, odd, at most 2 H - 1 and 2 W - 1. One number, or (height, width).
    """
    check_image(image, sigma=sigma)
    if not bool((sigma > 0).all()):
        raise ValueError(f"Expected `sigma` > 0, but got {sigma.min().item()}.")
    rows, columns = height_width("kernel_size", kernel_size)
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
    r"""Return matrices that crop one axis of images and resize the crops, with antialiased bilinear weights.

    With :math:`s = length / target`, output pixel i has its centre at :math:`c_i = (i + 1/2) \, s` in the crop. It is
    the mean of the crop's pixels j with weights :math:`\propto \max(0, 1 - |j + 1/2 - c_i| / \max(s, 1))`.

    Args:
        start: (N,), first pixel of the crop.
        length: (N,), number of pixels of the crop.
        source: Number of pixels of the image.
        target: Number of pixels of the result.
        flip: (N,), bool, whether to mirror the result. None: never.
        gain: Factor by which the matrix is multiplied.
        dtype: Dtype of the result.

    Returns:
        (N, target, source). Each row sums to `gain`.

    >>> resize_matrix(torch.tensor([1]), torch.tensor([2]), source=4, target=2, dtype=torch.float32).tolist()
    [[[0.0, 1.0, 0.0, 0.0], [0.0, 0.0, 1.0, 0.0]]]
    """
    start, length = start.to(dtype).unsqueeze(1), length.to(dtype).unsqueeze(1)  # (N, 1)
    step = length / target
    i = torch.arange(target, device=start.device, dtype=dtype) + 0.5
    center = (i if flip is None else torch.where(flip.unsqueeze(1), target - i, i)) * step  # (N, target)
    j = torch.arange(source, device=start.device, dtype=dtype) + 0.5  # (source,)
    if source <= target:  # not shrunk: centres half a pixel inside of the crop give outer pixels no weight
        center = torch.minimum(center.clamp_min_(0.5), length - 0.5).add_(start)
        return _hat((gain * j)[None, None], gain * center.unsqueeze(2), gain)
    reach = step.clamp_min(1)
    j = j - start  # (N, source)
    # pixels outside of the crop get an infinite distance, which is cheaper than a mask over the whole matrix
    j = torch.where((j > 0) & (j < length), j / reach, math.inf)
    weight = _hat(j.unsqueeze(1), (center / reach).unsqueeze(2), 1.0)
    return weight.div_(weight.sum(2, keepdim=True).div_(gain))


def blur_matrix(
    sigma: Tensor, kernel_size: int, size: int, *, blur: Tensor | None = None, dtype: torch.dtype
) -> Tensor:
    """Return the matrices (N, size, size) of a Gaussian blur with reflected border along one axis. Rows sum to 1.

    Args:
        sigma: (N,) standard deviation, > 0, in pixels.
        kernel_size: Number of pixels in the kernel, odd, at most 2 `size` - 1.
        size: Number of pixels along this axis.
        blur: (N,), bool. False: the matrix is the identity. None: every matrix blurs.
        dtype: Dtype of the result.

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
    r"""Return :math:`A x B^\top`, (C, N, h, w), for each channel x of each image, with the image's matrices A and B.

    Args:
        image: (N, C, H, W), floating point.
        rows: A, (N, h, H).
        columns: B, (N, w, W).
        out: (C, N, h, w), contiguous, for the result. None: a new tensor, which is differentiable.
    """
    n, c, height, width = image.shape
    narrow = torch.bmm(image.reshape(n, c * height, width), columns.transpose(1, 2)).view(n, c, height, -1)
    # one product per channel: a single product would copy the matrices of every sample
    if out is None:
        return torch.stack([torch.bmm(rows, narrow[:, channel]) for channel in range(c)])
    for channel in range(c):
        torch.bmm(rows, narrow[:, channel], out=out[channel])
    return out


def _hat(x: Tensor, center: Tensor, height: float) -> Tensor:
    distance = torch.sub(x, center).abs_()
    return torch.rsub(distance, height).clamp_min_(0)
