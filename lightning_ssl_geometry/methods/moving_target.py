"""A target network whose weights are a moving average of the online weights, and a predictor.

:mod:`lightning_ssl_geometry.methods.byol` has the equation.
"""

__all__ = ["MOMENTUM", "TARGET_LOSS", "MovingTarget"]

import math
from collections import OrderedDict, defaultdict
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import is_lazy
from torch.optim.swa_utils import AveragedModel, get_ema_multi_avg_fn

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.functional.byol import byol_momentum
from lightning_ssl_geometry.losses import BYOLLoss
from lightning_ssl_geometry.methods.base import LOSS, SSLModule, loss_or
from lightning_ssl_geometry.papers import BYOL
from lightning_ssl_geometry.quantity import Chart, Quantity

TARGET_LOSS = replace(
    LOSS,
    text="Squared distance of the prediction from the target's embedding of the other view, both of length 1.",
    low="Near 0: the online network predicts the target's embeddings. If all embeddings are equal (collapse), "
    "the value is 0, too.",
    high="Near 4, for two views: predictions and embeddings have nothing in common.",
    paper=BYOL,
)
MOMENTUM = Quantity(
    title="Momentum of the target",
    text="The share of its weights that BYOL's target network keeps in a step of training; the rest comes "
    "from the online network.",
    low="The target follows the online network quickly.",
    high="At 1: the target stands still.",
    paper=BYOL,
    where="Sec. 3.3",
    bounds=(0.0, 1.0),
    chart=Chart("momentum", "Momentum of the target", "share kept"),
)


class MovingTarget(SSLModule):
    """Base of methods whose target network is a moving average of backbone and projector, with a predictor.

    A subclass calls :meth:`add_target` in its constructor. The attribute `target` is a torch `AveragedModel`. It starts
    as a copy of the online network.
    """

    predictor: nn.Module
    loss: nn.Module
    target: AveragedModel

    def add_target(
        self, predictor: nn.Module, momentum: float, final_momentum: float, *, loss: nn.Module | None = None
    ) -> None:
        """Make the target of the present backbone and projector, and take the predictor and the loss (None: BYOL's).

        Raises:
            ValueError: If a momentum is not in [0, 1], or a weight of the backbone or the projector has no shape yet.
        """
        inside("[0, 1]", momentum=momentum, final_momentum=final_momentum)
        for name, network in (("backbone", self.backbone), ("projector", self.projector)):
            if any(map(is_lazy, network.parameters())):
                raise ValueError(
                    f"Expected `{name}` with weights that the target can copy, but got a lazy layer, whose shape the "
                    "first batch decides. Pass a batch through it before."
                )
        self.predictor = predictor
        self.momentum, self.final_momentum = momentum, final_momentum
        self.loss = loss_or(BYOLLoss, loss)
        self.target = AveragedModel(self._online()).requires_grad_(False)
        self.target.n_averaged += 1  # the copy is the first of those averaged: the next is not copied over it
        self._steps = 1

    def setup(self, stage: str) -> None:
        self.target.requires_grad_(False)
        if self.target.n_averaged == 1:  # the online weights may have been loaded
            self.target.module.load_state_dict(self._online().state_dict())

    def on_fit_start(self) -> None:
        super().on_fit_start()
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
        # not by `update_parameters`, which would overwrite the target's buffers, and wait for a GPU twice
        tau = self._tau()
        average, alike = get_ema_multi_avg_fn(tau), defaultdict(list)
        for target, online in zip(self.target.module.parameters(), self._online().parameters(), strict=True):
            alike[target.dtype].append((target, online))
        for pairs in alike.values():
            average(*map(list, zip(*pairs, strict=True)), self.target.n_averaged)
        self.target.n_averaged += 1
        self.log("train/momentum", self._filled(tau), on_step=False, on_epoch=True, batch_size=1)

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
    return network.in_features or None if isinstance(network, nn.Linear) else None  # of a lazy layer it is 0
