"""Exponent of the eigenspectrum of representations (Agrawal et al. 2022)."""

__all__ = ["AlphaReQ"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics.accumulate import Moments
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.alpha_req import eigenvalues_alpha_req, fit_range
from lightning_ssl_geometry.papers import ALPHA_REQ
from lightning_ssl_geometry.quantity import Chart, Quantity

_fit = partial(
    Quantity,
    paper=ALPHA_REQ,
    invariances=("rotation", "scale", "permutation"),
    remark="Fitted to eigenvalues {first:.0f} to {last:.0f}.",
)
_end = partial(Quantity, text="Counted from 1. Exponents compare only over the same range.", shown=False)


class AlphaReQ(Moments):
    """Exponent alpha of a power law, lambda_i ~ i^-alpha, fitted to the eigenvalues of the covariance of h.

    Observes h, the representations of N samples with D dimensions. `alpha` >= 0 is the exponent, and `r2` <= 1 the
    quality of the fit. The power law is fitted between the indices `first` and `last`. Compare exponents only if these
    indices are the same. `alpha` and `r2` are NaN if an eigenvalue at these indices is only a rounding error. An update
    costs O(N D^2), `compute` O(D^3). Equation: :func:`functional.alpha_req`.

    Args:
        first: First index i of the fit, counted from 1. None: :func:`functional.alpha_req.fit_range` chooses it.
        last: Last index of the fit, inclusive, <= D. None: `fit_range` chooses it. At least 3 indices are needed.
        center: Whether to subtract the mean of the rows.
        weighted: Whether index i has the weight 1/i. Otherwise, all weights are equal.
    """

    section = "ranks"
    quantities: ClassVar[dict[str, Quantity]] = {
        "alpha": _fit(
            title="Spectral decay (alpha-ReQ)",
            picks=1.0,
            short="alpha-ReQ",
            text="Exponent of the power law that is fitted to the covariance's eigenvalues, from the largest on. The "
            "paper finds the best representations near 1.",
            low="Near 0: the variance is spread over all directions.",
            high="Above 1: a few directions hold the variance.",
            bounds=(0, None),
            comparable=("temperature", "batch size"),
            chart=Chart("alpha_req", "Spectral decay (alpha-ReQ)", "exponent"),
            headline=True,
        ),
        "r2": _fit(
            title="Fit of the spectral decay",
            text="R² of the power law through the eigenvalues.",
            low="The spectrum is no power law, and its exponent says little.",
            high="Near 1: the spectrum is a power law.",
            bounds=(0, 1),
            chart=Chart("alpha_req_r2", "Fit of the spectral decay", "R²"),
        ),
        "first": _end(
            title="First eigenvalue fitted",
            low="The fit begins with the largest eigenvalues.",
            high="The fit leaves the largest eigenvalues out.",
            bounds=(1, None),
        ),
        "last": _end(
            title="Last eigenvalue fitted",
            low="The fit leaves the small eigenvalues out.",
            high="The fit reaches down to the small eigenvalues.",
            bounds=(3, None),
        ),
    }

    def __init__(
        self, first: int | None = None, last: int | None = None, center: bool = True, weighted: bool = False
    ) -> None:
        super().__init__(center)
        if first is not None and last is not None:
            fit_range(last, first, last)  # checks `first` and `last`
        self.first = first
        self.last = last
        self.weighted = weighted

    def compute(self) -> dict[str, Tensor]:
        eigenvalues = self.singular_values().square()
        length = min(int(self.rows) - self.center, len(eigenvalues))
        if self.first is self.last is None and length < 3:  # too few for any fit
            nan = undefined(self, f"{int(self.rows)} rows have too few eigenvalues for a fit")
            return {"alpha": nan, "r2": nan, "first": nan, "last": nan}
        first, last = fit_range(length, self.first, self.last)
        if not eigenvalues[last - 1] > 0:  # also true for NaN, whose reason was given before
            undefined(self, f"eigenvalues of its range, {first} to {last}, are 0 but for rounding, or not finite")
        eigenvalues = eigenvalues.where(eigenvalues > 0, torch.nan)
        found = eigenvalues_alpha_req(eigenvalues, first, last, weighted=self.weighted)
        return {name: eigenvalues.new_tensor(float(value)) for name, value in found._asdict().items()}
