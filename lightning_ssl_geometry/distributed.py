"""What the ranks of a distributed run exchange; everywhere else there is one rank, and a tensor is returned as it is.

This is the only file that calls torch.distributed. `torch.distributed`'s own collectives cut the gradient, and those
of `torch.distributed.nn` are deprecated, so the two collectives that a loss needs have their backward here. Both
backwards give d(sum of all ranks' losses): where every rank computes the same global loss, this is `world_size` times
its gradient, and the mean over ranks that DistributedDataParallel takes of the parameters' gradients makes it exact.

All ranks must call, in the same order, with a tensor that requires a gradient on all of them or on none. Any backend
will do: gloo for CPU tensors, NCCL for CUDA tensors.
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
    """Count the ranks: 1 outside a distributed run.

    >>> world_size()
    1
    """
    return distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """Return this process's place among the ranks: 0 outside a distributed run.

    >>> rank()
    0
    """
    return distributed.get_rank() if _is_distributed() else 0


def gather(x: Tensor) -> Tensor:
    """Concatenate all ranks' rows, in the order of the ranks, with gradient.

    Args:
        x: (N, ...), of any dtype; N may differ between ranks, and be 0, the other sizes and the dtype may not.

    Returns:
        (sum of N, ...), the same on every rank; `x` itself where there is one rank.

    Raises:
        ValueError: If `x` has no dimension.

    >>> gather(torch.arange(3))
    tensor([0, 1, 2])
    """
    if x.ndim == 0:
        raise ValueError("Expected `x` with at least 1 dimension, whose rows are gathered, but got a scalar.")
    if world_size() == 1:
        return x
    gathered: Tensor = _Gather.apply(x)
    return gathered


def all_reduce_sum(x: Tensor) -> Tensor:
    """Sum a tensor over the ranks, elementwise, with gradient.

    Args:
        x: Of any shape, the same on every rank.

    Returns:
        A tensor of that shape, the same on every rank; `x` itself where there is one rank.

    >>> all_reduce_sum(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if world_size() == 1:
        return x
    total: Tensor = _Sum.apply(x)
    return total


def all_reduce_mean(x: Tensor) -> Tensor:
    """Average a tensor over the ranks, elementwise and each rank counting the same, with gradient.

    Args:
        x: Of any shape, the same on every rank, and of a float dtype.

    Returns:
        A tensor of that shape, the same on every rank; `x` itself where there is one rank.

    Raises:
        ValueError: If `x` holds integers.

    >>> all_reduce_mean(torch.tensor([1.0, 2.0]))
    tensor([1., 2.])
    """
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"Expected `x` of a float dtype, but got {x.dtype}.")
    return all_reduce_sum(x) / world_size() if world_size() > 1 else x


def total(number: int, device: torch.device | str = "cpu") -> int:
    """Sum a number over the ranks, such as that of their samples, by which the loss of all of them is to be weighed.

    Args:
        number: This rank's.
        device: Where the ranks exchange it; with NCCL, their GPU. With one rank, nothing waits for it.

    Returns:
        The sum, the same on every rank.

    >>> total(3)
    3
    """
    return number if world_size() == 1 else int(all_reduce_sum(torch.tensor(number, device=device)))


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Average gradients over the ranks in place, in one message per dtype: what DDP does where it sees the backward.

    Args:
        parameters: The same on every rank, and with a gradient on all of them or on none.
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
    """Make a process group of some ranks, for collectives that the others leave out; all ranks must call.

    Args:
        ranks: The members, at least one.

    Returns:
        What torchmetrics takes as `process_group`; None outside a distributed run.

    >>> subgroup([0])
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
    """The number of rows on each rank."""
    sizes = [torch.zeros(1, dtype=torch.int64, device=x.device) for _ in range(world_size())]
    distributed.all_gather(sizes, torch.tensor([len(x)], device=x.device))
    return [int(size) for size in torch.cat(sizes).tolist()]
