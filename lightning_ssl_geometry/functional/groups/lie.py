r"""A transformation as a one-parameter group that acts on representations, :math:`h^2_i = \exp(\epsilon_i G) h^1_i`.

Section 4 (b), Eq. 7 and appendix B of Cosentino et al., Toward a Geometrical Understanding of Self-supervised
Contrastive Learning (2022). The paper supposes a generator G and draws conclusions from it; it estimates none. Here it
is estimated from pairs of representations and the strengths between them.
"""

__all__ = ["LieOrder", "lie_action", "lie_generator", "lie_strength"]

import math
from typing import Literal, get_args

import torch
from torch import Tensor

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
    r"""Estimate the generator of the transformation that carries one set of representations into the other.

    .. math:: \hat G = \arg\min_G \sum_i \|h^2_i - \exp(\epsilon_i G) h^1_i\|_2^2 + \lambda \|G\|_F^2

    Eq. 7 of Cosentino et al.; "first" replaces the exponential by :math:`I + \epsilon_i G` (Eq. 12), which has the
    closed form :math:`\sum_i \epsilon_i v_i h_i^{1\top} (\sum_i \epsilon_i^2 h^1_i h_i^{1\top} + \lambda I)^{-1}` with
    :math:`v_i = h^2_i - h^1_i`: exact for small strengths only. "exponential" goes on from there by L-BFGS, a local
    search: use it where one strength turns the representation by less than about half a revolution.

    G has D^2 unknowns and a pair gives D equations. With fewer pairs than D, or where some directions of h carry next
    to no variance, many generators fit the pairs, exactly so for v that is pure noise; the ridge then picks the
    smallest. Such a G says what it does to the representations seen; whether it says more, only held-out pairs tell.

    Args:
        h1: (N, D), representations.
        h2: (N, D), those of the transformed inputs.
        strength: epsilon, (N,), in any unit; G is per unit. Units in which it is of order 1 condition "exponential".
        order: "first" or "exponential".
        ridge: lambda as a fraction of the mean eigenvalue of :math:`\sum_i \epsilon_i^2 h^1_i h_i^{1\top}`, >= 0: so
            that it depends on no unit and on no number of samples. It keeps directions that h hardly uses, where v is
            noise, from ruling G, most of all where N is close to D. 0 gives the least squares of smallest norm.
        max_iterations: Of L-BFGS, where `order` is "exponential".

    Returns:
        float64 (D, D). Rotating h1 and h2 by an orthogonal Q turns it into Q G Q^T. Not differentiable.

    Raises:
        ValueError: If the shapes do not fit, a value is not finite, all strengths are 0, or `order` or `ridge` is out
            of range.

    >>> h = torch.eye(2, dtype=torch.float64)
    >>> quarter = torch.tensor([[0.0, 1.0], [-1.0, 0.0]])  # in rows: (1, 0) goes to (0, 1), (0, 1) to (-1, 0)
    >>> angle = torch.full((2,), torch.pi / 2)
    >>> found = lie_generator(h, quarter, angle, order="exponential", ridge=0)
    >>> torch.allclose(found, torch.tensor([[0.0, -1.0], [1.0, 0.0]]).double(), atol=1e-4)
    True
    """
    _check_order(order)
    if not 0 <= ridge < math.inf:
        raise ValueError(f"Expected `ridge` >= 0 and finite, but got {ridge}.")
    _check_pairs(h1, h2)
    _check_strength(strength, h1)
    if not strength.any():
        raise ValueError("Expected `strength` with a value other than 0, but all are: nothing was transformed.")
    with torch.inference_mode(False), torch.no_grad():
        h1, h2, strength = (x.detach().clone().double() for x in (h1, h2, strength))  # inference tensors have no grad
        x, v = strength[:, None] * h1, h2 - h1
        moment, basis = torch.linalg.eigh(x.T @ x)  # (D,), (D, D)
        penalty = ridge * moment.mean()
        damped = moment.clamp(min=0) + penalty
        seen = damped > len(damped) * torch.finfo(damped.dtype).eps * damped.max()
        inverse = torch.where(seen, damped, math.inf).reciprocal()
        generator = v.T @ (x @ basis) * inverse @ basis.T  # (D, D)
        if order == "first" or not generator.any():  # 0 where nothing moves, which no search improves
            return generator
        # in units of the square root of the first order's Hessian, which then is the identity
        unit = (damped + 1e-8 * damped.max()).rsqrt() * basis  # (D, D)
        return _refined(generator, unit, h1, h2, strength, penalty, max_iterations)


