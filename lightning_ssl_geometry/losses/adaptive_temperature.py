"""InfoNCE with a temperature per dimension that may adapt, as a module."""

__all__ = ["AdaptiveTemperatureLoss"]

from collections.abc import Sequence
from typing import Any, Literal

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.settings import check_settings, check_switch
from lightning_ssl_geometry.functional.unit_rows import unit_rows
from lightning_ssl_geometry.losses.gather import gather_views


class AdaptiveTemperatureLoss(nn.Module):
    r"""InfoNCE where each dimension has a temperature of its own, fixed, derived from the data, or learnt.

    .. math:: s_{ab} = -\sum_k |a_k - b_k|^p / \tau_k \quad\text{or}\quad \sum_k a_k b_k / \tau_k

    Rusak et al., Content suppresses style: dimensionality collapse in contrastive learning (2022). The defaults are
    their Eq. 1 for unnormalised embeddings, on negative squared distances: the anchors are view 1, their negatives the
    other samples of view 1. Everything but the temperature is as in :class:`InfoNCELoss`; that also takes a
    temperature per dimension, but no rule. As there, W processes have exactly the loss and the gradient of one, that
    of a learnt temperature too, and all ranks have the same temperatures.

    Args:
        temperature: tau > 0, or one per dimension, or a module that makes them: called with both views of all ranks,
            (N, P) each, detached and, with `normalize`, normalised, it returns (P,), with gradient or without.
        normalize: Scale the rows to unit length, before the temperatures apply.
        similarity: "distance", or "dot".
        p: The norm of the distance, 1 <= p < inf.
        power: Whether the norm is raised to p. If not, the temperatures divide the differences, in both modes.
        symmetric: Average over the anchors of both views, instead of those of view 1 only.
        negatives: The views of other samples that an anchor meets: its own ("same"), its positive's ("other"), "both".
        include_self: The anchor's own sample counts among the negatives in those views too, as in the code of
            Zimmermann et al., Contrastive Learning Inverts the Data Generating Process (2021).
        mode: What tau divides: the products or the differences to the power p ("distance"), or the embeddings
            themselves ("feature"), so that the former are divided by tau^2 or tau^p.
        gather: Whether the views of all ranks are gathered; if not, each rank's loss is that of its own batch, with
            fewer negatives. A module that makes temperatures sees the views of all ranks in any case.

    Raises:
        ValueError: If an argument is out of its range or contradicts another; in a call, as :func:`info_nce`.

    >>> loss = AdaptiveTemperatureLoss(temperature=[0.5, 1.0])
    >>> loss(torch.eye(2), torch.eye(2))  # the distance to the one negative is 1 / 0.5 + 1 / 1
    tensor(0.0486)
    """

    def __init__(
        self,
        temperature: float | Sequence[float] | nn.Module = 1.0,
        normalize: bool = False,
        similarity: Literal["dot", "distance"] = "distance",
        p: float = 2.0,
        power: bool = True,
        symmetric: bool = False,
        negatives: Literal["both", "same", "other"] = "same",
        include_self: bool = False,
        mode: Literal["distance", "feature"] = "distance",
        gather: bool = True,
    ) -> None:
        super().__init__()
        if isinstance(temperature, Tensor) and temperature.requires_grad:
            raise ValueError("Expected a LearnedTemperature for a `temperature` that is learnt, but got a tensor.")
        if not isinstance(temperature, nn.Module):
            temperature = _numbers(temperature)
        self.settings: dict[str, Any] = {
            "normalize": normalize,
            "symmetric": symmetric,
            "negatives": negatives,
            "include_self": include_self,
            "similarity": similarity,
            "p": p,
            "power": power,
            "eps": 1e-8,
        }
        check_settings(
            1.0 if isinstance(temperature, nn.Module) else temperature,
            positive_in_denominator=True,
            joint=False,
            denominator="sum",
            block_size=None,
            **self.settings,
        )
        check_switch("gather", gather)
        if mode not in ("distance", "feature"):
            raise ValueError(f"Expected `mode` to be one of 'distance', 'feature', but got {mode!r}.")
        self.mode, self.gather = mode, gather
        self.temperature = temperature

    def forward(self, z1: Tensor, z2: Tensor) -> Tensor:
        """Contrast two views (N, P) of this rank's samples with those of all ranks: a scalar."""
        return self.with_temperature(z1, z2)[0]

    def with_temperature(self, z1: Tensor, z2: Tensor) -> tuple[Tensor, Tensor]:
        """Do the same and return the temperatures (P,), too, as they are before `mode` raises them to a power."""
        everywhere = gather_views(z1, z2)
        z1, z2 = everywhere if self.gather else (z1, z2)
        tau = self._temperature(*everywhere)
        loss = info_nce(z1, z2, self._divisor(tau), **self.settings)
        return loss, torch.as_tensor(tau, dtype=loss.dtype, device=loss.device).expand(z1.shape[1])

    def extra_repr(self) -> str:
        """Show the settings in the module's repr."""
        settings = {"temperature": self.temperature, **self.settings, "mode": self.mode, "gather": self.gather}
        if isinstance(self.temperature, nn.Module):
            del settings["temperature"]
        return ", ".join(f"{name}={value!r}" for name, value in settings.items())

    def _temperature(self, z1: Tensor, z2: Tensor) -> float | tuple[float, ...] | Tensor:
        if not isinstance(self.temperature, nn.Module):
            return self.temperature
        z1, z2 = z1.detach(), z2.detach()
        if self.settings["normalize"]:
            z1, z2 = unit_rows(z1, z2, self.settings["eps"])
        tau: Tensor = self.temperature(z1, z2)
        return tau

    def _divisor(self, tau: float | tuple[float, ...] | Tensor) -> float | tuple[float, ...] | Tensor:
        """What the similarity's terms are divided by."""
        degree = self.settings["p"] if self.settings["power"] else 1  # of the terms in the embeddings; "dot" has p = 2
        if self.mode == "distance" or degree == 1:
            return tau
        return tuple(t**degree for t in tau) if isinstance(tau, tuple) else tau**degree


def _numbers(temperature: object) -> float | tuple[float, ...]:
    """Temperatures that are settings, as numbers of the host."""
    try:
        values = torch.as_tensor(temperature, dtype=torch.float64)
    except (TypeError, ValueError, RuntimeError):
        values = None
    if values is None or values.ndim > 1 or isinstance(temperature, bool):
        raise ValueError(f"Expected `temperature` to be a number, P numbers or a rule, but got {temperature!r}.")
    return values.item() if values.ndim == 0 else tuple(values.tolist())
