r"""The mutual information between an image and the embedding of its random augmentation.

Contrastive Representation Learning with Trainable Augmentation Channel (CRL-TAC, arXiv 2111.07679). An augmentation T
of the image X is drawn from P(T | X), and h is the encoder. The embedding Z has a density proportional to exp(beta Z .
h(T(X))). Then (Eq. 2)

.. math:: I(X; Z) = E_{X, Z} \log \frac{E_{T' | X} \exp(\beta \, Z \cdot h(T'(X)))}
    {E_{X', T'} \exp(\beta \, Z \cdot h(T'(X')))}

Two approximations turn -I(X; Z) into a contrastive loss (Eq. 17 to 20). Z is replaced by its mean h(T(X)), and Jensen's
inequality bounds the numerator. For a uniform P(T | X) the result is the loss of SimCLR. Jensen's inequality lowers the
information, and the mean raises it, often by more: the result is no bound of I(X; Z). It is a lower bound of the
information of two views (Eq. 3). The recipe of CRL-TAC measures both where I(X; Z) is known.
"""

__all__ = ["augmentation_channel_loss", "draw_members", "policy_entropy"]

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from lightning_ssl_geometry.checks import at_least, embeddings, inside, shaped
from lightning_ssl_geometry.functional.matrix_product import matrix_product
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows
from lightning_ssl_geometry.precision import in_float64


def augmentation_channel_loss(
    z: Tensor,
    log_weight: Tensor | None = None,
    beta: float = 0.5,
    *,
    jensen: bool = True,
    itself: bool = False,
    eps: float = 1e-8,
    block_size: int = 2048,
) -> Tensor:
    r"""Estimate -I(X; Z), where I is the mutual information of images X and embeddings Z (Eq. 2 of Koyama et al. 2021).

    .. math:: L = \frac1N \sum_i \Bigl[\sum_j w_{ij} \log
        \sum_{(i', j') \ne (i, j)} \frac{w_{i'j'}}{N - w_{ij}} e^{s_{ij, i'j'}} -
        \sum_j v_{ij} \log \sum_{j' \ne j} \frac{w_{ij'}}{1 - w_{ij}} e^{s_{ij, ij'}}\Bigr],
        \quad s_{ij, i'j'} = \beta \, z_{ij} \cdot z_{i'j'}

    Each of N images has m augmentations, drawn at random. If they are drawn uniformly, the weight :math:`w_{ij}` of
    augmentation j of image i is its probability under the policy P(T | X). If they are drawn from the policy, all
    weights are equal. :math:`v_{ij}` is proportional to :math:`w_{ij} (1 - w_{ij})`. The first logarithm compares an
    augmentation with all other augmentations. The second compares it with the other augmentations of the same image.
    With `jensen`, the weighted mean of s replaces the second logarithm, which increases the loss.

    For m = 2 and equal weights the loss is SimCLR's NT-Xent at temperature 1 / beta, minus log(2N - 1). No augmentation
    is compared with itself. With `itself`, each one is, :math:`v_{ij} = w_{ij}`, and no denominator subtracts a weight:
    the plainest reading of Eq. 2. As an estimate of the policy's gradient from uniform draws, both are biased towards a
    broad policy if few of the draws are probable; :mod:`.policy_gradient` has the exact gradient.

    Args:
        z: (N, m, P), embeddings of m >= 2 augmentations of N >= 2 images. Any float dtype; rows are normalised.
        log_weight: (N, m), finite, logarithms of the weights; a softmax over m normalises them. None: equal weights.
        beta: Inverse temperature, > 0; it multiplies the cosine.
        jensen: Apply Jensen's inequality to the second logarithm, as Koyama et al. do in their experiments (Eq. 17).
        itself: Whether an augmentation is also compared with itself.
        eps: A row of at most this length is treated as 0.
        block_size: Rows of the (N m, N m) logits that are computed at once.

    Returns:
        A scalar in float32 (float64 for float64 input), in [-2 beta, 2 beta]; 0 if all similarities are 0.

    Raises:
        ValueError: If a shape does not fit, N or m is below 2, or `beta` or `block_size` is out of range.

    >>> z = torch.eye(4).unflatten(0, (2, 2))  # all similarities are 0
    >>> f"{augmentation_channel_loss(z).abs():.3f}"
    '0.000'
    """
    embeddings("N, m, P", z=z)
    shaped("N, m, P", z=z)
    if min(z.shape[:2]) < 2:
        raise ValueError(f"Expected `z` of shape (N, m, P), N >= 2 and m >= 2, but got {tuple(z.shape)}.")
    if log_weight is not None:
        shaped("N, m", dict(zip("Nm", z.shape, strict=False)), log_weight=log_weight)
    inside("(0, inf)", beta=beta)
    at_least(1, block_size=block_size)
    n, m, _ = z.shape
    with torch.autocast(z.device.type, enabled=False):
        x, _ = in_full_precision(z, z)
        x, _ = unit_rows(x, x, eps)
        weight = x.new_zeros(n, m) if log_weight is None else log_weight.to(x.dtype)
        weight = weight.log_softmax(dim=1)  # (N, m)
        positive = _positive(matrix_product(beta * x, x.mT), weight, jensen=jensen, itself=itself)  # (N,)
        sums = log_sums(x.flatten(0, 1), weight.flatten(), beta=beta, itself=itself, block_size=block_size)
        total = math.log(n) if itself else (n - weight.exp()).log()
        negative = sums.unflatten(0, (n, m)) - total
        return ((weight.exp() * negative).sum(1) - positive).mean()


