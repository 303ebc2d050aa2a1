r"""How far a network is from equivariant: f(T_g x) against Gamma_g f(x), at its output or at any of its layers.

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), Eq. 1: an equivariant f has an operator
:math:`\Gamma_g` with :math:`f(T_g x) = \Gamma_g f(x)`. On feature maps z (N, C, |G|, H, W), |G| = S R, with scale s and
orientation r at place s R + r, the operators are

- a quarter turn: the maps turn, and move R / 4 places up along the orientations, circularly;
- a translation by a multiple of the stride: the maps move by as many places;
- a scaling by s_i / s_j: the maps of scale j are resized about their centre, and are then those of scale i.

The paper demands all this and measures none of it; the error is that of Sosnovik, Szmaja & Smeulders,
Scale-Equivariant Steerable Networks (2020).
"""

__all__ = [
    "Element",
    "EquivarianceSums",
    "Transformation",
    "check_equivariance",
    "equivariance_error",
    "equivariance_sums",
    "group_elements",
    "invariance_error",
    "transformed",
]

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lightning_ssl_geometry.functional.groups.action import quarter_turn, rescale, translate
from lightning_ssl_geometry.introspection import OUTPUT, layer_outputs

Transformation = Literal["rotation", "translation", "scale"]
Element = int | float | tuple[int, int]


class EquivarianceSums(NamedTuple):
    """What an equivariance error is a ratio of: sums over samples, which add over batches and ranks.

    Attributes:
        layers: L names; "output" where none were asked for.
        difference: float64 (L, E), ||f(T_g x) - Gamma_g f(x)||^2 for each of E group elements.
        reference: float64 (L, E), ||Gamma_g f(x)||^2.
    """

    layers: tuple[str, ...]
    difference: Tensor
    reference: Tensor


def equivariance_error(
    network: nn.Module,
    x: Tensor,
    group: Transformation = "rotation",
    *,
    group_shape: tuple[int, int] | None = None,
    scales: Sequence[float] | None = None,
    stride: int | Sequence[int] | None = None,
    circular: bool = False,
    layers: Sequence[str] | None = None,
    margin: int = 0,
    fill: Tensor | float = 0.0,
) -> dict[str, Tensor]:
    r"""Measure how far a network is from equivariant, for every element of a group and, if asked, layer by layer.

    .. math:: \Delta_g = \frac{\sum_n \|f(T_g x_n) - \Gamma_g f(x_n)\|_2^2}{\sum_n \|\Gamma_g f(x_n)\|_2^2}

    The squared relative error of Sosnovik et al., as one ratio of sums over the batch, so that a blank image neither
    divides by 0 nor counts as much as others (the mean of each image's ratio is another number). The root of it is a
    relative norm. 0: equivariant. 1: as far as if f(T_g x) were 0. 2: f(T_g x) has nothing to do with what it should
    be, at equal norm; nothing bounds it above. Maps that only have a large mean in common are far from 2: compare with
    a network that is not equivariant.

    Norms are over channels, group elements and those places of the maps to which :math:`\Gamma_g` brings something: a
    translation without `circular` and a scaling leave out what entered at the border. Zero padding and the image's
    own border still count beside it, as far as filters reach; `margin` leaves them out.

    An output (N, C, H, W), or a group axis of length 1, has maps that move and no group axis: a plain CNN has a large
    error under rotation. Maps of one pixel do not move, and an output (N, D) has Gamma = identity: the error is then
    how far f is from invariant, relative to the whole norm of f (:func:`invariance_error` compares with other images).

    Cost: 1 + E forward passes of x, where E is 3, 4 or S (S - 1) / 2; the outputs of one pass are kept, and compared in
    float64. Gradients flow where they are enabled.

    Args:
        network: f, in eval mode: an image (N, C_in, H, W) to (N, C, |G|, H', W'), (N, C, H', W') or (N, D).
        x: (N, C_in, H, W), floating point; square for rotations. In float64, with the network, an exact network's
            error is 1e-25 and less.
        group: "rotation": 1, 2 and 3 quarter turns. "translation": by the stride down, up, right, left. "scale": by
            s_i / s_j for every pair i < j, (0, 1), (0, 2), ..., (S - 2, S - 1).
        group_shape: (S, R). None: the network's `group_shape`; where it has none, the whole group axis is of the
            scales or orientations that are asked for.
        scales: s, ascending, at least 2. None: the network's `scales`. A network without a group axis takes any.
        stride: Pixels from one place of the maps to the next, an integer or one for each of `layers`. None: the
            network's integer `stride` for its output, else H / H', rounded: say it where layers pad little. Images are
            moved by the least common multiple of them all.
        circular: Whether what leaves at one border comes back at the opposite one (translation): for networks with
            circular padding, and H divisible by the stride.
        layers: Dotted names of submodules to compare the outputs of, so that one sees where equivariance is lost.
            None: the network's output.
        margin: Pixels to leave out beside each border of what is compared.
        fill: What enters the image at the border (translation, scale): a number, or (C_in,).

    Returns:
        Layer -> float64 (E,), in the order above; "output" where no layers were named. Not finite where f(x) is all 0.

    Raises:
        ValueError: If an argument is out of range, x is not a batch of images or not square, the network is in training
            mode or a layer of it is not there, not called once, or of another shape than these, or nothing is left to
            compare.

    >>> z = equivariance_error(nn.AvgPool2d(3), torch.rand(2, 1, 9, 9, dtype=torch.float64))
    >>> bool((z["output"] < 1e-25).all())
    True
    """
    sums = equivariance_sums(
        network,
        x,
        group,
        group_shape=group_shape,
        scales=scales,
        stride=stride,
        circular=circular,
        layers=layers,
        margin=margin,
        fill=fill,
    )
    return dict(zip(sums.layers, sums.difference / sums.reference, strict=True))


