r"""Equivariance errors of networks: how much f(T_g x) differs from Gamma_g f(x).

Keller, Suau & Zappella, Homomorphic Self-Supervised Learning (2022), Eq. 1: a network f is equivariant to
transformations :math:`T_g` of images if it has operators :math:`\Gamma_g` on features with
:math:`f(T_g x) = \Gamma_g f(x)`. Feature maps are (N, C, |G|, H, W), with |G| = S R for S scales and R orientations.
Scale s and orientation r have the index s R + r. :math:`\Gamma_g` acts on them as follows:

- A rotation by k times 360 / n degrees turns the maps, and shifts them circularly by k R / n along the orientations.
- An element of D_n, which mirrors the image before the rotation, does the same to the maps and moves the orientations.
- A rotation of the hue by k n-ths of a turn shifts the maps by k R / n along the orientations.
- A translation by k times the stride shifts the maps by k positions.
- A change of scale by s_i / s_j resizes the maps of scale j about their centre. They become the maps of scale i.

The error is that of Sosnovik, Szmaja & Smeulders, Scale-Equivariant Steerable Networks (2020).
"""

__all__ = [
    "Element",
    "EquivarianceOptions",
    "EquivarianceSettings",
    "EquivarianceSums",
    "Transformation",
    "equivariance_error",
    "equivariance_sums",
    "group_elements",
    "invariance_error",
    "transformed",
]

import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple, TypedDict, Unpack, get_args

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lightning_ssl_geometry.checks import (
    ascending,
    at_least,
    counts,
    embeddings,
    floating,
    integer,
    listed,
    one_of,
    shaped,
    switch,
    whole,
)
from lightning_ssl_geometry.deprecation import old_names
from lightning_ssl_geometry.functional.groups.action import rescale, translate
from lightning_ssl_geometry.functional.groups.orientation import (
    Orientation,
    number_of_orientations,
    orient,
    relative_orientations,
    turns_of,
)
from lightning_ssl_geometry.introspection import OUTPUT, layer_outputs
from lightning_ssl_geometry.precision import in_float64

Transformation = Literal["rotation", "translation", "scale", "dihedral", "hue"]
Element = int | float | tuple[int, int]
__getattr__ = old_names(__name__, {"check_equivariance": "EquivarianceSettings"})


class EquivarianceSums(NamedTuple):
    """The two sums whose ratio is :func:`equivariance_error`; they can be added over batches and ranks.

    Attributes:
        layers: The names of the L layers; ("output",) if no layers were chosen.
        difference: float64 (L, E), the sums of ||f(T_g x) - Gamma_g f(x)||^2 over images x, for E group elements g.
            :func:`equivariance_error` defines f, T_g and Gamma_g.
        reference: float64 (L, E), the sums of ||Gamma_g f(x)||^2 over images x.
    """

    layers: tuple[str, ...]
    difference: Tensor
    reference: Tensor


class EquivarianceOptions(TypedDict, total=False):
    """Optional arguments of :func:`equivariance_error`; :class:`EquivarianceSettings` describes them."""

    group_shape: tuple[int, int] | None
    scales: Sequence[float] | None
    stride: int | Sequence[int] | None
    layers: Sequence[str] | None
    margin: int
    circular: bool
    turns: int | None


