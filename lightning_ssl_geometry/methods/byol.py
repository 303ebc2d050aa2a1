r"""BYOL: Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning (Grill et al. 2020).

There are two networks of the same architecture (backbone and projector), online and target. The online network and a
predictor get one view of an image. They learn to predict the target's embedding of the other view. The target has no
gradient. Its weights xi are a moving average of the online weights theta, updated after each step (Eq. 1):

.. math:: \xi \leftarrow \tau_k\, \xi + (1 - \tau_k)\, \theta

There are no negatives. Predictor and moving average prevent a constant embedding, which would have loss 0.
"""

__all__ = ["BYOLModule"]

from typing import ClassVar, Unpack

import torch
from torch import nn

from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.methods.base import ONCE_BY_POSITION, SSLSettings
from lightning_ssl_geometry.methods.moving_target import MOMENTUM, TARGET_LOSS, MovingTarget
from lightning_ssl_geometry.methods.two_views import two_views
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class BYOLModule(MovingTarget):
    """BYOL with any backbone, projector and predictor. The online network gives h and z.

    The attribute `target` is a torch `AveragedModel`, which starts as a copy of the online network. As in the official
    code, only weights are averaged. The target's batch norm takes its statistics from both views together.

    The momentum tau follows half a cosine from `momentum` to `final_momentum`, and is logged as `train/momentum`. On
    ImageNet, Grill et al. 2020 start at 0.996 for runs of 1000 epochs, at 0.99 for 300 epochs, and at 0.97 for 100
    epochs. With `momentum` = `final_momentum` = 0, the target is the online network without gradient, and the method is
    SimSiam (Chen & He 2021).

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        predictor: Maps z (N, P) to a prediction (N, P). In the paper, its architecture is the projector's.
        momentum: tau at the first step, in [0, 1].
        final_momentum: tau at the end of the run, in [0, 1]. The paper uses 1.
        loss: Maps predictions and target embeddings (q1, q2, z1, z2), each (N, P), to a scalar. None: the paper's loss.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid. It is raised when training begins if weights are in half precision
            (mixed precision is allowed), or if `final_momentum` differs from `momentum` in a run of unknown length. A
            step raises it if a batch does not have two views, or if the predictor does not map P to P.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": TARGET_LOSS,
        "momentum": MOMENTUM,
    }

    @by_position(*ONCE_BY_POSITION)
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        predictor: nn.Module,
        momentum: float = 0.996,
        final_momentum: float = 1.0,
        loss: nn.Module | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        super().__init__(backbone, projector, **settings)
        self.add_target(predictor, momentum, final_momentum, loss=loss)

    def step(self, batch: Batch) -> Observation:
        views = two_views(batch)
        h, z = self.embed(views)
        q = self._predict(z)
        with torch.no_grad():
            target = self.target(torch.cat(views)).unflatten(0, (2, -1))  # (2, N, P)
        return {"loss": self.loss(q[0], q[1], target[0], target[1]), "h": h, "z": z}
