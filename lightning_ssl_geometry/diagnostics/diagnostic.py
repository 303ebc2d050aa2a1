"""The base class of diagnostics: a Metric that says what its results mean."""

__all__ = ["STATE_LIMIT", "Diagnostic", "Standing", "TooWideError", "keeps_first", "preferred", "vectors"]

import inspect
from collections.abc import Callable, Mapping, Sequence
from itertools import count
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torchmetrics import Metric

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.card import card_html
from lightning_ssl_geometry.diagnostics.drawing import draw
from lightning_ssl_geometry.diagnostics.row_numbers import RowNumbers
from lightning_ssl_geometry.precision import keeping_float64, keeping_integers
from lightning_ssl_geometry.quantity import VECTORS, Quantity

_Results = Tensor | Mapping[str, Tensor]
STATE_LIMIT = 2**30
"""The most bytes that the matrices (D, D) of one diagnostic may need: 1 GiB, one matrix with D = 11,585."""
_INSTANCES = count()


class TooWideError(ValueError):
    """A diagnostic needs matrices (D, D) of more bytes than `STATE_LIMIT`. It is raised before they are made.

    Attributes:
        said: D and the memory that the diagnostic needs, such as "D = 65,536: 32 GiB".
    """

    said: str


class Diagnostic(Metric):
    """Base class of diagnostics, which are Metrics with class attributes that describe their results.

    The descriptions also set torchmetrics' `higher_is_better` and the limits of `plot()`. Wrong arguments, wrong shapes
    in `update` and too few samples in `compute` raise a ValueError.

    Attributes:
        section: Section of the report that shows the results: a key of `quantity.SECTIONS`, or a new heading.
        quantities: Maps each key of the result of `compute` to a description. The key of a single result is "".
        cost: How the work of `update` and `compute` and the memory of the state grow. None: it is not declared.
        prefers: Maps an argument of `update` to the data that replace it in training steps, if a step has such data.
            None: if `update` takes `h` and `projector`, the projector's inputs "fibers" replace h.
        shares_state: Whether torchmetrics' `MetricCollection` may give the diagnostic the state of another Metric whose
            state has been equal after one batch. False is right if the state depends on a setting, or if `update` keeps
            more than states.
        optional: Whether monitors leave the diagnostic out, without a warning, in training and where it has nothing to
            show.
    """

    section: ClassVar[str] = "other"
    quantities: ClassVar[Mapping[str, Quantity]] = {}
    cost: ClassVar[Cost | None] = None
    prefers: ClassVar[Mapping[str, str] | None] = None
    optional: bool = False
    shares_state: ClassVar[bool] = False
    _forwards = False  # `forward` calls `reset`, but the samples go on

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        if not self.shares_state:
            # differs between all instances, also by a relative 1e-5
            instance = torch.tensor(divmod(next(_INSTANCES), 1000), dtype=torch.float64)
            self.add_state("instance", instance, dist_reduce_fx="max")

    def __init_subclass__(cls, **settings: Any) -> None:
        super().__init_subclass__(**settings)
        if "quantities" in cls.__dict__ and (quantity := cls.quantities.get("")):
            cls.plot_lower_bound, cls.plot_upper_bound = quantity.bounds
            cls.higher_is_better = quantity.better == "high" if quantity.better else None

    @classmethod
    def applies_to(cls, projector: nn.Module) -> bool:
        """Return whether the diagnostic can be computed for this projector."""
        return True

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        """Return whether the tensors of a step, by name, are of a kind that the diagnostic can show."""
        return True

    def add_sums(self, *names: str, shape: Sequence[int] = ()) -> None:
        """Add one float64 state per name, summed over ranks. The first update sets the size of axes of size 0."""
        for name in names:
            self.add_state(name, torch.zeros(tuple(shape), dtype=torch.float64), dist_reduce_fx="sum")

    def afford(self, dim: int, *sides: int, argument: str) -> None:
        """Raise a :class:`TooWideError` if the state needs more than `STATE_LIMIT` bytes, before it is allocated.

        `dim` is D, the width of `argument`, such as "h". `sides` are the sides of the square float64 matrices of the
        state, one for each matrix.
        """
        needed = 8 * sum(side**2 for side in sides)
        if needed > STATE_LIMIT:
            said = f"D = {dim:,}: {needed / 2**30:.3g} GiB"
            error = TooWideError(
                f"Expected {type(self).__name__} to need at most {STATE_LIMIT / 2**30:.3g} GiB for matrices (D, D), "
                f"but `{argument}` has {said}. Observe a narrower layer, such as one before the last."
            )
            error.said = said
            raise error

    def require(self, count: Tensor | float, of: str, least: int = 1) -> None:
        """Raise a ValueError if `count` is less than `least`. `of` names the counted things, such as "samples"."""
        if not count >= least:
            wanted = f"at least {least} {of}" if least > 1 else of
            raise ValueError(
                f"Expected {type(self).__name__} to have observed {wanted}, but got {int(count) or 'none'}."
            )

    def forward(self, *observed: Any, **named: Any) -> Any:
        """Call `update` with a batch. Return what `compute` returns for this batch alone."""
        self._forwards = True
        try:
            return super().forward(*observed, **named)
        finally:
            self._forwards = False

    def reset(self) -> None:
        super().reset()
        if not self._forwards:
            for held in vars(self).values():
                if isinstance(held, Standing | RowNumbers):
                    held.forget()

    def plot(self, val: _Results | Sequence[_Results] | None = None, ax: Any = None) -> tuple[Any, Any]:
        """Draw results with matplotlib, and return the figure and its Axes, or an array of Axes if there are several.

        Scalars on one chart share an Axes, and vectors are lines. The titles and axes come from `quantities`.

        Args:
            val: A result of `compute` or of a call, or a sequence of them in the order of time. None: `compute()`.
            ax: An Axes, or an array of as many Axes as the results need. None: a new figure.

        Raises:
            ValueError: If the number of Axes is wrong, or no result can be drawn.
        """
        given = self.compute() if val is None else val
        results = list(given) if isinstance(given, Sequence) else [given]
        return draw(self, [each if isinstance(each, Mapping) else {"": each} for each in results], ax)

    def _apply(self, fn: Callable[[Tensor], Tensor], exclude_state: Sequence[str] = "") -> nn.Module:
        return super()._apply(keeping_float64(keeping_integers(fn)), exclude_state)

    def merge_state(self, incoming_state: dict[str, Any] | Metric) -> None:
        super().merge_state(incoming_state)
        self._computed = None  # the value of before

    def as_wide(self, total: Tensor, **given: Tensor) -> None:
        """Raise a ValueError if a tensor has not as many columns as the sum `total`, unless this is still empty."""
        for name, x in given.items():
            if total.numel() and total.shape[-1] != x.shape[-1]:
                got = f"{total.shape[-1]} columns, as before, but got {x.shape[-1]}"
                raise ValueError(f"Expected `{name}` with {got}.")

    def _reduce_states(self, incoming_state: dict[str, Any]) -> None:
        # `forward` and `merge_state` add states. The size of a sum is 0 before its first rows.
        for name, theirs in incoming_state.items():
            own = getattr(self, name)
            if isinstance(theirs, Tensor) and not theirs.numel():
                incoming_state[name] = torch.zeros_like(own)
            elif isinstance(own, Tensor) and not own.numel():
                setattr(self, name, torch.zeros_like(theirs))
        super()._reduce_states(incoming_state)

    def _repr_html_(self) -> str:
        return card_html(self)


