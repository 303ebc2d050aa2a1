r"""The share of given directions in the encoder's space that the projector ignores.

Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022). The projector is
:math:`z = W^\top h` with W (D, P), the transpose of a `torch.nn.Linear`'s weight. The kernel of this map (Ker(W) in the
paper) is the orthogonal complement of W's column space.
"""

__all__ = [
    "column_space",
    "gains_along",
    "least_share_outside",
    "null_space_fraction",
    "principal_angles",
    "projection_alignment",
    "projector_gain",
    "share_outside",
    "unexplained_variance",
]

import math
from typing import get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, finite, one_of, rows, shaped
from lightning_ssl_geometry.functional.rounding import rounding_eps
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
    embeddings("D, P", weight=weight)
    shaped("D, P", {"D": delta.shape[1]}, weight=weight)
    one_of(get_args(RankMode), mode=mode)
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


def projector_gain(direction: Tensor, weight: Tensor) -> Tensor:
    r"""Compute how much the projector stretches directions, beside its mean over isotropic directions.

    .. math:: \frac{\sum_i \|W^\top v_i\|_2^2}{\sum_i \|v_i\|_2^2} \Big/ \frac{\|W\|_F^2}{D}

    A number without a threshold for Propositions 4.1 and 4.3 of Cosentino et al. 2022. It is 0 if all :math:`v_i` are
    in the null space of the projector, 1 on average for isotropic directions or for a W that was rotated at random, and
    at most :math:`D \sigma_1^2 / \|W\|_F^2`. If h is not isotropic, compare augmentations :math:`v_i = h^2_i - h^1_i`
    with displacements between samples, :math:`h_i - h_j`. The result is a float64 scalar.

    Args:
        direction: v, (N, D). For displacements between samples, take all ordered pairs, or rows minus their mean: both
            give the same.
        weight: (D, P), the projector's W. `torch.nn.Linear` keeps the transpose, (P, D).

    Raises:
        ValueError: If a shape is wrong, a value is not finite, or all directions or W are 0.

    >>> projector_gain(torch.eye(4)[:2], torch.eye(4)[:, :2]).item()
    2.0
    """
    embeddings("N, D", direction=direction)
    embeddings("D, P", weight=weight)
    shaped("D, P", {"D": direction.shape[1]}, weight=weight)
    finite(weight=weight)
    left, sigma, _ = torch.linalg.svd(in_float64(weight), full_matrices=False)
    if not sigma[0] > 0:
        raise ValueError("Expected `weight` that is not 0, but all its values are.")
    direction = in_float64(direction)
    return gains_along(direction.T @ direction, left, sigma)[1]


def gains_along(moment: Tensor, left: Tensor, sigma: Tensor) -> tuple[Tensor, Tensor]:
    r"""Compute the share of second moments along each left singular vector of W, and the gain of W on the whole.

    .. math:: s_k = D \, \frac{u_k^\top S u_k}{\mathrm{tr}(S)}, \qquad
        \frac{\sum_k \sigma_k^2 s_k}{\sum_k \sigma_k^2}

    S = `moment` (D, D) is the sum or mean of v v^T over directions v. W has the left singular vectors `left` (D, d) and
    the singular values `sigma` (d,), descending and not all 0. The results are s (d,) and the gain, which is that of
    :func:`projector_gain`. Isotropic directions have 1 in both. A ValueError is raised if the trace of S is 0 or not
    finite.

    >>> gains_along(torch.diag(torch.tensor([3.0, 1.0])), torch.eye(2), torch.tensor([2.0, 1.0]))[0].tolist()
    [1.5, 0.5]
    """
    moment, left = in_float64(moment), in_float64(left)
    along = ((moment @ left) * left).sum(0).clamp(min=0) * (len(moment) / _total(moment))
    power = (in_float64(sigma) / sigma[0]).square()
    return along, (power * along).sum() / power.sum()


def projection_alignment(h: Tensor, delta: Tensor, weight: Tensor) -> Tensor:
    r"""Compute the mean cosine between the projection of representations and given displacements.

    .. math:: \frac1N \sum_i \cos\bigl(W W^\top h_i, \; \delta_i\bigr)

    Eq. 8 and 9 of Cosentino et al. 2022: the upper bound of the loss falls with
    :math:`\delta h_i^\top \mathrm{Proj}(h_i^1)`, where :math:`\mathrm{Proj}(h) = W W^\top h` and
    :math:`\delta h_i = h^2_i - h^\star_i`. W W^T is a projection only if the columns of W are orthonormal. A
    projector that is piecewise affine has a W for each sample (Eq. 11). The result is a float64 scalar in [-1, 1]. A
    vector of 0 has the cosine 0.

    Args:
        h: :math:`h^1`, (N, D).
        delta: (N, D), displacements.
        weight: (D, P), the projector's W, or (N, D, P), the W of each sample.

    Raises:
        ValueError: If a shape is wrong, a value is not finite, or there are no rows.

    >>> projection_alignment(torch.eye(2), torch.ones(2, 2), torch.eye(2)).item()  # cos 45 degrees
    0.7071067811865475
    """
    embeddings("N, D", h=h, delta=delta)
    embeddings("D, P", "N, D, P", weight=weight)
    shaped("N, D", h=h, delta=delta)
    rows(1, h=h)
    sizes = dict(zip("ND", h.shape, strict=True))
    shaped("N, D, P" if weight.ndim == 3 else "D, P", sizes, weight=weight)
    finite(h=h, delta=delta, weight=weight)
    weight = _to_one(weight, tuple(range(weight.ndim))[-2:])
    h, delta = _to_one(h, (1,)), _to_one(delta, (1,))
    projected = (weight @ (weight.mT @ h[:, :, None]))[:, :, 0]
    return (_unit(_to_one(projected, (1,))) * _unit(delta)).sum(1).mean()


