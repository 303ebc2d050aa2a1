"""InfoNCE split into an alignment and a uniformity term for each anchor."""

__all__ = ["ONE_SIDED", "LossTerms", "alignment_uniformity_terms", "check_split"]

from collections.abc import Sequence
from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings
from lightning_ssl_geometry.functional.info_nce.forms import RUSAK, FormName, InfoNCEForm, InfoNCESwitches, named_form
from lightning_ssl_geometry.functional.info_nce.settings import check_views, temperature_range, without_negatives
from lightning_ssl_geometry.functional.info_nce.similarity import LpDistance, SquaredDistance
from lightning_ssl_geometry.functional.info_nce.tiles import Contrast, negative_logsumexp
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows

ONE_SIDED = RUSAK.but(positive_in_denominator=False)


class LossTerms(NamedTuple):
    """The terms of InfoNCE for each of N anchors, (N,) each; the terms of the loss are the means over the anchors.

    `align` is minus the similarity to the positive, `uniform` the logarithm of the denominator, and `total` their sum.
    """

    align: Tensor
    uniform: Tensor
    total: Tensor


def alignment_uniformity_terms(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor = 1.0,
    form: InfoNCEForm | FormName = ONE_SIDED,
    *,
    block_size: int = 1024,
    **switches: Unpack[InfoNCESwitches],
) -> LossTerms:
    r"""Split InfoNCE into an alignment and a uniformity term for each anchor.

    .. math::
        L_\mathrm{align} &= \frac1N \sum_i -s(z_i, \tilde z_i), \quad
        L_\mathrm{uniform} = \frac1N \sum_i \log \sum_{j \ne i} \exp s(z_i, z_j) \\
        s(a, b) &= \sum_k \frac{a_k b_k}{\tau_k} \;\text{("dot")}, \quad
        s(a, b) = -\sum_k \frac{(a_k - b_k)^2}{\tau_k} \;\text{("distance")}

    The :math:`z_i` are the anchors, the :math:`\tilde z_i` their positives. Wang & Isola (2020) define this split with
    an expectation in place of the sum. Table 1 of Rusak et al., Content suppresses style: dimensionality collapse in
    contrastive learning (2022), prints means and standard deviations of both terms and of their sum, the total. For the
    true latents, temperature 1 and `normalize=False`, this function gives the printed numbers. The similarity is then
    "distance" for latents in a box, and "dot" for latents on a sphere.

    Without the positive in the denominator, the total t of an anchor has no lower bound. With `positive_in_denominator`
    (Eq. 1 of Rusak et al.), the total is :math:`\log(1 + e^t)`, which is >= 0. If `include_self` is set too (as in
    cl-ica, the code of Zimmermann et al.), the total is >= log 2. Memory is O(N P + block_size^2). The terms can be
    differentiated once.

    Args:
        z1: (N, P), the anchors, N >= 2 samples of P dimensions. Any float dtype.
        z2: (N, P), their positives.
        temperature: tau > 0 and finite, one number or one per dimension.
        form: A form whose anchors and negatives are all in view 1, with the similarity "dot" or "distance", such as
            `RUSAK` or `CL_ICA`. The default is `RUSAK` without the positive in the denominator.
        block_size: Rows and columns of the logits that are computed at once.
        **switches: Attributes of :class:`InfoNCEForm` that differ from those of `form`, such as `normalize=False`.

    Returns:
        Three tensors (N,) in float32 (float64 for float64 input). The mean of `total` is :func:`info_nce` in this form.

    Raises:
        ValueError: If an argument is out of its range or `form` does not fit.

    >>> z = torch.eye(4)
    >>> [round(term.mean().item(), 3) for term in alignment_uniformity_terms(z, z)]  # -1, log 3
    [-1.0, 1.099, 0.099]
    """
    embeddings("N, P", z1=z1, z2=z2)
    form = named_form(form, **switches)
    check_split(form)
    at_least(1, block_size=block_size)
    check_views(z1, z2, least=form.least)
    temperature_range(temperature, z1.shape[1])
    with torch.autocast(z1.device.type, enabled=False):
        x1, x2 = in_full_precision(z1, z2)
        if form.normalize:
            x1, x2 = unit_rows(x1, x2, form.eps)
        scale = torch.as_tensor(temperature, dtype=x1.dtype, device=x1.device).rsqrt()
        x1, x2 = x1 * scale, x2 * scale  # either similarity is of degree 2
        logit = form.logit
        if isinstance(logit, SquaredDistance):
            centre = x1.detach().mean(dim=0)  # the shift keeps distances and reduces the rounding error
            x1, x2 = x1 - centre, x2 - centre
        negatives = Contrast(
            logit, anchors=1, same=True, other=False, own=form.include_self, bounded=False, block=block_size
        )
        align = -logit.pairwise(x1, x2)
        if len(x1) == 1 and not form.include_self:  # the denominator holds only the positive
            return LossTerms(align, -align, without_negatives(align))
        uniform = negative_logsumexp(x1, x2, negatives)[0]
        if form.positive_in_denominator:
            uniform = torch.logaddexp(uniform, -align)
    return LossTerms(align, uniform, align + uniform)


def check_split(form: InfoNCEForm) -> None:
    """Raise a ValueError unless InfoNCE of this form can be split into two terms for each anchor."""
    if (form.symmetric, form.negatives, form.denominator) != (False, "same", "sum"):
        raise ValueError(
            "Expected a `form` with symmetric=False, negatives='same' and denominator='sum', but got "
            f"symmetric={form.symmetric}, negatives={form.negatives!r}, denominator={form.denominator!r}."
        )
    if isinstance(form.logit, LpDistance):
        raise ValueError(f"Expected a `form` with similarity 'dot' or 'distance', but got {form.logit}.")
