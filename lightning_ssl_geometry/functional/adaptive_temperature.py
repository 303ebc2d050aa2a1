r"""Content suppresses style: dimensionality collapse in contrastive learning (Rusak et al. 2022).

Between the two views of a sample, content changes little or not at all, and style changes. For InfoNCE with many
negatives on a linear encoder W, training starts with (Eq. 5)

.. math:: \frac{dW}{dt} \propto W [\Sigma_x - \Sigma_{\tilde x}]

where :math:`\Sigma_x` is the covariance of the anchors and :math:`\Sigma_{\tilde x}` that of the change within a pair.
Content has the larger gradient (Lemma 7), the spectrum shows the number of content dimensions (Prop. 2), and lower
temperatures for content make the gradients equal (Prop. 3).
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

import warnings

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, finite, inside, rows, shaped


def content_style_temperature(dim: int, content_dim: int, tau_c: float, tau_s: float = 1.0) -> Tensor:
    """Return temperatures (P,) float64: one value for the first dimensions, content, and another for the rest, style.

    The first `content_dim` of P = `dim` dimensions get `tau_c` > 0, the others `tau_s` > 0; 0 <= `content_dim` <= P.
    """
    at_least(1, dim=dim)
    if not 0 <= content_dim <= dim:
        raise ValueError(f"Expected `content_dim` with 0 <= content_dim <= dim = {dim}, but got {content_dim}.")
    inside("(0, inf)", tau_c=tau_c, tau_s=tau_s)
    return torch.tensor([tau_c] * content_dim + [tau_s] * (dim - content_dim), dtype=torch.float64)


def equalizing_temperature(sigma_c: float, sigma_s: float, *, floor: float = 0.1) -> float:
    r"""Return the temperature of content that makes the gradients of content and of style (temperature 1) equal.

    .. math:: \tau_c = \sqrt{\alpha_c} = \sigma_c / \sigma_s

    Prop. 3 of Rusak et al. Its proof divides the feature by :math:`\sqrt{\alpha_c}`, and thereby the squared difference
    by :math:`\alpha_c`; a temperature of InfoNCE divides the squared difference, unless the loss has `mode="feature"`.

    Args:
        sigma_c: Standard deviation of content within a pair, >= 0.
        sigma_s: Standard deviation of style within a pair, > 0.
        floor: > 0; replaces a smaller result, with a warning. Content without change (sigma_c = 0) would have
            temperature 0.
    """
    inside("[0, inf)", sigma_c=sigma_c)
    inside("(0, inf)", sigma_s=sigma_s, floor=floor)
    tau = sigma_c / sigma_s
    if tau < floor:
        warnings.warn(
            f"The equalizing temperature of content, {tau:.3g}, is below `floor` = {floor}, which is used instead.",
            stacklevel=2,
        )
    return max(tau, floor)


def pair_covariances(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    r"""Return the two covariances of Lemma 5, of the anchors and of the change within a pair, (d, d) float64 each.

    .. math:: \Sigma_x = E[(x - E x)(x - E x)^T], \quad \Sigma_{\tilde x} = E[(x - \tilde x)(x - \tilde x)^T]

    The anchors `x1` and their positives `x2` are (N, d) with N >= 2. Both means divide by N.

    >>> marginal, conditional = pair_covariances(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [4.0]]))
    >>> marginal.item(), conditional.item()
    (1.0, 2.0)
    """
    shaped("N, d", x1=x1, x2=x2)
    rows(2, x1=x1)
    x1, x2 = x1.double(), x2.double()
    centred, change = x1 - x1.mean(dim=0), x1 - x2
    return centred.T @ centred / len(x1), change.T @ change / len(x1)


def gradient_spectrum(x1: Tensor, x2: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Return the singular values (min(P, d),) of the gradient of a linear encoder, float64 and descending.

    .. math:: \mathrm{svd}(W [\Sigma_x - \Sigma_{\tilde x}])

    Eq. 5 of Rusak et al. without the factor M + 1, the number of pairs, and with :func:`pair_covariances` of the
    anchors `x1` and their positives `x2`, both (N, d) with N >= 2. The encoder W is `weight` (P, d); by default it is
    the identity, which is the encoder of the first steps up to scale.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> gradient_spectrum(x, x)  # the variances 0.5 and 2
    tensor([2.0000, 0.5000], dtype=torch.float64)
    """
    return covariances_gradient_spectrum(*pair_covariances(x1, x2), weight)