class Standing:
    """Keeps a network from `update` to `compute`, and checks that its weights do not change in between."""

    def __init__(self) -> None:
        self._held: tuple[nn.Module, ...] = ()  # in a tuple, so that it is not a submodule of the Metric
        self._moment: tuple[int, ...] = ()

    def __bool__(self) -> bool:
        return bool(self._held)

    def hold(self, module: nn.Module) -> None:
        """Keep a reference to a module. For a second module, or if the weights have changed, raise a ValueError."""
        if not self._held:
            self._held, self._moment = (module,), _moment(module)
        if module is not self._held[0] or _moment(module) != self._moment:
            raise ValueError(
                f"Expected a {type(module).__name__} that stands still while it is observed, but its weights changed. "
                "Observe this diagnostic in the stages 'val', 'test' or 'probe'."
            )

    def module(self) -> nn.Module:
        """Return the module. If there is none, or if its weights have changed, raise a ValueError."""
        if not self._held:
            raise ValueError("Expected to have observed a module, but got none.")
        self.hold(self._held[0])
        return self._held[0]

    def forget(self) -> None:
        """Drop the reference to the module."""
        self._held, self._moment = (), ()

    def __getstate__(self) -> tuple[tuple[nn.Module, ...], bool]:
        return self._held, all(_moment(module) == self._moment for module in self._held)

    def __setstate__(self, state: tuple[tuple[nn.Module, ...], bool]) -> None:
        # a copy holds a copy of the module, whose tensors are others
        self._held, stood = state
        self._moment = _moment(*self._held) if self._held and stood else ()


def preferred(metric: Metric) -> Mapping[str, str]:
    """Return the attribute `prefers` of a Metric. If it has none, return the default of :class:`Diagnostic`.

    >>> from lightning_ssl_geometry.diagnostics import NullSpaceFraction
    >>> preferred(NullSpaceFraction())
    {'h': 'fibers'}
    """
    prefers: Mapping[str, str] | None = getattr(metric, "prefers", None)
    if prefers is not None:
        return prefers
    beside_projector = {"h", "projector"} <= inspect.signature(metric.update).parameters.keys()
    return {"h": "fibers"} if beside_projector else {}


def keeps_first(metric: Metric) -> list[str]:
    """Return the keys of the results of a Metric whose first value in a run is kept beside the latest."""
    quantities: Mapping[str, Quantity] = getattr(metric, "quantities", {})
    return [key for key, each in quantities.items() if each.picture and each.picture.first]


def vectors(metric: Metric) -> list[str]:
    """Return the keys of the results of a Metric that are declared as vectors (K,)."""
    quantities: Mapping[str, Quantity] = getattr(metric, "quantities", {})
    return [key for key, each in quantities.items() if each.picture and each.picture.kind in VECTORS]


def _moment(module: nn.Module) -> tuple[int, ...]:
    # Every in-place change of a tensor increases its version. To set its `data` moves it in memory.
    tensors = (*module.parameters(), *module.buffers())
    return tuple(number for each in tensors for number in (id(each), _version(each), each.data_ptr()))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version  # inference tensors have none
