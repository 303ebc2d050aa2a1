r"""Content suppresses style: dimensionality collapse in contrastive learning (Rusak et al. 2022).

Content hardly changes between the two views of a sample; style changes. For InfoNCE with many negatives and a linear
encoder W, training starts with (Eq. 5)

.. math:: \frac{dW}{dt} \propto W [\Sigma_x - \Sigma_{\tilde x}]

where :math:`\Sigma_x` is the covariance of the anchors and :math:`\Sigma_{\tilde x}` the second moment of the change
from anchor to positive. Content has the larger gradient (Lemma 7). So the singular values of the gradient show the
number of content dimensions (Prop. 2). A lower temperature for content makes both gradients equal (Prop. 3).
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

from lightning_ssl_geometry.checks import at_least, embeddings, finite, inside, rows, shaped
from lightning_ssl_geometry.precision import in_float64


def content_style_temperature(dim: int, content_dim: int, tau_c: float, tau_s: float = 1.0) -> Tensor:
    """Return one temperature per dimension, (P,) in float64 with P = `dim`.

    The first `content_dim` dimensions (0 to P) are content and get `tau_c` > 0. The others, style, get `tau_s` > 0.
    """
    at_least(1, dim=dim)
    if not 0 <= content_dim <= dim:
        raise ValueError(f"Expected `content_dim` with 0 <= content_dim <= dim = {dim}, but got {content_dim}.")
    inside("(0, inf)", tau_c=tau_c, tau_s=tau_s)
    return torch.tensor([tau_c] * content_dim + [tau_s] * (dim - content_dim), dtype=torch.float64)


def equalizing_temperature(sigma_c: float, sigma_s: float, *, floor: float = 0.1) -> float:
    r"""Return the temperature of content that gives content and style equal gradients; style has temperature 1.

    .. math:: \tau_c = \sqrt{\alpha_c} = \sigma_c / \sigma_s

    Prop. 3 of Rusak et al. 2022. As in the proof, `InfoNCELoss` with `mode="feature"` divides the embeddings by
    :math:`\tau_c`. In its default mode, `InfoNCELoss` divides the squared differences, so that the square of this
    temperature has the same effect.

    Args:
        sigma_c: Standard deviation of the change of content between two views, >= 0.
        sigma_s: Standard deviation of the change of style between two views, > 0.
        floor: Smallest result, > 0. It replaces a smaller temperature, with a warning.
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
    r"""Return the marginal and the conditional covariance of pairs of samples, each (d, d) in float64.

    .. math:: \Sigma_x = E[(x - E x)(x - E x)^T], \quad \Sigma_{\tilde x} = E[(x - \tilde x)(x - \tilde x)^T]

    Lemma 5 of Rusak et al. 2022. The anchors x are the rows of `x1`, and their positives :math:`\tilde x` are the rows
    of `x2`, both (N, d) with N >= 2. E is the mean over the N pairs.

    >>> marginal, conditional = pair_covariances(torch.tensor([[0.0], [2.0]]), torch.tensor([[0.0], [4.0]]))
    >>> marginal.item(), conditional.item()
    (1.0, 2.0)
    """
    shaped("N, d", x1=x1, x2=x2)
    rows(2, x1=x1)
    x1, x2 = in_float64(x1), in_float64(x2)
    centred, change = x1 - x1.mean(dim=0), x1 - x2
    return centred.T @ centred / len(x1), change.T @ change / len(x1)


def gradient_spectrum(x1: Tensor, x2: Tensor, weight: Tensor | None = None) -> Tensor:
    r"""Return the singular values of a linear encoder's gradient at the start of training, (min(P, d),), descending.

    .. math:: \mathrm{svd}(W [\Sigma_x - \Sigma_{\tilde x}])

    Eq. 5 of Rusak et al. 2022 without its constant factor M + 1. The matrices are the :func:`pair_covariances` of the
    anchors `x1` and their positives `x2`, (N, d) with N >= 2. W is `weight` (P, d), by default the identity.

    >>> x = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]])
    >>> gradient_spectrum(x, x)  # the variances 0.5 and 2
    tensor([2.0000, 0.5000], dtype=torch.float64)
    """
    embeddings("N, D", x1=x1, x2=x2)
    return covariances_gradient_spectrum(*pair_covariances(x1, x2), weight)


