"""The modality gap between the embeddings of two towers.

Liang et al., Mind the Gap: Understanding the Modality Gap in Multi-modal Contrastive Representation Learning (2022).
"""

__all__ = ["modality_gap", "modality_gap_by_chance", "modality_gap_share"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, rows, shaped
from lightning_ssl_geometry.functional.unit_rows import unit_rows
from lightning_ssl_geometry.precision import in_float64


def modality_gap(z1: Tensor, z2: Tensor, *, normalize: bool = True) -> Tensor:
    r"""Return the distance between the centroids of two towers' embeddings (Liang et al. 2022).

    .. math:: \Big\| \frac1N \sum_i z^{(1)}_i - \frac1N \sum_i z^{(2)}_i \Big\|_2

    The result is a float64 scalar, 0 for equal centroids and at most 2 for unit rows.

    Args:
        z1: (N, P), embeddings of tower 1, N >= 1.
        z2: (N, P), embeddings of tower 2.
        normalize: Project the rows onto the unit sphere first, as the paper does. A row of zeros stays a row of zeros.

    >>> modality_gap(torch.tensor([[1.0, 0.0]]), torch.tensor([[-1.0, 0.0]])).item()
    2.0
    """
    embeddings("N, P", z1=z1, z2=z2)
    z1, z2 = _paired(z1, z2, normalize)
    return torch.linalg.vector_norm((z1 - z2).mean(0))


def modality_gap_by_chance(z1: Tensor, z2: Tensor, *, normalize: bool = True) -> Tensor:
    r"""Return the gap that N pairs have by chance: :func:`modality_gap` if a coin swaps the two rows of each pair.

    .. math:: \frac1N \Big( \sum_i \big\| z^{(1)}_i - z^{(2)}_i \big\|_2^2 \Big)^{1/2}

    This is the root of the mean square over all 2^N swaps, which make the two towers alike. The result is a float64
    scalar, at most 2 / sqrt(N) for unit rows. The arguments are those of :func:`modality_gap`.
    """
    embeddings("N, P", z1=z1, z2=z2)
    z1, z2 = _paired(z1, z2, normalize)
    return torch.linalg.vector_norm(z1 - z2) / len(z1)


def modality_gap_share(z1: Tensor, z2: Tensor, *, normalize: bool = True) -> Tensor:
    r"""Return the share of the variance of both towers' embeddings that lies between the two centroids.

    .. math:: \frac{\frac14 \| \mu_1 - \mu_2 \|_2^2}{\frac1{2N} \sum_{v,i} \| z^{(v)}_i - \mu \|_2^2}, \quad
        \mu = \frac12 (\mu_1 + \mu_2)

    :math:`\mu_v` is the centroid of tower v. The result is a float64 scalar in [0, 1]. It is 0 for equal centroids, 1
    if each tower is one point, and NaN if all rows are equal. The arguments are those of :func:`modality_gap`.
    """
    embeddings("N, P", z1=z1, z2=z2)
    z1, z2 = _paired(z1, z2, normalize)
    both = torch.cat([z1, z2])
    return (z1 - z2).mean(0).square().sum() / 4 / (both - both.mean(0)).square().sum(1).mean()


def _paired(z1: Tensor, z2: Tensor, normalize: bool) -> tuple[Tensor, Tensor]:
    shaped("N, P", z1=z1, z2=z2)
    rows(1, z1=z1)
    z1, z2 = in_float64(z1), in_float64(z2)
    return unit_rows(z1, z2, eps=0) if normalize else (z1, z2)  # a row of zeros stays so
