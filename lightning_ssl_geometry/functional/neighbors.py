"""Normalised distances between representations, and how often neighbours share a label."""

__all__ = ["chance_agreement", "label_agreement", "normalized_distance"]

from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, one_of, shaped
from lightning_ssl_geometry.precision import in_float64

Scale = Literal["unit", "mean"]


def normalized_distance(a: Tensor, b: Tensor, *, scale: Scale = "unit") -> Tensor:
    r"""Return the distance of each row of `a` from the same row of `b`, (N,), normalised by the lengths of the rows.

    .. math:: \Bigl\| \frac{a_i}{\|a_i\|} - \frac{b_i}{\|b_i\|} \Bigr\|_2
        \quad\text{or}\quad \frac{\|a_i - b_i\|_2}{\frac1N \sum_j \|a_j\|_2}

    Fig. 5 of Cosentino et al. (2022) does not say how the distance is normalised.

    Args:
        a: (N, D).
        b: (N, D).
        scale: "unit" for the first form, in [0, 2], or "mean" for the second form, >= 0.

    Raises:
        ValueError: If a shape or `scale` is wrong, or a row ("unit") or all of `a` ("mean") is 0.

    >>> normalized_distance(torch.tensor([[2.0, 0.0]]), torch.tensor([[0.0, 5.0]])).item()  # 2^0.5
    1.4142135381698608
    """
    embeddings("N, D", a=a, b=b)
    one_of(get_args(Scale), scale=scale)
    shaped("N, D", a=a, b=b)
    length_a, length_b = _lengths(a), _lengths(b)
    if scale == "mean":
        if not length_a.any():
            raise ValueError("Expected `a` with a row other than 0, but all are 0.")
        return _lengths(a - b) / length_a.mean()
    for name, length in (("a", length_a), ("b", length_b)):
        if not length.all():
            zeros = int((length == 0).sum())
            raise ValueError(f"Expected each row of `{name}` to have a direction, but got {zeros} rows of zeros.")
    return torch.linalg.vector_norm(a / length_a[:, None] - b / length_b[:, None], dim=1)


def _lengths(x: Tensor) -> Tensor:
    # relative to the largest number of a row, whose square may be 0 or infinite in float32
    peak = x.detach().abs().amax(1, keepdim=True)
    return torch.linalg.vector_norm(x / peak.where(peak > 0, 1), dim=1) * peak[:, 0]


def label_agreement(label: Tensor, neighbor: Tensor) -> Tensor:
    r"""Return the fraction of samples whose neighbour has the same label, a float64 scalar in [0, 1].

    .. math:: \frac1N \sum_i 1\{y_{\star(i)} = y_i\}

    `label` (N,) holds integer classes y. `neighbor` (N,) int64 holds :math:`\star(i)`, the index of the neighbour of
    sample i. In Fig. 6 of Cosentino et al. (2022) the neighbour is the hardest negative, the other sample with the most
    similar embedding z. Random neighbours give :func:`chance_agreement`.
    """
    _check_labels(label)
    n = len(label)
    if neighbor.shape != label.shape or (neighbor.min() < 0 or neighbor.max() >= n):
        right = neighbor.shape == label.shape
        got = f"values from {neighbor.min()} to {neighbor.max()}" if right else f"shape {tuple(neighbor.shape)}"
        raise ValueError(f"Expected `neighbor` of shape ({n},) with values in [0, {n}), but got {got}.")
    return in_float64(label[neighbor] == label).mean()


def chance_agreement(label: Tensor) -> Tensor:
    r"""Return the probability, a float64 scalar in [0, 1], that two different random samples have the same label.

    .. math:: \frac{\sum_c n_c (n_c - 1)}{N (N - 1)}

    Class c has n_c of the N samples; C classes of equal size give about 1 / C. `label` is (N,) integers, N >= 2.

    >>> chance_agreement(torch.tensor([0, 0, 1, 1])).item()
    0.3333333333333333
    """
    _check_labels(label, least=2)
    count = in_float64(label.unique(return_counts=True)[1])
    return (count * (count - 1)).sum() / (len(label) * (len(label) - 1))


def _check_labels(label: Tensor, least: int = 1) -> None:
    if label.ndim != 1 or len(label) < least or label.is_floating_point():
        raise ValueError(f"Expected `label` of N >= {least} integers, but got {label.dtype} {tuple(label.shape)}.")
