"""Thresholds below which a singular value may be a rounding error, and is therefore treated as 0."""

__all__ = ["moments_floor", "rounding_eps", "rounding_floor"]

import torch
from torch import Tensor

from lightning_ssl_geometry.precision import in_float64

_EPS = torch.finfo(torch.float64).eps


def rounding_eps(dtype: torch.dtype) -> float:
    """Return the machine epsilon of a float dtype; for other dtypes, that of float64."""
    return torch.finfo(dtype).eps if dtype.is_floating_point else _EPS


def rounding_floor(h: Tensor) -> Tensor:
    r"""Return the largest singular value of `h` (N, D) that may be a rounding error, a float64 scalar.

    .. math:: \max\Bigl(\frac{\epsilon}{\sqrt{\min(N, D)}},\; \max(N, D)\, \epsilon_{64}\Bigr) \|H\|_F

    :math:`\epsilon` is the machine epsilon of the dtype of `h`, :math:`\epsilon_{64}` that of float64. The first term
    allows for N x D independent rounding errors of :math:`\epsilon |h| / 2`, the second for those of a decomposition in
    float64. Pass `h` in its original dtype, before its mean is subtracted.

    >>> rounding_floor(torch.ones(4, 4)).item() == 2**-23 * 2
    True
    """
    eps = max(rounding_eps(h.dtype) / max(min(h.shape), 1) ** 0.5, max(h.shape) * _EPS)
    return eps * torch.linalg.vector_norm(in_float64(h))


def moments_floor(rows: Tensor, outer: Tensor, rounding: Tensor) -> Tensor:
    r"""Return the largest eigenvalue of :math:`\frac1N \sum_i h_i h_i^T` that may be a rounding error, in float64.

    .. math:: \frac1N \max\Bigl(\frac{1}{\min(N, D)} \sum_i \epsilon^2 \|h_i\|^2,\;
        (D + 2 \sqrt N)\, \epsilon_{64} \sum_i \|h_i\|^2\Bigr)

    `rows` is N, the number of rows :math:`h_i`, which are not centred. `outer` (D, D) is the sum of :math:`h_i h_i^T`.
    `rounding` is the sum of :math:`\epsilon^2 \|h_i\|^2`, with the machine epsilon of each row's dtype. The first term
    corresponds to the first term of :func:`rounding_floor`. The second term allows for errors of sums in float64. It
    hides singular values below about 1e-7 of the largest singular value.
    """
    dim = len(outer)
    # In tests with equal rows, N up to 200,000, on three kinds of processors, errors were at most half the second term.
    return torch.maximum(rounding / rows.clamp(max=dim), (dim + 2 * rows.sqrt()) * _EPS * outer.trace()) / rows
