"""Which outputs of a projector match which latents of synthetic data, and their temperatures (Rusak et al. 2022)."""

__all__ = ["MeanCorrelationCoefficient", "TemperatureOrder"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import shaped
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import first_view
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.latents import check_content, fitted_half, r2_or_nan
from lightning_ssl_geometry.diagnostics.row_numbers import RowNumbers
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.latent_r2 import row_moments
from lightning_ssl_geometry.functional.matching import best_match, moments_correlation
from lightning_ssl_geometry.papers import RUSAK, ZIMMERMANN
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity

_MCC = Chart("mcc", "Outputs as latents (MCC)", "mean correlation")
_correlation = partial(
    Quantity,
    paper=ZIMMERMANN,
    bounds=(0, 1),
    invariances=("scale", "translation", "permutation"),
    comparable=("temperature", "batch size"),
    better="high",
    chart=_MCC,
)
_LEAST = 3  # samples, since any two pairs of numbers correlate fully
_SHARES = Chart("temperature_shares", "Outputs explained by latents of their kind", "adjusted R²")
_order = partial(Quantity, paper=RUSAK, invariances=("scale", "permutation"))
_of_outputs = partial(_order, where="Sec. 4.1", comparable=("temperature", "batch size"))


class MeanCorrelationCoefficient(Diagnostic):
    """Mean correlation coefficient (MCC) between the outputs z of the projector and the latents of synthetic data.

    Observes z and the latents of the first view. Outputs and latents are matched one to one, such that the sum of the
    absolute correlations is largest. Results in [0, 1]: `mean` is the mean over all matched latents, `content` over the
    content latents, and `style` over the style latents. At 1, z equals the latents up to order, signs and scales.
    Constant outputs give 0. Unrelated outputs give about sqrt(2 log(P) / N) for P outputs and N samples. All results
    are NaN with fewer than 3 samples, or if a value is not finite. An update costs O(N (P + d)^2) for d latents,
    `compute` O(P d min(P, d)). Equation: :func:`functional.mean_correlation`.
    """

    section = "content_style"
    cost = Cost(update="n D^2", compute="D^3", memory="D^2", uncounted="linear_sum_assignment of scipy")
    quantities: ClassVar[dict[str, Quantity]] = {
        "mean": _correlation(
            title="Outputs as latents (MCC)",
            short="MCC",
            text="Mean absolute correlation between outputs and true latents, which are matched one to one so that "
            "it is as large as can be.",
            low="Outputs mix latents, or have lost them.",
            high="1: each output is a latent, up to order, sign and scale.",
            label="all",
        ),
        "content": _correlation(
            title="MCC of content",
            text="Mean absolute correlation between the content latents and the outputs that are matched to them.",
            low="Outputs mix the content latents, or hold none of them.",
            high="Near 1: each of these latents has an output of its own.",
            label="content",
        ),
        "style": _correlation(
            title="MCC of style",
            text="Mean absolute correlation between the style latents and the outputs that are matched to them.",
            low="Outputs mix the style latents, or hold none of them.",
            high="Near 1: each of these latents has an output of its own.",
            label="style",
        ),
    }
    full_state_update = False
    moments: Tensor

    def __init__(self) -> None:
        super().__init__()
        self._content = torch.zeros(0, dtype=torch.bool)
        self.add_sums("moments", shape=(0, 0))

    def update(self, z: Tensor, latent: Tensor, content: Tensor) -> None:
        """Add `z` (V, N, P), `latent` (V, N, d), and the bool mask `content` (d,) of content latents."""
        z, latent = first_view("z", z), first_view("latent", latent)
        check_content(latent, content, len(z))
        self.afford(z.shape[1], 1 + z.shape[1] + latent.shape[1], argument="z")
        self._content = content
        moments = row_moments(z, latent)
        self.moments = self.moments + moments if self.moments.numel() else moments

    def compute(self) -> dict[str, Tensor]:
        self.require(self.moments.numel(), "samples")
        kinds = [("content", self._content), ("style", ~self._content)]
        if not self.moments.isfinite().all() or self.moments[0, 0] < _LEAST:
            names = ["mean"] + [name for name, here in kinds if here.any()]
            reason = f"`z` or `latent` is not finite, or of fewer than {_LEAST} samples, of which any two correlate"
            return dict.fromkeys(names, undefined(self, reason))
        correlation = moments_correlation(self.moments, len(self.moments) - 1 - len(self._content))
        outputs, latents = best_match(correlation)
        matched, kind = correlation[outputs, latents], self._content.to(latents.device)[latents]
        found = {"mean": matched.mean()}
        for name, here, chosen in (("content", self._content, kind), ("style", ~self._content, ~kind)):
            if here.any():
                found[name] = matched[chosen].mean()
        return found


def _share(kind: str, other: str) -> Quantity:
    return _of_outputs(
        title=f"{kind.capitalize()} in outputs of {kind}",
        text=f"Among the outputs that hold mostly {kind}: the share of their variance that a linear map of the {kind} "
        "latents explains, as adjusted R² on samples that the map was not fitted on.",
        low=f"These outputs mix {kind} with {other}.",
        high="Near 1: they hold nothing else.",
        bounds=(None, 1),
        better="high",
        chart=_SHARES,
        label=kind,
    )


class TemperatureOrder(Diagnostic):
    r"""Whether outputs for content have lower temperatures than outputs for style (Rusak et al. 2022, Prop. 3).

    Observes z and the latents of the first view, and the temperature tau of each output at the last update (Section
    4.1). On a random half of the samples, linear maps predict each output from the content latents and from the style
    latents. An output belongs to the kind that explains more of its variance. A constant output has no kind. Results:

    - `auc` in [0, 1]: how often a content output c and a style output s have :math:`\tau_c < \tau_s`. Ties count half.
    - `content_share`, `style_share` <= 1: adjusted R^2 of the predictions of each kind, on the other half.
    - `content_outputs` in [0, P]: the number of the P outputs that belong to content.

    All results are NaN if a half has too few samples, or a value is not finite. `auc` is also NaN if a kind has no
    output. An update of N samples with d latents costs O(N (P + d)^2), `compute` O(d^3).

    Args:
        seed: Determines on which half of the samples the maps are fitted.
    """

    section = "content_style"
    cost = Cost(update="n D^2", compute="D^3", memory="D^2")
    quantities: ClassVar[dict[str, Quantity]] = {
        "auc": _order(
            title="Order of the temperatures",
            text="Of all pairs of a content output and a style output: the share in which the content output has the "
            "lower temperature. A pair of equal temperatures counts half. Without any order, the value is 0.5.",
            low="0: style has the lower temperatures.",
            high="1: content has the lower temperatures, which is the order that keeps style.",
            where="Prop. 3",
            bounds=(0, 1),
            comparable=("batch size",),
            better="high",
            chart=Chart("temperature_order", "Order of the temperatures", "share of pairs"),
        ),
        "content_share": _share("content", "style"),
        "style_share": _share("style", "content"),
        "content_outputs": _of_outputs(
            title="Outputs that hold content",
            text="How many outputs are explained by the content latents better than by the style latents. Constant "
            "outputs do not count.",
            low="Outputs hold style.",
            high="All outputs that vary hold content: style is suppressed.",
            bounds=(0, None),
            cap="P",
            chart=Chart("content_outputs", "Outputs that hold content", "outputs"),
        ),
    }
    full_state_update = False
    moments: Tensor

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        self.seed = seed
        self.numbers = RowNumbers()
        self._content = torch.zeros(0, dtype=torch.bool)
        self._temperature = torch.zeros(0)
        self.add_sums("moments", shape=(2, 0, 0))

    @by_position("temperature")
    def update(
        self, z: Tensor, latent: Tensor, content: Tensor, index: Tensor | None = None, *, temperature: Tensor
    ) -> None:
        """Add `z` (V, N, P), `latent` (V, N, d), `content` (d,), `index` (N,) and `temperature` (P,)."""
        z, latent = first_view("z", z), first_view("latent", latent)
        check_content(latent, content, len(z))
        index = self.numbers.of(index, z)
        shaped("N,", {"N": len(z)}, index=index)
        shaped("P,", {"P": z.shape[1]}, temperature=temperature)
        side = 1 + z.shape[1] + latent.shape[1]
        self.afford(z.shape[1], side, side, argument="z")
        self._content, self._temperature = content, temperature.detach().clone()
        fit = fitted_half(self.seed, index)
        halves = [half.nonzero()[:, 0] for half in (fit, ~fit)]
        moments = torch.stack([row_moments(latent[rows], z[rows]) for rows in halves])
        self.moments = self.moments + moments if self.moments.numel() else moments

    def compute(self) -> dict[str, Tensor]:
        self.require(self.moments.numel(), "samples")
        first, second = self.moments
        here = [self._explained(first, first, kind) for kind in (self._content, ~self._content)]
        if all(share.isnan().all() for share in here):
            nan = undefined(self, "no output of z varies, the samples are too few, or a value is not finite")
            return dict.fromkeys(("auc", "content_share", "style_share", "content_outputs"), nan)
        kinds = [here[0] > here[1], here[1] >= here[0]]
        shares = [self._explained(first, second, kind) for kind in (self._content, ~self._content)]
        tau_c, tau_s = (self._temperature.to(kind.device)[kind] for kind in kinds)
        below = in_float64(tau_c[:, None] < tau_s) + in_float64(tau_c[:, None] == tau_s) / 2
        return {
            "auc": below.mean(),
            "content_share": shares[0][kinds[0]].mean(),
            "style_share": shares[1][kinds[1]].mean(),
            "content_outputs": kinds[0].sum(),
        }

    def _explained(self, fit: Tensor, score: Tensor, kind: Tensor) -> Tensor:
        latents = kind.nonzero()[:, 0].to(fit.device) + 1
        outputs = torch.arange(1 + len(kind), len(fit), device=fit.device)
        if not len(latents):
            return fit.new_zeros(len(outputs))
        chosen = torch.cat([latents.new_zeros(1), latents, outputs])
        return r2_or_nan(self, fit[chosen][:, chosen], score[chosen][:, chosen], dim=len(latents))
