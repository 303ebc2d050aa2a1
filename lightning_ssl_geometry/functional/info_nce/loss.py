"""InfoNCE in the forms of several papers."""

__all__ = ["anchor_losses", "info_nce"]

import math
from collections.abc import Sequence
from contextlib import suppress
from typing import Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, embeddings
from lightning_ssl_geometry.functional.info_nce.forms import NT_XENT, FormName, InfoNCEForm, InfoNCESwitches, named_form
from lightning_ssl_geometry.functional.info_nce.settings import check_views, temperature_range, without_negatives
from lightning_ssl_geometry.functional.info_nce.similarity import Similarity
from lightning_ssl_geometry.functional.info_nce.tiles import Contrast, negative_logsumexp
from lightning_ssl_geometry.functional.unit_rows import in_full_precision, unit_rows


def info_nce(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor = 0.5,
    form: InfoNCEForm | FormName = NT_XENT,
    *,
    block_size: int | None = None,
    anchors: slice | None = None,
    **switches: Unpack[InfoNCESwitches],
) -> Tensor:
    r"""Compute InfoNCE: contrast the two views of each sample with the other samples of the batch.

    .. math:: L = \frac{1}{|A|} \sum_{a \in A} -\log \frac{\exp s_{a a^+}}
        {[\exp s_{a a^+}] + c \sum_{b \in B_a} \exp s_{ab}}

    The default is SimCLR's NT-Xent; :class:`InfoNCEForm` defines the symbols and lists the other forms. Memory grows
    with N and not with N^2. Autocast has no effect. There is no second derivative.

    Args:
        z1: (N, P), embeddings of view 1: N samples of P dimensions. Any float dtype.
        z2: (N, P), embeddings of view 2.
        temperature: tau > 0. One number divides the similarity. P numbers divide the P terms whose sum is the dot
            product or the distance. A tensor may require a gradient.
        form: An :class:`InfoNCEForm`, or the name of one, such as "RUSAK".
        block_size: Rows and columns of the logits that are computed at once, by default 1024, or 4096 on a GPU.
        anchors: The samples that are anchors, at least one, such as `slice(0, 64)` for the first 64. All others are
            negatives only, and the loss is the mean over the anchors. With the views of several processes, the samples
            of one of them. None: all.
        **switches: Attributes of :class:`InfoNCEForm` that differ from those of `form`, such as `symmetric=False`.

    Returns:
        The loss, a scalar in float32 (float64 for float64 input). It is 0 if the denominator has only the positive.

    Raises:
        ValueError: If a shape is wrong, the denominator is empty (N = 1 with neither the positive nor `include_self`),
            or an argument is out of its range or contradicts another.
        TypeError: If a switch is unknown.

    >>> info_nce(torch.eye(4), torch.eye(4), temperature=0.5)  # log(e^2 + 6) - 2
    tensor(0.5944)
    """
    embeddings("N, P", z1=z1, z2=z2)
    form = named_form(form, **switches)
    if block_size is not None:
        at_least(1, block_size=block_size)
    rows = None if anchors is None else _rows(anchors, len(z1))
    return anchor_losses(z1, z2, temperature, form=form, block_size=block_size, rows=rows).mean()


def anchor_losses(
    z1: Tensor,
    z2: Tensor,
    temperature: float | Sequence[float] | Tensor,
    *,
    form: InfoNCEForm,
    block_size: int | None,
    rows: slice | None,
) -> Tensor:
    """Return the terms whose mean over the anchors is :func:`info_nce`.

    `rows` are the samples that are anchors, a slice with start and stop, which may be empty; None: all. The result is
    (A, n) for n such samples and A = 2 views of a symmetric form, else 1, or (n,) if the form joins both views.
    """
    check_views(z1, z2, least=form.least)
    smallest, _ = temperature_range(temperature, z1.shape[1])
    own = rows or slice(None)
    with torch.autocast(z1.device.type, enabled=False):
        x1, x2, logit = _logit(z1, z2, temperature, form=form)
        if smallest * torch.finfo(x1.dtype).max < 1:
            raise ValueError(f"Expected `temperature` whose inverse {x1.dtype} holds, but got {smallest}.")
        positive = logit.pairwise(x1[own], x2[own])
        if len(z1) == 1 and not form.include_self:
            return without_negatives(positive)
        contrast = Contrast(
            similarity=logit,
            anchors=2 if form.symmetric else 1,
            same=form.negatives != "other",
            other=form.negatives != "same",
            own=form.include_self,
            bounded=form.normalize and form.logit.spread / smallest < _widest(x1),
            block=block_size or _block_size(x1),
            rows=rows,
        )
        ratio = negative_logsumexp(x1, x2, contrast) - positive  # (A, n)
        if form.denominator == "mean":
            ratio = ratio - math.log(len(z1))
        if form.joint:
            ratio = ratio.logsumexp(dim=0)  # (n,)
        if form.positive_in_denominator:
            ratio = torch.logaddexp(ratio, torch.zeros_like(ratio))
        return ratio


def _rows(anchors: slice, n: int) -> slice:
    part = range(0)
    with suppress(TypeError, ValueError):  # bounds that are no integers, a step of 0
        part = range(n)[anchors] if isinstance(anchors, slice) else part
    if not part or part.step != 1:
        raise ValueError(f"Expected `anchors` to be a slice of some of {n} samples, with step 1, but got {anchors!r}.")
    return slice(part.start, part.stop)


def _block_size(x: Tensor) -> int:
    # 512 would suit a CPU's cache. But all threads wait for each other after every operation on a tile; on cores that
    # other processes use too, fewer tiles are faster. A GPU needs enough work to fill it.
    return 4096 if x.is_cuda else 1024


def _logit(
    z1: Tensor, z2: Tensor, temperature: float | Sequence[float] | Tensor, form: InfoNCEForm
) -> tuple[Tensor, Tensor, Similarity]:
    similarity = form.logit
    x1, x2 = in_full_precision(z1, z2)
    if form.normalize:
        x1, x2 = unit_rows(x1, x2, form.eps)
    x1, x2, scale = _tempered(x1, x2, temperature, degree=similarity.degree)
    return *similarity.centred(x1, x2), similarity.scaled(scale)


def _widest(x: Tensor) -> float:
    return 2 / 3 * math.log(torch.finfo(x.dtype).max)  # see `Contrast.bounded`


def _tempered(
    x1: Tensor, x2: Tensor, temperature: float | Sequence[float] | Tensor, degree: float
) -> tuple[Tensor, Tensor, float]:
    # one temperature becomes the factor 1 / tau of the similarity, P temperatures scale the views
    if isinstance(temperature, int | float):
        return x1, x2, 1 / temperature
    tau = temperature if isinstance(temperature, Tensor) else torch.tensor(temperature, dtype=x1.dtype)
    factor = tau.to(x1.device, x1.dtype, non_blocking=True) ** (-1 / degree)
    return x1 * factor, x2 * factor, 1.0