def equivariance_sums(
    network: nn.Module,
    x: Tensor,
    group: Transformation = "rotation",
    *,
    group_shape: tuple[int, int] | None = None,
    scales: Sequence[float] | None = None,
    stride: int | Sequence[int] | None = None,
    circular: bool = False,
    layers: Sequence[str] | None = None,
    margin: int = 0,
    fill: Tensor | float = 0.0,
) -> EquivarianceSums:
    """Sum what :func:`equivariance_error` divides, over the batch; arguments and errors are the same."""
    if scales is None and group == "scale":
        scales = getattr(network, "scales", None)
        if scales is None:
            raise ValueError(f"Expected `scales`, since {type(network).__name__} has none of its own, but got None.")
    check_equivariance(group, group_shape, scales, stride, layers, margin)
    _check_input(network, x, group)
    if stride is None and layers is None and isinstance(own := getattr(network, "stride", None), int):
        stride = own
    axes = _Axes(group, group_shape or getattr(network, "group_shape", None), tuple(scales or ()))
    with layer_outputs(network, layers) as run:
        outputs = run(x.clone())  # the first layer may work in place
        names = tuple(outputs)
        strides = _strides(outputs, x, stride, group, margin)
        layer = [_Maps(name, axes.regular(name, outputs[name]), t) for name, t in zip(names, strides, strict=True)]
        shift = math.lcm(*strides)
        rows = []
        for place, element in enumerate(group_elements(group, shift, axes.factors)):
            moved = run(transformed(x, group, element, circular, fill))
            rows += [_compared(axes, place, maps, moved[maps.name], shift, circular, margin) for maps in layer]
    difference, reference = torch.stack(rows).view(-1, len(names), 2).permute(2, 1, 0)  # (L, E)
    return EquivarianceSums(names, difference, reference)


def invariance_error(h: Tensor, h_moved: Tensor) -> Tensor:
    r"""Measure how far representations move with their images' transformation, in units of the distance between images.

    .. math:: \frac{\frac{1}{N} \sum_i \|h(T x_i) - h(x_i)\|_2^2}{\frac{1}{N (N - 1)} \sum_{i \ne j} \|h_i - h_j\|_2^2}

    The denominator is twice the total variance of h over the samples, with N - 1. It depends neither on the unit of h
    nor on its mean.

    Args:
        h: h(x), (N, D), N >= 2.
        h_moved: h(T x), (N, D), of the same samples.

    Returns:
        float64 scalar >= 0. 0: invariant. 1: a transformed image is as far from itself as from another image. NaN
        where all of h is equal and stays so.

    Raises:
        ValueError: If the shapes differ, or there are fewer than 2 samples.

    >>> invariance_error(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [3.0]])).item()
    0.25
    """
    if h.ndim != 2 or h.shape != h_moved.shape or len(h) < 2:
        shapes = f"{tuple(h.shape)} and {tuple(h_moved.shape)}"
        raise ValueError(f"Expected `h` and `h_moved` of one shape (N, D) with N >= 2, but got {shapes}.")
    h, h_moved = h.double(), h_moved.double()
    return (h_moved - h).square().sum(1).mean() / (2 * h.var(0).sum())


