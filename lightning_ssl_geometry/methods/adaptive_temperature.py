"""Content suppresses style: dimensionality collapse in contrastive learning (Rusak et al. 2022).

SimCLR with a temperature for each dimension of z. The two views of a sample share their content and differ in style. An
embedding that shows only the content has a lower InfoNCE loss. To remove this advantage, embeddings are not normalised,
and the dimensions with content have a lower temperature.
"""

__all__ = ["AdaptiveTemperatureModule"]

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, ClassVar, Literal, Unpack

from torch import nn

from lightning_ssl_geometry.checks import inside, switch
from lightning_ssl_geometry.deprecation import by_position, deprecated
from lightning_ssl_geometry.functional.info_nce import forms
from lightning_ssl_geometry.losses import InfoNCELoss
from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS, SSLModule, SSLSettings
from lightning_ssl_geometry.methods.two_views import two_views
from lightning_ssl_geometry.papers import RUSAK
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation


class AdaptiveTemperatureModule(SSLModule):
    """InfoNCE with a temperature for each dimension, on normalised, unnormalised or standardised embeddings.

    In Table 2 of Rusak et al. 2022, "regular" is `loss=InfoNCELoss(0.5)`, and "w/o norm." is `standardize=True`. For
    "w/o norm + diff. tau", also use a `loss` with a :class:`losses.ContentStyleTemperature`.

    Args:
        backbone: Maps (N, C, H, W) or (N, D_in) to h (N, D).
        projector: Maps h (N, D) to z (N, P).
        loss: Maps (z1, z2), each (N, P), to a scalar. None: Eq. 1 of Rusak et al. for unnormalised embeddings,
            `InfoNCELoss(1.0, form="RUSAK", normalize=False, similarity="distance")`.
        standardize: Whether to give each dimension of z mean 0 and variance 1 over both views of the batch, by an
            `nn.BatchNorm1d` without weights. With several processes, also set the Trainer's `sync_batchnorm`.
        loss_lr: Learning rate of the loss's parameters, such as the precisions of a :class:`losses.LearnedTemperature`,
            > 0. The scheduler changes it by the same factor as the others. None: that of the other parameters. In the
            experiments of AnInfoNCE, it is ten times theirs.
        temperature: Deprecated, like all arguments up to `mode`. Pass these arguments to the `InfoNCELoss` in `loss`.
        normalize: Deprecated.
        similarity: Deprecated.
        p: Deprecated.
        power: Deprecated.
        symmetric: Deprecated.
        negatives: Deprecated.
        include_self: Deprecated.
        mode: Deprecated.
        **settings: The arguments of :class:`SSLModule` except the networks.

    Raises:
        ValueError: If an argument is not valid, if the projector has no linear layer for `standardize`, or if a
            deprecated argument is given with `loss`. A step raises it if a batch does not have two views.
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(CONTRASTIVE_LOSS, paper=RUSAK),
        "batch_size": BATCH_SIZE,
    }

    @by_position(
        *("temperature", "normalize", "standardize", "similarity", "p", "power", "symmetric", "negatives"),
        *("include_self", "mode", "optimizer", "lr_scheduler", "warmup_epochs", "exclude_norm_and_bias"),
    )
    @passed_on
    def __init__(
        self,
        backbone: nn.Module,
        projector: nn.Module,
        *,
        loss: InfoNCELoss | None = None,
        standardize: bool = False,
        loss_lr: float | None = None,
        temperature: float | Sequence[float] | nn.Module | None = None,
        normalize: bool | None = None,
        similarity: Literal["dot", "distance"] | None = None,
        p: float | None = None,
        power: bool | None = None,
        symmetric: bool | None = None,
        negatives: Literal["both", "same", "other"] | None = None,
        include_self: bool | None = None,
        mode: Literal["distance", "feature"] | None = None,
        **settings: Unpack[SSLSettings],
    ) -> None:
        old: dict[str, object]
        old = {"temperature": temperature, "normalize": normalize, "similarity": similarity, "p": p, "power": power}
        old |= {"symmetric": symmetric, "negatives": negatives, "include_self": include_self, "mode": mode}
        switch(standardize=standardize)
        if standardize:
            projector = nn.Sequential(projector, nn.BatchNorm1d(_outputs(projector), affine=False))
        super().__init__(backbone, projector, **settings)
        self.loss = _loss(loss, {name: value for name, value in old.items() if value is not None})
        if loss_lr is not None:
            inside("(0, inf)", loss_lr=loss_lr)
            if not list(self.loss.parameters()):
                raise ValueError(f"Expected a `loss` with parameters for `loss_lr` = {loss_lr}, but got {self.loss}.")
        self.loss_lr = loss_lr

    def step(self, batch: Batch) -> Observation:
        """Return `h`, `z`, the `loss` and the loss's `temperature`."""
        h, z = self.embed(two_views(batch))
        loss, temperature = self.loss.with_temperature(z[0], z[1])
        return {"loss": loss, "h": h, "z": z, "temperature": temperature}

    def _parameter_groups(self, *modules: nn.Module) -> list[dict[str, Any]]:
        if self.loss_lr is None:
            return super()._parameter_groups(*modules)
        own = [parameter for parameter in self.loss.parameters() if parameter.requires_grad]
        groups = super()._parameter_groups(*modules)
        for group in groups:
            group["params"] = [p for p in group["params"] if not any(p is each for each in own)]
        groups.append({"params": own, "lr": self.loss_lr, "weight_decay": 0.0})
        return [group for group in groups if group["params"]]


def _loss(loss: InfoNCELoss | None, old: dict[str, object]) -> InfoNCELoss:
    if old and loss is not None:
        raise ValueError(f"Expected `loss` alone, but got {', '.join(f'`{name}`' for name in sorted(old))} beside it.")
    if loss is not None and not isinstance(loss, InfoNCELoss):
        raise ValueError(f"Expected `loss` to be an InfoNCELoss, whose temperatures adapt, but got {loss!r}.")
    if old:
        given = ", ".join(f"`{name}`" for name in sorted(old))
        deprecated(f"{given} of `AdaptiveTemperatureModule`", "`loss=InfoNCELoss(...)` with them")
    form = forms.RUSAK.but(normalize=False, similarity="distance")
    return InfoNCELoss(**{"temperature": 1.0, "form": form, **old}) if loss is None else loss  # type: ignore[arg-type]


def _outputs(projector: nn.Module) -> int:
    linear = [layer for layer in projector.modules() if isinstance(layer, nn.Linear)]
    if not linear:
        raise ValueError(
            "Expected a `projector` with a nn.Linear, whose outputs `standardize` normalises, but got "
            f"{type(projector).__name__}: put nn.BatchNorm1d(P, affine=False) at its end instead."
        )
    return linear[-1].out_features