@dataclass(frozen=True)
class EquivarianceSettings:
    """Settings of :func:`equivariance_error`.

    Attributes:
        group: "rotation" for the rotations by k times 360 / `turns` degrees, k >= 1, "dihedral" for these and those of
            the mirror image, "hue" for rotations of the colours, "translation" for shifts by the stride down, up, right
            and left, or "scale" for the factors `scales[i] / scales[j]` with i < j, in the order (0, 1), (0, 2), ...,
            (1, 2).
        group_shape: (S, R), the numbers of scales and orientations. None: the network's attribute `group_shape`. A
            network without this attribute has only scales if `group` is "scale", and otherwise only orientations.
        scales: S >= 2 ascending numbers. None: the network's attribute `scales`. Without a group axis, any will do.
        stride: Image pixels per position of the maps: one integer, or one for each of `layers`. None: the network's
            integer attribute `stride`. With `layers`, or if the attribute is missing, it is image height / map height,
            rounded. This is wrong for networks with little padding. Images move by the least common multiple of the
            strides.
        layers: Dotted names of the submodules whose outputs are compared. None: the network's output.
        margin: Width of the strip at each border that is not compared, in pixels of the image.
        circular: Whether translations are circular. This fits networks with circular padding whose stride divides H.
        turns: n >= 2 of C_n or D_n, for "rotation", "dihedral" and "hue". None: that of the network's orientations. For
            a network without the attribute `group_shape`, it is 4, or 3 for the hue.
        fill: Value of pixels that enter at the border in translations and scalings: one number, or one per channel.

    Raises:
        ValueError: If a value is out of range, or `stride` does not fit `layers`.
    """

    group: Transformation = "rotation"
    group_shape: tuple[int, int] | None = None
    scales: Sequence[float] | None = None
    stride: int | Sequence[int] | None = None
    layers: Sequence[str] | None = None
    margin: int = 0
    circular: bool = False
    fill: Tensor | float = 0.0
    turns: int | None = None

    def __post_init__(self) -> None:
        shape, layers, stride = self.group_shape, self.layers, self.stride
        one_of(get_args(Transformation), group=self.group)
        switch(circular=self.circular)
        if self.turns is not None:
            integer(2, turns=self.turns)
        if shape is not None:
            counts(2, group_shape=shape)
        self.check_group(shape)
        if layers is not None and (not layers or isinstance(layers, str) or len(set(layers)) < len(layers)):
            raise ValueError(
                f"Expected `layers` to be different names of submodules, at least one, but got {layers!r}."
            )
        names = len(layers or [OUTPUT])
        if isinstance(stride, int | None):
            stride = [1 if stride is None else stride] * names
        listed(stride=stride)
        for each in stride:
            whole(1, stride=each)
        if len(stride) != names:
            raise ValueError(f"Expected `stride` with one value for each of {names}, but got {stride}.")
        at_least(0, margin=self.margin)

    @property
    def pairs(self) -> list[tuple[int, int]]:
        """All pairs (i, j) of indices of `scales`, with i < j."""
        return list(itertools.combinations(range(len(self.scales or ())), 2))

    def elements(self, shift: int = 1) -> tuple[Element, ...]:
        """List the elements of the group; translations are by `shift` pixels. Those of a network are not known here."""
        scales = self.scales if self.group == "scale" and self.scales else ()
        factors = [small / large for small, large in itertools.combinations(scales, 2)]
        if self.orientation and self.turns is None:
            return ()
        return group_elements(self.group, shift, factors, turns=self.turns or 1)

    @property
    def orientation(self) -> Orientation | None:
        """The group of orientations, if `group` is one."""
        return self.group if self.group in get_args(Orientation) else None  # type: ignore[return-value]

    def moved(self, x: Tensor, element: Element) -> Tensor:
        """Transform images by an element of the group."""
        return transformed(x, self.group, element, circular=self.circular, fill=self.fill, turns=self.turns or 1)

    def check_group(self, shape: Sequence[int] | None) -> None:
        """Raise a ValueError if (S, R) or the scales do not fit the group."""
        if self.orientation and shape is not None and shape[1] != 1:
            turns = self.turns or turns_of(self.orientation, shape[1])
            least = number_of_orientations(self.orientation, turns)
            fits = shape[1] == least if self.group == "dihedral" else shape[1] % turns == 0
            if not fits:
                wanted = f"{least}" if self.group == "dihedral" else f"a multiple of {turns}"
                raise ValueError(
                    f"Expected 1 orientation or {wanted} for `turns` = {turns}, but got {shape[1]}. If they are not "
                    "orientations, say so by `group_shape`."
                )
        if self.group != "scale" or self.scales is None:
            return
        ascending(2, scales=self.scales)
        if shape is not None and shape[0] not in (1, len(self.scales)):
            raise ValueError(f"Expected `scales` with S = {shape[0]} values, but got {tuple(self.scales)}.")

    def of(self, network: nn.Module) -> "EquivarianceSettings":
        """Return these settings with the scales, the stride and the turns of a network, where they are None.

        Raises:
            ValueError: If the network has no scales, or orientations of another group.
        """
        scales, turns, shape = self.scales, self.turns, self.group_shape
        if self.group == "scale" and scales is None:
            scales = getattr(network, "scales", None)
            if scales is None:
                raise ValueError(
                    f"Expected `scales`, since {type(network).__name__} has none of its own, but got None."
                )
        if self.orientation:
            if shape is None:
                refuse_other_orientations(network, self.orientation)
                shape = getattr(network, "group_shape", None)
            turns = turns or turns_of(self.orientation, 1 if shape is None else shape[1])
        own = getattr(network, "stride", None) if self.layers is None and self.stride is None else None
        return replace(self, scales=scales, stride=own if isinstance(own, int) else self.stride, turns=turns)

    def sums(self, network: nn.Module, x: Tensor) -> EquivarianceSums:
        """Return the two sums of :func:`equivariance_error` for the images x, with the same ValueErrors."""
        settings = self.of(network)
        shaped("N, C, H, W", x=x)
        floating(x=x)
        if not len(x):
            raise ValueError("Expected `x` with at least one image, but got none.")
        if self.group in ("rotation", "dihedral") and x.shape[-2] != x.shape[-1]:
            raise ValueError(f"Expected square images for quarter turns, but got {x.shape[-2]} x {x.shape[-1]} pixels.")
        for module in network.modules():
            if module.training and isinstance(module, _BatchNorm | _DropoutNd):
                raise ValueError(
                    "Expected `network` in eval mode, so that passes differ neither by chance nor by batch statistics, "
                    f"but got {module} in training mode."
                )
        with layer_outputs(network, self.layers) as run:
            return _Comparison(settings, self.group_shape or getattr(network, "group_shape", None)).sums(run, x)


