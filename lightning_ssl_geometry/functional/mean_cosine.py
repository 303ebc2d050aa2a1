"""The mean cosine between different samples, which is 1 if a representation has collapsed to one direction."""

__all__ = ["class_mean_cosine", "mean_cosine", "sums_mean_cosine"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import class_numbers, embeddings, rows, shaped
from lightning_ssl_geometry.precision import unit_directions


def mean_cosine(h: Tensor) -> Tensor:
    r"""Return the mean cosine between different rows, a float64 scalar from -1 / (N - 1) to 1.

    .. math:: \frac1{N(N-1)} \sum_{i \ne j} \cos(h_i, h_j)

    It is 1 if all rows point in one direction, and about 0 if they spread over all directions. Ethayarajh (2019) calls
    it anisotropy. A row of zeros has the cosine 0 with all rows. Cost: O(N D).

    Args:
        h: (N, D), N >= 2.

    >>> round(mean_cosine(torch.tensor([[1.0, 0.0], [2.0, 0.0], [0.0, 1.0]])).item(), 3)
    0.333
    """
    embeddings("N, D", h=h)
    shaped("N, D", h=h)
    rows(2, h=h)
    unit = unit_directions(h)
    return sums_mean_cosine(unit.sum(0), unit.square().sum(), torch.tensor(len(h)))


def class_mean_cosine(h: Tensor, label: Tensor) -> Tensor:
    r"""Return the mean cosine between different rows of each class, (C,) in float64, in the order of the labels.

    .. math:: \frac1{N_c (N_c - 1)} \sum_{i \ne j, \; y_i = y_j = c} \cos(h_i, h_j)

    It is 1 for a class whose rows all point in one direction, and NaN for a class with one row. Cost: O(N D + C D).

    Args:
        h: (N, D), N >= 2.
        label: (N,), integers.

    >>> class_mean_cosine(torch.eye(2)[[0, 0, 0, 1]], torch.tensor([4, 4, 7, 7])).tolist()
    [1.0, 0.0]
    """
    embeddings("N, D", h=h)
    shaped("N, D", h=h)
    rows(2, h=h)
    label = class_numbers("label", label)
    shaped("N,", {"N": len(h)}, label=label)
    unit = unit_directions(h)
    found, which = label.to(unit.device).unique(return_inverse=True)
    total = unit.new_zeros(len(found), h.shape[1]).index_add_(0, which, unit)
    square = unit.new_zeros(len(found)).index_add_(0, which, unit.square().sum(1))
    return sums_mean_cosine(total, square, which.bincount(minlength=len(found)))


def sums_mean_cosine(total: Tensor, square: Tensor, count: Tensor) -> Tensor:
    r"""Return the mean cosine from sums over samples: :math:`(\|\sum_i u_i\|^2 - \sum_i \|u_i\|^2) / (N(N-1))`.

    Args:
        total: (..., D), the sum of u_i, the unit row of sample i, or the mean of the unit rows of its views.
        square: (...), the sum of ||u_i||^2.
        count: (...), N. For N < 2 the result is NaN.
    """
    pairs = (count * (count - 1)).to(total)
    mean = (total.square().sum(-1) - square) / pairs.where(pairs > 0, torch.nan)
    return mean.clamp(-1, 1)  # rounding may give 1 + 1e-15
