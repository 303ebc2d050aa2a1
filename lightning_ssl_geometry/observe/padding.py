"""What Lightning's sampler shows twice where a set does not divide by the processes."""

__all__ = ["without_repeats"]

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import DistributedSampler

_OF_VIEWS = ("h", "z", "fibers", "latent")
_OF_NO_SAMPLE = ("content", "temperature")


def without_repeats(
    observation: Mapping[str, Any], loaders: Any, batch_idx: int, dataloader_idx: int = 0
) -> dict[str, Any] | None:
    """Cut off the samples that a DistributedSampler repeats to give every process as many.

    Args:
        observation: With `h` or `z`, (V, N, ...); other tensors, and each of `views`, have N rows.
        loaders: The loader of the batch, or a list of them.
        batch_idx: Number of batches of this loader before.
        dataloader_idx: Place in the list.

    Returns:
        The observation of the rest; None if all its samples are repeats.

    Raises:
        ValueError: If the set has fewer samples than there are processes: one would see nothing.

    >>> without_repeats({"h": 5}, [[1, 2]], 0)
    {'h': 5}
    """
    loader = loaders[dataloader_idx] if isinstance(loaders, Sequence) else loaders
    sampler = getattr(loader, "sampler", None)
    if type(sampler) is not DistributedSampler or sampler.drop_last or loader.batch_size is None:
        return dict(observation)
    size = len(sampler.dataset)  # type: ignore[arg-type]
    if size < sampler.num_replicas:
        raise ValueError(f"Expected a set with a sample for each of {sampler.num_replicas} processes, but got {size}.")
    left = len(range(sampler.rank, size, sampler.num_replicas)) - batch_idx * loader.batch_size
    return {name: _cut(name, value, left) for name, value in observation.items()} if left > 0 else None


def _cut(name: str, value: Any, rows: int) -> Any:
    if name == "views":
        return tuple(view[:rows] for view in value)
    if not isinstance(value, Tensor) or value.ndim == 0 or name in _OF_NO_SAMPLE:
        return value
    return value[:, :rows] if name in _OF_VIEWS else value[:rows]
