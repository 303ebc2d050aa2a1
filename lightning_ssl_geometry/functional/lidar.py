r"""LiDAR: the number of directions in which samples differ more than the views of one sample do.

Thilak et al., LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures (2023). LiDAR is linear
discriminant analysis in which the q views of each of n samples are a class. With :math:`\mu_i` the mean of the views of
sample i and :math:`\mu` the mean of these means,

.. math::
    \Sigma_b = \frac1n \sum_i (\mu_i - \mu)(\mu_i - \mu)^T, \quad
    \Sigma_w = \frac1{nq} \sum_{i,v} (h_{vi} - \mu_i)(h_{vi} - \mu_i)^T + \delta I
"""

__all__ = ["lidar", "scatter_lidar"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import positive, shaped
from lightning_ssl_geometry.functional.rounding import rounding_floor
from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank


def lidar(h: Tensor, *, delta: float = 1e-4, eps: float = 1e-8) -> Tensor:
    r"""Return the effective rank of the covariance between samples, whitened by the covariance within samples.

    .. math:: \exp\Bigl(-\sum_k p_k \log p_k\Bigr), \quad p_k = \frac{\lambda_k}{\|\lambda\|_1} + \epsilon, \quad
        \lambda = \mathrm{eig}\bigl(\Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2}\bigr)

    Eq. 1-4 of Thilak et al., in O(q N D^2 + D^3) time. The result is a float64 scalar from 1 (samples differ in one
    direction) to min(N - 1, D). The covariances divide by n = N and nq; other denominators would only scale lambda,
    apart from delta. The paper gives no value of delta. Since delta is not relative to h, the result depends on the
    scale of h unless the variance within a sample is far above delta. Compare only results with equal q, N and D:
    directions without any difference between samples have lambda of about 1/q, and both covariances are noisy unless N
    is far above D.

    Args:
        h: (q, N, D), where h[:, i] are q >= 2 views of sample i, drawn independently (consecutive rows of a queue are
            not), and N >= 2. Any float dtype; computed in float64, since float32 is 2-3% off.
        delta: Added to the variance within, > 0.
        eps: Avoids log(0), with a bias of about D * eps * log(1 / eps).

    Raises:
        ValueError: If `h` has another shape, `delta` is not > 0, or the means of all samples are equal up to rounding.

    >>> f"{lidar(torch.eye(4).repeat(2, 1, 1)):.3f}"  # the mean takes one of four directions
    '3.000'
    """
    if h.ndim != 3 or h.shape[0] < 2 or h.shape[1] < 2:
        raise ValueError(f"Expected `h` of shape (q, N, D) with q >= 2 and N >= 2, but got {tuple(h.shape)}.")
    floor, h = rounding_floor(h.flatten(0, 1)), h.double()
    mean = h.mean(0)  # (N, D)
    within = (h - mean).flatten(0, 1)
    between = mean - mean.mean(0)
    between = between.where(between.norm() > floor, 0)
    covariances = between.T @ between / len(mean), within.T @ within / len(within)
    return scatter_lidar(*covariances, delta=delta, eps=eps, floor=floor.square() / len(mean))


def scatter_lidar(
    between: Tensor, within: Tensor, *, delta: float = 1e-4, eps: float = 1e-8, floor: Tensor | float = 0.0
) -> Tensor:
    r"""Compute :func:`lidar` from the covariances between and within samples.

    The eigenvalues are those of :math:`\Sigma_b^{1/2} \Sigma_w^{-1} \Sigma_b^{1/2}`, a symmetric matrix with the same
    spectrum. Eigenvalues of either covariance that may be rounding errors are set to 0, since a division by `delta`
    could make them large.

    Args:
        between: Sigma_b (D, D), with an entry other than 0.
        within: Sigma_w (D, D), without delta.
        delta: Added to the variance within, > 0.
        eps: Avoids log(0).
        floor: Eigenvalues of `between` up to this are set to 0. Eigenvalues up to D times the float64 epsilon times the
            largest are always set to 0.
    """
    shaped("D, E", between=between)
    shaped("D, D", {"D": len(between)}, between=between, within=within)
    positive(delta=delta)
    if not between.any():
        raise ValueError("Expected samples with different means, but all means are equal.")
    variance, basis = _principal(within.double(), 0.0)
    spread, axes = _principal(between.double(), floor)
    half = (basis.T @ axes) * spread.sqrt() / (variance + delta).sqrt()[:, None]
    eigenvalues = torch.linalg.eigvalsh(half.T @ half).clamp(min=0)  # rounding may give -1e-17
    return singular_values_effective_rank(eigenvalues, eps=eps)


def _principal(covariance: Tensor, floor: Tensor | float) -> tuple[Tensor, Tensor]:
    variance, axes = torch.linalg.eigh(covariance)
    lost = len(variance) * torch.finfo(variance.dtype).eps * variance[-1]
    return variance.where((variance > lost) & (variance > floor), 0), axes
