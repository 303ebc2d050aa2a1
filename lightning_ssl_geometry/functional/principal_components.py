"""Principal components of a representation, to draw it in few dimensions."""

__all__ = ["principal_components"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings
from lightning_ssl_geometry.precision import in_float64


def principal_components(h: Tensor, count: int = 2) -> tuple[Tensor, Tensor]:
    r"""Return the coordinates (N, count) of rows along their first principal directions, and shares of variance.

    .. math:: h - \bar h = U \Sigma V^T, \qquad \mathrm{points} = U \Sigma, \qquad
        \mathrm{share}_i = \frac{\sigma_i^2}{\sum_j \sigma_j^2}

    The largest entry of each direction, in absolute value, is positive, so that the signs do not depend on the order of
    the rows. The shares are (count,). Components beyond min(N, D) are 0, and all are 0 if all rows are equal. Cost:
    O(N D min(N, D)).

    Args:
        h: (N, D), N >= 1, D >= 1, any float dtype; computed in float64.
        count: Number of components, >= 1.

    Raises:
        ValueError: If the shape of `h` or `count` is wrong.

    >>> points, share = principal_components(torch.tensor([[0.0, 1.0], [2.0, 1.0]]))
    >>> points.round(decimals=6).tolist(), share.round(decimals=6).tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [1.0, 0.0])
    """
    at_least(1, count=count)
    embeddings("N, D", h=h)
    if not h.numel():
        raise ValueError(f"Expected `h` of shape (N, D) with N >= 1 and D >= 1, but got {tuple(h.shape)}.")
    rows = in_float64(h)
    u, sigma, v = torch.linalg.svd(rows - rows.mean(0), full_matrices=False)
    found = min(count, len(sigma))
    largest = v[:found].gather(1, v[:found].abs().argmax(1, keepdim=True))[:, 0]
    variance = (sigma / sigma[0].clamp_min(torch.finfo(rows.dtype).tiny)).square()  # may be too large for its square
    points, share = rows.new_zeros(len(rows), count), rows.new_zeros(count)
    points[:, :found] = u[:, :found] * sigma[:found] * largest.sign()
    share[:found] = variance[:found] / variance.sum().clamp_min(torch.finfo(rows.dtype).tiny)
    return points, share
