r"""Closed forms for one hidden layer: neural kernel, limit of infinite width, and gradient flow of clustered samples.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025), Sec. 4.2. The network is :math:`f(x) = A^T \sigma(B x)` (Eq. 18), with D inputs, d outputs and M
hidden units per output. Only B (M d, D) is trained; its rows are b_p.

.. math::
    K^{kl}_{ij} &= \frac{1_{k = l}}{M}\, x_i^T x_j \sum_{p = (k - 1) M + 1}^{k M} \sigma'(b_p x_i) \sigma'(b_p x_j)
    && \text{(Prop. 4.3)} \\
    K^\infty_{ij} &= (x_i^T x_j) \Bigl[\frac{1}{2} - \frac{\theta_{ij}}{2 \pi}\Bigr] I, \quad \theta_{ij} \text{ the
    angle between the two} && \text{(Prop. 4.4)} \\
    \dot z_i &= -\frac{n_q}{n} \|\xi_q\|^2 \beta_q \nabla L(\xi_q) + O(\delta) && \text{(Thm. 4.5)}

n_q is the number of samples within delta of the center xi_q. The paper, which counts cumulatively, writes n_q - n_{q -
1}. Its proof assumes that the centers are orthogonal, with any norms.
"""

__all__ = ["cluster_rates", "clustered_flow", "infinite_width_kernel", "one_hidden_layer_kernel"]

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional as F

from lightning_ssl_geometry.checks import embeddings, shaped
from lightning_ssl_geometry.precision import without_autocast

Activation = Callable[[Tensor], Tensor]


def one_hidden_layer_kernel(x: Tensor, weight: Tensor, out_dim: int, activation: Activation = torch.relu) -> Tensor:
    """Compute the neural kernel of f(x) = A^T sigma(B x) if only B is trained, Prop. 4.3 of Calder & Lee 2025.

    Args:
        x: (n, D), the samples.
        weight: B (M d, D); its rows (k - 1) M + 1 to k M are the M hidden units of output k.
        out_dim: d, the number of outputs.
        activation: sigma, elementwise and differentiable by `torch.func.vjp`.

    Returns:
        K[i, j, k, l], (n, n, d, d), for samples i, j and outputs k, l; it is 0 for k != l. Cost: O(n^2 d M).

    Raises:
        ValueError: If the shapes do not fit, or the number of rows of B is not a multiple of `out_dim`.

    >>> one_hidden_layer_kernel(torch.tensor([[3.0, 4.0]]), torch.eye(2), 2).tolist()  # 25 / M, M = 1
    [[[[25.0, 0.0], [0.0, 25.0]]]]
    """
    slope = _slopes("x", x, weight, out_dim=out_dim, activation=activation)  # (n, d, M)
    shared = torch.einsum("ikp,jkp->ijk", slope, slope) / slope.shape[-1]
    return torch.diag_embed((x @ x.T)[..., None] * shared)


@without_autocast
def infinite_width_kernel(x: Tensor) -> Tensor:
    """Compute the neural kernel of a ReLU network with one hidden layer, in the limit of infinite width.

    Prop. 4.4 of Calder & Lee 2025. The rows of the hidden layer's weight are Gaussian, independent and isotropic; their
    variance does not matter. `x` is (n, D), n samples; a ValueError is raised if the shape differs.

    Returns:
        (n, n), the kernel of each output; between two outputs it is 0. The entries are |x_i|^2 / 2 on the diagonal.
        They are 0 for orthogonal samples, opposite samples and x_i = 0, and negative only for angles above 90 degrees.

    >>> infinite_width_kernel(torch.tensor([[2.0, 0.0], [0.0, 3.0], [-1.0, 0.0]])).abs().tolist()
    [[2.0, 0.0, 0.0], [0.0, 4.5, 0.0], [0.0, 0.0, 0.5]]
    """
    embeddings("n, D", x=x)
    shaped("n, D", x=x)
    unit = F.normalize(x, dim=1)
    # 2 arctan(|u - v| / |u + v|) is accurate for small angles
    apart, together = (torch.cdist(unit, v, compute_mode="donot_use_mm_for_euclid_dist") for v in (unit, -unit))
    return (x @ x.T) * (0.5 - torch.atan2(apart, together) / math.pi)


