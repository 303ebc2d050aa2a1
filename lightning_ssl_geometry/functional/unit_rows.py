"""Rows of unit length, in full precision."""

__all__ = ["finite_scale", "in_full_precision", "unit_rows"]

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def in_full_precision(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Cast both tensors to float64 if at least one of them is float64, else to float32."""
    dtype = torch.float64 if torch.float64 in (z1.dtype, z2.dtype) else torch.float32
    return z1.to(dtype), z2.to(dtype)


def unit_rows(z1: Tensor, z2: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """Divide the rows of both views (N, P) by their lengths. Rows no longer than `eps` become 0, with gradient 0."""
    return _UnitRows.apply(z1, eps), _UnitRows.apply(z2, eps)


def finite_scale(z: Tensor) -> Tensor:
    """Return a factor (N, 1) for each row of z (N, P) that makes its length finite: 1 for most rows.

    In float32, the squares of a row overflow from a length of about 1e19.
    """
    length = torch.linalg.vector_norm(z.detach(), dim=-1, keepdim=True)
    scale = torch.finfo(z.dtype).max ** -0.5 / max(1, z.shape[-1]) ** 0.5
    return torch.ones_like(length).masked_fill_(length.isinf(), scale)


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, eps: float) -> Tensor:
        scale = finite_scale(z)
        scaled = z * scale
        length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
        inverse = length.reciprocal().masked_fill_(length <= eps, 0)  # nan stays nan
        unit, inverse = scaled.mul_(inverse), inverse * scale
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        unit, inverse = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):  # backward may run inside the user's autocast
            radial = torch.linalg.vecdot(grad, unit).unsqueeze(-1)
        return torch.addcmul(grad, unit, radial, value=-1).mul_(inverse), None
