"""Generative models g: latents z to observations x, known, invertible and fixed.

The network and the choice of its matrices are those of Zimmermann et al., Contrastive Learning Inverts the Data
Generating Process (2021), as its published code has them.
"""

__all__ = ["InvertibleMLP"]

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

_CHUNK = 2048  # matrices whose condition numbers are computed at once


class InvertibleMLP(nn.Module):
    r"""An MLP of square matrices without bias, with LeakyReLU between them, that has an exact inverse.

    .. math:: g(z) = W_L\, \sigma(W_{L-1} \cdots \sigma(W_1 z))

    Entries are uniform on [-1, 1] and columns then of unit length. Of `candidates` such matrices, the `quantile` of the
    condition numbers is the most that a layer may have: with the default 0 their minimum, which then takes about as
    many matrices again for each layer. Weights are drawn once, from a generator of their own, and not trained.
    A checkpoint brings back all of g: weights, slope and threshold.

    The search grows steeply with d: with the defaults it takes about a second for d = 10, but for d >= 32 minutes, and
    may then find too few. Raise `quantile` there.

    Args:
        dim: d, of latents and observations, >= 1.
        depth: Number of matrices, >= 1; 1 is the linear mixing.
        slope: Of LeakyReLU below 0, in (0, 1].
        candidates: Number of matrices that set the greatest condition number, >= 1.
        quantile: Which of theirs it is, in [0, 1].
        tries: Number of matrices to look for all layers in, at most.
        seed: Of the matrices.

    Attributes:
        weight: (depth, d, d), the matrices.
        threshold: The greatest condition number that they may have.

    Raises:
        ValueError: If an argument is out of range, or too few of `tries` matrices are well enough conditioned.

    >>> g = InvertibleMLP(4, candidates=100)
    >>> z = torch.linspace(-1, 1, 8).view(2, 4)
    >>> torch.allclose(g.inverse(g(z)), z, atol=1e-5)
    True
    """

    weight: Tensor

    def __init__(
        self,
        dim: int,
        depth: int = 3,
        slope: float = 0.2,
        candidates: int = 25_000,
        quantile: float = 0.0,
        tries: int = 2_000_000,
        seed: int = 0,
    ) -> None:
        super().__init__()
        for name, value in {"dim": dim, "depth": depth, "candidates": candidates, "tries": tries}.items():
            if value < 1:
                raise ValueError(f"Expected `{name}` >= 1, but got {value}.")
        if not 0 < slope <= 1:
            raise ValueError(f"Expected `slope` in (0, 1], but got {slope}.")
        if not 0 <= quantile <= 1:
            raise ValueError(f"Expected `quantile` in [0, 1], but got {quantile}.")
        self.slope = slope
        generator = torch.Generator().manual_seed(seed)
        conditions = torch.cat([_condition(matrix) for matrix in _matrices(dim, candidates, generator)])
        self.threshold = conditions.sort().values[min(int(quantile * candidates), candidates - 1)].item()
        layers = list(islice(_conditioned(dim, tries, self.threshold, generator), depth))
        if len(layers) < depth:
            raise ValueError(
                f"Expected {depth} matrices of condition number <= {self.threshold:g} among `tries` = {tries}, "
                f"but got {len(layers)}. Raise `tries` or `quantile`."
            )
        self.register_buffer("weight", torch.stack(layers).float())

    def get_extra_state(self) -> dict[str, float]:
        """What else than the weights belongs to g."""
        return {"slope": self.slope, "threshold": self.threshold}

    def set_extra_state(self, state: dict[str, float]) -> None:
        """Bring it back."""
        self.slope, self.threshold = state["slope"], state["threshold"]

    def forward(self, z: Tensor) -> Tensor:
        """Map latents to observations, both (N, d), of the latents' dtype; computed in float64."""
        x = z.double()
        for layer, weight in enumerate(self.weight.double()):
            x = (leaky_relu(x, self.slope) if layer else x) @ weight.T
        return x.to(z.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        """Map observations to latents, both (N, d), of the observations' dtype; computed in float64."""
        z = x.double()
        for layer, weight in reversed(list(enumerate(self.weight.double()))):
            z = torch.linalg.solve(weight, z.T).T
            z = leaky_relu(z, 1 / self.slope) if layer else z
        return z.to(x.dtype)


def _conditioned(dim: int, tries: int, threshold: float, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield those of `tries` matrices whose condition number is at most `threshold`."""
    for matrix in _matrices(dim, tries, generator):
        likely = matrix[_condition_bound(matrix) <= threshold * (1 + 1e-6)]  # an SVD of each would take twice as long
        yield from likely[_condition(likely) <= threshold]


def _matrices(dim: int, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    """Yield `count` random matrices in chunks (n, d, d), columns of unit length."""
    for start in range(0, count, _CHUNK):
        n = min(_CHUNK, count - start)
        matrix = 2 * torch.rand(n, dim, dim, dtype=torch.float64, generator=generator) - 1
        yield matrix / torch.linalg.vector_norm(matrix, dim=1, keepdim=True)


def _condition(matrix: Tensor) -> Tensor:
    singular = torch.linalg.svdvals(matrix)
    return singular[:, 0] / singular[:, -1]


def _condition_bound(matrix: Tensor) -> Tensor:
    r"""At most the condition number (n,): of :math:`G = W^\top W`, the least Cholesky pivot and |G|_F^2 / tr G."""
    gram = matrix.mT @ matrix
    least = torch.linalg.cholesky_ex(gram).L.diagonal(dim1=1, dim2=2).amin(1).square()  # >= its least eigenvalue
    return (gram.square().sum((1, 2)) / (matrix.shape[-1] * least)).sqrt()
