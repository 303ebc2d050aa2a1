"""Make views from images and parameters: crop, resize, flip, colour jitter, grayscale, blur, normalise."""

__all__ = ["LARGE", "RenderSettings", "ViewParameters", "render_exact", "render_fast"]

from collections.abc import Iterator
from typing import NamedTuple

import torch
import torch.nn.functional as F
from torch import Tensor

from lightning_ssl_geometry.views.color import jitter_planes, luma
from lightning_ssl_geometry.views.geometric import blur_matrix, resize_matrix, separable
from lightning_ssl_geometry.views.linear_color import affine_color, color_maps
from lightning_ssl_geometry.views.threads import one_thread, threads_sleep

LARGE = 128 * 128
"""Number of pixels from which a CPU makes views faster one by one, and several threads are faster than one."""

_HUE, _NOT_JITTERED = 3, 4


class ViewParameters(NamedTuple):
    """Parameters of the operations on each of M views, in the order of the operations.

    Attributes:
        source: (M,) int64, the index of the view's image.
        top: (M,) int64, first row of the crop, in pixels.
        left: (M,) int64, first column of the crop.
        height: (M,) int64, number of rows of the crop.
        width: (M,) int64, number of columns of the crop.
        flip: (M,) bool, whether the view is mirrored left to right.
        jitter: (M,) bool, whether the colours are jittered.
        order: (M, 4) int64, each row a permutation of 0 (brightness), 1 (contrast), 2 (saturation) and 3 (hue).
        factor: (M, 4), the factors of brightness, contrast and saturation, and the shift of the hue in turns.
        gray: (M,) bool, whether the view becomes gray.
        blur: (M,) bool, whether the view is blurred.
        sigma: (M,) standard deviation of the blur, in pixels.
    """

    source: Tensor
    top: Tensor
    left: Tensor
    height: Tensor
    width: Tensor
    flip: Tensor
    jitter: Tensor
    order: Tensor
    factor: Tensor
    gray: Tensor
    blur: Tensor
    sigma: Tensor

    def select(self, rows: slice | Tensor) -> "ViewParameters":
        """Return the parameters of some of the views, given by a slice or by a tensor of indices or bools."""
        return ViewParameters(*(value[rows] for value in self))

    def to(self, device: torch.device) -> "ViewParameters":
        """Move the parameters to another device."""
        return ViewParameters(*(value.to(device, non_blocking=True) for value in self))


class RenderSettings(NamedTuple):
    """Settings of :func:`render_exact` and :func:`render_fast`.

    Attributes:
        kernel_size: Odd height and width of the blur's kernel, in pixels.
        normalize: Mean and standard deviation, each (C,), for the normalisation. None: no normalisation.
        chunk_size: Number of views made at once.
    """

    kernel_size: tuple[int, int]
    normalize: tuple[Tensor, Tensor] | None
    chunk_size: int


def render_exact(image: Tensor, parameters: ViewParameters, out: Tensor, settings: RenderSettings) -> None:
    """Write views to `out` that equal the results of torchvision's operations.

    Args:
        image: (N, C, H, W), uint8, or floating point in [0, 1]. C = 1 or 3 if colours change.
        parameters: Parameters of M views, on the CPU.
        out: (M, C, h, w), floating point, for the views. Its memory format is kept.
        settings: Kernel size of the blur, normalisation and chunk size.
    """
    kernel_size, normalize, chunk_size = settings
    group = torch.where(parameters.jitter, (parameters.order == _HUE).long().argmax(1), _NOT_JITTERED)
    some_gray, some_blur = bool(parameters.gray.any()), bool(parameters.blur.any())
    sizes = torch.bincount(group, minlength=_NOT_JITTERED + 1).tolist()
    rows = group.argsort(stable=True)
    parameters, rows = parameters.select(rows).to(image.device), rows.to(image.device, non_blocking=True)
    for hue_at, chunk in _chunks(sizes, chunk_size):
        p = parameters.select(chunk)
        x = _crop(image, p, out.shape[2:], kernel_size=None, dtype=_working_dtype(image))  # (C, n, h, w)
        if hue_at != _NOT_JITTERED:
            x = jitter_planes(x, p.order, p.factor, hue_at=hue_at, in_place=True)
        if some_gray and len(x) == 3:
            torch.lerp(luma(x), x, (~p.gray).to(x.dtype)[:, None, None], out=x)
        if some_blur:
            x = _blur(x, p, kernel_size)
        if normalize is not None:
            mean, std = (value.to(x)[:, None, None, None] for value in normalize)
            x.mul_(1 / std).sub_(mean / std)
        _put(x, rows[chunk], out)


