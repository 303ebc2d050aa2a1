r"""InfoNCE in the forms of five papers.

With :math:`s_{ab}` the similarity of two embeddings divided by the temperature, :math:`a` an anchor, :math:`a^+` the
other view of its sample and :math:`B_a` its negatives, every form is

.. math:: L = \frac{1}{|A|} \sum_{a \in A} \log \frac{[\exp s_{a a^+}] + c \sum_{b \in B_a} \exp s_{ab}}{\exp s_{a a^+}}

and the arguments of :func:`info_nce` choose :math:`A`, :math:`B_a`, :math:`c`, :math:`s` and the term in brackets.
"""

__all__ = ["info_nce"]

import math
from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.info_nce.settings import (
    check_length,
    check_settings,
    check_views,
    temperature_range,
    without_negatives,
)
from lightning_ssl_geometry.functional.info_nce.similarity import Dot, LpDistance, Similarity, SquaredDistance
from lightning_ssl_geometry.functional.info_nce.tiles import Contrast, negative_logsumexp
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


def info_nce(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor = 0.5,
    *,
    normalize: bool = True,
    positive_in_denominator: bool = True,
    symmetric: bool = True,
    negatives: Literal["both", "same", "other"] = "both",
    include_self: bool = False,
    joint: bool = False,
    denominator: Literal["sum", "mean"] = "sum",
    similarity: Literal["dot", "distance"] = "dot",
    p: float = 2.0,
    power: bool = True,
    eps: float = 1e-8,
    block_size: int | None = None,
) -> Tensor:
    r"""Contrast the two views of each sample with the other samples of the batch.

    .. math:: L = \frac{1}{|A|} \sum_{a \in A} -\log \frac{\exp s_{a a^+}}
        {[\exp s_{a a^+}] + c \sum_{b \in B_a} \exp s_{ab}}

    The defaults are SimCLR's NT-Xent. The other rows of this table name what differs from them:

    ===================================== ================================================= ===========
    form                                  settings                                          at s = 0
    ===================================== ================================================= ===========
    SimCLR's NT-Xent                      (the defaults)                                    log(2N-1)
    Cosentino et al., Eq. 1               positive_in_denominator=False, symmetric=False    log(2(N-1))
    Rusak et al., Eq. 1                   symmetric=False, negatives="same"                 log(N)
    Zimmermann et al., the code (cl-ica)  symmetric=False, negatives="same",                log(N+1)
                                          include_self=True, similarity="distance",
                                          normalize=False
    Calder & Lee, Eq. 1                   symmetric=False, denominator="mean"               log(3-2/N)
    Calder & Lee, Eq. 4                   symmetric=False, denominator="mean",              log(2)
                                          negatives="other", include_self=True
    Keller et al., Eq. 2 and 3            positive_in_denominator=False, joint=True         log(4(N-1))
    CRL-TAC, Eq. 20                       positive_in_denominator=False, symmetric=False,   0
                                          denominator="mean", negatives="other",
                                          include_self=True
    ===================================== ================================================= ===========

    These are Chen et al., A Simple Framework for Contrastive Learning of Visual Representations (2020); Cosentino et
    al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning; Rusak et al., Content suppresses
    style: dimensionality collapse in contrastive learning; Zimmermann et al., Contrastive Learning Inverts the Data
    Generating Process (2021); Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural
    Network Optimization Perspectives; Keller et al., Homomorphic Self-Supervised Learning; and Contrastive
    Representation Learning with Trainable Augmentation Channel.

    Rusak et al. draw M negatives independently; here they are the M = N-1 other samples of the anchor's view. Keller
    et al.'s Eq. 3 prints z_k(g_k^-1 g_0) where the sum over l asks for g_l. Calder & Lee's Eq. 4 has
    exp(-\|x-y\|^2 / 2 tau): `similarity="distance"` with temperature 2 tau, on the unit sphere the cosine with tau.

    The logits are computed in tiles, forward and again backward, so memory grows with N and not N^2; in float32
    (float64 for float64 input), whatever the autocast. There is no second derivative.

    Args:
        z1: (N, P), embeddings of view 1. Any float dtype.
        z2: (N, P), embeddings of view 2.
        temperature: tau > 0, by which a similarity is divided. P values (or one, as a tensor) divide the products, or
            the differences to the power p, of each dimension; a tensor may require a gradient. With `power=False`
            they divide the differences.
        normalize: Scale the rows to unit length: the dot product is then the cosine.
        positive_in_denominator: Add exp(s) of the positive pair to the denominator, once.
        symmetric: Average over the anchors of both views, instead of those of view 1 only.
        negatives: The views of other samples that an anchor meets: its own ("same"), its positive's ("other"), "both".
        include_self: The anchor's own sample counts among the negatives in those views too: itself in its own view,
            the positive in the other.
        joint: One logarithm per pair, whose denominator runs over both anchors.
        denominator: "sum", or "mean": the negatives' sum is divided by N, the number of samples per view.
        similarity: "dot", or "distance": the negative distance -\|x-y\|_p^p.
        p: The norm of the distance, 1 <= p < inf.
        power: Whether the norm is raised to p, as above, or is -\|x-y\|_p.
        eps: A row no longer than this has no direction to normalise to: it counts as 0, with gradient 0, so that both
            stay finite.
        block_size: Rows and columns of a tile of logits, by default 1024, or 4096 on a GPU.

    Returns:
        The loss, a scalar in float32 (float64 for float64 input). One sample alone has no negatives: with its positive
        in the denominator the loss is log(1) = 0, with gradient 0.

    Raises:
        ValueError: If the shapes differ or are not (N, P); if the denominator is empty (N = 1, without the positive or
            `include_self`); if `temperature` is not positive or has another length than P; if another argument is out
            of its range or contradicts the rest.

    >>> z = torch.eye(4)
    >>> info_nce(z, z, temperature=0.5)  # log(e^2 + 6) - 2
    tensor(0.5944)
    """
    check_settings(
        temperature,
        normalize=normalize,
        positive_in_denominator=positive_in_denominator,
        symmetric=symmetric,
        negatives=negatives,
        include_self=include_self,
        joint=joint,
        denominator=denominator,
        similarity=similarity,
        p=p,
        power=power,
        eps=eps,
        block_size=block_size,
    )
    check_views(z1, z2, least=1 if include_self or positive_in_denominator else 2)
    check_length(temperature, z1.shape[1])
    with torch.autocast(z1.device.type, enabled=False):
        x1, x2, logit, bounded = _logit(z1, z2, temperature, normalize, similarity, p, power, eps)
        if len(z1) == 1 and not include_self:
            return without_negatives(logit.pairwise(x1, x2))
        contrast = Contrast(
            similarity=logit,
            anchors=2 if symmetric else 1,
            same=negatives != "other",
            other=negatives != "same",
            own=include_self,
            bounded=bounded,
            block=block_size or _block_size(x1),
        )
        ratio = negative_logsumexp(x1, x2, contrast) - logit.pairwise(x1, x2)  # (A, N)
        if denominator == "mean":
            ratio = ratio - math.log(len(z1))
        if joint:
            ratio = ratio.logsumexp(dim=0)  # (N,)
        if positive_in_denominator:
            ratio = torch.logaddexp(ratio, torch.zeros_like(ratio))
        return ratio.mean()


