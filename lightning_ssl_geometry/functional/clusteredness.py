"""Clusters in embeddings: agreement with k-means, silhouette, and the uniformity of points without clusters.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025). Fig. 5 and 6 show that a network keeps the clusters of its input, while the loss without a network
spreads the points uniformly. The paper gives no numbers for this; the functions here do.
"""

__all__ = ["ClusterScores", "clusteredness", "kmeans", "silhouette", "uniform_uniformity"]

import warnings
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from lightning_ssl_geometry.checks import at_least, embeddings, finite, floating, inside, shaped
from lightning_ssl_geometry.precision import float64_device, in_float64

_LONGEST = 1e6  # the series of `uniform_uniformity` has about 2 t terms


class ClusterScores(NamedTuple):
    """How clustered the embeddings are, as float64 scalars.

    Attributes:
        nmi: Agreement of the given clusters with those of k-means, in [0, 1].
        silhouette: Silhouette of the given clusters, in [-1, 1].
        kmeans_silhouette: Silhouette of the clusters of k-means, in [-1, 1]; NaN if k-means finds only one.
    """

    nmi: Tensor
    silhouette: Tensor
    kmeans_silhouette: Tensor


def clusteredness(
    z: Tensor, label: Tensor, *, normalize: bool = True, n_init: int = 10, seed: int = 0
) -> ClusterScores:
    r"""Compare k given clusters with the clusters of k-means, and compute the silhouettes of both.

    .. math:: \mathrm{NMI} = \frac{2\, I(y; \hat y)}{H(y) + H(\hat y)}

    y are the given clusters, :math:`\hat y` those of k-means. Computed in float64 on the CPU by scikit-learn's
    `KMeans`, `normalized_mutual_info_score` (arithmetic mean) and `silhouette_score`.

    Args:
        z: (N, P).
        label: (N,) integers, the given clusters: from 2 to N - 1 different ones.
        normalize: Divide the rows by their lengths first, or by 1e-12 where they are shorter.
        n_init: Number of starts of k-means, >= 1; the best result is used.
        seed: Seed of the starts.

    Returns:
        Three scores. `nmi` is 1 if k-means finds the given clusters. For k clusters of equal size that are unrelated to
        those of k-means, it is about (k - 1)^2 / (2 N log k). :func:`silhouette` explains the other two.

    Raises:
        ValueError: If a shape or dtype is wrong, a value of `z` is not finite, or `label` or `n_init` is out of range.

    >>> z = torch.tensor([[1.0, 0.0], [1.0, 0.1], [0.0, 1.0], [0.1, 1.0]])
    >>> [f"{clusteredness(z, torch.tensor(label)).nmi:.2f}" for label in ([7, 7, 3, 3], [0, 1, 0, 1])]
    ['1.00', '0.00']
    """
    embeddings("N, P", z=z)
    from sklearn.metrics import normalized_mutual_info_score

    clusters = _clusters(z, label)
    found = kmeans(z, clusters, normalize=normalize, n_init=n_init, seed=seed)
    nmi = normalized_mutual_info_score(label.cpu().numpy(), found.cpu().numpy(), average_method="arithmetic")
    given = silhouette(z, label, normalize=normalize)
    several = bool((found != found[0]).any())
    own = silhouette(z, found, normalize=normalize) if several else given * torch.nan
    return ClusterScores(given.new_tensor(float(nmi)), given, own)


def silhouette(z: Tensor, label: Tensor, *, normalize: bool = True) -> Tensor:
    r"""Compute the mean silhouette of the points in given clusters.

    .. math:: \frac1N \sum_i \frac{b_i - a_i}{\max(a_i, b_i)}

    :math:`a_i` is the mean distance of point i to the other points of its cluster. :math:`b_i` is its mean distance to
    the points of the nearest other cluster. A point that is alone in its cluster has the term 0. Computed in float64 on
    the CPU by scikit-learn's `silhouette_score`.

    Args:
        z: (N, P).
        label: (N,) integers, the given clusters: from 2 to N - 1 different ones.
        normalize: Divide the rows by their lengths first, or by 1e-12 where they are shorter.

    Returns:
        A float64 scalar in [-1, 1]: 1 for tight clusters that are far apart, around 0 for clusters that overlap, below
        0 if points are nearer to another cluster than to their own. Clusters that k-means finds in uniform points have
        a silhouette > 0: 0.5 on the circle, less in more dimensions.

    Raises:
        ValueError: If a shape or dtype is wrong, a value of `z` is not finite, or `label` is out of range.

    >>> f"{silhouette(torch.tensor([[0.0], [1.0], [5.0], [6.0]]), torch.tensor([0, 0, 1, 1]), normalize=False):.3f}"
    '0.798'
    """
    embeddings("N, P", z=z)
    from sklearn.metrics import silhouette_score

    rows = _rows(z, normalize)
    _clusters(z, label)
    score = silhouette_score(rows.numpy(), label.cpu().numpy())
    return torch.tensor(float(score), dtype=torch.float64, device=float64_device(z.device))


