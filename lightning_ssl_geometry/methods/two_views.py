"""TwoViewModule, the base class of methods whose loss compares two views of each sample."""

__all__ = ["TwoViewModule", "two_views"]

from collections.abc import Callable
from typing import ClassVar, Unpack

from torch import Tensor, nn

from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import ONCE_BY_POSITION, SSLModule, SSLSettings, loss_or
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class TwoViewModule(SSLModule):
    """Base class of methods whose loss compares the embeddings of two views.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar. None: the loss of the method's paper.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid. A step raises it if a batch does not have two views.
    """

    default_loss: ClassVar[Callable[[], nn.Module]] = InfoNCELoss

    @by_position(*ONCE_BY_POSITION)
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        loss: nn.Module | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        super().__init__(backbone, projector, **settings)
        self.loss = loss_or(type(self).default_loss, loss)

    def step(self, batch: Batch) -> Observation:
        h, z = self.embed(two_views(batch))
        return {"loss": self.loss(z[0], z[1]), "h": h, "z": z}


def two_views(batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the two views of a batch. Raise a ValueError if it has another number of views."""
    views = batch["views"]
    if len(views) != 2:
        raise ValueError(f"Expected 2 `views` in a batch, but got {len(views)}.")
    return views[0], views[1]
