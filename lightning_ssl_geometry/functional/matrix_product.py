"""A matrix product that autocast changes neither in the forward nor in the backward pass."""

__all__ = ["matrix_product"]

from typing import Any

import torch
from torch import Tensor


def matrix_product(a: Tensor, b: Tensor) -> Tensor:
    """Multiply matrices (..., A, P) and (..., P, B) of one float dtype; gradients of every order have this dtype, too.

    `autocast(enabled=False)` around `@` protects only the forward pass. A backward pass inside autocast, such as
    Lightning's `manual_backward` in a training step, would multiply in half precision.
    """
    product: Tensor = _MatrixProduct.apply(a, b)
    return product


class _MatrixProduct(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(a: Tensor, b: Tensor) -> Tensor:
        with torch.autocast(a.device.type, enabled=False):
            return a @ b

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)
        ctx.save_for_forward(*inputs)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None]:
        a, b = ctx.saved_tensors
        return (
            matrix_product(grad, b.mT) if ctx.needs_input_grad[0] else None,
            matrix_product(a.mT, grad) if ctx.needs_input_grad[1] else None,
        )

    @staticmethod
    def jvp(ctx: Any, by_a: Tensor, by_b: Tensor) -> Tensor:
        a, b = ctx.saved_tensors
        return matrix_product(by_a, b) + matrix_product(a, by_b)