def covariances_gradient_spectrum(marginal: Tensor, conditional: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute :func:`gradient_spectrum` from the marginal and the conditional covariance, each (d, d)."""
    marginal, conditional = _covariances(marginal, conditional)
    gradient = marginal - conditional
    if weight is not None:
        shaped("P, d", {"d": len(marginal)}, weight=weight)
        gradient = weight.double() @ gradient
    return torch.linalg.svdvals(gradient)


def content_dimension(x1: Tensor, x2: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6) -> Tensor:
    r"""Estimate the number :math:`d_c` of content dimensions, an int64 scalar from 0 to d - 1.

    Prop. 2 of Rusak et al. uses the singular values of Eq. 5, which are :math:`\sigma_z^2 - \sigma_c^2` for content and
    :math:`\sigma_z^2 - \sigma_s^2` for style. For close pairs, such as :math:`\sigma_s` = 0.05 in the unit box, the two
    differ by 3%, less than the spread of :math:`\sigma_z^2` or of the mixing. This function instead uses the variances
    of the change within a pair after x is whitened, ratios that do not change under invertible linear maps of x:

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2}), \quad r_1 \le \dots \le r_d

    1 - r is the spectrum of Eq. 5 for whitened x. :math:`d_c` is the k with the largest factor :math:`r_{k+1} / r_k`,
    or 0 if that factor is below `min_ratio`. It is also 0 if all dimensions are content, which cannot be told from
    style with equally close pairs.

    Args:
        x1: (N, d), the anchors; N >= 2. Directions without variance are ignored.
        x2: (N, d), their positives.
        min_ratio: The smallest factor that separates content from style, > 1 and finite. For equal true ratios,
            sampling alone gives a factor of about 1 + 2 sqrt(2 / N).
        eps: > 0; replaces a smaller r, since content without change leaves only rounding errors.

    >>> x1 = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    >>> content_dimension(x1, x1 + torch.tensor([0.0, 0.0, 0.0, 0.1]) * x1.roll(1, dims=0)).item()
    3
    """
    return covariances_content_dimension(*pair_covariances(x1, x2), min_ratio=min_ratio, eps=eps)


def covariances_content_dimension(
    marginal: Tensor, conditional: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6
) -> Tensor:
    """Compute :func:`content_dimension` from the marginal and the conditional covariance, each (d, d)."""
    return content_count(variance_ratios(marginal, conditional), min_ratio=min_ratio, eps=eps)


def variance_ratios(marginal: Tensor, conditional: Tensor, *, rtol: float = 1e-10) -> Tensor:
    r"""Return ratios of conditional to marginal variance, along the directions in which the ratio is stationary.

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2})

    Args:
        marginal: (d, d), covariance of the anchors.
        conditional: (d, d), covariance of the change within a pair.
        rtol: >= 0; ignore directions whose marginal variance is at most this fraction of the largest. The square of
            float32's rounding error is 1e-14.

    Returns:
        (rank,) float64, ascending, >= 0 up to rounding: 0 for equal pairs, 2 for independent ones.

    >>> variance_ratios(torch.diag(torch.tensor([4.0, 1.0])), torch.diag(torch.tensor([1.0, 1.0])))
    tensor([0.2500, 1.0000], dtype=torch.float64)
    """
    marginal, conditional = _covariances(marginal, conditional)
    at_least(0, rtol=rtol)
    variance, directions = torch.linalg.eigh(marginal)
    varies = variance > rtol * variance.amax()
    whitening = directions[:, varies] * variance[varies].rsqrt()  # (d, rank)
    return torch.linalg.eigvalsh(whitening.T @ conditional @ whitening)


def content_count(ratios: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6) -> Tensor:
    """Return the number of :func:`variance_ratios` before their largest jump, an int64 scalar from 0 to d - 1.

    The ratios (d,) are ascending, and `eps` > 0 replaces smaller ones. If the largest jump is a factor below
    `min_ratio`, which is > 1 and finite, the result is 0.

    >>> content_count(torch.tensor([0.0, 1e-4, 0.5, 0.6])).item()
    2
    """
    inside("(1, inf)", min_ratio=min_ratio)
    inside("(0, inf)", eps=eps)
    if len(ratios) < 2:
        return torch.zeros((), dtype=torch.int64, device=ratios.device)
    floored = ratios.clamp(min=eps)
    growth, place = (floored[1:] / floored[:-1]).max(dim=0)
    return torch.where(growth >= min_ratio, place + 1, 0)


def _covariances(marginal: Tensor, conditional: Tensor) -> tuple[Tensor, Tensor]:
    shaped("d, e", marginal=marginal)
    shaped("d, d", {"d": len(marginal)}, marginal=marginal, conditional=conditional)
    rows(1, marginal=marginal)
    finite(marginal=marginal, conditional=conditional)
    return marginal.double(), conditional.double()
