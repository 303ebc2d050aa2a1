r"""LiDAR: the number of directions in which samples differ more than the views of one sample do.

Thilak et al., LiDAR: Sensing Linear Probing Performance in Joint Embedding SSL Architectures (2023). LiDAR is linear
discriminant analysis in which each of the n samples is a class, and its q views are the members. With :math:`\mu_i` the
mean of the views of sample i and :math:`\mu` the mean of all :math:`\mu_i`,

.. math::
    \Sigma_b = \frac1n \sum_i (\mu_i - \mu)(\mu_i - \mu)^T, \quad
    \Sigma_w = \frac1{nq} \sum_{i,v} (h_{vi} - \mu_i)(h_{vi} - \mu_i)^T + \delta I
"""

__all__ = ["lidar", "scatter_lidar"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, positive, shaped
from lightning_ssl_geometry.functional.rounding import rounding_floor
from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank
from lightning_ssl_geometry.precision import in_float64


def lidar(h: Tensor, *, delta: float = 1e-4, eps: float = 1e-8) -> Tensor:
    r"""Return the effective rank of the covariance between samples, whitened by the covariance within samples.

    .. math:: \exp\Bigl(-\sum_k p_k \log p_k\Bigr), \quad p_k = \frac{\lambda_k}{\|\lambda\|_1} + \epsilon, \quad
        \lambda = \mathrm{eig}\bigl(\Sigma_w^{-1/2} \Sigma_b \Sigma_w^{-1/2}\bigr)

    Eq. 1-4 of Thilak et al. 2023, in O(q N D^2 + D^3) time. :math:`\Sigma_b` is the covariance of the means of the
    samples' views. :math:`\Sigma_w` is the covariance of the views around these means, plus delta I. The paper gives no
    value of delta. The result is a float64 scalar from 1 (samples differ in one direction) to min(N - 1, D). It depends
    on the scale of h, unless the variance within a sample is far above delta.

    Compare only results with equal q, N and D. A direction in which samples do not differ still has lambda of about
    1/q. Both covariances are noisy unless N is far above D.

    Args:
        h: (q, N, D), q >= 2 independent views of each of N >= 2 samples. Any float dtype; computed in float64.
        delta: Added to the variance within samples, > 0.
        eps: Avoids log(0), with a bias of about D * eps * log(1 / eps).

    Raises:
        ValueError: If `h` has another shape, `delta` is not > 0, or the means of all samples are equal up to rounding.

    >>> f"{lidar(torch.eye(4).repeat(2, 1, 1)):.3f}"  # the mean takes one of four directions
    '3.000'
    """
    embeddings("q, N, D", h=h)
    if h.ndim != 3 or h.shape[0] < 2 or h.shape[1] < 2:
        raise ValueError(f"Expected `h` of shape (q, N, D) with q >= 2 and N >= 2, but got {tuple(h.shape)}.")
    floor, h = rounding_floor(h.flatten(0, 1)), in_float64(h)  # float32 would be 2-3% off
    mean = h.mean(0)  # (N, D)
    within = (h - mean).flatten(0, 1)
    between = mean - mean.mean(0)
    between = between.where(between.norm() > floor, 0)
    covariances = between.T @ between / len(mean), within.T @ within / len(within)
    return scatter_lidar(*covariances, delta=delta, eps=eps, floor=floor.square() / len(mean))


def scatter_lidar(
    between: Tensor, within: Tensor, *, delta: float = 1e-4, eps: float = 1e-8, floor: Tensor | float = 0.0
) -> Tensor:
    """Compute :func:`lidar` from two covariances (D, D): `between` samples, and `within` samples without delta.

    Eigenvalues that may be rounding errors are set to 0, because a division by `delta` could make them large. In both
    matrices, these are eigenvalues up to D times the float64 epsilon times the largest eigenvalue. In `between`,
    eigenvalues up to `floor` are set to 0, too. `between` must not be 0.
    """
    shaped("D, E", between=between)
    shaped("D, D", {"D": len(between)}, between=between, within=within)
    positive(delta=delta)
    if not between.any():
        raise ValueError("Expected samples with different means, but all means are equal.")
    variance, basis = _principal(in_float64(within), 0.0)
    spread, axes = _principal(in_float64(between), floor)
    # A symmetric matrix with the spectrum of the equation: Sigma_b^(1/2) Sigma_w^-1 Sigma_b^(1/2)
    half = (basis.T @ axes) * spread.sqrt() / (variance + delta).sqrt()[:, None]
    eigenvalues = torch.linalg.eigvalsh(half.T @ half).clamp(min=0)  # rounding may give -1e-17
    return singular_values_effective_rank(eigenvalues, eps=eps)


def _principal(covariance: Tensor, floor: Tensor | float) -> tuple[Tensor, Tensor]:
    variance, axes = torch.linalg.eigh(covariance)
    lost = len(variance) * torch.finfo(variance.dtype).eps * variance[-1]
    return variance.where((variance > lost) & (variance > floor), 0), axes
