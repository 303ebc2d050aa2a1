"""CRL-TAC's loss as a module."""

__all__ = ["AugmentationChannelLoss"]

import math

from torch import Tensor, nn

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import switch
from lightning_ssl_geometry.functional.augmentation_channel import augmentation_channel_loss


class AugmentationChannelLoss(nn.Module):
    """Minus the information between an image and its embedding: :func:`functional.augmentation_channel_loss`.

    In a distributed run the samples of all ranks are gathered with gradient, and every rank computes the loss of the
    whole global batch, as :class:`InfoNCELoss` does.

    Args:
        beta: Inverse temperature, > 0: it multiplies the cosine.
        jensen: Apply Jensen's inequality to the numerator.

    Raises:
        ValueError: If `beta` is not positive, or `jensen` no bool.

    >>> import torch
    >>> f"{AugmentationChannelLoss(beta=2.0)(torch.eye(4).unflatten(0, (2, 2))).abs():.3f}"
    '0.000'
    """

    def __init__(self, beta: float = 0.5, jensen: bool = True) -> None:
        super().__init__()
        if not 0 < beta < math.inf:
            raise ValueError(f"Expected `beta` > 0 and finite, but got {beta}.")
        switch(jensen=jensen)
        self.beta = beta
        self.jensen = jensen

    def forward(self, z: Tensor, log_weight: Tensor | None = None) -> Tensor:
        """Contrast this rank's draws z (N, m, P), weighted by log_weight (N, m), among those of all ranks: a scalar."""
        z = distributed.gather(z)
        log_weight = None if log_weight is None else distributed.gather(log_weight)
        return augmentation_channel_loss(z, log_weight, self.beta, jensen=self.jensen)

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        return f"beta={self.beta}, jensen={self.jensen}"
