r"""Transformations of representations by a one-parameter group, :math:`h^2_i = \exp(\epsilon_i G) h^1_i`.

Section 4 (b), Eq. 7 and appendix B of Cosentino et al., Toward a Geometrical Understanding of Self-supervised
Contrastive Learning (2022). :math:`h^1_i` is the representation of an input, and :math:`h^2_i` that of the input
transformed with the strength :math:`\epsilon_i`. The paper assumes a generator G; here G is estimated.
"""

__all__ = ["LieOrder", "lie_action", "lie_generator", "lie_strength"]

import math
from collections.abc import Callable
from functools import partial
from typing import Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, finite, inside, one_of, shaped
from lightning_ssl_geometry.precision import in_float64, without_autocast

LieOrder = Literal["first", "exponential"]


def lie_generator(
    h1: Tensor,
    h2: Tensor,
    strength: Tensor,
    *,
    order: LieOrder = "first",
    ridge: float = 1e-3,
    max_iterations: int = 100,
) -> Tensor:
    r"""Estimate the generator of a transformation from representations of inputs and of the transformed inputs.

    .. math:: \hat G = \arg\min_G \sum_i \|h^2_i - \exp(\epsilon_i G) h^1_i\|_2^2 + \lambda \|G\|_F^2

    Eq. 7 of Cosentino et al. 2022. The order "first" replaces the exponential by :math:`I + \epsilon_i G` (Eq. 12). The
    solution is :math:`\sum_i \epsilon_i v_i h_i^{1\top} (\sum_i \epsilon_i^2 h^1_i h_i^{1\top} + \lambda I)^{-1}` with
    :math:`v_i = h^2_i - h^1_i`. This solution is exact only in the limit of small strengths. The order "exponential"
    starts from this solution and finds a local minimum by L-BFGS. The search is reliable if a strength of 1 turns the
    representation by less than about half a revolution.

    G has D^2 unknowns, and each pair gives D equations. With fewer than D pairs, many generators fit even random v
    exactly. The ridge selects the smallest generator. Test the result on other pairs.

    Args:
        h1: (N, D), representations.
        h2: (N, D), representations of the transformed inputs.
        strength: epsilon, (N,), in any unit, to which G then refers. "exponential" converges best for values near 1.
        order: "first" or "exponential".
        ridge: lambda >= 0, as a fraction of the mean eigenvalue of :math:`\sum_i \epsilon_i^2 h^1_i h_i^{1\top}`. 0
            gives the least-squares solution of smallest norm.
        max_iterations: Iterations of L-BFGS, for `order="exponential"`.

    Returns:
        float64 (D, D), not differentiable. If h1 and h2 are rotated by an orthogonal Q, the result is Q G Q^T.

    Raises:
        ValueError: If shapes do not fit, a value is not finite, all strengths are 0, or `order` or `ridge` is invalid.

    >>> h, quarter = torch.eye(2), torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # rows: (1, 0) -> (0, 1), (0, 1) -> (-1, 0)
    >>> lie_generator(h, quarter, torch.full((2,), torch.pi / 2), order="exponential", ridge=0).round().abs().tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    embeddings("N, D", h1=h1, h2=h2)
    one_of(get_args(LieOrder), order=order)
    inside("[0, inf)", ridge=ridge)
    shaped("N, D", h1=h1, h2=h2)
    shaped("N,", {"N": len(h1)}, strength=strength)
    finite(h1=h1, h2=h2, strength=strength)
    if not strength.any():
        raise ValueError("Expected `strength` with a value other than 0, but all are 0.")
    with torch.inference_mode(False), torch.no_grad():
        h1, h2, strength = (
            in_float64(x.detach().clone()) for x in (h1, h2, strength)
        )  # inference tensors have no grad
        x, v = strength[:, None] * h1, h2 - h1
        moment, basis = torch.linalg.eigh(x.T @ x)  # (D,), (D, D)
        penalty = ridge * moment.mean()
        damped = moment.clamp(min=0) + penalty
        seen = damped > len(damped) * torch.finfo(damped.dtype).eps * damped.max()
        inverse = torch.where(seen, damped, math.inf).reciprocal()
        generator = v.T @ (x @ basis) * inverse @ basis.T  # (D, D)
        if order == "first" or not generator.any():  # if nothing moves, G = 0 is the minimum
            return generator
        # coordinates in which the Hessian of the first-order problem is the identity
        unit = (damped + 1e-8 * damped.max()).rsqrt() * basis  # (D, D)
        error = partial(_lack_of_fit, h1=h1, h2=h2, strength=strength, penalty=penalty)
        return _refined(generator, unit, error, max_iterations=max_iterations)


@without_autocast
def lie_action(generator: Tensor, h: Tensor, strength: Tensor) -> Tensor:
    r"""Transform each representation by its own strength: :math:`\exp(\epsilon_i G) h_i`.

    Eq. 7 and appendix B of Cosentino et al. 2022. The Taylor series is applied to the vectors, at a cost of O(N D^2)
    per term. The number of terms grows with the largest :math:`|\epsilon_i| \|G\|_2`. The result (N, D) is exact up to
    rounding in the promoted dtype of the arguments. It is differentiable in all arguments.

    Args:
        generator: G, (D, D).
        h: (N, D).
        strength: epsilon, (N,).

    Raises:
        ValueError: If the shapes do not fit or a value is not finite.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> lie_action(turn, torch.tensor([[1.0, 0.0]]), torch.tensor([torch.pi / 2])).round(decimals=4).abs()
    tensor([[0., 1.]])
    """
    embeddings("N, D", h=h)
    shaped("N, D", h=h)
    shaped("D, D", {"D": h.shape[1]}, generator=generator)
    shaped("N,", {"N": len(h)}, strength=strength)
    finite(generator=generator, h=h, strength=strength)
    dtype = torch.promote_types(torch.promote_types(generator.dtype, h.dtype), strength.dtype)
    y, g = h.to(dtype), generator.to(dtype)
    if not len(y):
        return y
    size = _norm(g) * strength.detach().abs().max().item()
    steps = max(1, math.ceil(size / 4))  # beyond about 4, terms of alternating sign cancel digits
    portion = strength.to(dtype)[:, None] / steps
    terms = _terms(size / steps, torch.finfo(dtype).eps)
    for _ in range(steps):
        term = y
        for k in range(1, terms + 1):
            term = portion / k * (term @ g.T)
            y = y + term
    return y


def lie_strength(
    generator: Tensor, h1: Tensor, h2: Tensor, *, order: LieOrder = "first", iterations: int = 20
) -> Tensor:
    r"""Find the strength that best maps each representation to the representation of the transformed input.

    .. math:: \hat\epsilon_i = \arg\min_\epsilon \|h^2_i - \exp(\epsilon G) h^1_i\|_2^2

    The order "first" replaces the exponential by :math:`I + \epsilon G` (Eq. 12 of Cosentino et al. 2022). Its solution
    is :math:`\langle h^2_i - h^1_i, G h^1_i \rangle / \|G h^1_i\|_2^2`. The order "exponential" takes Gauss-Newton
    steps from 0, of at most :math:`4 / \|G\|_2`, and rejects a step that does not lower the error. The search ends in a
    local minimum near 0, so a strength beyond half a revolution is underestimated.

    Args:
        generator: G, (D, D).
        h1: (N, D), representations.
        h2: (N, D), representations of the transformed inputs.
        order: "first" or "exponential".
        iterations: Gauss-Newton steps, for `order="exponential"`.

    Returns:
        The strengths, (N,) in float64. Their unit is that of the strengths from which G was estimated. Samples with G
        h1 = 0 get 0.

    Raises:
        ValueError: If the shapes do not fit, a value is not finite, or `order` is unknown.

    >>> turn, h1, h2 = torch.tensor([[0.0, -1.0], [1.0, 0.0]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[0.0, 1.0]])
    >>> lie_strength(turn, h1, h2).tolist(), lie_strength(turn, h1, h2, order="exponential").tolist()
    ([1.0], [1.5707963267948966])
    """
    embeddings("N, D", h1=h1, h2=h2)
    one_of(get_args(LieOrder), order=order)
    shaped("N, D", h1=h1, h2=h2)
    shaped("D, D", {"D": h1.shape[1]}, generator=generator)
    finite(generator=generator, h1=h1, h2=h2)
    g, h1, h2 = in_float64(generator), in_float64(h1), in_float64(h2)
    if order == "first":
        return _along(h2 - h1, h1 @ g.T)
    limit = 4 / max(_norm(g), torch.finfo(g.dtype).tiny)
    strength, damping, y = h1.new_zeros(len(h1)), h1.new_ones(len(h1)), h1
    for _ in range(iterations):
        step = damping * _along(h2 - y, y @ g.T).clamp(-limit, limit)
        tried = lie_action(g, h1, strength + step)
        better = (h2 - tried).square().sum(1) < (h2 - y).square().sum(1)
        strength = torch.where(better, strength + step, strength)
        y = torch.where(better[:, None], tried, y)
        damping = torch.where(better, (2 * damping).clamp(max=1), damping / 2)  # shorter after a rejected step
    return strength


def _lack_of_fit(g: Tensor, h1: Tensor, h2: Tensor, strength: Tensor, penalty: Tensor) -> Tensor:
    error = h2 - lie_action(g, h1, strength)
    scale = (h2 - h1).square().sum().clamp(min=torch.finfo(h1.dtype).tiny)
    return (error.square().sum() + penalty * g.square().sum()) / scale


def _refined(generator: Tensor, unit: Tensor, loss_of: Callable[[Tensor], Tensor], *, max_iterations: int) -> Tensor:
    # in the coordinates A with G = A unit^T
    a = torch.linalg.solve(unit, generator.T).T.contiguous().requires_grad_()
    optimizer = torch.optim.LBFGS(
        [a], max_iter=max_iterations, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = loss_of(a @ unit.T)
            loss.backward()
        return loss

    optimizer.step(closure)
    return a.detach() @ unit.T


def _along(v: Tensor, direction: Tensor) -> Tensor:
    # c (N,) such that c_i direction_i is the projection of row v_i
    square = direction.square().sum(1)
    return torch.where(square > 0, (v * direction).sum(1) / square.where(square > 0, 1.0), 0.0)


def _norm(generator: Tensor) -> float:
    full = generator.detach().to(torch.promote_types(generator.dtype, torch.float32))
    return torch.linalg.matrix_norm(full, 2).item()


def _terms(size: float, eps: float) -> int:
    # the smallest k >= 1 with size^k / k! <= eps
    terms, term = 1, size
    while term > eps:
        terms += 1
        term *= size / terms
    return terms
