"""Projectors: map representations h (N, D) to embeddings z (N, P). A linear projector is `torch.nn.Linear`."""

__all__ = ["MLPProjector", "SubVector"]

from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer
from lightning_ssl_geometry.nn.norms import Norm1d, norm_1d


class MLPProjector(nn.Sequential):
    """Linear layers with a normalisation and a ReLU between them.

    SimCLR's projector has `depth=2`. By default, the last layer is a matrix without normalisation or bias.

    Args:
        in_dim: D, the number of inputs.
        hidden_dim: Width of every hidden layer.
        out_dim: P, the number of outputs.
        depth: Number of linear layers, 1 to 1,000. With 1, the projector is linear and has no bias.
        norm: Normalisation after each hidden layer: "batch", "layer" or "none".
        last_norm: Whether to normalise after the last layer, as in the three-layer projector of Keller et al.,
            Homomorphic Self-Supervised Learning, Appendix B.
        first_norm: Whether to normalise before the first layer, as Keller et al. do for a backbone without
            normalisation.

    Raises:
        ValueError: If an argument is out of range.
    """

    def __init__(
        self,
        in_dim: int,
        hidden_dim: int = 512,
        out_dim: int = 128,
        depth: int = 2,
        norm: Norm1d = "batch",
        last_norm: bool = False,
        first_norm: bool = False,
    ) -> None:
        integer(1, in_dim=in_dim, hidden_dim=hidden_dim, out_dim=out_dim, depth=depth)
        if depth > 1000:
            raise ValueError(f"Expected `depth` <= 1000, but got {depth}.")
        super().__init__()
        if first_norm:
            self.append(norm_1d(norm, in_dim))
        for _ in range(depth - 1):
            self.append(nn.Linear(in_dim, hidden_dim, bias=norm == "none"))
            self.append(norm_1d(norm, hidden_dim))
            self.append(nn.ReLU(inplace=True))
            in_dim = hidden_dim
        self.append(nn.Linear(in_dim, out_dim, bias=False))
        if last_norm:
            self.append(norm_1d(norm, out_dim))


class SubVector(nn.Module):
    """DirectCLR's projector: the first `dim` dimensions of the representation, without weights.

    Jing et al., Understanding Dimensional Collapse in Contrastive Self-supervised Learning (2022).

    Args:
        dim: P >= 1, the number of dimensions to keep.

    Raises:
        ValueError: If `dim` is not positive. A call raises it if `dim` is above D.
    """

    def __init__(self, dim: int) -> None:
        integer(1, dim=dim)
        super().__init__()
        self.dim = dim

    def forward(self, h: Tensor) -> Tensor:
        """Map (N, D) to (N, P)."""
        if h.shape[-1] < self.dim:
            raise ValueError(f"Expected `dim` <= D = {h.shape[-1]}, but got {self.dim}.")
        return h[..., : self.dim]

    def extra_repr(self) -> str:
        return f"dim={self.dim}"
