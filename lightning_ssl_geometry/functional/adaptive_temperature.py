r"""Content suppresses style: dimensionality collapse in contrastive learning (Rusak et al. 2022).

Between the two views of a sample, content does not change, or hardly, and style does. InfoNCE on a linear encoder W,
with many negatives, begins to move W by (Eq. 5)

.. math:: \frac{dW}{dt} \propto W [\Sigma_x - \Sigma_{\tilde x}]

where :math:`\Sigma_x` is the covariance of the anchors and :math:`\Sigma_{\tilde x}` that of what changes within a
pair: content has the larger gradient (Lemma 7), the spectrum tells how many content dimensions there are (Prop. 2), and
a temperature per dimension, lower for content, evens it out (Prop. 3).
"""

__all__ = [
    "content_count",
    "content_dimension",
    "content_style_temperature",
    "covariances_content_dimension",
    "covariances_gradient_spectrum",
    "equalizing_temperature",
    "gradient_spectrum",
    "pair_covariances",
    "variance_ratios",
]

import math
import warnings

import torch
from torch import Tensor


def content_style_temperature(dim: int, content_dim: int, tau_c: float, tau_s: float = 1.0) -> Tensor:
    """One temperature for content, which comes first, and another for style.

    Args:
        dim: P, the number of dimensions of the embeddings.
        content_dim: How many of them, the first ones, are content; from 0 to P.
        tau_c: Temperature of content, > 0.
        tau_s: Temperature of style, > 0.

    Returns:
        (P,) float64.

    Raises:
        ValueError: If an argument is out of its range.

    >>> content_style_temperature(4, content_dim=2, tau_c=0.5)
    tensor([0.5000, 0.5000, 1.0000, 1.0000], dtype=torch.float64)
    """
    if dim < 1:
        raise ValueError(f"Expected `dim` >= 1, but got {dim}.")
    if not 0 <= content_dim <= dim:
        raise ValueError(f"Expected `content_dim` with 0 <= content_dim <= dim = {dim}, but got {content_dim}.")
    for name, tau in (("tau_c", tau_c), ("tau_s", tau_s)):
        _check_positive(name, tau)
    return torch.tensor([tau_c] * content_dim + [tau_s] * (dim - content_dim), dtype=torch.float64)


def equalizing_temperature(sigma_c: float, sigma_s: float, *, floor: float = 0.1) -> float:
    r"""The temperature of content that gives content and style gradients of one size, where style has temperature 1.

    .. math:: \tau_c = \sqrt{\alpha_c} = \sigma_c / \sigma_s

    Prop. 3 of Rusak et al. Its proof divides :math:`\sigma_c^2` by :math:`\alpha_c`: the feature by
    :math:`\sqrt{\alpha_c}`, its squared difference by :math:`\alpha_c`. A temperature of InfoNCE divides the squared
    difference; the printed value there is thus milder than the proof. For the proof's give the loss `mode="feature"`,
    which divides the feature.

    Exact content (:math:`\sigma_c = 0`) would have temperature 0, which no loss has: no value is below `floor`.

    Args:
        sigma_c: Standard deviation of content within a pair, >= 0.
        sigma_s: Standard deviation of style within a pair, > 0.
        floor: The smallest value that is returned, > 0; in its place of a smaller one, with a warning that says so.

    Returns:
        A number >= `floor`.

    Raises:
        ValueError: If an argument is out of its range.

    >>> equalizing_temperature(0.2, 0.4)
    0.5
    """
    if not 0 <= sigma_c < math.inf:
        raise ValueError(f"Expected `sigma_c` >= 0 and finite, but got {sigma_c}.")
    _check_positive("sigma_s", sigma_s)
    _check_positive("floor", floor)
    tau = sigma_c / sigma_s
    if tau < floor:
        warnings.warn(
            f"The equalizing temperature of content, {tau:.3g}, is below `floor` = {floor}, which is used instead.",
            stacklevel=2,
        )
    return max(tau, floor)


