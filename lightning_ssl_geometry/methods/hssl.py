r"""Homomorphic Self-Supervised Learning (Keller, Suau & Zappella 2022).

With a backbone f that is equivariant to a group, an augmentation of the image is a move along the group axes of the
feature map, so two fiber bundles of one feature map can be contrasted in place of two augmented images (Eq. 3):

.. math:: L = -\frac{1}{N} \sum_i E_{g_1, g_2} \log \frac{\exp(sim(h(z_i(g_1^{-1} g_0)), h(z_i(g_2^{-1} g_0))) / \tau)}
    {\sum_{k \neq i} \sum_{j, l} \exp(sim(h(z_i(g_j^{-1} g_0)), h(z_k(g_l^{-1} g_0))) / \tau)}

where h is the projection head (`projector` here, and h the pooled representation). The paper prints z_k(g_k^-1 g_0) in
the denominator; Appendix C, Eq. 6 has the l that the sum runs over.

- "h-ssl": one view, and for each sample two base spaces drawn independently (Appendix B).
- "a-ssl": two views, and for each sample one base space for both (Eq. 2).
- "hybrid": two views; A-SSL between them in one base space, and H-SSL within the first.

With a log-bilinear similarity and a small base space this is Deep InfoMax's local objective; between neighbouring
positions, with other images as negatives, CPC's and Greedy InfoMax's (Section 3): see `examples/homomorphic_ssl`.
"""

