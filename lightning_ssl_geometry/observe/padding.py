"""Remove the samples that a DistributedSampler repeats to give every process the same number of samples."""

__all__ = ["without_repeats"]

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor
from torch.utils.data import DistributedSampler

from lightning_ssl_geometry.types import SAMPLE_AXIS


def without_repeats(
    observation: Mapping[str, Any], loaders: Any, batch_idx: int, dataloader_idx: int = 0
) -> dict[str, Any] | None:
    """Remove the samples that a DistributedSampler repeats. Returns None if no sample is left.

    Tensors with a known sample axis, such as h, z and label, are cut along this axis. Other tensors are cut if their
    shape begins with (V, N) or (N,), for V views of N samples. `loaders` is the loader of the batch, or a list with
    this loader at the position `dataloader_idx`.

    Raises:
        ValueError: If there are fewer samples than processes, or if V = N makes the sample axis of a tensor ambiguous.
    """
    loader = loaders[dataloader_idx] if isinstance(loaders, Sequence) else loaders
    sampler = getattr(loader, "sampler", None)
    if type(sampler) is not DistributedSampler or sampler.drop_last or loader.batch_size is None:
        return dict(observation)
    size = len(sampler.dataset)  # type: ignore[arg-type]
    if size < sampler.num_replicas:
        raise ValueError(f"Expected a set with a sample for each of {sampler.num_replicas} processes, but got {size}.")
    left = len(range(sampler.rank, size, sampler.num_replicas)) - batch_idx * loader.batch_size
    if left <= 0:
        return None
    views, n = _sizes(observation)
    if n is not None and left >= n:
        return dict(observation)
    return {name: _cut(value, _axis(name, value, views=views, n=n), left) for name, value in observation.items()}


def _sizes(observation: Mapping[str, Any]) -> tuple[int | None, int | None]:
    known = [(SAMPLE_AXIS[name], value) for name, value in observation.items() if name in SAMPLE_AXIS]
    shapes = [(axis, value.shape) for axis, value in known if isinstance(value, Tensor) and value.ndim > (axis or 0)]
    of_views = next((shape for axis, shape in shapes if axis == 1), (None, None))
    return of_views[0], next((shape[axis] for axis, shape in shapes if axis is not None), None)


def _axis(name: str, value: Any, views: int | None, n: int | None) -> int | None:
    if name in SAMPLE_AXIS or not isinstance(value, Tensor):
        return SAMPLE_AXIS.get(name)
    of_views, of_samples = tuple(value.shape[:2]) == (views, n), value.ndim > 0 and len(value) == n
    if of_views and of_samples:
        raise ValueError(
            f"Expected {name!r} to show which of its axes is the samples', but got shape {tuple(value.shape)} of "
            f"{views} views and {n} samples. Leave it out of what the step returns, or of `taps` and `batch_keys`."
        )
    return 1 if of_views else 0 if of_samples else None


def _cut(value: Any, axis: int | None, rows: int) -> Any:
    if axis is None:
        return value
    if isinstance(value, tuple | list) and all(isinstance(each, Tensor) for each in value):
        return tuple(_cut(each, axis, rows) for each in value)
    if isinstance(value, Mapping):
        return {name: _cut(each, axis, rows) for name, each in value.items()}
    if not isinstance(value, Tensor) or value.ndim <= axis:
        return value
    return value[:, :rows] if axis else value[:rows]
