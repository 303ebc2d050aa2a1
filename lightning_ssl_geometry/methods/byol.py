r"""BYOL: Bootstrap Your Own Latent: A New Approach to Self-Supervised Learning (Grill et al. 2020).

An online network (backbone and projector) and a predictor are trained to predict, from one view of an image, the
embedding of the other view by a target network. The target has the same architecture. It has no gradient; its weights
xi are a moving average of the online weights theta, updated after every step of the optimizer (Eq. 1):

.. math:: \xi \leftarrow \tau_k\, \xi + (1 - \tau_k)\, \theta

There are no negatives. A constant embedding would have loss 0; predictor and moving average prevent it.
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
    """BYOL with any backbone, projector and predictor. h and z are outputs of the online backbone and projector.

    The target (`target`, a torch `AveragedModel` that is part of checkpoints) starts as a copy of backbone and
    projector, and is updated after each step of the optimizer. As in the official code, only weights are averaged: the
    batch statistics of the target are computed from its own features, with both views in one batch.

    The momentum goes from `momentum` to `final_momentum` by half a cosine over all steps of the run, and is logged as
    `train/momentum`. In a shorter run, the target has to follow faster: on ImageNet, the paper begins at 0.996 for 1000
    epochs, at 0.99 for 300 epochs and at 0.97 for 100 epochs.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        predictor: Maps z (N, P) to a prediction (N, P); in the paper, its architecture is that of the projector.
        momentum: tau at the first step, in [0, 1].
        final_momentum: tau at the end of the run, in [0, 1]; 1 in the paper. If it is not equal to `momentum`, the
            length of the run must be known.
        loss: Maps predictions and target embeddings (q1, q2, z1, z2), each (N, P), to a scalar; None: the paper's loss.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

    Raises:
        ValueError: If an argument is not valid; when training begins, if weights are in half precision, which loses
            small updates (mixed precision is fine), or the length of the run is not known; in a step, if a batch does
            not have two views, or the predictor does not map P to P.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            LOSS,
            text="Squared distance of the prediction from the target's embedding of the other view, both of length 1.",
            low="Near 0: the online network predicts the target's embeddings, as it also can where all are equal.",
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
        """Return `h`, `z` and the `loss` of predicting the target's embedding of each view from the other view."""
        views = two_views(batch)
        h, z = self.embed(views)
        q = self._predict(z)
        with torch.no_grad():
            target = self.target(torch.cat(views)).unflatten(0, (2, -1))  # (2, N, P)
        return {"loss": self.loss(q[0], q[1], target[0], target[1]), "h": h, "z": z}

    def setup(self, stage: str) -> None:
        """Freeze the target. Before its first update, copy the online weights to it, which may have been loaded."""
        self.target.requires_grad_(False)
        if self.target.n_averaged == 1:
            self.target.module.load_state_dict(self._online().state_dict())

    def on_fit_start(self) -> None:
        """Register the update of the target as a hook that runs after every step of the optimizer."""
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
        """Update the target by Eq. 1 of the paper, and restore its buffers, which `AveragedModel` overwrites."""
        buffers = list(self.target.module.buffers())
        own = [buffer.clone() for buffer in buffers]
        self.target.update_parameters(self._online())
        for buffer, kept in zip(buffers, own, strict=True):
            buffer.copy_(kept)
        self.log("train/momentum", self._tau(), on_step=False, on_epoch=True, batch_size=1)

    def _average(self, target: Any, online: Any, n_averaged: Tensor | int) -> None:
        get_ema_multi_avg_fn(self._tau())(target, online, n_averaged)

    def _tau(self) -> float:
        """Return tau_k. Here k is `global_step`, because the Trainer counts a step after the optimizer's hooks."""
        ends = {"momentum": self.momentum, "final_momentum": self.final_momentum}
        return byol_momentum(self.trainer.global_step, self._steps, **ends)

    def _length(self) -> int:
        """Return K, the number of optimizer steps of the run. For a constant momentum, K has no effect: return 1."""
        if self.momentum == self.final_momentum:
            return 1
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
