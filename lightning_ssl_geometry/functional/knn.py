"""Weighted nearest-neighbour classification by cosine similarity.

Wu et al., Unsupervised Feature Learning via Non-Parametric Instance Discrimination (2018), Sec. 3.4.
"""

__all__ = ["knn_predict"]

import torch
from torch import Tensor
from torch.nn.functional import normalize as unit


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
    r"""Predict the class with the largest weighted vote among the k most similar rows of a bank.

    .. math:: \arg\max_c \sum_{i \in \mathcal N_k} e^{s_i / \tau}\, 1\{y_i = c\}, \quad s_i = \cos(h, b_i)

    Args:
        h: (M, D), the queries.
        bank: (B, D).
        label: (B,) int64, in [0, num_classes).
        num_classes: C.
        k: From 1 to B.
        temperature: tau > 0.
        chunk_size: Queries handled at once, >= 1; memory beside the arguments is chunk_size x B numbers.

    Returns:
        (M,) int64.

    Raises:
        ValueError: If the shapes do not fit, or `k`, `temperature` or `chunk_size` is out of range.

    >>> knn_predict(torch.tensor([[1.0, 0.1]]), torch.eye(2), torch.tensor([3, 5]), 6, k=1)
    tensor([3])
    """
    if h.ndim != 2 or bank.ndim != 2 or h.shape[1] != bank.shape[1]:
        raise ValueError(f"Expected `h` (M, D) and `bank` (B, D), but got {tuple(h.shape)} and {tuple(bank.shape)}.")
    if label.shape != bank.shape[:1]:
        raise ValueError(f"Expected `label` of shape ({len(bank)},), but got {tuple(label.shape)}.")
    if not 1 <= k <= len(bank):
        raise ValueError(f"Expected `k` from 1 to {len(bank)}, the size of the bank, but got {k}.")
    if not temperature > 0:
        raise ValueError(f"Expected `temperature` > 0, but got {temperature}.")
    if not chunk_size >= 1:
        raise ValueError(f"Expected `chunk_size` >= 1, but got {chunk_size}.")
    length = bank.norm(dim=1).clamp_min(1e-12)  # as `normalize` has it; the bank is not copied
    predictions = []
    for chunk in h.split(chunk_size):
        similarity, nearest = (unit(chunk, dim=-1) @ bank.T).div_(length).topk(k)  # (chunk, k)
        votes = similarity.new_zeros(len(chunk), num_classes)
        weight = ((similarity - similarity[:, :1]) / temperature).exp()  # the largest is 1: no overflow
        predictions.append(votes.scatter_add_(1, label[nearest], weight).argmax(1))
    return torch.cat(predictions)
