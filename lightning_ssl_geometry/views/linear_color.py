r"""Colour jitter and grayscale as one affine map of colours per sample, clamped once at the end.

Unlike in :mod:`lightning_ssl_geometry.views.color`, all operations are linear. Single operations do not clamp, and the
hue turns by a rotation of the colour space about its gray axis. With the luma :math:`y = g^\top x`, the rotation R, and
the factors b of brightness, c of contrast and s of saturation, a jitter in any order is

.. math:: x' = M x + \mathbf 1 \, q^\top \bar x, \qquad
          M = b c \, (s R + (1 - s) \, \mathbf 1 l^\top), \qquad
          q = b (1 - c) \, p

with the view's mean colour :math:`\bar x`. Only l and p depend on the order of the operations. :math:`l` is g if the
saturation changes before the hue, else :math:`R^\top g`. :math:`p^\top x` is the luma just before the contrast changes.
"""

__all__ = ["affine_color", "color_maps"]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.views.color import LUMA


def color_maps(order: Tensor, factor: Tensor, gray: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compose colour operations into a map :math:`M x + \mathbf 1 \, q^\top \bar x` of colours x with mean x-bar.

    Args:
        order: (N, 4) int64, a permutation of 0 (brightness), 1 (contrast), 2 (saturation) and 3 (hue).
        factor: (N, 4), the factors of brightness, contrast and saturation, and the shift of the hue in turns.
        gray: (N,), bool, whether the luma replaces every channel at the end.

    Returns:
        M (N, 3, 3) and q (N, 3).

    >>> m, q = color_maps(torch.arange(4).unsqueeze(0), torch.tensor([[0.5, 1.0, 1.0, 0.0]]), torch.tensor([False]))
    >>> torch.allclose(m, 0.5 * torch.eye(3)), q.tolist()
    (True, [[0.0, 0.0, 0.0]])
    """
    _, contrast_at, saturation_at, hue_at = order.argsort(1).unsqueeze(2).unbind(1)  # (N, 1)
    b, c, s, shift = factor.unsqueeze(2).unbind(1)  # (N, 1)
    g = torch.tensor(LUMA, dtype=factor.dtype, device=factor.device)
    g = g / g.sum()  # the printed coefficients sum to 0.9999, which would change gray
    r = _rotation(shift.unsqueeze(2))  # (N, 3, 3)
    turned = g @ r  # (N, 3)
    saturated = torch.lerp(g.expand_as(turned), turned, s)
    luma = torch.where(saturation_at < hue_at, g, turned)
    final = torch.where(saturation_at < hue_at, saturated, turned)
    m = b.unsqueeze(2) * c.unsqueeze(2) * torch.lerp(luma.unsqueeze(1).expand_as(r), r, s.unsqueeze(2))
    q = b * (1 - c) * torch.where(hue_at < contrast_at, final, g)
    return torch.where(gray[:, None, None], (g @ m).unsqueeze(1), m), q


def affine_color(
    x: Tensor, m: Tensor, q: Tensor, normalize: tuple[Tensor, Tensor] | None = None, out: Tensor | None = None
) -> Tensor:
    r"""Return :math:`\mathrm{clamp}(M x + \mathbf 1 \, q^\top \bar x, 0, 1)`, normalised, for colours x.

    Args:
        x: (C, N, H, W), floating point in [0, 1], C = 1 or 3. One channel is treated as three equal ones.
        m: M, (N, 3, 3).
        q: q, (N, 3), weights of the sample's mean colour :math:`\bar x`.
        normalize: Mean and standard deviation of the normalisation, each (C,). None: no normalisation.
        out: (N, C, H, W), contiguous, for the result. None: a new tensor of this shape.
    """
    c, n, height, width = x.shape
    if c == 1:
        m, q = m.sum(2, keepdim=True)[:, :1], q.sum(1, keepdim=True)
    mean, std = (x.new_zeros(c), x.new_ones(c)) if normalize is None else normalize
    mean, std = mean.to(x).unsqueeze(1), std.to(x).unsqueeze(1)
    out = x.new_empty(n, c, height, width) if out is None else out
    flat, y = x.view(c, n, height * width), out.view(n, c, height * width)
    pull = (q.T * flat.mean(2)).sum(0)  # (N,)
    # the product includes the normalisation, so the bounds of the clamp are normalised too
    torch.baddbmm((pull[:, None, None] - mean) / std, m / std, flat.transpose(0, 1), out=y)
    torch.maximum(y, (0 - mean) / std, out=y)
    torch.minimum(y, (1 - mean) / std, out=y)
    return out


def _rotation(shift: Tensor) -> Tensor:
    angle = 2 * math.pi * shift
    eye = torch.eye(3, dtype=shift.dtype, device=shift.device)
    turn = torch.tensor([[0.0, -1, 1], [1, 0, -1], [-1, 1, 0]], dtype=shift.dtype, device=shift.device)
    # about the gray axis
    return angle.cos() * (eye - 1 / 3) + angle.sin() * (turn / math.sqrt(3)) + 1 / 3