def refuse_other_orientations(network: nn.Module, group: Orientation) -> None:
    """Raise a ValueError if the orientations of a network, its attribute `orientation`, are those of another group."""
    kind = getattr(network, "orientation", None)
    if kind not in (None, group):
        raise ValueError(f"Expected `group` to be {kind!r}, the network's orientations, but got {group!r}.")


def equivariance_error(
    network: nn.Module,
    x: Tensor,
    group: Transformation = "rotation",
    *,
    fill: Tensor | float = 0.0,
    **options: Unpack[EquivarianceOptions],
) -> dict[str, Tensor]:
    r"""Measure how far a network is from equivariant, for each element of a group and each chosen layer.

    .. math:: \Delta_g = \frac{\sum_n \|f(T_g x_n) - \Gamma_g f(x_n)\|_2^2}{\sum_n \|\Gamma_g f(x_n)\|_2^2}

    T_g transforms an image by the group element g, and Gamma_g transforms feature maps. The network f is equivariant if
    f(T_g x) = Gamma_g f(x). The error is the squared relative error of Sosnovik, Szmaja & Smeulders, Scale-Equivariant
    Steerable Networks (2020). Here it is one ratio for the whole batch. It is 0 for an equivariant network and 1 if
    f(T_g x) = 0. It is 2 if f(T_g x) and Gamma_g f(x) have equal norms and are unrelated. There is no upper bound. Maps
    with a large common mean have a small error even without equivariance.

    The norms include all channels, group elements and compared positions. A position is not compared if Gamma_g f(x)
    would need content from outside of the map there. This happens for scalings, and for translations without
    `circular`. Zero padding also affects other positions near the border. Exclude them with `margin`.

    If the output has no group axis, or a group axis of length 1, Gamma_g only moves or resizes the maps. If the output
    is (N, D), or its maps have one pixel, Gamma_g is the identity. The error then measures invariance.

    Cost: 1 + E forward passes. E is n - 1 for n rotations of the plane or of the hue, 2 n - 1 with mirror images, 4 for
    translations and S (S - 1) / 2 for S scales.

    Args:
        network: f, in eval mode, maps images to (N, C, |G|, H', W') for |G| group elements, (N, C, H', W') or (N, D).
        x: (N, C_in, H, W), floating point; square for rotations. In float64, equivariance gives an error <= 1e-25.
        group: "rotation", "dihedral", "hue", "translation" or "scale".
        fill: Value of pixels that enter at the border: one number, or (C_in,).
        **options: `group_shape`, `scales`, `stride`, `layers`, `margin`, `circular` and `turns` of
            :class:`~lightning_ssl_geometry.functional.groups.equivariance.EquivarianceSettings`.

    Returns:
        A dict from the names of the layers to the errors of the E group elements, (E,), float64 and differentiable.
        Without `layers`, the only name is "output". An error is not finite if f(x) is 0 for all images.

    Raises:
        ValueError: If an argument is out of range, x is not a batch of images, the network is in training mode, or a
            layer does not exist, is not called exactly once, has a wrong shape or has no positions left to compare.

    >>> z = equivariance_error(nn.AvgPool2d(3), torch.rand(2, 1, 9, 9, dtype=torch.float64))
    >>> bool((z["output"] < 1e-25).all())
    True
    """
    sums = equivariance_sums(network, x, group, fill=fill, **options)
    return dict(zip(sums.layers, sums.difference / sums.reference, strict=True))


