"""A Metric that says what its results mean."""

__all__ = ["Diagnostic"]

from collections.abc import Mapping
from typing import Any, ClassVar

from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.card import card_html
from lightning_ssl_geometry.quantity import Quantity


class Diagnostic(Metric):
    """Base: a Metric with its quantities, which also set torchmetrics' limits of `plot()` and `higher_is_better`.

    Attributes:
        section: The part of the page that its results belong to, a key of `quantity.SECTIONS` or a heading of its own.
        quantities: What each result means, by its key in the dict that `compute` returns; "" if it returns one value.
    """

    section: ClassVar[str] = "other"
    quantities: ClassVar[Mapping[str, Quantity]] = {}

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "quantities" in cls.__dict__ and (quantity := cls.quantities.get("")):
            cls.plot_lower_bound, cls.plot_upper_bound = quantity.bounds
            cls.higher_is_better = quantity.better == "high" if quantity.better else None

    def _repr_html_(self) -> str:
        return card_html(self)
