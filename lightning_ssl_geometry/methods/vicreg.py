"""VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning (Bardes, Ponce & LeCun 2022).

SimCLR's networks and views, and a loss without negatives: the two embeddings of an image are pulled together, every
dimension is kept spread over the batch, and the dimensions are decorrelated. The embeddings are not normalised.
"""

__all__ = ["VICRegModule"]

from dataclasses import replace
from typing import ClassVar, Unpack

from torch import nn

from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.losses import VICRegLoss
from lightning_ssl_geometry.methods.base import LOSS, SSLSettings
from lightning_ssl_geometry.methods.two_views import TwoViewModule
from lightning_ssl_geometry.papers import VICREG
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on


class VICRegModule(TwoViewModule):
    """VICReg with any backbone and projector.

    The paper's projector, its expander, is `MLPProjector(D, 8192, 8192, depth=3)`: three layers, batch normalisation
    and ReLU between them, wider than h. The loss's covariance takes P^2 numbers per view.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar; VICReg's with the official weights 25, 25 and 1 by default,
            where variance and covariance are those of all ranks' samples.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

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

    @by_position("optimizer", "lr_scheduler", "warmup_epochs", "exclude_norm_and_bias")
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        loss: nn.Module | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        super().__init__(backbone, projector, loss or VICRegLoss(), **settings)
