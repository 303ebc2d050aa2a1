"""Ranks that count directions by their share of the variance."""

__all__ = ["VarianceRank"]

from functools import partial
from typing import ClassVar

from torch import Tensor

from lightning_ssl_geometry.checks import switch
from lightning_ssl_geometry.diagnostics.accumulate import Moments
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.variance_rank import singular_values_variance_ranks
from lightning_ssl_geometry.papers import GAO, ROY_VETTERLI
from lightning_ssl_geometry.quantity import Chart, Quantity, Verdict

_rank = partial(
    Quantity,
    low="Near 1: one direction has nearly all of the variance.",
    bounds=(1, None),
    cap="min(V * N, D)",
    invariances=("rotation", "scale", "permutation", "translation"),
    comparable=("temperature", "batch size"),
    chart=Chart(
        "variance_rank",
        "Ranks of the variance",
        "directions",
        remark="The effective rank of singular values can be high where these are near 1: it counts a direction with a "
        "hundredth of the variance as a tenth.",
    ),
)


class VarianceRank(Moments):
    """How many directions share the variance of h, and how much of it the first one has.

    Observes h, the representations of N samples with D dimensions. Results: `participation_ratio` and
    `effective_rank`, both in [1, D], and `leading_share` in [1 / D, 1]. They are NaN if all rows are equal up to
    rounding. :class:`EffectiveRank` takes singular values instead of variances: it stays high if one direction has
    nearly all of the variance and the others share the rest alike. An update costs O(N D^2), `compute` O(D^3).
    Equations: :func:`functional.participation_ratio`, :func:`functional.variance_effective_rank`,
    :func:`functional.leading_share`.

    Args:
        center: Whether to subtract the mean of the rows.
    """

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {
        "participation_ratio": _rank(
            title="Participation ratio",
            text="Square of the sum of the variances of all directions over the sum of their squares.",
            high="K where K directions share the variance equally.",
            paper=GAO,
            label="participation ratio",
            verdicts=(
                Verdict(
                    says="The rows of {space} differ along nearly one of {D} directions (participation ratio {value}): "
                    "collapse of the dimensions.",
                    when="value < 1.5",
                    given="min(N - 1, D) >= 4",
                    source="1 only if all variance lies along one direction; rounded to whole directions",
                    paper=GAO,
                    topic="variance along one direction",
                ),
            ),
        ),
        "effective_rank": _rank(
            title="Effective rank of the variance",
            text="Exponential of the entropy of the variances of all directions.",
            high="K where K directions share the variance equally. Small variances count more than in the "
            "participation ratio.",
            paper=ROY_VETTERLI,
            label="effective rank",
        ),
        "leading_share": Quantity(
            title="Share of the first direction",
            text="The share of the variance that lies along the direction with most of it.",
            low="Down to 1 / D: all directions have the same variance.",
            high="Near 1: the rows differ along one direction only (dimensional collapse).",
            bounds=(0, 1),
            percent=True,
            invariances=("rotation", "scale", "permutation", "translation"),
            comparable=("temperature", "batch size"),
        ),
    }

    def __init__(self, center: bool = True) -> None:
        switch(center=center)
        super().__init__(center)

    def compute(self) -> dict[str, Tensor]:
        sigma = self.singular_values()
        if not sigma.any():
            nan = undefined(self, f"all of `h` is {'one row' if self.center else '0'} but for rounding")
            return dict.fromkeys(self.quantities, nan)
        return singular_values_variance_ranks(sigma)._asdict()
