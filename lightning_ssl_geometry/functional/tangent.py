r"""The share of given directions in the encoder's space that the projector ignores.

Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022). The projector is
:math:`z = W^\top h` with W (D, P), the transpose of a `torch.nn.Linear`'s weight. The kernel of this map (Ker(W) in the
paper) is the orthogonal complement of W's column space.
"""

__all__ = ["column_space", "null_space_fraction", "share_outside", "unexplained_variance"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, finite, shaped
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.precision import in_float64


def unexplained_variance(
    delta: Tensor, weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative"
) -> Tensor:
    r"""Compute the fraction of the squared length of directions that lies outside the projector's column space.

    .. math:: \frac{\sum_i \min_{t_i} \|\delta_i - W t_i\|_2^2}{\sum_i \|\delta_i\|_2^2}

    In Eq. 10 and Fig. 7 of Cosentino et al. 2022, :math:`\delta_i = h^2_i - h^\star_i` is the displacement of a
    sample's second view from its hardest negative. The projector is :math:`z = W^\top h`. The result is a float64
    scalar in [0, 1]. Isotropic directions give 1 - r / D, with r the rank of W. A trained W has full rank, but `tau`
    can exclude its small singular values.

    Args:
        delta: (N, D), directions.
        weight: (D, P), the projector's W.
        tau: Threshold; singular values of W below it count as 0. None: only zeros up to rounding count as 0.
        mode: "absolute", "relative" or "cumulative": how :func:`numerical_rank` reads `tau`.

    Raises:
        ValueError: If a shape, `tau` or `mode` is wrong, a value is not finite, or all of `delta` is 0.

    >>> unexplained_variance(torch.eye(4), torch.eye(4)[:, :1]).item()
    0.75
    """
    embeddings("N, D", delta=delta)
    shaped("N, D", delta=delta)
    shaped("D, P", {"D": delta.shape[1]}, weight=weight)
    delta = in_float64(delta)
    return share_outside(delta.T @ delta, column_space(weight, tau, mode=mode))


def null_space_fraction(direction: Tensor, weight: Tensor, tau: float = 1e-2, *, mode: RankMode = "relative") -> Tensor:
    r"""Compute the fraction of the squared length of directions that lies in the null space of the projector.

    .. math:: \frac{\sum_i \|(I - U_\tau U_\tau^\top) v_i\|_2^2}{\sum_i \|v_i\|_2^2}

    This is :func:`unexplained_variance` with another default of `tau`. :math:`U_\tau` are the left singular vectors of
    W whose singular values reach tau. The result is a float64 scalar in [0, 1].

    In Propositions 4.1 to 4.3 of Cosentino et al. 2022, :math:`v_i = h^2_i - h^1_i` is the difference of two views (or
    a column of a generator G). If all :math:`v_i` are in the null space, the invariance term of the loss is minimal.
    The converse, which the paper also states, does not hold: for W of rank 1, all embeddings are collinear.

    Args:
        direction: v, (N, D).
        weight: (D, P), the projector's W.
        tau: Threshold; singular values of W below it count as 0.
        mode: "absolute", "relative" or "cumulative": how :func:`numerical_rank` reads `tau`.

    Raises:
        ValueError: If a shape, `tau` or `mode` is wrong, a value is not finite, or all directions are 0.

    >>> null_space_fraction(torch.eye(4), torch.diag(torch.tensor([1.0, 1.0, 1.0, 1e-3]))).item()
    0.25
    """
    embeddings("N, D", direction=direction)
    return unexplained_variance(direction, weight, tau, mode=mode)


def column_space(weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative") -> Tensor:
    """Return an orthonormal basis (D, r) of the column space of `weight` (D, P), float64.

    The basis has the left singular vectors whose singular values reach `tau`, which is read as in
    :func:`numerical_rank`. If `tau` is None, the threshold is max(D, P) times the float64 epsilon times the largest
    singular value. A ValueError is raised if `weight` is not finite.
    """
    shaped("D, P", weight=weight)
    finite(weight=weight)
    left, sigma, _ = torch.linalg.svd(in_float64(weight), full_matrices=False)
    if tau is None:
        return left[:, : singular_values_rank(sigma, max(weight.shape) * torch.finfo(sigma.dtype).eps, mode="relative")]
    return left[:, : singular_values_rank(sigma, tau, mode=mode)]


def share_outside(moment: Tensor, basis: Tensor) -> Tensor:
    r"""Compute the share of second moments outside a subspace: :math:`1 - \mathrm{tr}(U^\top S U) / \mathrm{tr}(S)`.

    S = `moment` (D, D) is the sum or mean of v v^T over directions v. If its trace is 0 or not finite, a ValueError is
    raised. U = `basis` (D, r) has orthonormal columns.

    >>> share_outside(torch.eye(4), torch.eye(4)[:, :3]).item()  # from 0 to 1
    0.25
    """
    total = moment.trace()
    if not 0 < total < torch.inf:
        raise ValueError(f"Expected directions that are finite and not all 0, but got a sum of squares of {total:g}.")
    return 1 - ((moment @ basis) * basis).sum().clamp(max=total) / total  # rounding may exceed it by 1e-16