def equivariance_sums(
    network: nn.Module,
    x: Tensor,
    group: Transformation = "rotation",
    *,
    fill: Tensor | float = 0.0,
    **options: Unpack[EquivarianceOptions],
) -> EquivarianceSums:
    """Return numerator and denominator of :func:`equivariance_error`, which describes the arguments and ValueErrors."""
    return EquivarianceSettings(group, fill=fill, **options).sums(network, x)


def invariance_error(h: Tensor, h_moved: Tensor) -> Tensor:
    r"""Measure how much representations change when images are transformed, relative to distances between images.

    .. math:: \frac{\frac{1}{N} \sum_i \|h(T x_i) - h(x_i)\|_2^2}{\frac{1}{N (N - 1)} \sum_{i \ne j} \|h_i - h_j\|_2^2}

    The error does not change if all representations are shifted or scaled.

    Args:
        h: h(x), (N, D), N >= 2.
        h_moved: h(T x), (N, D), for the same samples.

    Returns:
        A float64 scalar >= 0. It is 0 for invariant representations, and 1 if a transformed image is as far from its
        original as another image is. It is NaN if all rows of h and h_moved are equal, and infinite if only those of
        h are.

    Raises:
        ValueError: If the shapes differ, or there are fewer than 2 samples.

    >>> invariance_error(torch.tensor([[0.0], [2.0]]), torch.tensor([[1.0], [3.0]])).item()
    0.25
    """
    embeddings("N, D", h=h, h_moved=h_moved)
    if h.ndim != 2 or h.shape != h_moved.shape or len(h) < 2:
        shapes = f"{tuple(h.shape)} and {tuple(h_moved.shape)}"
        raise ValueError(f"Expected `h` and `h_moved` of one shape (N, D) with N >= 2, but got {shapes}.")
    h, h_moved = in_float64(h), in_float64(h_moved)
    return (h_moved - h).square().sum(1).mean() / (2 * h.var(0).sum())


def group_elements(
    group: Transformation, shift: int = 1, factors: Sequence[float] = (), turns: int = 4
) -> tuple[Element, ...]:
    """List the elements of a group, without the identity.

    These are the indices 1, 2, ... of orientations, four shifts (rows, columns) by `shift` pixels, or the scale
    `factors`.

    >>> group_elements("translation", 4)
    ((4, 0), (-4, 0), (0, 4), (0, -4))
    """
    if group in get_args(Orientation):
        return tuple(range(1, number_of_orientations(group, turns)))  # type: ignore[arg-type]
    return tuple(factors) if group == "scale" else ((shift, 0), (-shift, 0), (0, shift), (0, -shift))


def transformed(
    x: Tensor,
    group: Transformation,
    element: Element,
    circular: bool = False,
    fill: Tensor | float = 0.0,
    turns: int = 4,
) -> Tensor:
    """Transform all images or feature maps x (N, C, ..., H, W) by one element of a group.

    `element` is the index of an orientation, a shift (rows, columns), or a factor of :func:`rescale`. `circular` and
    `fill` are those of :func:`~lightning_ssl_geometry.functional.translate`.
    """
    if group in get_args(Orientation):
        x4 = x if x.ndim == 4 else x.flatten(1, -3)
        return orient(x4, element, turns, group=group, fill=fill).view(x.shape)  # type: ignore[arg-type]
    if group == "translation":
        return translate(x, torch.tensor(element, dtype=torch.int64), fill, circular=circular)
    return rescale(x, element, fill)  # type: ignore[arg-type]


@dataclass(frozen=True)
class _Maps:
    """The output of a layer, reshaped to maps z (N, C, S, R, H, W) with `stride` image pixels per position."""

    name: str
    z: Tensor
    stride: int


