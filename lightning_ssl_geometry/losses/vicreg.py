"""The loss of VICReg as a module."""

__all__ = ["VICRegLoss"]

from torch import Tensor, nn

from lightning_ssl_geometry.checks import inside, switch
from lightning_ssl_geometry.functional.vicreg import check_spread, vicreg
from lightning_ssl_geometry.losses.gather import gather_views


class VICRegLoss(nn.Module):
    """Invariance, variance and covariance of two views (Bardes, Ponce & LeCun 2022): :func:`functional.vicreg`.

    Every rank gathers the views of all ranks, with gradient, and computes the loss of the global batch. With
    DistributedDataParallel, loss and gradient are exactly those of a single process; batches may differ in size.

    Args:
        invariance: Weight of the mean squared difference of the views, >= 0.
        variance: Weight of the hinge on the standard deviations, >= 0.
        covariance: Weight of the squared covariances, >= 0.
        gamma: The standard deviation that every dimension shall reach, > 0.
        eps: Added to the variances, so that their roots have a finite gradient at 0; 0 < eps < gamma^2.
        gather: Gather the views of all ranks; otherwise each rank computes the loss of its own batch.
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
        inside("[0, inf)", invariance=invariance, variance=variance, covariance=covariance)
        check_spread(gamma, eps)
        switch(gather=gather)
        self.gather = gather

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the loss, a scalar, of two views (N, P) of this rank's samples."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return vicreg(z1, z2, **self.settings)

    def extra_repr(self) -> str:
        settings = {**self.settings, "gather": self.gather}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