def lie_action(generator: Tensor, h: Tensor, strength: Tensor) -> Tensor:
    r"""Transform every representation by its own strength.

    .. math:: \exp(\epsilon_i G) h_i

    Of Eq. 7 and appendix B of Cosentino et al. The Taylor series acts on the vectors, in as many steps and terms as
    the largest :math:`|\epsilon_i| \|G\|_2` needs: O(N D^2) per term and no matrix exponential per sample.
    Differentiable in all three.

    Args:
        generator: G, (D, D).
        h: (N, D).
        strength: epsilon, (N,).

    Returns:
        (N, D), of the dtype to which the three promote, to its rounding.

    Raises:
        ValueError: If the shapes do not fit or a value is not finite.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> lie_action(turn, torch.tensor([[1.0, 0.0]]), torch.tensor([torch.pi / 2])).round(decimals=4).abs()
    tensor([[0., 1.]])
    """
    _check_generator(generator, h)
    _check_strength(strength, h)
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
    r"""Recover the strength that best carries one representation into the other.

    .. math:: \hat\epsilon_i = \arg\min_\epsilon \|h^2_i - \exp(\epsilon G) h^1_i\|_2^2

    "first" takes :math:`I + \epsilon G` (Eq. 12 of Cosentino et al.) for the exponential:
    :math:`\langle h^2_i - h^1_i, G h^1_i \rangle / \|G h^1_i\|_2^2`. "exponential" goes on by Gauss-Newton, each row
    with its own damping: a step that does not lower the row's error is not taken and the next is half of it. No step
    exceeds :math:`4 / \|G\|_2`, where the exponential is cheap, so that no strength exceeds `iterations` of those. It
    finds the minimum that lies downhill from 0: strengths beyond half a revolution come back as a smaller one.

    Args:
        generator: G, (D, D).
        h1: (N, D), representations.
        h2: (N, D), those of the transformed inputs.
        order: "first" or "exponential".
        iterations: Of Gauss-Newton, where `order` is "exponential".

    Returns:
        float64 (N,), in the unit of G. A row that G does not move (G h1 = 0) gets 0: every strength fits it alike, and
        0 is the smallest.

    Raises:
        ValueError: If the shapes do not fit, a value is not finite, or `order` is unknown.

    >>> turn = torch.tensor([[0.0, -1.0], [1.0, 0.0]])
    >>> h1, h2 = torch.tensor([[1.0, 0.0], [0.0, 0.0]]), torch.tensor([[0.0, 1.0], [1.0, 0.0]])
    >>> lie_strength(turn, h1, h2).tolist(), lie_strength(turn, h1, h2, order="exponential").tolist()
    ([1.0, 0.0], [1.5707963267948966, 0.0])
    """
    _check_order(order)
    _check_generator(generator, h1)
    _check_pairs(h1, h2)
    g, h1, h2 = generator.double(), h1.double(), h2.double()
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
        damping = torch.where(better, (2 * damping).clamp(max=1), damping / 2)
    return strength


def _refined(
    generator: Tensor, unit: Tensor, h1: Tensor, h2: Tensor, strength: Tensor, penalty: Tensor, max_iterations: int
) -> Tensor:
    """Search on for G = A unit^T from where the first order ended."""
    a = torch.linalg.solve(unit, generator.T).T.contiguous().requires_grad_()
    scale = (h2 - h1).square().sum().clamp(min=torch.finfo(h1.dtype).tiny)
    optimizer = torch.optim.LBFGS(
        [a], max_iter=max_iterations, tolerance_grad=1e-12, tolerance_change=1e-14, line_search_fn="strong_wolfe"
    )

    def closure() -> Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            g = a @ unit.T
            error = h2 - lie_action(g, h1, strength)
            loss = (error.square().sum() + penalty * g.square().sum()) / scale
            loss.backward()
        return loss

    optimizer.step(closure)
    return a.detach() @ unit.T


def _along(v: Tensor, direction: Tensor) -> Tensor:
    """Coefficient of `direction` in `v`, row by row; 0 where the direction is 0."""
    square = direction.square().sum(1)
    return torch.where(square > 0, (v * direction).sum(1) / square.where(square > 0, 1.0), 0.0)


def _norm(generator: Tensor) -> float:
    return torch.linalg.matrix_norm(generator.detach(), 2).item()


def _terms(size: float, eps: float) -> int:
    """Number of Taylor terms of exp(size) after which the next one is below rounding."""
    terms, term = 1, size
    while term > eps:
        terms += 1
        term *= size / terms
    return terms


def _check_order(order: str) -> None:
    if order not in get_args(LieOrder):
        raise ValueError(f"Expected `order` to be one of {get_args(LieOrder)}, but got {order!r}.")


def _check_pairs(h1: Tensor, h2: Tensor) -> None:
    if h1.ndim != 2 or h1.shape != h2.shape:
        shapes = f"{tuple(h1.shape)} and {tuple(h2.shape)}"
        raise ValueError(f"Expected `h1` and `h2` of one shape (N, D), but got {shapes}.")
    _check_finite(h1=h1, h2=h2)


def _check_strength(strength: Tensor, h: Tensor) -> None:
    if strength.shape != h.shape[:1]:
        raise ValueError(f"Expected `strength` of shape {tuple(h.shape[:1])}, but got {tuple(strength.shape)}.")
    _check_finite(strength=strength)


def _check_generator(generator: Tensor, h: Tensor) -> None:
    if h.ndim != 2 or generator.shape != (h.shape[1], h.shape[1]):
        shapes = f"{tuple(generator.shape)} and {tuple(h.shape)}"
        raise ValueError(f"Expected `generator` of shape (D, D) and representations of shape (N, D), but got {shapes}.")
    _check_finite(generator=generator, h=h)


def _check_finite(**values: Tensor) -> None:
    for name, value in values.items():
        if not torch.isfinite(value).all():
            raise ValueError(f"Expected `{name}` with finite values, but got some that are not.")
