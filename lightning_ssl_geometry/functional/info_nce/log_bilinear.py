r"""InfoNCE with a log-bilinear similarity, whose matrix is learnt.

Van den Oord, Li & Vinyals, Representation Learning with Contrastive Predictive Coding (2018), score a pair by
:math:`\exp(z^T W c)`. Keller et al., Homomorphic Self-Supervised Learning, Appendix C, write Deep InfoMax's local loss
with it.
"""

__all__ = ["BILINEAR", "check_log_bilinear_settings", "log_bilinear_info_nce"]

from typing import Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.functional.info_nce.forms import (
    NT_XENT,
    FormName,
    InfoNCEForm,
    InfoNCESwitches,
    named_form,
)
from lightning_ssl_geometry.functional.info_nce.settings import check_temperature, check_views, without_negatives
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
    r"""Contrast the two views of each sample with the other samples, by a similarity that W makes.

    .. math::
        s_{ab} &= a^T W b / \tau \\
        L &= \frac{1}{|A|} \sum_{a \in A} -\log \frac{\exp s_{a a^+}}
            {[\exp s_{a a^+}] + \sum_{b \in B_a} \exp s_{ab}}

    With W the identity it is :func:`info_nce` of the same form.

    W need not be symmetric, so it matters which of two embeddings stands on its left: the anchor does, in every term
    of its own row, whether b is of its own view or of the other. An anchor of view 1 asks :math:`z^{1T}_i W b`; an
    anchor of view 2, where `symmetric` adds them, asks :math:`z^{2T}_i W b` of the same W, of its positive
    :math:`z^1_i` too. W thus answers "which b belongs to the anchor a", with both views in the part of a, which is
    sound where they are drawn alike; the transposed reading, in which the anchors of view 2 stand on the right, is
    `weight.T` and swapped views. Where the views have different parts (a context and its target, as in CPC), take
    `symmetric=False, negatives="other"`. With `joint` there is one positive per pair, and it is
    :math:`z^{1T}_i W z^2_i`, view 1 on the left, as Keller et al.'s numerator has it.

    =============================== ============================================= ===========
    form                            settings                                      at W = 0
    =============================== ============================================= ===========
    SimCLR's denominator            (the defaults)                                log(2N-1)
    CPC, Eq. 3 and 4                symmetric=False, negatives="other",           log(N)
                                    with z1 = c and weight = W_k^T
    Keller et al., Appendix C       positive_in_denominator=False, joint=True     log(4(N-1))
    =============================== ============================================= ===========

    Keller et al. print sim(a, b) = exp(a^T W b) inside another exponential; it is read as sim(a, b) = a^T W b, which is
    CPC's density ratio and what "log-bilinear" says. Here the negatives are of other samples only, where CPC and Deep
    InfoMax also draw them from other places of the same sample.

    The logits are dense, and so differentiable any number of times: memory is O(N^2), up to four matrices of logits
    and what autograd keeps of them. In float32 (float64 for float64 views), whatever the autocast.

    Args:
        z1: (N, P), embeddings of view 1, N >= 2 (with the positive in the denominator, N >= 1). Any float dtype.
        z2: (N, P), embeddings of view 2.
        weight: (P, P), W. Any float dtype.
        temperature: tau > 0. It scales W, and no more than that.
        form: Which InfoNCE it is: one with `normalize=False`, the similarity "dot", the denominator "sum" and without
            `include_self`.
        **switches: Attributes of :class:`InfoNCEForm` that differ from those of `form`, such as `joint=True`.

    Returns:
        The loss, a scalar in float32 (float64 for float64 views); > 0 with the positive in the denominator, and 0, with
        gradient 0, for one sample alone.

    Raises:
        ValueError: If the shapes differ or are not (N, P); if N = 1 and the denominator is empty; if `weight` is not
            (P, P); if `temperature` is not one number > 0; if the form is another one.
        TypeError: If there is no such switch.

    >>> z = torch.eye(4)
    >>> log_bilinear_info_nce(z, z, 2 * torch.eye(4))  # log(e^2 + 6) - 2
    tensor(0.5944)
    """
    form = named_form(form, **switches)
    check_log_bilinear_settings(temperature, form)
    check_views(z1, z2, least=form.least)
    _check_weight(weight, z1.shape[1])
    with torch.autocast(z1.device.type, enabled=False):
        views = in_full_precision(z1, z2)
        w = weight.to(views[0].dtype) / temperature
        anchors = [
            matrix_product(view, w) for view in (views if form.symmetric else views[:1])
        ]  # row i is a_i^T W / tau
        if len(z1) == 1:
            return without_negatives(torch.linalg.vecdot(anchors[0], views[1]))
        total = torch.stack([_negative_logsumexp(a, _seen(views, v, form.negatives)) for v, a in enumerate(anchors)])
        positive = torch.stack([torch.linalg.vecdot(a, views[1 - v]) for v, a in enumerate(anchors)])  # (A, N)
        ratio = total.logsumexp(dim=0) - positive[0] if form.joint else total - positive
        if form.positive_in_denominator:
            ratio = torch.logaddexp(ratio, torch.zeros_like(ratio))
        return ratio.mean()


def check_log_bilinear_settings(temperature: float, form: InfoNCEForm) -> None:
    """Check a temperature and a form.

    Raises:
        ValueError: If the temperature is not one number > 0, or there is no such form of a log-bilinear similarity.
    """
    check_temperature(temperature)
    for field in ("normalize", "include_self", "denominator", "similarity"):
        expected, got = getattr(BILINEAR, field), getattr(form, field)
        if got != expected:
            raise ValueError(f"Expected `{field}` = {expected!r} beside a weight, but got {got!r}.")
    if torch.as_tensor(temperature).ndim != 0:
        raise ValueError(f"Expected `temperature` to be one number (W scales dimensions), but got {temperature!r}.")


def _seen(views: tuple[Tensor, Tensor], own: int, negatives: str) -> tuple[Tensor, ...]:
    """The views whose samples an anchor of view `own` meets."""
    return {"both": views, "same": views[own : own + 1], "other": views[1 - own : 2 - own]}[negatives]


def _negative_logsumexp(anchors: Tensor, seen: tuple[Tensor, ...]) -> Tensor:
    """Log-sum-exp of each anchor's logits (N,), without those of its own sample."""
    own = torch.eye(len(anchors), dtype=torch.bool, device=anchors.device)
    logits = [matrix_product(anchors, view.T).masked_fill(own, -torch.inf) for view in seen]
    return torch.cat(logits, dim=1).logsumexp(dim=1)


def _check_weight(weight: Tensor, dimensions: int) -> None:
    if weight.shape != (dimensions, dimensions):
        expected = f"(P, P) = ({dimensions}, {dimensions})"
        raise ValueError(f"Expected `weight` of shape {expected}, but got {tuple(weight.shape)}.")
    if not weight.is_floating_point():
        raise ValueError(f"Expected `weight` of a float dtype, but got {weight.dtype}.")
