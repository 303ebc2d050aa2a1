"""Distance of embeddings from a stationary point of the contrastive loss on the sphere (Calder & Lee 2025)."""

__all__ = ["OldSettings", "Stationarity", "symmetric_form"]

from dataclasses import replace
from functools import partial
from typing import ClassVar, TypedDict, Unpack

from torch import Tensor

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position, deprecated
from lightning_ssl_geometry.diagnostics.accumulate import SampledEmbeddings, by_sample
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.variational.form import Elementwise, Form, Negatives
from lightning_ssl_geometry.functional.variational.loss import first_variation, tangential_gradient
from lightning_ssl_geometry.losses.variational import VariationalLoss
from lightning_ssl_geometry.papers import CALDER_LEE
from lightning_ssl_geometry.quantity import Chart, Quantity

_quantity = partial(
    Quantity, paper=CALDER_LEE, invariances=("rotation", "scale", "permutation"), comparable=("width", "method")
)
_ROUNDING = 1e-12  # relative to a gradient of size 1 / temperature, in float64


class OldSettings(TypedDict, total=False):
    """Deprecated arguments of a diagnostic, which are now settings of its loss."""

    temperature: float
    psi: Elementwise | None
    eta: Elementwise | None
    negatives: Negatives
    include_self: bool


def symmetric_form(loss: VariationalLoss | None, old: OldSettings) -> Form:
    """Return the form of `loss`, made symmetric in the views. If `old` is given as well, raise a ValueError."""
    if old:
        if loss is not None:
            raise ValueError(f"Expected `loss` alone, but got {', '.join(f'`{name}`' for name in old)} beside it.")
        loss = VariationalLoss(**old)
        given = ", ".join(f"{name}={'...' if callable(value) else repr(value)}" for name, value in old.items())
        deprecated(", ".join(f"`{name}`" for name in old), f"`loss=VariationalLoss({given})`")
    return replace(loss.form if loss else Form(), symmetric=True)


class Stationarity(SampledEmbeddings):
    r"""Norm of the gradient of the contrastive loss along the sphere, per embedding (Calder & Lee 2025, Theorem 3.2).

    .. math:: \sqrt{\frac1{2n} \sum_{v,i} \|g_{vi} - \langle g_{vi}, z_{vi} \rangle z_{vi}\|^2}

    Observes the first two views of the embeddings z, with P dimensions. z_{vi} is view v of sample i, scaled to length
    1, and g_{vi} is n times the gradient of the loss with respect to it, for n = `contrast_size` samples.
    `tangential` >= 0 is the value of the equation. `relative` in [0, 1] is `tangential` divided by the norm of g.
    `relative` is NaN if all embeddings are equal. Both results are NaN if an embedding is 0 or not finite. Compare
    values only for the same loss, temperature and `contrast_size`. Memory: O(n P). `compute` costs O(n^2 P). Equations:
    :func:`functional.first_variation`, :func:`functional.tangential_gradient`.

    Args:
        loss: The loss, made symmetric in its views as in Prop. 3.1 of Calder & Lee. None: `VariationalLoss()`.
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
        **old: Deprecated: settings of the loss.
    """

    section = "dynamics"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "tangential": _quantity(
            title="Gradient along the sphere",
            text="Size of the loss's gradient by the embeddings, along the sphere and per point (its first "
            "variation). A network may come to rest where it is high.",
            low="Near 0: a stationary point, which the loss alone would not leave.",
            high="The loss alone would still move the embeddings.",
            where="Prop. 3.1",
            bounds=(0.0, None),
            chart=Chart("stationarity", "Gradient along the sphere", "size per point"),
        ),
        "relative": _quantity(
            title="Share of the gradient along the sphere",
            text="Size of the part of this gradient that runs along the sphere, as a share of the size of the whole "
            "gradient.",
            low="Near 0: what is left of the gradient points away from the sphere, where embeddings cannot go.",
            high="Near 1: all of the gradient runs along the sphere, and moves the embeddings.",
            where="Theorem 3.2",
            unit="share",
            bounds=(0.0, 1.0),
        ),
    }

    @by_position("temperature", "psi", "eta", "negatives", "include_self", "contrast_size", "seed")
    def __init__(
        self,
        *,
        loss: VariationalLoss | None = None,
        contrast_size: int = 1024,
        seed: int = 0,
        **old: Unpack[OldSettings],
    ) -> None:
        super().__init__(contrast_size, seed)
        self.form = symmetric_form(loss, old)

    def update(self, z: Tensor, index: Tensor | None = None) -> None:
        """Add `z` (V, N, P) for V >= 2 views of N samples, and `index` (N,), the samples' indices in the data set."""
        super().update(by_sample("z", z, views=2)[:, :2].transpose(0, 1), index)

    def compute(self) -> dict[str, Tensor]:
        z = directions(self, self.sample())
        if not (z.isfinite() & z.any(dim=2, keepdim=True)).all():
            nan = undefined(self, "an embedding is 0, where a sphere has no tangent, or not finite")
            return {"tangential": nan, "relative": nan}
        gradient = first_variation(*z, **vars(self.form))
        size, whole = (g.square().sum(2).mean().sqrt() for g in (tangential_gradient(z, gradient), gradient))
        relative = size / whole
        if all_alike(z.transpose(0, 1)) or not whole * self.form.temperature > _ROUNDING:
            relative = undefined(self, "the whole gradient is rounding, as where all embeddings are equal")
        return {"tangential": size, "relative": relative}