def log_sums(x: Tensor, log_weight: Tensor, *, beta: float, itself: bool, block_size: int) -> Tensor:
    r"""Return :math:`\log \sum_v w_v e^{\beta x_u \cdot x_v}` (R,) for unit rows x (R, P) with log-weights (R,).

    Without `itself`, v = u is left out. `block_size` rows of the (R, R) logits are computed at once.
    """
    blocks = torch.arange(len(x), device=x.device).split(block_size)
    again = len(blocks) > 1
    return torch.cat([_block(x, log_weight, block, beta=beta, again=again, itself=itself) for block in blocks])


def policy_entropy(log_policy: Tensor) -> Tensor:
    r"""Compute the entropy of each sample's distribution over K augmentations.

    .. math:: H(T | X = x_i) = -\sum_k P(t_k | x_i) \log P(t_k | x_i)

    `log_policy` (N, K) holds logits or log-probabilities; a softmax over K normalises them. A ValueError is raised if
    it does not have two axes. The result (N,) is in nats, from 0 (only one augmentation is drawn) to log K (uniform).

    >>> policy_entropy(torch.zeros(1, 4))  # log 4
    tensor([1.3863])
    """
    shaped("N, K", log_policy=log_policy)
    log_probability = log_policy.to(torch.promote_types(log_policy.dtype, torch.float32)).log_softmax(dim=1)
    finite = log_probability.clamp(min=torch.finfo(log_probability.dtype).min)  # 0 log 0 = 0
    return -(log_probability.exp() * finite).sum(1)


def draw_members(probability: Tensor, uniform: Tensor) -> Tensor:
    """Draw m of K augmentations for each sample, by inverting the cumulative distribution function.

    Args:
        probability: (N, K), rows that sum to 1.
        uniform: (N, m), random numbers from the uniform distribution on [0, 1).

    Returns:
        (N, m) int64, indices of augmentations, from 0 to K - 1. An augmentation of probability 0 is never drawn. The
        draws of a row that is not finite are arbitrary.

    >>> draw_members(torch.tensor([[0.5, 0.0, 0.5]]), torch.tensor([[0.4, 0.6]]))
    tensor([[0, 2]])
    """
    shaped("N, K", probability=probability)
    shaped("N, m", {"N": len(probability)}, uniform=uniform)
    cumulative = in_float64(probability).cumsum(1)
    place = in_float64(uniform) * cumulative[:, -1:]  # < the total, so never beyond the last member
    member = torch.searchsorted(cumulative, place, right=True)
    return member.clamp(max=probability.shape[1] - 1)  # which only NaN exceeds


def _positive(similarity: Tensor, log_weight: Tensor, *, jensen: bool, itself: bool) -> Tensor:
    same = torch.eye(similarity.shape[1], dtype=torch.bool, device=similarity.device) & (not itself)
    others = log_weight[:, None, :].expand_as(similarity).masked_fill(same, -torch.inf)  # (N, m, m)
    # log v; without `itself`, the bias towards a broad P(T | X) would be larger with v = w
    first = (log_weight + others.logsumexp(dim=2)).log_softmax(dim=1)
    second = others.log_softmax(dim=2)
    inner = (second.exp() * similarity).sum(2) if jensen else (second + similarity).logsumexp(dim=2)
    return (first.exp() * inner).sum(1)


def _block(rows: Tensor, log_weight: Tensor, block: Tensor, *, beta: float, again: bool, itself: bool) -> Tensor:
    def negative(rows: Tensor, log_weight: Tensor) -> Tensor:
        logits = matrix_product(beta * rows[block], rows.T) + log_weight  # (block, N m)
        if not itself:
            logits = logits.masked_fill(block[:, None] == torch.arange(len(rows), device=rows.device), -torch.inf)
        return logits.logsumexp(dim=1)

    if again:  # the backward pass computes the block again, to save memory
        recomputed: Tensor = checkpoint(negative, rows, log_weight, use_reentrant=False)
        return recomputed
    return negative(rows, log_weight)
