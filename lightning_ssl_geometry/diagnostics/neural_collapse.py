"""Neural collapse of labelled representations (Papyan, Han & Donoho 2020)."""

__all__ = ["NeuralCollapse"]

from functools import partial
from typing import ClassVar

from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import merged_by_class
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.neural_collapse import class_moments, moments_neural_collapse
from lightning_ssl_geometry.functional.rounding import rounding_eps
from lightning_ssl_geometry.papers import PAPYAN
from lightning_ssl_geometry.quantity import Chart, Quantity

_quantity = partial(
    Quantity,
    paper=PAPYAN,
    invariances=("rotation", "scale", "translation", "permutation"),
    comparable=("temperature", "batch size"),
)
_SIMPLEX = Chart("neural_collapse", "Class means and the simplex", "deviation")
_spread = partial(_quantity, where="NC2", chart=_SIMPLEX)


class NeuralCollapse(Diagnostic):
    """How near the classes of a representation are to single points at equal angles.

    Observes h, with D dimensions, and labels of C >= 2 classes. Results >= 0:

    - `within_class`: the spread within classes, relative to the spread between classes.
    - `equinorm`: standard deviation of the lengths of the class means, divided by their average.
    - `equiangularity` <= 1: standard deviation of the cosines between class means.
    - `simplex` <= C / (C - 1): average distance of these cosines from -1 / (C - 1).

    Class means are relative to the global mean. Results are 0 if each class is one point and the points form a simplex
    equiangular tight frame. They are NaN if all class means are equal or h is not finite. Memory: O((C + D) D). An
    update of N samples costs O(N D^2), `compute` O(C D^2). Equation: :func:`functional.neural_collapse`.
    """

    section = "neighbors"
    cost = Cost(update="n D^2", compute="C D^2", memory="C D + D^2")
    quantities: ClassVar[dict[str, Quantity]] = {
        "within_class": _quantity(
            title="Spread within classes",
            text="How much the rows of one class vary, along the directions in which class means differ, relative to "
            "how much class means vary.",
            low="Near 0: along the directions that tell classes apart, the rows of a class nearly coincide.",
            high="Near 1 and above: rows vary within a class about as much as class means do, and classes overlap.",
            where="NC1",
            bounds=(0, None),
            chart=Chart("within_class", "Spread within classes", "of that between classes"),
        ),
        "equinorm": _spread(
            title="Lengths of class means",
            text="Standard deviation of the lengths of the class means, measured from their centre, relative to "
            "their average length.",
            low="0: all class means are equally far from the centre.",
            high="Some class means are much farther from the centre than others.",
            bounds=(0, None),
            label="lengths",
        ),
        "equiangularity": _spread(
            title="Angles of class means",
            text="Standard deviation of the cosines between class means, measured from their centre.",
            low="0: all class means stand at the same angle to each other.",
            high="Some class means point the same way, and others opposite ways.",
            bounds=(0, 1),
            label="angles",
        ),
        "simplex": _spread(
            title="Distance to the simplex",
            text="How far the cosines between the means of C classes are from -1 / (C - 1), the smallest that all of "
            "them can have.",
            low="0: class means are the corners of a regular simplex, at the largest angles that all of them can have.",
            high="Class means lie along few directions.",
            bounds=(0, 1.5),
            label="simplex",
        ),
    }
    full_state_update = False
    classes: list[Tensor]
    count: list[Tensor]
    total: list[Tensor]
    outer: Tensor
    rounding: Tensor

    def __init__(self) -> None:
        super().__init__()
        for name in ("classes", "count", "total"):
            # lists of at most one tensor, because ranks may see different classes
            self.add_state(name, [], dist_reduce_fx="cat")
        self.add_sums("outer", shape=(0, 0))
        self.add_sums("rounding")

    def update(self, h: Tensor, label: Tensor) -> None:
        """Add `h` (V, N, D) or (N, D) for V views of N samples, and the integer labels `label` (N,)."""
        if h.ndim not in (2, 3) or label.shape != h.shape[-2:-1]:
            shapes = f"{tuple(h.shape)}, {tuple(label.shape)}"
            raise ValueError(f"Expected `h` of shape (V, N, D) or (N, D) and `label` of shape (N,), but got {shapes}.")
        self.afford(h.shape[-1], h.shape[-1], argument="h")
        rows = h.reshape(-1, h.shape[-1])
        classes, count, total, outer = class_moments(rows, label.repeat(len(rows) // max(len(label), 1)))
        merged = merged_by_class([*self.classes, classes.long()], [*self.count, count], [*self.total, total])
        self.classes, self.count, self.total = ([column] for column in merged)
        self.rounding = self.rounding + rounding_eps(h.dtype) ** 2 * outer.trace()
        self.outer = outer if not self.outer.numel() else self.outer + outer

    def compute(self) -> dict[str, Tensor]:
        self.require(len(self.classes), "rows")
        _, count, total = merged_by_class(*([dim_zero_cat(state)] for state in (self.classes, self.count, self.total)))
        found = moments_neural_collapse(count, total, self.outer, rounding=self.rounding / count.sum())
        if found.simplex.isnan():
            undefined(
                self, "the mean of a class of `h`, or of each, is that of all classes but for rounding, or not finite"
            )
        return found._asdict()
