"""Supervised training, and a frozen random network: the controls of self-supervised methods."""

__all__ = ["SupervisedModule"]

from dataclasses import replace
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.methods.base import LOSS, SSLModule, SSLSettings
from lightning_ssl_geometry.methods.classification import ACCURACY, classification
from lightning_ssl_geometry.nn.equivariant import GroupPool
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class SupervisedModule(SSLModule):
    """A backbone and a classifier, trained with labels; or the classifier alone, on the backbone as it was drawn.

    Every view of a batch is a sample. z are the logits. `{stage}/accuracy` is that of the views in training, and of the
    images without augmentation in validation and test.

    Args:
        backbone: Maps (N, C, H, W) to h (N, D), or to a feature map (N, C, |G|, H', W').
        classifier: Maps the backbone's output to logits (N, classes).
        train_backbone: Whether the backbone learns. If not, it is the frozen control: its weights stay as drawn, and
            only its batch statistics follow the data.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

    Raises:
        ValueError: As :class:`SSLModule`; in a step, if the batch has no `label`, or the classifier returns no logits.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            LOSS,
            text="The cross entropy of the classifier, which training lowers.",
            low="Near 0: the classifier is sure of the right classes.",
            high="Near the logarithm of the number of classes and above: the classifier does not know the classes.",
            unit="nats",
            bounds=(0.0, None),
        ),
        "accuracy": ACCURACY,
    }

    @by_position("optimizer", "lr_scheduler", "warmup_epochs", "exclude_norm_and_bias")
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
        self.train_backbone = train_backbone
        if not train_backbone:
            self.backbone.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        """Represent images: (N, C, H, W) to h (N, D)."""
        return self.pool(self.backbone(x))

    def step(self, batch: Batch) -> Observation:
        """Classify every view."""
        if "label" not in batch:
            raise ValueError(f"Expected `label` in a batch, but got {sorted(batch)}.")
        views = batch["views"]
        with torch.set_grad_enabled(self.train_backbone and torch.is_grad_enabled()):
            features = self.backbone(torch.cat(views))
        logits = self.project(features)
        loss, accuracy = classification(logits, batch["label"])
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
            observation["scores"] = {"accuracy": classification(self.project(features), batch["label"])[1]}
        return observation
