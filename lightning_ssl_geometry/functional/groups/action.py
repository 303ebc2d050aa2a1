"""Group actions :math:`T_g` on batches of images: quarter turns, translations and changes of scale.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022). Quarter turns and circular translations permute
the pixels, so they are exact and invertible. Changes of scale are neither exact nor invertible.
"""

__all__ = ["quarter_turn", "rescale", "translate"]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside


def quarter_turn(x: Tensor, turns: Tensor | int) -> Tensor:
    r"""Turn each image by its own number of quarter turns, counter-clockwise as the image is seen (row 0 on top).

    .. math:: T_r x = \mathrm{rot90}^r x, \quad T_r T_s = T_{r + s}, \quad r \in \mathbb{Z} / 4

    Args:
        x: (N, ..., H, W), floating point; the result has the same shape and dtype.
        turns: r modulo 4, as one integer for all samples or as (N,) int64.

    Raises:
        ValueError: If a shape or dtype is wrong, or H != W and a number of turns is odd (this check waits for the GPU).

    >>> quarter_turn(torch.tensor([[[1.0, 2.0], [3.0, 4.0]]]), 1).tolist()
    [[[2.0, 4.0], [1.0, 3.0]]]
    """
    _check_images(x, "(N, ..., H, W)", 3)
    height, width = x.shape[-2:]
    if not isinstance(turns, int | Tensor) or (
        isinstance(turns, Tensor) and (turns.shape != x.shape[:1] or turns.dtype != torch.int64)
    ):
        expected = f"Expected `turns` to be an integer or torch.int64 of shape ({len(x)},)"
        raise ValueError(f"{expected}, but got {_described(turns)}.")
    if height != width and bool(torch.as_tensor(turns % 2 == 1).any()):
        size = f"{height} x {width} pixels"
        raise ValueError(f"Expected `turns` to be even where H != W, but got odd ones on {size}.")
    if isinstance(turns, int):
        return torch.rot90(x, turns, (-2, -1))
    pixel = torch.arange(height * width, device=x.device).view(height, width)
    source = torch.stack([torch.rot90(pixel, r).flatten() for r in range(4)])  # (4, H W)
    return _gather_pixels(x, source[turns.to(x.device, non_blocking=True) % 4])


def translate(x: Tensor, shift: Tensor, fill: Tensor | float = 0.0, circular: bool = False) -> Tensor:
    """Shift each image by its own number of whole pixels: :math:`(T_s x)(p) = x(p - s)`.

    Args:
        x: (N, C, ..., H, W), floating point; the result has the same shape and dtype.
        shift: s = (rows down, columns to the right), int64, as (2,) for all samples or as (N, 2).
        fill: Value of the pixels that enter at the border: one number, or (C,). Not used with `circular`.
        circular: Whether pixels that leave the image at one border enter at the opposite border.

    Raises:
        ValueError: If a shape or dtype is wrong.

    >>> translate(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([-1, 0])).tolist()
    [[[[3.0, 4.0], [0.0, 0.0]]]]
    """
    _check_images(x, "(N, C, ..., H, W)", 4)
    if not isinstance(shift, Tensor) or shift.shape not in ((2,), (len(x), 2)) or shift.dtype != torch.int64:
        expected = f"Expected `shift` to be torch.int64 of shape (2,) or ({len(x)}, 2)"
        raise ValueError(f"{expected}, but got {_described(shift)}.")
    value = _fill(fill, x)
    height, width = x.shape[-2:]
    down, right = shift.to(x.device, non_blocking=True).view(-1, 2, 1).unbind(1)  # (N, 1)
    row = (torch.arange(height, device=x.device) - down).unsqueeze(2)  # (N, H, 1)
    column = (torch.arange(width, device=x.device) - right).unsqueeze(1)  # (N, 1, W)
    y = _gather_pixels(x, (row % height * width + column % width).flatten(1))
    if circular:
        return y
    inside = (row >= 0) & (row < height) & (column >= 0) & (column < width)  # (N, H, W)
    return torch.where(_over_channels(inside, x), y, value)


