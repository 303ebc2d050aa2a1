"""Curvature of the contrastive loss at an invariant map (Calder & Lee 2025, Lemma A.2)."""

__all__ = ["second_variation"]

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, floating, rows, shaped, switch
from lightning_ssl_geometry.functional.unit_rows import in_full_precision
from lightning_ssl_geometry.functional.variational.form import (
    Elementwise,
    Form,
    applied,
    derivatives,
    half_squares,
    near_origin,
)
from lightning_ssl_geometry.functional.variational.loss import first_variation

_UNIT = 1e-4  # tolerance of lengths and products


def second_variation(
    z: Tensor,
    direction: Tensor,
    temperature: float = 0.1,
    psi: Elementwise | None = None,
    eta: Elementwise | None = None,
    *,
    on_sphere: bool = False,
) -> Tensor:
    r"""Return the second derivative of :func:`variational_loss` at an invariant map (z1 = z2), along a direction h.

    .. math::
        \delta^2 L &= \frac1N \sum_i \Psi''(G_i) \dot G_i^2 + \Psi'(G_i) \ddot G_i, \quad
        \dot G_i = \frac1N \sum_j \frac{\eta'_{ij}}{\eta(0)} \langle z_i - z_j, h_i - h_j \rangle \\
        \ddot G_i &= \frac1N \sum_j \frac{\eta''_{ij}}{\eta(0)} \langle z_i - z_j, h_i - h_j \rangle^2
            + \frac{\eta'_{ij}}{\eta(0)} \|h_i - h_j\|^2

    With :math:`G_i` of :func:`variational_loss` and :math:`\eta_{ij} = \eta(\|z_i - z_j\|^2 / 2)`, this is the second
    derivative of L(z + s h) at s = 0, as in the proof of Lemma A.2 of Calder & Lee 2025. With `on_sphere`, the points
    follow great circles in place of straight lines. The result then has the additional term :math:`-\frac1N \sum_i
    \langle g_i, z_i \rangle \|h_i\|^2`, where g is :func:`first_variation`, summed over both views. A local minimum on
    the sphere has no negative curvature. The result is a scalar in float32 (float64 for float64 input), detached.

    Args:
        z: (N, d), the latent points of an invariant map, N >= 1.
        direction: (N, d), h.
        temperature: tau > 0 of the default eta.
        psi: Psi, twice differentiable; None: log(1 + t).
        eta: The similarity, twice differentiable; None: exp(-t / tau).
        on_sphere: Follow great circles. The rows z_i must then have length 1 and be orthogonal to the rows h_i.

    Raises:
        ValueError: If an argument is not valid for :func:`variational_loss`, or `on_sphere` does not fit the rows.
    """
    embeddings("N, d", z=z, direction=direction)
    form = Form(temperature, psi, eta)
    switch(on_sphere=on_sphere)
    shaped("N, d", z=z, direction=direction)
    floating(z=z)
    rows(1, z=z)
    with torch.no_grad(), torch.autocast(z.device.type, enabled=False):
        z, h = in_full_precision(z, direction)
        if on_sphere:
            _check_tangent(z, h)
        curvature = _along_line(z, h, form)
        if on_sphere:
            gradient = first_variation(z, z, temperature, psi=psi, eta=eta).sum(0)
            curvature = curvature - ((gradient * z).sum(-1) * h.square().sum(-1)).mean()
        return curvature


def _along_line(z: Tensor, h: Tensor, form: Form) -> Tensor:
    scale = applied(form.similarity, z.new_zeros(1), "eta")
    z = near_origin(z)
    near = derivatives(form.similarity, half_squares(z, z), "eta")
    product, cross = (z * h).sum(-1), z @ h.T
    speed = product[:, None] + product - cross - cross.T  # <z_i - z_j, h_i - h_j>
    apart = 2 * half_squares(h, h)
    first = (near.first * speed).mean(1) / scale
    second = (near.second * speed.square() + near.first * apart).mean(1) / scale
    outer = derivatives(form.outer, near.value.mean(1) / scale, "psi")
    return (outer.second * first.square() + outer.first * second).mean()


def _check_tangent(z: Tensor, h: Tensor) -> None:
    length = torch.linalg.vector_norm(z, dim=-1)
    if not ((length - 1).abs() < _UNIT).all():
        spread = f"{length.min():.3g} to {length.max():.3g}"
        raise ValueError(f"Expected rows of `z` of length 1 for `on_sphere`, but got lengths from {spread}.")
    radial = (z * h).sum(-1).abs().max()
    if not radial <= _UNIT * h.abs().max().clamp(min=1):
        raise ValueError(f"Expected `direction` tangent to the sphere, but got a radial part of {radial:.3g}.")
