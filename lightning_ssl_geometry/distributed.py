"""Exchange tensors between the ranks of a distributed run; a single process exchanges nothing.

The collectives of torch.distributed have no gradient, and those of `torch.distributed.nn` are deprecated. Therefore
:func:`gather` and the reductions have a backward of their own, and only this file calls torch.distributed. The backward
gives the gradient of the sum of all ranks' losses. If every rank computes the same global loss, this is `world_size`
times its gradient; DistributedDataParallel averages it over the ranks, which gives the exact gradient.

All ranks must call these functions in the same order; a tensor requires a gradient on all ranks or on none. Any backend
works: gloo for CPU tensors, NCCL for CUDA tensors.
"""

__all__ = [
    "all_reduce_mean",
    "all_reduce_sum",
    "average_gradients",
    "gather",
    "rank",
    "subgroup",
    "total",
    "world_size",
]

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor, distributed


def world_size() -> int:
    """Return the number of ranks: 1 outside a distributed run."""
    return distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """Return the index of this process among the ranks: 0 outside a distributed run."""
    return distributed.get_rank() if _is_distributed() else 0


def gather(x: Tensor) -> Tensor:
    """Concatenate the rows of all ranks, in the order of the ranks, with gradient.

    Returns (sum of N over ranks, ...), equal on every rank.

    Args:
        x: (N, ...), of any dtype; a scalar is a ValueError. N may differ between ranks and be 0; the other sizes and
            the dtype must agree.
    """
    if x.ndim == 0:
        raise ValueError("Expected `x` with at least 1 dimension, whose rows are gathered, but got a scalar.")
    if world_size() == 1:
        return x
    gathered: Tensor = _Gather.apply(x)
    return gathered


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of the ranks' tensors `x`, all of one shape, with gradient."""
    if world_size() == 1:
        return x
    total: Tensor = _Sum.apply(x)
    return total


def all_reduce_mean(x: Tensor) -> Tensor:
    """Return the mean of the ranks' tensors `x`, all of one shape, with gradient.

    Each rank has the same weight. A ValueError if `x` holds integers: it must be float or complex.
    """
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"Expected `x` of a float dtype, but got {x.dtype}.")
    return all_reduce_sum(x) / world_size() if world_size() > 1 else x


def total(number: int, device: torch.device | str = "cpu") -> int:
    """Return the sum of an integer over the ranks, such as the number of samples of each rank.

    Args:
        number: The integer of this rank.
        device: The device that exchanges it: the rank's GPU with NCCL. With one rank, the device is not used.
    """
    return number if world_size() == 1 else int(all_reduce_sum(torch.tensor(number, device=device)))


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Average gradients over the ranks in place, after a backward pass outside of DistributedDataParallel.

    `parameters` are the same on every rank; each has a gradient on all ranks or on none. Cost: one message per dtype.
    """
    if world_size() == 1:
        return
    grads: dict[torch.dtype, list[Tensor]] = {}
    for parameter in parameters:
        if parameter.grad is not None:
            grads.setdefault(parameter.grad.dtype, []).append(parameter.grad)
    for group in grads.values():
        mean = all_reduce_mean(torch.cat([grad.flatten() for grad in group]))
        for grad, part in zip(group, mean.split([grad.numel() for grad in group]), strict=True):
            grad.copy_(part.view(grad.shape))


def subgroup(ranks: Sequence[int]) -> Any:
    """Return a new process group of the given ranks, such as torchmetrics takes; None outside a distributed run.

    All ranks must call this function; `ranks` has at least one member.
    """
    return distributed.new_group(list(ranks)) if _is_distributed() else None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.sizes = _sizes(x)
        padded = x.new_zeros(max(ctx.sizes), *x.shape[1:])  # the collective takes one shape only
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in ctx.sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, ctx.sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return all_reduce_sum(grad).split(ctx.sizes)[rank()]


class _Sum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        total = x.clone(memory_format=torch.contiguous_format)
        distributed.all_reduce(total)
        return total

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        return all_reduce_sum(grad)


def _sizes(x: Tensor) -> list[int]:
    sizes = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(world_size())]
    distributed.all_gather(sizes, torch.tensor([len(x)], device=x.device))
    return [int(size) for size in torch.cat(sizes).tolist()]
