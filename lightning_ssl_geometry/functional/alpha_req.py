r"""Exponent of a representation's eigenspectrum, lambda_i ~ i^-alpha, with the range of its fit.

Agrawal et al., alpha-ReQ: Assessing Representation Quality in Self-Supervised Learning by measuring eigenspectrum decay
(2022). The fit is Stringer et al.'s, High-dimensional geometry of population responses in visual cortex (2019). Its
range decides the number, and even the sign of its correlation with accuracy: only exponents of one range compare.
"""

__all__ = ["AlphaReQ", "alpha_req", "eigenvalues_alpha_req", "fit_range"]

from typing import NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.rounding import rounding_floor


class AlphaReQ(NamedTuple):
    """A power law, fitted to a range of eigenvalues.

    Attributes:
        alpha: float64 scalar, the exponent, >= 0.
        r2: float64 scalar, the part of the variance of log lambda that the line explains, at most 1; NaN where all
            eigenvalues of the range are equal.
        first: Of the range, counted from 1.
        last: Of the range, inclusive.
    """

    alpha: Tensor
    r2: Tensor
    first: int
    last: int


def alpha_req(
    h: Tensor, first: int | None = None, last: int | None = None, *, center: bool = True, weighted: bool = False
) -> AlphaReQ:
    r"""Exponent of the eigenvalues of the covariance of the representations.

    .. math:: \lambda_i \propto i^{-\alpha}, \quad (\alpha, c) = \arg\min_{\alpha, c}
        \sum_{i=\mathrm{first}}^{\mathrm{last}} w_i\, (\log \lambda_i + \alpha \log i - c)^2

    The law of Agrawal et al. Every index counts alike here (w = 1), as in a textbook's fit; the authors' code has
    Stringer's :math:`w_i = 1/i`, which is `weighted=True`.

    Args:
        h: (N, D) or (V, N, D); views are further rows. Any float dtype; computed in float64.
        first: Of the range, counted from 1; None as :func:`fit_range` says.
        last: Of the range, inclusive; None as :func:`fit_range` says.
        center: Subtract the mean row first, which makes it a covariance. Not centred, the mean is most of lambda_1.
        weighted: Weigh index i with 1/i.

    Returns:
        See :class:`AlphaReQ`; the range is always there. O(N D min(N, D)).

    Raises:
        ValueError: If `h` has fewer than 2 axes or no float dtype, the range has fewer than 3 indices or leaves the
            spectrum, or an eigenvalue in it is zero but for rounding, that of the dtype of `h` included: none is left
            out in silence.

    >>> h = torch.linalg.qr(torch.randn(40, 20)).Q * torch.arange(1, 21) ** -0.5
    >>> found = alpha_req(h, center=False)
    >>> f"{found.alpha:.3f} {found.r2:.3f} {found.first} {found.last}"
    '1.000 1.000 4 10'
    """
    if h.ndim < 2 or not h.is_floating_point():
        shape = f"{tuple(h.shape)} of {h.dtype}"
        raise ValueError(f"Expected `h` of shape (N, D) or (V, N, D) and a float dtype, but got {shape}.")
    h = h.reshape(-1, h.shape[-1])
    floor, h = rounding_floor(h), h.double()
    sigma = torch.linalg.svdvals(h - h.mean(0) if center else h)
    first, last = fit_range(min(len(h) - center, h.shape[1]), first, last)
    if not sigma[last - 1] > floor:
        zeros = f"{int((sigma[:last] <= floor).sum())} of those up to {last}"
        raise ValueError(f"Expected eigenvalues > 0 from `first` = {first} to `last` = {last}, but got 0 for {zeros}.")
    return eigenvalues_alpha_req(sigma.square() / len(h), first, last, weighted=weighted)


def eigenvalues_alpha_req(eigenvalues: Tensor, first: int, last: int, *, weighted: bool = False) -> AlphaReQ:
    """Compute :func:`alpha_req` from eigenvalues.

    Args:
        eigenvalues: (D,), descending, > 0 in the range.
        first: As in :func:`alpha_req`.
        last: As in :func:`alpha_req`.
        weighted: As in :func:`alpha_req`.

    Returns:
        See :class:`AlphaReQ`; NaN where an eigenvalue in the range is 0.

    Raises:
        ValueError: If the range has fewer than 3 indices or leaves the spectrum.

    >>> found = eigenvalues_alpha_req(2 * torch.arange(1.0, 9.0) ** -1.5, 2, 8)
    >>> f"{found.alpha:.3f}"
    '1.500'
    """
    first, last = fit_range(len(eigenvalues), first, last)
    index = torch.arange(first, last + 1, device=eigenvalues.device).double()
    weight = index.reciprocal() if weighted else torch.ones_like(index)
    weight = weight / weight.sum()
    x, y = index.log(), eigenvalues[first - 1 : last].double().log()
    x, y = x - weight @ x, y - weight @ y
    slope = (weight @ (x * y)) / (weight @ x.square())
    rest = y - slope * x
    return AlphaReQ(-slope, 1 - (weight @ rest.square()) / (weight @ y.square()), first, last)


def fit_range(length: int, first: int | None = None, last: int | None = None) -> tuple[int, int]:
    """Choose the indices of a spectrum that a power law is fitted to, where they are not given.

    The first three eigenvalues are left out, since they follow the classes and not the law; so is what comes after 100,
    where the authors' code ends, and the smaller half of the spectrum, which bends down by the number of samples and of
    dimensions. A spectrum of fewer than 16 eigenvalues has none to leave out, and is taken whole.

    Args:
        length: Of the spectrum.
        first: Counted from 1; None for 4, or 1 if length < 16.
        last: Inclusive; None for min(100, length // 2), or all if length < 16.

    Returns:
        `first` and `last`.

    Raises:
        ValueError: If they span fewer than 3 indices, which any line would fit, or leave the spectrum.

    >>> fit_range(512), fit_range(64), fit_range(8)
    ((4, 100), (4, 32), (1, 8))
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