def rescale(x: Tensor, factor: Tensor | float, fill: Tensor | float = 0.0) -> Tensor:
    r"""Resize each image about its centre by its own factor, bilinearly and with antialiasing.

    .. math:: T_f x = A_f x B_f^\top, \quad
        (A_f)_{ij} \propto \max\bigl(0, 1 - |j - c_i| / \max(1, 1/f)\bigr), \quad
        c_i = \tfrac{H - 1}{2} + \tfrac{1}{f} \bigl(i - \tfrac{H - 1}{2}\bigr)

    Rows of A_f sum to 1. B_f is the same matrix for the columns. The weights are those of torchvision's `resize(...,
    antialias=True)`. If f < 1, the resized image fills the f H x f W pixels in the middle, and the pixels around it get
    the value `fill`. An edge pixel that the resized image covers only in part is a mean weighted by area. If f > 1, the
    border is cut off. The result is continuous in f. It is differentiable in x and, except at isolated values, in f.

    Args:
        x: (N, C, ..., H, W), floating point; the result has the same shape and dtype, computed in float32 or float64.
        factor: f > 0, as one number for all samples or as (N,). The check waits for the GPU if this is a tensor on the
            GPU.
        fill: Value around the resized image: one number, or (C,).

    Raises:
        ValueError: If a shape or dtype is wrong, or a factor is not positive and finite.

    >>> rescale(torch.ones(1, 1, 4, 4), 0.5).view(4, 4)[1]
    tensor([0., 1., 1., 0.])
    """
    _check_images(x, "(N, C, ..., H, W)", 4)
    factor = _factors(factor, x)
    value = _fill(fill, x)
    with torch.autocast(x.device.type, enabled=False):
        dtype = torch.promote_types(x.dtype, torch.float32)
        f = factor.to(x.device, dtype, non_blocking=True)
        (a, rows), (b, columns) = (_resize_matrix(f, size) for size in x.shape[-2:])
        y = torch.einsum("nkhw,njw->nkhj", x.to(dtype).flatten(1, -3), b)
        y = torch.einsum("nih,nkhj->nkij", a, y).reshape(x.shape)
        if isinstance(value, Tensor) or value != 0:
            y = y + (1 - _over_channels(rows.unsqueeze(2) * columns.unsqueeze(1), x)) * value
        return y.to(x.dtype)


def _resize_matrix(factor: Tensor, size: int) -> tuple[Tensor, Tensor]:
    """Return A_f of :func:`rescale`, (N, size, size), and the part of each pixel that the image covers, (N, size)."""
    i = torch.arange(size, dtype=factor.dtype, device=factor.device) - (size - 1) / 2  # from the centre
    f = factor.unsqueeze(1)  # (N, 1)
    center = (i / f).clamp(-size / 2, size / 2)  # (N, size), of output pixel i in the image
    reach = (1 / f).clamp_min(1).unsqueeze(2)
    weight = (1 - (i - center.unsqueeze(2)).abs() / reach).clamp_min(0)  # (N, size, size)
    half = f * size / 2  # of the resized image; pixel i spans i - 1/2 to i + 1/2
    share = (torch.minimum(i + 0.5, half) - torch.maximum(i - 0.5, -half)).clamp_min(0)
    return weight / weight.sum(2, keepdim=True) * share.unsqueeze(2), share


def _gather_pixels(x: Tensor, source: Tensor) -> Tensor:
    # y[n, ..., j] = x[n, ..., source[n, j]] for the pixels j = 0, ..., H W - 1
    flat = x.flatten(-2)
    index = source.view(len(source), *(1,) * (flat.ndim - 2), flat.shape[-1])
    return flat.gather(-1, index.expand(flat.shape)).view(x.shape)


def _over_channels(plane: Tensor, x: Tensor) -> Tensor:
    return plane.view(len(plane), *(1,) * (x.ndim - 3), *plane.shape[1:])


def _fill(fill: Tensor | float, x: Tensor) -> Tensor | float:
    if not isinstance(fill, Tensor):
        return fill
    if fill.shape != x.shape[1:2]:
        raise ValueError(f"Expected `fill` to be a number or of shape ({x.shape[1]},), but got {tuple(fill.shape)}.")
    return fill.to(x.device, x.dtype, non_blocking=True).view(-1, *(1,) * (x.ndim - 2))


def _factors(factor: Tensor | float, x: Tensor) -> Tensor:
    if not isinstance(factor, Tensor):
        inside("(0, inf)", factor=factor)
        return torch.tensor([factor], dtype=torch.float64)
    if factor.shape != x.shape[:1]:
        got = tuple(factor.shape)
        raise ValueError(f"Expected `factor` to be a number or of shape ({len(x)},), but got {got}.")
    wrong = ~((factor > 0) & (factor < math.inf))
    if bool(wrong.any()):
        raise ValueError(f"Expected `factor` > 0 and finite, but got {factor[wrong][0].item()}.")
    return factor


def _check_images(x: Tensor, axes: str, ndim: int) -> None:
    if x.ndim < ndim or not x.is_floating_point():
        raise ValueError(f"Expected `x` of shape {axes}, floating point, but got {tuple(x.shape)}, {x.dtype}.")


def _described(value: object) -> str:
    return f"{tuple(value.shape)}, {value.dtype}" if isinstance(value, Tensor) else repr(value)
