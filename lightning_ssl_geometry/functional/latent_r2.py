"""Adjusted R^2, on held-out samples, of a linear map from representations to the latents that generated the data.

Rusak et al., Content Suppresses Style: Dimensionality Collapse in Contrastive Learning (2022), Figure 1. The fit
ignores directions of h that are rounding errors or hardly vary over the fitted samples.
"""

__all__ = ["check_moments", "latent_r2", "moments_r2", "row_moments"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings, finite, inside, shaped
from lightning_ssl_geometry.precision import in_float64


def latent_r2(h: Tensor, z: Tensor, fit: Tensor | None = None, *, rcond: float = 1e-6, seen: float = 0.1) -> Tensor:
    r"""Fit a linear map with intercept to some samples and compute each latent's adjusted R^2 on the others.

    .. math:: 1 - (1 - R^2) \frac{n - 1}{n - p - 1}, \quad
        R^2 = 1 - \frac{\sum_i (z_i - \hat z_i)^2}{\sum_i (z_i - \bar z)^2}

    The sums are over the n scored samples, :math:`\hat z` is the prediction, and p is the number of directions of h
    that are used. The code of cl-ica, on which Rusak et al. 2022 build, fits and scores the same samples, with p = D.

    Args:
        h: (N, D) representations.
        z: (N, d) true latents.
        fit: (N,) booleans, the samples to fit; the others are scored. None: the first half is fitted.
        rcond: Features are divided by their root mean square first. Then a direction is dropped if its standard
            deviation is below this fraction of the largest root mean square of a direction.
        seen: A direction is dropped if its variance in the fitted samples is below this fraction of its total variance.

    Returns:
        float64 (d,), <= 1. It is 1 if a linear map predicts the latent, and about 0 if no linear map does. It is NaN if
        the latent does not vary over the scored samples.

    Raises:
        ValueError: If a shape is wrong, a value is not finite, `rcond` or `seen` is not in (0, 1), or n < p + 2.

    >>> h = torch.randn(64, 5, generator=torch.Generator().manual_seed(0))
    >>> [f"{r2:.3f}" for r2 in latent_r2(h, h @ torch.ones(5, 2) - 3)]
    ['1.000', '1.000']
    """
    embeddings("N, D", h=h, z=z)
    inside("(0, 1)", rcond=rcond, seen=seen)
    shaped("N, D", h=h)
    shaped("N, d", {"N": len(h)}, z=z)
    finite(h=h, z=z)
    fit = _mask(fit, h)
    h, z = in_float64(h), in_float64(z)
    directions = _directions(h, fit, rcond, seen=seen)  # (N, p)
    centered = directions - directions[fit].mean(0)
    guess = z[fit].mean(0)
    weight = centered[fit].T @ (z[fit] - guess) / centered[fit].square().sum(0)[:, None]  # (p, d), they are orthogonal
    error = (z - guess - centered @ weight)[~fit].square().mean(0)
    scored = z[~fit]
    return _adjusted(
        error, scored.var(0, correction=0), scored.square().mean(0), n=len(scored), p=len(weight), rcond=rcond
    )


def row_moments(h: Tensor, z: Tensor) -> Tensor:
    """Return the sum of the outer products of the vectors (1, h_i, z_i): (1 + D + d, 1 + D + d) in float64.

    The moments of all samples are the sum of the moments of the batches.

    >>> row_moments(torch.ones(3, 1), 2 * torch.ones(3, 1)).tolist()  # h (N, D) and z (N, d)
    [[3.0, 3.0, 6.0], [3.0, 3.0, 6.0], [6.0, 6.0, 12.0]]
    """
    rows = torch.cat([in_float64(h.new_ones(len(h), 1)), in_float64(h), in_float64(z)], 1)
    return rows.T @ rows


def moments_r2(fit: Tensor, score: Tensor, dim: int, *, rcond: float = 1e-6, seen: float = 0.1) -> Tensor:
    """Compute :func:`latent_r2` (d,) from the :func:`row_moments` of the fitted and of the scored samples; `dim` is D.

    Sums of squares lose directions below about 1e-7 of the largest, so `rcond` should not be much smaller.
    """
    inside("(0, 1)", rcond=rcond, seen=seen)
    check_moments(dim, fit=fit, score=score)
    whole, rows = fit + score, (fit + score)[0, 0]
    size = _sizes(whole.diagonal()[1 : dim + 1] / rows)
    whiten = _whitener(_second_moment(whole, dim) / size / size[:, None], _covariance(whole, dim, size), rcond)
    variance, basis = torch.linalg.eigh(whiten.T @ _covariance(fit, dim, size) @ whiten)
    kept = variance >= seen
    directions = whiten @ basis[:, kept] / size[:, None]  # (D, p)

    n, mean = int(score[0, 0]), fit[0, 1:] / fit[0, 0]
    covariance = fit[1:, 1:] / fit[0, 0] - torch.outer(mean, mean)
    weight = directions @ (directions.T @ covariance[:dim, dim:] / variance[kept, None])  # (D, d)
    residual = torch.cat([-weight, torch.eye(weight.shape[1], dtype=weight.dtype, device=weight.device)])
    scored = score[0, 1:] / n
    about = score[1:, 1:] / n - torch.outer(mean, scored) - torch.outer(scored - mean, mean)  # the fitted mean
    error = (residual * (about @ residual)).sum(0).clamp(min=0)  # rounding may give -1e-17
    square = score.diagonal()[dim + 1 :] / n
    return _adjusted(error, square - scored[dim:].square(), square, n=n, p=int(kept.sum()), rcond=rcond)


def _directions(h: Tensor, fit: Tensor, rcond: float, seen: float) -> Tensor:
    x = h / _sizes(h.square().mean(0))
    largest = torch.linalg.eigvalsh(x.T @ x)[-1].clamp(min=0).sqrt()
    left, sigma, _ = torch.linalg.svd(x - x.mean(0), full_matrices=False)
    white = left[:, sigma > rcond * largest] * len(h) ** 0.5
    fitted = white[fit] - white[fit].mean(0)
    _, deviation, basis = torch.linalg.svd(fitted / len(fitted) ** 0.5, full_matrices=False)
    return white @ basis[deviation.square() >= seen].T  # (N, p), uncorrelated over all rows and over `fit`


def _whitener(second_moment: Tensor, covariance: Tensor, rcond: float) -> Tensor:
    largest = torch.linalg.eigvalsh(second_moment)[-1]
    variance, basis = torch.linalg.eigh(covariance)
    kept = variance > rcond**2 * largest
    return basis[:, kept] / variance[kept].sqrt()  # (D, r), directions in which h has variance 1


def _second_moment(moments: Tensor, dim: int) -> Tensor:
    return moments[1 : dim + 1, 1 : dim + 1] / moments[0, 0]


def _covariance(moments: Tensor, dim: int, size: Tensor) -> Tensor:
    mean = moments[0, 1 : dim + 1] / moments[0, 0]
    return (_second_moment(moments, dim) - torch.outer(mean, mean)) / size / size[:, None]


def _sizes(mean_square: Tensor) -> Tensor:
    size = mean_square.sqrt()
    return torch.where(size > 0, size, 1.0)


def _adjusted(error: Tensor, variance: Tensor, square: Tensor, n: int, p: int, rcond: float) -> Tensor:
    if n < p + 2:
        raise ValueError(f"Expected at least {p + 2} scored samples for p = {p} directions of h, but got {n}.")
    share = error / variance * ((n - 1) / (n - p - 1))
    return torch.where(variance > rcond**2 * square, 1 - share, torch.nan)


def _mask(fit: Tensor | None, h: Tensor) -> Tensor:
    if fit is None:
        fit = torch.arange(len(h), device=h.device) < (len(h) + 1) // 2
    if fit.dtype != torch.bool or fit.shape != h.shape[:1]:
        raise ValueError(f"Expected `fit` (N,) of booleans, N = {len(h)}, but got {fit.dtype} {tuple(fit.shape)}.")
    if not fit.any():
        raise ValueError("Expected `fit` to name at least one sample, but got none.")
    return fit


def check_moments(dim: int, **moments: Tensor) -> None:
    """Raise a ValueError unless `moments` are finite :func:`row_moments` of at least one row, with D = `dim`."""
    size = len(next(iter(moments.values())))
    shaped("1 + D + d, 1 + D + d", {"1 + D + d": max(size, dim + 2)}, **moments)
    finite(**moments)
    for name, value in moments.items():
        if not value[0, 0] > 0:
            raise ValueError(f"Expected `{name}` of at least one sample, but got {value[0, 0]:g}.")
    at_least(1, dim=dim)
