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
    r"""Compute inner products of the gradients of all outputs, with respect to the parameters that require a gradient.

    .. math:: K^{kl}_{ij} = \langle \nabla_w f^k(w, x_i), \nabla_w f^l(w, x_j) \rangle

    Eq. 12 of Calder & Lee 2025, for networks that map each sample independently. f^k is output k, w are the parameters,
    and x_i is a sample. The network's modes, buffers and gradients do not change, nor does the random state.

    Torch's Linear, Conv1d to 3d, LayerNorm, GroupNorm and BatchNorm layers (not subclasses) are computed one by one,
    from d backward passes. All other parameters need their Jacobian, which is slower. Parameters of the listed layers
    also need it if they are shared, reparametrised, in half precision or used elsewhere.

    Args:
        network: f, (N, ...) to (N, d), in the mode for which the kernel is wanted, usually eval mode.
        x: (n, ...), n samples; the network returns d outputs for each.
        memory: Bytes for the result and its computation. They exclude the network and temporary memory of torch.
        by_layer: Compute the listed layers one by one; if False, use the Jacobian for all parameters.
        vectorize: Whether samples pass together through `torch.func.vmap` for the Jacobian. False is slow. It is needed
            for networks that branch on values, use checkpoints or, in torch 2.13 and older, write into parts of
            tensors.

    Returns:
        K[i, j, k, l], (n, n, d, d), in the dtype of the outputs, positive semi-definite as a matrix (n d, n d). Cost
        for the listed layers: about n d backward passes of one sample, and O(n^2 d^2 W) for W layer outputs.

    Raises:
        ValueError: If x has no rows or is not finite, no parameter requires a gradient, the network does not return (n,
            d), its output for a sample depends on other samples or on chance, or `memory` is too small.

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
    r"""Average the neural kernel over the d outputs; the result is a kernel between samples.

    .. math:: \bar K_{ij} = \frac{1}{d} \sum_k K^{kk}_{ij}, \quad \text{or with directions} \quad
        \frac{1}{Q} \sum_q v_q^T K_{ij} v_q

    K is :func:`neural_kernel` (Eq. 12 of Calder & Lee 2025). Neither K nor the full Jacobian is built. With random
    orthonormal directions, the second form is an unbiased estimate of the first, from Q backward passes in place of d.
    Its standard deviation is :math:`\sqrt{2 (d - Q) (d \|S\|_F^2 - \operatorname{tr}^2 S) / (Q (d - 1) (d + 2))} / d`,
    with the symmetric part S of K_ij. The deviation is 0 for Q = d, and if K_ij is a multiple of the identity.

    Args:
        network: f, (N, ...) to (N, d).
        x: (n, ...), n samples.
        directions: v (Q, d), vectors in the space of outputs; None: the d axes of this space.
        memory: Bytes for the result and its computation.
        by_layer: Compute the layers that :func:`neural_kernel` lists one by one; if False, use only the Jacobian.
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
    r"""Compute the velocities (n, d) of the outputs z_i = f(w, x_i) under gradient flow, Eq. 11 of Calder & Lee 2025.

    .. math:: \dot z_i = -\frac{1}{n} \sum_j K_{ij} \nabla L(z_j)

    Args:
        kernel: K (n, n, d, d) of :func:`neural_kernel`. A ValueError is raised if a shape differs.
        gradient: :math:`\nabla L(z_j)` (n, d): n times the gradient of the batch's loss with respect to z_j. This
            factor n is also needed if the loss is not a mean over samples.

    >>> kernel_flow(torch.eye(2)[:, :, None, None] * 2, torch.tensor([[1.0], [-3.0]])).tolist()
    [[-1.0], [3.0]]
    """
    if kernel.ndim != 4 or gradient.ndim != 2 or kernel.shape != (len(gradient),) * 2 + (gradient.shape[1],) * 2:
        shapes = f"{tuple(kernel.shape)} and {tuple(gradient.shape)}"
        raise ValueError(f"Expected `kernel` of shape (n, n, d, d) and `gradient` of shape (n, d), but got {shapes}.")
    return -torch.einsum("ijkl,jl->ik", kernel, gradient) / len(gradient)


@contextmanager
def _untouched(network: nn.Module, x: Tensor) -> Iterator[tuple[nn.Module, Tensor, dict[str, nn.Parameter]]]:
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
