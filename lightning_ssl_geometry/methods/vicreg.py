"""VICReg: Variance-Invariance-Covariance Regularization for Self-Supervised Learning (Bardes, Ponce & LeCun 2022).

Networks and views are as in SimCLR, but there are no negatives. The loss pulls the two embeddings of an image together,
keeps the variance of each dimension over the batch, and decorrelates the dimensions. Embeddings are not normalised.
"""

__all__ = ["VICRegModule"]

from collections.abc import Callable
from dataclasses import replace
from typing import ClassVar

from torch import nn

from lightning_ssl_geometry.losses import VICRegLoss
from lightning_ssl_geometry.methods.base import LOSS
from lightning_ssl_geometry.methods.two_views import TwoViewModule
from lightning_ssl_geometry.papers import VICREG
from lightning_ssl_geometry.quantity import Quantity


class VICRegModule(TwoViewModule):
    """VICReg. The default loss has the official weights 25, 25 and 1.

    Variance and covariance are computed over the samples of all processes. There must be at least two samples. A
    covariance matrix has P^2 entries for P dimensions. Bardes et al. 2022 use the projector `MLPProjector(D, 8192,
    8192, depth=3)`.
    """

    default_loss: ClassVar[Callable[[], nn.Module]] = VICRegLoss
    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            LOSS,
            text="The weighted sum of the views' distance, the dimensions' lack of variance and their covariance.",
            low="Views agree, and the dimensions of z vary, each by itself.",
            high="Views differ, or dimensions of z collapse or repeat each other.",
            paper=VICREG,
        )
    }
