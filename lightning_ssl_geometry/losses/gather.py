"""Two views of the samples of all ranks."""

__all__ = ["gather_views"]

import torch
from torch import Tensor

from lightning_ssl_geometry.distributed import gather, world_size
from lightning_ssl_geometry.functional.info_nce.settings import check_views


def gather_views(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate the rows of all ranks, with gradient, in one collective.

    Args:
        z1: (N, P), embeddings of view 1; N may differ between ranks, and be 0.
        z2: (N, P), embeddings of view 2.

    Returns:
        Both views, (sum of N, P), equal on all ranks. With one rank, the arguments themselves, without a check.

    >>> gather_views(torch.zeros(1, 2), torch.ones(1, 2))
    (tensor([[0., 0.]]), tensor([[1., 1.]]))
    """
    if world_size() == 1:
        return z1, z2
    check_views(z1, z2, least=0)
    z1, z2 = gather(torch.cat((z1, z2), dim=1)).chunk(2, dim=1)
    return z1, z2
