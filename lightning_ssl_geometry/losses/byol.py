"""The loss of BYOL as a module."""

__all__ = ["BYOLLoss"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least, floating, rows, shaped
from lightning_ssl_geometry.distributed import all_reduce_sum, world_size
from lightning_ssl_geometry.functional.byol import byol_prediction_error


class BYOLLoss(nn.Module):
    """BYOL's loss of both views (Grill et al. 2020): :func:`functional.byol`.

    No gradient reaches the target's embeddings. Every rank returns the mean over the global batch. With
    DistributedDataParallel, loss and gradient are exactly those of a single process; batches may differ in size.

    Args:
        eps: >= 0; a row of at most this length is treated as 0.
    """

    def __init__(self, eps: float = 1e-8) -> None:
        super().__init__()
        at_least(0, eps=eps)
        self.eps = eps

    def forward(self, q1: Tensor, q2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the loss, a scalar, of predictions q and targets z, (N, P) each; with several ranks N may be 0."""
        shaped("N, P", q1=q1, q2=q2, z1=z1, z2=z2)
        floating(q1=q1, q2=q2, z1=z1, z2=z2)
        rows(1 if world_size() == 1 else 0, q1=q1)
        errors = byol_prediction_error(q1, z2.detach(), self.eps) + byol_prediction_error(q2, z1.detach(), self.eps)
        total, n = all_reduce_sum(torch.stack([errors.sum(), errors.new_full((), len(errors))]))
        return total / n

    def extra_repr(self) -> str:
        return f"eps={self.eps!r}"
