r"""A fixed basis of filters at several scales and orientations: Hermite polynomials times a Gaussian.

Sosnovik, Szmaja & Smeulders, Scale-Equivariant Steerable Networks (2020). He_n is the Hermite polynomial of order n.
The filter with orders n and m is

.. math:: \psi_{nm}^{\sigma}(x, y) = \frac{1}{\sigma^2} He_n(x / \sigma) He_m(y / \sigma)
    \exp(-\frac{x^2 + y^2}{2 \sigma^2})

A basis of effective size e has e^2 filters. Those of type "A" have all orders n and m below e. Those of type "B" have
the orders n + m <= 4 at the width sigma, then the same orders at sigma / 1.2, sigma / 1.2^2 and so on, until there are
e^2 filters. A filter is sampled at whole pixels. Its support grows with the scale. It is divided by its norm at the
smallest scale.

A filter of few pixels is cut off, and its samples at one scale are no resampled copy of those at another. So those of
type "fitted" have the filters of type "A" at the largest scale :math:`\sigma_S` only, and each smaller scale
:math:`\sigma` has the nearest filters to these, resampled by :math:`a = \sigma / \sigma_S`. The idea is that of
Sosnovik, Moskalev & Smeulders, DISCO: accurate Discrete Scale Convolutions (2021). Here the filters remain products
l_n(x) l_m(y), and no images are needed. At frequencies :math:`\nu` in cycles per pixel, a line l of the smaller scale
has the response :math:`\hat l(\nu) = \sum_x l(x) e^{-2 \pi i \nu x}`. For a signal with the power spectrum
:math:`1 / (\nu^2 + \nu_0^2)` of natural images, it minimises the mean squared error

.. math:: \int_0^{1/2} \frac{|\hat l(\nu) - \hat l^{\sigma_S}_n(a \nu)|^2}{\nu^2 + \nu_0^2} \, d\nu

The filters of this type are divided by the norm that the largest one has when it is resampled to the smallest scale:
its own norm times :math:`\sigma_S / \sigma_1`. The norm of a fitted one is no measure, because functions of a high
order have frequencies that the pixels of the smallest scale cannot show.

Orientations are rotations of these functions about the middle of the filter, and mirror images of them before that.
Those by quarter turns are exact (Keller et al., Homomorphic Self-Supervised Learning, App. B, has four).
"""

__all__ = ["BasisType", "hermite_gaussian_basis", "hermite_lines", "supports"]

import itertools
import math
from collections.abc import Iterator, Sequence
from typing import Literal, NamedTuple, get_args

import torch
from torch import Tensor
from torch.special import hermite_polynomial_he

from lightning_ssl_geometry.checks import inside, integer, one_of

BasisType = Literal["A", "B", "fitted"]
_HIGHEST, _NARROWER = 4, 1.2  # of type "B": the largest n + m, and the ratio of a width to the next
_KNEE, _FREQUENCIES = 0.03, 2048  # of "fitted": nu_0 in cycles per pixel, and the points of the integral
_LEAST_SCALE = 0.5  # a Gaussian's spectrum is there 29% of its maximum at half a cycle per pixel, at 1 it is 0.7%


