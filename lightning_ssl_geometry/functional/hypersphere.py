"""Embeddings on the hypersphere: alignment, uniformity and the Gaussian potential.

Wang & Isola, Understanding Contrastive Representation Learning through Alignment and Uniformity on the Hypersphere
(2020).
"""

__all__ = ["alignment", "gaussian_potential", "uniformity"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings, positive, rows, shaped
from lightning_ssl_geometry.functional.matrix_product import matrix_product
from lightning_ssl_geometry.functional.unit_rows import finite_scale
from lightning_ssl_geometry.precision import without_autocast


@without_autocast
def alignment(z1: Tensor, z2: Tensor, *, alpha: float = 2.0, normalize: bool = True) -> Tensor:
    r"""Return the mean of distance^alpha between corresponding rows of two views.

    .. math:: \frac1N \sum_i \| z^{(1)}_i - z^{(2)}_i \|_2^\alpha

    The result is a scalar, 0 for equal views and at most 2^alpha for unit rows. For alpha = 2, independent views that
    are uniform on the sphere have the mean 2.

    Args:
        z1: (N, P), view 1.
        z2: (N, P), view 2.
        alpha: Exponent of the distance, > 0.
        normalize: Divide the rows by their lengths first, or by 1e-12 where they are shorter.
    """
    embeddings("N, P", z1=z1, z2=z2)
    shaped("N, P", z1=z1, z2=z2)
    rows(1, z1=z1)
    positive(alpha=alpha)
    z1, z2 = (z.to(torch.promote_types(z.dtype, torch.float32)) for z in (z1, z2))
    apart = _unit(z1) - _unit(z2) if normalize else z1 - z2
    if alpha == 2:
        return apart.square().sum(-1).mean()
    return torch.linalg.vector_norm(apart, dim=-1).pow(alpha).mean()  # equal rows have a gradient for alpha >= 1


def uniformity(z: Tensor, t: float = 2.0, *, normalize: bool = True, block_size: int = 1024) -> Tensor:
    r"""Return the logarithm of the mean Gaussian kernel of all pairs, a scalar <= 0.

    .. math:: \log \frac1{N(N-1)} \sum_{i \ne j} e^{-t \|z_i - z_j\|^2}

    It is 0 if all rows are equal, and low if they spread over the sphere. Uniform rows give about -2t (1 - t / P).

    Args:
        z: (N, P), N >= 2.
        t: Inverse squared width of the kernel, > 0.
        normalize: Divide the rows by their lengths first, or by 1e-12 where they are shorter.
        block_size: Rows computed at once; memory is O(N x block_size).

    >>> import torch
    >>> round(uniformity(torch.tensor([[1.0, 0.0], [-1.0, 0.0]])).item(), 3)
    -8.0
    """
    embeddings("N, P", z=z)
    return gaussian_potential(z, t, normalize=normalize, block_size=block_size).log()


@without_autocast
def gaussian_potential(z: Tensor, t: float = 2.0, *, normalize: bool = True, block_size: int = 1024) -> Tensor:
    r"""Return the mean Gaussian kernel of all pairs, a scalar in (0, 1]; it is 1 if all rows are equal.

    .. math:: \frac1{N(N-1)} \sum_{i \ne j} e^{-t \|z_i - z_j\|^2}

    The logarithm is :func:`uniformity`, which has the same arguments. CRL-TAC (arXiv 2111.07679) reports the potential
    with t = 2. With this t, uniform points on the unit sphere of a 50-dimensional space give 0.0215.
    """
    embeddings("N, P", z=z)
    shaped("N, P", z=z)
    rows(2, z=z)
    positive(t=t)
    at_least(1, block_size=block_size)
    z = z.to(torch.promote_types(z.dtype, torch.float32))  # the sum of a block is too large for float16
    z = _unit(z) if normalize else z - z.detach().mean(0)
    square = z.square().sum(-1)
    total = z.new_zeros(())
    for start in range(0, len(z), block_size):
        block = slice(start, start + block_size)
        distance = square[block, None] + square - 2 * matrix_product(z[block], z.T)
        distance = distance.clamp(min=0)  # rounding may give -1e-7
        distance.diagonal(start).fill_(torch.inf)  # no pair; to subtract its 1 later would cancel small kernels
        total = total + (-t * distance).exp().sum()
    return total / (len(z) * (len(z) - 1))


def _unit(z: Tensor) -> Tensor:
    scaled = z * finite_scale(z)
    return scaled / torch.linalg.vector_norm(scaled, dim=-1, keepdim=True).clamp(min=1e-12)
