r"""How a network's outputs move in a step of gradient descent, and whether they move alike where they should.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025), Sec. 4.1. Descending a loss of the outputs z_i = f(w, x_i) by the weights w moves each output by

.. math:: \dot z_i = -\frac1n \sum_{j=1}^n K_{ij}\, g_j, \quad K_{ij}^{kl} = \nabla_w f^k(x_i) \cdot \nabla_w f^l(x_j)

(Eq. 11 and 12), where the loss alone, without a network, would move it by -g_i (Eq. 13). The paper writes the gradient
of a loss that is a mean over samples, which no contrastive loss is: here g_j is n times the gradient of the batch's
loss by z_j, which holds for any.
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

from lightning_ssl_geometry.introspection import check_settled, substituted_call

Inputs = Tensor | tuple[Tensor, ...]
Weights = dict[str, Tensor]


def output_velocity(
    network: nn.Module, x: Inputs, cotangent: Tensor, at: Inputs | None = None, *, chunk_size: int = 256
) -> Tensor:
    r"""Compute how outputs move under gradient flow on the weights.

    .. math:: \dot f(a) = -\frac1n \sum_{j=1}^n K(a, x_j)\, g_j

    Eq. 11 of Calder & Lee, at any point a. The kernel is never built: one pass backward takes the cotangents to a
    direction of the weights, :math:`-\frac1n \sum_j J(x_j)^T g_j`, and one forward takes that to the outputs. At x it
    is :func:`kernel_flow` of :func:`neural_kernel`.

    Args:
        network: f, maps (N, ...) to (N, d), each sample by itself; in eval mode. Its parameters that require a gradient
            are the weights w.
        x: (n, ...), the samples of the step; a tuple of tensors with n rows where the network takes several.
        cotangent: g (n, d), n times the gradient of the batch's loss by each output.
        at: (m, ...), the points a, likewise; None: x.
        chunk_size: Samples at once, >= 1; memory is that of a backward pass over as many, and twice the weights.

    Returns:
        (m, d), detached: the derivative of f(a) in time, so that a step of size s changes f(a) by s times it.

    Raises:
        ValueError: If a shape is wrong, `chunk_size` < 1, no parameter requires a gradient, or batch norm or dropout is
            not in eval mode, where a sample's output depends on the others or on chance.

    >>> layer = nn.Linear(3, 3, bias=False)  # K(x_i, x_j) = (x_i . x_j) I
    >>> output_velocity(layer, torch.eye(3), torch.ones(3, 3))[0]
    tensor([-0.3333, -0.3333, -0.3333])
    """
    samples = _rows(x)
    _check(network, samples, cotangent, chunk_size)
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
    r"""Compare how a sample and its transformed versions move in a step: whether invariance outlives it.

    .. math:: \sqrt{\frac{\frac1{VN} \sum_{v,i} \|\dot f(T_v x_i) - \dot f(x_i)\|^2}
        {\frac1N \sum_i \|\dot f(x_i)\|^2}}

    Theorem 4.2 of Calder & Lee: without a network, points that coincide get the same gradient and move together. With
    one, an invariant map stays so only if :math:`\nabla_w f(T(x)) = \nabla_w f(x)`, too; the theorem says no more than
    whether, this says by how much it is not.

    Args:
        at: (N, d), the velocities of f(x_i), as :func:`output_velocity` gives them.
        moved: (V, N, d), those of f(T_v x_i).

    Returns:
        A float64 scalar >= 0: 0 where the step moves a sample and its versions alike, about 2^0.5 where they move
        unrelatedly; NaN where nothing moves.

    Raises:
        ValueError: If the shapes do not fit each other.

    >>> at = torch.tensor([[3.0, 4.0]])
    >>> f"{step_invariance_error(at, torch.tensor([[[3.0, 3.0]], [[3.0, 5.0]]])).item():.2f}"
    '0.20'
    """
    if at.ndim != 2 or moved.ndim != 3 or moved.shape[1:] != at.shape or not len(moved):
        shapes = f"{tuple(at.shape)} and {tuple(moved.shape)}"
        raise ValueError(f"Expected `at` (N, d) and `moved` (V, N, d), but got {shapes}.")
    at, moved = at.double(), moved.double()
    difference = (moved - at).square().sum(2).mean()
    return (difference / at.square().sum(1).mean()).sqrt()


def _run(network: nn.Module, weights: Weights, rows: tuple[Tensor, ...]) -> Tensor:
    copies = tuple(tensor.clone() for tensor in rows)  # the first layer may work in place
    z = substituted_call(network, weights, *copies)
    if not isinstance(z, Tensor) or z.ndim != 2 or len(z) != len(rows[0]):
        got = tuple(z.shape) if isinstance(z, Tensor) else type(z).__name__
        raise ValueError(f"Expected a `network` from (N, ...) to (N, d), but got {got} from {tuple(rows[0].shape)}.")
    return z


def _pullback(run: Callable[[Weights], Tensor], weights: Weights, cotangent: Tensor) -> Weights:
    """Take cotangents to the weights, sum_j J(x_j)^T g_j."""
    z, pull = vjp(run, weights)[:2]
    if z.shape != cotangent.shape:
        raise ValueError(
            f"Expected `cotangent` (n, {z.shape[1]}) as `network` returns, but got d = {cotangent.shape[1]}."
        )
    return pull(cotangent)[0]


@contextmanager
def _plain(near: Tensor) -> Iterator[None]:
    """Leave inference mode and autocast, and take attention's plain form, the one that has a forward derivative."""
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        with (
            torch.inference_mode(False),
            torch.no_grad(),
            torch.autocast(near.device.type, enabled=False),
            sdpa_kernel(SDPBackend.MATH),
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
    """Copy, out of inference mode, in the weights' dtype but for integers, which stand for themselves; and cut."""
    copy = tensor.detach().clone()
    return (copy.to(dtype) if copy.is_floating_point() else copy).split(chunk_size)


def _check(network: nn.Module, samples: tuple[Tensor, ...], cotangent: Tensor, chunk_size: int) -> None:
    n = len(cotangent)
    if cotangent.ndim != 2 or not n or not samples or any(len(rows) != n for rows in samples):
        shapes = f"{[tuple(rows.shape) for rows in samples]} and {tuple(cotangent.shape)}"
        raise ValueError(f"Expected `x` (n, ...) and `cotangent` (n, d) with n >= 1, but got {shapes}.")
    if not chunk_size >= 1:
        raise ValueError(f"Expected `chunk_size` >= 1, but got {chunk_size}.")
    if not any(parameter.requires_grad for parameter in network.parameters()):
        raise ValueError("Expected `network` with a parameter that requires a gradient, but got none.")
    check_settled(network, "network", "output")
