"""A Metric that says what its results mean."""

__all__ = ["Diagnostic", "preferred"]

import inspect
from collections.abc import Mapping
from typing import Any, ClassVar

from torch import nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.card import card_html
from lightning_ssl_geometry.quantity import Quantity


class Diagnostic(Metric):
    """Base: a Metric with its quantities, which also set torchmetrics' limits of `plot()` and `higher_is_better`.

    Attributes:
        section: The part of the page that its results belong to, a key of `quantity.SECTIONS` or a heading of its own.
        quantities: What each result means, by its key in the dict that `compute` returns; "" if it returns one value.
        prefers: Argument of `update` -> the observation that it gets where the step has one, instead of the one with
            its name. None: `fibers` for `h` where `update` also names `projector`, since a step's projector maps its
            `fibers` to z.
    """

    section: ClassVar[str] = "other"
    quantities: ClassVar[Mapping[str, Quantity]] = {}
    prefers: ClassVar[Mapping[str, str] | None] = None

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "quantities" in cls.__dict__ and (quantity := cls.quantities.get("")):
            cls.plot_lower_bound, cls.plot_upper_bound = quantity.bounds
            cls.higher_is_better = quantity.better == "high" if quantity.better else None

    @classmethod
    def applies_to(cls, projector: nn.Module) -> bool:
        """Whether networks with this projector have what is observed; if not, the standard set leaves it out."""
        return True

    def _repr_html_(self) -> str:
        return card_html(self)


def preferred(metric: Metric) -> Mapping[str, str]:
    """Return the `prefers` of a Metric, also of one that is no :class:`Diagnostic`.

    >>> from lightning_ssl_geometry.diagnostics import NullSpaceFraction
    >>> preferred(NullSpaceFraction())
    {'h': 'fibers'}
    """
    prefers: Mapping[str, str] | None = getattr(metric, "prefers", None)
    if prefers is not None:
        return prefers
    beside_projector = {"h", "projector"} <= inspect.signature(metric.update).parameters.keys()
    return {"h": "fibers"} if beside_projector else {}
