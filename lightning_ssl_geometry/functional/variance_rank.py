r"""Ranks of the variance: how many directions share the variance of points, and how much of it the first one has.

The entropy of singular values (:func:`effective_rank`) counts a direction with a hundredth of the variance as a tenth.
Where one direction has nearly all of the variance and the others share the rest alike, it is therefore high, and the
ranks here are near 1. All of them are functions of the eigenvalues :math:`\lambda_k` of the covariance.
"""

__all__ = [
    "VarianceRanks",
    "leading_share",
    "participation_ratio",
    "singular_values_variance_ranks",
    "variance_effective_rank",
]

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings
from lightning_ssl_geometry.functional.spectrum import singular_values


class VarianceRanks(NamedTuple):
    """The values of :func:`participation_ratio`, :func:`variance_effective_rank` and :func:`leading_share`."""

    participation_ratio: Tensor
    effective_rank: Tensor
    leading_share: Tensor


def participation_ratio(h: Tensor, *, center: bool = True) -> Tensor:
    r"""Return the participation ratio of the variance, a float64 scalar from 1 to min(N, D).

    .. math:: \Bigl(\sum_k \lambda_k\Bigr)^2 \Big/ \sum_k \lambda_k^2

    It is K if K directions share the variance equally (Gao et al., A theory of multineuronal dimensionality, dynamics
    and measurement, 2017).

    Args:
        h: (N, D), N samples of D dimensions, or (V, N, D) for V views. The rows of all views are used together.
        center: Subtract the mean row first. Otherwise, the eigenvalues are those of the second moments.

    Raises:
        ValueError: If `h` has another number of axes, or all rows (after centring) are zero up to rounding.

    >>> participation_ratio(torch.diag(torch.tensor([3.0, 3.0, 0.0])), center=False).item()
    2.0
    """
    return _ranks(h, center).participation_ratio


def leading_share(h: Tensor, *, center: bool = True) -> Tensor:
    r"""Return the first direction's share of the variance, a float64 scalar from 1 / min(N, D) to 1.

    .. math:: \max_k \lambda_k \Big/ \sum_k \lambda_k

    Arguments and errors are those of :func:`participation_ratio`.

    >>> leading_share(torch.diag(torch.tensor([3.0, 1.0])), center=False)
    tensor(0.9000, dtype=torch.float64)
    """
    return _ranks(h, center).leading_share


def variance_effective_rank(h: Tensor, *, center: bool = True) -> Tensor:
    r"""Return the exponential of the entropy of the variance, a float64 scalar from 1 to min(N, D).

    .. math:: \exp\Bigl(-\sum_k p_k \log p_k\Bigr), \quad p_k = \lambda_k \Big/ \sum_j \lambda_j

    :func:`effective_rank` takes the entropy of the singular values instead, whose squares are eigenvalues. Arguments
    and errors are those of :func:`participation_ratio`.

    >>> variance_effective_rank(torch.eye(4), center=False).item()
    4.0
    """
    return _ranks(h, center).effective_rank


def singular_values_variance_ranks(sigma: Tensor) -> VarianceRanks:
    """Compute all ranks of the variance from singular values (d,) of centred rows, of which at least one is > 0."""
    variance = (sigma / sigma.max()).square()  # of rows so long or short that their squares leave float64, too
    shares = variance / variance.sum()
    return VarianceRanks(1 / shares.square().sum(), torch.special.entr(shares).sum().exp(), shares.max())


def _ranks(h: Tensor, center: bool) -> VarianceRanks:
    embeddings("N, D", "V, N, D", h=h)
    sigma = singular_values(h, center)
    if not sigma.any():
        raise ValueError(
            "Expected at least one singular value > 0, but all are 0: the rows are all zero, or, if centred, equal."
        )
    return singular_values_variance_ranks(sigma)
