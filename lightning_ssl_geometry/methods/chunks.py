"""Large batches in the memory of small ones: a network's activations are kept for one part of a batch at a time.

This is GradCache (Gao, Zhang, Han & Callan, Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup,
2021), with torch's activation checkpointing: a first pass keeps the outputs of all parts, on which the loss is
computed, and the backward pass runs each part again, with the same random numbers and buffers.
"""

__all__ = ["batch_norm_of", "in_chunks", "kept_buffers"]

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager

import torch
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

_Buffers = dict[tuple[nn.Module, str], Tensor]


def in_chunks(network: nn.Module, x: Tensor, size: int) -> Tensor:
    """Return network(x) for rows x (N, ...), with the activations of `size` rows in memory at a time.

    Without gradients, the network gets all rows at once. Batch norm in training mode takes its statistics from each
    chunk, and its running statistics see each chunk once.
    """
    if not torch.is_grad_enabled():
        y: Tensor = network(x)
        return y
    parts = [
        checkpoint(network, part, use_reentrant=False, context_fn=lambda: _first_and_again(network))
        for part in x.split(size)
    ]
    return torch.cat(parts)


def batch_norm_of(network: nn.Module) -> nn.Module | None:
    """The first layer of a network whose output for a row depends on the other rows of a batch in training."""
    return next((layer for layer in network.modules() if isinstance(layer, _BatchNorm)), None)


@contextmanager
def kept_buffers(network: nn.Module) -> Iterator[None]:
    """Let a network work on copies of its buffers, such as running statistics, so that they do not change."""
    with _with_buffers(_buffers(network)):
        yield


def _first_and_again(network: nn.Module) -> tuple[AbstractContextManager[None], AbstractContextManager[None]]:
    changed: _Buffers = {}  # by the first pass: what they were before it

    @contextmanager
    def first() -> Iterator[None]:
        held = {place: (buffer, buffer._version, buffer.clone()) for place, buffer in _buffers(network).items()}
        yield
        now = _buffers(network)
        for (layer, name), (buffer, version, before) in held.items():
            # torch does not count the changes that batch norm makes
            if isinstance(layer, _BatchNorm) or now.get((layer, name)) is not buffer or buffer._version != version:
                changed[layer, name] = before

    @contextmanager
    def again() -> Iterator[None]:
        with _with_buffers(changed):
            yield

    return first(), again()


def _buffers(network: nn.Module) -> _Buffers:
    return {
        (layer, name): buffer
        for layer in network.modules()
        for name, buffer in layer._buffers.items()
        if buffer is not None
    }


@contextmanager
def _with_buffers(buffers: Mapping[tuple[nn.Module, str], Tensor]) -> Iterator[None]:
    own = {(layer, name): layer._buffers[name] for layer, name in buffers}
    for (layer, name), buffer in buffers.items():
        layer._buffers[name] = buffer.clone()
    try:
        yield
    finally:
        for (layer, name), kept in own.items():
            layer._buffers[name] = kept
