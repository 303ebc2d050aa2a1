"""VICReg's loss as a module."""

__all__ = ["VICRegLoss"]

from torch import Tensor, nn

from lightning_ssl_geometry.checks import switch
from lightning_ssl_geometry.functional.vicreg import check_vicreg_settings, vicreg
from lightning_ssl_geometry.losses.gather import gather_views


class VICRegLoss(nn.Module):
    """Invariance, variance and covariance of two views (Bardes, Ponce & LeCun 2022): :func:`functional.vicreg`.

    In a distributed run the views of all ranks are gathered with gradient, and every rank computes the loss of the
    whole global batch, as :class:`InfoNCELoss` does: W processes, even or not, have exactly the loss and the gradient
    of one. The official code gathers for the variance and the covariance, and leaves the invariance to each rank,
    which is the same where all have equally many samples.

    Args:
        invariance: Weight of the mean squared difference of the views, >= 0.
        variance: Weight of the hinge on the standard deviations, >= 0.
        covariance: Weight of the squared covariances, >= 0.
        gamma: The standard deviation that every dimension is to reach, > 0.
        eps: Added to the variances, so that the gradient of their roots is finite at 0; 0 < eps < gamma^2.
        gather: Whether the views of all ranks are gathered; if not, each rank's loss is that of its own batch.

    Raises:
        ValueError: If an argument is out of its range.

    >>> import torch
    >>> loss = VICRegLoss()
    >>> loss(torch.zeros(4, 2), torch.zeros(4, 2))
    tensor(24.7500)
    """

    def __init__(
        self,
        invariance: float = 25.0,
        variance: float = 25.0,
        covariance: float = 1.0,
        gamma: float = 1.0,
        eps: float = 1e-4,
        gather: bool = True,
    ) -> None:
        super().__init__()
        self.settings = {
            "invariance": invariance,
            "variance": variance,
            "covariance": covariance,
            "gamma": gamma,
            "eps": eps,
        }
        check_vicreg_settings(**self.settings)
        switch(gather=gather)
        self.gather = gather

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Compare two views (N, P) of this rank's samples, among those of all ranks: a scalar."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return vicreg(z1, z2, **self.settings)

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        settings = {**self.settings, "gather": self.gather}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
