"""Match outputs with latents: the mean correlation coefficient (MCC) under the best assignment.

Hyvarinen & Morioka, Unsupervised Feature Extraction by Time-Contrastive Learning and Nonlinear ICA (2016), in the form
of Zimmermann et al., Contrastive Learning Inverts the Data Generating Process (2021).
"""

__all__ = ["best_match", "mean_correlation", "moments_correlation"]

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, finite, shaped
from lightning_ssl_geometry.functional.latent_r2 import check_moments, row_moments


def mean_correlation(z: Tensor, latent: Tensor) -> Tensor:
    r"""Compute the mean absolute correlation of latents with outputs, after the best one-to-one assignment.

    .. math:: \max_\pi \frac{1}{\min(P, d)} \sum_k |\operatorname{corr}(z_{\pi(k)}, s_k)|

    If P < d, the mean is over the P latents that have an output. The result is a float64 scalar from 0 to 1. It is 1 if
    outputs are latents up to order, sign, scale and shift. A value that is not finite raises a ValueError.

    Args:
        z: (N, P) embeddings, the outputs, N >= 1.
        latent: (N, d) true latents s.
    """
    embeddings("N, d", z=z, latent=latent)
    shaped("N, P", z=z)
    shaped("N, d", {"N": len(z)}, latent=latent)
    correlation = moments_correlation(row_moments(z, latent), z.shape[1])
    outputs, latents = best_match(correlation)
    return correlation[outputs, latents].mean()


def moments_correlation(moments: Tensor, dim: int, *, eps: float = 1e-6) -> Tensor:
    """Compute the absolute Pearson correlations of outputs with latents, (P, d) in float64, from second moments.

    `moments` are :func:`~lightning_ssl_geometry.functional.latent_r2.row_moments` of outputs and latents, and `dim` is
    P. An output or latent counts as constant if its standard deviation is below `eps` times its root mean square. Its
    correlations are then 0. A ValueError is raised if a moment is not finite, or if there are no rows.
    """
    check_moments(dim, moments=moments)
    mean = moments[0, 1:] / moments[0, 0]
    second = moments[1:, 1:] / moments[0, 0]
    covariance = second - torch.outer(mean, mean)
    variance = covariance.diagonal()
    scale = torch.where(variance > eps**2 * second.diagonal(), variance.clamp(min=0).rsqrt(), 0.0)
    return (covariance * scale * scale[:, None])[:dim, dim:].abs().clamp(max=1)  # rounding may give 1 + 1e-16


def best_match(correlation: Tensor) -> tuple[Tensor, Tensor]:
    """Assign outputs to latents one to one, with the largest sum of `correlation` (P, d) over the pairs.

    The results are two int64 tensors (min(P, d),): the matched outputs, ascending, and the latent of each.

    >>> best_match(torch.tensor([[0.9, 0.8], [0.7, 0.1]]))
    (tensor([0, 1]), tensor([1, 0]))
    """
    shaped("P, d", correlation=correlation)
    finite(correlation=correlation)
    outputs, latents = linear_sum_assignment(correlation.numpy(force=True), maximize=True)
    return torch.from_numpy(outputs).to(correlation.device), torch.from_numpy(latents).to(correlation.device)