def supports(kernel_size: int, scales: Sequence[float]) -> tuple[int, ...]:
    """Return the width of the filters at each scale, an odd number of pixels.

    The width is proportional to the scale, and is `kernel_size` at the largest scale.

    >>> supports(11, (1.0, 1.25, 1.33, 1.5, 1.66, 1.75))
    (7, 7, 9, 9, 11, 11)
    """
    return tuple(int(kernel_size * scale / max(scales)) // 2 * 2 + 1 for scale in scales)


def hermite_gaussian_basis(
    kernel_size: int,
    effective_size: int,
    scales: Sequence[float] = (1.0,),
    rotations: int = 1,
    *,
    mirrored: bool = False,
    basis_type: BasisType = "A",
) -> list[Tensor]:
    """Sample Hermite polynomials times a Gaussian, the basis of Sosnovik et al. 2020, at each scale and orientation.

    Args:
        kernel_size: Width of the filters at the largest scale in pixels, odd.
        effective_size: e, for e^2 functions.
        scales: S standard deviations of the Gaussian in pixels, ascending, the first >= 0.5. Below 1, the samples of a
            Gaussian alias: at half a cycle per pixel, its spectrum is 0.7% of its maximum at scale 1, 2% at 0.9, 9% at
            0.7 and 29% at 0.5.
        rotations: n >= 1 rotations by multiples of 360 / n degrees, counter-clockwise as an image is displayed. If n is
            not 1, 2 or 4, the corners of a turned filter are cut off: leave room around it, three times the largest
            scale or more on each side.
        mirrored: Whether the rotations of the mirror image (left and right) follow those of the function itself.
        basis_type: "A", one width and the orders 0 to e - 1 along each axis; "B", several widths and the orders with
            a sum of at most 4; or "fitted", as "A" at the largest scale, and the nearest filters to these at the
            smaller scales. "fitted" needs n = 1, 2 or 4.

    Returns:
        For each scale a float64 tensor (R, e^2, k, k), where R is n or 2 n, and k is the width of the filters at this
        scale. The functions of type "A" and those of one width of type "B" are in the order of m, the order along the
        horizontal axis, and with equal m in that of n, the order along the vertical axis: in the types "A" and
        "fitted", the index is m e + n.

    Raises:
        ValueError: If an argument is out of its range.

    >>> [tuple(basis.shape) for basis in hermite_gaussian_basis(7, 3, (1.0, 1.5), rotations=4)]
    [(4, 9, 5, 5), (4, 9, 7, 7)]
    """
    if kernel_size < 1 or kernel_size % 2 == 0:
        raise ValueError(f"Expected `kernel_size` odd and >= 1, but got {kernel_size}.")
    inside(f"[1, {int(kernel_size)}]", effective_size=effective_size)
    check_scales(scales)
    if effective_size > 1 and supports(kernel_size, scales)[0] == 1:
        enough = next(k for k in itertools.count(kernel_size, 2) if supports(k, scales)[0] > 1)
        raise ValueError(
            f"Expected `kernel_size` >= {enough} for `effective_size` > 1, but got {kernel_size}, which leaves 1 "
            f"pixel at the smallest of `scales` = {tuple(scales)}."
        )
    integer(1, rotations=rotations)
    one_of(get_args(BasisType), basis_type=basis_type)
    sizes, flips = supports(kernel_size, scales), (False, True) if mirrored else (False,)
    if basis_type == "fitted":
        if 4 % rotations:
            raise ValueError(f"Expected `rotations` 1, 2 or 4 for `basis_type` = 'fitted', but got {rotations}.")
        found = hermite_lines(kernel_size, effective_size, scales, basis_type=basis_type)
        return [_products(lines, rotations, flips) for lines in found]
    sampled = [
        torch.cat(
            [
                _turned(size, scale, family, orientations=(rotations, flips))
                for family in _families(effective_size, basis_type)
            ],
            1,
        )
        for size, scale in zip(sizes, scales, strict=True)
    ]
    norms = sampled[0][0].norm(dim=(-2, -1), keepdim=True)
    return [(functions / norms)[:, : effective_size**2] for functions in sampled]


def hermite_lines(
    kernel_size: int,
    effective_size: int,
    scales: Sequence[float],
    *,
    basis_type: Literal["A", "fitted"] = "A",
) -> list[Tensor]:
    """Return the factors l_n of the basis functions l_n(x) l_m(y), a float64 tensor (e, k) for each scale.

    e is `effective_size`, and k is the width of the filters in pixels.
    """
    sizes = supports(kernel_size, scales)
    if basis_type == "fitted":
        largest = _lines(_axis(sizes[-1]), effective_size, scales[-1])
        found = [_fitted(largest, k, scale / scales[-1]) for k, scale in zip(sizes[:-1], scales[:-1], strict=True)]
        norm = largest.norm(dim=1, keepdim=True) * (scales[-1] / scales[0]) ** 0.5
        return [lines / norm for lines in (*found, largest)]
    found = [_lines(_axis(k), effective_size, scale) for k, scale in zip(sizes, scales, strict=True)]
    return [lines / found[0].norm(dim=1, keepdim=True) for lines in found]


def check_scales(scales: Sequence[float]) -> None:
    """Raise a ValueError if there are no scales, if they are not strictly ascending, or if the first is below 0.5."""
    scales = tuple(scales)
    if not scales or not all(map(math.isfinite, scales)):
        raise ValueError(f"Expected `scales` to be finite numbers, at least one, but got {scales}.")
    if any(b <= a for a, b in itertools.pairwise(scales)):
        raise ValueError(f"Expected `scales` in ascending order, but got {scales}.")
    if scales[0] < _LEAST_SCALE:
        raise ValueError(
            f"Expected `scales` >= {_LEAST_SCALE}, the deviation in pixels that a sampled Gaussian needs, but got "
            f"{scales[0]}."
        )


def _axis(size: int) -> Tensor:
    return torch.arange(size, dtype=torch.float64) - size // 2


def _lines(x: Tensor, effective_size: int, scale: float) -> Tensor:
    """Sample l_n at positions x of any shape, (e, *shape)."""
    gauss = torch.exp(-(x**2) / (2 * scale**2)) / scale
    return torch.stack([gauss * hermite_polynomial_he(x / scale, n) for n in range(effective_size)])


def _fitted(largest: Tensor, size: int, factor: float) -> Tensor:
    """Return the nearest lines of `size` pixels to the lines `largest`, resampled by `factor`, (e, `size`)."""
    frequency = (torch.arange(_FREQUENCIES, dtype=torch.float64) + 0.5) / (2 * _FREQUENCIES)
    power = 1 / (frequency**2 + _KNEE**2)

    def covariance(distance: Tensor) -> Tensor:
        return (2 * math.pi * distance[..., None] * frequency).cos() @ power

    x, y = _axis(size), factor * _axis(largest.shape[1])
    lines = torch.linalg.solve(covariance(x[:, None] - x), covariance(x[:, None] - y) @ largest.T).T
    even = 1 - 2 * (torch.arange(len(lines), dtype=torch.float64)[:, None] % 2)
    return (lines + even * lines.flip(1)) / 2  # l_n(-x) is (-1)^n l_n(x), without the solver's rounding


def _products(lines: Tensor, rotations: int, flips: Sequence[bool]) -> Tensor:
    """Return the functions l_n(x) l_m(y) at each orientation by quarter turns, (R, e^2, k, k)."""
    mirrored = (torch.einsum("nx,my->mnxy", lines, lines.flip(1) if flip else lines) for flip in flips)
    turned = [plane.flatten(0, 1).rot90(4 // rotations * r, (-2, -1)) for plane in mirrored for r in range(rotations)]
    return torch.stack(turned)


class _Family(NamedTuple):
    """Functions of one width: their orders along both axes are below `orders`, with a sum of at most `most`."""

    width: float  # relative to the scale
    orders: int
    most: int


def _families(effective_size: int, basis_type: BasisType) -> Iterator[_Family]:
    if basis_type == "A":
        yield _Family(1.0, effective_size, 2 * effective_size)
        return
    of_one_width = (_HIGHEST + 1) * (_HIGHEST + 2) // 2
    for power in range(math.ceil(effective_size**2 / of_one_width)):
        yield _Family(_NARROWER**-power, _HIGHEST + 1, _HIGHEST)


def _turned(size: int, scale: float, family: _Family, *, orientations: tuple[int, Sequence[bool]]) -> Tensor:
    """Sample the functions of a family at each orientation, (R, functions, k, k)."""
    rotations, flips = orientations
    order = torch.arange(family.orders)
    kept = (order[:, None] + order <= family.most).flatten()
    planes = [
        _plane(size, scale * family.width, family.orders, turn=(r, rotations), flip=flip)[kept]
        for flip in flips
        for r in range(rotations)
    ]
    return torch.stack(planes)


def _plane(size: int, scale: float, orders: int, *, turn: tuple[int, int], flip: bool) -> Tensor:
    """Sample functions of all pairs of orders, turned by `turn` = (k, n) times 360 / n degrees, (orders^2, k, k)."""
    quarters = 4 * turn[0] // turn[1]
    rest = 2 * math.pi * (turn[0] / turn[1] - quarters / 4)  # the quarter turns themselves permute the samples
    down, right = torch.meshgrid(_axis(size), _axis(size), indexing="ij")
    rows = down * math.cos(rest) + right * math.sin(rest)  # the point that is turned to this pixel
    columns = right * math.cos(rest) - down * math.sin(rest)
    vertical, horizontal = (_lines(at, orders, scale) for at in (rows, -columns if flip else columns))
    return torch.einsum("nxy,mxy->mnxy", vertical, horizontal).flatten(0, 1).rot90(quarters, (-2, -1))
