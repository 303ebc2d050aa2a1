"""DirectCLR: Understanding Dimensional Collapse in Contrastive Self-supervised Learning (Jing et al. 2022).

InfoNCE on the first dimensions of the representation h, without a projector. In a ResNet, the last residual branch then
acts as the projector. Its weights for the other dimensions have no gradient and decay to zero, so the branch does not
change these dimensions (Rusak et al., Content suppresses style, 2022, App. E).
"""

__all__ = ["DirectCLRModule"]

from dataclasses import replace
from functools import partial
from typing import ClassVar, Unpack

from torch import nn

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS, ONCE_BY_POSITION, SSLSettings, loss_or
from lightning_ssl_geometry.methods.two_views import TwoViewModule
from lightning_ssl_geometry.nn import SubVector
from lightning_ssl_geometry.papers import DIRECTCLR
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on


class DirectCLRModule(TwoViewModule):
    """InfoNCE on z, the first `subvector_dim` dimensions of the representation h.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        subvector_dim: d_0, the number of dimensions of z, from 1 to D. Jing et al. 2022 use 360 of ResNet-50's 2048.
        loss: Maps (z1, z2), each (N, d_0), to a scalar. None: the authors' loss, InfoNCE of cosines at temperature 0.1.
            Its negatives are the other samples in the other view.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid. A step raises it if `subvector_dim` > D, or if a batch does not have
            two views.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(CONTRASTIVE_LOSS, paper=DIRECTCLR),
        "batch_size": BATCH_SIZE,
    }

    @by_position(*ONCE_BY_POSITION)
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        subvector_dim: int = 360,
        loss: nn.Module | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        at_least(1, subvector_dim=subvector_dim)
        features = getattr(backbone, "out_dim", subvector_dim)
        if features < subvector_dim:
            raise ValueError(f"Expected `subvector_dim` <= D = {features}, but got {subvector_dim}.")
        loss = loss_or(partial(InfoNCELoss, temperature=0.1, negatives="other"), loss)
        super().__init__(backbone, SubVector(subvector_dim), loss, **settings)