def render_fast(image: Tensor, parameters: ViewParameters, out: Tensor, settings: RenderSettings) -> None:
    """Write views to `out`, with one affine map of colours per view. For the arguments, see :func:`render_exact`."""
    kernel_size, normalize, chunk_size = settings
    dtype = _working_dtype(image)
    kernel = kernel_size if bool(parameters.blur.any()) else None
    idle = torch.tensor([1.0, 1.0, 1.0, 0.0])
    factor = torch.where(parameters.jitter.unsqueeze(1), parameters.factor, idle)
    maps = color_maps(parameters.order, factor, parameters.gray)
    m, q = (value.to(image.device, dtype, non_blocking=True) for value in maps)
    parameters = parameters.to(image.device)
    direct = out.is_contiguous() and out.dtype == dtype
    for _, chunk in _chunks([len(m)], chunk_size):
        x = _crop(image, parameters.select(chunk), out.shape[2:], kernel_size=kernel, dtype=dtype)
        y = affine_color(x, m[chunk], q[chunk], normalize=normalize, out=out[chunk] if direct else None)
        if not direct:
            out[chunk] = y


def _chunks(sizes: list[int], chunk_size: int) -> Iterator[tuple[int, slice]]:
    begin = 0
    for group, size in enumerate(sizes):
        parts = -(-size // chunk_size)
        for part in range(parts):
            yield group, slice(begin + part * size // parts, begin + (part + 1) * size // parts)
        begin += size


def _crop(
    image: Tensor, p: ViewParameters, size: torch.Size, kernel_size: tuple[int, int] | None, dtype: torch.dtype
) -> Tensor:
    gain = 1.0 if image.is_floating_point() else 1 / 255
    if _one_by_one(image.device, size):
        x = _crop_each(image, p, size, gain=gain, dtype=dtype)
        return x if kernel_size is None else _blur(x, p, kernel_size)
    rows = resize_matrix(p.top, p.height, source=image.shape[2], target=size[0], gain=gain, dtype=dtype)
    columns = resize_matrix(p.left, p.width, source=image.shape[3], target=size[1], flip=p.flip, dtype=dtype)
    if kernel_size is not None:
        rows = blur_matrix(p.sigma, kernel_size[0], size[0], blur=p.blur, dtype=dtype) @ rows
        columns = blur_matrix(p.sigma, kernel_size[1], size[1], blur=p.blur, dtype=dtype) @ columns
    x = image.index_select(0, p.source).to(dtype, memory_format=torch.contiguous_format)
    shape = (x.shape[1], len(x), *size)
    # nothing reads the image after the first product, so the result may reuse its memory, which is in the cache
    return separable(x, rows, columns, out=x.view(shape) if x.shape[2:] == size else x.new_empty(shape))


def _crop_each(image: Tensor, p: ViewParameters, size: torch.Size, *, gain: float, dtype: torch.dtype) -> Tensor:
    boxes = zip(*(value.tolist() for value in (p.source, p.top, p.left, p.height, p.width, p.flip)), strict=True)
    made = torch.empty(image.shape[1], len(p.source), *size, dtype=dtype)
    with one_thread(threads_sleep(image.device)):
        for view, (source, top, left, height, width, flip) in enumerate(boxes):
            crop = image[source, :, top : top + height, left : left + width].flip(-1 if flip else ())
            crop = crop.unsqueeze(0).to(dtype, memory_format=torch.contiguous_format)
            resized = F.interpolate(crop, tuple(size), mode="bilinear", antialias=True)[0]
            torch.mul(resized, gain, out=made[:, view])
    return made


def _one_by_one(device: torch.device, size: torch.Size) -> bool:
    return device.type == "cpu" and size.numel() >= LARGE


def _blur(x: Tensor, p: ViewParameters, kernel_size: tuple[int, int]) -> Tensor:
    if _one_by_one(x.device, x.shape[2:]):
        with one_thread(threads_sleep(x.device)):
            for view in p.blur.nonzero().flatten().tolist():
                sigma = p.sigma[view : view + 1]
                rows = blur_matrix(sigma, kernel_size[0], x.shape[2], dtype=x.dtype)
                columns = blur_matrix(sigma, kernel_size[1], x.shape[3], dtype=x.dtype)
                x[:, view] = rows @ x[:, view] @ columns.transpose(1, 2)
        return x
    rows = blur_matrix(p.sigma, kernel_size[0], x.shape[2], blur=p.blur, dtype=x.dtype)
    columns = blur_matrix(p.sigma, kernel_size[1], x.shape[3], blur=p.blur, dtype=x.dtype).transpose(1, 2)
    for plane in x:
        torch.bmm(torch.bmm(rows, plane), columns, out=plane)
    return x


def _put(x: Tensor, rows: Tensor, out: Tensor) -> None:
    if _one_by_one(x.device, x.shape[2:]):
        for row, view in zip(rows.tolist(), x.unbind(1), strict=True):
            out[row] = view
    elif out.is_contiguous():
        out.index_copy_(0, rows, x.transpose(0, 1).to(out.dtype))
    else:  # channels last: copy to this layout first, so that rows are long and contiguous
        out.permute(0, 2, 3, 1).index_copy_(0, rows, torch.stack(x.unbind(0), -1).to(out.dtype))


def _working_dtype(image: Tensor) -> torch.dtype:
    return torch.promote_types(image.dtype, torch.float32) if image.is_floating_point() else torch.float32
