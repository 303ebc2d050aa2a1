r"""BYOL: a prediction of one network's embedding from another's (Grill et al. 2020).

Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning. An online network with weights :math:`\theta`
predicts, by a predictor :math:`q_\theta`, what a target network with weights :math:`\xi` makes of the other view; the
target's weights are an exponential moving average of the online ones. It has no negatives.
"""

__all__ = ["byol", "byol_momentum", "byol_prediction_error", "check_byol_views"]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


def byol(q1: Tensor, q2: Tensor, z1: Tensor, z2: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Let each view's prediction meet the target's embedding of the other view.

    .. math:: \mathcal L = \frac1N \sum_i \mathcal L_{\theta, \xi}(q_i, z'_i) + \mathcal L_{\theta, \xi}(q'_i, z_i)

    The loss of Grill et al. (2020), Section 3.1: Eq. 2 for both assignments of the views, summed and not averaged. The
    gradient flows to all four tensors; BYOL descends it with respect to the predictions only.

    Args:
        q1: (N, P), predictions from view 1, N >= 1. Any float dtype.
        q2: (N, P), predictions from view 2.
        z1: (N, P), the target's embeddings of view 1.
        z2: (N, P), the target's embeddings of view 2.
        eps: A row no longer than this has no direction to normalise to, and counts as 0.

    Returns:
        The loss, a scalar in [0, 8] in float32 (float64 for float64 input).

    Raises:
        ValueError: If the shapes differ or are not (N, P), N is 0, or `eps` is negative.

    >>> z = torch.eye(2)
    >>> byol(z, z, z, -z)  # 4 where a prediction is opposite to its target, 0 where it has its direction
    tensor(4.)
    """
    check_byol_views(q1, q2, z1, z2, least=1)
    return (byol_prediction_error(q1, z2, eps) + byol_prediction_error(q2, z1, eps)).mean()


def byol_prediction_error(q: Tensor, z: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Squared distance between the directions of predictions and of what they predict, sample by sample.

    .. math:: \mathcal L_{\theta, \xi} = \Big\| \frac{q}{\|q\|_2} - \frac{z'}{\|z'\|_2} \Big\|_2^2
        = 2 - 2\, \frac{\langle q, z' \rangle}{\|q\|_2 \|z'\|_2}

    Eq. 2 of Grill et al. (2020), before its mean; computed as the distance, which keeps its digits near 0. In float32
    (float64 for float64 input), whatever the autocast.

    Args:
        q: (N, P), predictions. Any float dtype.
        z: (N, P), what they predict.
        eps: A row no longer than this has no direction to normalise to, and counts as 0: its error is then 1.

    Returns:
        (N,), in [0, 4], in float32 (float64 for float64 input).

    Raises:
        ValueError: If the shapes differ or are not (N, P), or `eps` is negative.

    >>> byol_prediction_error(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    tensor([0., 2.])
    """
    _check_pair("q", q, "z", z)
    if not eps >= 0:
        raise ValueError(f"Expected `eps` >= 0, but got {eps}.")
    with torch.autocast(q.device.type, enabled=False):
        directions = unit_rows(*in_full_precision(q, z), eps)
        return (directions[0] - directions[1]).square().sum(dim=1)


def byol_momentum(step: int, steps: int, momentum: float = 0.996, final_momentum: float = 1.0) -> float:
    r"""How much of itself the target keeps in an update: from one value to another, by half a cosine.

    .. math:: \tau_k = \tau_K - (\tau_K - \tau_0)\, \frac{\cos(\pi k / K) + 1}{2}

    Section 3.3 of Grill et al. (2020), where :math:`\tau_K = 1`. The update itself is their Eq. 1:
    :math:`\xi \leftarrow \tau_k\, \xi + (1 - \tau_k)\, \theta`.

    Args:
        step: k >= 0, the updates that were made; from `steps` on it stays at `final_momentum`.
        steps: K >= 1.
        momentum: tau_0, in [0, 1].
        final_momentum: tau_K, in [0, 1].

    Returns:
        A number between the two.

    Raises:
        ValueError: If an argument is out of its range.

    >>> [round(byol_momentum(step, 4, 0.9), 4) for step in range(5)]
    [0.9, 0.9146, 0.95, 0.9854, 1.0]
    """
    if not step >= 0:
        raise ValueError(f"Expected `step` >= 0, but got {step}.")
    if not steps >= 1:
        raise ValueError(f"Expected `steps` >= 1, but got {steps}.")
    for name, value in (("momentum", momentum), ("final_momentum", final_momentum)):
        if not 0 <= value <= 1:
            raise ValueError(f"Expected `{name}` in [0, 1], but got {value}.")
    left = (math.cos(math.pi * min(step, steps) / steps) + 1) / 2
    return final_momentum - (final_momentum - momentum) * left


def check_byol_views(q1: Tensor, q2: Tensor, z1: Tensor, z2: Tensor, least: int) -> None:
    """Raise a ValueError unless all are (N, P), of a float dtype, with N >= `least`."""
    for name, x in (("q2", q2), ("z1", z1), ("z2", z2)):
        _check_pair("q1", q1, name, x)
    if len(q1) < least:
        raise ValueError(f"Expected `q1` with N >= {least} samples, but got {len(q1)}.")


def _check_pair(name: str, x: Tensor, other: str, y: Tensor) -> None:
    if x.ndim != 2:
        raise ValueError(f"Expected `{name}` of shape (N, P), but got {tuple(x.shape)}.")
    if y.shape != x.shape:
        raise ValueError(
            f"Expected `{other}` of the same shape as `{name}`, {tuple(x.shape)}, but got {tuple(y.shape)}."
        )
    for each, tensor in ((name, x), (other, y)):
        if not tensor.is_floating_point():
            raise ValueError(f"Expected `{each}` of a float dtype, but got {tensor.dtype}.")
