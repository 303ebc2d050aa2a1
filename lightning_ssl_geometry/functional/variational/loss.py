"""The contrastive loss as a functional of the latent distribution, and its first variation.

Calder & Lee, Understanding Contrastive Learning through Variational Analysis and Neural Network Optimization
Perspectives (2025). The loss generalises NT-Xent to any increasing function Psi and any similarity eta of half the
squared distance; its sums include the anchor's own sample. Means over N points stand for expectations over the data
distribution mu. The two given views stand for the augmentations T and T'.
"""

__all__ = ["first_variation", "tangential_gradient", "variational_loss"]

import math
from typing import Unpack

import torch
from torch import Tensor
from torch.nn.functional import softplus

from lightning_ssl_geometry.checks import embeddings
from lightning_ssl_geometry.functional.info_nce.settings import check_views
from lightning_ssl_geometry.functional.unit_rows import in_full_precision
from lightning_ssl_geometry.functional.variational.form import (
    Elementwise,
    Form,
    VariationalSwitches,
    applied,
    derivatives,
    half_squares,
    near_origin,
    positive,
)


def variational_loss(
    z1: Tensor,
    z2: Tensor,
    temperature: float = 0.1,
    psi: Elementwise | None = None,
    eta: Elementwise | None = None,
    **switches: Unpack[VariationalSwitches],
) -> Tensor:
    r"""Compute the contrastive loss of Calder & Lee (2025) for any function Psi and any similarity eta.

    .. math:: L = \frac1N \sum_i \Psi\big(G_i\big), \quad
        G_i = \frac{\frac1N \sum_j \eta(\|z_i - z'_j\|^2 / 2)}{\eta(\|z_i - z'_i\|^2 / 2)}

    Eq. 4 and 5 of Calder & Lee 2025. The anchor z_i is row i of `z1`, and its positive z'_i is row i of `z2`. For the
    NT-Xent of their Eq. 1, pass `negatives="both"`, `include_self=False` and unit rows. The sum over j then includes
    both views, but not j = i. It is divided by N, unlike in SimCLR.

    The points are not normalised. The default Psi and eta do not overflow. Memory is O(N^2). Autocast has no effect.

    Args:
        z1: (N, d), N anchors, which are the points after the augmentation T. Any float dtype.
        z2: (N, d), the points after the augmentation T'.
        temperature: tau > 0 of the default eta; not used with another eta.
        psi: Psi, an increasing differentiable function of each element. None: log(1 + t).
        eta: The similarity eta(t) > 0 of two points with half squared distance t, a function of each element. It is
            largest at t = 0, with a finite slope. None: exp(-t / tau).
        **switches: `negatives`, the views that the sum over j takes, is "other" (default) or "both". `include_self`
            (default True) includes j = i in the sum. `symmetric` (default False) averages both orders of the views.

    Returns:
        The loss, a scalar in float32 (float64 for float64 input). By default it is log 2 if all points are equal.

    Raises:
        ValueError: If a shape is wrong, N = 0, an argument is out of its range, `psi` or `eta` changes the shape, or
            `eta` is not positive for the two views of a point.

    >>> z = torch.tensor([[1.0, 0.0], [-1.0, 0.0]])
    >>> variational_loss(z, z, temperature=1.0)  # log(1 + (1 + e^-2) / 2)
    tensor(0.4496)
    """
    embeddings("N, d", z1=z1, z2=z2)
    form = Form(temperature, psi, eta, **switches)
    check_views(z1, z2, least=1)
    with torch.autocast(z1.device.type, enabled=False):
        z1, z2 = in_full_precision(z1, z2)
        loss = _one_sided(z1, z2, form)
        return (loss + _one_sided(z2, z1, form)) / 2 if form.symmetric else loss


def first_variation(
    z1: Tensor,
    z2: Tensor,
    temperature: float = 0.1,
    psi: Elementwise | None = None,
    eta: Elementwise | None = None,
    **switches: Unpack[VariationalSwitches],
) -> Tensor:
    r"""Return the derivative of :func:`variational_loss` with respect to the points, in closed form.

    .. math::
        g_i &= \Big(\frac{\Psi'(G_i)}{\eta_{ii}}\Big) \frac1N \sum_j \eta'_{ij} (z_i - z'_j)
            - \Psi'(G_i) G_i \frac{\eta'_{ii}}{\eta_{ii}} (z_i - z'_i) \\
        g'_j &= \frac1N \sum_i \frac{\Psi'(G_i)}{\eta_{ii}} \eta'_{ij} (z'_j - z_i)
            - \Psi'(G_j) G_j \frac{\eta'_{jj}}{\eta_{jj}} (z'_j - z_j)

    with :math:`\eta_{ij} = \eta(\|z_i - z'_j\|^2 / 2)` and :math:`G_i` of :func:`variational_loss`. This is N times the
    gradient of the loss. The bracket in Prop. 3.1 of Calder & Lee 2025 is twice the result for `symmetric=True`. The
    paper's Psi' at y has a misprint: T and T' must be exchanged in G. If z1 = z2, the result summed over both views is
    Eq. 7.

    The arguments are those of :func:`variational_loss`. The result (2 views, N, d) is detached.

    >>> z = torch.tensor([[1.0, 0.0], [0.0, 1.0]])
    >>> first_variation(z, z, temperature=1.0).sum(0)[0]  # gradient descent moves the points apart
    tensor([-0.2185,  0.2185])
    """
    embeddings("N, d", z1=z1, z2=z2)
    form = Form(temperature, psi, eta, **switches)
    check_views(z1, z2, least=1)
    with torch.no_grad(), torch.autocast(z1.device.type, enabled=False):
        z1, z2 = in_full_precision(z1, z2)
        variation = _one_sided_variation(z1, z2, form)
        return (variation + _one_sided_variation(z2, z1, form).flip(0)) / 2 if form.symmetric else variation


