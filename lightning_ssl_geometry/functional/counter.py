"""Random numbers that are functions of counters: no state, so no order of calls, batches, ranks or resumes.

A draw is a hash of the integers that name it, say (seed, epoch, sample index, view), with the finaliser of
SplitMix64 (Steele, Lea & Flood, Fast splittable pseudorandom number generators, 2014) on torch's int64.
"""

__all__ = ["counter_hash", "counter_uniform"]

import torch
from torch import Tensor

_GAMMA = 0x9E3779B97F4A7C15 - (1 << 64)  # 2^64 / golden ratio, as a signed integer
_MIX_1 = 0xBF58476D1CE4E5B9 - (1 << 64)
_MIX_2 = 0x94D049BB133111EB - (1 << 64)


def counter_hash(*counters: Tensor | int) -> Tensor:
    """Hash integers into 64 pseudo-random bits, elementwise; tensors broadcast against each other.

    Args:
        counters: One or more int64 tensors or integers; their order matters.

    Returns:
        An int64 tensor, uniform over all of int64, of the broadcast shape and on the tensors' device.

    Raises:
        ValueError: If there is no counter, or one is not an integer.

    >>> (counter_hash(0, torch.arange(3)) == counter_hash(1, torch.arange(3))).any().item()
    False
    """
    if not counters:
        raise ValueError("Expected at least one counter, but got none.")
    state: Tensor = torch.zeros((), dtype=torch.int64)
    for counter in counters:
        if isinstance(counter, Tensor):
            if counter.dtype != torch.int64:
                raise ValueError(f"Expected counters of dtype torch.int64, but got {counter.dtype}.")
            state = _mix(state.to(counter.device) + _GAMMA + counter)
        elif isinstance(counter, int):
            state = _mix(state + _GAMMA + _signed(counter))
        else:
            raise ValueError(f"Expected counters that are integers, but got {counter!r}.")
    return state


def counter_uniform(*counters: Tensor | int, size: int) -> Tensor:
    """Draw `size` numbers, uniform on [0, 1), for every element of the broadcast counters.

    Args:
        counters: As in :func:`counter_hash`.
        size: How many numbers per element.

    Returns:
        float32 of shape (*broadcast shape, size), multiples of 2^-24.

    >>> index = torch.tensor([5, 6, 7])
    >>> u = counter_uniform(0, 1, index, size=2)
    >>> torch.equal(u[2], counter_uniform(0, 1, torch.tensor([7]), size=2)[0])
    True
    """
    key = counter_hash(*counters).unsqueeze(-1)
    bits = _mix(key + _GAMMA * torch.arange(1, size + 1, device=key.device))
    return _shift(bits, 40).to(torch.float32) * 2.0**-24


def _mix(x: Tensor) -> Tensor:
    x = (x ^ _shift(x, 30)) * _MIX_1
    x = (x ^ _shift(x, 27)) * _MIX_2
    return x ^ _shift(x, 31)


def _shift(x: Tensor, bits: int) -> Tensor:
    """Shift right as if `x` were unsigned: torch's own shift keeps the sign."""
    return (x >> bits) & ((1 << (64 - bits)) - 1)


def _signed(value: int) -> int:
    value &= (1 << 64) - 1
    return value - (1 << 64) if value >= 1 << 63 else value
