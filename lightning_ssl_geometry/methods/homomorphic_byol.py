r"""BYOL and SimSiam on the fibers of one feature map.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), Section 2: fibers can also replace the augmented
images of methods without negatives. The online network's prediction from one fiber bundle is compared with the target's
embedding of the other one, in both directions:

.. math:: L = \frac{1}{N} \sum_i \sum_{(j, l) \in \{(1, 2), (2, 1)\}}
    \| \bar q(z_i(g_j^{-1} g_0)) - \bar z'_i(g_l^{-1} g_0) \|_2^2

q is the predictor after the projector, z' the target's embedding, and a bar divides by the length.
"""

__all__ = ["HomomorphicBYOLModule"]

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Unpack

import torch
from torch import nn

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.functional.groups.fibers import Axis, Pooling
from lightning_ssl_geometry.methods.base import SSLSettings
from lightning_ssl_geometry.methods.fiber_pairs import FIBER_QUANTITIES, FiberPairs, Mode
from lightning_ssl_geometry.methods.moving_target import MOMENTUM, TARGET_LOSS, MovingTarget
from lightning_ssl_geometry.methods.on_fibers import OnFibers, fiber_head
from lightning_ssl_geometry.papers import KELLER
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation

_LOSS = replace(TARGET_LOSS, paper=KELLER, where="Section 2")


class HomomorphicBYOLModule(OnFibers, MovingTarget):
    """BYOL whose pairs are fiber bundles of one view (H-SSL) or of two (A-SSL); with momentum 0, SimSiam.

    The pairs are those of :class:`HSSLModule`. The target network draws the same base spaces from feature maps of its
    own. With `momentum` = `final_momentum` = 0, the target is the online network without gradient, as in SimSiam
    (Chen & He 2021).

    Args:
        backbone: Maps (N, C_in, H, W) to a feature map (N, C, |G|, H', W'), or (N, C, H', W') for translation.
        predictor: Maps z (N, P) to a prediction (N, P).
        group: The axes of the feature map's group: "scale", "translation", one of "rotation", "dihedral" and "hue", or
            several of these.
        mode: "h-ssl" or "a-ssl".
        projector: Maps fiber bundles (N, b C) to z (N, P). None: three linear layers of 128 outputs, each with batch
            norm. The backbone then needs the attribute `out_dim`.
        momentum: tau of the target at the first step, in [0, 1].
        final_momentum: tau at the end of the run, in [0, 1].
        base_size: b, the number of group elements in a base space.
        max_distance: Largest squared distance between the two base spaces of a pair, >= 1. None: no limit.
        min_distance: Smallest such distance, >= 0. At 1, the two base spaces of a pair are different ones.
        wrap_distance: Whether the distance along a cyclic axis is measured in the shorter direction.
        circular: Whether rows and columns are cyclic axes.
        pooling: How maps are averaged over rows and columns: "mean", "area" or "window" (see :class:`HSSLModule`).
        group_shape: (S, R), the numbers of scales and orientations on the group axis. None: the backbone's own.
        classifier: Maps a feature map to logits (N, classes); trained with labels on detached features. None: none.
        seed: Seed of the base spaces.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is out of range; also as in :class:`HSSLModule` and :class:`BYOLModule`.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": _LOSS,
        "momentum": MOMENTUM,
        "ssl_loss": replace(_LOSS, title="BYOL's part of the loss", chart=None, unit="loss", headline=False),
        "classifier_loss": FIBER_QUANTITIES["classifier_loss"],
        "accuracy": FIBER_QUANTITIES["accuracy"],
    }

    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        predictor: nn.Module,
        group: Axis | Sequence[Axis] = "translation",
        mode: Mode = "h-ssl",
        *,
        projector: nn.Module | None = None,
        momentum: float = 0.996,
        final_momentum: float = 1.0,
        base_size: int = 1,
        max_distance: float | None = None,
        min_distance: float = 0.0,
        wrap_distance: bool = False,
        circular: bool = False,
        pooling: Pooling = "mean",
        group_shape: tuple[int, int] | None = None,
        classifier: nn.Module | None = None,
        seed: int = 0,
        **settings: Unpack[SSLSettings],
    ) -> None:
        one_of(("h-ssl", "a-ssl"), mode=mode)
        pairs = FiberPairs(
            mode,
            group,
            base_size=base_size,
            max_distance=max_distance,
            min_distance=min_distance,
            wrap_distance=wrap_distance,
            circular=circular,
            pooling=pooling,
        )
        head = fiber_head(backbone, base_size) if projector is None else projector
        super().__init__(backbone, head, **settings)
        self.add_target(predictor, momentum, final_momentum)
        self.on_fibers(pairs, group_shape, classifier, seed=seed)

    def step(self, batch: Batch) -> Observation:
        """Return `h`, `z`, `fibers` and the `loss`, which includes the classifier's loss."""
        views = torch.cat(self.pairs.chosen(batch["views"]))
        features = self.features(views.clone())  # a network may change its input, and the target gets it, too
        draws = self.base_draws(features, batch)
        fibers = self.fibers(features, batch, draws)
        z = self.project(fibers.flatten(0, 1)).unflatten(0, (2, -1))
        q = self._predict(z)
        with torch.no_grad():
            backbone, projector = (self.target.module.get_submodule(name) for name in ("backbone", "projector"))
            bundles = self.fibers(backbone(views), batch, draws)
            target = projector(bundles.flatten(0, 1)).unflatten(0, (2, -1))
        loss = self.loss(q[0], q[1], target[0], target[1])
        return self.observed(loss, features, fibers, z=z, batch=batch)
