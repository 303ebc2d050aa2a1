"""The variational form of the contrastive loss as a module."""

__all__ = ["VariationalLoss"]

from typing import Unpack

from torch import Tensor, nn

from lightning_ssl_geometry.checks import switch
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.functional.variational.form import Elementwise, Form, VariationalSwitches
from lightning_ssl_geometry.functional.variational.loss import variational_loss
from lightning_ssl_geometry.losses.gather import gather_views


class VariationalLoss(nn.Module):
    """Calder & Lee's (2025) generalisation of NT-Xent, by default their Eq. 4: :func:`functional.variational_loss`.

    Every rank gathers the views of all ranks, with gradient, and computes the loss of the global batch.

    Args:
        temperature: tau > 0 of the default `eta`.
        psi: Psi, an increasing elementwise function. None: log(1 + t).
        eta: The similarity eta(t) of points with half squared distance t, positive, decreasing. None: exp(-t / tau).
        gather: Gather the views of all ranks; otherwise each rank computes the loss of its own batch.
        **switches: `negatives`, `include_self` and `symmetric` of :func:`functional.variational_loss`. Eq. 1 of Calder
            & Lee has `negatives="both"` and `include_self=False`.
    """

    @by_position("negatives", "include_self", "symmetric", "gather")
    def __init__(
        self,
        temperature: float = 0.1,
        psi: Elementwise | None = None,
        eta: Elementwise | None = None,
        *,
        gather: bool = True,
        **switches: Unpack[VariationalSwitches],
    ) -> None:
        super().__init__()
        self.form = Form(temperature, psi, eta, **switches)
        switch(gather=gather)
        self.gather = gather

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Return the loss, a scalar, of two views (N, d) of this rank's points."""
        if self.gather:
            z1, z2 = gather_views(z1, z2)
        return variational_loss(z1, z2, **vars(self.form))

    def extra_repr(self) -> str:
        settings = {**vars(self.form), "gather": self.gather}
        return ", ".join(f"{name}={getattr(value, '__name__', value)!r}" for name, value in settings.items())
