"""InvertibleMLP: a fixed invertible network that maps latents z to observations x."""

__all__ = ["InvertibleMLP"]

from collections.abc import Iterator
from itertools import islice

import torch
from torch import Tensor, nn
from torch.nn.functional import leaky_relu

from lightning_ssl_geometry.checks import inside, integer

_CHUNK = 2048  # matrices whose condition numbers are computed at once


class InvertibleMLP(nn.Module):
    r"""An MLP with an exact inverse: square matrices without bias, and LeakyReLU between them.

    .. math:: g(z) = W_L\, \sigma(W_{L-1} \cdots \sigma(W_1 z))

    The network follows the published code of Zimmermann et al., Contrastive Learning Inverts the Data Generating
    Process (2021). Entries of a matrix are uniform on [-1, 1], and its columns are then scaled to length 1. A matrix is
    used if its condition number is at most a threshold. The threshold is the `quantile` of the condition numbers of
    `candidates` random matrices. By default, it is the smallest of these numbers. The weights are not trained.

    The search takes about a second for d = 10, but minutes for d >= 32. If it fails, raise `quantile`.

    Args:
        dim: d, the dimension of latents and observations, >= 1.
        depth: Number of matrices, >= 1. With 1, g is linear.
        slope: Slope of LeakyReLU for negative values, in (0, 1].
        candidates: Number of matrices whose condition numbers set the threshold, >= 1.
        quantile: Quantile of these condition numbers, in [0, 1].
        tries: Largest number of matrices to draw in the search, >= 1.
        seed: Seed of the matrices.

    Attributes:
        weight: (depth, d, d), the matrices.
        threshold: The largest condition number allowed.

    Raises:
        ValueError: If an argument is out of range, or the search finds fewer than `depth` matrices.

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
        integer(1, dim=dim, depth=depth, candidates=candidates, tries=tries)
        inside("(0, 1]", slope=slope)
        inside("[0, 1]", quantile=quantile)
        self.slope = slope
        generator = torch.Generator().manual_seed(seed)
        conditions = torch.cat([_condition(matrix) for matrix in _matrices(dim, candidates, generator)])
        self.threshold = conditions.sort().values[min(int(quantile * candidates), candidates - 1)].item()
        layers = list(islice(_conditioned(dim, tries, threshold=self.threshold, generator=generator), depth))
        if len(layers) < depth:
            raise ValueError(
                f"Expected {depth} matrices of condition number <= {self.threshold:g} among `tries` = {tries}, "
                f"but got {len(layers)}. Raise `tries` or `quantile`."
            )
        self.register_buffer("weight", torch.stack(layers).float())

    def get_extra_state(self) -> dict[str, float]:
        return {"slope": self.slope, "threshold": self.threshold}

    def set_extra_state(self, state: dict[str, float]) -> None:
        self.slope, self.threshold = state["slope"], state["threshold"]

    def forward(self, z: Tensor) -> Tensor:
        """Map latents to observations, both (N, d). The computation is in float64."""
        x = z.double()
        for layer, weight in enumerate(self.weight.double()):
            x = (leaky_relu(x, self.slope) if layer else x) @ weight.T
        return x.to(z.dtype)

    def inverse(self, x: Tensor) -> Tensor:
        """Map observations to latents, both (N, d). The computation is in float64."""
        z = x.double()
        for layer, weight in reversed(list(enumerate(self.weight.double()))):
            z = torch.linalg.solve(weight, z.T).T
            z = leaky_relu(z, 1 / self.slope) if layer else z
        return z.to(x.dtype)


def _conditioned(dim: int, tries: int, *, threshold: float, generator: torch.Generator) -> Iterator[Tensor]:
    for matrix in _matrices(dim, tries, generator):
        # The bound takes half the time of an SVD of every matrix.
        likely = matrix[_condition_bound(matrix) <= threshold * (1 + 1e-6)]
        yield from likely[_condition(likely) <= threshold]


def _matrices(dim: int, count: int, generator: torch.Generator) -> Iterator[Tensor]:
    for start in range(0, count, _CHUNK):
        n = min(_CHUNK, count - start)
        matrix = 2 * torch.rand(n, dim, dim, dtype=torch.float64, generator=generator) - 1
        yield matrix / torch.linalg.vector_norm(matrix, dim=1, keepdim=True)


def _condition(matrix: Tensor) -> Tensor:
    singular = torch.linalg.svdvals(matrix)
    return singular[:, 0] / singular[:, -1]


def _condition_bound(matrix: Tensor) -> Tensor:
    gram = matrix.mT @ matrix
    least = torch.linalg.cholesky_ex(gram).L.diagonal(dim1=1, dim2=2).amin(1).square()  # >= its least eigenvalue
    return (gram.square().sum((1, 2)) / (matrix.shape[-1] * least)).sqrt()
