"""MLPBackbone: a multi-layer perceptron that maps observations x (N, D_in) to representations h (N, D)."""

__all__ = ["MLPBackbone"]

from collections.abc import Sequence

from torch import nn

from lightning_ssl_geometry.checks import inside, integer


class MLPBackbone(nn.Sequential):
    """Linear layers with leaky ReLU between them, for observations that are vectors.

    The encoder of Zimmermann et al., Contrastive Learning Inverts the Data Generating Process (2021), has hidden layers
    of 10 D_in, four times 50 D_in, and 10 D_in units. Without hidden layers and biases, this is the linear encoder of
    Rusak et al., Content suppresses style (2022). The weights are initialised as in He et al. (2015) for leaky ReLU, so
    that the variance is equal in all layers.

    Args:
        in_dim: D_in, the length of an observation.
        hidden_dims: Widths of the hidden layers. Empty: the network is linear.
        out_dim: D, number of outputs.
        slope: Slope of the leaky ReLU for negative values, >= 0. With 0, it is the ReLU.
        bias: Whether the linear layers have biases.
        last_activation: Whether an activation follows the last layer. Use it if the projector is one more linear layer.

    Raises:
        ValueError: If a width is not positive, or `slope` is negative.
    """

    def __init__(
        self,
        in_dim: int,
        hidden_dims: Sequence[int],
        out_dim: int,
        slope: float = 0.01,
        bias: bool = True,
        last_activation: bool = False,
    ) -> None:
        for name, widths in {"in_dim": [in_dim], "hidden_dims": hidden_dims, "out_dim": [out_dim]}.items():
            for width in widths:
                integer(1, **{name: width})
        inside("[0, inf)", slope=slope)
        super().__init__()
        dims = [in_dim, *hidden_dims, out_dim]
        for i in range(1, len(dims)):
            self.append(nn.Linear(dims[i - 1], dims[i], bias=bias))
            if i < len(dims) - 1 or last_activation:
                self.append(nn.LeakyReLU(slope))
        for layer in self:
            if isinstance(layer, nn.Linear):
                nn.init.kaiming_normal_(layer.weight, a=slope, nonlinearity="leaky_relu")
                if bias:
                    nn.init.zeros_(layer.bias)
        self.out_dim = out_dim
