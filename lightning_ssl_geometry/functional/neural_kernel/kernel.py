"""The neural kernel: how a step of gradient descent on one sample moves the output for another sample.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025), Prop. 4.1.
"""

__all__ = ["kernel_flow", "neural_kernel", "neural_kernel_trace"]

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import finite, rows, shaped
from lightning_ssl_geometry.functional.neural_kernel.chunking import KernelWork
from lightning_ssl_geometry.introspection import check_settled

_MEMORY = 2**30


def neural_kernel(
    network: nn.Module, x: Tensor, *, memory: int = _MEMORY, by_layer: bool = True, vectorize: bool = True
) -> Tensor:
    r"""Compute the kernel between all outputs of all samples, over the parameters that require a gradient.

    .. math:: K^{kl}_{ij} = \langle \nabla_w f^k(w, x_i), \nabla_w f^l(w, x_j) \rangle

    Eq. 12 of Calder & Lee, for any network that maps each sample independently. Layers whose class is exactly torch's
    Linear, Conv1d to 3d, LayerNorm, GroupNorm or BatchNorm are computed one by one, from their inputs and d backward
    passes, without the Jacobian (n d, parameters). All other parameters are computed by columns of their Jacobian, as
    many at a time as `memory` holds, which is slower. These are also parameters that several layers share, that are
    reparametrised, used outside of their layer, or in half precision. Modes, buffers, gradients and the random state
    stay unchanged.

    Args:
        network: f, (N, ...) to (N, d), in the mode for which the kernel is wanted, usually eval mode.
        x: (n, ...).
        memory: Bytes for the result and its computation, besides the network: an estimate, without the temporary memory
            of the layers' own operations. If not all samples fit, they pass in c parts, each about c / 2 times.
        by_layer: Compute known layers one by one; if False, all parameters by columns of their Jacobian.
        vectorize: For that Jacobian, pass samples together through `torch.func.vmap`; if False, one by one through
            plain autograd. This is slow, and meant for networks that `vmap` refuses: networks that branch on values,
            use checkpoints, or (with torch 2.13 and older) write into a part of a tensor.

    Returns:
        (n, n, d, d), K[i, j, k, l], in the dtype of the outputs: symmetric under exchange of (i, k) and (j, l), and
        positive semi-definite as a matrix (n d, n d). Cost: about n d backward passes at once for known layers, and
        O(n^2 d^2 W) for layers of W outputs.

    Raises:
        ValueError: If x has no rows or is not finite, no parameter requires a gradient, the network does not return (n,
            d), its output for a sample depends on other samples (batch statistics) or chance, or `memory` is too small.

    >>> layer = nn.Linear(2, 3, bias=False)  # the gradient of f^k is x in row k: K_ij = (x_i . x_j) I
    >>> neural_kernel(layer, torch.tensor([[1.0, 2.0], [3.0, 4.0]]))[0, 1].tolist()
    [[11.0, 0.0, 0.0], [0.0, 11.0, 0.0], [0.0, 0.0, 11.0]]
    """
    with _untouched(network, x) as (model, points, parameters):
        work = KernelWork(model, points, parameters, memory=memory, by_layer=by_layer, vectorize=vectorize)
        n, d = len(points), work.outputs
        return work.kernel(None, folded=False).view(n, d, n, d).permute(0, 2, 1, 3)


