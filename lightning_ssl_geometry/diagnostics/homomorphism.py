"""The losses of augmentation-based (A-SSL) and homomorphic (H-SSL) learning for one network (Keller et al. 2022)."""

__all__ = ["LossGap"]

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, get_args

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize

from lightning_ssl_geometry.checks import ascending, at_least, integer, one_of, positive, switch
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, evaluating
from lightning_ssl_geometry.diagnostics.equivariance import background
from lightning_ssl_geometry.functional.groups.action import rescale, translate
from lightning_ssl_geometry.functional.groups.equivariance import Transformation, refuse_other_orientations
from lightning_ssl_geometry.functional.groups.fibers import (
    FiberGroup,
    Pooling,
    feature_map,
    fiber_bundle,
    pooling_for,
)
from lightning_ssl_geometry.functional.groups.orientation import (
    number_of_orientations,
    orient,
    relative_orientations,
    turns_of,
)
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.papers import KELLER
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity
from lightning_ssl_geometry.random import counter_uniform

_quantity = partial(Quantity, paper=KELLER, invariances=("permutation",))
_cosine = partial(
    _quantity,
    chart=Chart("loss_gap_similarity", "Embeddings of A-SSL beside H-SSL's", "mean cosine"),
    bounds=(-1.0, 1.0),
    comparable=("width", "temperature", "batch size", "method"),
)
_loss = partial(_quantity, chart=Chart("loss_gap", "A-SSL's loss beside H-SSL's", "loss"))

_STREAM = 0x10559A9  # makes the draws differ from others by (seed, index)


