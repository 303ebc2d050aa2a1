r"""Eigenvalues of second moments of few rows, from a pivoted Cholesky factor (Higham, Accuracy and Stability, ch. 10).

The second-moment matrix M (D, D) of N rows has at most N eigenvalues that are not 0. With :math:`M = L^T L` and L of
shape (N, D), they are the eigenvalues of :math:`L L^T`, which has the shape (N, N).
"""

__all__ = ["few_rows_eigenvalues"]

import torch
from torch import Tensor


def few_rows_eigenvalues(moments: Tensor, rows: int, *, noise: Tensor) -> Tensor:
    r"""Return the eigenvalues (D,) of a positive semi-definite matrix M (D, D) of rank at most `rows`, descending.

    Each step takes the row of the largest remaining variance: with pivot p and the rows :math:`l_1, \dots, l_{k-1}`,

    .. math:: l_k = \frac{M_p - \sum_{j < k} l_{jp}\, l_j}{\sqrt{M_{pp} - \sum_{j < k} l_{jp}^2}}

    The steps end after `rows` rows, or if the remaining variance is below `noise` / 4. This changes no eigenvalue by
    more than `noise` / 4, as the remainder is positive semi-definite. Cost: O(D rows^2), in place of O(D^3).

    Args:
        moments: M (D, D), in float64.
        rows: The largest rank that M can have.
        noise: The largest eigenvalue that may be a rounding error, such as :func:`moments_floor`.

    >>> few_rows_eigenvalues(torch.ones(3, 3, dtype=torch.float64), 1, noise=torch.tensor(1e-14))
    tensor([3., 0., 0.], dtype=torch.float64)
    """
    factor, left = moments.new_zeros(rows, len(moments)), moments.diagonal().clone()
    for k in range(rows):
        if left.clamp(min=0).sum() <= noise / 4:
            break
        pivot = left.argmax()
        factor[k] = (moments[pivot] - factor[:k, pivot] @ factor[:k]) / left[pivot].sqrt()
        left -= factor[k].square()
    eigenvalues = moments.new_zeros(len(moments))
    eigenvalues[:rows] = torch.linalg.eigvalsh(factor @ factor.T).flip(0)
    return eigenvalues
