"""Similarities of InfoNCE: the logits of many pairs at once, and their gradients."""

__all__ = ["Dot", "LpDistance", "Similarity", "SquaredDistance"]

import abc
import math
from dataclasses import dataclass, replace
from typing import ClassVar, Self

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside, switch


class Similarity(abc.ABC):
    """A symmetric similarity of two embeddings. InfoNCE sets the factor `scale` to 1 / temperature."""

    scale: float

    @property
    @abc.abstractmethod
    def degree(self) -> float:
        """Degree d of homogeneity: scaling both embeddings by c > 0 scales the similarity by c^d."""

    @property
    @abc.abstractmethod
    def spread(self) -> float:
        """The largest minus the smallest similarity of unit vectors, for scale 1; may be infinite."""

    def scaled(self, scale: float) -> Self:
        """Return the same similarity with another scale."""
        return replace(self, scale=scale)  # type: ignore[type-var]

    def centred(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        """Return both views (N, P), shifted by one vector if this reduces rounding errors of the similarity."""
        return x1, x2

    @abc.abstractmethod
    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        """Return the logits (N,) of row i of `a` (N, P) with row i of `b` (N, P), for all i; differentiable."""

    @abc.abstractmethod
    def tile(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        """Write the logits of all rows of `a` (A, P) with all rows of `b` (B, P) to `out` (A, B)."""

    @abc.abstractmethod
    def accumulate(self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None) -> None:
        """Add the gradients of (weight * tile(a, b)).sum() to `grad_a` (A, P) and, if not None, to `grad_b` (B, P)."""


@dataclass(frozen=True)
class _Quadratic(Similarity):
    scale: float = 1.0
    _spread: ClassVar[float]

    @property
    def degree(self) -> float:
        return 2.0

    @property
    def spread(self) -> float:
        return self._spread


@dataclass(frozen=True)
class Dot(_Quadratic):
    """The dot product, scale <a, b>."""

    _spread: ClassVar[float] = 2.0

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return torch.linalg.vecdot(a, b) * self.scale

    def tile(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        return torch.addmm(out, a, b.T, beta=0, alpha=self.scale, out=out)

    def accumulate(self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None) -> None:
        grad_a.addmm_(weight, b, alpha=self.scale)
        if grad_b is not None:
            grad_b.addmm_(weight.T, a, alpha=self.scale)


@dataclass(frozen=True)
class SquaredDistance(_Quadratic):
    """The negative squared distance, -scale |a - b|^2."""

    _spread: ClassVar[float] = 4.0

    def centred(self, x1: Tensor, x2: Tensor) -> tuple[Tensor, Tensor]:
        centre = (x1.detach().mean(dim=0) + x2.detach().mean(dim=0)) / 2
        return x1 - centre, x2 - centre

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        return (a - b).square().sum(dim=-1) * -self.scale

    def tile(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        # scale (2 <a_i, b_j> - |a_i|^2 - |b_j|^2)
        torch.addmm(_squared_norm(b), a, b.T, beta=-self.scale, alpha=2 * self.scale, out=out)
        out.sub_(_squared_norm(a)[:, None], alpha=self.scale)
        if a.data_ptr() == b.data_ptr() and a.shape == b.shape:
            out.fill_diagonal_(0)  # distances of rows to themselves, where the expansion leaves a rounding error
        return out

    def accumulate(self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None) -> None:
        # 2 scale sum_j w_ij (b_j - a_i) for a_i, 2 scale sum_i w_ij (a_i - b_j) for b_j
        grad_a.addmm_(weight, b, alpha=2 * self.scale).addcmul_(a, weight.sum(dim=1)[:, None], value=-2 * self.scale)
        if grad_b is not None:
            grad_b.addmm_(weight.T, a, alpha=2 * self.scale)
            grad_b.addcmul_(b, weight.sum(dim=0)[:, None], value=-2 * self.scale)


@dataclass(frozen=True)
class LpDistance(Similarity):
    """The negative distance -scale ||a - b||_p^p, or -scale ||a - b||_p with `power=False`, for 1 <= p < inf."""

    scale: float = 1.0
    p: float = 2.0
    power: bool = True

    def __post_init__(self) -> None:
        inside("[1, inf)", p=self.p)
        switch(power=self.power)

    @property
    def degree(self) -> float:
        return self.p if self.power else 1.0

    @property
    def spread(self) -> float:
        return math.inf  # a safe upper bound

    def pairwise(self, a: Tensor, b: Tensor) -> Tensor:
        difference = a - b
        if self.power:
            return difference.abs().pow(self.p).sum(dim=-1) * -self.scale
        return torch.linalg.vector_norm(difference, ord=self.p, dim=-1) * -self.scale

    def tile(self, a: Tensor, b: Tensor, out: Tensor) -> Tensor:
        return out.copy_(self._distances(a, b)).mul_(-self.scale)

    def accumulate(self, weight: Tensor, a: Tensor, b: Tensor, grad_a: Tensor, grad_b: Tensor | None) -> None:
        with torch.enable_grad():
            a, b = a.detach().requires_grad_(), b.detach().requires_grad_()
            distances = self._distances(a, b)
        gradients = torch.autograd.grad(distances, (a, b), weight)
        grad_a.sub_(gradients[0], alpha=self.scale)
        if grad_b is not None:
            grad_b.sub_(gradients[1], alpha=self.scale)

    def _distances(self, a: Tensor, b: Tensor) -> Tensor:
        distances = torch.cdist(a, b, p=self.p, compute_mode="donot_use_mm_for_euclid_dist")
        return distances.pow(self.p) if self.power else distances


def _squared_norm(x: Tensor) -> Tensor:
    return torch.linalg.vecdot(x, x)
