"""Supervised training, or a classifier on a frozen random network, for comparison with self-supervised methods."""

__all__ = ["SupervisedModule"]

from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import switch
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.methods.base import ONCE_BY_POSITION, SSLModule, SSLSettings
from lightning_ssl_geometry.methods.classification import ACCURACY, CROSS_ENTROPY, classification
from lightning_ssl_geometry.nn.equivariant import GroupPool
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class SupervisedModule(SSLModule):
    """Train a backbone and a classifier with labels, or only a classifier on a random backbone.

    `forward` returns h. The embedding z is the logits, and the loss is their cross entropy. Every view of a batch is a
    training sample. `train/accuracy` is measured on views. `val/accuracy` and `test/accuracy` are measured on images
    without augmentation.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D), or to a feature map (N, C, |G|, H', W').
        classifier: Maps the backbone's output to logits (N, classes).
        train_backbone: Whether to train the backbone. False: it stays random, but its batch statistics are updated.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid. A step raises it if the batch has no `label`, or if the logits have a
            wrong shape.
    """

    quantities: ClassVar[dict[str, Quantity]] = {"loss": CROSS_ENTROPY, "accuracy": ACCURACY}

    @by_position(*ONCE_BY_POSITION)
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        classifier: nn.Module,
        train_backbone: bool = True,
        **settings: Unpack[SSLSettings],
    ) -> None:
        super().__init__(backbone, classifier, **settings)
        self.pool = GroupPool()
        switch(train_backbone=train_backbone)
        self.train_backbone = train_backbone
        if not train_backbone:
            self.backbone.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.backbone(x))

    def step(self, batch: Batch) -> Observation:
        views = batch["views"]
        with torch.set_grad_enabled(self.train_backbone and torch.is_grad_enabled()):
            features = self.features(torch.cat(views))
        logits = self.project(features)
        loss, accuracy = classification(logits, batch)
        observation: Observation = {
            "loss": loss,
            "h": self.pool(features).unflatten(0, (len(views), -1)),
            "z": logits.unflatten(0, (len(views), -1)),
            "feature_extractor": self.backbone,
            "scores": {"accuracy": accuracy},
        }
        if "image" in batch and not self.training:
            features = self.backbone(batch["image"])
            observation["h_image"] = self.pool(features)
            observation["scores"] = {"accuracy": classification(self.project(features), batch)[1]}
        return observation

    def project_image(self, h: Tensor, batch: Batch) -> Tensor:
        """Return the classifier's logits (N, number of classes) of the batch's `image`."""
        return self.project(self.backbone(batch["image"]))