@dataclass(frozen=True)
class _Comparison:
    settings: EquivarianceSettings
    shape: tuple[int, int] | None

    def sums(self, run: Callable[[Tensor], dict[str, Tensor]], x: Tensor) -> EquivarianceSums:
        settings = self.settings
        outputs = run(x.clone())  # the first layer may work in place
        names = tuple(outputs)
        strides = self._strides(outputs, x)
        layers = [_Maps(name, self._regular(name, outputs[name]), t) for name, t in zip(names, strides, strict=True)]
        shift = math.lcm(*strides)
        rows = []
        for place, element in enumerate(settings.elements(shift)):
            moved = run(settings.moved(x, element))
            rows += [self._compared(place, maps, moved[maps.name], shift=shift) for maps in layers]
        difference, reference = torch.stack(rows).view(-1, len(names), 2).permute(2, 1, 0)  # (L, E)
        return EquivarianceSums(names, difference, reference)

    def _regular(self, name: str, z: Tensor) -> Tensor:
        group = self.settings.group
        if z.ndim not in (2, 4, 5):
            wanted = "(N, C, |G|, H, W), (N, C, H, W) or (N, D)"
            raise ValueError(f"Expected `{name}` of shape {wanted}, but got {tuple(z.shape)}.")
        if group in ("rotation", "dihedral") and z.ndim > 2 and z.shape[-2] != z.shape[-1]:
            raise ValueError(f"Expected square maps in `{name}` for quarter turns, but got {tuple(z.shape)}.")
        if z.ndim < 5 or z.shape[2] == 1:
            return z.reshape(len(z), z.shape[1], 1, 1, *(z.shape[-2:] if z.ndim > 2 else (1, 1)))
        order = z.shape[2]
        s, r = self.shape or ((order, 1) if group == "scale" else (1, order))
        if s * r != order:
            raise ValueError(f"Expected `{name}` with S R = {s} * {r} group elements, but got {order}.")
        self.settings.check_group((s, r))
        return z.unflatten(2, (s, r))  # (N, C, S, R, H, W)

    def _compared(self, place: int, maps: _Maps, output: Tensor, shift: int) -> Tensor:
        """Return the two sums of a layer's error for the group element with the index `place`."""
        settings, group = self.settings, self.settings.group
        z, found = maps.z, self._regular(maps.name, output)
        element = settings.elements(shift // maps.stride)[place]
        if group == "scale" and z.shape[2] > 1:
            i, j = settings.pairs[place]
            z, found = z[:, :, j], found[:, :, i]
        if settings.orientation and z.shape[3] > 1:
            turns = z.shape[3] // 2 if group == "dihedral" else z.shape[3]
            finer = turns // (settings.turns or turns)  # elements of the network's group to one of `turns`
            row = relative_orientations(settings.orientation, turns)[(place + 1) * finer]
            z = z[:, :, :, row.to(z.device)]
        kept = torch.ones(1, 1, *z.shape[-2:], dtype=torch.float64)
        if maps.z.shape[-2:] != (1, 1):  # maps of one pixel do not move
            if group != "hue":
                z, kept = (
                    transformed(each, group, element, circular=settings.circular, turns=settings.turns or 1)
                    for each in (z, kept)
                )
            kept = _eroded(kept, math.ceil(settings.margin / maps.stride))
        # only positions without content from outside; they stay on the CPU, so that nothing waits for a GPU
        rows, columns = (kept[0, 0] > 1 - 1e-6).nonzero(as_tuple=True)
        if not len(rows):
            size = f"{z.shape[-2]} x {z.shape[-1]}"
            raise ValueError(f"Expected positions to compare in `{maps.name}`, but got none of {size} for {element}.")
        expected, found = in_float64(z[..., rows, columns]), in_float64(found[..., rows, columns])
        return torch.stack([(found - expected).square().sum(), expected.square().sum()])

    def _strides(self, outputs: dict[str, Tensor], x: Tensor) -> list[int]:
        """Return the stride of each output in pixels of the image, or 1 if the stride is not needed."""
        stride, translation = self.settings.stride, self.settings.group == "translation"
        if stride is not None:
            return [stride] * len(outputs) if isinstance(stride, int) else list(stride)
        if not translation and not self.settings.margin:
            return [1] * len(outputs)
        sizes = {name: tuple(z.shape[-2:]) for name, z in outputs.items() if z.ndim > 2 and z.shape[-2:] != (1, 1)}
        if not sizes and translation:
            raise ValueError("Expected `stride`, the pixels to move images by, since no output has maps, but got None.")
        strides = {}
        for name, (height, width) in sizes.items():
            t = round(x.shape[-2] / height)
            if t < 1 or t != round(x.shape[-1] / width):
                ends = f"{tuple(x.shape[-2:])} pixels became {(height, width)}"
                raise ValueError(
                    f"Expected `stride`, since the sizes do not tell that of `{name}` ({ends}), but got None."
                )
            strides[name] = t
        return [strides.get(name, 1) for name in outputs]


def _eroded(kept: Tensor, margin: int) -> Tensor:
    return -F.max_pool2d(-F.pad(kept, (margin,) * 4), 2 * margin + 1, 1)  # positions outside of the map count as 0
