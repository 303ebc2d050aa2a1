"""InfoNCE with a learnt bilinear similarity as a module."""

__all__ = ["LogBilinearInfoNCELoss"]

import math
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.functional.info_nce.log_bilinear import check_log_bilinear_settings, log_bilinear_info_nce
from lightning_ssl_geometry.functional.info_nce.settings import check_switch
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
        positive_in_denominator: Add exp(s) of the positive pair to the denominator, once.
        symmetric: Average over the anchors of both views, instead of those of view 1 only.
        negatives: The views of other samples that an anchor meets: its own ("same"), its positive's ("other"), "both".
        joint: One logarithm per pair, whose denominator runs over both anchors.
        gather: Whether the views of all ranks are gathered; if not, each rank's loss is that of its own batch, with
            fewer negatives.

    Raises:
        ValueError: If an argument is out of its range or contradicts another.

    >>> loss = LogBilinearInfoNCELoss(dim=4)
    >>> loss(2 * torch.eye(4), 2 * torch.eye(4))  # W = 1/2: log(e^2 + 6) - 2
    tensor(0.5944, grad_fn=<MeanBackward0>)
    """

    def __init__(
        self,
        dim: int,
        temperature: float = 1.0,
        positive_in_denominator: bool = True,
        symmetric: bool = True,
        negatives: Literal["both", "same", "other"] = "both",
        joint: bool = False,
        gather: bool = True,
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "temperature": temperature,
            "positive_in_denominator": positive_in_denominator,
            "symmetric": symmetric,
            "negatives": negatives,
            "joint": joint,
        }
        at_least(1, dim=dim)
        check_log_bilinear_settings(**self.settings)
        check_switch("gather", gather)
        self.gather = gather
        self.weight = nn.Parameter(torch.eye(dim) / math.sqrt(dim))

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Contrast two views (N, P) of this rank's samples with those of all ranks: a scalar."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return log_bilinear_info_nce(z1, z2, self.weight, **self.settings)

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        settings = {"dim": len(self.weight), **self.settings, "gather": self.gather}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())
