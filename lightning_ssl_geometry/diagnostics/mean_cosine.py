"""The mean cosine between samples, of all of them and within classes: whether a representation has collapsed."""

__all__ = ["ClassMeanCosine", "MeanCosine"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics.utilities import dim_zero_cat

from lightning_ssl_geometry.checks import class_numbers
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import by_sample, merged_by_class
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.mean_cosine import sums_mean_cosine
from lightning_ssl_geometry.papers import ETHAYARAJH
from lightning_ssl_geometry.precision import unit_directions
from lightning_ssl_geometry.quantity import Quantity, Verdict

_COLLAPSED = 0.995
_SOURCE = "1 only if all rows point in one direction; rounded to two digits"
_quantity = partial(
    Quantity,
    invariances=("rotation", "scale", "permutation"),
    comparable=("temperature", "batch size"),
    bounds=(-1, 1),
    unit="mean cosine",
)


class MeanCosine(Diagnostic):
    """Mean cosine between different samples, over all pairs of their views. It is 1 if h has collapsed.

    Observes h, the representations of N samples, or with `rename` another tensor, such as z. The value is in [-1, 1],
    and about 0 if the rows spread over all directions. A row of zeros has the cosine 0 with all rows. The value is NaN
    if all rows are 0, one is not finite, or there is one sample only. An update costs O(N D). Equation:
    :func:`functional.mean_cosine`.
    """

    full_state_update = False
    section = "hypersphere"
    cost = Cost(update="n D", compute="D", memory="D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": _quantity(
            title="Mean cosine between samples",
            text="Mean over all pairs of different samples of the cosine between their rows.",
            low="About 0: the rows spread over all directions.",
            high="1: all rows point in one direction (collapse). Rows that are not negative, as behind a ReLU, have a "
            "mean of their own, and values of 0.5 to 0.9 then mean no harm.",
            paper=ETHAYARAJH,
            where="Sec. 3.3",
            verdicts=(
                Verdict(
                    says="All rows of {space} point in nearly one direction (mean cosine {value}): collapse in whole.",
                    when=f"value >= {_COLLAPSED}",
                    given="D > 1 and N >= 10",
                    source=_SOURCE,
                    paper=ETHAYARAJH,
                    topic="collapse in whole",
                ),
            ),
        )
    }
    total: Tensor
    square: Tensor
    samples: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sums("total", shape=(0,))
        self.add_sums("square", "samples")

    def update(self, h: Tensor) -> None:
        """Add `h` (V, N, D) or (N, D), V views of N samples."""
        unit = unit_directions(by_sample("h", h)).mean(1)
        self.as_wide(self.total, h=h)
        self.total = unit.sum(0) if not self.total.numel() else self.total + unit.sum(0)
        self.square += unit.square().sum()
        self.samples += len(unit)

    def compute(self) -> Tensor:
        self.require(self.samples, "samples", least=2)
        if not self.square or not self.square.isfinite():
            return undefined(self, "all of `h` is 0, which has no direction, or a value is not finite")
        return sums_mean_cosine(self.total, self.square, self.samples)


class ClassMeanCosine(Diagnostic):
    """Largest mean cosine within a class, and in how many classes all rows point in one direction.

    Observes h, the representations of N samples, or with `rename` another tensor, such as z, and labels. Results:
    `largest` in [-1, 1], and `collapsed`, the number of classes whose mean cosine is 0.995 or more. Only classes with
    two samples or more count. The values are NaN if there is no such class. Supervised training leads to such classes
    by itself (neural collapse). An update costs O(N D). Equation: :func:`functional.class_mean_cosine`.
    """

    full_state_update = False
    section = "hypersphere"
    cost = Cost(update="n D + C D", compute="C D", memory="C D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "largest": _quantity(
            title="Largest mean cosine within a class",
            text="Mean over all pairs of different samples of a class of the cosine between their rows, in the class "
            "where it is largest.",
            low="About that between samples: no class is denser than the rest.",
            high="1: all rows of this class point in one direction.",
            paper=ETHAYARAJH,
            where="Sec. 3.3",
            verdicts=(
                Verdict(
                    says="In {collapsed} classes all rows of {space} point in nearly one direction (mean cosine up to "
                    "{value}): collapse within classes.",
                    when=f"value >= {_COLLAPSED}",
                    given="D > 1 and N >= 10",
                    source=_SOURCE,
                    paper=ETHAYARAJH,
                    topic="collapse within classes",
                ),
            ),
        ),
        "collapsed": Quantity(
            title="Classes whose rows point in one direction",
            text=f"Number of classes whose mean cosine between different samples is {_COLLAPSED} or more.",
            low="0: no class has collapsed.",
            high="The number of classes: within classes nothing is told apart.",
            unit="classes",
            bounds=(0, None),
            invariances=("rotation", "scale", "permutation"),
            comparable=("temperature", "batch size"),
        ),
    }
    classes: list[Tensor]
    count: list[Tensor]
    total: list[Tensor]
    square: list[Tensor]

    def __init__(self) -> None:
        super().__init__()
        for name in ("classes", "count", "total", "square"):
            # lists of at most one tensor, because ranks may see different classes
            self.add_state(name, [], dist_reduce_fx="cat")

    def update(self, h: Tensor, label: Tensor) -> None:
        """Add `h` (V, N, D) or (N, D), V views of N samples, and the integer labels `label` (N,)."""
        rows = by_sample("h", h)
        if label.shape != rows.shape[:1]:
            shapes = f"{tuple(h.shape)}, {tuple(label.shape)}"
            raise ValueError(f"Expected `h` of shape (V, N, D) or (N, D) and `label` of shape (N,), but got {shapes}.")
        class_numbers("label", label)
        unit = unit_directions(rows).mean(1)
        sums = label.long().to(unit.device), torch.ones_like(unit[:, 0]), unit, unit.square().sum(1)
        held = self.classes, self.count, self.total, self.square
        self.classes, self.count, self.total, self.square = (
            [column] for column in merged_by_class(*([*old, new] for old, new in zip(held, sums, strict=True)))
        )

    def compute(self) -> dict[str, Tensor]:
        self.require(len(self.classes), "rows")
        states = (self.classes, self.count, self.total, self.square)
        _, count, total, square = merged_by_class(*([dim_zero_cat(state)] for state in states))
        found = sums_mean_cosine(total, square, count)[count >= 2]
        if not len(found) or not square.any() or not square.isfinite().all():
            nan = undefined(self, "no class of `h` has two samples, all of `h` is 0, or a value is not finite")
            return {"largest": nan, "collapsed": nan}
        return {"largest": found.max(), "collapsed": (found >= _COLLAPSED).sum().double()}
