r"""Homomorphic Self-Supervised Learning (Keller, Suau & Zappella 2022).

If a backbone is equivariant to a group, augmenting the image moves its feature map along the group axes. So two parts
of one feature map can replace two augmented images in a contrastive loss. A fiber z(g) is the features at the group
element g. A base space g_0 is a set of group elements. Its fiber bundle z(g_0) is the fibers at these elements. The
loss is Eq. 3:

.. math:: L = -\frac{1}{N} \sum_i E_{g_1, g_2} \log \frac{\exp(sim(h(z_i(g_1^{-1} g_0)), h(z_i(g_2^{-1} g_0))) / \tau)}
    {\sum_{k \neq i} \sum_{j, l} \exp(sim(h(z_i(g_j^{-1} g_0)), h(z_k(g_l^{-1} g_0))) / \tau)}

Here i and k are images, and g_1 and g_2 move the base space. The h of this formula is the argument `projector`, not the
representation. In the denominator, the paper prints g_k in place of g_l. The index l is that of its Appendix C, Eq. 6.
The positive pairs depend on `mode`:

- "h-ssl": two base spaces of view 1, drawn independently for each sample (Appendix B).
- "a-ssl": one base space in view 1 and in view 2 (Eq. 2).
- "hybrid": both kinds of pairs.

Special cases are the local objectives of Deep InfoMax, CPC and Greedy InfoMax (`examples/homomorphic_ssl`).
"""