__all__ = ["HSSLModule"]

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.groups.fibers import Axis
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLModule, SSLSettings
from lightning_ssl_geometry.methods.classification import ACCURACY, CROSS_ENTROPY, classification
from lightning_ssl_geometry.methods.fiber_pairs import FiberPairs, Mode
from lightning_ssl_geometry.nn import MLPProjector
from lightning_ssl_geometry.nn.equivariant import GroupPool
from lightning_ssl_geometry.papers import KELLER
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class HSSLModule(SSLModule):
    """H-SSL, A-SSL or both, over the fibers of a feature map.

    Base spaces are functions of (seed, epoch, sample index), the same for any number of processes; in validation they
    are those of epoch 0. The representation h (`forward`) is the feature map's maximum over the group and mean over
    space; the projector sees fiber bundles, `fibers` (2, N, b C) of the observation.

    Args:
        backbone: Maps (N, C_in, H, W) to a feature map (N, C, |G|, H', W'), or (N, C, H', W') for translation.
        group: The axes of a fiber: "scale", "rotation", "translation" or several of them.
        mode: "h-ssl", "a-ssl" or "hybrid".
        projector: Maps fiber bundles (N, b C) to z (N, P). None: the paper's head for MNIST, three linear layers of 128
            outputs with batch norm after each, for a backbone with `out_dim`.
        loss: Maps (z1, z2), each (N, P), to a scalar. None: Eq. 2 and 3 at temperature 0.1, InfoNCE without the
            positive in the denominator and with the four terms for every other sample.
        base_size: |g_0| = b, the number of fibers in a base space.
        max_distance: The largest squared distance between the two base spaces of a positive pair, in steps along the
            axes. The first base space is uniform, the second uniform within this distance, which includes the first.
            None: no limit, and both are independent.
        wrap_distance: Whether the distance along a cyclic axis is the shorter of the two ways round.
        circular: Whether rows and columns are cyclic, as for a backbone with circular padding.
        group_shape: (S, R), the numbers of scales and orientations along the group axis. None: the backbone's own.
        hybrid_weight: Weight of H-SSL's loss in "hybrid", in [0, 1]; A-SSL's loss has the rest.
        classifier: Maps a feature map to logits (N, classes). It learns from labels beside the method, on detached
            features, and logs `{stage}/accuracy`. None: no classifier.
        seed: Seed of the base spaces.
        **settings: Those of :class:`SSLModule`: `optimizer`, `lr_scheduler`, `warmup_epochs`, `exclude_norm_and_bias`.

    Raises:
        ValueError: If an argument is out of its range; in a step, if the backbone's output has no group axis, the base
            space does not fit the group or cannot be moved, no pair lies within `max_distance`, or the batch has too
            few views or no label for the classifier.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(
            CONTRASTIVE_LOSS,
            text="The loss that training lowers: the contrastive loss of fibers, plus a classifier's loss where one "
            "is trained along. Compare runs only at the same temperature and batch size.",
            paper=KELLER,
            where="Eq. 3",
        ),
        "ssl_loss": replace(
            CONTRASTIVE_LOSS,
            title="Contrastive part of the loss",
            text="The contrastive loss of fibers, without that of the classifier.",
            paper=KELLER,
            where="Eq. 3",
            chart=None,
            unit="loss",
            headline=False,
        ),
        "classifier_loss": replace(
            CROSS_ENTROPY,
            title="Loss of the classifier",
            text="The cross entropy of the classifier on detached features.",
            chart=None,
            headline=False,
            section="probes",
        ),
        "accuracy": ACCURACY,
    }

    @by_position(*SSLSettings.__annotations__)
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        group: Axis | Sequence[Axis] = "translation",
        mode: Mode = "h-ssl",
        projector: nn.Module | None = None,
        loss: nn.Module | None = None,
        base_size: int = 1,
        max_distance: float | None = None,
        wrap_distance: bool = False,
        circular: bool = False,
        group_shape: tuple[int, int] | None = None,
        hybrid_weight: float = 0.5,
        classifier: nn.Module | None = None,
        seed: int = 0,
        **settings: Unpack[SSLSettings],
    ) -> None:
        pairs = FiberPairs(
            mode,
            group,
            base_size=base_size,
            max_distance=max_distance,
            wrap_distance=wrap_distance,
            circular=circular,
        )
        inside("[0, 1]", hybrid_weight=hybrid_weight)
        super().__init__(backbone, _head(backbone, base_size) if projector is None else projector, **settings)
        self.pairs, self.mode, self.group, self.group_shape, self.seed = pairs, mode, pairs.group, group_shape, seed
        self.loss = loss or InfoNCELoss(temperature=0.1, form="KELLER")
        self.hybrid_weight = hybrid_weight
        self.classifier = classifier
        self.pool = GroupPool()

    def forward(self, x: Tensor) -> Tensor:
        """Represent images: (N, C_in, H, W) to h (N, C)."""
        return self.pool(self.backbone(x))

    def step(self, batch: Batch) -> Observation:
        """Contrast fiber bundles, and let the classifier learn from the detached feature map."""
        views = self.pairs.chosen(batch["views"])
        features = self.backbone(torch.cat(views))
        fibers = self.fibers(features, batch)
        z = self.project(fibers.flatten(0, 1)).unflatten(0, fibers.shape[:2])
        loss = self.loss(z[0], z[1])
        if self.mode == "hybrid":
            loss = (1 - self.hybrid_weight) * loss + self.hybrid_weight * self.loss(z[0], z[2])
        h = self.pool(features).unflatten(0, (len(views), -1)).expand(2, -1, -1)
        observation: Observation = {
            "loss": loss,
            "h": h,
            "z": z[:2],
            "fibers": fibers[:2],
            "feature_extractor": self.backbone,
        }
        if "image" in batch and not self.training:
            features = self.backbone(batch["image"])
            observation["h_image"] = self.pool(features)
        if self.classifier is not None:
            error, accuracy = classification(self.classifier(features.detach()), batch)
            observation["scores"] = {"ssl_loss": loss.detach(), "classifier_loss": error.detach(), "accuracy": accuracy}
            observation["loss"] = loss + error
        return observation

    def fibers(self, features: Tensor, batch: Batch) -> Tensor:
        """Draw base spaces and return their fiber bundles.

        Args:
            features: The backbone's output of V views, one after the other.
            batch: Its `index` says which samples these are; without one, base spaces are drawn at random.

        Returns:
            (2, N, b C), the positive pairs; (3, N, b C) for "hybrid": of view 1, of view 2 in the same base space, and
            of view 1 in another.
        """
        uniform = self._uniform(batch, features[: len(features) // self.pairs.num_views], 2, seed=self.seed)
        return self.pairs(features, uniform, self.group_shape or getattr(self.backbone, "group_shape", None))


def _head(backbone: nn.Module, base_size: int) -> nn.Module:
    channels = getattr(backbone, "out_dim", None)
    if not isinstance(channels, int):
        raise ValueError(f"Expected `projector` for a {type(backbone).__name__}, which has no `out_dim`, but got None.")
    return MLPProjector(base_size * channels, 128, 128, depth=3, last_norm=True)