def kmeans(z: Tensor, clusters: int, *, normalize: bool = True, n_init: int = 10, seed: int = 0) -> Tensor:
    """Return the cluster of each row by k-means: (N,) int64, from 0 to k - 1.

    Computed in float64 on the CPU by scikit-learn's `KMeans`. If fewer than k rows differ, some clusters have no row.

    Args:
        z: (N, P), floating point and finite.
        clusters: k, from 2 to N - 1.
        normalize: Divide the rows by their lengths first, or by 1e-12 where they are shorter.
        n_init: Number of starts, >= 1; the best result is used.
        seed: Seed of the starts.
    """
    embeddings("N, P", z=z)
    from sklearn.cluster import KMeans
    from sklearn.exceptions import ConvergenceWarning

    rows = _rows(z, normalize)
    inside(f"[2, {len(z) - 1}]", clusters=clusters)
    at_least(1, n_init=n_init)
    model = KMeans(clusters, n_init=n_init, random_state=seed)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Number of distinct clusters", ConvergenceWarning)  # of rows that coincide
        found = model.fit_predict(rows.numpy())
    return torch.as_tensor(found, dtype=torch.int64, device=z.device)


def uniform_uniformity(dim: int, t: float = 2.0) -> Tensor:
    r"""Return the expected :func:`uniformity` of independent, uniform points on the sphere, a float64 scalar < 0.

    .. math:: \log \mathbb E\, e^{-t \|u - v\|^2} = -2t + \log {}_0F_1\bigl(\tfrac d2; t^2\bigr)
        = -2t + \log \sum_{k \ge 0} \frac{t^{2k}}{(d/2)_k\, k!}

    u and v are independent, uniform points. The result is the logarithm of the expected :func:`gaussian_potential`, for
    any number of points. It is log(e^{-2t} I_0(2t)) on the circle, -2t + log(sinh(2t) / 2t) for d = 3, and near -2t (1
    - t / d) for large d. Evenly spaced points have a slightly lower :func:`uniformity`.

    Args:
        dim: d >= 1, the dimension of the space around the sphere S^{d-1}.
        t: Inverse squared width of the kernel, in (0, 1e6]. A `dim` or `t` out of its range raises a ValueError.

    >>> f"{uniform_uniformity(2):.4f}, {uniform_uniformity(50).exp():.4f}"
    '-1.5750, 0.0215'
    """
    at_least(1, dim=dim)
    inside(f"(0, {_LONGEST:g}]", t=t)
    k = torch.arange(1, int(2 * t) + 64, dtype=torch.float64)  # from 2t on, a term is below 1/4 of the one before
    ratio = t**2 / ((dim / 2 + k - 1) * k)
    terms = torch.cat([ratio.new_zeros(1), ratio.log().cumsum(0)])
    return terms.logsumexp(0) - 2 * t


def _rows(z: Tensor, normalize: bool) -> Tensor:
    shaped("N, P", z=z)
    floating(z=z)
    finite(z=z)
    z = in_float64(z.detach()).cpu()
    return unit(z, dim=1) if normalize else z


def _clusters(z: Tensor, label: Tensor) -> int:
    shaped("N, P", z=z)
    integer = not (label.is_floating_point() or label.is_complex())
    if label.shape != z.shape[:1] or not integer:
        raise ValueError(f"Expected `label` of {len(z)} integers, but got {label.dtype} {tuple(label.shape)}.")
    clusters = len(label.unique())
    if not 2 <= clusters < len(z):
        raise ValueError(f"Expected `label` of 2 to {len(z) - 1} clusters, fewer than points, but got {clusters}.")
    return clusters
