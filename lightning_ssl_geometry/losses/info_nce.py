"""InfoNCE as a module."""

__all__ = ["InfoNCELoss"]

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.settings import check_settings, check_switch
from lightning_ssl_geometry.losses.gather import gather_views


class InfoNCELoss(nn.Module):
    r"""InfoNCE in the forms of five papers, SimCLR's NT-Xent by default: :func:`functional.info_nce` as a module.

    In a distributed run the views of all ranks are gathered with gradient, and every rank computes the loss of the
    whole global batch. With the mean over ranks that DistributedDataParallel takes of the gradients, W processes with
    N/W samples each (even or not) have exactly the loss and the gradient of one process with N. One sample on all ranks
    together has loss 0 and gradient 0 where its positive is in the denominator.

    Args:
        temperature: tau > 0, or one per dimension of the embeddings. A `nn.Parameter` is learnt; it is not kept
            positive here, and one that leaves the range raises at the next call.
        normalize: Scale the rows to unit length.
        positive_in_denominator: Add exp(s) of the positive pair to the denominator, once.
        symmetric: Average over the anchors of both views, instead of those of view 1 only.
        negatives: The views of other samples that an anchor meets: its own ("same"), its positive's ("other"), "both".
        include_self: The anchor's own sample counts among the negatives in those views too.
        joint: One logarithm per pair, whose denominator runs over both anchors.
        denominator: "sum", or "mean": the negatives' sum is divided by the number of samples per view.
        similarity: "dot", or "distance": the negative distance -\|x-y\|_p^p.
        p: The norm of the distance, 1 <= p < inf.
        power: Whether the norm is raised to p.
        eps: A row no longer than this has no direction to normalise to, and counts as 0.
        block_size: Rows and columns of a tile.
        gather: Whether the views of all ranks are gathered; if not, each rank's loss is that of its own batch, with
            fewer negatives.

    Raises:
        ValueError: If an argument is out of its range or contradicts another.

    >>> loss = InfoNCELoss(temperature=0.5)
    >>> loss(torch.eye(4), torch.eye(4))
    tensor(0.5944)
    """

    def __init__(
        self,
        temperature: float | Sequence[float] | Tensor = 0.5,
        normalize: bool = True,
        positive_in_denominator: bool = True,
        symmetric: bool = True,
        negatives: Literal["both", "same", "other"] = "both",
        include_self: bool = False,
        joint: bool = False,
        denominator: Literal["sum", "mean"] = "sum",
        similarity: Literal["dot", "distance"] = "dot",
        p: float = 2.0,
        power: bool = True,
        eps: float = 1e-8,
        block_size: int | None = None,
        gather: bool = True,
    ) -> None:
        super().__init__()
        self.settings: dict[str, Any] = {
            "normalize": normalize,
            "positive_in_denominator": positive_in_denominator,
            "symmetric": symmetric,
            "negatives": negatives,
            "include_self": include_self,
            "joint": joint,
            "denominator": denominator,
            "similarity": similarity,
            "p": p,
            "power": power,
            "eps": eps,
            "block_size": block_size,
        }
        check_settings(temperature, **self.settings)
        check_switch("gather", gather)
        self.gather = gather
        self.temperature = temperature if isinstance(temperature, nn.Parameter) else _numbers(temperature)

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Contrast two views (N, P) of this rank's samples with those of all ranks: a scalar."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return info_nce(z1, z2, self.temperature, **self.settings)

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        settings = {"temperature": self.temperature, **self.settings, "gather": self.gather}
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())


def _numbers(temperature: float | Sequence[float] | Tensor) -> float | tuple[float, ...]:
    """Temperatures that are settings stay on the host, in double precision, whatever the module is moved or cast to."""
    if isinstance(temperature, int | float):
        return temperature
    if isinstance(temperature, Tensor) and temperature.requires_grad:
        raise ValueError(
            "Expected `temperature` that requires a gradient to be a nn.Parameter, but got another tensor."
        )
    values = torch.as_tensor(temperature, dtype=torch.float64).tolist()
    return tuple(values) if isinstance(values, list) else float(values)
