"""InfoNCE as a module."""

__all__ = ["InfoNCELoss"]

from collections.abc import Sequence
from typing import Literal, Unpack, cast

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, one_of, switch
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.distributed import all_reduce_sum
from lightning_ssl_geometry.functional.info_nce.forms import FormName, InfoNCEForm, InfoNCESwitches, named_form
from lightning_ssl_geometry.functional.info_nce.loss import anchor_losses, info_nce
from lightning_ssl_geometry.functional.info_nce.settings import temperature_range
from lightning_ssl_geometry.functional.unit_rows import unit_rows
from lightning_ssl_geometry.losses.gather import gather_and_place_views
from lightning_ssl_geometry.precision import in_float64

_Numbers = float | tuple[float, ...]


class InfoNCELoss(nn.Module):
    r"""InfoNCE in the forms of several papers, SimCLR's NT-Xent by default: :func:`functional.info_nce` as a module.

    Every rank gathers the views of all ranks, with gradient, and contrasts its own samples with all of them. It returns
    the loss of the global batch, the same on every rank. With DistributedDataParallel, the loss and all gradients are
    exactly those of a single process, also if the batches differ in size. Views that are gathered already would be
    gathered twice.

    Each dimension k may have its own temperature :math:`\tau_k` in the similarity of embeddings a and b, as in Rusak et
    al., Content suppresses style: dimensionality collapse in contrastive learning (2022):

    .. math:: s_{ab} = \sum_k a_k b_k / \tau_k \quad\text{or}\quad -\sum_k |a_k - b_k|^p / \tau_k

    Args:
        temperature: tau > 0: one number, or P numbers for P dimensions of the embeddings. An `nn.Parameter` is learnt.
            A call raises an error if it is no longer positive. A module, such as :class:`LearnedTemperature`, computes
            the temperatures (P,) from the detached views (N, P) of all ranks, which are normalised if the form
            normalises.
        form: An :class:`~lightning_ssl_geometry.functional.InfoNCEForm`, or its name.
        mode: "distance": tau divides each term of the sum, as in the equation. "feature": tau divides the embeddings,
            so the terms are divided by tau^2 (dot product) or tau^p (distance).
        gather: Gather the views of all ranks; otherwise each rank's negatives come from its own batch. A temperature
            module gets the views of all ranks in either case.
        block_size: Rows and columns of the logits that are computed at once, by default 1024, or 4096 on a GPU.
        **switches: Attributes of `InfoNCEForm` that differ from those of `form`, such as `symmetric=False`. An unknown
            attribute raises a TypeError, and a contradiction of two attributes a ValueError.

    >>> loss = InfoNCELoss([0.5, 1.0], form="RUSAK", normalize=False, similarity="distance")
    >>> loss(torch.eye(2), torch.eye(2))  # the distance to the one negative is 1 / 0.5 + 1 / 1
    tensor(0.0486)
    """

    @by_position(
        *("normalize", "positive_in_denominator", "symmetric", "negatives", "include_self", "joint", "denominator"),
        *("similarity", "p", "power", "eps", "block_size", "gather"),
    )
    def __init__(
        self,
        temperature: float | Sequence[float] | Tensor | nn.Module = 0.5,
        *,
        form: InfoNCEForm | FormName = "NT_XENT",
        mode: Literal["distance", "feature"] = "distance",
        gather: bool = True,
        block_size: int | None = None,
        **switches: Unpack[InfoNCESwitches],
    ) -> None:
        super().__init__()
        self.form = named_form(form, **switches)
        if block_size is not None:
            at_least(1, block_size=block_size)
        switch(gather=gather)
        one_of(("distance", "feature"), mode=mode)
        self.mode, self.gather, self.block_size = mode, gather, block_size
        self.temperature = temperature if isinstance(temperature, nn.Module | nn.Parameter) else _numbers(temperature)
        if not isinstance(self.temperature, nn.Module):
            temperature_range(self.temperature)

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the loss, a scalar, of two views (N, P) of this rank's samples."""
        return self._contrasted(z1, z2)[0]

    def with_temperature(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        """Return the loss and the temperatures (P,); these do not depend on `mode`."""
        loss, tau = self._contrasted(z1, z2)
        known = loss.new_full((), tau) if isinstance(tau, int | float) else torch.as_tensor(tau, dtype=loss.dtype)
        return loss, known.to(loss.device, non_blocking=True).expand(z1.shape[1])

    def extra_repr(self) -> str:
        shown = "" if isinstance(self.temperature, nn.Module) else f"temperature={self.temperature!r}, "
        return f"{shown}{self.form}, mode={self.mode!r}, gather={self.gather}, block_size={self.block_size}"

    def _contrasted(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, _Numbers | Tensor]:
        rule = isinstance(self.temperature, nn.Module)
        everywhere, own = gather_and_place_views(z1, z2) if self.gather or rule else ((z1, z2), None)
        tau = self._temperature(*everywhere)
        if own is None or not self.gather:
            return info_nce(z1, z2, self._divisor(tau), form=self.form, block_size=self.block_size), tau
        divisor = self._divisor(tau)
        losses = anchor_losses(*everywhere, divisor, form=self.form, block_size=self.block_size, rows=own)
        anchors = losses.shape[:-1].numel() * len(everywhere[0])
        return all_reduce_sum(losses.sum()) / anchors, tau

    def _temperature(self, z1: Tensor, z2: Tensor) -> _Numbers | Tensor:
        if not isinstance(self.temperature, nn.Module):
            return self.temperature
        z1, z2 = z1.detach(), z2.detach()
        if self.form.normalize:
            z1, z2 = unit_rows(z1, z2, self.form.eps)
        tau: Tensor = self.temperature(z1, z2)
        return tau

    def _divisor(self, tau: _Numbers | Tensor) -> _Numbers | Tensor:
        degree = self.form.logit.degree
        if self.mode == "distance" or degree == 1:
            return tau
        return tuple(t**degree for t in tau) if isinstance(tau, tuple) else cast("float | Tensor", tau**degree)


def _numbers(temperature: object) -> _Numbers:
    if isinstance(temperature, int | float) and not isinstance(temperature, bool):
        return temperature
    if isinstance(temperature, Tensor) and temperature.requires_grad:
        raise ValueError(
            "Expected `temperature` that requires a gradient to be a nn.Parameter or a rule, but got another tensor."
        )
    try:
        given = temperature if isinstance(temperature, Tensor) else torch.as_tensor(temperature, dtype=torch.float64)
        values = in_float64(given)
    except (TypeError, ValueError, RuntimeError):
        values = None
    if values is None or isinstance(temperature, bool):
        raise ValueError(f"Expected `temperature` to be a number, P numbers or a rule, but got {temperature!r}.")
    # Python numbers: moving or casting the module does not change them
    return values.item() if values.ndim == 0 else tuple(values.tolist())
