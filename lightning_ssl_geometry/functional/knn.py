"""Weighted nearest-neighbour classification by cosine similarity."""

__all__ = ["knn_leave_one_out", "knn_predict"]

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit

from lightning_ssl_geometry.checks import at_least, positive, shaped
from lightning_ssl_geometry.precision import without_autocast


@without_autocast
def knn_predict(
    h: Tensor,
    bank: Tensor,
    label: Tensor,
    num_classes: int,
    k: int = 20,
    *,
    temperature: float = 0.07,
    chunk_size: int = 1024,
) -> Tensor:
    r"""Predict the classes of M queries, (M,) int64, by a weighted vote of the k most similar rows of a bank.

    .. math:: \arg\max_c \sum_{i \in \mathcal N_k} e^{s_i / \tau}\, 1\{y_i = c\}, \quad s_i = \cos(h, b_i)

    Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination (2018), Sec. 3.4.

    Args:
        h: (M, D), the queries.
        bank: (B, D), the rows with known labels.
        label: (B,) int64, labels of the bank, in [0, num_classes).
        num_classes: C, the number of classes.
        k: Number of rows that vote, from 1 to B.
        temperature: tau > 0.
        chunk_size: Queries computed at once, >= 1; memory is O(chunk_size B).
    """
    shaped("M, D", h=h)
    shaped("B, D", {"D": h.shape[1]}, bank=bank)
    shaped("B,", {"B": len(bank)}, label=label)
    if not 1 <= k <= len(bank):
        raise ValueError(f"Expected `k` from 1 to {len(bank)}, the size of the bank, but got {k}.")
    positive(temperature=temperature)
    at_least(1, chunk_size=chunk_size)
    dtype = torch.promote_types(h.dtype, bank.dtype)
    h, bank = h.to(dtype), bank.to(dtype)
    length = bank.norm(dim=1).clamp_min(1e-12)  # as in `normalize`, without a copy of the bank
    predictions = []
    for chunk in h.split(chunk_size):
        similarity, nearest = (unit(chunk, dim=-1) @ bank.T).div_(length).topk(k)  # (chunk, k)
        predictions.append(_voted(similarity, label[nearest], num_classes, temperature=temperature))
    return torch.cat(predictions)


@without_autocast
def knn_leave_one_out(
    h: Tensor, label: Tensor, num_classes: int, k: int = 20, *, temperature: float = 0.07, chunk_size: int = 1024
) -> Tensor:
    """Predict the class of each row from the other rows, (N,) int64, as :func:`knn_predict` does from a bank.

    Args:
        h: (N, D), N >= 2.
        label: (N,) int64, in [0, num_classes).
        num_classes: C, the number of classes.
        k: Number of other rows that vote, from 1 to N - 1.
        temperature: tau > 0.
        chunk_size: Rows computed at once, >= 1; memory is O(chunk_size N).
    """
    shaped("N, D", h=h)
    shaped("N,", {"N": len(h)}, label=label)
    if not 1 <= k < len(h):
        raise ValueError(f"Expected `k` from 1 to {len(h) - 1}, the number of other rows, but got {k}.")
    positive(temperature=temperature)
    at_least(1, chunk_size=chunk_size)
    rows = unit(h, dim=-1)
    predictions = []
    for itself in torch.arange(len(h), device=h.device).split(chunk_size):
        similarity = (rows[itself] @ rows.T).scatter_(1, itself[:, None], -torch.inf)  # (chunk, N)
        similarity, nearest = similarity.topk(k)
        predictions.append(_voted(similarity, label[nearest], num_classes, temperature=temperature))
    return torch.cat(predictions)


def _voted(similarity: Tensor, label: Tensor, num_classes: int, *, temperature: float) -> Tensor:
    votes = similarity.new_zeros(len(similarity), num_classes)
    weight = ((similarity - similarity[:, :1]) / temperature).exp()  # the largest is 1: no overflow
    return votes.scatter_add_(1, label, weight).argmax(1)
