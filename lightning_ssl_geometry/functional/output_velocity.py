r"""How a step of gradient descent moves a network's outputs, and whether the step preserves invariance.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025), Sec. 4.1. Gradient flow on a network's weights w moves each output z_i = f(w, x_i) by (Eq. 11, 12)

.. math:: \dot z_i = -\frac1n \sum_{j=1}^n K_{ij}\, g_j, \quad K_{ij}^{kl} = \nabla_w f^k(x_i) \cdot \nabla_w f^l(x_j)

Gradient flow on the outputs themselves would move z_i by -g_i (Eq. 13). In the paper the loss is a mean over samples,
and g_j is the gradient of sample j's loss with respect to z_j. A contrastive loss is no such mean. So here g_j is n
times the gradient of the batch's loss with respect to z_j. For a mean, both are equal.
"""

__all__ = ["output_velocity", "step_invariance_error"]

import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.func import jvp, vjp
from torch.nn.attention import SDPBackend, sdpa_kernel

from lightning_ssl_geometry.checks import at_least, embeddings, rows, shaped
from lightning_ssl_geometry.introspection import check_settled, substituted_call, vectors
from lightning_ssl_geometry.precision import in_float64

Inputs = Tensor | tuple[Tensor, ...]
Weights = dict[str, Tensor]


def output_velocity(
    network: nn.Module, x: Inputs, cotangent: Tensor, at: Inputs | None = None, *, chunk_size: int = 256
) -> Tensor:
    r"""Compute how outputs move under gradient flow on the weights.

    .. math:: \dot f(a) = -\frac1n \sum_{j=1}^n K(a, x_j)\, g_j

    Eq. 11 of Calder & Lee 2025, at any point a. The neural kernel K(a, x_j) (d, d) holds the inner products of the
    gradients of f(a) and f(x_j) with respect to the weights. It is never built: the function needs only a backward and
    a forward pass. At the samples x the result equals :func:`kernel_flow` of :func:`neural_kernel`.

    Args:
        network: f, in eval mode, maps (N, ...) to (N, d), each sample independently. w are its trainable parameters.
        x: (n, ...), the samples of the step; a tuple of tensors with n rows if the network takes several.
        cotangent: g (n, d), n times the gradient of the batch's loss with respect to each output.
        at: (m, ...), the points a, a tensor or a tuple like x; None: x.
        chunk_size: Number of samples in one backward pass, >= 1.

    Returns:
        (m, d), detached: the time derivative of f(a). A step of size s changes f(a) by s times this derivative.

    Raises:
        ValueError: If a shape or `chunk_size` is wrong, there are no w, or batch norm or dropout is not in eval mode.

    >>> layer = nn.Linear(3, 3, bias=False)  # K(x_i, x_j) = (x_i . x_j) I
    >>> output_velocity(layer, torch.eye(3), torch.ones(3, 3))[0]
    tensor([-0.3333, -0.3333, -0.3333])
    """
    samples = _rows(x)
    shaped("n, d", cotangent=cotangent)
    if not len(cotangent) or not samples or any(len(rows) != len(cotangent) for rows in samples):
        shapes = f"{[tuple(rows.shape) for rows in samples]} and {tuple(cotangent.shape)}"
        raise ValueError(f"Expected `x` (n, ...) and `cotangent` (n, d) with n >= 1, but got {shapes}.")
    at_least(1, chunk_size=chunk_size)
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("Expected `network` with a parameter that requires a gradient, but got none.")
    check_settled(network, "network", "output")
    points = samples if at is None else _rows(at)
    with _plain(cotangent):
        weights = {name: p.detach() for name, p in network.named_parameters() if p.requires_grad}
        run = partial(_run, network)
        direction = {name: torch.zeros_like(weight) for name, weight in weights.items()}
        own = partial(_own, dtype=next(iter(weights.values())).dtype, chunk_size=chunk_size)
        for xs, g in zip(zip(*map(own, samples), strict=True), own(cotangent), strict=True):
            pulled = _pullback(partial(run, rows=xs), weights, g)
            direction = {name: total - pulled[name] / len(cotangent) for name, total in direction.items()}
        parts = zip(*map(own, points), strict=True)
        moved = [jvp(partial(run, rows=part), (weights,), (direction,))[1] for part in parts]
    return torch.cat(moved)


def step_invariance_error(at: Tensor, moved: Tensor) -> Tensor:
    r"""Measure how differently a step moves the outputs of a sample and of its transformed versions.

    .. math:: \sqrt{\frac{\frac1{VN} \sum_{v,i} \|\dot f(T_v x_i) - \dot f(x_i)\|^2}
        {\frac1N \sum_i \|\dot f(x_i)\|^2}}

    A network f that is invariant to T, with :math:`f(T(x)) = f(x)`, stays invariant in a step on its weights w only if
    also :math:`\nabla_w f(T(x)) = \nabla_w f(x)` (Theorem 4.2 of Calder & Lee 2025).

    Args:
        at: (N, d), the velocities of f(x_i), from :func:`output_velocity`.
        moved: (V, N, d), the velocities of f(T_v x_i), V >= 1. Shapes that do not fit raise a ValueError.

    Returns:
        A float64 scalar >= 0: 0 if a sample and its versions move equally, about 2^0.5 if they move independently. It
        is NaN if nothing moves.

    >>> at = torch.tensor([[3.0, 4.0]])
    >>> f"{step_invariance_error(at, torch.tensor([[[3.0, 3.0]], [[3.0, 5.0]]])).item():.2f}"
    '0.20'
    """
    embeddings("N, d", at=at)
    shaped("N, d", at=at)
    shaped("V, N, d", {"N": len(at), "d": at.shape[1]}, moved=moved)
    rows(1, moved=moved)
    at, moved = in_float64(at), in_float64(moved)
    difference = (moved - at).square().sum(2).mean()
    return (difference / at.square().sum(1).mean()).sqrt()


def _run(network: nn.Module, weights: Weights, rows: tuple[Tensor, ...]) -> Tensor:
    copies = tuple(tensor.clone() for tensor in rows)  # the first layer may work in place
    z = substituted_call(network, weights, *copies)
    return vectors(z, rows[0], "network")


def _pullback(run: Callable[[Weights], Tensor], weights: Weights, cotangent: Tensor) -> Weights:
    z, pull = vjp(run, weights)[:2]
    if z.shape != cotangent.shape:
        raise ValueError(
            f"Expected `cotangent` (n, {z.shape[1]}) as `network` returns, but got d = {cotangent.shape[1]}."
        )
    return pull(cotangent)[0]


@contextmanager
def _plain(near: Tensor) -> Iterator[None]:
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(near.device.type, enabled=False),
            sdpa_kernel(SDPBackend.MATH),  # fused attention has no forward derivative
            warnings.catch_warnings(),
        ):
            # torch's own, where it first loads what it needs for forward derivatives
            warnings.filterwarnings("ignore", "`torch.jit.script` is deprecated", FutureWarning)
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)


def _rows(x: Inputs) -> tuple[Tensor, ...]:
    return (x,) if isinstance(x, Tensor) else x


def _own(tensor: Tensor, dtype: torch.dtype, chunk_size: int) -> tuple[Tensor, ...]:
    copy = tensor.detach().clone()  # a clone outside inference mode is no inference tensor
    return (copy.to(dtype) if copy.is_floating_point() else copy).split(chunk_size)
