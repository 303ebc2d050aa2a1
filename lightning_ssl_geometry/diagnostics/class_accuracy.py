"""The accuracy of nearest neighbours for each class."""

__all__ = ["ClassAccuracy"]

from collections.abc import Mapping
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import class_numbers, whole
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, first_view
from lightning_ssl_geometry.diagnostics.undefined import directions
from lightning_ssl_geometry.functional.knn import knn_leave_one_out
from lightning_ssl_geometry.papers import WU
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Picture, Quantity


class ClassAccuracy(SampledRows):
    """Share of the samples of each class whose nearest neighbours in h vote for their class (Wu et al. 2018).

    Observes h of the images without augmentation, or else the first view of h, labels, and the index of each image in
    the data set. Each of `contrast_size` samples is classified by the others, as in :class:`KNNProbe`. The result
    (C, 3) has a row for each class that was observed: its number, the accuracy, and the class' share of the samples,
    which is the accuracy of a guess by chance. The accuracy is NaN for a class with one sample, and for all classes if
    h is not finite. The monitor keeps the first result of a run as well as the latest. With the stage "probe", the
    first is that of the untrained network. Memory: O(contrast_size D). `compute` costs O(contrast_size^2 D).

    Args:
        neighbors: Number of neighbours that vote, >= 1.
        contrast_size: Number of samples kept, >= 2. With more samples, accuracies are higher and more precise.
        seed: Determines which samples are kept.
    """

    section = "data"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Accuracy by class",
            text="Share of the samples of a class whose nearest neighbours in h vote for their class, at the first and "
            "at the latest look. The neighbours are among the other samples that were looked at.",
            low="Near chance, the class' share of all samples: the representation does not tell this class apart.",
            high="The samples of the class lie together.",
            paper=WU,
            unit="accuracy",
            percent=True,
            picture=Picture("classes", first=True),
        )
    }

    def __init__(self, neighbors: int = 20, contrast_size: int = 2048, seed: int = 0) -> None:
        whole(1, neighbors=neighbors)
        super().__init__(("h", "label"), contrast_size, seed)
        self.neighbors = neighbors

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        return "h" in observation and observation.get("label") is not None

    def update(self, h: Tensor, label: Tensor, index: Tensor | None = None, h_image: Tensor | None = None) -> None:
        """Add `h_image` (N, D), or else the first view of `h` (V, N, D), with `index` (N,) and `label` (N,)."""
        rows = first_view("h", h) if h_image is None else h_image
        self.offer(index, h=rows, label=class_numbers("label", label))

    def compute(self) -> Tensor:
        rows = self.rows()
        h = directions(self, rows["h"], "h")
        label = rows["label"].to(h.device)
        name, place, count = label.unique(return_inverse=True, return_counts=True)
        found = torch.full((len(name),), torch.nan, dtype=torch.float64, device=h.device)
        if h.isfinite().all():
            guess = knn_leave_one_out(h, place, len(name), k=min(self.neighbors, len(h) - 1))
            right = in_float64(guess == place)
            found = torch.zeros_like(found).index_add(0, place, right) / count
            found = found.where(count > 1, torch.nan)
        return torch.stack([in_float64(name), found, count / len(h)], dim=1)