def cluster_rates(center: Tensor, weight: Tensor, out_dim: int, activation: Activation = torch.relu) -> Tensor:
    r"""Compute how fast each output k moves for each cluster q, :math:`\beta^k_q = \sum_p \sigma'(b_p \xi_q)^2 / M`.

    Args:
        center: xi (N, D), the centers of N clusters.
        weight: B (M d, D); its rows b_p for p = (k - 1) M + 1 to k M are the M hidden units of output k.
        out_dim: d, the number of outputs.
        activation: sigma, elementwise and differentiable by `torch.func.vjp`.

    Returns:
        beta (N, d) of Thm. 4.5 of Calder & Lee 2025; for the ReLU the share of active units, from 0 to 1.

    Raises:
        ValueError: If the shapes do not fit, or the number of rows of B is not a multiple of `out_dim`.

    >>> cluster_rates(torch.tensor([[1.0, 0.0]]), torch.tensor([[1.0, 2.0], [-1.0, 0.0]]), 1).tolist()
    [[0.5]]
    """
    return _slopes("center", center, weight, out_dim=out_dim, activation=activation).square().mean(-1)


def clustered_flow(gradient: Tensor, label: Tensor, center: Tensor, rate: Tensor | None = None) -> Tensor:
    r"""Compute the velocities of the outputs z_i under gradient flow, for samples in tight clusters.

    .. math:: \dot z_i = -\frac{n_q}{n} \|\xi_q\|^2 \beta_q \nabla L(\xi_q), \quad q = \text{the cluster of } i

    Thm. 4.5 of Calder & Lee 2025, for one hidden layer. n_q of n samples are in cluster q, within delta of its center
    xi_q. The result is exact up to O(delta). The gradient at a center is the mean over its samples.

    Args:
        gradient: :math:`\nabla L(z_j)` (n, d): n times the gradient of the batch's loss with respect to z_j.
        label: Cluster of each sample (n,), from 0 to N - 1; a cluster may have no samples.
        center: xi (N, D), orthogonal, with any norms.
        rate: beta (N, d) of :func:`cluster_rates`; None: 1/2, the limit of infinite width with the ReLU.

    Returns:
        The velocities of the outputs, (n, d), equal for all samples of a cluster.

    Raises:
        ValueError: If the shapes do not fit, a label is out of range, or the centers are not orthogonal.

    >>> gradient, label = torch.tensor([[1.0], [3.0], [5.0]]), torch.tensor([0, 0, 1])
    >>> clustered_flow(gradient, label, torch.tensor([[1.0, 0.0], [0.0, 3.0]]))[2].tolist()  # -(1 / 3) 9 (1 / 2) 5
    [-7.5]
    """
    shaped("n, d", gradient=gradient)
    shaped("n,", {"n": len(gradient)}, label=label)
    shaped("N, D", center=center)
    if rate is not None:
        shaped("N, d", {"N": len(center), "d": gradient.shape[1]}, rate=rate)
    if len(label) and not 0 <= label.min() <= label.max() < len(center):
        raise ValueError(f"Expected `label` from 0 to {len(center) - 1}, but got {label.min()} to {label.max()}.")
    cosine = F.normalize(center, dim=1) @ F.normalize(center, dim=1).T
    largest = (cosine - cosine.diag().diag()).abs().max()
    if not largest < torch.finfo(center.dtype).eps ** 0.5:
        got = f"{len(center)} in D = {center.shape[1]} dimensions with cosines of up to {largest:.3g}"
        raise ValueError(f"Expected `center` with orthogonal rows, at most D of them, but got {got}.")
    ones = torch.zeros(len(label), len(center), dtype=gradient.dtype, device=gradient.device)
    ones[torch.arange(len(label), device=label.device), label] = 1  # (n, N)
    share = center.square().sum(1, keepdim=True) * (ones.T @ gradient) / len(label)  # n_q / n times the mean
    return -(share * (0.5 if rate is None else rate))[label]


def _slopes(name: str, x: Tensor, weight: Tensor, out_dim: int, activation: Activation) -> Tensor:
    shaped("n, D", None, **{name: x})
    shaped("M d, D", {"D": x.shape[1]}, weight=weight)
    if out_dim < 1 or not len(weight) or len(weight) % out_dim:
        raise ValueError(f"Expected `weight` with a multiple of `out_dim` = {out_dim} rows, but got {len(weight)}.")
    s = x @ weight.T
    slope = torch.func.vjp(activation, s)[1](torch.ones_like(s))[0]
    return slope.unflatten(1, (out_dim, -1))  # sigma'(b_p x_i), (n, d, M)
