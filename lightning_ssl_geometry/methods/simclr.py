"""SimCLR: A Simple Framework for Contrastive Learning of Visual Representations (Chen et al. 2020).

Two random views of each image go through backbone and projector, and InfoNCE (NT-Xent) pulls the two embeddings of
an image together and pushes those of different images apart. Cosentino et al. (Toward a Geometrical Understanding of
Self-supervised Contrastive Learning, 2022) study this method with a linear projector and inverse temperature 2.
"""

__all__ = ["SimCLRModule"]

from typing import ClassVar

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLModule, two_views
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.types import Batch, Observation


class SimCLRModule(SSLModule):
    """SimCLR with any backbone, projector and two-view loss.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar; NT-Xent at temperature 0.5 by default.
        optimizer: As in :class:`SSLModule`.
        lr_scheduler: As in :class:`SSLModule`.
        warmup_epochs: As in :class:`SSLModule`.
        exclude_norm_and_bias: As in :class:`SSLModule`.

    Raises:
        ValueError: As :class:`SSLModule`; in a step, if a batch has not two views.
    """

    quantities: ClassVar[dict[str, Quantity]] = {"loss": CONTRASTIVE_LOSS}

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
        self.loss = loss or InfoNCELoss()

    def step(self, batch: Batch) -> Observation:
        """Contrast the embeddings of the two views."""
        h, z = self.embed(two_views(batch))
        return {"loss": self.loss(z[0], z[1]), "h": h, "z": z}
