"""The deprecated name of InfoNCE with a temperature per dimension."""

__all__ = ["AdaptiveTemperatureLoss"]

from collections.abc import Sequence
from typing import Any, Unpack

from torch import nn

from lightning_ssl_geometry.deprecation import by_position, deprecated
from lightning_ssl_geometry.functional.info_nce.forms import RUSAK, InfoNCESwitches
from lightning_ssl_geometry.losses.info_nce import InfoNCELoss


class AdaptiveTemperatureLoss(InfoNCELoss):
    """Deprecated: :class:`InfoNCELoss` in Rusak et al.'s (2022) form, with squared distances and without normalisation.

    Args:
        temperature: tau > 0: one number, P numbers for P dimensions of the embeddings, or a module that computes them.
        mode: "distance": tau divides the squared differences. "feature": tau divides the embeddings.
        gather: Gather the views of all ranks; otherwise each rank's negatives come from its own batch.
        **switches: Attributes of :class:`InfoNCEForm` to change.
    """

    @by_position("normalize", "similarity", "p", "power", "symmetric", "negatives", "include_self", "mode", "gather")
    def __init__(
        self,
        temperature: float | Sequence[float] | nn.Module = 1.0,
        *,
        mode: Any = "distance",
        gather: bool = True,
        **switches: Unpack[InfoNCESwitches],
    ) -> None:
        deprecated(
            "`AdaptiveTemperatureLoss`",
            '`InfoNCELoss(temperature, form="RUSAK", normalize=False, similarity="distance")`',
        )
        form = RUSAK.but(normalize=False, similarity="distance").but(**switches)
        super().__init__(temperature, form=form, mode=mode, gather=gather)
