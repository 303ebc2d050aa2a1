"""The loss of CRL-TAC as a module."""

__all__ = ["AugmentationChannelLoss"]

from torch import Tensor, nn

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import inside, switch
from lightning_ssl_geometry.functional.augmentation_channel import augmentation_channel_loss


class AugmentationChannelLoss(nn.Module):
    """The loss of CRL-TAC (arXiv 2111.07679) as a module: :func:`functional.augmentation_channel_loss`.

    The loss estimates minus the information between an image and its embedding. Every rank gathers the samples of all
    ranks, with gradient, and computes the loss of the global batch. The attribute `temperature` is 1 / beta.

    Args:
        beta: Inverse temperature, > 0 and finite; it multiplies the cosine.
        jensen: Apply Jensen's inequality to the loss's last term, as the CRL-TAC paper does in its experiments.
    """

    def __init__(self, beta: float = 0.5, jensen: bool = True) -> None:
        super().__init__()
        inside("(0, inf)", beta=beta)
        switch(jensen=jensen)
        self.beta, self.temperature = beta, 1 / beta
        self.jensen = jensen

    def forward(self, z: Tensor, log_weight: Tensor | None = None) -> Tensor:
        """Return the loss, a scalar, of embeddings (N, m, P) of m augmentations per sample, with log-weights (N, m)."""
        z = distributed.gather(z)
        log_weight = None if log_weight is None else distributed.gather(log_weight)
        return augmentation_channel_loss(z, log_weight, self.beta, jensen=self.jensen)

    def extra_repr(self) -> str:
        return f"beta={self.beta}, jensen={self.jensen}"
