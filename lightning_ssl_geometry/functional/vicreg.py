"""VICReg: invariance, variance and covariance of two views (Bardes, Ponce & LeCun 2022).

VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning. There are no negatives. A hinge on
the standard deviation of every dimension prevents a collapse to a point. Decorrelation prevents a collapse to a line.
"""

__all__ = ["check_spread", "vicreg", "vicreg_terms"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, inside
from lightning_ssl_geometry.functional.info_nce.settings import check_views
from lightning_ssl_geometry.functional.matrix_product import matrix_product
from lightning_ssl_geometry.functional.unit_rows import in_full_precision


def vicreg(
    z1: Tensor,
    z2: Tensor,
    invariance: float = 25.0,
    variance: float = 25.0,
    covariance: float = 1.0,
    gamma: float = 1.0,
    eps: float = 1e-4,
) -> Tensor:
    r"""Return the weighted sum of the three terms of :func:`vicreg_terms`, a scalar >= 0.

    .. math:: \ell(Z, Z') = \lambda\, s(Z, Z') + \mu\, v(Z, Z') + \nu\, c(Z, Z')

    Eq. 6 of Bardes, Ponce & LeCun (2022), with the terms and the weights of the official code. The paper divides s by N
    instead of N P, and takes the sum of both views' variance terms instead of the mean. So the paper's weights (lambda,
    mu, nu) are (lambda P, 2 mu, nu) here. The result is in float32 (float64 for float64 input).

    Args:
        z1: (N, P), embeddings of view 1, N >= 2. Any float dtype.
        z2: (N, P), embeddings of view 2.
        invariance: lambda >= 0.
        variance: mu >= 0.
        covariance: nu >= 0.
        gamma: The standard deviation that every dimension shall reach, > 0.
        eps: Added to the variances, so that their roots have a finite gradient at 0; 0 < eps < gamma^2.

    >>> vicreg(torch.zeros(4, 2), torch.zeros(4, 2))  # collapsed: 25 (gamma - sqrt(eps))
    tensor(24.7500)
    """
    embeddings("N, P", z1=z1, z2=z2)
    inside("[0, inf)", invariance=invariance, variance=variance, covariance=covariance)
    s, v, c = vicreg_terms(z1, z2, gamma=gamma, eps=eps)
    return invariance * s + variance * v + covariance * c


def vicreg_terms(z1: Tensor, z2: Tensor, gamma: float = 1.0, eps: float = 1e-4) -> tuple[Tensor, Tensor, Tensor]:
    r"""Return the invariance, variance and covariance terms: s >= 0, v in [0, gamma - sqrt(eps)] and c >= 0.

    .. math::
        s(Z, Z') &= \frac{1}{N P} \sum_i \| z_i - z'_i \|_2^2 \\
        v(Z, Z') &= \frac{v(Z) + v(Z')}{2}, \quad
            v(Z) = \frac1P \sum_j \max\Big(0, \gamma - \sqrt{\mathrm{Var}(z^j) + \epsilon}\Big) \\
        c(Z, Z') &= c(Z) + c(Z'), \quad c(Z) = \frac1P \sum_{j \ne k} C(Z)_{jk}^2, \quad
            C(Z) = \frac{1}{N-1} \sum_i (z_i - \bar z)(z_i - \bar z)^T

    Eq. 1-5 of Bardes, Ponce & LeCun (2022) as in their official code. There, s is a mean over N and P, although Eq. 5
    divides by N only. v is a mean over both views, although Eq. 6 takes the sum. Variance and covariance divide by N-1.
    The covariance takes O(N P^2) time and P^2 numbers per view: 256 MiB at P = 8192 in float32. The terms are scalars
    in float32 (float64 for float64 input). Autocast has no effect.

    Args:
        z1: (N, P), embeddings of view 1, N >= 2. Any float dtype.
        z2: (N, P), embeddings of view 2.
        gamma: The standard deviation that every dimension shall reach, > 0.
        eps: Added to the variances, so that their roots have a finite gradient at 0; 0 < eps < gamma^2.

    >>> z = torch.tensor([[1.0, 1.0], [-1.0, -1.0]])
    >>> vicreg_terms(z, -z)  # wide enough, but on one line: both covariances are 2
    (tensor(4.), tensor(0.), tensor(8.))
    """
    embeddings("N, P", z1=z1, z2=z2)
    check_spread(gamma, eps)
    check_views(z1, z2, least=0)
    if len(z1) < 2:
        raise ValueError(f"Expected `z1` and `z2` with N >= 2 samples, which have a variance, but got {len(z1)}.")
    with torch.autocast(z1.device.type, enabled=False):
        x1, x2 = in_full_precision(z1, z2)
        s = (x1 - x2).square().mean()
        v = (_variance(x1, gamma, eps) + _variance(x2, gamma, eps)) / 2
        c = _covariance(x1) + _covariance(x2)
        return s, v, c


def check_spread(gamma: float, eps: float) -> None:
    """Raise a ValueError unless gamma > 0 and 0 < eps < gamma^2."""
    inside("(0, inf)", gamma=gamma)
    # With a larger eps, the variance term is 0 for all embeddings.
    if isinstance(eps, str | bool) or not 0 < eps < gamma**2:
        raise ValueError(f"Expected `eps` with 0 < eps < gamma^2 = {gamma**2}, but got {eps!r}.")


def _variance(x: Tensor, gamma: float, eps: float) -> Tensor:  # Eq. 1 and 2
    return torch.relu(gamma - (x.var(dim=0) + eps).sqrt()).mean()


def _covariance(x: Tensor) -> Tensor:  # Eq. 3 and 4
    n, p = x.shape
    x = x - x.mean(dim=0)
    covariance = matrix_product(x.T, x) / (n - 1)  # (P, P)
    own = torch.eye(p, dtype=torch.bool, device=x.device)
    return covariance.masked_fill(own, 0).square().sum() / p
