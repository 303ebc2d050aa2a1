"""BYOL's loss as a module."""

__all__ = ["BYOLLoss"]

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.distributed import all_reduce_sum, world_size
from lightning_ssl_geometry.functional.byol import byol_prediction_error, check_byol_views


class BYOLLoss(nn.Module):
    """Predictions of the target's embeddings, of both views (Grill et al. 2020): :func:`functional.byol`.

    The gradient stops at the target's embeddings. A sample meets no other one, so that in a distributed run nothing is
    gathered: the ranks exchange the sum of their errors and how many they are, with gradient, and every rank has the
    mean over the global batch. With the mean over ranks that DistributedDataParallel takes of the gradients, W
    processes, even or not, have exactly the loss and the gradient of one.

    Args:
        eps: A row no longer than this has no direction to normalise to, and counts as 0.

    Raises:
        ValueError: If `eps` is negative.

    >>> loss = BYOLLoss()
    >>> loss(torch.eye(2), torch.eye(2), torch.eye(2), -torch.eye(2))
    tensor(4.)
    """

    def __init__(self, eps: float = 1e-8) -> None:
        super().__init__()
        at_least(0, eps=eps)
        self.eps = eps

    def forward(self, q1: Tensor, q2: Tensor, z1: Tensor, z2: Tensor) -> Tensor:
        """Compare the predictions of this rank's samples, (N, P) of each view, with their targets: a scalar.

        Raises:
            ValueError: If the shapes differ or are not (N, P), or N is 0 where there is one rank.
        """
        check_byol_views(q1, q2, z1, z2, least=1 if world_size() == 1 else 0)
        errors = byol_prediction_error(q1, z2.detach(), self.eps) + byol_prediction_error(q2, z1.detach(), self.eps)
        total, n = all_reduce_sum(torch.stack([errors.sum(), errors.new_tensor(len(errors))]))
        return total / n

    def extra_repr(self) -> str:
        """Show the setting in the module's repr."""
        return f"eps={self.eps!r}"
