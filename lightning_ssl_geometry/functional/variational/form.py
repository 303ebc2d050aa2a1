"""Settings of the variational contrastive loss: its functions Psi and eta, with their derivatives."""

__all__ = [
    "Derivatives",
    "Elementwise",
    "Form",
    "Negatives",
    "VariationalSwitches",
    "applied",
    "derivatives",
    "half_squares",
    "near_origin",
    "positive",
]

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import one_of, switch
from lightning_ssl_geometry.functional.info_nce.settings import temperature_range
from lightning_ssl_geometry.functional.matrix_product import matrix_product

Elementwise = Callable[[Tensor], Any]  # the result is a Tensor; if annotated so, jsonargparse would expect a class
Negatives = Literal["other", "both"]


class VariationalSwitches(TypedDict, total=False):
    """The keyword arguments `negatives`, `include_self` and `symmetric` of :class:`Form`."""

    negatives: Negatives
    include_self: bool
    symmetric: bool


@dataclass(frozen=True)
class Form:
    """Settings of :func:`functional.variational_loss`, which describes them."""

    temperature: float = 0.1
    psi: Elementwise | None = None
    eta: Elementwise | None = None
    negatives: Negatives = "other"
    include_self: bool = True
    symmetric: bool = False

    def __post_init__(self) -> None:
        temperature_range(self.temperature)
        one_of(get_args(Negatives), negatives=self.negatives)
        switch(include_self=self.include_self, symmetric=self.symmetric)

    def outer(self, ratio: Tensor) -> Tensor:
        """Return Psi of `ratio`, element by element; Psi is `psi`, by default log(1 + t)."""
        return ratio.log1p() if self.psi is None else self.psi(ratio)

    @property
    def is_logarithm(self) -> bool:
        """Whether Psi is log(1 + t), so that the loss can be computed from the logarithm of t."""
        return self.psi is None or self.psi is torch.log1p

    def similarity(self, t: Tensor) -> Tensor:
        """Return the similarity of points with half squared distances t: eta(t), by default exp(-t / temperature)."""
        return (-t / self.temperature).exp() if self.eta is None else self.eta(t)


class Derivatives(NamedTuple):
    """A function and its first two derivatives, evaluated element by element."""

    value: Tensor
    first: Tensor
    second: Tensor


def derivatives(function: Elementwise, t: Tensor, name: str) -> Derivatives:
    """Return a function and its first two derivatives at each element of `t`, detached."""
    with torch.inference_mode(False), torch.enable_grad():
        t = t.clone().requires_grad_()
        value = applied(function, t, name)
        first = _derivative(value, t)
        second = _derivative(first, t)
    return Derivatives(value.detach(), first.detach(), second.detach())


def applied(function: Elementwise, t: Tensor, name: str) -> Tensor:
    """Return function(t); raise a ValueError with `name` if the result is not a tensor of the shape of `t`."""
    value = function(t)
    if not isinstance(value, Tensor) or value.shape != t.shape:
        got = f"shape {tuple(value.shape)}" if isinstance(value, Tensor) else type(value).__name__
        raise ValueError(
            f"Expected `{name}` to map a tensor element by element, but got {got} for shape {tuple(t.shape)}."
        )
    return value


def positive(similarity: Tensor) -> Tensor:
    """Return `similarity`; raise a ValueError unless all its values are > 0."""
    if not (similarity > 0).all():
        raise ValueError(f"Expected `eta` > 0 for the two views of a point, but got {similarity.min().item():.3g}.")
    return similarity


def near_origin(points: Tensor) -> Tensor:
    """Move points (..., d) together, so that rounding does not cancel their distances.

    They stay where they are unless their mean is ten times as far from the origin as they are from their mean.
    """
    still = points.detach().flatten(0, -2)
    mean = still.mean(0)
    far = mean.square().sum() > 100 * (still - mean).square().sum(1).mean()
    return points - mean.where(far, 0)


def half_squares(a: Tensor, b: Tensor) -> Tensor:
    """Return half the squared distances between all rows of `a` and all rows of `b`, (N, N)."""
    squares = a.square().sum(-1)[:, None] + b.square().sum(-1)
    return (squares / 2 - matrix_product(a, b.T)).clamp(min=0)


def _derivative(value: Tensor, t: Tensor) -> Tensor:
    if not value.requires_grad:
        return torch.zeros_like(t)
    (slope,) = torch.autograd.grad(value.sum(), t, create_graph=True, allow_unused=True)
    return torch.zeros_like(t) if slope is None else slope
