"""SimCLR: A Simple Framework for Contrastive Learning of Visual Representations (Chen et al. 2020).

Two random views of each image go through backbone and projector, and InfoNCE (NT-Xent) pulls the two embeddings of
an image together and pushes those of different images apart. Cosentino et al. (Toward a Geometrical Understanding of
Self-supervised Contrastive Learning, 2022) study this method with a linear projector and inverse temperature 2.
"""

__all__ = ["SimCLRModule"]

from typing import ClassVar, Unpack

from torch import nn

from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLSettings
from lightning_ssl_geometry.methods.two_views import TwoViewModule
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on


class SimCLRModule(TwoViewModule):
    """SimCLR with any backbone, projector and two-view loss.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar; NT-Xent at temperature 0.5 by default.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

    Raises:
        ValueError: As :class:`SSLModule`; in a step, if a batch has not two views.
    """

    quantities: ClassVar[dict[str, Quantity]] = {"loss": CONTRASTIVE_LOSS}

    @by_position("optimizer", "lr_scheduler", "warmup_epochs", "exclude_norm_and_bias")
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        loss: nn.Module | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        super().__init__(backbone, projector, loss or InfoNCELoss(), **settings)
