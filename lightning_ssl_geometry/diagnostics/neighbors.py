"""The hardest negative: its distance from the anchor, and how often both share a label (Cosentino et al. 2022)."""

__all__ = ["HardestNegativeDistance", "LabelAgreement", "all_alike", "has_neighbors"]

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor
from torchmetrics import Metric

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, by_sample, label_second
from lightning_ssl_geometry.diagnostics.shared_work import once
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.info_nce.upper_bound import hardest_negative
from lightning_ssl_geometry.functional.neighbors import chance_agreement, label_agreement, normalized_distance
from lightning_ssl_geometry.papers import COSENTINO
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_quantity = partial(Quantity, paper=COSENTINO, invariances=("rotation", "scale", "permutation"))
_DISTANCE = Chart("hardest_negative_distance", "Distance to the hardest negative", "distance of unit vectors")
_distance = partial(_quantity, where="Fig. 5", bounds=(0, 2), comparable=("temperature", "batch size"), chart=_DISTANCE)
_AGREEMENT = Chart("label_agreement", "Label shared with the hardest negative", "samples")
_shared = partial(
    _quantity, where="Fig. 6", bounds=(0, 1), comparable=("temperature", "batch size"), percent=True, chart=_AGREEMENT
)


def _chance(title: str, label: str) -> Quantity:
    return Quantity(
        title=title,
        text="Probability that a negative drawn at random has the label of the sample.",
        low="There are many classes.",
        high="There are few classes, or one is frequent.",
        paper=COSENTINO,
        where="Fig. 6",
        bounds=(0, 1),
        invariances=("rotation", "scale", "translation", "permutation"),
        percent=True,
        chart=_AGREEMENT,
        label=label,
        baseline=True,
    )


