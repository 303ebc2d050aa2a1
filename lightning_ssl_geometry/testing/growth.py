"""Measure how work and memory grow with the size of the data, by counts that are the same on every machine.

Work is counted in operations of torch, not in seconds. A product of matrices, a convolution and the like count their
multiplications, by :mod:`torch.utils.flop_counter`. A decomposition of a matrix (m, n) counts m n min(m, n). Any other
operation counts the elements of its largest tensor, a sort too, so that logarithms are left out. A view counts nothing.
What numpy, scipy or scikit-learn compute is not seen.
"""

__all__ = ["MULTIPLES", "Growth", "WorkCounter", "bytes_held", "degree", "held_tensors", "measured"]

import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import combinations
from typing import Any

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves
from torch.utils.flop_counter import flop_registry
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics import SampledRows
from lightning_ssl_geometry.diagnostics.accumulate import ComparedRows
from lightning_ssl_geometry.testing.observation import Sampled

MULTIPLES = (1, 2, 3, 4)
"""The multiples of a size at which work and memory are measured."""
_SIZES = {"n": 24, "N": 96, "D": 8}
_MARGIN = 0.03  # the largest relative difference between the counts and their polynomial
_HIGHEST = 5
_DECOMPOSITIONS = ("cholesky", "eig", "inv", "lstsq", "lu", "matrix_exp", "pinv", "qr", "solve", "svd", "slogdet")
_FREE = ("alias", "detach", "empty", "is_", "lift_fresh", "sym_", "_local_scalar", "_shape", "_version", "_nested")
_NOT_STATE = ("_defaults", "_computed", "_cache", "_forward_cache")


@dataclass(frozen=True)
class Growth:
    """The work and the bytes of memory of a diagnostic at several sizes.

    Attributes:
        sizes: Maps the letters that change together, such as "N" or "nND", to the sizes {letter: size} in their order.
        update: Maps such letters to the work of an update at each of these sizes.
        compute: Maps them to the work of `compute`.
        memory: Maps them to the bytes of memory between an update and `reset`.
    """

    sizes: Mapping[str, Sequence[Mapping[str, int]]]
    update: Mapping[str, Sequence[int]]
    compute: Mapping[str, Sequence[int]]
    memory: Mapping[str, Sequence[int]]


def measured(make: Callable[[], Metric], sized: Callable[[int, int], Sampled], *, widths: bool) -> Growth:
    """Measure work and memory at multiples of 24 samples of an update, N = 96 samples before it and D = 8 dimensions.

    Each letter is changed alone, and all are changed together. A diagnostic that compares readouts is measured at the
    second one. A limit of the number of samples that are kept is lifted.

    Args:
        make: Makes an empty Metric.
        sized: Makes an observation of N samples with D dimensions from (N, D).
        widths: Whether the width of such an observation is D. Otherwise, D is not changed.
    """

    @cache
    def at(n: int, samples: int, width: int) -> tuple[int, int, int]:
        return _counted(make(), sized(samples + n, width), n)

    changed = {"n": "n", "N": "N"} | ({"D": "D", "nND": "nND"} if widths else {"nN": "nN"})
    sizes = {
        key: [{name: size * (k if name in letters else 1) for name, size in _SIZES.items()} for k in MULTIPLES]
        for key, letters in changed.items()
    }
    found = {key: [at(*each.values()) for each in steps] for key, steps in sizes.items()}
    return Growth(sizes, *({key: [each[k] for each in steps] for key, steps in found.items()} for k in range(3)))


class WorkCounter(TorchDispatchMode):
    """Context manager that counts the work of the torch operations inside, also of backward passes.

    Attributes:
        work: The number of operations so far, as the module says.
    """

    def __init__(self) -> None:
        super().__init__()
        self.work = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        found = func(*args, **(kwargs or {}))
        self.work += _work(func, args, kwargs or {}, out=found)
        return found


def bytes_held(metric: Metric) -> int:
    """Return the bytes of memory of all tensors that a Metric keeps, without results and without observed networks."""
    held = {name: value for name, value in vars(metric).items() if name not in _NOT_STATE}
    storages = {each.untyped_storage().data_ptr(): each.untyped_storage().nbytes() for each in held_tensors(held)}
    return sum(storages.values())


def held_tensors(value: Any) -> Iterable[Tensor]:
    """Return the tensors in a value, also those in mappings, lists and tuples."""
    if isinstance(value, Tensor):
        yield value
    elif isinstance(value, Mapping):
        for each in value.values():
            yield from held_tensors(each)
    elif isinstance(value, list | tuple):
        for each in value:
            yield from held_tensors(each)


def degree(counts: Sequence[float], multiples: Sequence[int] = MULTIPLES) -> int | None:
    """Return the least degree of a polynomial with coefficients >= 0 that meets the counts to within 3%.

    `counts` are the work or the bytes at `multiples` of a size. If no polynomial of degree 5 or less meets them, return
    None. A term that is less than about a tenth of the largest count is not seen.

    >>> degree([3 * x**2 + 50 * x + 7 for x in (1, 2, 3, 4)])
    2
    """
    wanted = torch.tensor(counts, dtype=torch.float64)
    if not wanted.any():
        return 0
    powers = torch.tensor(multiples, dtype=torch.float64)[:, None] ** torch.arange(_HIGHEST + 1)
    powers = powers / wanted.clamp(min=1)[:, None]  # relative differences
    for highest in range(_HIGHEST + 1):
        for number in range(min(highest + 1, len(multiples))):
            for lower in combinations(range(highest), number):
                if _meets(powers[:, [*lower, highest]], wanted / wanted.clamp(min=1)):
                    return highest
    return None


def _counted(metric: Metric, sampled: Sampled, n: int) -> tuple[int, int, int]:
    """Return the work of an update with the last n samples and of `compute` before it, and the bytes between both."""
    if isinstance(metric, SampledRows):
        metric.contrast_size = max(metric.contrast_size, sampled.count)
    order, updating, computing = torch.arange(sampled.count), WorkCounter(), WorkCounter()
    first, last = (sampled.rows(part) for part in (order[:-n], order[-n:]))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        metric.update(**first)
        if isinstance(metric, ComparedRows):
            metric.compute()
            metric.reset()
            metric.update(**first)
        with computing:
            metric.compute()
        held = bytes_held(metric)
        with updating:
            metric.update(**last)
    return updating.work, computing.work, held


def _meets(powers: Tensor, wanted: Tensor) -> bool:
    coefficients = torch.linalg.lstsq(powers, wanted[:, None]).solution
    difference = (powers @ coefficients)[:, 0] - wanted
    return bool((coefficients >= 0).all()) and bool(difference.abs().max() <= _MARGIN)


def _work(func: Any, args: Any, kwargs: Any, *, out: Any) -> int:
    name = func._schema.name.removeprefix("aten::")
    if (count := flop_registry.get(func.overloadpacket)) is not None:
        return int(count(*args, **kwargs, out_val=out))
    tensors = [each for each in tree_leaves((args, kwargs, out)) if isinstance(each, Tensor)]
    if func.is_view or name.startswith(_FREE) or not tensors:
        return 0
    first = tensors[0]
    if first.ndim >= 2 and any(each in name for each in _DECOMPOSITIONS):
        return first.numel() * min(first.shape[-2:])
    if name == "trace":
        return min(first.shape)
    if name in ("_cdist_forward", "_pdist_forward"):
        return int(out.numel()) * first.shape[-1]
    return max(each.numel() for each in tensors)
