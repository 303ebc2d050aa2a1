"""What of a spectrum is rounding and not variance: one rule for functions and for Metrics.

A singular value counts as 0 if rounding alone could have made it: that of the dtype that the rows came in, or that of
the float64 arithmetic by which the spectrum was found.
"""

__all__ = ["moments_floor", "rounding_eps", "rounding_floor"]

import torch
from torch import Tensor

_EPS = torch.finfo(torch.float64).eps


def rounding_eps(dtype: torch.dtype) -> float:
    """Relative distance of two neighbouring numbers of a dtype; that of float64 for dtypes that are exact.

    >>> rounding_eps(torch.float32) == 2**-23
    True
    """
    return torch.finfo(dtype).eps if dtype.is_floating_point else _EPS


def rounding_floor(h: Tensor) -> Tensor:
    r"""Largest singular value that rounding may leave where there should be none.

    .. math:: \max\Bigl(\frac{\epsilon}{\sqrt{\min(N, D)}},\; \max(N, D)\, \epsilon_{64}\Bigr) \|H\|_F

    N x D independent errors of half of :math:`\epsilon` |h| have no singular value above the first; the second is what
    a decomposition in float64 loses. The rows are those before a mean is subtracted, which takes no rounding away.

    Args:
        h: (N, D), in the dtype that it was computed in.

    Returns:
        A float64 scalar.

    >>> rounding_floor(torch.ones(4, 4)).item() == 2**-23 * 2
    True
    """
    eps = max(rounding_eps(h.dtype) / max(min(h.shape), 1) ** 0.5, max(h.shape) * _EPS)
    return eps * torch.linalg.vector_norm(h.double())


def moments_floor(rows: Tensor, outer: Tensor, rounding: Tensor) -> Tensor:
    r"""The square of :func:`rounding_floor`, over N, for a spectrum that comes from second moments.

    .. math:: \frac1N \max\Bigl(\frac{1}{\min(N, D)} \sum_i \epsilon^2 \|h_i\|^2,\;
        (D + 2 \sqrt N)\, \epsilon_{64} \sum_i \|h_i\|^2\Bigr)

    Moments square the rows, so float64 resolves singular values down to about 1e-7 of the largest. Sums of N terms in
    blocks err by about :math:`\sqrt N \epsilon_{64}`: at most by half of the second term, measured on equal rows, for
    N up to 200,000 on three kinds of processors.

    Args:
        rows: N, a scalar >= 1.
        outer: (D, D), the sum of h h^T, before a mean is subtracted.
        rounding: The sum of eps^2 |h|^2 with eps that of each row's dtype, a scalar.

    Returns:
        A float64 scalar: an eigenvalue of the moments over N up to this is rounding.

    >>> moments_floor(torch.tensor(4.0), torch.eye(2), torch.tensor(0.0)).item() == 6 * 2**-52 * 2 / 4
    True
    """
    dim = len(outer)
    return torch.maximum(rounding / rows.clamp(max=dim), (dim + 2 * rows.sqrt()) * _EPS * outer.trace()) / rows
