"""Singular spectra: numerical rank, effective rank and log singular values.

Numerical rank: Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022).
Effective rank: Roy & Vetterli, The effective rank (2007), as RankMe uses it (Garrido et al. 2023).
"""

__all__ = [
    "effective_rank",
    "log_singular_values",
    "matrix_singular_values",
    "numerical_rank",
    "singular_values",
    "singular_values_effective_rank",
    "singular_values_rank",
]

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, inside, one_of, positive
from lightning_ssl_geometry.functional.rounding import rounding_floor
from lightning_ssl_geometry.precision import in_float64

RankMode = Literal["absolute", "relative", "cumulative"]

_GRAM = 128  # the least number of rows and columns for which the Gram matrix pays
_ROUNDING = 16 * torch.finfo(torch.float64).eps  # of an eigenvalue, beside the largest one


def numerical_rank(matrix: Tensor, tau: float, *, mode: RankMode = "absolute") -> Tensor:
    r"""Count the singular values of matrices (..., m, n) that reach a threshold: int64 (...), from 0 to min(m, n).

    .. math:: \mathrm{Rank}_\tau(W) = \sum_{j=1}^d 1\{|\sigma_j| \ge \tau\}

    The mode "absolute" is Eq. 2 of Cosentino et al. 2022, who give no value of tau. The modes "relative" and
    "cumulative" do not depend on the scale of the matrix.

    Args:
        matrix: (..., m, n).
        tau: "absolute": smallest singular value that counts, > 0. "relative": smallest fraction of the largest one, in
            (0, 1]. "cumulative": fraction of the sum of squares that the counted values must reach, in (0, 1].
        mode: "absolute", "relative" or "cumulative".

    >>> numerical_rank(torch.diag(torch.tensor([3.0, 1.0, 0.01])), 0.5).item()
    2
    """
    embeddings("..., m, n", matrix=matrix)
    return singular_values_rank(torch.linalg.svdvals(_matrix(matrix)), tau, mode=mode)


def singular_values_rank(sigma: Tensor, tau: float, *, mode: RankMode = "absolute") -> Tensor:
    """Compute :func:`numerical_rank` from singular values (..., d), which are non-negative and descending.

    The result is int64 of shape (...), from 0 to d. If all singular values are 0, it is 0 in every mode.
    """
    one_of(get_args(RankMode), mode=mode)
    if mode == "absolute":
        positive(tau=tau)
    else:
        inside("(0, 1]", tau=tau)
    if mode == "absolute":
        return (sigma >= tau).sum(-1)
    if mode == "relative":
        return ((sigma >= tau * sigma[..., :1]) & (sigma > 0)).sum(-1)
    variance = sigma.square()
    missing = variance.sum(-1, keepdim=True) * tau - (variance.cumsum(-1) - variance)  # before adding the j-th
    return ((missing > 0) & (sigma > 0)).sum(-1)


def effective_rank(h: Tensor, *, center: bool = False, eps: float = 1e-7) -> Tensor:
    r"""Return the exponential of the entropy of the normalised singular values.

    .. math:: \exp\Bigl(-\sum_k p_k \log p_k\Bigr), \quad p_k = \frac{\sigma_k(H)}{\|\sigma(H)\|_1} + \epsilon

    The convention is that of RankMe (Garrido et al. 2023, Eq. 1-2): it takes singular values of H instead of
    eigenvalues of a covariance, does not centre the rows, and adds eps after the division. The result is a float64
    scalar from 1 (one direction) to min(N, D) (equal singular values).

    Args:
        h: (N, D), N samples of D dimensions, or (V, N, D) for V views. The rows of all views are used together.
        center: Subtract the mean row first.
        eps: Avoids log(0), with a bias of about d * eps * log(1 / eps) for d singular values.

    Raises:
        ValueError: If `h` has fewer than 2 axes, or all rows (after centring) are zero up to rounding.
    """
    embeddings("N, D", "V, N, D", h=h)
    return singular_values_effective_rank(singular_values(h, center), eps=eps)


def singular_values_effective_rank(sigma: Tensor, *, eps: float = 1e-7) -> Tensor:
    """Compute :func:`effective_rank` from non-negative singular values (d,), in their dtype; `eps` avoids log(0)."""
    total = sigma.sum()
    if total == 0:
        raise ValueError(
            "Expected at least one singular value > 0, but all are 0: the rows are all zero, or, if centred, equal."
        )
    p = sigma / total + eps
    return (-(p * p.log()).sum()).exp()


def log_singular_values(h: Tensor, *, center: bool = False) -> Tensor:
    r"""Return the logarithms (min(N, D),) of the singular values of representations, float64 and descending.

    .. math:: \log \sigma_k(H) - \tfrac12 \log N

    Fig. 4 and 9 of Cosentino et al. 2022. The second term makes sets with different N comparable: sigma_k^2 / N is the
    mean square along direction k. Singular values that are zero up to rounding in the dtype of `h` give -inf.

    Args:
        h: (N, D), N samples of D dimensions, or (V, N, D) for V views. The rows of all views are used together.
        center: Subtract the mean row first, so that sigma_k^2 / N is a variance.

    >>> log_singular_values(torch.eye(2)).exp().square()
    tensor([0.5000, 0.5000], dtype=torch.float64)
    """
    embeddings("N, D", "V, N, D", h=h)
    rows = h.reshape(-1, h.shape[-1]).shape[0] if h.ndim else 0
    return (singular_values(h, center) / rows**0.5).log()


def singular_values(h: Tensor, center: bool) -> Tensor:
    """Return the singular values (min(n, D),) of all n rows of h (..., D), float64, descending; rounding becomes 0."""
    h = _matrix(h).reshape(-1, h.shape[-1])
    floor, h = rounding_floor(h), in_float64(h)
    sigma = torch.linalg.svdvals(h - h.mean(0) if center else h)
    return sigma.where(sigma > floor, 0)


def matrix_singular_values(matrix: Tensor) -> Tensor:
    """Return the singular values (min(m, n),) of one finite matrix (m, n), float64 and descending.

    A large matrix has them from the eigenvalues of its Gram matrix, which takes a third of the time of an SVD. Their
    squares are then exact to some eps of the largest. If this is more than 1e-6 of any value, the SVD is taken.
    """
    matrix = in_float64(_matrix(matrix))
    if min(matrix.shape) >= _GRAM and matrix.any():
        wide = matrix if matrix.shape[0] <= matrix.shape[1] else matrix.T
        scale = wide.abs().max()  # a square must neither overflow nor vanish
        wide = wide / scale
        squares: Tensor = torch.linalg.eigvalsh(wide @ wide.T).flip(0)
        if squares[-1] >= _ROUNDING / 1e-6 * squares[0]:
            return scale * squares.sqrt()
    return torch.linalg.svdvals(matrix)


def _matrix(matrix: Tensor) -> Tensor:
    if matrix.ndim < 2:
        raise ValueError(f"Expected a matrix with at least 2 axes, but got shape {tuple(matrix.shape)}.")
    return matrix
