"""VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning (Bardes, Ponce & LeCun 2022).

SimCLR's networks and views, and a loss without negatives: the two embeddings of an image are pulled together, every
dimension is kept spread over the batch, and the dimensions are decorrelated. The embeddings are not normalised.
"""

__all__ = ["VICRegModule"]

from dataclasses import replace
from typing import ClassVar

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from lightning_ssl_geometry.losses import VICRegLoss
from lightning_ssl_geometry.methods.base import LOSS, SSLModule, two_views
from lightning_ssl_geometry.papers import VICREG
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.types import Batch, Observation


class VICRegModule(SSLModule):
    """VICReg with any backbone and projector.

    The paper's projector, its expander, is `MLPProjector(D, 8192, 8192, depth=3)`: three layers, batch normalisation
    and ReLU between them, wider than h. The loss's covariance takes P^2 numbers per view.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar; VICReg's with the official weights 25, 25 and 1 by default,
            where variance and covariance are those of all ranks' samples.
        optimizer: As in :class:`SSLModule`.
        lr_scheduler: As in :class:`SSLModule`.
        warmup_epochs: As in :class:`SSLModule`.
        exclude_norm_and_bias: As in :class:`SSLModule`.

    Raises:
        ValueError: As :class:`SSLModule`; in a step, if a batch has not two views, or one sample on all ranks together.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            LOSS,
            text="The weighted sum of the views' distance, the dimensions' lack of variance and their covariance.",
            low="Views agree, and the dimensions of z vary, each by itself.",
            high="Views differ, or dimensions of z collapse or repeat each other.",
            paper=VICREG,
        )
    }

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        loss: nn.Module | None = None,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        warmup_epochs: float = 0.0,
        exclude_norm_and_bias: bool = True,
    ) -> None:
        super().__init__(backbone, projector, optimizer, lr_scheduler, warmup_epochs, exclude_norm_and_bias)
        self.loss = loss or VICRegLoss()

    def step(self, batch: Batch) -> Observation:
        """Compare the embeddings of the two views."""
        h, z = self.embed(two_views(batch))
        return {"loss": self.loss(z[0], z[1]), "h": h, "z": z}