def tangential_gradient(z: Tensor, vector: Tensor) -> Tensor:
    r"""Project vectors (..., d) onto the tangent spaces of the spheres through the points `z` (..., d).

    .. math:: v - \frac{\langle v, z \rangle}{\|z\|^2} z

    Raises a ValueError if the last axes differ, or if a point is 0.

    >>> tangential_gradient(torch.tensor([2.0, 0.0]), torch.tensor([3.0, 1.0]))
    tensor([0., 1.])
    """
    embeddings("..., d", z=z, vector=vector)
    if z.shape[-1:] != vector.shape[-1:] or z.ndim < 1:
        raise ValueError(f"Expected `z` and `vector` (..., d), but got {tuple(z.shape)}, {tuple(vector.shape)}.")
    peak = z.detach().abs().amax(-1, keepdim=True)  # its square may be 0 or infinite in float32
    if not peak.all():
        zeros = int((peak == 0).sum())
        raise ValueError(
            f"Expected points `z` other than 0, where a sphere has no tangent, but got {zeros} points at 0."
        )
    near = z / peak
    return vector - (vector * near).sum(-1, keepdim=True) / near.square().sum(-1, keepdim=True) * near


def _one_sided(z1: Tensor, z2: Tensor, form: Form) -> Tensor:
    z1, z2 = near_origin(torch.stack([z1, z2]))
    own, others, left_out = _squares(z1, z2, form)
    if form.eta is None:
        log_ratio = _log_ratio(own, others, left_out, form=form)
        return softplus(log_ratio).mean() if form.is_logarithm else applied(form.outer, log_ratio.exp(), "psi").mean()
    near = torch.stack([applied(form.eta, t, "eta").masked_fill(left_out, 0).mean(1) for t in others]).sum(0)
    return applied(form.outer, near / positive(applied(form.eta, own, "eta")), "psi").mean()


def _squares(z1: Tensor, z2: Tensor, form: Form) -> tuple[Tensor, list[Tensor], Tensor]:
    # half squared distances to the other view (N,) and to each view (N, N), and a mask of pairs to skip
    left_out = torch.zeros(len(z1), len(z1), dtype=torch.bool, device=z1.device)
    if not form.include_self:
        left_out.fill_diagonal_(True)
    others = [half_squares(z1, z2)] + ([half_squares(z1, z1)] if form.negatives == "both" else [])
    return (z1 - z2).square().sum(-1) / 2, others, left_out


def _log_ratio(own: Tensor, others: list[Tensor], left_out: Tensor, form: Form) -> Tensor:
    exponents = [((own[:, None] - t) / form.temperature).masked_fill(left_out, -torch.inf) for t in others]
    return torch.cat(exponents, 1).logsumexp(1) - math.log(len(own))


def _one_sided_variation(z1: Tensor, z2: Tensor, form: Form) -> Tensor:
    z1, z2 = near_origin(torch.stack([z1, z2]))
    own, others, left_out = _squares(z1, z2, form)
    stable = form.eta is None and form.is_logarithm
    weights, pull = (_default_weights if stable else _weights)(own, others, left_out, form=form)
    towards = pull[:, None] * (z1 - z2)
    by_z1, by_z2 = _apart(weights[0], z1, z2) - towards, _apart(weights[0].T, z2, z1) + towards
    for weight in weights[1:]:
        by_z1 = by_z1 + _apart(weight + weight.T, z1, z1)
    return torch.stack([by_z1, by_z2])


def _weights(own: Tensor, others: list[Tensor], left_out: Tensor, form: Form) -> tuple[list[Tensor], Tensor]:
    # Psi'(G_i) eta'_ij / (N eta_ii) for each view, and Psi'(G_i) G_i eta'_ii / eta_ii
    pair = derivatives(form.similarity, own, "eta")
    positive(pair.value)
    near = [derivatives(form.similarity, t, "eta") for t in others]
    ratio = torch.stack([each.value.masked_fill(left_out, 0).mean(1) for each in near]).sum(0) / pair.value
    slope = derivatives(form.outer, ratio, "psi").first
    push = (slope / pair.value / len(own))[:, None]
    return [push * each.first.masked_fill(left_out, 0) for each in near], slope * ratio * pair.first / pair.value


def _default_weights(own: Tensor, others: list[Tensor], left_out: Tensor, form: Form) -> tuple[list[Tensor], Tensor]:
    # in logarithms, so that nothing overflows
    log_ratio = _log_ratio(own, others, left_out, form=form)
    least = (own / form.temperature - softplus(log_ratio) - math.log(len(own)))[:, None]
    weights = [
        -(least - t / form.temperature).masked_fill(left_out, -torch.inf).exp() / form.temperature for t in others
    ]
    return weights, -log_ratio.sigmoid() / form.temperature


def _apart(weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    # sum_j w_ij (a_i - b_j)
    return weight.sum(1, keepdim=True) * a - weight @ b