def pair_covariances(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    r"""The two covariances of Lemma 5, of the anchors and of what changes within a pair.

    .. math:: \Sigma_x = E[(x - E x)(x - E x)^T], \quad \Sigma_{\tilde x} = E[(x - \tilde x)(x - \tilde x)^T]

    Args:
        x1: (N, d), the anchors x; N >= 2.
        x2: (N, d), their positives.

    Returns:
        Marginal and conditional covariance, each (d, d) float64; both are means over N.

    Raises:
        ValueError: If the shapes differ or are not (N, d) with N >= 2.

    >>> marginal, conditional = pair_covariances(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [4.0]]))
    >>> marginal.item(), conditional.item()
    (1.0, 2.0)
    """
    if x1.ndim != 2 or len(x1) < 2:
        raise ValueError(f"Expected `x1` of shape (N, d) with N >= 2, but got {tuple(x1.shape)}.")
    if x2.shape != x1.shape:
        raise ValueError(f"Expected `x2` of the same shape as `x1`, {tuple(x1.shape)}, but got {tuple(x2.shape)}.")
    x1, x2 = x1.double(), x2.double()
    centred, change = x1 - x1.mean(dim=0), x1 - x2
    return centred.T @ centred / len(x1), change.T @ change / len(x1)


def gradient_spectrum(x1: Tensor, x2: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Singular values of the gradient of a linear encoder.

    .. math:: \mathrm{svd}(W [\Sigma_x - \Sigma_{\tilde x}])

    Eq. 5 of Rusak et al., without the factor M + 1, which counts pairs; the covariances are those of
    :func:`pair_covariances`.

    Args:
        x1: (N, d), the anchors; N >= 2.
        x2: (N, d), their positives.
        weight: W (P, d), the encoder; None: that of the first steps up to its scale, the identity.

    Returns:
        (min(P, d),) float64, descending, >= 0.

    Raises:
        ValueError: If a shape is wrong, or a value not finite.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> gradient_spectrum(x, x)  # the variances 0.5 and 2
    tensor([2.0000, 0.5000], dtype=torch.float64)
    """
    return covariances_gradient_spectrum(*pair_covariances(x1, x2), weight)


def covariances_gradient_spectrum(marginal: Tensor, conditional: Tensor, weight: Tensor | None = None) -> Tensor:
    """The same as :func:`gradient_spectrum`, from the two covariances of :func:`pair_covariances`.

    Args:
        marginal: (d, d), covariance of the anchors.
        conditional: (d, d), covariance of what changes within a pair.
        weight: W (P, d), or None.

    Returns:
        (min(P, d),) float64, descending, >= 0.

    Raises:
        ValueError: If a shape is wrong, or a value not finite.

    >>> covariances_gradient_spectrum(torch.eye(2), torch.diag(torch.tensor([0.0, 0.5])))
    tensor([1.0000, 0.5000], dtype=torch.float64)
    """
    _check_covariances(marginal, conditional)
    gradient = marginal.double() - conditional.double()
    if weight is not None:
        if weight.ndim != 2 or weight.shape[1] != len(marginal):
            raise ValueError(
                f"Expected `weight` of shape (P, d) with d = {len(marginal)}, but got {tuple(weight.shape)}."
            )
        gradient = weight.double() @ gradient
    return torch.linalg.svdvals(gradient)


def content_dimension(x1: Tensor, x2: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6) -> Tensor:
    r"""The number of content dimensions, :math:`d_c`.

    Prop. 2 of Rusak et al. reads it off the singular values of Eq. 5, which are :math:`\sigma_z^2 - \sigma_c^2` for
    content and :math:`\sigma_z^2 - \sigma_s^2` for style. This departs from it: where pairs are close, as with
    :math:`\sigma_s` = 0.05 in the unit box, the two are 3% apart, less than the spread of :math:`\sigma_z^2` or of the
    mixing. Instead, the directions are those along which the ratio of the two variances is stationary, whose ratios
    no invertible linear map of x changes,

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2}), \quad r_1 \le \dots \le r_d,

    so that 1 - r is the spectrum of Eq. 5 for whitened x. :math:`d_c` is where r grows most, by a factor
    :math:`r_{k+1} / r_k`; or 0, if nowhere by `min_ratio`. So it is where all is content, which nothing tells from
    style with equally close pairs.

    Args:
        x1: (N, d), the anchors; N >= 2. Directions in which they do not vary are left out.
        x2: (N, d), their positives.
        min_ratio: The smallest factor that separates content from style, > 1. For equal true ratios, sampling alone
            gives a factor of about 1 + 2 sqrt(2 / N).
        eps: > 0; a smaller r counts as this: below, the ratios of exact content are those of rounding errors.

    Returns:
        A scalar, int64, from 0 to d - 1.

    Raises:
        ValueError: If a shape is wrong, a value not finite, or an argument out of its range.

    >>> x1 = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    >>> x2 = x1 + torch.tensor([0.0, 0.0, 0.0, 0.1]) * x1.roll(1, dims=0)
    >>> content_dimension(x1, x2).item()
    3
    """
    return covariances_content_dimension(*pair_covariances(x1, x2), min_ratio=min_ratio, eps=eps)


def covariances_content_dimension(
    marginal: Tensor, conditional: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6
) -> Tensor:
    """The same as :func:`content_dimension`, from the two covariances of :func:`pair_covariances`.

    Args:
        marginal: (d, d), covariance of the anchors.
        conditional: (d, d), covariance of what changes within a pair.
        min_ratio: As in :func:`content_dimension`.
        eps: As in :func:`content_dimension`.

    Returns:
        A scalar, int64, from 0 to d - 1.

    Raises:
        ValueError: If a shape is wrong, a value not finite, or an argument out of its range.

    >>> covariances_content_dimension(torch.eye(3), torch.diag(torch.tensor([0.5, 0.0, 0.5]))).item()
    1
    """
    return content_count(variance_ratios(marginal, conditional), min_ratio=min_ratio, eps=eps)


def variance_ratios(marginal: Tensor, conditional: Tensor, *, rtol: float = 1e-10) -> Tensor:
    r"""Conditional over marginal variance along the directions in which this ratio is stationary.

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2})

    Args:
        marginal: (d, d), covariance of the anchors.
        conditional: (d, d), covariance of what changes within a pair.
        rtol: Directions whose marginal variance is at most this fraction of the largest are left out: the anchors do
            not vary there. The square of float32's rounding error is 1e-14.

    Returns:
        (rank,) float64, ascending, >= 0 up to rounding: 0 where the pairs agree, 2 where they are independent.

    Raises:
        ValueError: If a shape is wrong, a value not finite, or `rtol` negative.

    >>> variance_ratios(torch.diag(torch.tensor([4.0, 1.0])), torch.diag(torch.tensor([1.0, 1.0])))
    tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    _check_covariances(marginal, conditional)
    if not rtol >= 0:
        raise ValueError(f"Expected `rtol` >= 0, but got {rtol}.")
    variance, directions = torch.linalg.eigh(marginal.double())
    varies = variance > rtol * variance.amax()
    whitening = directions[:, varies] * variance[varies].rsqrt()  # (d, rank)
    return torch.linalg.eigvalsh(whitening.T @ conditional.double() @ whitening)


