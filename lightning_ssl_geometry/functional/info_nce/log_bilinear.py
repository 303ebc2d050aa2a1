"""InfoNCE with a bilinear similarity, whose matrix can be learnt."""

__all__ = ["BILINEAR", "check_log_bilinear_settings", "log_bilinear_info_nce"]

from typing import Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import embeddings, floating, shaped
from lightning_ssl_geometry.functional.info_nce.forms import NT_XENT, FormName, InfoNCEForm, InfoNCESwitches, named_form
from lightning_ssl_geometry.functional.info_nce.settings import check_views, temperature_range, without_negatives
from lightning_ssl_geometry.functional.matrix_product import matrix_product
from lightning_ssl_geometry.functional.unit_rows import in_full_precision

BILINEAR = NT_XENT.but(normalize=False)


def log_bilinear_info_nce(
    z1: Tensor,
    z2: Tensor,
    weight: Tensor,
    temperature: float = 1.0,
    form: InfoNCEForm | FormName = BILINEAR,
    **switches: Unpack[InfoNCESwitches],
) -> Tensor:
    r"""Compute InfoNCE with the bilinear similarity a^T W b.

    .. math::
        s_{ab} &= a^T W b / \tau \\
        L &= \frac{1}{|A|} \sum_{a \in A} -\log \frac{\exp s_{a a^+}}
            {[\exp s_{a a^+}] + \sum_{b \in B_a} \exp s_{ab}}

    :class:`InfoNCEForm` defines the symbols. If W is the identity, the loss is :func:`info_nce` of the same form.

    W need not be symmetric. The anchor is always to the left of W. Anchors of view 1 have the similarities
    :math:`z^{1T}_i W b`. With `symmetric`, the rows of view 2 are anchors too, with the similarities :math:`z^{2T}_i W
    b`. With `joint`, both anchors of a sample share one term with the positive :math:`z^{1T}_i W z^2_i`.

    =============================== ============================================= ===========
    form                            settings                                      at W = 0
    =============================== ============================================= ===========
    SimCLR's denominator            (the defaults)                                log(2N-1)
    CPC, Eq. 3 and 4                symmetric=False, negatives="other",           log(N)
                                    with z1 = c and weight = W_k^T
    Keller et al., Appendix C       positive_in_denominator=False, joint=True     log(4(N-1))
    =============================== ============================================= ===========

    CPC: van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding (2018), which also draws
    negatives from other positions in the same sample. Keller et al., Homomorphic Self-Supervised Learning, define
    sim(a, b) = exp(a^T W b) and take its exponential again. Here, as in CPC, there is one exponential.

    Memory is O(N^2). The loss can be differentiated any number of times. Autocast has no effect.

    Args:
        z1: (N, P), embeddings of view 1, N >= 2 (N >= 1 with the positive in the denominator). Any float dtype.
        z2: (N, P), embeddings of view 2.
        weight: (P, P), W. Any float dtype.
        temperature: tau > 0, one number.
        form: A form with `normalize=False`, the similarity "dot", the denominator "sum" and `include_self=False`.
        **switches: Attributes of :class:`InfoNCEForm` that differ from those of `form`, such as `joint=True`.

    Returns:
        The loss, a scalar in float32 (float64 for float64 views). With the positive in the denominator, the loss is > 0
        for N >= 2. For N = 1, it is 0 with gradient 0.

    Raises:
        ValueError: If a shape or dtype is wrong, the denominator is empty (N = 1), or an argument is out of its range.
        TypeError: If a switch is unknown.

    >>> z = torch.eye(4)
    >>> log_bilinear_info_nce(z, z, 2 * torch.eye(4))  # log(e^2 + 6) - 2
    tensor(0.5944)
    """
    embeddings("N, P", z1=z1, z2=z2)
    form = named_form(form, **switches)
    check_log_bilinear_settings(temperature, form)
    check_views(z1, z2, least=form.least)
    shaped("P, P", {"P": z1.shape[1]}, weight=weight)
    floating(weight=weight)
    with torch.autocast(z1.device.type, enabled=False):
        views = in_full_precision(z1, z2)
        w = weight.to(views[0].dtype) / temperature
        anchors = [matrix_product(view, w) for view in (views if form.symmetric else views[:1])]  # rows a_i^T W / tau
        if len(z1) == 1:
            return without_negatives(torch.linalg.vecdot(anchors[0], views[1])).mean()
        total = torch.stack([_negative_logsumexp(a, _seen(views, v, form.negatives)) for v, a in enumerate(anchors)])
        positive = torch.stack([torch.linalg.vecdot(a, views[1 - v]) for v, a in enumerate(anchors)])  # (A, N)
        ratio = total.logsumexp(dim=0) - positive[0] if form.joint else total - positive
        if form.positive_in_denominator:
            ratio = torch.logaddexp(ratio, torch.zeros_like(ratio))
        return ratio.mean()


def check_log_bilinear_settings(temperature: float, form: InfoNCEForm) -> None:
    """Raise a ValueError unless `temperature` is one number > 0 and `form` fits a bilinear similarity."""
    temperature_range(temperature)
    for field in ("normalize", "include_self", "denominator", "similarity"):
        expected, got = getattr(BILINEAR, field), getattr(form, field)
        if got != expected:
            raise ValueError(f"Expected `{field}` = {expected!r} for a log-bilinear similarity, but got {got!r}.")
    if torch.as_tensor(temperature).ndim != 0:
        raise ValueError(
            f"Expected `temperature` to be one number, since W scales dimensions, but got {temperature!r}."
        )


def _seen(views: tuple[Tensor, Tensor], own: int, negatives: str) -> tuple[Tensor, ...]:
    return {"both": views, "same": views[own : own + 1], "other": views[1 - own : 2 - own]}[negatives]


def _negative_logsumexp(anchors: Tensor, seen: tuple[Tensor, ...]) -> Tensor:
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    logits = [matrix_product(anchors, view.T).masked_fill(own, -torch.inf) for view in seen]
    return torch.cat(logits, dim=1).logsumexp(dim=1)
