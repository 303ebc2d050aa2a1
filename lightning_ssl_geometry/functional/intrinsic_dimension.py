"""Intrinsic dimension of a cloud of points, from the distances to their nearest neighbours.

TwoNN: Facco et al., Estimating the intrinsic dimension of datasets by a minimal neighborhood information (2017). MLE:
Levina & Bickel, Maximum Likelihood Estimation of Intrinsic Dimension (2004), and MacKay & Ghahramani, Comments on
"Maximum Likelihood Estimation of Intrinsic Dimension" (2005). T_j(x) is the distance of x to its j-th neighbour.
"""

__all__ = [
    "Average",
    "Estimator",
    "distances_mle_dimension",
    "distances_two_nn_dimension",
    "mle_dimension",
    "neighbor_distances",
    "two_nn_dimension",
]

import math
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings, inside, one_of, rows, shaped
from lightning_ssl_geometry.precision import in_float64

Average = Literal["inverses", "estimates"]
Estimator = Literal["fit", "mle"]


def two_nn_dimension(h: Tensor, *, discard: float = 0.1, estimator: Estimator = "fit", chunk_size: int = 256) -> Tensor:
    r"""Estimate the intrinsic dimension from the ratio of the distances to the second and to the first neighbour.

    .. math:: -\log(1 - F(\mu)) = d \log \mu, \quad \mu = T_2 / T_1, \quad F(\mu_{(i)}) = i / N

    :math:`T_1` and :math:`T_2` are the distances of a point to its first and second neighbour. F is the distribution
    function of the ratios, and :math:`\mu_{(i)}` is the i-th smallest of the N ratios. As in Facco et al. 2017, a line
    through the origin is fitted by least squares, without the largest ratios, and d is its slope. `estimator="mle"`
    gives :math:`(N - 1) / \sum_i \log \mu_i` from all ratios. This estimate is unbiased for independent ratios, but not
    robust to outliers.

    Args:
        h: (N, D), N >= 3, any float dtype; computed in float64.
        discard: Fraction of the ratios, the largest ones, that the fit leaves out, in (0, 1). At least one is left out.
        estimator: "fit" or "mle".
        chunk_size: Rows computed at a time; memory is O(chunk_size (N + D)).

    Returns:
        A float64 scalar >= 0, not bounded by D; infinite or NaN if all ratios are 1. Cost: O(N^2 D).

    Raises:
        ValueError: If `h` has another shape, an argument is out of range, or points coincide.

    >>> plane = torch.rand(500, 2, generator=torch.Generator().manual_seed(0)) @ torch.ones(2, 5).cumsum(1).tril()
    >>> 1.7 < two_nn_dimension(plane).item() < 2.3
    True
    """
    embeddings("N, D", h=h)
    return distances_two_nn_dimension(neighbor_distances(h, 2, chunk_size), discard=discard, estimator=estimator)


def mle_dimension(h: Tensor, neighbors: int = 20, *, average: Average = "inverses", chunk_size: int = 256) -> Tensor:
    r"""Estimate the intrinsic dimension from the distances to k neighbours, by maximum likelihood.

    .. math:: d_k(x) = \Bigl[\frac{1}{k - 1} \sum_{j=1}^{k-1} \log \frac{T_k(x)}{T_j(x)}\Bigr]^{-1}, \quad
        d = \Bigl[\frac1N \sum_x d_k(x)^{-1}\Bigr]^{-1}
        \quad\text{or}\quad \frac1N \sum_x d_k(x)

    :math:`T_j(x)` is the distance of point x to its j-th neighbour. :math:`d_k` is Eq. 8 of Levina & Bickel 2004, who
    average over several k. The first form of d, the default, averages the inverses (MacKay & Ghahramani 2005), which
    maximises the likelihood of all points together. `average="estimates"` gives the second form, Eq. 9 of Levina &
    Bickel, which is too large by a factor of about (k - 1) / (k - 2).

    Args:
        h: (N, D), any float dtype; computed in float64.
        neighbors: k, from 2 to N - 1. A larger k gives less noise, but too low a result for a curved cloud.
        average: "inverses" for the first form of d, "estimates" for the second.
        chunk_size: Rows at a time; memory is O(chunk_size (N + k D)).

    Returns:
        A float64 scalar >= 0, not bounded by D. It is infinite if all neighbours of every point are equally far. With
        "estimates", one such point is enough. Cost: O(N^2 D).

    Raises:
        ValueError: If `h` has another shape, an argument is out of range, or points coincide.
    """
    embeddings("N, D", h=h)
    return distances_mle_dimension(neighbor_distances(h, neighbors, chunk_size), average=average)