class HardestNegativeDistance(SampledRows):
    """Distance between a representation h1 and its hardest negative h* (Cosentino et al. 2022, Fig. 5).

    h1 is the first view of a sample. h* is the view of another sample with the most similar z, among `contrast_size`
    samples. h1 and h* are scaled to length 1, so distances are in [0, 2]. Results: `distance` is the mean of ||h1 -
    h*||. `histogram` (bins,) is the share of the samples in each bin of this distance. `pair` is the mean distance
    between the two views of a sample. `between_samples` is its baseline, the mean distance from h1 to the second view
    of another sample, drawn at random. `distance` and `histogram` are NaN if all embeddings z have the same direction.
    All results are NaN if a row of h is 0 or a value is not finite. Memory: O(contrast_size (D + P)) for D dimensions
    of h and P of z. `compute` costs O(contrast_size^2 P).

    Args:
        bins: Number of bins of the histogram, of equal width, >= 1.
        contrast_size: Number of samples kept, >= 2. With more samples, negatives are harder.
        seed: Determines which samples are kept.
    """

    section = "neighbors"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "distance": _distance(
            title="Distance to the hardest negative",
            text="Mean distance in h from a sample to its hardest negative, both scaled to length 1. The hardest "
            "negative is the one that is most similar behind the projector. Orthogonal vectors are 1.41 apart.",
            low="Near 0: a sample and its hardest negative nearly coincide, as strong augmentations allow.",
            high="Beyond 1.41: repulsion drove samples apart.",
            label="to h*",
        ),
        "pair": _distance(
            title="Distance between views",
            text="Mean distance in h between the two views of a sample, both scaled to length 1.",
            low="The encoder itself is invariant to the augmentations.",
            high="As high as the distance to the hardest negative: a view is no closer than another sample.",
            null="between_samples",
            label="to h2",
        ),
        "between_samples": _distance(
            title="Distance between samples",
            short="between samples",
            text="Mean distance in h from a sample to a view of another one, drawn at random, both scaled to length 1.",
            low="All samples point in nearly one direction.",
            high="Samples spread over directions; 1.41 if these are independent and uniform.",
            label="between samples",
            baseline=True,
        ),
        "histogram": _quantity(
            title="Distances to the hardest negative",
            text="Share of the samples at each distance in h to their hardest negative, both scaled to length 1.",
            low="Mass at low distances: samples and their hardest negatives nearly coincide.",
            high="Mass at high distances, up to 2: samples are driven apart from their hardest negatives.",
            where="Fig. 5",
            bounds=(0, 2),
            percent=True,
            chart=Chart("hardest_negative_histogram", "Distances to the hardest negative", "samples"),
            picture=Picture("histogram"),
            xlabel="distance of unit vectors",
        ),
    }

    def __init__(self, bins: int = 40, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h", "z"), contrast_size, seed)
        at_least(1, bins=bins)
        self.bins = bins

    def update(self, h: Tensor, z: Tensor, index: Tensor | None = None) -> None:
        """Add `h` (V, N, D) and `z` (V, N, P) for V >= 2 views of N samples, and `index` (N,)."""
        self.offer(index, h=by_sample("h", h, views=2), z=by_sample("z", z, views=2))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        h, z = directions(self, rows["h"], "h"), directions(self, rows["z"])
        if not h[:, :2].any(dim=2).all():
            h = undefined(self, "a row of `h` is 0, which has no direction", like=h)
        pair = normalized_distance(h[:, 0], h[:, 1]).mean()
        # rows are in the order of a hash, so the next one is a sample drawn at random
        between = normalized_distance(h[:, 0], h[:, 1].roll(1, 0)).mean()
        found = {"pair": pair, "between_samples": between}
        if not has_neighbors(self, z) or pair.isnan():
            return {"distance": pair * torch.nan, **found, "histogram": pair.new_full((self.bins,), torch.nan)}
        index, view, _ = once(hardest_negative, z[:, 0], z[:, 1])
        distance = normalized_distance(h[:, 0], h[index, view])
        bin_of = (distance / 2 * self.bins).long().clamp(max=self.bins - 1)  # the last bin includes 2
        histogram = bin_of.bincount(minlength=self.bins) / len(distance)
        return {"distance": distance.mean(), **found, "histogram": histogram}


class LabelAgreement(SampledRows):
    """Share of the samples that have the same label as their hardest negative h* (Cosentino et al. 2022, Fig. 6).

    h* is the view of another sample with the most similar z, among `contrast_size` samples. Results in [0, 1]: `fine`
    is the share, and `fine_chance` the share for a random h*. `coarse` and `coarse_chance` are the same for coarse
    labels, which all batches or none must have. `fine` and `coarse` are NaN if all embeddings have the same direction
    or one is not finite. Memory: O(contrast_size P) for P dimensions of z. `compute` costs O(contrast_size^2 P).

    Args:
        contrast_size: Number of samples kept, >= 2. With more samples, negatives are harder.
        seed: Determines which samples are kept.
    """

    section = "neighbors"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "fine": _shared(
            title="Label shared with the hardest negative",
            text="Share of the samples whose hardest negative h* has their label.",
            low="Near chance: the hardest negative is of any class, and the displacements h2 - h* lead anywhere.",
            high="The hardest negative is of the same class: the displacements h2 - h* stay within it, close to the "
            "data manifold.",
            null="fine_chance",
            label="fine",
            headline=True,
        ),
        "fine_chance": replace(_chance("Chance", "chance, fine"), short="chance"),
        "coarse": _shared(
            title="Coarse label shared",
            text="Share of the samples whose hardest negative h* has their coarse label.",
            low="Near chance: the hardest negative is of any class.",
            high="The hardest negative is at least of a related class.",
            null="coarse_chance",
            label="coarse",
        ),
        "coarse_chance": _chance("Chance, coarse", "chance, coarse"),
    }

    def __init__(self, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("z", "label", "coarse_label"), contrast_size, seed)
        self.has_coarse = False

    @label_second
    @by_position("label", "coarse_label")
    def update(
        self, z: Tensor, index: Tensor | None = None, *, label: Tensor, coarse_label: Tensor | None = None
    ) -> None:
        """Add `z` (V, N, P) for V >= 2 views, `index` (N,), `label` (N,) and, optionally, `coarse_label` (N,)."""
        if len(self.key) and self.has_coarse != (coarse_label is not None):
            raise ValueError("Expected `coarse_label` in every batch or in none, but got both.")
        self.has_coarse = coarse_label is not None
        coarse = {} if coarse_label is None else {"coarse_label": coarse_label}
        self.offer(index, z=by_sample("z", z, views=2), label=label, **coarse)

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        z = directions(self, rows.pop("z"))
        known = 1.0 if has_neighbors(self, z) else torch.nan
        index = once(hardest_negative, z[:, 0], z[:, 1])[0]
        found: dict[str, Tensor] = {}
        for name, label in zip(("fine", "coarse"), rows.values(), strict=False):
            found[name] = known * label_agreement(label, index)
            found[f"{name}_chance"] = chance_agreement(label)
        return found


def has_neighbors(metric: Metric, z: Tensor) -> bool:
    """Return whether the rows of `z` (N, V, P), of length 1, are finite and not all equal. If all are equal, warn."""
    if not z.isfinite().all():
        return False  # `directions` has warned
    if all_alike(z):
        undefined(metric, "all of `z` has one direction: no negative is the hardest")
        return False
    return True


def all_alike(z: Tensor) -> bool:
    """Return whether all rows of z (N, V, P) are equal up to rounding in float32."""
    rows = in_float64(z.flatten(0, 1))
    return bool((rows - rows[0]).abs().max() <= 1e-6 * rows[0].abs().max())
