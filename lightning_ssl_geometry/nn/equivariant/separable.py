r"""Convolution with filters of a separable basis, :math:`\psi_{nm}(x, y) = l_n(x) l_m(y)`, as matrix products.

.. math:: z_o = \sum_n T_n \sum_{i, m} w_{oi,nm} \, y_i \, T_m^\top = \sum_{i, n, m} w_{oi,nm} \, T_n \, y_i \, T_m^\top

The y_i are images. The matrix T_n convolves a line of pixels with l_n, including stride and padding. The orders n and m
are below e. For each pixel and pair of channels, an ordinary convolution of width k takes k^2 multiplications, and this
method e^2.
"""

__all__ = ["line_matrices", "mirror", "pays", "separable_conv2d", "turn"]

import torch
from torch import Tensor

# The products are used if a convolution takes FEWER times more multiplications. A multiplication with the thin
# matrices counts THIN times. Measured on a core with AVX-512 in float32, forward and backward, on 26 layers of 3 to 128
# channels, 8 to 128 pixels, kernels of 3 to 11, effective sizes 1 to 7, strides 1 and 2. For ratios of at least 2.0,
# the products took 0.27 to 0.65 of the time of a convolution; for 1.4 to 2.0, 0.66 to 1.13; below, up to 2.4.
FEWER, THIN = 2.0, 2


def pays(
    in_channels: int, out_channels: int, effective_size: int, support: int, size: list[int], out_size: list[int]
) -> bool:
    """Return whether an ordinary convolution takes at least `FEWER` times the multiplications of separable_conv2d.

    `support` is the width of the filters. `size` and `out_size` are height and width of the input and the output.

    >>> pays(64, 128, 3, 7, [15, 15], [8, 8]), pays(1, 32, 3, 7, [29, 29], [29, 29])
    (True, False)
    """
    if min(out_size) < 1:
        return False
    convolution = support**2 * in_channels * out_channels * out_size[0] * out_size[1]
    ours = min(_multiplications(in_channels, out_channels, effective_size, size=size, out_size=out_size))
    return FEWER * ours <= convolution


def line_matrices(lines: Tensor, size: int, out_size: int, stride: int, padding: int, circular: bool) -> Tensor:
    """Return matrices (e, `out_size`, `size`) that convolve a line of `size` pixels with e filters `lines` (e, k).

    A negative `padding` crops the line. If `circular` is false, the padding is zeros.

    >>> line_matrices(torch.tensor([[1.0, 2.0, 3.0]]), 4, 2, 2, 1, circular=True)
    tensor([[[2., 3., 0., 1.],
             [0., 1., 2., 3.]]])
    """
    first = stride * torch.arange(out_size, device=lines.device) - padding
    seen = first[:, None] + torch.arange(lines.shape[1], device=lines.device)  # (size', k)
    pixels = torch.arange(size, device=lines.device)
    at = (seen % size if circular else seen)[..., None] == pixels  # (size', k, size)
    return torch.tensordot(lines, at.to(lines.dtype), ([1], [1]))


def separable_conv2d(x: Tensor, weight: Tensor, rows: Tensor, columns: Tensor) -> Tensor:
    """Convolve images (N, C_in, H, W) with separable filters to (N, C_out, H', W'), by matrix products.

    Args:
        x: The images. The memory format channels last is fastest.
        weight: Coefficients (C_out, C_in, e^2) of the basis functions l_n(x) l_m(y), which have the index m e + n.
        rows: Matrices (e, H', H) of :func:`line_matrices` for the vertical axis.
        columns: Matrices (e, W', W) of :func:`line_matrices` for the horizontal axis.
    """
    (n, channels, h, w), e, out_channels = x.shape, len(rows), len(weight)
    out_h, out_w = rows.shape[1], columns.shape[1]
    before, after = _multiplications(channels, out_channels, e, size=[h, w], out_size=[out_h, out_w])
    weight = weight.unflatten(-1, (e, e)).permute(3, 2, 1, 0)  # (n, m, C_in, C_out)
    y = columns.transpose(0, 1).flatten(0, 1) @ x.permute(0, 2, 3, 1).flatten(0, 1)  # (N H, W' m, C_in)
    if before < after:
        maps = y.view(n * h * out_w, e * channels) @ weight.permute(1, 2, 0, 3).reshape(e * channels, -1)
        maps = maps.view(n, h, out_w, e, out_channels).permute(0, 3, 1, 2, 4).reshape(n, e * h, out_w * out_channels)
        z = rows.transpose(0, 1).flatten(1) @ maps  # (N, H', W' C_out)
    else:
        y, weight = y.view(n, h, out_w * e * channels), weight.flatten(1, 2)
        z = (rows[0] @ y).view(-1, e * channels) @ weight[0]
        for i in range(1, e):
            z = torch.addmm(z, (rows[i] @ y).view(-1, e * channels), weight[i])
    return z.view(n, out_h, out_w, out_channels).permute(0, 3, 1, 2)


def turn(weight: Tensor, times: int) -> Tensor:
    """Turn filters with coefficients (..., e^2). A quarter turn maps l_n(x) l_m(y) to (-1)^m l_m(x) l_n(y)."""
    e = round(weight.shape[-1] ** 0.5)
    sign = (-1.0) ** torch.arange(e, device=weight.device)
    weight = weight.unflatten(-1, (e, e))
    for _ in range(times):
        weight = weight.transpose(-1, -2) * sign.to(weight.dtype)
    return weight.flatten(-2)


def mirror(weight: Tensor) -> Tensor:
    """Mirror filters with coefficients (..., e^2), left and right: l_n(x) l_m(y) becomes (-1)^m l_n(x) l_m(y)."""
    e = round(weight.shape[-1] ** 0.5)
    sign = (-1.0) ** torch.arange(e, device=weight.device, dtype=weight.dtype)
    return weight * sign.repeat_interleave(e)


def _multiplications(
    in_channels: int, out_channels: int, effective_size: int, size: list[int], out_size: list[int]
) -> tuple[int, int]:
    # Per image, with the weights applied before `rows` and after `rows`.
    (h, w), (out_h, out_w), e = size, out_size, effective_size
    columns = THIN * e * h * out_w * w * in_channels
    before = h * out_w * e * (e * in_channels + THIN * out_h) * out_channels
    after = out_h * out_w * e**2 * (THIN * h + out_channels) * in_channels
    return columns + before, columns + after
