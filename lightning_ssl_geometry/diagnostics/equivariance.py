"""Whether the feature extractor is equivariant, and the representation h invariant, to transformations of the image."""

__all__ = ["EquivarianceError", "InvarianceError", "background"]

import math
from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Unpack, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import finite, floating, integer, listed, one_of, shaped, switch
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import evaluating
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.groups.equivariance import (
    EquivarianceOptions,
    EquivarianceSettings,
    Transformation,
    group_elements,
    transformed,
)
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.papers import SESN
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity
from lightning_ssl_geometry.settings import passed_on

_error = partial(
    Quantity,
    bounds=(0.0, None),
    invariances=("permutation",),
    comparable=("width", "temperature", "batch size", "method"),
    better="low",
)
_of_network = partial(_error, paper=SESN, parts=True)


class EquivarianceError(Diagnostic):
    r"""How far a network f is from equivariant, :math:`\|f(T_g x) - \Gamma_g f(x)\|^2 / \|\Gamma_g f(x)\|^2`.

    T_g transforms images by the group element g, and Gamma_g transforms features. Observes images (N, C, H, W) and
    `feature_extractor`, which maps images to feature maps (N, C, |G|, H', W') of a group G. Results: `elements` (E,) is
    the error of each of E group elements, and `mean` is their mean. With `layers`, each layer has both results. Errors
    are >= 0. At 0, f is equivariant. At about 1 to 2, f(T_g x) is unrelated to the transformed features. The network
    runs in eval mode. Its weights should stay constant. An update costs 1 + E forward passes. E is n - 1 for
    n rotations of the plane or of the hue, 2 n - 1 with mirror images, 4 for translation, and S (S - 1) / 2 for S
    scales. Equation: :func:`functional.equivariance_error`.

    Args:
        group: "rotation", "dihedral", "hue", "translation" or "scale".
        fill: Normalised value of the background, one number or one per channel. Pixels that enter at the border get it.
        **options: `group_shape`, `scales`, `stride`, `layers`, `margin`, `circular` and `turns` of
            :class:`functional.groups.equivariance.EquivarianceSettings`. Names in `layers` must stay different if each
            "." becomes "_".
    """

    section = "equivariance"
    cost = Cost(update="n F", compute="1", memory="1")
    quantities: ClassVar[dict[str, Quantity]] = {
        "mean": _of_network(
            title="Equivariance error",
            text="Squared distance between the features of a transformed image and the transformed features of the "
            "image, relative to the squared length of the transformed features; the mean over the group's elements.",
            low="Near 0: the network is equivariant; a transformed view can be read off the features of the image.",
            high="1 and more: the features of an image say nothing of those of the transformed image.",
            chart=Chart("equivariance", "Equivariance error", "squared relative error"),
        ),
        "elements": _of_network(
            title="Equivariance error by group element",
            text="The equivariance error for each element of the group by itself.",
            low="Near 0: the network is equivariant to this element of the group.",
            high="1 and more: the features say nothing of those of an image that this element transformed.",
            unit="squared relative error",
            xlabel="element of the group",
        ),
    }

    full_state_update = False
    rows: Tensor
    difference: Tensor
    reference: Tensor

    @by_position("group_shape", "scales", "stride", "circular", "layers", "margin", "fill")
    @passed_on
    def __init__(
        self,
        group: Transformation = "rotation",
        *,
        fill: float | Sequence[float] = 0.0,
        **options: Unpack[EquivarianceOptions],
    ) -> None:
        super().__init__()
        settings = EquivarianceSettings(group, fill=background(fill), **options)
        layers = settings.layers
        self.keys = [""] if layers is None else [f"_{name.replace('.', '_')}" for name in layers]
        if len(set(self.keys)) < len(self.keys):
            raise ValueError(f"Expected `layers` that differ in more than '.' and '_', but got {list(layers or [])}.")
        self.fill, self.settings = fill, settings
        elements = len(settings.elements())  # 0 if the number of scales or of orientations is read from the network
        self.add_state("rows", torch.zeros((), dtype=torch.int64), dist_reduce_fx="sum")
        self.add_sums("difference", "reference", shape=(len(self.keys), elements))

    def update(self, image: Tensor, feature_extractor: nn.Module) -> None:
        """Add images (N, C, H, W), and the network with its present weights."""
        if not self.difference.numel():  # the number of elements is known only now
            zeros = self.difference.new_zeros(len(self.keys), len(self.settings.of(feature_extractor).elements()))
            self.difference, self.reference = zeros, zeros
        if not len(image):  # all samples of this rank are repeats
            return
        with evaluating(feature_extractor), torch.no_grad():
            sums = self.settings.sums(feature_extractor, image)
        self.rows = self.rows + len(image)
        self.difference = self.difference + sums.difference
        self.reference = self.reference + sums.reference

    def compute(self) -> dict[str, Tensor]:
        self.require(self.rows, "images")
        error = self.difference / self.reference
        means = {f"mean{key}": row.mean() for key, row in zip(self.keys, error, strict=True)}
        return means | {f"elements{key}": row for key, row in zip(self.keys, error, strict=True)}


