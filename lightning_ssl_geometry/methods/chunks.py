"""Large batches in the memory of small ones: a network's activations are kept for one part of a batch at a time.

This is GradCache (Gao, Zhang, Han & Callan, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup,
2021), with torch's activation checkpointing: a first pass keeps the outputs of all parts, on which the loss is
computed, and the backward pass runs each part again. In this second pass, the random numbers of torch, NumPy and
Python, the default dtype and the network's buffers are those of the first. Other things that a network may keep between
two calls, such as a counter or a generator of its own, are not.
"""

__all__ = ["batch_norm_of", "in_chunks", "kept_buffers"]

import random
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, ExitStack, contextmanager
from types import TracebackType

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.parameter import is_lazy
from torch.utils.checkpoint import checkpoint, set_checkpoint_early_stop

from lightning_ssl_geometry import distributed

_Buffers = dict[tuple[nn.Module, str], Tensor]


@torch.compiler.disable
def in_chunks(network: nn.Module, x: Tensor, size: int) -> Tensor:
    """Return network(x) for rows x (N, ...), with the activations of at most `size` rows in memory at a time.

    The chunks are of one size, or differ by one row, and all processes have the same number of them. Without gradients,
    the network gets all rows at once. Batch norm in training mode takes its statistics from each chunk, and its running
    statistics see each chunk once.

    Raises:
        ValueError: If the network does not return a tensor with a row for each row of x.
    """
    if not torch.is_grad_enabled():
        y: Tensor = network(x)
        return y

    def run(part: Tensor) -> Tensor:
        return _rows(network(part.clone()), len(part))  # the network may change its input

    count = max(-(-len(x) // size), 1)
    if distributed.world_size() > 1:  # a synchronised batch norm waits for all processes in each chunk
        count = int(distributed.gather(torch.tensor([count], device=x.device)).max())
    with set_checkpoint_early_stop(False):  # the second pass runs to its end, too
        parts = [
            checkpoint(run, part, use_reentrant=False, context_fn=lambda: _first_and_again(network))
            for part in x.tensor_split(count)
        ]
    return torch.cat(parts)


def batch_norm_of(network: nn.Module) -> nn.Module | None:
    """The first layer of a network whose output for a row depends on the other rows of a batch in training."""
    return next((layer for layer in network.modules() if isinstance(layer, _BatchNorm)), None)


@contextmanager
def kept_buffers(network: nn.Module) -> Iterator[None]:
    """Let a network work on copies of its buffers, such as running statistics, so that they do not change."""
    with _with_copies(_buffers(network)):
        yield


def _rows(y: object, count: int) -> Tensor:
    if not isinstance(y, Tensor):
        raise ValueError(f"Expected `backbone` to return a tensor beside `chunk_size`, but got {type(y).__name__}.")
    if y.ndim == 0 or len(y) != count:
        raise ValueError(
            f"Expected `backbone` to return {count} rows for {count} rows beside `chunk_size`, but got shape "
            f"{tuple(y.shape)}."
        )
    return y


def _first_and_again(network: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    again = _Again(network)
    return again.remember(), again


class _Again:
    """The state of the first pass, for one second pass or several."""

    def __init__(self, network: nn.Module) -> None:
        self.network = network
        self.entered: list[ExitStack] = []

    @contextmanager
    def remember(self) -> Iterator[None]:
        self.buffers = _copies(_buffers(self.network))
        self.dtype = torch.get_default_dtype()
        self.random, self.numpy = random.getstate(), np.random.get_state()  # noqa: NPY002
        yield

    def __enter__(self) -> None:
        stack = ExitStack()
        stack.callback(torch.set_default_dtype, torch.get_default_dtype())
        stack.callback(random.setstate, random.getstate())
        stack.callback(np.random.set_state, np.random.get_state())  # noqa: NPY002
        stack.enter_context(_with_copies(self.buffers))
        torch.set_default_dtype(self.dtype)
        random.setstate(self.random)
        np.random.set_state(self.numpy)  # noqa: NPY002
        self.entered.append(stack)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.entered.pop().close()


def _buffers(network: nn.Module) -> _Buffers:
    return {
        (layer, name): buffer
        for layer in network.modules()
        for name, buffer in layer._buffers.items()
        if buffer is not None and not is_lazy(buffer)
    }


def _copies(buffers: Mapping[tuple[nn.Module, str], Tensor]) -> _Buffers:
    """Copy the buffers. A tensor that several layers share is copied once."""
    made = {id(buffer): buffer.clone() for buffer in buffers.values()}
    return {place: made[id(buffer)] for place, buffer in buffers.items()}


@contextmanager
def _with_copies(buffers: Mapping[tuple[nn.Module, str], Tensor]) -> Iterator[None]:
    own = {(layer, name): layer._buffers.get(name) for layer, name in buffers}
    for (layer, name), buffer in _copies(buffers).items():
        layer._buffers[name] = buffer
    try:
        yield
    finally:
        for (layer, name), kept in own.items():
            layer._buffers[name] = kept