def content_count(ratios: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6) -> Tensor:
    """Where ratios of conditional to marginal variance grow most, if they do by `min_ratio`: how many are content.

    Args:
        ratios: (d,), ascending, as from :func:`variance_ratios`.
        min_ratio: As in :func:`content_dimension`.
        eps: As in :func:`content_dimension`.

    Returns:
        A scalar, int64, from 0 to d - 1.

    Raises:
        ValueError: If `min_ratio` is not above 1, or `eps` not positive.

    >>> content_count(torch.tensor([0.0, 1e-4, 0.5, 0.6])).item()
    2
    """
    if not 1 < min_ratio < math.inf:
        raise ValueError(f"Expected `min_ratio` > 1 and finite, but got {min_ratio}.")
    _check_positive("eps", eps)
    if len(ratios) < 2:
        return torch.zeros((), dtype=torch.int64, device=ratios.device)
    floored = ratios.clamp(min=eps)
    growth, place = (floored[1:] / floored[:-1]).max(dim=0)
    return torch.where(growth >= min_ratio, place + 1, 0)


def _check_positive(name: str, value: float) -> None:
    if not 0 < value < math.inf:
        raise ValueError(f"Expected `{name}` > 0 and finite, but got {value}.")


def _check_covariances(marginal: Tensor, conditional: Tensor) -> None:
    if marginal.ndim != 2 or marginal.shape[0] != marginal.shape[1] or not marginal.numel():
        raise ValueError(f"Expected `marginal` of shape (d, d), but got {tuple(marginal.shape)}.")
    if conditional.shape != marginal.shape:
        raise ValueError(
            f"Expected `conditional` of the shape of `marginal`, {tuple(marginal.shape)}, but got "
            f"{tuple(conditional.shape)}."
        )
    for name, covariance in (("marginal", marginal), ("conditional", conditional)):
        if not covariance.isfinite().all():
            raise ValueError(f"Expected `{name}` to be finite, but got {covariance[~covariance.isfinite()][0].item()}.")
