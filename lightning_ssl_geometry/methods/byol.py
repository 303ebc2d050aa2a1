r"""BYOL: Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning (Grill et al. 2020).

There are two networks of the same architecture (backbone and projector), online and target. The online network and a
predictor get one view of an image. They learn to predict the target's embedding of the other view. The target has no
gradient. Its weights xi are a moving average of the online weights theta, updated after each step (Eq. 1):

.. math:: \xi \leftarrow \tau_k\, \xi + (1 - \tau_k)\, \theta

There are no negatives. Predictor and moving average prevent a constant embedding, which would have loss 0.
"""

__all__ = ["BYOLModule"]

import math
from collections import OrderedDict
from dataclasses import replace
from typing import Any, ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.byol import byol_momentum
from lightning_ssl_geometry.losses import BYOLLoss
from lightning_ssl_geometry.methods.base import LOSS, SSLModule, SSLSettings
from lightning_ssl_geometry.methods.two_views import two_views
from lightning_ssl_geometry.papers import BYOL
from lightning_ssl_geometry.quantity import Chart, Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class BYOLModule(SSLModule):
    """BYOL with any backbone, projector and predictor. The online network gives h and z.

    The attribute `target` is a torch `AveragedModel`, which starts as a copy of the online network. As in the official
    code, only weights are averaged. The target's batch norm takes its statistics from both views together.

    The momentum tau follows half a cosine from `momentum` to `final_momentum`, and is logged as `train/momentum`. On
    ImageNet, Grill et al. 2020 start at 0.996 for runs of 1000 epochs, at 0.99 for 300 epochs, and at 0.97 for 100
    epochs.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        predictor: Maps z (N, P) to a prediction (N, P). In the paper, its architecture is the projector's.
        momentum: tau at the first step, in [0, 1].
        final_momentum: tau at the end of the run, in [0, 1]. The paper uses 1.
        loss: Maps predictions and target embeddings (q1, q2, z1, z2), each (N, P), to a scalar. None: the paper's loss.
        **settings: `optimizer`, `lr_scheduler`, `warmup_epochs` and `exclude_norm_and_bias` of :class:`SSLModule`.

    Raises:
        ValueError: If an argument is not valid. It is raised when training begins if weights are in half precision
            (mixed precision is allowed), or if `final_momentum` differs from `momentum` in a run of unknown length. A
            step raises it if a batch does not have two views, or if the predictor does not map P to P.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            LOSS,
            text="Squared distance of the prediction from the target's embedding of the other view, both of length 1.",
            low="Near 0: the online network predicts the target's embeddings. If all embeddings are equal (collapse), "
            "the value is 0, too.",
            high="Near 4, for two views: predictions and embeddings have nothing in common.",
            paper=BYOL,
        ),
        "momentum": Quantity(
            title="Momentum of the target",
            text="The share of its weights that BYOL's target network keeps in a step of training; the rest comes "
            "from the online network.",
            low="The target follows the online network quickly.",
            high="At 1: the target stands still.",
            paper=BYOL,
            where="Sec. 3.3",
            bounds=(0.0, 1.0),
            chart=Chart("momentum", "Momentum of the target", "share kept"),
        ),
    }

    @by_position(*SSLSettings.__annotations__)
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
        inside("[0, 1]", momentum=momentum, final_momentum=final_momentum)
        super().__init__(backbone, projector, **settings)
        self.predictor = predictor
        self.momentum, self.final_momentum = momentum, final_momentum
        self.loss = loss or BYOLLoss()
        self.target = AveragedModel(self._online(), multi_avg_fn=self._average).requires_grad_(False)
        self.target.n_averaged += 1  # the copy is the first of those averaged: the next is not copied over it
        self._steps = 1

    def step(self, batch: Batch) -> Observation:
        views = two_views(batch)
        h, z = self.embed(views)
        q = self._predict(z)
        with torch.no_grad():
            target = self.target(torch.cat(views)).unflatten(0, (2, -1))  # (2, N, P)
        return {"loss": self.loss(q[0], q[1], target[0], target[1]), "h": h, "z": z}

    def setup(self, stage: str) -> None:
        self.target.requires_grad_(False)
        if self.target.n_averaged == 1:  # the online weights may have been loaded
            self.target.module.load_state_dict(self._online().state_dict())

    def on_fit_start(self) -> None:
        for parameter in self.target.parameters():
            if parameter.is_floating_point() and torch.finfo(parameter.dtype).bits < 32:
                raise ValueError(
                    f"Expected weights in float32 or float64, whose average moves, but got {parameter.dtype}."
                )
        self._steps = self._length()
        for optimizer in self.trainer.optimizers:
            optimizer.register_step_post_hook(self._follow)

    def _online(self) -> nn.Module:
        return nn.Sequential(OrderedDict(backbone=self.backbone, projector=self.projector))

    def _predict(self, z: Tensor) -> Tensor:
        width = z.shape[-1]
        if (wanted := _in_features(self.predictor)) not in (None, width):
            raise ValueError(f"Expected `predictor` to take P = {width}, the projector's output, but got {wanted}.")
        q: Tensor = self.predictor(z.flatten(0, 1))
        if q.shape != (2 * z.shape[1], width):
            expected = f"(2 N, P) = {(2 * z.shape[1], width)}"
            raise ValueError(f"Expected `predictor` to return {expected}, but got shape {tuple(q.shape)}.")
        return q.unflatten(0, (2, -1))

    @torch.no_grad()
    def _follow(self, *_: Any) -> None:
        buffers = list(self.target.module.buffers())  # `update_parameters` overwrites them
        own = [buffer.clone() for buffer in buffers]
        self.target.update_parameters(self._online())
        for buffer, kept in zip(buffers, own, strict=True):
            buffer.copy_(kept)
        self.log("train/momentum", self._tau(), on_step=False, on_epoch=True, batch_size=1)

    def _average(self, target: Any, online: Any, n_averaged: Tensor | int) -> None:
        get_ema_multi_avg_fn(self._tau())(target, online, n_averaged)

    def _tau(self) -> float:
        ends = {"momentum": self.momentum, "final_momentum": self.final_momentum}
        # The Trainer counts a step after the optimizer's hooks.
        return byol_momentum(self.trainer.global_step, self._steps, **ends)

    def _length(self) -> int:
        if self.momentum == self.final_momentum:
            return 1  # a constant momentum needs no length
        steps = self.trainer.estimated_stepping_batches
        if steps == math.inf:
            raise ValueError(
                "Expected `max_epochs` or `max_steps` of the Trainer for a momentum that changes from `momentum` = "
                f"{self.momentum} to `final_momentum` = {self.final_momentum}, but got none."
            )
        return int(steps)


def _in_features(network: nn.Module) -> int | None:
    while isinstance(network, nn.Sequential) and len(network):
        network = network[0]
    return network.in_features if isinstance(network, nn.Linear) else None
