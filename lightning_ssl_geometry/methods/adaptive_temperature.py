"""Content suppresses style: dimensionality collapse in contrastive learning (Rusak et al. 2022).

SimCLR, with a temperature for each dimension of the embeddings. What two views share, content, suppresses what
differs between them, style: InfoNCE is lower for an embedding that holds content alone. A lower temperature for the
dimensions that hold content takes the advantage from them, on embeddings that are not normalised.
"""

__all__ = ["AdaptiveTemperatureModule"]

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar, Literal

from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import nn

from lightning_ssl_geometry.functional.info_nce.settings import check_switch
from lightning_ssl_geometry.losses import AdaptiveTemperatureLoss
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLModule, two_views
from lightning_ssl_geometry.papers import RUSAK
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.types import Batch, Observation


class AdaptiveTemperatureModule(SSLModule):
    """InfoNCE with a temperature per dimension, on normalised, unnormalised or standardised embeddings.

    The rows of Table 2 are `normalize=True, similarity="dot"` for "regular"; `standardize=True` for "w/o norm.", as
    the text has it; and that with `temperature` a :class:`losses.ContentStyleTemperature` for "w/o norm + diff. tau".

    Args:
        backbone: Maps (N, C, H, W), or (N, D_in), to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        temperature: tau > 0, or P of them, or a module that makes them, such as :class:`losses.LearnedTemperature`.
        normalize: Scale the embeddings to unit length, in the loss.
        standardize: Give each dimension of the embeddings mean 0 and variance 1 over the batch, both views: the
            projector gets an `nn.BatchNorm1d` without weights at its end, and z is what comes out of that. On several
            processes, this takes the Trainer's `sync_batchnorm` to be the same as on one.
        similarity: As in :class:`AdaptiveTemperatureLoss`, like the next six.
        p: The norm of the distance.
        power: Whether the norm is raised to p.
        symmetric: Average over the anchors of both views.
        negatives: The views of other samples that an anchor meets.
        include_self: The anchor's own sample counts among the negatives.
        mode: What tau divides, "distance" or "feature".
        optimizer: As in :class:`SSLModule`.
        lr_scheduler: As in :class:`SSLModule`.
        warmup_epochs: As in :class:`SSLModule`.
        exclude_norm_and_bias: As in :class:`SSLModule`.

    Raises:
        ValueError: As :class:`SSLModule` and :class:`AdaptiveTemperatureLoss`, or if there is no linear layer in a
            projector to standardise; in a step, if a batch has not two views.
    """

    quantities: ClassVar[dict[str, Quantity]] = {"loss": replace(CONTRASTIVE_LOSS, paper=RUSAK)}

    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        temperature: float | Sequence[float] | nn.Module = 1.0,
        normalize: bool = False,
        standardize: bool = False,
        similarity: Literal["dot", "distance"] = "distance",
        p: float = 2.0,
        power: bool = True,
        symmetric: bool = False,
        negatives: Literal["both", "same", "other"] = "same",
        include_self: bool = False,
        mode: Literal["distance", "feature"] = "distance",
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
        warmup_epochs: float = 0.0,
        exclude_norm_and_bias: bool = True,
    ) -> None:
        check_switch("standardize", standardize)
        if standardize:
            projector = nn.Sequential(projector, nn.BatchNorm1d(_outputs(projector), affine=False))
        super().__init__(backbone, projector, optimizer, lr_scheduler, warmup_epochs, exclude_norm_and_bias)
        self.loss = AdaptiveTemperatureLoss(
            temperature, normalize, similarity, p, power, symmetric, negatives, include_self, mode
        )

    def step(self, batch: Batch) -> Observation:
        """Contrast the embeddings of the two views, and show the temperatures."""
        h, z = self.embed(two_views(batch))
        loss, temperature = self.loss.with_temperature(z[0], z[1])
        return {"loss": loss, "h": h, "z": z, "temperature": temperature}


def _outputs(projector: nn.Module) -> int:
    """P, from the last linear layer of a projector."""
    linear = [layer for layer in projector.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(
            "Expected a `projector` with a nn.Linear, whose outputs `standardize` normalises, but got "
            f"{type(projector).__name__}: put nn.BatchNorm1d(P, affine=False) at its end instead."
        )
    return linear[-1].out_features