def covariances_gradient_spectrum(marginal: Tensor, conditional: Tensor, weight: Tensor | None = None) -> Tensor:
    """Compute :func:`gradient_spectrum` from the matrices (d, d) of :func:`pair_covariances`; `weight` is (P, d)."""
    marginal, conditional = _covariances(marginal, conditional)
    gradient = marginal - conditional
    if weight is not None:
        shaped("P, d", {"d": len(marginal)}, weight=weight)
        gradient = in_float64(weight) @ gradient
    return torch.linalg.svdvals(gradient)


def content_dimension(x1: Tensor, x2: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6) -> Tensor:
    r"""Estimate the number :math:`d_c` of content dimensions, an int64 scalar from 0 to d - 1.

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2}), \quad r_1 \le \dots \le r_d

    The matrices are those of :func:`pair_covariances`. The ratio :math:`r_k` compares the change within a pair with the
    variance of the anchors. It is small for content and large for style. :math:`d_c` is the k with the largest factor
    :math:`r_{k+1} / r_k`. If this factor is below `min_ratio`, the result is 0.

    Prop. 2 of Rusak et al. 2022 uses the :func:`gradient_spectrum` instead of these ratios. But that spectrum hardly
    separates content from style if pairs are close. An invertible linear map of x does not change the ratios.

    Args:
        x1: (N, d), the anchors, N >= 2. Directions without variance are ignored.
        x2: (N, d), their positives.
        min_ratio: Smallest factor that separates content from style, > 1 and finite. For N pairs whose true ratios are
            all equal, the factor is about 1 + 2 sqrt(2 / N) by chance.
        eps: Smallest ratio, > 0. It replaces smaller ratios, which are rounding errors.

    >>> x1 = torch.randn(100, 4, generator=torch.Generator().manual_seed(0))
    >>> content_dimension(x1, x1 + torch.tensor([0.0, 0.0, 0.0, 0.1]) * x1.roll(1, dims=0)).item()
    3
    """
    embeddings("N, D", x1=x1, x2=x2)
    return covariances_content_dimension(*pair_covariances(x1, x2), min_ratio=min_ratio, eps=eps)


def covariances_content_dimension(
    marginal: Tensor, conditional: Tensor, *, min_ratio: float = 10.0, eps: float = 1e-6
) -> Tensor:
    """Compute :func:`content_dimension` from the matrices (d, d) of :func:`pair_covariances`."""
    return content_count(variance_ratios(marginal, conditional), min_ratio=min_ratio, eps=eps)


def variance_ratios(marginal: Tensor, conditional: Tensor, *, rtol: float = 1e-10) -> Tensor:
    r"""Return the ratios of conditional to marginal variance: (rank,) float64, ascending, with rank <= d.

    .. math:: r_k = \mathrm{eig}_k(\Sigma_x^{-1/2} \Sigma_{\tilde x} \Sigma_x^{-1/2})

    `marginal` :math:`\Sigma_x` and `conditional` :math:`\Sigma_{\tilde x}` (d, d) are the results of
    :func:`pair_covariances`. A ratio is 0 if the views of a pair are equal, and 2 if they are independent. A direction
    is ignored if its marginal variance is at most `rtol` >= 0 times the largest marginal variance.

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
    """Return the number of ratios before the largest jump, an int64 scalar from 0 to d - 1.

    The `ratios` (d,) from :func:`variance_ratios` are ascending. Ratios below `eps` > 0 count as `eps`. A jump is a
    ratio divided by the ratio before it. If all jumps are below `min_ratio`, which is > 1 and finite, the result is 0.

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
    return in_float64(marginal), in_float64(conditional)