def neighbor_distances(h: Tensor, neighbors: int, chunk_size: int = 256) -> Tensor:
    """Compute the Euclidean distances of every row to its k nearest other rows, (N, k) float64, ascending.

    `h` is (N, D) and `neighbors` is k, from 2 to N - 1. A distance is exactly 0 if the rows are equal, and only then.
    Memory is O(chunk_size (N + k D)) for `chunk_size` rows at a time.

    >>> neighbor_distances(torch.tensor([[0.0], [1.0], [3.0]]), 2)[1].tolist()
    [1.0, 2.0]
    """
    shaped("N, D", h=h)
    rows(3, h=h)
    inside(f"[2, {len(h) - 1}]", neighbors=neighbors)
    at_least(1, chunk_size=chunk_size)
    h = in_float64(h)
    h = h - h.mean(0)  # smaller numbers lose less to rounding
    square = h.square().sum(1)
    found = []
    for chunk in torch.arange(len(h), device=h.device).split(chunk_size):
        far = torch.addmm(square, h[chunk], h.T, alpha=-2)  # squared distances minus |h_i|^2, (chunk, N)
        far[torch.arange(len(chunk), device=h.device), chunk] = torch.inf
        near = far.topk(neighbors, largest=False).indices  # (chunk, k)
        # from differences, so that exactly the equal rows have distance 0
        found.append((h[chunk, None] - h[near]).norm(dim=2).sort(dim=1).values)
    return torch.cat(found)


def distances_two_nn_dimension(distance: Tensor, *, discard: float = 0.1, estimator: Estimator = "fit") -> Tensor:
    """Compute :func:`two_nn_dimension` from the (N, k) results of :func:`neighbor_distances`, k >= 2.

    >>> f"{distances_two_nn_dimension(torch.tensor([[1.0, 2.0], [1.0, 4.0]]), estimator='mle'):.4f}"  # 1 / log 8
    '0.4809'
    """
    one_of(get_args(Estimator), estimator=estimator)
    inside("(0, 1)", discard=discard)
    ratio = _log_ratios(distance[:, 1], distance[:, 0]).sort().values
    if estimator == "mle":
        return (len(ratio) - 1) / ratio.sum()
    kept = len(ratio) - math.ceil(discard * len(ratio))
    if kept < 1:
        raise ValueError(f"Expected `discard` to leave some of {len(ratio)} ratios, but got {discard}.")
    empirical = torch.arange(1, kept + 1, dtype=ratio.dtype, device=ratio.device) / len(ratio)  # F
    return -(ratio[:kept] @ torch.log1p(-empirical)) / ratio[:kept].square().sum()


def distances_mle_dimension(distance: Tensor, *, average: Average = "inverses") -> Tensor:
    """Compute :func:`mle_dimension` from the (N, k) results of :func:`neighbor_distances`, which must be > 0.

    >>> f"{distances_mle_dimension(torch.tensor([[1.0, 2.0], [1.0, 4.0]])):.4f}"  # 2 / log 8
    '0.9618'
    """
    one_of(get_args(Average), average=average)
    inverse = _log_ratios(distance[:, -1:], distance[:, :-1]).mean(1)
    return 1 / inverse.mean() if average == "inverses" else (1 / inverse).mean()


def _log_ratios(far: Tensor, near: Tensor) -> Tensor:
    if same := int((near.reshape(len(near), -1)[:, 0] == 0).sum()):
        raise ValueError(f"Expected rows that differ, but got {same} of {len(near)} that coincide with another.")
    return in_float64(far / near).log()
