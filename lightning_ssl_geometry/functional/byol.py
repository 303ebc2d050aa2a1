r"""BYOL: one network predicts the embedding that another network computes (Grill et al. 2020).

Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning. The online network has weights :math:`\theta` and
ends in a predictor :math:`q_\theta`. From one view, it predicts the target network's embedding of the other view. The
target's weights :math:`\xi` are an exponential moving average of :math:`\theta`. There are no negatives.
"""

__all__ = ["byol", "byol_momentum", "byol_prediction_error"]

import math

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings, floating, inside, rows, shaped
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


def byol(q1: Tensor, q2: Tensor, z1: Tensor, z2: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Return BYOL's loss: each view predicts the target's embedding of the other view.

    .. math:: \mathcal L = \frac1N \sum_i \mathcal L_{\theta, \xi}(q_i, z'_i) + \mathcal L_{\theta, \xi}(q'_i, z_i)

    This is Eq. 2 of Grill et al. 2020, summed over both orders of the views (Section 3.1). Primed symbols belong to
    view 2. All four tensors get gradients; for BYOL, detach `z1` and `z2`. The loss is a float32 or float64 scalar in
    [0, 8].

    Args:
        q1: (N, P), predictions from view 1, N >= 1. Any float dtype.
        q2: (N, P), predictions from view 2.
        z1: (N, P), the target's embeddings of view 1.
        z2: (N, P), the target's embeddings of view 2.
        eps: >= 0; a row of at most this length is treated as 0.
    """
    embeddings("N, P", q1=q1, q2=q2, z1=z1, z2=z2)
    shaped("N, P", q1=q1, q2=q2, z1=z1, z2=z2)
    floating(q1=q1, q2=q2, z1=z1, z2=z2)
    rows(1, q1=q1)
    return (byol_prediction_error(q1, z2, eps) + byol_prediction_error(q2, z1, eps)).mean()


def byol_prediction_error(q: Tensor, z: Tensor, eps: float = 1e-8) -> Tensor:
    r"""Return the squared distance (N,), in [0, 4], of each prediction from its target, after both are normalised.

    .. math:: \mathcal L_{\theta, \xi} = \Big\| \frac{q}{\|q\|_2} - \frac{z'}{\|z'\|_2} \Big\|_2^2
        = 2 - 2\, \frac{\langle q, z' \rangle}{\|q\|_2 \|z'\|_2}

    Eq. 2 of Grill et al. (2020) for each sample, in float32 (float64 for float64 input). Autocast has no effect.

    Args:
        q: (N, P), predictions. Any float dtype.
        z: (N, P), targets.
        eps: >= 0; a row of at most this length is treated as 0, with distance 1 from a unit vector.

    >>> byol_prediction_error(torch.tensor([[3.0, 0.0], [0.0, 1.0]]), torch.tensor([[1.0, 0.0], [2.0, 0.0]]))
    tensor([0., 2.])
    """
    embeddings("N, P", q=q, z=z)
    shaped("N, P", q=q, z=z)
    floating(q=q, z=z)
    at_least(0, eps=eps)
    with torch.autocast(q.device.type, enabled=False):
        directions = unit_rows(*in_full_precision(q, z), eps)
        return (directions[0] - directions[1]).square().sum(dim=1)


def byol_momentum(step: int, steps: int, momentum: float = 0.996, final_momentum: float = 1.0) -> float:
    r"""Return the momentum of the target's moving average, which follows a cosine schedule from tau_0 to tau_K.

    .. math:: \tau_k = \tau_K - (\tau_K - \tau_0)\, \frac{\cos(\pi k / K) + 1}{2}

    The target's weights become :math:`\tau_k\, \xi + (1 - \tau_k)\, \theta`, with their old values :math:`\xi` and the
    online weights :math:`\theta` (Eq. 1 of Grill et al. 2020). In their Section 3.3, :math:`\tau_K` is 1.

    Args:
        step: k >= 0, the number of past updates. From `steps` on, the result is `final_momentum`.
        steps: K >= 1.
        momentum: tau_0, in [0, 1].
        final_momentum: tau_K, in [0, 1].

    >>> [round(byol_momentum(step, 4, 0.9), 4) for step in range(5)]
    [0.9, 0.9146, 0.95, 0.9854, 1.0]
    """
    at_least(0, step=step)
    at_least(1, steps=steps)
    inside("[0, 1]", momentum=momentum, final_momentum=final_momentum)
    left = (math.cos(math.pi * min(step, steps) / steps) + 1) / 2
    return final_momentum - (final_momentum - momentum) * left
