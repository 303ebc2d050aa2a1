"""The nearest neighbours of a few samples in h, as pictures."""

__all__ = ["NearestNeighbors"]

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import whole
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, first_view
from lightning_ssl_geometry.diagnostics.thumbnails import STRETCHED, are_images, consistent, thumbnails
from lightning_ssl_geometry.diagnostics.undefined import directions
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_quantity = partial(Quantity, chart=Chart("nearest_neighbors", "Nearest neighbours"))


class NearestNeighbors(SampledRows):
    """The samples whose representations h are most similar to those of a few samples.

    Observes h and the images without augmentation, or else the first view of each sample, and the index of each image
    in the data set. Similarity is the cosine of h. The neighbours are among `contrast_size` samples, and depend on this
    number. The samples whose neighbours are shown are the same at every call of `compute`, if the data are. The monitor
    keeps the first result of a run as well as the latest.

    Results for k neighbours: `image` (count, 1 + k, C, H, W) has a sample and its neighbours, the nearest first.
    `cosine` (count, 1 + k) has the similarity to the sample, and `label` (count, 1 + k) the classes, if known. They are
    NaN for the neighbours if h is not finite. Pictures have at most 48 x 48 pixels, and one channel if the images have
    neither one nor three. Memory: O(contrast_size D), and at most 28 kB for each picture. `compute` costs
    O(count contrast_size D).

    Args:
        count: Number of samples whose neighbours are shown, >= 1.
        neighbors: Number of neighbours of a sample, >= 1.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "data"
    cost = Cost(update="n D + n X + N D + N X", compute="N D + N X", memory="N D + N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "image": _quantity(
            title="Nearest neighbours",
            text="Some samples, and beside each the samples whose h has the largest cosine with its h, the largest "
            f"first. A frame marks a neighbour of another class than the sample. {STRETCHED}",
            picture=Picture("gallery", first=True),
            xlabel="nearest",
        ),
        "label": _quantity(title="Class", picture=Picture("gallery", role="label", first=True)),
        "cosine": _quantity(
            title="Cosine with the sample",
            bounds=(-1, 1),
            label="cosine",
            picture=Picture("gallery", role="overlay", first=True),
        ),
    }

    def __init__(self, count: int = 6, neighbors: int = 4, contrast_size: int = 512, seed: int = 0) -> None:
        whole(1, count=count, neighbors=neighbors)
        super().__init__(("h", "image", "label"), contrast_size, seed)
        self.count = count
        self.neighbors = neighbors
        self.has_label: bool | None = None

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        return "h" in observation and _shown(observation.get("views"), observation.get("image")) is not None

    def update(
        self,
        h: Tensor,
        views: tuple[Tensor, ...] | None = None,
        image: Tensor | None = None,
        h_image: Tensor | None = None,
        index: Tensor | None = None,
        label: Tensor | None = None,
    ) -> None:
        """Add N samples: `image` (N, C, H, W) and `h_image` (N, D), or the first of `views` and of `h` (V, N, D).

        `index` (N,) are the positions in the data set and `label` (N,) the classes, if known.
        """
        clean = image is not None and h_image is not None
        if (pictures := _shown(views, image)) is None:
            raise ValueError("Expected `image` or `views` with images (N, C, H, W), but got none.")
        if not clean and views is not None and are_images(views[0]):
            pictures = views[0]
        known = h_image if clean and h_image is not None else first_view("h", h)
        self.has_label = consistent(self.has_label if self.key else None, label)
        labels = {} if label is None else {"label": label}
        index, columns = self.contenders(index, h=known, image=pictures, **labels)
        if len(index):
            self.keep(index, **columns | {"image": thumbnails(columns["image"])})

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        h = directions(self, rows["h"], "h")
        cosine = (h[: self.count] @ h.T).nan_to_num(-torch.inf)
        itself = torch.arange(len(cosine), device=h.device)
        known = cosine.index_put((itself, itself), h.new_tensor(torch.inf))  # the sample comes first
        similarity, nearest = (
            each[:, : 1 + self.neighbors] for each in known.sort(dim=1, descending=True, stable=True)
        )
        found = {name: each[nearest.to(each.device)] for name, each in rows.items() if name != "h"}
        found["cosine"] = similarity.clamp(-1, 1)
        if h.isfinite().all():
            return found
        others = torch.arange(1, nearest.shape[1])
        return {name: in_float64(each).index_fill(1, others.to(each.device), torch.nan) for name, each in found.items()}


def _shown(views: Any, image: Any) -> Tensor | None:
    choices = [image, *([] if views is None else views[:1])]
    return next((each for each in choices if are_images(each)), None)
