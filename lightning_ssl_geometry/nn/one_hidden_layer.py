"""OneHiddenLayer: a network x (N, D) -> z (N, d) whose neural kernel is known in closed form."""

__all__ = ["OneHiddenLayer"]

from torch import Tensor, nn

from lightning_ssl_geometry.checks import integer


class OneHiddenLayer(nn.Module):
    r"""A trained hidden layer and a fixed sum over its units: :math:`f(x) = A^T \sigma(B x)`, without biases.

    This is Eq. 18 and 19 of Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural
    Network Optimization Perspectives (2025). The matrix A (M d, d) is fixed. Each output is the sum of its own M units,
    divided by :math:`\sqrt{M}`. The matrix B (M d, D) is the weight of the layer `hidden`. Its first M rows belong to
    the first output, and so on. Its initial entries are standard normal, as in Prop. 4.4.

    Args:
        in_dim: D, the length of a sample.
        out_dim: d, number of outputs.
        width: M, the number of hidden units of each output.
        activation: sigma, an elementwise function. None: the ReLU.

    Raises:
        ValueError: If a size is not positive.
    """

    def __init__(self, in_dim: int, out_dim: int, width: int, activation: nn.Module | None = None) -> None:
        super().__init__()
        integer(1, in_dim=in_dim, out_dim=out_dim, width=width)
        self.out_dim, self.width = out_dim, width
        self.hidden = nn.Linear(in_dim, width * out_dim, bias=False)
        self.activation = activation or nn.ReLU()
        nn.init.normal_(self.hidden.weight)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (N, D) to z (N, d)."""
        units: Tensor = self.activation(self.hidden(x))
        return units.unflatten(-1, (self.out_dim, self.width)).sum(-1) / self.width**0.5
