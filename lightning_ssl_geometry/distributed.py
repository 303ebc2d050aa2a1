"""Exchange tensors between the processes (ranks) of a distributed run. With one process, nothing is exchanged.

:func:`gather` and the reductions have gradients. They are gradients of the sum of all ranks' losses.
DistributedDataParallel then divides them by the number of ranks. If every rank computes the same global loss, the
result is exactly the gradient of this loss.

All ranks must call these functions in the same order. A tensor must require a gradient on all ranks or on none.
"""

__all__ = [
    "all_reduce_mean",
    "all_reduce_sum",
    "average_gradients",
    "broadcast",
    "gather",
    "gather_and_place",
    "gather_rows",
    "rank",
    "subgroup",
    "total",
    "unique_numbers",
    "world_size",
]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, distributed


def world_size() -> int:
    """Return the number of ranks, 1 outside of a distributed run."""
    return distributed.get_world_size() if _is_distributed() else 1


def rank() -> int:
    """Return the index of this rank, 0 outside of a distributed run."""
    return distributed.get_rank() if _is_distributed() else 0


def gather(x: Tensor) -> Tensor:
    """Concatenate x (N, ...) of all ranks along the first axis, in the order of the ranks, with gradient.

    The result is equal on all ranks. N may differ between ranks and be 0. The dtype and the other sizes must be equal.
    If x is a scalar, a ValueError is raised.
    """
    return gather_and_place(x)[0]


def gather_and_place(x: Tensor) -> tuple[Tensor, slice]:
    """Return :func:`gather` of x (N, ...), and the place of this rank's rows in it."""
    if x.ndim == 0:
        raise ValueError("Expected `x` with at least 1 dimension, whose rows are gathered, but got a scalar.")
    if world_size() == 1:
        return x, slice(0, len(x))
    sizes = _sizes(x)
    start = sum(sizes[: rank()])
    return _Gather.apply(x, sizes), slice(start, start + len(x))


def all_reduce_sum(x: Tensor) -> Tensor:
    """Return the sum of x over the ranks, with gradient. The shape of x must be the same on all ranks."""
    if world_size() == 1:
        return x
    total: Tensor = _Sum.apply(x)
    return total


def all_reduce_mean(x: Tensor) -> Tensor:
    """Return the mean of x over the ranks, with gradient. The shape of x must be the same on all ranks.

    If x is neither floating point nor complex, a ValueError is raised.
    """
    if not (x.is_floating_point() or x.is_complex()):
        raise ValueError(f"Expected `x` of a float dtype, but got {x.dtype}.")
    return all_reduce_sum(x) / world_size() if world_size() > 1 else x


def total(number: int, device: torch.device | str = "cpu") -> int:
    """Return the sum of an integer over the ranks.

    Args:
        number: The integer of this rank, such as its number of samples.
        device: Where the numbers are exchanged. With the backend NCCL, it must be the rank's GPU.
    """
    return number if world_size() == 1 else int(all_reduce_sum(torch.tensor(number, device=device)))


def unique_numbers(start: int, n: int, device: torch.device | str = "cpu") -> Tensor:
    """Return n numbers (n,) that no other rank uses, int64.

    Sample k of rank r has the number k R + r, for R ranks. A data loader without shuffling gives every sample the same
    number on one rank and on several.

    Args:
        start: How many numbers this rank has used, which is k of the first of the n samples.
        n: How many numbers are needed.
        device: Where the result is.

    >>> unique_numbers(3, 2)
    tensor([3, 4])
    """
    return torch.arange(start, start + n, device=device) * world_size() + rank()


def average_gradients(parameters: Iterable[Tensor]) -> None:
    """Average gradients over the ranks in place, for a backward pass outside of DistributedDataParallel.

    Each parameter must have a gradient on all ranks or on none.
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


def broadcast(value: Any, source: int = 0) -> Any:
    """Return the value of the rank `source`, on all ranks. The value must be picklable."""
    if world_size() == 1:
        return value
    held = [value]
    distributed.broadcast_object_list(held, source)
    return held[0]


def gather_rows(rows: Mapping[str, Tensor], device: torch.device | str = "cpu") -> dict[str, Tensor]:
    """Concatenate tensors of the same name from all ranks along their first axis, on the CPU.

    `rows` maps names to tensors on `device`. It may be empty on some ranks. All ranks must call this function.
    """
    has = gather(torch.tensor([int(bool(rows))], device=device)).tolist()
    if not any(has):
        return {}
    if not all(has):
        shapes = {name: (tuple(value.shape[1:]), value.dtype) for name, value in rows.items()}
        shapes = broadcast(shapes, source=has.index(1))
        none = {name: torch.zeros(0, *shape, dtype=dtype, device=device) for name, (shape, dtype) in shapes.items()}
        rows = rows or none
    return {name: gather(rows[name]).cpu() for name in sorted(rows)}


def subgroup(ranks: Sequence[int]) -> Any:
    """Return a process group of the given ranks. Outside of a distributed run, return None.

    All ranks must call this function. `ranks` must not be empty.
    """
    return distributed.new_group(list(ranks)) if _is_distributed() else None


def _is_distributed() -> bool:
    return distributed.is_available() and distributed.is_initialized()


class _Gather(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, sizes: list[int]) -> Tensor:
        ctx.sizes = sizes
        padded = x.new_zeros(max(ctx.sizes), *x.shape[1:])  # the collective takes one shape only
        padded[: len(x)] = x
        parts = [torch.empty_like(padded) for _ in ctx.sizes]
        distributed.all_gather(parts, padded)
        return torch.cat([part[:size] for part, size in zip(parts, ctx.sizes, strict=True)])

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        return all_reduce_sum(grad).split(ctx.sizes)[rank()], None


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
