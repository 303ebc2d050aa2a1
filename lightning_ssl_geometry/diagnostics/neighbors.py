"""The hardest negative: how far it is from its anchor, and whether they share a label (Cosentino et al. 2022)."""

__all__ = ["HardestNegativeDistance", "LabelAgreement", "all_alike", "has_neighbors"]

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, by_sample
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.functional.neighbors import chance_agreement, label_agreement, normalized_distance


class HardestNegativeDistance(SampledRows):
    """Distances between an anchor h1 and its hardest negative h*, both of length 1 (Fig. 5).

    Observes h, z and index. The negative is found in the projector's space z among `contrast_size` samples (both views
    of each), the distance is measured in the encoder's. From 0 (they coincide) over 1.41 (orthogonal) to 2: it grows
    where training pushes neighbours apart, as it does with small augmentations. `pair` is the same between the two
    views of a sample, to compare with. O(contrast_size (D + P)) memory, O(contrast_size^2 P) to compute, in tiles.
    `distance` and `histogram` are NaN where all of z has one direction: then no negative is the hardest. All are NaN
    where a row of h is 0, which has no direction, or a value is not finite.

    Args:
        bins: Of the histogram, of equal width from 0 to 2.
        contrast_size: As in :class:`SampledRows`; part of the value, since more samples have harder negatives.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: If an argument is out of range; in `update`, if there are fewer than two views.
    """

    def __init__(self, bins: int = 40, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        at_least(1, bins=bins)
        self.bins = bins

    def update(self, h: Tensor, z: Tensor, index: Tensor) -> None:
        """Offer pairs: h (V, N, D), z (V, N, P) with V >= 2, index (N,)."""
        self.offer(index, h=by_sample("h", h, views=2), z=by_sample("z", z, views=2))

    def compute(self) -> dict[str, Tensor]:
        """Compute `distance` and `pair`, means, and `histogram` (bins,), the fraction of anchors in each."""
        rows = self.rows()
        h, z = directions(self, rows["h"], "h"), directions(self, rows["z"])
        if not h[:, :2].any(dim=2).all():
            h = undefined(self, "a row of `h` is 0, which has no direction", like=h)
        pair = normalized_distance(h[:, 0], h[:, 1]).mean()
        if not has_neighbors(self, z) or pair.isnan():
            return {"distance": pair * torch.nan, "pair": pair, "histogram": pair.new_full((self.bins,), torch.nan)}
        index, view, _ = hardest_negative(z[:, 0], z[:, 1])
        distance = normalized_distance(h[:, 0], h[index, view])
        bin_of = (distance / 2 * self.bins).long().clamp(max=self.bins - 1)  # 2 itself is in the last
        histogram = bin_of.bincount(minlength=self.bins) / len(distance)
        return {"distance": distance.mean(), "pair": pair, "histogram": histogram}


class LabelAgreement(SampledRows):
    """How often the hardest negative h* has the label of its anchor, and so of h2 (Fig. 6).

    Observes z, index and label, and coarse_label where there is one. The negative is found in the projector's space
    among `contrast_size` samples, both views of each. From 0 to 1: high means that displacements h2 - h* stay within a
    class, as they would along the data manifold. `fine_chance` is what a random sample would give, about 1 / C.
    O(contrast_size P) memory, O(contrast_size^2 P) to compute, in tiles. `fine` and `coarse` are NaN where all of z has
    one direction or a value is not finite.

    Args:
        contrast_size: As in :class:`SampledRows`; part of the value, since more samples have harder negatives.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: In `update`, if there are fewer than two views, or some batches have coarse labels and others not.
    """

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z", "label", "coarse_label"), contrast_size, seed)
        self.has_coarse = False

    def update(self, z: Tensor, index: Tensor, label: Tensor, coarse_label: Tensor | None = None) -> None:
        """Offer pairs: z (V, N, P) with V >= 2, index, label and, where there are some, coarse_label (N,)."""
        if len(self.key) and self.has_coarse != (coarse_label is not None):
            raise ValueError("Expected `coarse_label` in every batch or in none, but got both.")
        self.has_coarse = coarse_label is not None
        coarse = {} if coarse_label is None else {"coarse_label": coarse_label}
        self.offer(index, z=by_sample("z", z, views=2), label=label, **coarse)

    def compute(self) -> dict[str, Tensor]:
        """Compute `fine` and `fine_chance`, and `coarse` and `coarse_chance` where there are coarse labels."""
        rows = self.rows()
        z = directions(self, rows.pop("z"))
        known = 1.0 if has_neighbors(self, z) else torch.nan
        index = hardest_negative(z[:, 0], z[:, 1])[0]
        found: dict[str, Tensor] = {}
        for name, label in zip(("fine", "coarse"), rows.values(), strict=False):
            found[name] = known * label_agreement(label, index)
            found[f"{name}_chance"] = chance_agreement(label)
        return found


def has_neighbors(metric: Metric, z: Tensor) -> bool:
    """Whether some of the unit rows z (N, V, P) are nearer to a row than others; if not, the reason is said."""
    if not z.isfinite().all():
        return False  # `directions` has said why
    if all_alike(z):
        undefined(metric, "all of `z` has one direction: no negative is the hardest")
        return False
    return True


def all_alike(z: Tensor) -> bool:
    """Whether all rows (N, V, P) are one vector but for the rounding of float32: then neighbours mean nothing."""
    rows = z.flatten(0, 1).double()
    return bool((rows - rows[0]).abs().max() <= 1e-6 * rows[0].abs().max())
