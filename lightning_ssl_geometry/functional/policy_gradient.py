r"""The gradient of the information of an augmentation channel with respect to its policy P(T | X).

Contrastive Representation Learning with Trainable Augmentation Channel (CRL-TAC, arXiv 2111.07679). For N images, a
finite family of K augmentations and their normalised embeddings z_{ik}, Eq. 17 is a function of the probabilities
:math:`p_{ik} = P(t_k | x_i)` alone:

.. math:: J = \frac1N \sum_i \Bigl[\beta \Bigl\| \sum_k p_{ik} z_{ik} \Bigr\|^2 - \sum_k p_{ik} \log D(z_{ik})\Bigr],
    \quad D(z) = \frac1N \sum_{jl} p_{jl} \, e^{\beta z \cdot z_{jl}}

Its derivative with respect to p_{ik}, without the factor 1/N, is what a draw of t_k for x_i is worth:

.. math:: r_{ik} = 2 \beta \, z_{ik} \cdot \sum_l p_{il} z_{il} - \log D(z_{ik})
    - \frac1N \sum_{jl} p_{jl} \frac{e^{\beta z_{jl} \cdot z_{ik}}}{D(z_{jl})}
"""

__all__ = ["exact_channel_loss", "score_function_loss"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, floating, inside, shaped, switch, whole
from lightning_ssl_geometry.functional.augmentation_channel import log_sums
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows
from lightning_ssl_geometry.precision import in_float64


def exact_channel_loss(
    z: Tensor,
    log_policy: Tensor,
    inverse: Tensor | None = None,
    beta: float = 0.5,
    *,
    jensen: bool = True,
    eps: float = 1e-8,
    block_size: int = 2048,
) -> Tensor:
    r"""Compute -J of all K augmentations of N images: minus the information, without any draw.

    J stands at the top of this module. Its gradient with respect to `log_policy` is exact. Without `jensen`, the first
    term is :math:`\sum_k p_{ik} \log \sum_l p_{il} e^{\beta z_{ik} \cdot z_{il}}`, as in Eq. 2.

    Equal augmented images have the same embedding. With `inverse`, `z` has each embedding only once.

    Args:
        z: (N, K, P), embeddings of all augmentations, or (U, P), those of U different augmented images. Rows are
            normalised.
        log_policy: (N, K), logits or log-probabilities of the augmentations. A softmax over K normalises them.
        inverse: (N, K) int64, the row of `z` (U, P) for each augmentation of each image. None: `z` is (N, K, P).
        beta: Inverse temperature, > 0; it multiplies the cosine.
        jensen: Apply Jensen's inequality to the numerator, as in Eq. 17.
        eps: A row of at most this length is treated as 0.
        block_size: Rows of the (U, U) logits that are computed at once.

    Returns:
        A scalar in float32 (float64 for float64 input).

    Raises:
        ValueError: If a shape does not fit, `inverse` is not int64, or a value of `inverse`, `beta` or `block_size` is
            out of range.

    >>> z = torch.eye(2)[:, None].expand(2, 3, 2)  # two images with one embedding each, at right angles
    >>> f"{exact_channel_loss(z, torch.zeros(2, 3), beta=1.0):.4f}"  # log((e + 1) / 2) - 1
    '-0.3799'
    """
    embeddings("N, K, P" if inverse is None else "U, P", z=z)
    shaped("N, K", log_policy=log_policy)
    floating(log_policy=log_policy)
    n, k = log_policy.shape
    if not log_policy.numel():
        raise ValueError(f"Expected `log_policy` of shape (N, K), N >= 1 and K >= 1, but got {(n, k)}.")
    if inverse is None:
        shaped("N, K, P", {"N": n, "K": k}, z=z)
        z, inverse = z.flatten(0, 1), torch.arange(n * k, device=z.device).view(n, k)
    _rows_of(inverse, (n, k), len(z))
    inside("(0, inf)", beta=beta)
    inside("[0, inf)", eps=eps)
    switch(jensen=jensen)
    whole(1, block_size=block_size)
    with torch.autocast(z.device.type, enabled=False):
        x, _ = in_full_precision(z, z)
        x, _ = unit_rows(x, x, eps)
        p = log_policy.to(x.dtype).softmax(dim=1)
        share = x.new_zeros(len(x)).index_add(0, inverse.flatten(), p.flatten())  # of each row of z
        positive = _own(x, p, inverse, beta=beta, jensen=jensen)
        log_density = log_sums(x, _log(share / n), beta=beta, itself=True, block_size=block_size)
        return (share * log_density).sum() / n - positive.mean()


def score_function_loss(z: Tensor, log_probability: Tensor, beta: float = 0.5, *, eps: float = 1e-8) -> Tensor:
    r"""Return a scalar whose gradient estimates that of -J from draws of the policy, with a leave-one-out baseline.

    .. math:: -\frac{1}{N m} \sum_{ij} (\hat r_{ij} - \hat b_{ij}) \log P(t_{ij} | x_i)

    The m augmentations of each image are drawn from P(T | X). The estimate of r (top of this module) replaces sums over
    the policy by means over draws, without pairs of a draw with itself. The baseline of a draw is the mean of r over
    the other draws of the same image, computed without this draw. It reduces the noise and not the mean. The first term
    of r has no bias. The others have one that falls with N m, because D stands in a logarithm and in a denominator.

    The value itself has no meaning. There is no gradient with respect to `z`. Memory: O((N m)^2).

    Args:
        z: (N, m, P), embeddings of m >= 3 augmentations of N >= 2 images, drawn from the policy. Rows are normalised.
        log_probability: (N, m), log P(t_ij | x_i) of the drawn augmentations, with gradient.
        beta: Inverse temperature, > 0; it multiplies the cosine.
        eps: A row of at most this length is treated as 0.

    Returns:
        A scalar in float32 (float64 for float64 input).

    Raises:
        ValueError: If a shape does not fit, N < 2, m < 3, or `beta` is out of range.

    >>> z = torch.eye(3)[None].expand(2, 3, 3)  # all draws are worth the same
    >>> f"{score_function_loss(z, torch.zeros(2, 3)).abs():.3f}"
    '0.000'
    """
    embeddings("N, m, P", z=z)
    if len(z) < 2 or z.shape[1] < 3:
        raise ValueError(f"Expected `z` of shape (N, m, P), N >= 2 and m >= 3, but got {tuple(z.shape)}.")
    shaped("N, m", dict(zip("Nm", z.shape, strict=False)), log_probability=log_probability)
    floating(log_probability=log_probability)
    inside("(0, inf)", beta=beta)
    inside("[0, inf)", eps=eps)
    with torch.no_grad(), torch.autocast(z.device.type, enabled=False):
        x, _ = in_full_precision(z.detach(), z.detach())
        x, _ = unit_rows(x, x, eps)
        advantage = _advantage(in_float64(x), beta).to(x.dtype)
    return -(advantage * log_probability.to(advantage.dtype)).mean()


def _rows_of(inverse: Tensor, shape: tuple[int, int], rows: int) -> None:
    """Raise a ValueError unless `inverse` holds rows of a table. On a GPU, the values are not compared with `rows`."""
    shaped("N, K", dict(zip("NK", shape, strict=True)), inverse=inverse)
    if inverse.dtype != torch.int64:
        raise ValueError(f"Expected `inverse` of torch.int64, but got {inverse.dtype}.")
    if inverse.device.type == "cpu" and inverse.numel():
        for end in torch.stack(inverse.aminmax()).tolist():
            inside(f"[0, {rows})", inverse=end)


def _own(x: Tensor, p: Tensor, inverse: Tensor, *, beta: float, jensen: bool) -> Tensor:
    """The first term of J for each image, (N,)."""
    rows = x[inverse]  # (N, K, P)
    if jensen:
        return beta * (p[:, :, None] * rows).sum(1).square().sum(1)
    kernel = (beta * (rows @ rows.mT - 1)).exp()  # (N, K, K); the largest cosine is 1, so nothing overflows
    return (p * (beta + _log(kernel @ p[:, :, None])[:, :, 0])).sum(1)


def _log(x: Tensor) -> Tensor:
    return x.clamp_min(torch.finfo(x.dtype).tiny).log()


def _advantage(x: Tensor, beta: float) -> Tensor:
    """Return r minus its baseline for each draw, (N, m)."""
    n, m, _ = x.shape
    apart_by = torch.einsum("ijp,klp->ijkl", x, x) - 1  # cosine - 1, above 0 by rounding alone
    kernel = (beta * apart_by.clamp_max(0)).exp()  # (N, m, N, m)
    kernel = kernel.clamp_min(1e-300)  # which nothing else underflows to, either
    image = torch.arange(n, device=x.device)
    own = kernel[image, :, image]  # (N, m, m)
    kernel[image, :, image] = 0
    cosines = beta * x @ x.mT  # (N, m, m)
    apart = ~torch.eye(m, dtype=torch.bool, device=x.device)  # two different draws
    three = apart[:, :, None] & apart[:, None, :] & apart[None]  # j, k, l all different
    by_image = kernel.sum(3)  # (N, m, N)
    others = by_image.sum(2) / m  # (N, m)
    itself = _mean(own, apart)  # (N, m)
    density = (others + itself) / n  # D(z_ij) e^{-beta}, without the pair of a draw with itself
    # D without one further draw: of the same image, [i, j, k]: D(z_ik) without j, and of another, [k, l, i, j]
    within = (others[:, None] + _mean(own[:, None].expand(-1, m, -1, -1), three)) / n
    within = within.where(apart, 1)
    rest = _of_others(kernel, 3) / (m - 1)  # mean over the draws of image i without j
    across = (itself[..., None, None] + _of_others(by_image, 2)[..., None] / m + rest) / n
    reward = (
        2 * _mean(cosines, apart)
        - density.log()
        - ((kernel / across).sum((0, 1)) / m + _mean(own.mT / within, apart)) / n
    )
    # the same for k in place of j, without the draw j: (N, m, m), and then the mean over k
    inner = (
        2 * _mean(cosines[:, None].expand(-1, m, -1, -1), three)
        - within.log()
        - _mean(own.mT[:, None] / within[:, :, None, :], three) / n
    )
    return reward - _mean(inner, apart) + (rest / across).sum((0, 1)) / (m * n)


def _of_others(values: Tensor, dim: int) -> Tensor:
    """Sum over all other places along an axis. Nothing is subtracted, so a large value does not cancel the others."""
    size = values.shape[dim]
    none = torch.zeros_like(values.narrow(dim, 0, 1))
    before = torch.cat([none, values.narrow(dim, 0, size - 1)], dim).cumsum(dim)
    after = torch.cat([values.narrow(dim, 1, size - 1), none], dim).flip(dim).cumsum(dim).flip(dim)
    return before + after


def _mean(values: Tensor, chosen: Tensor) -> Tensor:
    """Mean over the last axis of the values that are chosen; 0 if none is."""
    return (values * chosen).sum(-1) / chosen.sum(-1).clamp_min(1)
