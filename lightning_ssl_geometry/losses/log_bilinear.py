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

    `weight` is W, a parameter like those of the networks: a method that holds this loss has it in its optimizer and in
    its checkpoint. It begins as the identity over :math:`\sqrt P`. This is attention's scaled product: independent
    rows with entries of unit variance have logits of unit variance whatever P is, while the views of a sample score
    higher from the first step on. A random W would begin with similarities that mean nothing, and with W = 0 no
    gradient reaches the embeddings.

    In a distributed run the views of all ranks are gathered with gradient, and every rank computes the loss of the
    whole global batch, as :class:`InfoNCELoss` does. Each rank thereby has the whole gradient of W, the same on all,
    and the mean over ranks that DistributedDataParallel takes leaves it so: W processes, even or not, have exactly the
    loss and all gradients of one.

    Args:
        dim: P, the number of dimensions of the embeddings.
        temperature: tau > 0. It scales W, and no more than that.
        form: Which InfoNCE it is: one with `normalize=False`, the similarity "dot", the denominator "sum" and without
            `include_self`; that of SimCLR's denominator by default.
        gather: Whether the views of all ranks are gathered; if not, each rank's loss is that of its own batch, with
            fewer negatives.
        **switches: Attributes of :class:`lightning_ssl_geometry.functional.InfoNCEForm` that differ from those of
            `form`, such as `joint=True`.

    Raises:
        ValueError: If an argument is out of its range or contradicts another.

    >>> loss = LogBilinearInfoNCELoss(dim=4)
    >>> loss(2 * torch.eye(4), 2 * torch.eye(4))  # W = 1/2: log(e^2 + 6) - 2
    tensor(0.5944, grad_fn=<MeanBackward0>)
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
        self.weight = nn.Parameter(torch.eye(dim) / math.sqrt(dim))

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Contrast two views (N, P) of this rank's samples with those of all ranks: a scalar."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return log_bilinear_info_nce(z1, z2, self.weight, self.temperature, self.form)

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        return f"dim={len(self.weight)}, temperature={self.temperature!r}, {self.form}, gather={self.gather}"