def neural_kernel_trace(
    network: nn.Module,
    x: Tensor,
    *,
    directions: Tensor | None = None,
    memory: int = _MEMORY,
    by_layer: bool = True,
    vectorize: bool = True,
) -> Tensor:
    r"""Compute the kernel between samples, (n, n), as the mean of the neural kernel's diagonal over the outputs.

    .. math:: \bar K_{ij} = \frac{1}{d} \sum_k K^{kk}_{ij}, \quad \text{or with directions} \quad
        \frac{1}{Q} \sum_q v_q^T K_{ij} v_q

    Neither the kernel of :func:`neural_kernel` (Eq. 12 of Calder & Lee) nor the full Jacobian is built. With random
    orthonormal directions the second form is an unbiased estimate of the first, with Q backward passes in place of d.
    Its standard deviation is :math:`\sqrt{2 (d - Q) (d \|S\|_F^2 - \operatorname{tr}^2 S) / (Q (d - 1) (d + 2))} / d`,
    where S is the symmetric part of K_ij. This is 0 for Q = d, and if K_ij is a multiple of the identity, as in the
    limit of Prop. 4.4.

    Args:
        network: f, (N, ...) to (N, d).
        x: (n, ...).
        directions: v (Q, d), in the space of outputs; None: all of its axes.
        memory: Bytes for the result and its computation.
        by_layer: Compute known layers one by one; if False, all parameters by columns of their Jacobian.
        vectorize: Pass samples together through `torch.func.vmap`.

    Returns:
        (n, n), symmetric, positive semi-definite.

    Raises:
        ValueError: If `directions` is not (Q, d), or in the cases of :func:`neural_kernel`.

    >>> neural_kernel_trace(nn.Linear(2, 3, bias=False), torch.tensor([[1.0, 2.0], [3.0, 4.0]])).tolist()
    [[5.0, 11.0], [11.0, 25.0]]
    """
    with _untouched(network, x) as (model, points, parameters):
        work = KernelWork(model, points, parameters, memory=memory, by_layer=by_layer, vectorize=vectorize)
        if directions is not None:
            shaped("Q, d", {"d": work.outputs}, directions=directions)
            rows(1, directions=directions)
        return work.kernel(directions, folded=True) / (work.outputs if directions is None else len(directions))


def kernel_flow(kernel: Tensor, gradient: Tensor) -> Tensor:
    r"""Compute how outputs z_i = f(w, x_i) move under gradient flow in the weights, Eq. 11 of Calder & Lee, (n, d).

    .. math:: \dot z_i = -\frac{1}{n} \sum_j K_{ij} \nabla L(z_j)

    Without a network, K_ij is n times the identity for i = j and 0 otherwise, and the result is minus the gradient.

    Args:
        kernel: K (n, n, d, d) of :func:`neural_kernel`; other shapes are a ValueError.
        gradient: :math:`\nabla L(z_j)` (n, d): n times the gradient of the batch's loss with respect to z_j. This also
            holds for a contrastive loss, which is not a mean over samples.

    >>> kernel_flow(torch.eye(2)[:, :, None, None] * 2, torch.tensor([[1.0], [-3.0]])).tolist()
    [[-1.0], [3.0]]
    """
    if kernel.ndim != 4 or gradient.ndim != 2 or kernel.shape != (len(gradient),) * 2 + (gradient.shape[1],) * 2:
        shapes = f"{tuple(kernel.shape)} and {tuple(gradient.shape)}"
        raise ValueError(f"Expected `kernel` of shape (n, n, d, d) and `gradient` of shape (n, d), but got {shapes}.")
    return -torch.einsum("ijkl,jl->ik", kernel, gradient) / len(gradient)


@contextmanager
def _untouched(network: nn.Module, x: Tensor) -> Iterator[tuple[nn.Module, Tensor, dict[str, nn.Parameter]]]:
    """Yield the network, samples and training parameters, with autograd on; restore the random state afterwards."""
    if not x.ndim or not len(x):
        raise ValueError(f"Expected `x` of shape (n, ...) with n >= 1, but got {tuple(x.shape)}.")
    if x.is_floating_point():
        finite(x=x)
    network = getattr(network, "_orig_mod", network)  # a compiled network calls no hooks
    check_settled(network, "network", "kernel")
    parameters = {name: parameter for name, parameter in network.named_parameters() if parameter.requires_grad}
    if not parameters:
        name = type(network).__name__
        raise ValueError(f"Expected `network` with parameters that require a gradient, but {name} has none.")
    plain = torch.autocast(x.device.type, enabled=False)
    chance = torch.random.fork_rng([x.device] if x.is_cuda else [])
    with torch.inference_mode(False), torch.enable_grad(), chance, plain:
        yield network, x.detach().clone(), parameters
