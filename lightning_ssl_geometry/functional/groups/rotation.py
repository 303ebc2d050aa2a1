"""Rotations of images about their centre, and the number of directions that the rotations of one image span.

Appendix E of Cosentino et al., Toward a Geometrical Understanding of Self-supervised Contrastive Learning (2022).
"""

__all__ = ["covariance_rank", "rotate", "rotation_rank"]

import torch
from torch import Tensor
from torch.nn.functional import affine_grid, grid_sample

from lightning_ssl_geometry.checks import at_least, floating, inside, shaped
from lightning_ssl_geometry.functional.spectrum import RankMode, singular_values_rank
from lightning_ssl_geometry.precision import in_float64


def rotate(image: Tensor, angle: Tensor) -> Tensor:
    r"""Rotate each image about its centre by its own angle, bilinearly, with zeros outside of the image.

    .. math:: y(p) = x(R_{-a} p), \quad R_a \in SO(2)

    The result is that of torchvision's `rotate` with `BILINEAR`, but each image has its own angle. Multiples of 90
    degrees permute the pixels of a square image, up to rounding. The result is differentiable in both arguments.

    Args:
        image: (N, C, H, W), floating point; the result has the same shape and dtype.
        angle: (N,) in degrees, counter-clockwise as the image is seen (row 0 on top).

    Raises:
        ValueError: If a shape is wrong or `image` is not floating point.

    >>> rotate(torch.tensor([[[[1.0, 2.0], [3.0, 4.0]]]]), torch.tensor([90.0])).round().tolist()
    [[[[2.0, 4.0], [1.0, 3.0]]]]
    """
    shaped("N, C, H, W", image=image)
    floating(image=image)
    shaped("N,", {"N": len(image)}, angle=angle)
    with torch.autocast(image.device.type, enabled=False):
        x = image.to(torch.promote_types(image.dtype, torch.float32))
        a = torch.deg2rad(angle.to(x))
        height, width = x.shape[2:]
        cos, sin, zero = a.cos(), a.sin(), torch.zeros_like(a)
        # affine_grid measures x in half widths and y, downwards, in half heights
        theta = torch.stack([cos, -sin * height / width, zero, sin * width / height, cos, zero], -1)  # (N, 6)
        grid = affine_grid(theta.view(-1, 2, 3), list(x.shape), align_corners=False)
        return grid_sample(x, grid, mode="bilinear", padding_mode="zeros", align_corners=False).to(image.dtype)


def rotation_rank(
    image: Tensor,
    max_angle: float,
    count: int = 500,
    tau: float = 1e-2,
    *,
    mode: RankMode = "relative",
    generator: torch.Generator | None = None,
) -> Tensor:
    r"""Count the directions that the rotations of one image span, an int64 scalar from 0 to min(count - 1, C H W).

    .. math:: \mathrm{Rank}_\tau\Bigl(\tfrac{1}{\sqrt n}\bigl[R_{a_k} x - \overline{R x}\bigr]_{k=1}^n\Bigr),
        \quad a_k \sim U[0, a_{\max}]

    R_a rotates by the angle a. Fig. 10 of Cosentino et al. 2022 (appendix E) plots the rank of the covariance of 500
    rotations against `max_angle`, for a 32x32 image with a single pixel of 1. The paper states no tau. Here, tau is a
    threshold of standard deviations, the square roots of the covariance's eigenvalues. For such an image and tau =
    1e-5, the result is nearly the number of pixels that the rotations reach. The default tau, 1% of the largest
    deviation, gives about four fifths of this number.

    Args:
        image: x, (C, H, W), floating point.
        max_angle: The largest angle, in degrees, >= 0.
        count: n, the number of rotations, >= 2.
        tau: Threshold of :func:`lightning_ssl_geometry.functional.numerical_rank`.
        mode: "absolute", "relative" or "cumulative": how `numerical_rank` reads `tau`.
        generator: Draws the angles; None: torch's global generator.

    Raises:
        ValueError: If `image` is not one floating-point image, or another argument is out of range.
    """
    shaped("C, H, W", image=image)
    inside("[0, inf)", max_angle=max_angle)
    at_least(2, count=count)
    device = image.device if generator is None else generator.device
    angle = max_angle * torch.rand(count, generator=generator, device=device).to(image.device)
    return covariance_rank(rotate(image.expand(count, -1, -1, -1), angle).flatten(1), tau, mode=mode)


def covariance_rank(rows: Tensor, tau: float = 1e-2, *, mode: RankMode = "relative", rounding: float = 16) -> Tensor:
    r"""Count the principal axes of X whose standard deviation reaches a threshold, from 0 to min(n - 1, D).

    .. math:: \mathrm{Rank}_\tau\Bigl(\tfrac{1}{\sqrt n} (X - \bar X)\Bigr)

    Deviations below the rounding error of the rows count as 0 in all modes. Otherwise, rows that differ only by
    rounding would have an arbitrary rank in the relative modes.

    Args:
        rows: X, (n, D), n >= 1 samples of D dimensions.
        tau: Threshold of :func:`lightning_ssl_geometry.functional.numerical_rank`.
        mode: "absolute", "relative" or "cumulative": how `numerical_rank` reads `tau`.
        rounding: A deviation counts as 0 if it is at most `rounding` times eps times the root mean square norm of the
            rows, with the machine epsilon eps of their dtype. The default covers the rounding errors of a deep network.

    Raises:
        ValueError: If `rows` is not (n, D) with n >= 1, or `tau` or `mode` is out of range.

    >>> covariance_rank(torch.tensor([[0.1, 5.0, 0.0], [0.1, 5.0, 1.0], [0.1, 5.0, 7.0]])).item()
    1
    """
    if rows.ndim != 2 or not len(rows):
        raise ValueError(f"Expected `rows` of shape (n, D) with n >= 1, but got {tuple(rows.shape)}.")
    x = in_float64(rows)
    sigma = torch.linalg.svdvals(x - x.mean(0)) / len(x) ** 0.5
    floor = rounding * torch.finfo(rows.dtype).eps * x.square().sum(1).mean().sqrt()
    return singular_values_rank(torch.where(sigma > floor, sigma, 0.0), tau, mode=mode)
