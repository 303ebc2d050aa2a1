"""InfoNCE and its upper bound (Cosentino et al. 2022)."""

__all__ = ["UpperBound"]

from torch import Tensor

from lightning_ssl_geometry.checks import positive
from lightning_ssl_geometry.diagnostics.accumulate import SampledEmbeddings
from lightning_ssl_geometry.diagnostics.undefined import directions
from lightning_ssl_geometry.functional.info_nce.loss import info_nce
from lightning_ssl_geometry.functional.info_nce.upper_bound import info_nce_entropy, info_nce_upper_bound


class UpperBound(SampledEmbeddings):
    """InfoNCE as Eq. 1 has it, beside its upper bound and its exact form with an entropy (Prop. 3.1, Eq. 3-5 and 13).

    Observes z and index. Cosine similarity, anchor view 1, positive not in the denominator, whatever loss trains the
    model. `invariance` is in [-1, 1] (-1: the views coincide), `repulsion` too (1: the hardest negative coincides with
    its anchor), `info_nce` <= `upper`, both within 2 / temperature of log 2(n - 1) with n = `contrast_size`.
    `expectation` in [-1, 1] is the mean similarity to the negatives as the loss weighs them, `entropy` in [0, log 2(n -
    1)] how many of them it looks at; `entropy_form` = (invariance + expectation) / temperature + entropy is the loss
    again. NaN where all of z is 0 or a value is not finite. O(contrast_size P) memory, O(contrast_size^2 P) to compute.

    Args:
        temperature: 1 / beta; the paper has beta = 2.
        contrast_size: As in :class:`SampledRows`; it is the N of the loss, and part of its value.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: If `temperature` <= 0.
    """

    def __init__(self, temperature: float = 0.5, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(contrast_size, seed)
        positive(temperature=temperature)
        self.temperature = temperature

    def compute(self) -> dict[str, Tensor]:
        """Compute the scalars named above."""
        z = self.sample()
        if len(z) < 2:
            raise ValueError(f"Expected `z` of at least 2 views for UpperBound, but got {len(z)}.")
        z = directions(self, z[:2])
        invariance, repulsion, upper = info_nce_upper_bound(z[0], z[1], self.temperature)
        _, expectation, entropy = info_nce_entropy(z[0], z[1], self.temperature)
        return {
            "info_nce": info_nce(z[0], z[1], self.temperature, positive_in_denominator=False, symmetric=False),
            "upper": upper,
            "entropy_form": (invariance + expectation) / self.temperature + entropy,
            "invariance": invariance,
            "repulsion": repulsion,
            "expectation": expectation,
            "entropy": entropy,
        }