def _unit(x: Tensor) -> Tensor:
    # rows of 0 stay 0, and have gradients
    some = x.detach().abs().amax(1, keepdim=True) > 0
    return x / torch.where(some, x, 1).norm(dim=1, keepdim=True)


def principal_angles(a: Tensor, b: Tensor) -> Tensor:
    r"""Compute the angles between two subspaces, in degrees, ascending: float64 (min(r, s),), each in [0, 90].

    .. math:: \theta_k = \arccos \sigma_k(A^\top B)

    If one subspace contains the other, all angles are 0; if they are orthogonal, all are 90. Angles below 45 degrees
    are computed from sines (Knyazev & Argentati 2002), since the arccosine has an error of 1e-6 degrees near 0.

    Args:
        a: (D, r), columns that span the first subspace. They must be linearly independent.
        b: (D, s), columns that span the second subspace.

    Raises:
        ValueError: If a shape is wrong, a value is not finite, or the columns of an argument are linearly dependent.

    >>> principal_angles(torch.eye(3)[:, :2], torch.eye(3)[:, 1:]).tolist()
    [0.0, 90.0]
    """
    embeddings("D, r", a=a, b=b)
    shaped("D, r", a=a)
    shaped("D, s", {"D": len(a)}, b=b)
    finite(a=a, b=b)
    first, second = _basis("a", a), _basis("b", b)
    if first.shape[1] < second.shape[1]:
        first, second = second, first
    inner = first.T @ second
    cosine = torch.linalg.svdvals(inner).clamp(max=1)  # descending
    sine = torch.linalg.svdvals(second - first @ inner).clamp(max=1).flip(0)  # ascending
    return torch.rad2deg(torch.where(cosine > math.sqrt(0.5), sine.arcsin(), cosine.arccos()))


def column_space(weight: Tensor, tau: float | None = None, *, mode: RankMode = "relative") -> Tensor:
    """Return an orthonormal basis (D, r) of the column space of `weight` (D, P), float64.

    The basis has the left singular vectors whose singular values reach `tau`, which is read as in
    :func:`numerical_rank`. If `tau` is None, the threshold is max(D, P) times the machine epsilon of the dtype of
    `weight` times the largest singular value. A ValueError is raised if `weight` is not finite.
    """
    shaped("D, P", weight=weight)
    finite(weight=weight)
    left, sigma, _ = torch.linalg.svd(in_float64(weight), full_matrices=False)
    if tau is None:
        return left[:, : singular_values_rank(sigma, max(weight.shape) * rounding_eps(weight.dtype), mode="relative")]
    return left[:, : singular_values_rank(sigma, tau, mode=mode)]


def share_outside(moment: Tensor, basis: Tensor) -> Tensor:
    r"""Compute the share of second moments outside a subspace: :math:`1 - \mathrm{tr}(U^\top S U) / \mathrm{tr}(S)`.

    S = `moment` (D, D) is the sum or mean of v v^T over directions v. If its trace is 0 or not finite, a ValueError is
    raised. U = `basis` (D, r) has orthonormal columns.

    >>> share_outside(torch.eye(4), torch.eye(4)[:, :3]).item()  # from 0 to 1
    0.25
    """
    total = _total(moment)
    return 1 - ((moment @ basis) * basis).sum().clamp(max=total) / total  # rounding may exceed it by 1e-16


def least_share_outside(moment: Tensor, dim: int) -> Tensor:
    r"""Compute the smallest share of second moments outside any subspace with `dim` dimensions.

    .. math:: 1 - \frac{\sum_{k=1}^r \lambda_k(S)}{\mathrm{tr}(S)}

    S = `moment` (D, D) is as for :func:`share_outside`, and r = `dim`, from 0 to D. The subspace of the r leading
    eigenvectors of S attains it.

    >>> least_share_outside(torch.diag(torch.tensor([1.0, 2.0, 5.0])), 2).item()
    0.125
    """
    total = _total(moment)
    values = torch.linalg.eigvalsh(moment)  # ascending
    rest = values[: len(moment) - dim]
    return rest.where(rest > len(moment) * torch.finfo(values.dtype).eps * values[-1], 0).sum() / total


def _total(moment: Tensor) -> Tensor:
    total = moment.trace()
    if not 0 < total < torch.inf:
        raise ValueError(f"Expected directions that are finite and not all 0, but got a sum of squares of {total:g}.")
    return total


def _to_one(x: Tensor, axes: tuple[int, ...]) -> Tensor:
    # so that squares of large and small values exist
    x = in_float64(x)
    largest = x.abs().amax(axes, keepdim=True)
    return x / largest.where(largest > 0, 1)


def _basis(name: str, columns: Tensor) -> Tensor:
    found = column_space(_to_one(columns, (0,)), max(columns.shape) * rounding_eps(columns.dtype))
    if found.shape[1] < columns.shape[1]:
        raise ValueError(
            f"Expected `{name}` with {columns.shape[1]} linearly independent columns, but got rank {found.shape[1]}."
        )
    return found