__all__ = ["HSSLModule"]

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.groups.fibers import Axis, Pooling
from lightning_ssl_geometry.introspection import gradient_isolated, submodule
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import ONCE_BY_POSITION, SSLSettings, loss_or
from lightning_ssl_geometry.methods.fiber_pairs import FIBER_QUANTITIES, FiberPairs, Mode
from lightning_ssl_geometry.methods.on_fibers import OnFibers, fiber_head
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class HSSLModule(OnFibers):
    """Contrastive learning on two parts of a feature map (H-SSL), on two augmented views (A-SSL), or both.

    A base space is a set of b group elements. Its fiber bundle is the b C features at these elements (Keller, Suau &
    Zappella 2022). H-SSL compares the fiber bundles of two random base spaces in one view. A-SSL compares the fiber
    bundles of one base space in two views.

    `forward` returns h (N, C), the maximum of the feature map over the group, averaged over space. In `step`,
    `fibers` (2, N, b C) are the projector's inputs. The drawn base spaces depend only on (seed, epoch, sample index),
    with epoch 0 in validation.

    Args:
        backbone: Maps (N, C_in, H, W) to a feature map (N, C, |G|, H', W'), or (N, C, H', W') for translation.
        group: The axes of the feature map's group: "scale", "translation", one of "rotation", "dihedral" and "hue", or
            several of these.
        mode: "h-ssl", "a-ssl", or "hybrid" for both.
        projector: Maps fiber bundles (N, b C) to z (N, P). None: the paper's head for MNIST, three linear layers of 128
            outputs, each with batch norm. The backbone then needs the attribute `out_dim`.
        loss: Maps (z1, z2), each (N, P), to a scalar. None: InfoNCE at temperature 0.1 without the positive in the
            denominator (Eq. 2 and 3). The negatives are both bundles of every other sample.
        base_size: b, the number of group elements in a base space. 1 if translation comes with another axis: a larger
            base space of a turned or resized image would have to be turned or resized itself.
        max_distance: Largest squared distance between the two base spaces of a positive pair, in steps along the axes,
            >= 1. The second base space is drawn uniformly from all base spaces within this distance of the first. It
            may equal the first. None: both are drawn independently.
        wrap_distance: Whether the distance along a cyclic axis is measured in the shorter direction.
        circular: Whether rows and columns are cyclic axes, as for a backbone with circular padding.
        group_shape: (S, R), the numbers of scales and orientations on the group axis. None: the backbone's own.
        hybrid_weight: Weight w of the H-SSL loss in "hybrid", in [0, 1]. The A-SSL loss has the weight 1 - w.
        classifier: Maps a feature map to logits (N, classes). It is trained with labels on detached features. Its
            accuracy is logged as `{stage}/accuracy`. None: no classifier.
        seed: Seed of the base spaces.
        min_distance: Smallest squared distance between the two base spaces of a positive pair, >= 0. At 0, as in the
            paper, the second base space may equal the first, and the pair is then two equal vectors. At 1, it may not.
        blocks: Names of submodules of the backbone after which the gradient stops, in the order of their calls, such as
            "layers.2". Each is trained by a loss of its own, as in Greedy InfoMax (Loewe et al. 2019), and what comes
            after the last of them by the loss of the backbone's output. The losses are added. None: the loss of the
            output trains the whole backbone.
        heads: A projector for the feature map of each of `blocks`. The representation h and the observed z are those of
            the backbone's output.
        pooling: How maps are averaged over rows and columns, if `group` has scales and no translation: "mean", "area"
            or "window" (see :func:`~lightning_ssl_geometry.functional.groups.fibers.feature_map`). The paper uses
            "mean", which does not commute with changes of scale. The others need the backbone's attribute `scales`.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is out of range, or `group` names other orientations than the backbone's attribute
            `orientation`. A step raises it if the backbone's output does not fit `group`, if no pair lies within
            `max_distance`, if the batch has too few views or no label for the classifier, or if `blocks` are not called
            once each, in their order, with trained layers behind the last.
    """

    quantities: ClassVar[dict[str, Quantity]] = FIBER_QUANTITIES

    @by_position(*ONCE_BY_POSITION)
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
        *,
        min_distance: float = 0.0,
        blocks: Sequence[str] | None = None,
        heads: list[nn.Module] | None = None,
        pooling: Pooling = "mean",
        **settings: Unpack[SSLSettings],
    ) -> None:
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
        inside("[0, 1]", hybrid_weight=hybrid_weight)
        super().__init__(backbone, fiber_head(backbone, base_size) if projector is None else projector, **settings)
        self.on_fibers(pairs, group_shape, classifier, seed=seed)
        self.loss = loss_or(partial(InfoNCELoss, temperature=0.1, form="KELLER"), loss)
        self.hybrid_weight = hybrid_weight
        self.blocks, self.heads = tuple(blocks or ()), nn.ModuleList(heads or ())
        if isinstance(blocks, str) or len(self.blocks) != len(self.heads) or len(set(self.blocks)) < len(self.blocks):
            raise ValueError(
                f"Expected a list of different `blocks` with as many `heads`, but got {blocks} and {len(self.heads)}."
            )
        for name in self.blocks:
            submodule(backbone, name, "blocks")
        if self.blocks and self.chunk_size is not None:
            raise ValueError(f"Expected no `chunk_size` beside `blocks`, but got {self.chunk_size}.")

    def step(self, batch: Batch) -> Observation:
        """Return `h`, `z`, `fibers` and the `loss`, which includes the classifier's loss."""
        views = self.pairs.chosen(batch["views"])
        with gradient_isolated(self.backbone, self.blocks, "blocks") as inner:
            features = self.features(torch.cat(views))
        if inner and inner[-1].requires_grad and not features.requires_grad:
            last = self.blocks[-1]
            raise ValueError(f"Expected `blocks` with trained layers behind the last, but {last!r} has none.")
        fibers = self.fibers(features, batch)
        z = self.project(fibers.flatten(0, 1)).unflatten(0, fibers.shape[:2])
        loss = self._loss_of_pairs(z)
        for head, maps in zip(self.heads, inner, strict=True):
            bundles = self.fibers(maps, batch)
            loss = loss + self._loss_of_pairs(head(bundles.flatten(0, 1)).unflatten(0, bundles.shape[:2]))
        return self.observed(loss, features, fibers, z=z, batch=batch)

    def _loss_of_pairs(self, z: Tensor) -> Tensor:
        loss: Tensor = self.loss(z[0], z[1])
        if self.mode == "hybrid":
            loss = (1 - self.hybrid_weight) * loss + self.hybrid_weight * self.loss(z[0], z[2])
        return loss
