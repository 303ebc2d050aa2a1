"""Exponent of the eigenspectrum of representations (Agrawal et al. 2022)."""

__all__ = ["AlphaReQ"]

from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics.accumulate import Moments
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.alpha_req import eigenvalues_alpha_req, fit_range
from lightning_ssl_geometry.papers import ALPHA_REQ
from lightning_ssl_geometry.quantity import Chart, Quantity


class AlphaReQ(Moments):
    """Exponent alpha of the eigenvalues of the covariance of the rows seen, lambda_i ~ i^-alpha, and its fit range.

    Observes h. At least 0: low means that the variance is spread over many directions (0: all alike), high that a few
    hold it (collapse); the paper finds the best representations near 1, worse ones on both sides. `r2`, at most 1, is
    low where the spectrum is no power law; then alpha means little. Compare only what has the same `first` and `last`.
    `alpha` and `r2` are NaN where the range reaches eigenvalues that are rounding of the moments or of the dtype of h,
    as those of a collapsed spectrum.
    O(N D^2) per update, O(D^3) to compute.
    Equation: :func:`lightning_ssl_geometry.functional.alpha_req`.

    Args:
        first: Of the range, counted from 1; None as :func:`lightning_ssl_geometry.functional.alpha_req.fit_range` says.
        last: Of the range, inclusive; None as there.
        center: Subtract the mean row first.
        weighted: Weigh index i with 1/i, as the authors' code does.

    Raises:
        ValueError: If the range has fewer than 3 indices; in `compute`, if it leaves the spectrum or nothing was seen.
    """

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {
        "alpha": Quantity(
            title="Spectral decay (alpha-ReQ)",
            short="alpha-ReQ",
            text="Exponent of the power law that is fitted to the covariance's eigenvalues, from the largest on. The "
            "paper finds the best representations near 1.",
            low="Near 0: the variance is spread over all directions.",
            high="Above 1: a few directions hold the variance.",
            paper=ALPHA_REQ,
            bounds=(0, None),
            invariances=("rotation", "scale", "permutation"),
            comparable=("temperature", "batch size"),
            chart=Chart("alpha_req", "Spectral decay (alpha-ReQ)", "exponent"),
            remark="Fitted to eigenvalues {first:.0f} to {last:.0f}.",
            headline=True,
        ),
        "r2": Quantity(
            title="Fit of the spectral decay",
            text="R² of the power law through the eigenvalues.",
            low="The spectrum is no power law, and its exponent says little.",
            high="Near 1: the spectrum is a power law.",
            paper=ALPHA_REQ,
            bounds=(0, 1),
            invariances=("rotation", "scale", "permutation"),
            chart=Chart("alpha_req_r2", "Fit of the spectral decay", "R²"),
            remark="Fitted to eigenvalues {first:.0f} to {last:.0f}.",
        ),
        "first": Quantity(
            title="First eigenvalue fitted",
            text="Counted from 1. Exponents compare only over the same range.",
            low="The fit begins with the largest eigenvalues.",
            high="The fit leaves the largest eigenvalues out.",
            bounds=(1, None),
            shown=False,
        ),
        "last": Quantity(
            title="Last eigenvalue fitted",
            text="Counted from 1. Exponents compare only over the same range.",
            low="The fit leaves the small eigenvalues out.",
            high="The fit reaches down to the small eigenvalues.",
            bounds=(3, None),
            shown=False,
        ),
    }

    def __init__(
        self, first: int | None = None, last: int | None = None, center: bool = True, weighted: bool = False
    ) -> None:
        super().__init__(center)
        if first is not None and last is not None:
            fit_range(last, first, last)  # checks both
        self.first = first
        self.last = last
        self.weighted = weighted

    def compute(self) -> dict[str, Tensor]:
        """Compute the scalars `alpha`, `r2`, `first` and `last`."""
        eigenvalues = self.singular_values().square()
        length = min(int(self.rows) - self.center, len(eigenvalues))
        if self.first is self.last is None and length < 3:  # too few rows for any fit
            nan = undefined(self, f"{int(self.rows)} rows have too few eigenvalues for a fit")
            return {"alpha": nan, "r2": nan, "first": nan, "last": nan}
        first, last = fit_range(length, self.first, self.last)
        if not eigenvalues[last - 1] > 0:  # NaN is not either, and has its reason already
            undefined(self, f"eigenvalues of its range, {first} to {last}, are 0 but for rounding, or not finite")
        eigenvalues = eigenvalues.where(eigenvalues > 0, torch.nan)
        found = eigenvalues_alpha_req(eigenvalues, first, last, weighted=self.weighted)
        return {name: eigenvalues.new_tensor(float(value)) for name, value in found._asdict().items()}