def group_elements(group: Transformation, shift: int = 1, factors: Sequence[float] = ()) -> tuple[Element, ...]:
    """The elements that an error is measured for: quarter turns, (rows, columns) of moves by `shift`, or factors.

    >>> group_elements("translation", 4)
    ((4, 0), (-4, 0), (0, 4), (0, -4))
    """
    if group == "rotation":
        return (1, 2, 3)
    return tuple(factors) if group == "scale" else ((shift, 0), (-shift, 0), (0, shift), (0, -shift))


def transformed(
    x: Tensor, group: Transformation, element: Element, circular: bool = False, fill: Tensor | float = 0.0
) -> Tensor:
    """Transform all images, or maps, alike.

    Args:
        x: (N, C, ..., H, W).
        group: Of which `element` is.
        element: Quarter turns, (rows, columns) or a factor.
        circular: As in :func:`lightning_ssl_geometry.functional.translate`.
        fill: As in :func:`lightning_ssl_geometry.functional.translate`.

    >>> transformed(torch.tensor([[[[1.0, 2.0]]]]), "translation", (0, 1)).tolist()
    [[[[0.0, 1.0]]]]
    """
    if group == "rotation":
        return quarter_turn(x, element)  # type: ignore[arg-type]
    if group == "translation":
        return translate(x, torch.tensor(element, dtype=torch.int64), fill, circular)
    return rescale(x, element, fill)  # type: ignore[arg-type]


def check_equivariance(
    group: str,
    group_shape: Sequence[int] | None,
    scales: Sequence[float] | None,
    stride: int | Sequence[int] | None,
    layers: Sequence[str] | None,
    margin: int,
) -> None:
    """Raise a ValueError that names the first argument of an equivariance error that is out of its range."""
    if group not in get_args(Transformation):
        raise ValueError(f"Expected `group` to be one of {get_args(Transformation)}, but got {group!r}.")
    if group_shape is not None and (len(group_shape) != 2 or min(group_shape) < 1):
        raise ValueError(f"Expected `group_shape` (S, R) of positive integers, but got {tuple(group_shape)}.")
    if group == "rotation" and group_shape is not None:
        _check_rotations(group_shape[1])
    if group == "scale" and scales is not None:
        _check_scales(scales, group_shape)
    if layers is not None and (not layers or isinstance(layers, str) or len(set(layers)) < len(layers)):
        raise ValueError(f"Expected `layers` to be different names of submodules, at least one, but got {layers!r}.")
    strides = [stride] if isinstance(stride, int) else list(stride or [])
    if any(t < 1 for t in strides):
        raise ValueError(f"Expected `stride` >= 1, but got {stride}.")
    if stride is not None and not isinstance(stride, int) and len(strides) != len(layers or [OUTPUT]):
        raise ValueError(f"Expected `stride` with one value for each of {len(layers or [OUTPUT])}, but got {stride}.")
    if margin < 0:
        raise ValueError(f"Expected `margin` >= 0, but got {margin}.")


@dataclass(frozen=True)
class _Axes:
    """The group asked for, and how outputs are arranged over its axes."""

    group: Transformation
    shape: tuple[int, int] | None
    scales: tuple[float, ...]

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """Scales i < j: the maps of j, resized by s_i / s_j, are those of i."""
        return list(itertools.combinations(range(len(self.scales)), 2))

    @property
    def factors(self) -> list[float]:
        """Of the pairs."""
        return [self.scales[i] / self.scales[j] for i, j in self.pairs]

    def regular(self, name: str, z: Tensor) -> Tensor:
        """Arrange an output as (N, C, S, R, H, W)."""
        if z.ndim not in (2, 4, 5):
            wanted = "(N, C, |G|, H, W), (N, C, H, W) or (N, D)"
            raise ValueError(f"Expected `{name}` of shape {wanted}, but got {tuple(z.shape)}.")
        if self.group == "rotation" and z.ndim > 2 and z.shape[-2] != z.shape[-1]:
            raise ValueError(f"Expected square maps in `{name}` for quarter turns, but got {tuple(z.shape)}.")
        if z.ndim < 5 or z.shape[2] == 1:
            return z.reshape(len(z), z.shape[1], 1, 1, *(z.shape[-2:] if z.ndim > 2 else (1, 1)))
        order = z.shape[2]
        s, r = self.shape or ((order, 1) if self.group == "scale" else (1, order))
        if s * r != order:
            raise ValueError(f"Expected `{name}` with S R = {s} * {r} group elements, but got {order}.")
        if self.group == "rotation":
            _check_rotations(r)
        if self.group == "scale":
            _check_scales(self.scales, (s, r))
        return z.unflatten(2, (s, r))


