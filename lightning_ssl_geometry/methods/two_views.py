"""What methods share that compare two views of each sample by a loss."""

__all__ = ["TwoViewModule", "two_views"]

from typing import Unpack

from torch import Tensor, nn

from lightning_ssl_geometry.methods.base import SSLModule, SSLSettings
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class TwoViewModule(SSLModule):
    """A method whose loss compares the embeddings of two views.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

    Raises:
        ValueError: As :class:`SSLModule`; in a step, if a batch has not two views.
    """

    @passed_on
    def __init__(
        self, backbone: nn.Module, projector: nn.Module, loss: nn.Module, **settings: Unpack[SSLSettings]
    ) -> None:
        super().__init__(backbone, projector, **settings)
        self.loss = loss

    def step(self, batch: Batch) -> Observation:
        """Compare the embeddings of the two views."""
        h, z = self.embed(two_views(batch))
        return {"loss": self.loss(z[0], z[1]), "h": h, "z": z}


def two_views(batch: Batch) -> tuple[Tensor, Tensor]:
    """Take the views of a batch, for a method that compares two.

    Raises:
        ValueError: If there are more or fewer.
    """
    views = batch["views"]
    if len(views) != 2:
        raise ValueError(f"Expected 2 `views` in a batch, but got {len(views)}.")
    return views[0], views[1]
