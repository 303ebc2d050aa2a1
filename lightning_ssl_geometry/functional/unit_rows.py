"""Rows of unit length, in full precision."""

__all__ = ["in_full_precision", "small_scale", "unit_rows"]

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


def small_scale(z: Tensor) -> float:
    """A factor at which the squares of large numbers are finite, and those of numbers with infinite squares not 0."""
    return torch.finfo(z.dtype).max ** -0.75


class _UnitRows(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, z: Tensor, eps: float) -> Tensor:
        norm = torch.linalg.vector_norm(z, dim=-1, keepdim=True)
        inverse = norm.reciprocal().masked_fill_(norm <= eps, 0)  # nan stays nan
        unit, large = z * inverse, norm.isinf()  # the squares overflow, from about 1e19 in float32
        asks = z.device.type == "cpu" and not torch.compiler.is_compiling()  # a GPU would wait for the answer
        if not asks or large.any():
            scale = small_scale(z)
            scaled = z * scale
            length = torch.linalg.vector_norm(scaled, dim=-1, keepdim=True)
            unit = torch.where(large, scaled / length, unit)
            inverse = torch.where(large, scale / length, inverse)
        ctx.save_for_backward(unit, inverse)
        return unit

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        unit, inverse = ctx.saved_tensors
        with torch.autocast(grad.device.type, enabled=False):  # backward may run inside the user's autocast
            radial = torch.linalg.vecdot(grad, unit).unsqueeze(-1)
        return torch.addcmul(grad, unit, radial, value=-1).mul_(inverse), None
