"""InfoNCE with a learnt bilinear similarity as a module."""

__all__ = ["LogBilinearInfoNCELoss"]

import math
from typing import Unpack

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, switch
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.info_nce.forms import FormName, InfoNCEForm, InfoNCESwitches, named_form
from lightning_ssl_geometry.functional.info_nce.log_bilinear import (
    BILINEAR,
    check_log_bilinear_settings,
    log_bilinear_info_nce,
)
from lightning_ssl_geometry.losses.gather import gather_views


class LogBilinearInfoNCELoss(nn.Module):
    r"""InfoNCE with :math:`s(a, b) = a^T W b / \tau` and W learnt: :func:`functional.log_bilinear_info_nce`.

    The parameter `weight` is W, at first the identity divided by :math:`\sqrt P`. For embeddings with independent
    entries of unit variance, the logits of negatives then have unit variance too. Every rank gathers the views of all
    ranks, with gradient, and computes the loss of the global batch. With DistributedDataParallel, the loss and all
    gradients, including that of W, are exactly those of a single process, also if the batches differ in size.

    Args:
        dim: P, the number of dimensions of the embeddings.
        temperature: tau > 0, one number; it scales W.
        form: A form with `normalize=False`, the similarity "dot", the denominator "sum" and `include_self=False`. The
            default has SimCLR's denominator.
        gather: Gather the views of all ranks; otherwise each rank's negatives come from its own batch.
        **switches: Attributes of `InfoNCEForm` that differ from those of `form`, such as `joint=True`.
    """

    @by_position("positive_in_denominator", "symmetric", "negatives", "joint", "gather")
    def __init__(
        self,
        dim: int,
        temperature: float = 1.0,
        *,
        form: InfoNCEForm | FormName = BILINEAR,
        gather: bool = True,
        **switches: Unpack[InfoNCESwitches],
    ) -> None:
        super().__init__()
        self.temperature, self.form = temperature, named_form(form, **switches)
        at_least(1, dim=dim)
        check_log_bilinear_settings(temperature, self.form)
        switch(gather=gather)
        self.gather = gather
        self.weight = nn.Parameter(torch.eye(dim) / math.sqrt(dim))  # W = 0 would give the embeddings no gradient

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the loss, a scalar, of two views (N, P) of this rank's samples."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return log_bilinear_info_nce(z1, z2, self.weight, temperature=self.temperature, form=self.form)

    def extra_repr(self) -> str:
        return f"dim={len(self.weight)}, temperature={self.temperature!r}, {self.form}, gather={self.gather}"