class InvarianceError(Diagnostic):
    r"""How far a transformation of the image moves h, relative to the distance between images.

    .. math:: \frac{\frac{1}{N} \sum_i \|h(T_g x_i) - h(x_i)\|_2^2}{2 \operatorname{tr} \operatorname{Cov}(h)}

    T_g transforms an image by the group element g. Observes images (N, C, H, W) and `encoder`, which maps images to h
    (N, D). Results: `elements` (E,) is the error of each of E group elements, and `mean` is their mean. Errors
    are >= 0. At 0, h is invariant to the group. At 1, a transformed image is as far from the original as another image
    is. Errors are NaN if h is the same for all images up to rounding, or not finite. The encoder runs in eval mode. Its
    weights should stay constant. Memory: O(D). An update costs 1 + E forward passes. Equation:
    :func:`functional.invariance_error`.

    Args:
        group: "rotation" (by multiples of 360 / `turns` degrees), "dihedral" (these, and those of the mirror image),
            "hue" (of colours, by `turns`-ths of a turn), "translation" (down, up, right, left) or "scale" (by
            `factors`).
        shift: Length of a translation in pixels, >= 1.
        factors: Scale factors, each > 0. The defaults are 1 / 1.75, 1 / 1.5 and 1 / 1.25, from Keller et al. 2022.
        circular: Whether pixels that a translation moves out of the image enter again at the opposite border.
        fill: Normalised value of the background, one number or one per channel. Pixels that enter at the border get it.
        turns: The number of rotations of the plane or of the hue, >= 2.
    """

    section = "equivariance"
    cost = Cost(update="n F", compute="D", memory="D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "mean": _error(
            title="Invariance error",
            text="Mean squared distance in h between an image and its transformed version, as a share of that between "
            "two images; the mean over the group's elements.",
            low="Near 0: h does not see the transformation.",
            high="Near 1: a transformation takes an image as far as another image is.",
            chart=Chart("group_invariance", "Invariance error of h", "share of the distance of images"),
        ),
        "elements": _error(
            title="Invariance error by group element",
            text="The invariance error for each element of the group by itself.",
            low="Near 0: h does not see this element of the group.",
            high="Near 1: this element takes an image as far as another image is.",
            unit="share of the distance of images",
            xlabel="element of the group",
        ),
    }

    full_state_update = False
    rows: Tensor
    total: Tensor
    square: Tensor
    moved: Tensor
    rounding: Tensor

    def __init__(
        self,
        group: Transformation = "rotation",
        shift: int = 4,
        factors: Sequence[float] = (0.57, 0.67, 0.8),
        circular: bool = False,
        fill: float | Sequence[float] = 0.0,
        *,
        turns: int = 4,
    ) -> None:
        super().__init__()
        one_of(get_args(Transformation), group=group)
        integer(1, shift=shift)
        integer(2, turns=turns)
        switch(circular=circular)
        background(fill)
        listed(factors=factors)
        if not factors or not all(0 < factor < math.inf for factor in factors):
            raise ValueError(f"Expected `factors` with at least one, each > 0 and finite, but got {tuple(factors)}.")
        self.group: Transformation = group
        self.shift = shift if group == "translation" else 0
        self.circular = circular
        self.fill = fill
        self.turns = turns
        self.elements = group_elements(group, shift, factors, turns=turns)
        self.add_sums("rows", "square", "rounding")
        self.add_sums("total", shape=(0,))
        self.add_sums("moved", shape=(len(self.elements),))

    def update(self, image: Tensor, encoder: nn.Module) -> None:
        """Add images (N, C, H, W), and the encoder with its present weights."""
        shaped("N, C, H, W", image=image)
        floating(image=image)
        if self.shift >= min(image.shape[-2:]):
            size = f"{image.shape[-2]} x {image.shape[-1]}"
            raise ValueError(f"Expected `shift` below the size of the images, {size}, but got {self.shift}.")
        if not len(image):  # all samples of this rank are repeats
            return
        moved_image = partial(
            transformed, image, self.group, circular=self.circular, fill=background(self.fill), turns=self.turns
        )
        with evaluating(encoder), torch.no_grad():
            h = _encoded(encoder, image.clone())  # the first layer may change its input
            eps, h = rounding_eps(h.dtype), in_float64(h)
            moved = [
                (in_float64(_encoded(encoder, moved_image(element))) - h).square().sum() for element in self.elements
            ]
        self.rows = self.rows + len(h)
        self.total = h.sum(0) if not self.total.numel() else self.total + h.sum(0)
        self.square = self.square + h.square().sum()
        self.rounding = self.rounding + eps**2 * h.square().sum()
        self.moved = self.moved + torch.stack(moved)

    def compute(self) -> dict[str, Tensor]:
        self.require(self.rows, "samples", least=2)
        variance = (self.square - self.total.square().sum() / self.rows) / (self.rows - 1)
        dim = len(self.total)
        floor = dim * moments_floor(self.rows, (self.square / dim).expand(dim, dim), self.rounding)
        if not floor < variance < torch.inf:
            nan = undefined(self, "h is the same for all images but for rounding, or not finite", like=self.moved)
            return {"mean": nan.mean(), "elements": nan}
        error = self.moved / self.rows / (2 * variance)
        return {"mean": error.mean(), "elements": error}


def _encoded(encoder: nn.Module, image: Tensor) -> Tensor:
    h = encoder(image)
    if h.ndim != 2 or len(h) != len(image):
        raise ValueError(f"Expected `encoder` to return (N, D) for N = {len(image)} images, but got {tuple(h.shape)}.")
    return h


def background(fill: float | Sequence[float]) -> Tensor | float:
    """Return the value of pixels that enter an image: one number, or a tensor with one for each channel."""
    if isinstance(fill, str):
        raise ValueError(f"Expected `fill` to be a number, or one per channel, but got {fill!r}.")
    finite(fill=torch.tensor(fill))
    return torch.tensor(fill) if isinstance(fill, Sequence) else fill
