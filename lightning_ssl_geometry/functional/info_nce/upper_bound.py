r"""An upper bound of InfoNCE, an exact split with an entropy term, and the hardest negative of each anchor.

Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022). Their Eq. 1 is
`info_nce` with the form `COSENTINO`. Sim is the cosine and :math:`\beta = 1/\tau`:

.. math:: L = -\frac1N \sum_i \log \frac{\exp(\beta\, \mathrm{Sim}(z^1_i, z^2_i))}
    {\sum_{j \ne i, k} \exp(\beta\, \mathrm{Sim}(z^1_i, z^k_j))}
"""

__all__ = ["hardest_negative", "info_nce_entropy", "info_nce_upper_bound"]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings
from lightning_ssl_geometry.functional.info_nce.settings import check_views, temperature_range
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


def info_nce_entropy(
    z1: Tensor, z2: Tensor, temperature: float = 0.5, *, eps: float = 1e-8, block_size: int = 128
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Split InfoNCE into invariance, expected similarity to negatives, and entropy of the softmax over negatives.

    .. math::
        p_i(j, k) &= \frac{\exp(\beta\, \mathrm{Sim}(z^1_i, z^k_j))}
            {\sum_{l \ne i, m} \exp(\beta\, \mathrm{Sim}(z^1_i, z^m_l))}, \quad j \ne i \\
        L &= \beta L_{invariance} + \beta \frac1N \sum_i E_{p_i}[\mathrm{Sim}(z^1_i, \cdot)]
            + \frac1N \sum_i H(p_i)

    This is Eq. 13 (Proposition C.1) of Cosentino et al. 2022. The paper prints a minus before the second term, but a
    plus in Eq. 15, from which Eq. 13 follows. L is exactly :func:`info_nce` of the form `COSENTINO`. Sim is the cosine,
    :math:`z^k_j` is sample j in view k, and H is the entropy. :func:`info_nce_upper_bound` defines the invariance, and
    replaces the other two terms by their largest values.

    Args:
        z1: (N, P), embeddings of view 1, the anchors.
        z2: (N, P), embeddings of view 2.
        temperature: tau > 0, the inverse of beta.
        eps: >= 0; a row of at most this length is treated as 0.
        block_size: Anchors handled at once. Memory is O(N x block_size).

    Returns:
        Three scalars: invariance in [-1, 1], expectation in [-1, 1], and entropy in [0, log(2(N-1))] in nats.

    >>> info_nce_entropy(torch.eye(4), torch.eye(4))  # log 6: all negatives are equally similar
    (tensor(-1.), tensor(0.), tensor(1.7918))
    """
    embeddings("N, P", z1=z1, z2=z2)
    at_least(1, block_size=block_size)
    u1, u2 = _unit_views(z1, z2, temperature, eps=eps)
    with torch.autocast(z1.device.type, enabled=False):
        expectation, entropy = u1.new_zeros(()), u1.new_zeros(())
        for start in range(0, len(u1), block_size):
            cosine = _negative_cosines(u1, u2, slice(start, start + block_size))  # (2, block, N)
            top = cosine.amax((0, 2)).detach()
            p = ((cosine - top[:, None]) / temperature).exp()  # not yet divided by its sum; 0 for the own sample
            total = p.sum((0, 2))  # (block,)
            expected = (p * cosine.masked_fill(p == 0, 0)).sum((0, 2)) / total
            expectation = expectation + expected.sum()
            entropy = entropy + (total.log() + (top - expected) / temperature).sum()  # Eq. 15
        return -torch.linalg.vecdot(u1, u2).mean(), expectation / len(u1), entropy / len(u1)


def info_nce_upper_bound(
    z1: Tensor, z2: Tensor, temperature: float = 0.5, *, eps: float = 1e-8
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Bound InfoNCE from above by an invariance term and the similarity to the hardest negative.

    .. math::
        L_{invariance} &= -\frac{1}{N} \sum_i \mathrm{Sim}(z^1_i, z^2_i) \\
        L_{repulsion} &= \frac{1}{N} \sum_i \max_{j \ne i, k} \mathrm{Sim}(z^1_i, z^k_j) \\
        L_{upper} &= \beta L_{invariance} + \beta L_{repulsion} + \log(2(N-1)), \quad \beta = 1/\tau

    Eq. 3-5 of Cosentino et al. 2022, for :func:`info_nce` of the form `COSENTINO`. Sim is the cosine, and :math:`z^k_j`
    is sample j in view k. The results are three scalars: invariance and repulsion, both in [-1, 1], and the bound.

    Args:
        z1: (N, P), embeddings of view 1, the anchors.
        z2: (N, P), embeddings of view 2.
        temperature: tau > 0.
        eps: >= 0; a row of at most this length is treated as 0.

    >>> info_nce_upper_bound(torch.eye(4), torch.eye(4))  # here the loss equals its bound, -2 + log 6
    (tensor(-1.), tensor(0.), tensor(-0.2082))
    """
    embeddings("N, P", z1=z1, z2=z2)
    u1, u2 = _unit_views(z1, z2, temperature, eps=eps)
    with torch.autocast(z1.device.type, enabled=False):
        _, _, similarity = _hardest(u1, u2)
        invariance = -torch.linalg.vecdot(u1, u2).mean()
        repulsion = similarity.mean()
        return invariance, repulsion, (invariance + repulsion) / temperature + math.log(2 * (len(z1) - 1))


def hardest_negative(z1: Tensor, z2: Tensor, *, eps: float = 1e-8) -> tuple[Tensor, Tensor, Tensor]:
    r"""Find the most similar embedding of another sample, for each row of view 1.

    .. math:: (j, k)^\star_i = \arg\max_{j \ne i, k \in \{1, 2\}} \mathrm{Sim}(z^1_i, z^k_j)

    Proposition 3.1 of Cosentino et al. (2022). Sim is the cosine. The views are `z1` and `z2` (N, P). Of several equal
    maxima, the first counts. A row of at most the length `eps` >= 0 is treated as 0. Memory is O(N x 256).

    Returns:
        Three tensors (N,): the sample j (int64), the view (int64, 0 for `z1` and 1 for `z2`), and the cosine, which is
        differentiable.

    >>> hardest_negative(torch.tensor([[1.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [1.0, 1.0]]))
    (tensor([1, 0]), tensor([1, 0]), tensor([0.7071, 0.0000]))
    """
    embeddings("N, P", z1=z1, z2=z2)
    u1, u2 = _unit_views(z1, z2, 1.0, eps=eps)
    with torch.autocast(z1.device.type, enabled=False):
        return _hardest(u1, u2)


def _hardest(u1: Tensor, u2: Tensor, block: int = 256) -> tuple[Tensor, Tensor, Tensor]:
    index, view = u1.new_empty(len(u1), dtype=torch.int64), u1.new_empty(len(u1), dtype=torch.int64)
    for start in range(0, len(u1), block):
        rows = slice(start, start + block)
        index[rows], view[rows] = _most_similar(u1.detach(), u2.detach(), rows)
    negative = torch.where((view == 0)[:, None], u1[index], u2[index])  # (N, P)
    return index, view, torch.linalg.vecdot(u1, negative)


def _most_similar(u1: Tensor, u2: Tensor, rows: slice) -> tuple[Tensor, Tensor]:
    best, index = _negative_cosines(u1, u2, rows).max(dim=2)
    view = best.argmax(dim=0)
    return index.gather(0, view[None]).squeeze(0), view


def _negative_cosines(u1: Tensor, u2: Tensor, rows: slice) -> Tensor:
    cosine = torch.stack([u1[rows] @ u1.T, u1[rows] @ u2.T])
    own = torch.arange(len(u1), device=u1.device) == torch.arange(len(u1), device=u1.device)[rows, None]
    return cosine.masked_fill(own, -torch.inf)  # (2, block, N)


def _unit_views(z1: Tensor, z2: Tensor, temperature: float, eps: float) -> tuple[Tensor, Tensor]:
    temperature_range(temperature)
    if torch.as_tensor(temperature).ndim != 0:
        raise ValueError(f"Expected `temperature` to be one number, but got {temperature!r}.")
    at_least(0, eps=eps)
    check_views(z1, z2, least=2)
    with torch.autocast(z1.device.type, enabled=False):
        return unit_rows(*in_full_precision(z1, z2), eps)