def _block_size(x: Tensor) -> int:
    # A CPU's cache would do with 512; but every operation on a tile ends where all threads meet, and on cores that are
    # shared with other processes fewer of those are worth more. A GPU needs enough work to fill it.
    return 4096 if x.is_cuda else 1024


def _logit(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor,
    normalize: bool,
    similarity: str,
    p: float,
    power: bool,
    eps: float,
) -> tuple[Tensor, Tensor, Similarity, bool]:
    """The views, scaled and shifted, the similarity that makes logits of them, and whether these are bounded."""
    x1, x2 = in_full_precision(z1, z2)
    if normalize:
        x1, x2 = unit_rows(x1, x2, eps)
    widest = 2 / 3 * math.log(torch.finfo(x1.dtype).max) if normalize else 0.0  # see `Contrast.bounded`
    sharpness = 1 / temperature_range(temperature)[0]
    if similarity == "dot":
        x1, x2, scale = _tempered(x1, x2, temperature, degree=2)
        return x1, x2, Dot(scale), 2 * sharpness < widest
    x1, x2, scale = _tempered(x1, x2, temperature, degree=p if power else 1)
    if p == 2 and power:
        return *_centred(x1, x2), SquaredDistance(scale), 4 * sharpness < widest
    return x1, x2, LpDistance(scale, p, power), False


def _tempered(
    x1: Tensor, x2: Tensor, temperature: float | Sequence[float] | Tensor, degree: float
) -> tuple[Tensor, Tensor, float]:
    """Divide a similarity that is homogeneous of this degree: by a number afterwards, by a tensor beforehand."""
    if isinstance(temperature, int | float):
        return x1, x2, 1 / temperature
    factor = torch.as_tensor(temperature, dtype=x1.dtype, device=x1.device) ** (-1 / degree)
    return x1 * factor, x2 * factor, 1.0


def _centred(x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
    """Distances do not change, and their expansion into products loses less to rounding near the origin."""
    centre = (x1.detach().mean(dim=0) + x2.detach().mean(dim=0)) / 2
    return x1 - centre, x2 - centre
