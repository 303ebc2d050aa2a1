"""How clustered embeddings are, and how uniformly they are spread over the sphere (Calder & Lee 2025)."""

__all__ = ["Clusteredness"]

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, by_sample, label_second
from lightning_ssl_geometry.diagnostics.neighbors import has_neighbors
from lightning_ssl_geometry.diagnostics.undefined import directions
from lightning_ssl_geometry.functional.clusteredness import ClusterScores, clusteredness, uniform_uniformity
from lightning_ssl_geometry.functional.hypersphere import gaussian_potential
from lightning_ssl_geometry.papers import CALDER_LEE
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity

_SCORE = Quantity(
    title="Clusters",
    text="Clusters among the embeddings.",
    paper=CALDER_LEE,
    where="Fig. 5 and 6",
    invariances=("rotation", "scale", "permutation"),
    comparable=("temperature", "batch size", "method"),
    chart=Chart("clusteredness", "Clusters against uniformity", "score"),
)


class Clusteredness(SampledRows):
    """How well embeddings form clusters, and how uniformly they cover the sphere (Calder & Lee 2025, Fig. 5 and 6).

    Observes the embeddings z, with P dimensions, and the index and label of each sample. Samples with one label form a
    known cluster. At least 2 known clusters and more samples than clusters are needed. Results (means over views):

    - `nmi` in [0, 1]: normalised mutual information between the known clusters and as many clusters found by k-means.
    - `silhouette` and `kmeans_silhouette` in [-1, 1]: silhouette of the known clusters and of the k-means clusters.
    - `relative_uniformity` >= 0: uniformity relative to random points. It is 0 if all embeddings coincide.

    The first three are NaN if all embeddings have the same direction. All results are NaN if all embeddings are 0 or a
    value is not finite. Memory: O(contrast_size P). `compute` runs k-means on the CPU, in O(contrast_size^2 P).
    Equations: :func:`functional.clusteredness`, :func:`functional.uniform_uniformity`.

    Args:
        normalize: Whether embeddings are scaled to length 1 before clustering. For the uniformity, they always are.
        t: Inverse squared width of the Gaussian kernel of the uniformity, > 0.
        n_init: Number of random starts of k-means, >= 1.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept, and the starts of k-means.
    """

    section = "dynamics"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D", uncounted="k-means and silhouettes of scikit-learn")
    quantities: ClassVar[dict[str, Quantity]] = {
        "nmi": replace(
            _SCORE,
            title="Given clusters found again (NMI)",
            text="Normalised mutual information between the given clusters and those that k-means finds.",
            low="Near 0: the clusters that k-means finds have nothing to do with the given ones.",
            high="Near 1: k-means finds the given clusters.",
            short="NMI",
            bounds=(0.0, 1.0),
            better="high",
            label="NMI",
        ),
        "silhouette": replace(
            _SCORE,
            title="Silhouette of the given clusters",
            text="How much nearer embeddings are to their own given cluster than to the next one.",
            low="0 and below: the given clusters overlap.",
            high="Near 1: the given clusters are tight and far apart.",
            bounds=(-1.0, 1.0),
            better="high",
            label="silhouette",
        ),
        "kmeans_silhouette": replace(
            _SCORE,
            title="Silhouette of the clusters found",
            text="The silhouette of the clusters that k-means finds. Uniform points have 0.5 on the circle, 0.3 on the "
            "sphere in three dimensions and near 0 in many.",
            low="No higher than for uniform points: the embedding has no clusters.",
            high="Near 1: the embedding has tight clusters, which need not be the given ones.",
            bounds=(-1.0, 1.0),
            label="of k-means",
        ),
        "relative_uniformity": replace(
            _SCORE,
            title="Uniformity, relative to uniform points",
            text="Uniformity divided by the uniformity of independent points that are spread evenly over the sphere.",
            low="Near 0: all embeddings coincide.",
            high="Near 1: the embeddings are as uniform as such points. The loss alone leads there, whatever the data.",
            where="Sec. 3",
            bounds=(0.0, None),
            comparable=("width", "temperature", "batch size", "method"),
            label="uniformity",
        ),
    }

    def __init__(
        self, normalize: bool = True, t: float = 2.0, n_init: int = 10, contrast_size: int = 1024, seed: int = 0
    ) -> None:
        super().__init__(("z", "label"), contrast_size, seed)
        uniform_uniformity(2, t)  # checks `t`
        at_least(1, n_init=n_init)
        self.normalize = normalize
        self.t = t
        self.n_init = n_init

    @label_second
    @by_position("label")
    def update(self, z: Tensor, index: Tensor | None = None, *, label: Tensor) -> None:
        """Add `z` (V, N, P) or (N, P) for V views of N samples, `index` (N,) and `label` (N,)."""
        self.offer(index, z=by_sample("z", z), label=label)

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        views, label = in_float64(rows["z"]).transpose(0, 1), rows["label"]
        unit = directions(self, views)
        scores = torch.stack([self._scores(*pair, label) for pair in zip(views, unit, strict=True)]).mean(0)
        uniformity = torch.stack([gaussian_potential(z, self.t).log() for z in unit]).mean()
        found = dict(zip(ClusterScores._fields, scores, strict=True))
        return found | {"relative_uniformity": uniformity / uniform_uniformity(views.shape[2], self.t).to(uniformity)}

    def _scores(self, z: Tensor, unit: Tensor, label: Tensor) -> Tensor:
        z = unit if self.normalize or not unit.isfinite().all() else z
        known = has_neighbors(self, z[:, None])
        scores = clusteredness(z.nan_to_num(), label, normalize=self.normalize, n_init=self.n_init, seed=self.seed)
        return torch.stack(scores) * (1.0 if known else torch.nan)
