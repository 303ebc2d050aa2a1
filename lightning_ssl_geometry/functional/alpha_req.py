"""Power law lambda_i ~ i^-alpha, fitted to the eigenvalues of a representation.

Agrawal et al., alpha-ReQ: Assessing Representation Quality in Self-Supervised Learning by measuring eigenspectrum decay
(2022). They follow Stringer et al., High-dimensional geometry of population responses in visual cortex (2019). The
exponent depends strongly on the fitted range of indices i, so compare only exponents of the same range.
"""

__all__ = ["AlphaReQ", "alpha_req", "eigenvalues_alpha_req", "fit_range"]

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings
from lightning_ssl_geometry.functional.rounding import rounding_floor
from lightning_ssl_geometry.precision import in_float64


class AlphaReQ(NamedTuple):
    """A power law lambda_i ~ i^-alpha, fitted to the eigenvalues lambda_i in a range of indices i.

    Attributes:
        alpha: The exponent >= 0, a float64 scalar.
        r2: Explained fraction of the variance of log lambda, <= 1, a float64 scalar; NaN if all eigenvalues are equal.
        first: First index of the range, counted from 1.
        last: Last index of the range, inclusive.
    """

    alpha: Tensor
    r2: Tensor
    first: int
    last: int


def alpha_req(
    h: Tensor, first: int | None = None, last: int | None = None, *, center: bool = True, weighted: bool = False
) -> AlphaReQ:
    r"""Fit a power law to the eigenvalues of the covariance of the representations, in O(N D min(N, D)) time.

    .. math:: \lambda_i \propto i^{-\alpha}, \quad (\alpha, c) = \arg\min_{\alpha, c}
        \sum_{i=\mathrm{first}}^{\mathrm{last}} w_i\, (\log \lambda_i + \alpha \log i - c)^2

    This is the law of Agrawal et al. 2022. By default all :math:`w_i` are 1.

    Args:
        h: (N, D), N samples of D dimensions, or (V, N, D) for V views. All rows are used together. Computed in float64.
        first: First index of the range, counted from 1; None: chosen by :func:`fit_range`.
        last: Last index of the range, inclusive; None: chosen by :func:`fit_range`.
        center: Subtract the mean row first; otherwise the mean dominates lambda_1.
        weighted: Set :math:`w_i = 1/i`.

    Raises:
        ValueError: If `h` has a wrong shape or dtype, the range has fewer than 3 indices or exceeds the number of
            eigenvalues, or an eigenvalue in the range is 0 up to rounding.

    >>> h = torch.linalg.qr(torch.randn(40, 20)).Q * torch.arange(1, 21) ** -0.5
    >>> round(alpha_req(h, center=False).alpha.item(), 3)
    1.0
    """
    embeddings("N, D", "V, N, D", h=h)
    if h.ndim < 2 or not h.is_floating_point():
        shape = f"{tuple(h.shape)} of {h.dtype}"
        raise ValueError(f"Expected `h` of shape (N, D) or (V, N, D) and a float dtype, but got {shape}.")
    h = h.reshape(-1, h.shape[-1])
    floor, h = rounding_floor(h), in_float64(h)
    sigma = torch.linalg.svdvals(h - h.mean(0) if center else h)
    first, last = fit_range(min(len(h) - center, h.shape[1]), first, last)
    if not sigma[last - 1] > floor:
        zeros = f"{int((sigma[:last] <= floor).sum())} zeros among the first {last}"
        raise ValueError(f"Expected eigenvalues > 0 from `first` = {first} to `last` = {last}, but got {zeros}.")
    return eigenvalues_alpha_req(sigma.square() / len(h), first, last, weighted=weighted)


def eigenvalues_alpha_req(eigenvalues: Tensor, first: int, last: int, *, weighted: bool = False) -> AlphaReQ:
    """Compute :func:`alpha_req` from `eigenvalues` (D,), descending; NaN if an eigenvalue in the range is 0."""
    first, last = fit_range(len(eigenvalues), first, last)
    index = in_float64(torch.arange(first, last + 1, device=eigenvalues.device))
    weight = index.reciprocal() if weighted else torch.ones_like(index)
    weight = weight / weight.sum()
    x, y = index.log(), in_float64(eigenvalues[first - 1 : last]).log()
    x, y = x - weight @ x, y - weight @ y
    slope = (weight @ (x * y)) / (weight @ x.square())
    rest = y - slope * x
    r2 = 1 - (weight @ rest.square()) / (weight @ y.square())
    return AlphaReQ(alpha=-slope, r2=r2, first=first, last=last)


def fit_range(length: int, first: int | None = None, last: int | None = None) -> tuple[int, int]:
    """Return the first and the last index of the fit, counted from 1; None is replaced by a default.

    `length` is the number of eigenvalues. If it is below 16, the default range is 1 to `length`. Otherwise the first
    index is 4, because the three largest eigenvalues depend on the classes. The last index is `length` // 2, but at
    most 100, because few samples or dimensions make the smaller eigenvalues fall faster. A ValueError is raised if the
    range has fewer than 3 indices or does not lie between 1 and `length`.
    """
    whole = length < 16
    first = (1 if whole else 4) if first is None else first
    last = (length if whole else min(100, length // 2)) if last is None else last
    if not (first >= 1 and last >= first + 2 and last <= length):
        raise ValueError(
            f"Expected 1 <= `first` <= `last` - 2 and `last` <= {length}, the length of the spectrum, but got "
            f"{first} and {last}."
        )
    return first, last
