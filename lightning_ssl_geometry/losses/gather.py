"""The views of all ranks."""

__all__ = ["gather_and_place_views", "gather_views"]

import torch
from torch import Tensor

from lightning_ssl_geometry.distributed import gather_and_place, world_size
from lightning_ssl_geometry.functional.info_nce.settings import check_views


def gather_views(z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
    """Concatenate the rows of all ranks, with gradient, in one collective operation.

    `z1` and `z2` are (N, P); N may differ between ranks and may be 0. Every rank gets both views with the rows of all
    ranks. With one rank, the arguments are returned unchecked.
    """
    return gather_and_place_views(z1, z2)[0]


def gather_and_place_views(z1: Tensor, z2: Tensor) -> tuple[tuple[Tensor, Tensor], slice | None]:
    """Return the result of :func:`gather_views`, and the place of this rank's rows in it; None: there is one rank."""
    if world_size() == 1:
        return (z1, z2), None
    check_views(z1, z2, least=0)
    gathered, own = gather_and_place(torch.cat((z1, z2), dim=1))
    z1, z2 = gathered.chunk(2, dim=1)
    return (z1, z2), own
