"""A Metric that says what its results mean."""

__all__ = ["Diagnostic", "Standing", "preferred"]

import inspect
from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.diagnostics.card import card_html
from lightning_ssl_geometry.quantity import Quantity


class Diagnostic(Metric):
    """Base: a Metric with its quantities. They also set torchmetrics' limits of `plot()` and `higher_is_better`.

    The constructor raises a ValueError if an argument is outside of its range, `update` if a shape does not fit, and
    `compute` if too few samples were observed.

    Attributes:
        section: The part of the page that its results belong to, a key of `quantity.SECTIONS` or a heading of its own.
        quantities: What each result means, by its key in the dict that `compute` returns; "" if it returns one value.
        prefers: Maps an argument of `update` to an observation. If a step has that observation, the argument gets it;
            otherwise it gets the observation with the argument's own name. The default, None, gives `h` the `fibers` if
            `update` also takes `projector`, since a step's projector maps its `fibers` to z.
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
        """Whether this projector has what the diagnostic observes; if not, it is not in the standard set."""
        return True

    def add_sums(self, *names: str, shape: Sequence[int] = ()) -> None:
        """Add float64 states that are summed over batches and ranks; the first update sets the size of an axis of 0."""
        for name in names:
            self.add_state(name, torch.zeros(tuple(shape), dtype=torch.float64), dist_reduce_fx="sum")

    def require(self, count: Tensor | float, of: str, least: int = 1) -> None:
        """Raise a ValueError if fewer than `least` of the things that `of` names, such as "samples", were observed."""
        if not count >= least:
            wanted = f"at least {least} {of}" if least > 1 else of
            raise ValueError(
                f"Expected {type(self).__name__} to have observed {wanted}, but got {int(count) or 'none'}."
            )

    def reset(self) -> None:
        """Forget all observations, also the modules that a :class:`Standing` holds."""
        super().reset()
        for held in vars(self).values():
            if isinstance(held, Standing):
                held.forget()

    def _repr_html_(self) -> str:
        return card_html(self)


class Standing:
    """A module that a diagnostic uses in `compute`, whose weights must not change from the first observation on.

    Its diagnostic needs representations and weights of one moment: it is for the stages "val", "test" and "probe".
    """

    def __init__(self) -> None:
        self._held: tuple[nn.Module, ...] = ()  # in a tuple, so that it is not a submodule of the Metric
        self._moment: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, module: nn.Module) -> None:
        """Observe a module; a ValueError if it is another module than before, or its weights have changed."""
        if not self._held:
            self._held, self._moment = (module,), _moment(module)
        if module is not self._held[0] or _moment(module) != self._moment:
            raise ValueError(
                f"Expected a {type(module).__name__} that stands still while it is observed, but its weights changed. "
                "Observe this diagnostic in the stages 'val', 'test' or 'probe'."
            )

    def module(self) -> nn.Module:
        """Return the observed module; a ValueError if it has changed, or none was observed."""
        if not self._held:
            raise ValueError("Expected to have observed a module, but got none.")
        self.hold(self._held[0])
        return self._held[0]

    def forget(self) -> None:
        """Let go of the module."""
        self._held, self._moment = (), ()


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


def _moment(module: nn.Module) -> tuple[int, ...]:
    # every in-place change of a tensor increases its version
    tensors = (*module.parameters(), *module.buffers())
    return tuple(number for tensor in tensors for number in (id(tensor), tensor._version))
