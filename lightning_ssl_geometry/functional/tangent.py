r"""How much of given directions in the encoder's space the projector ignores.

Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022). The projector is
:math:`z = W^\top h` with W (D, P), the transpose of a `torch.nn.Linear`'s weight. The kernel of this map (Ker(W) in the
paper) is the orthogonal complement of W's column space.
"""

__all__ = ["column_space", "null_space_fraction", "share_outside", "unexplained_variance"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import finite, shaped
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank


def unexplained_variance(
    delta: Tensor, weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative"
) -> Tensor:
    r"""Compute the fraction of the variance of directions that no combination of the projector's columns explains.

    .. math:: \frac{\sum_i \min_{t_i} \|\delta_i - W t_i\|_2^2}{\sum_i \|\delta_i\|_2^2}

    Eq. 10 and Fig. 7 of Cosentino et al., where :math:`\delta_i = h^2_i - h^\star_i` are displacements towards the
    hardest negative. The solution is by least squares, since :math:`W W^\top` (Eq. 9) is a projection only for
    orthonormal columns. Isotropic directions give 1 - r / D, with r the rank of W. A trained W has full rank in
    floating point, so all P directions count, even those with small singular values; `tau` can exclude these.

    Args:
        delta: (N, D), directions.
        weight: (D, P), the projector's W.
        tau: Only left singular vectors whose singular values reach this threshold count; None: all that are not 0 up to
            rounding.
        mode: "absolute", "relative" or "cumulative", the unit of `tau` in `numerical_rank`.

    Returns:
        A float64 scalar from 0 (all directions lie in the column space) to 1 (all are orthogonal to it). It does not
        change if `delta` and `weight` are rotated together.

    Raises:
        ValueError: If the shapes do not fit, a value is not finite, all of `delta` is 0, or `tau` or `mode` is out of
            range.

    >>> unexplained_variance(torch.eye(4), torch.eye(4)[:, :1]).item()
    0.75
    """
    shaped("N, D", delta=delta)
    shaped("D, P", {"D": delta.shape[1]}, weight=weight)
    delta = delta.double()
    return share_outside(delta.T @ delta, column_space(weight, tau, mode=mode))


def null_space_fraction(direction: Tensor, weight: Tensor, tau: float = 1e-2, *, mode: RankMode = "relative") -> Tensor:
    r"""Compute the fraction of the squared directions that lies in the null space of the projector.

    .. math:: \frac{\sum_i \|(I - U_\tau U_\tau^\top) v_i\|_2^2}{\sum_i \|v_i\|_2^2}

    :math:`U_\tau` are the left singular vectors of W whose singular values reach tau, so this is
    :func:`unexplained_variance` of v with a threshold. In Propositions 4.1 to 4.3 of Cosentino et al., :math:`v_i =
    h^2_i - h^1_i` are augmentation directions (or the columns of a generator G): directions in the kernel of
    :math:`W^\top` leave the invariance term at its minimum. The paper's converse ("only if") does not hold. A
    counterexample is W of rank 1, for which all embeddings are collinear.

    Args:
        direction: v, (N, D).
        weight: (D, P), the projector's W.
        tau: Threshold of :func:`lightning_ssl_geometry.functional.numerical_rank`.
        mode: "absolute", "relative" or "cumulative", the unit of `tau` in `numerical_rank`.

    Returns:
        A float64 scalar from 0 (the projector ignores nothing) to 1 (it ignores everything). Isotropic directions give
        1 - r / D, with r the rank of W at tau.

    Raises:
        ValueError: If the shapes do not fit, a value is not finite, all directions are 0, or `tau` or `mode` is out of
            range.

    >>> null_space_fraction(torch.eye(4), torch.diag(torch.tensor([1.0, 1.0, 1.0, 1e-3]))).item()
    0.25
    """
    return unexplained_variance(direction, weight, tau, mode=mode)


def column_space(weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative") -> Tensor:
    """Return an orthonormal basis of W's column space, the left singular vectors whose singular values reach `tau`.

    Args:
        weight: W (D, P), finite.
        tau: The threshold; None: max(D, P) times float64's rounding, relative to the largest singular value.
        mode: "absolute", "relative" or "cumulative", the unit of `tau` in `numerical_rank`.

    Returns:
        float64 (D, r), with r the rank at that threshold.
    """
    shaped("D, P", weight=weight)
    finite(weight=weight)
    left, sigma, _ = torch.linalg.svd(weight.double(), full_matrices=False)
    if tau is None:
        return left[:, : singular_values_rank(sigma, max(weight.shape) * torch.finfo(sigma.dtype).eps, mode="relative")]
    return left[:, : singular_values_rank(sigma, tau, mode=mode)]


def share_outside(moment: Tensor, basis: Tensor) -> Tensor:
    r"""Compute the share of second moments outside a subspace: :math:`1 - \mathrm{tr}(U^\top S U) / \mathrm{tr}(S)`.

    Args:
        moment: S (D, D), the sum (or mean) of v v^T over directions v. Raises a ValueError if its trace is 0 or not
            finite.
        basis: U (D, r), orthonormal columns.

    >>> share_outside(torch.eye(4), torch.eye(4)[:, :3]).item()  # from 0 to 1
    0.25
    """
    total = moment.trace()
    if not 0 < total < torch.inf:
        raise ValueError(f"Expected directions that are finite and not all 0, but got a sum of squares of {total:g}.")
    return 1 - ((moment @ basis) * basis).sum().clamp(max=total) / total  # rounding may exceed it by 1e-16
