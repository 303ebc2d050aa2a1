"""Mean and standard deviation of a training set."""

__all__ = ["moments"]

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

_CHUNK = 1 << 24  # values that are looked at together


def moments(
    image: Tensor, rows: Tensor, recolour: Callable[[Tensor], Tensor], around: int = 0
) -> tuple[Tensor, Tensor]:
    """Return the mean and the standard deviation of each channel of images or signals, or of each feature of vectors.

    A channel of a signal or a feature with one value has the standard deviation 1, as in scikit-learn's StandardScaler.

    Args:
        image: (M, C, ...), samples: uint8, counted in [0, 1], or float32.
        rows: (N,) int64, positions of the training samples among the M samples.
        recolour: Applied to a chunk of the samples first.
        around: Number of black pixels beside each image that belong to it.

    Returns:
        mean (C,) and std (C,), float32. They are computed in float64.

    Raises:
        ValueError: If a channel of the images has only one value, or if all features or channels have.
    """
    chunks = rows.split(max(1, _CHUNK // max(1, image[0].numel())))
    if image.dtype == torch.uint8:
        return _of_bytes((recolour(image.index_select(0, chunk)) for chunk in chunks), around * len(rows))
    return _of_floats(lambda: (recolour(image.index_select(0, chunk)).double() for chunk in chunks))


def _of_bytes(chunks: Iterator[Tensor], black: int) -> tuple[Tensor, Tensor]:
    value = torch.arange(256, dtype=torch.float64) / 255
    counts: Tensor = torch.zeros((), dtype=torch.float64)
    for chunk in chunks:
        counts = counts + torch.stack([plane.flatten().bincount(minlength=256) for plane in chunk.unbind(1)])
    counts[:, 0] += black
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ value
    variance = (share * (value - mean[:, None]).square()).sum(1)
    if not variance.all():
        raise ValueError("Expected training images that differ, but every pixel of a channel has one value.")
    return mean.float(), variance.sqrt().float()


def _of_floats(chunks: Callable[[], Iterator[Tensor]]) -> tuple[Tensor, Tensor]:
    zero = torch.zeros((), dtype=torch.float64)
    count, total, square, low, high = 0, zero, zero, zero + torch.inf, zero - torch.inf
    for chunk in (_rows(chunk) for chunk in chunks()):
        count, total = count + len(chunk), total + chunk.sum(0)
        low, high = torch.minimum(low, chunk.amin(0)), torch.maximum(high, chunk.amax(0))
    mean = total / count
    for chunk in chunks():
        square = square + (_rows(chunk) - mean).square().sum(0)
    constant = low == high  # a sum that rounds would leave a tiny deviation
    images = chunk.ndim == 4
    if constant.all() or (images and constant.any()):
        what = "every pixel of a channel" if images else "each feature or channel"
        raise ValueError(f"Expected training samples that differ, but {what} has one value.")
    return mean.float(), torch.where(constant, 1.0, (square / count).sqrt()).float()


def _rows(chunk: Tensor) -> Tensor:  # (values, C)
    return chunk.transpose(1, -1).flatten(0, -2)