@dataclass(frozen=True)
class _Maps:
    """An output's maps z (N, C, S, R, H, W), with `stride` pixels from place to place; one place does not move."""

    name: str
    z: Tensor
    stride: int

    @property
    def moves(self) -> bool:
        """Whether there is more than one place."""
        return self.z.shape[-2:] != (1, 1)


def _compared(axes: _Axes, place: int, maps: _Maps, output: Tensor, shift: int, circular: bool, margin: int) -> Tensor:
    """||f(T_g x) - Gamma_g f(x)||^2 and ||Gamma_g f(x)||^2, (2,), for the element at that place."""
    z, found = maps.z, axes.regular(maps.name, output)
    element = group_elements(axes.group, shift // maps.stride, axes.factors)[place]
    if axes.group == "scale" and z.shape[2] > 1:
        i, j = axes.pairs[place]
        z, found = z[:, :, j], found[:, :, i]
    if axes.group == "rotation":
        z = z.roll((place + 1) * z.shape[3] // 4, 3)
    kept = torch.ones(1, 1, *z.shape[-2:], dtype=torch.float64)
    if maps.moves:
        z = transformed(z, axes.group, element, circular)
        kept = _inside(transformed(kept, axes.group, element, circular), math.ceil(margin / maps.stride))
    places = (kept[0, 0] > 1 - 1e-6).to(z.device)  # not those that something from outside is mixed with
    if not places.any():
        size = f"{z.shape[-2]} x {z.shape[-1]}"
        raise ValueError(f"Expected places to compare in `{maps.name}`, but of {size} none is left for {element}.")
    expected, found = z[..., places].double(), found[..., places].double()
    return torch.stack([(found - expected).square().sum(), expected.square().sum()])


def _inside(kept: Tensor, margin: int) -> Tensor:
    """(1, 1, H, W), without the places nearer than that to a border of what is kept."""
    return -F.max_pool2d(-F.pad(kept, (margin,) * 4), 2 * margin + 1, 1)


def _strides(
    outputs: dict[str, Tensor], x: Tensor, stride: int | Sequence[int] | None, group: Transformation, margin: int
) -> list[int]:
    """Pixels per place, for each output; 1 where that does not matter."""
    if isinstance(stride, int):
        return [stride] * len(outputs)
    if stride is not None:
        return list(stride)
    if group != "translation" and not margin:
        return [1] * len(outputs)
    sizes = {name: tuple(z.shape[-2:]) for name, z in outputs.items() if z.ndim > 2 and z.shape[-2:] != (1, 1)}
    if not sizes and group == "translation":
        raise ValueError("Expected `stride`, the pixels to move images by, since no output has maps, but got None.")
    strides = {}
    for name, (height, width) in sizes.items():
        t = round(x.shape[-2] / height)
        if t < 1 or t != round(x.shape[-1] / width):
            ends = f"{tuple(x.shape[-2:])} pixels became {(height, width)}"
            raise ValueError(f"Expected `stride`, since it is not clear for `{name}`, where {ends}, but got None.")
        strides[name] = t
    return [strides.get(name, 1) for name in outputs]


def _check_input(network: nn.Module, x: Tensor, group: Transformation) -> None:
    if x.ndim != 4 or not x.is_floating_point() or not len(x):
        raise ValueError(f"Expected `x` of shape (N, C, H, W), floating point, but got {tuple(x.shape)}, {x.dtype}.")
    if group == "rotation" and x.shape[-2] != x.shape[-1]:
        raise ValueError(f"Expected square images for quarter turns, but got {x.shape[-2]} x {x.shape[-1]} pixels.")
    for module in network.modules():
        if module.training and isinstance(module, _BatchNorm | _DropoutNd):
            raise ValueError(
                "Expected `network` in eval mode, so that passes differ neither by chance nor by batch statistics, "
                f"but got {module} in training mode."
            )


def _check_rotations(rotations: int) -> None:
    if rotations != 1 and rotations % 4:
        raise ValueError(
            f"Expected 1 orientation or a multiple of 4, for quarter turns, but got {rotations}. If they are not "
            "orientations, say so by `group_shape`."
        )


def _check_scales(scales: Sequence[float], group_shape: Sequence[int] | None) -> None:
    ascending = all(a < b for a, b in itertools.pairwise(scales))
    if len(scales) < 2 or not ascending or not (scales[0] > 0 and scales[-1] < math.inf):
        raise ValueError(f"Expected `scales` > 0, at least 2, ascending, but got {tuple(scales)}.")
    if group_shape is not None and group_shape[0] not in (1, len(scales)):
        raise ValueError(f"Expected `scales` with S = {group_shape[0]} values, but got {tuple(scales)}.")