class LossGap(SampledRows):
    """Compares the A-SSL loss of transformed images with the H-SSL loss of the original images (Keller et al. 2022).

    A-SSL (augmentation-based, Eq. 2 of Keller et al.) transforms each image twice, by two random group elements. It
    compares the features of both images at one position of their feature maps. H-SSL (homomorphic, Eq. 3) transforms no
    image. It compares the features at two positions of one feature map, which correspond to the two group elements. If
    the network is equivariant, both losses are equal (Section 3). Translations are multiples of the stride, at most a
    fifth of the feature map. Positions that the padding reaches are not equivariant: a `margin` leaves them out. Scales
    are relative to the smallest scale of the group. A smaller image has its features on fewer pixels. So the means over
    the whole map, which are compared for `pooling` = "mean", also differ by the area and by the background.

    Results: `a_ssl` and `h_ssl` are the losses. `difference` is A-SSL minus H-SSL. `similarity` in [-1, 1] is the mean
    cosine between the embeddings of A-SSL and H-SSL for the same group element, and `between_samples` that between
    A-SSL's embedding of one sample and H-SSL's of another. Both losses are also near each other if the embeddings of
    all samples nearly agree, as in a network that was hardly trained: `similarity` is then no higher than
    `between_samples`. An update costs 3 forward passes in
    eval mode. The weights should stay constant. Both losses compare single fibers (base size 1), so the projector must
    take one fiber.

    Args:
        group: "rotation", "dihedral", "hue", "translation" or "scale".
        scales: Scales of the group, for "scale". None: the attribute `scales` of the feature extractor.
        stride: Pixels per step of the feature map, for "translation". None: the attribute `stride` of the extractor.
        temperature: tau of both losses, > 0.
        contrast_size: Number of samples kept, >= 2. The losses depend on it.
        seed: Determines which samples are kept, and the group elements.
        fill: Normalised value of the background, one number or one per channel. Pixels that enter at the border get it.
        turns: The number of rotations of the plane or of the hue, >= 2. It divides the number that the network has.
            None: that number.
        margin: Width in pixels of the strip at each border whose positions are not compared, for "translation".
        circular: Whether translations are circular. This fits networks with circular padding whose stride divides the
            height and the width. Then all positions are compared.
        pooling: How maps are averaged over rows and columns, for "scale": "mean", "area" or "window" (see
            :func:`~lightning_ssl_geometry.functional.groups.fibers.feature_map`). Use that of the method.
    """

    section = "equivariance"
    cost = Cost(update="n F + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "a_ssl": _loss(
            title="A-SSL's loss",
            text="A-SSL's contrastive loss: images are transformed, and the same fiber of each feature map is "
            "compared.",
            low="The views of a sample find each other among all samples.",
            high="Samples are not told apart.",
            where="Eq. 2",
            label="A-SSL",
        ),
        "h_ssl": _loss(
            title="H-SSL's loss",
            text="H-SSL's contrastive loss. Images are not transformed. Instead, it compares two fibers of one "
            "feature map, which correspond to the two transformations of A-SSL.",
            low="The fibers of a sample find each other among all samples.",
            high="Samples are not told apart.",
            where="Eq. 3",
            label="H-SSL",
        ),
        "difference": _quantity(
            title="A-SSL's loss minus H-SSL's",
            text="In an equivariant network both losses are the same.",
            low="Near 0, from either side: fibers can stand for transformed images, or the embeddings of all samples "
            "nearly agree (see A-SSL's embeddings beside H-SSL's).",
            high="Far from 0, on either side: fibers cannot stand for transformed images.",
            where="Section 3",
            unit="loss",
        ),
        "similarity": _cosine(
            title="Embeddings of A-SSL beside H-SSL's",
            text="Mean cosine of the embedding of a transformed image with that of the fiber that stands for it.",
            low="At the baseline between samples: the two embeddings have no more to do with each other than those of "
            "two samples.",
            high="At 1, and the baseline is not: they are the same, as in an equivariant network.",
            where="Section 3",
            null="between_samples",
            label="of one sample",
        ),
        "between_samples": _cosine(
            title="Embeddings of A-SSL beside H-SSL's of other samples",
            short="between samples",
            text="Mean cosine of the embedding of a transformed image with that of the fiber that stands for another "
            "image.",
            low="Near 0: embeddings of different samples are unrelated.",
            high="Near 1: the embeddings of all samples nearly agree, so equal losses say nothing about equivariance.",
            label="between samples",
            baseline=True,
        ),
    }

    def __init__(
        self,
        group: Transformation = "rotation",
        scales: tuple[float, ...] | None = None,
        stride: int | None = None,
        temperature: float = 0.1,
        contrast_size: int = 512,
        seed: int = 0,
        fill: float | Sequence[float] = 0.0,
        *,
        turns: int | None = None,
        margin: int = 0,
        circular: bool = False,
        pooling: Pooling = "mean",
    ) -> None:
        super().__init__(("augmented", "homomorphic"), contrast_size, seed)
        one_of(get_args(Transformation), group=group)
        positive(temperature=temperature)
        at_least(0, margin=margin)
        if margin and (group != "translation" or circular):
            beside = "`circular`" if circular else f"`group` = {group!r}"
            raise ValueError(f"Expected no `margin` for {beside}, but got {margin}.")
        switch(circular=circular)
        if stride is not None:
            integer(1, stride=stride)
        if scales is not None:
            ascending(2, scales=scales)
        background(fill)
        self.group, self.scales, self.stride = group, scales, stride
        if turns is not None:
            integer(2, turns=turns)
        self.temperature, self.fill, self.turns, self.circular = temperature, fill, turns, circular
        self.margin, self.pooling = margin, pooling_for((group,), pooling)

    def update(
        self, image: Tensor, feature_extractor: nn.Module, projector: nn.Module, index: Tensor | None = None
    ) -> None:
        """Add `image` (N, C, H, W), `index` (N,) and the networks. `projector` maps features (N, D) to embeddings."""
        index = self.numbers.of(index, image)
        with evaluating(feature_extractor), evaluating(projector), torch.no_grad():
            augmented, homomorphic = self.embeddings(image, index, feature_extractor, projector)
        self.keep(index, augmented=augmented.float(), homomorphic=homomorphic.float())

    def embeddings(
        self, image: Tensor, index: Tensor, feature_extractor: nn.Module, projector: nn.Module
    ) -> tuple[Tensor, Tensor]:
        """Return the embeddings of A-SSL's and of H-SSL's pairs, each (N, 2, D), with the networks as they are.

        The gradient flows to the networks. The group elements depend on `seed` and on `index`.
        """
        maps, group = self._maps(feature_extractor, image)
        _takes_one_fiber(projector, maps.shape[1])
        u = counter_uniform(self.seed, _STREAM, index, size=6)
        base, moved, acted = self._elements(u, group, image=image, network=feature_extractor)
        embedded = [
            (projector(_fiber(self._maps(feature_extractor, x)[0], base)), projector(_fiber(maps, place)))
            for x, place in zip(acted, moved, strict=True)
        ]
        augmented, homomorphic = (torch.stack(views, 1) for views in zip(*embedded, strict=True))
        return augmented, homomorphic

    def loss(self, z: Tensor) -> Tensor:
        """Return the loss of pairs (N, 2, D): Eq. 2 for A-SSL's, Eq. 3 for H-SSL's."""
        return info_nce(z[:, 0], z[:, 1], self.temperature, positive_in_denominator=False, joint=True)

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        a, h = (self.loss(rows[name]) for name in ("augmented", "homomorphic"))
        one, other = (normalize(in_float64(rows[name]), dim=-1) for name in ("augmented", "homomorphic"))
        same, n = (one * other).sum((0, 2)), len(one)  # of each view
        between = (one.sum(0) * other.sum(0)).sum(1) - same
        cosines = {"similarity": same.mean() / n, "between_samples": between.mean() / (n * (n - 1))}
        found = {name: cosine.to(a.dtype) for name, cosine in cosines.items()}
        return {"a_ssl": a, "h_ssl": h, "difference": a - h, **found}

    def _maps(self, feature_extractor: nn.Module, image: Tensor) -> tuple[Tensor, FiberGroup]:
        shape = getattr(feature_extractor, "group_shape", None)
        scales = self.scales or getattr(feature_extractor, "scales", None)
        return feature_map(feature_extractor(image), self.group, shape, pooling=self.pooling, scales=scales)

    def _elements(
        self, u: Tensor, group: FiberGroup, image: Tensor, network: nn.Module
    ) -> tuple[Tensor, list[Tensor], list[Tensor]]:  # positions of g_0, and for both g of g^-1 g_0; images T_g x
        fill = background(self.fill)
        if self.group in ("rotation", "dihedral", "hue"):
            refuse_other_orientations(network, self.group)
            turns = self.turns or turns_of(self.group, group.order)
            count = number_of_orientations(self.group, turns)
            if group.order % count or (self.group == "dihedral" and group.order != count):
                wanted = f"{count}" if self.group == "dihedral" else f"a multiple of {count}"
                raise ValueError(f"Expected {wanted} orientations for `turns` = {turns}, but got {group.order}.")
            table = relative_orientations(self.group, group.order * turns // count).to(image.device)
            elements = [(count * u[:, view]).long() for view in range(2)]
            base = (group.order * u[:, 2]).long()
            return (
                base,
                [table[element * (group.order // count), base] for element in elements],
                [orient(image, element, turns, group=self.group, fill=fill) for element in elements],
            )
        if self.group == "scale":
            scales = self._scales(network, group)
            moved = [(group.order * u[:, view]).long() for view in range(2)]
            factors = [(scales[0] / scales.to(image.device)[place]).to(image.dtype) for place in moved]
            return torch.zeros_like(moved[0]), moved, [rescale(image, f, fill=fill) for f in factors]
        rows, columns = group.shape
        stride = self._stride(network)
        border = math.ceil(self.margin / stride)
        reach = torch.tensor([max(1, rows // 5), max(1, columns // 5)], device=image.device)
        size = torch.tensor([rows, columns], device=image.device)
        first = torch.zeros_like(size) if self.circular else reach + border
        inner = size - 2 * first
        if bool((inner < 1).any()):
            raise ValueError(
                f"Expected `margin` that leaves positions to compare on maps of {rows} x {columns}, {stride} pixels "
                f"apart, but got {self.margin}."
            )
        steps = [(u[:, 2 * view : 2 * view + 2] * (2 * reach + 1)).long() - reach for view in range(2)]
        base = first + (u[:, 4:6] * inner).long()
        places = [(base - step) % size for step in steps]
        return (
            base[:, 0] * columns + base[:, 1],
            [place[:, 0] * columns + place[:, 1] for place in places],
            [translate(image, step * stride, fill=fill, circular=self.circular) for step in steps],
        )

    def _scales(self, network: nn.Module, group: FiberGroup) -> Tensor:
        scales = self.scales if self.scales is not None else getattr(network, "scales", None)
        if scales is None or len(scales) != group.order:
            raise ValueError(f"Expected {group.order} `scales`, as many as the feature map has, but got {scales}.")
        return torch.tensor(scales)

    def _stride(self, network: nn.Module) -> int:
        stride = self.stride if self.stride is not None else getattr(network, "stride", None)
        if not isinstance(stride, int) or stride < 1:
            raise ValueError(f"Expected `stride` >= 1 for a network that does not name its own, but got {stride}.")
        return stride


def _takes_one_fiber(projector: nn.Module, channels: int) -> None:
    wanted = next((layer.in_features for layer in projector.modules() if isinstance(layer, nn.Linear)), channels)
    if wanted > channels and wanted % channels == 0:
        raise ValueError(
            f"Expected a `projector` of one fiber, {channels} features, but got one of {wanted}: that of a base size "
            f"of {wanted // channels}."
        )


def _fiber(maps: Tensor, place: Tensor) -> Tensor:
    return fiber_bundle(maps, place[:, None])
