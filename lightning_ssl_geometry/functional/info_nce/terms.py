"""InfoNCE split into an alignment and a uniformity term, anchor by anchor.

Rusak et al., Content suppresses style: dimensionality collapse in contrastive learning (2022), compare representations
by the two in Table 1. The split is that of Wang & Isola (2020), with the finite sum that InfoNCE has.
"""

__all__ = ["LossTerms", "alignment_uniformity_terms"]

from collections.abc import Sequence
from typing import Literal, NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.info_nce.settings import (
    check_length,
    check_settings,
    check_views,
    without_negatives,
)
from lightning_ssl_geometry.functional.info_nce.similarity import Dot, Similarity, SquaredDistance
from lightning_ssl_geometry.functional.info_nce.tiles import Contrast, negative_logsumexp
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


class LossTerms(NamedTuple):
    """What each anchor adds to InfoNCE: the means are the terms of the loss, the deviations their +- over samples.

    Attributes:
        align: (N,), minus the similarity to the positive.
        uniform: (N,), the log-sum-exp of the similarities to the negatives, the logarithm of the denominator.
        total: (N,), their sum.
    """

    align: Tensor
    uniform: Tensor
    total: Tensor


def alignment_uniformity_terms(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor = 1.0,
    *,
    normalize: bool = True,
    positive_in_denominator: bool = False,
    include_self: bool = False,
    similarity: Literal["dot", "distance"] = "dot",
    eps: float = 1e-8,
    block_size: int = 1024,
) -> LossTerms:
    r"""Split the InfoNCE of each anchor into what its positive adds and what its negatives do.

    .. math::
        L_\mathrm{align} &= \frac1N \sum_i -s(z_i, \tilde z_i), \quad
        L_\mathrm{uniform} = \frac1N \sum_i \log \sum_{j \ne i} \exp s(z_i, z_j) \\
        s(a, b) &= \sum_k \frac{a_k b_k}{\tau_k} \;\text{("dot")}, \quad
        s(a, b) = -\sum_k \frac{(a_k - b_k)^2}{\tau_k} \;\text{("distance")}

    Table 1 of Rusak et al. prints the means, and the standard deviations over the samples behind them; which similarity
    it means, it does not say: `normalize=False, similarity="distance"` on the box and "dot" on the sphere, both with
    temperature 1, give its numbers for the inverse of the process. The total, as it is printed there, is the sum of the
    two. So written it is the InfoNCE whose denominator lacks the positive, which has no least value: collapsed and
    scaled up, it falls to minus infinity. With `positive_in_denominator`, as in their Eq. 1, exp s of the pair joins
    the sum under the logarithm, total becomes :math:`\log(1 + e^\mathrm{total})`, and 0 is the least; with
    `include_self` too, as in the code of Zimmermann et al. (cl-ica), it is log 2, and the table's trained network on
    the box, 0.23 + 0.66 = 0.89, lies just above. Where many samples are near, all of these agree.

    The logits are computed in tiles: O(N P + block_size^2) memory, O(N^2 P) time. Differentiable once.

    Args:
        z1: (N, P), the anchors, N >= 2. Any float dtype.
        z2: (N, P), their positives.
        temperature: tau > 0 and finite, a number or one per dimension.
        normalize: Scale the rows to unit length.
        positive_in_denominator: Add exp s of the positive pair to the sum under the logarithm.
        include_self: The anchor itself counts among its negatives.
        similarity: "dot", or "distance": the negative squared distance.
        eps: A row no longer than this has no direction to normalise to: it counts as 0.
        block_size: Rows and columns of a tile of logits.

    Returns:
        Three tensors (N,) in float32 (float64 for float64 input); the mean of `total` is :func:`info_nce` with the same
        settings, `symmetric=False` and `negatives="same"`.

    Raises:
        ValueError: As :func:`info_nce`.

    >>> z = torch.eye(4)
    >>> [round(term.mean().item(), 3) for term in alignment_uniformity_terms(z, z)]  # -1, log 3
    [-1.0, 1.099, 0.099]
    """
    _check(z1, z2, temperature, normalize, positive_in_denominator, include_self, similarity, eps, block_size)
    with torch.autocast(z1.device.type, enabled=False):
        x1, x2 = in_full_precision(z1, z2)
        if normalize:
            x1, x2 = unit_rows(x1, x2, eps)
        scale = torch.as_tensor(temperature, dtype=x1.dtype, device=x1.device).rsqrt()
        x1, x2 = x1 * scale, x2 * scale  # either similarity is of degree 2
        logit: Similarity = Dot(1.0)
        if similarity == "distance":
            centre = x1.detach().mean(dim=0)  # distances keep, and their expansion loses less to rounding
            x1, x2, logit = x1 - centre, x2 - centre, SquaredDistance(1.0)
        negatives = Contrast(
            logit, anchors=1, same=True, other=False, own=include_self, bounded=False, block=block_size
        )
        align = -logit.pairwise(x1, x2)
        if len(x1) == 1 and not include_self:  # no negatives: the positive is all of the denominator
            return LossTerms(align, -align, without_negatives(align)[None])
        uniform = negative_logsumexp(x1, x2, negatives)[0]
        if positive_in_denominator:
            uniform = torch.logaddexp(uniform, -align)
    return LossTerms(align, uniform, align + uniform)


def _check(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor,
    normalize: bool,
    positive_in_denominator: bool,
    include_self: bool,
    similarity: str,
    eps: float,
    block_size: int,
) -> None:
    check_settings(
        temperature,
        normalize=normalize,
        positive_in_denominator=positive_in_denominator,
        symmetric=False,
        negatives="same",
        include_self=include_self,
        joint=False,
        denominator="sum",
        similarity=similarity,
        p=2.0,
        power=True,
        eps=eps,
        block_size=block_size,
    )
    check_views(z1, z2, least=1 if include_self or positive_in_denominator else 2)
    check_length(temperature, z1.shape[1])
