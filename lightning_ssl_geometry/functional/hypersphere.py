"""Embeddings on the hypersphere: alignment, uniformity and the Gaussian potential.

Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere
(2020).
"""

__all__ = ["alignment", "gaussian_potential", "uniformity"]

from torch import Tensor
from torch.nn.functional import normalize as unit

from lightning_ssl_geometry.checks import positive, rows, shaped


def alignment(z1: Tensor, z2: Tensor, *, alpha: float = 2.0, normalize: bool = True) -> Tensor:
    r"""Mean distance between corresponding rows of the two views (N, P), a scalar.

    .. math:: \frac1N \sum_i \| z^{(1)}_i - z^{(2)}_i \|_2^\alpha

    By default `normalize` projects the rows onto the unit sphere first. On the sphere the result is in [0, 2^alpha] for
    an exponent `alpha` > 0: 0 for equal views, and with alpha = 2 on average 2 for independent views of uniform rows.
    """
    shaped("N, P", z1=z1, z2=z2)
    positive(alpha=alpha)
    if normalize:
        z1, z2 = unit(z1, dim=-1), unit(z2, dim=-1)
    return (z1 - z2).square().sum(-1).pow(alpha / 2).mean()


def uniformity(z: Tensor, t: float = 2.0, *, normalize: bool = True, block_size: int = 1024) -> Tensor:
    r"""Logarithm of the mean Gaussian kernel of all pairs: low if embeddings spread over the sphere.

    .. math:: \log \frac1{N(N-1)} \sum_{i \ne j} e^{-t \|z_i - z_j\|^2}

    The result, a scalar, is <= 0: 0 if all rows are equal, about -2t (1 - t / P) for uniform rows in many dimensions.

    Args:
        z: (N, P), N >= 2.
        t: Inverse squared width of the kernel, > 0.
        normalize: Project the rows onto the unit sphere first.
        block_size: Rows computed at once; memory is O(N x block_size).

    >>> import torch
    >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).item(), 3)
    -8.0
    """
    return gaussian_potential(z, t, normalize=normalize, block_size=block_size).log()


def gaussian_potential(z: Tensor, t: float = 2.0, *, normalize: bool = True, block_size: int = 1024) -> Tensor:
    r"""Mean pairwise Gaussian kernel, without the logarithm of :func:`uniformity`, which has the same arguments.

    .. math:: \frac1{N(N-1)} \sum_{i \ne j} e^{-t \|z_i - z_j\|^2}

    CRL-TAC (arXiv 2111.07679) reports this with t = 2; uniform points on the sphere of 50 dimensions give 0.0215. The
    result is in (0, 1], and 1 if all rows are equal.
    """
    shaped("N, P", z=z)
    rows(2, z=z)
    positive(t=t)
    if normalize:
        z = unit(z, dim=-1)
    square = z.square().sum(-1)
    total = z.new_zeros(())
    for start in range(0, len(z), block_size):
        block = slice(start, start + block_size)
        distance = (square[block, None] + square - 2 * z[block] @ z.T).clamp(min=0)  # rounding may give -1e-7
        kernel = (-t * distance).exp()  # (block, N)
        total = total + kernel.sum() - kernel.diagonal(start).sum()
    return total / (len(z) * (len(z) - 1))
