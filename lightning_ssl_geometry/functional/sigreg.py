r"""SIGReg's statistic: a test of normality of projections onto random lines.

Balestriero & LeCun, LeJEPA: Provable and Scalable Self-Supervised Learning Without the Heuristics (2025). The test is
that of Epps & Pulley, A test for normality based on the empirical characteristic function (1983), against N(0, 1). With
:math:`\hat\phi(t) = \frac1N \sum_n e^{i t x_n}` and :math:`\phi(t) = e^{-t^2 / 2}`,

.. math:: T(x) = N \int |\hat\phi(t) - \phi(t)|^2\, w(t)\, dt, \quad w(t) = e^{-t^2 / 2}
"""

__all__ = ["epps_pulley", "sigreg"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings, positive, rows, shaped
from lightning_ssl_geometry.precision import in_float64


def sigreg(
    h: Tensor,
    num_slices: int = 256,
    *,
    standardize: bool = False,
    generator: torch.Generator | None = None,
    t_max: float = 5.0,
    num_points: int = 17,
) -> Tensor:
    r"""Return the mean Epps-Pulley statistic over random directions, in O(N num_slices (D + num_points)) time.

    .. math:: \frac{1}{|A|} \sum_{a \in A} T(\{a^T h_n\}_n), \quad a \text{ uniform on the sphere}

    SIGReg of Balestriero & LeCun 2025, with the settings of their Algorithm 1. T is :func:`epps_pulley` of the
    projections onto a. The result is a float64 scalar >= 0. For rows of N(0, I) it is about 1.06 for all N and D. For
    other distributions it is proportional to N, for example 0.41 N if all rows are 0.

    Args:
        h: (N, D), any float dtype; computed in float64.
        num_slices: |A| >= 1, the number of directions.
        standardize: First subtract the mean row, and divide h by the root of the mean variance of its columns.
        generator: Draws the directions, on the CPU; None: torch's global one.
        t_max: Largest node of the integral, > 0.
        num_points: Number of nodes, >= 3.

    Raises:
        ValueError: If `h` is not (N, D), an argument is out of range, or all rows are equal with `standardize`.
    """
    embeddings("N, D", h=h)
    shaped("N, D", h=h)
    rows(1, h=h)
    at_least(1, num_slices=num_slices)
    h = in_float64(h)
    if standardize:
        if (h == h[0]).all():
            raise ValueError("Expected `h` with rows that vary, to standardise them, but all are equal.")
        h = h - h.mean(0)
        h = h / h.square().mean().sqrt()
    directions = torch.randn(num_slices, h.shape[1], generator=generator, dtype=torch.float64).to(h.device)
    directions = directions / directions.norm(dim=1, keepdim=True)
    return epps_pulley(h @ directions.T, t_max=t_max, num_points=num_points).mean()


def epps_pulley(x: Tensor, *, t_max: float = 5.0, num_points: int = 17) -> Tensor:
    r"""Return the Epps-Pulley statistic of samples against N(0, 1), by the trapezoidal rule in O(N num_points) time.

    .. math:: T(x) = N \sum_j \omega_j\, w(t_j) \Bigl[\bigl(\tfrac1N \textstyle\sum_n \cos t_j x_n - \phi(t_j)\bigr)^2
        + \bigl(\tfrac1N \sum_n \sin t_j x_n\bigr)^2\Bigr]

    Here :math:`w(t) = \phi(t) = e^{-t^2 / 2}`. The nodes :math:`t_j` are equally spaced from -t_max to t_max.
    :math:`\omega_j` is their spacing, halved at both ends. The defaults are those of Algorithm 1 of Balestriero & LeCun
    2025. With them, the integral has an error of 1e-5 N for samples of N(0, 1), and 1e-3 N for samples in [-3, 3].
    Samples that differ by a multiple of 10.05 look equal, so wide distributions need more nodes.

    Args:
        x: (N, ...), samples first, any float dtype; computed in float64.
        t_max: Largest node, > 0.
        num_points: Number of nodes, >= 3.

    Returns:
        float64 of shape (...), from 0 to 7.5 N. Its expectation for samples of N(0, 1) is :math:`\sqrt{2 \pi} - \sqrt{2
        \pi / 3} = 1.0594` for every N.

    >>> f"{epps_pulley(torch.zeros(1)):.3f}"  # (2 pi)^0.5 (1 - 2 / 2^0.5 + 1 / 3^0.5)
    '0.409'
    """
    embeddings("N, ...", x=x)
    if not x.ndim or not len(x):
        raise ValueError(f"Expected `x` of shape (N, ...) with N >= 1, but got {tuple(x.shape)}.")
    positive(t_max=t_max)
    at_least(3, num_points=num_points)
    x = in_float64(x)
    t = torch.linspace(-t_max, t_max, num_points, dtype=torch.float64)
    phi = (-t.square() / 2).exp()
    distance = []
    for node, normal in zip(t.tolist(), phi.tolist(), strict=True):  # one by one, to save memory
        angle = node * x
        distance.append((angle.cos().mean(0) - normal).square() + angle.sin().mean(0).square())
    weight = (phi * 2 * t_max / (num_points - 1)).to(x.device)
    weight[[0, -1]] /= 2
    return len(x) * torch.tensordot(weight, torch.stack(distance), dims=1)
