"""Pairs of views of a few samples, as pictures."""

__all__ = ["ViewPairs"]

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows
from lightning_ssl_geometry.diagnostics.thumbnails import STRETCHED, are_images, thumbnails
from lightning_ssl_geometry.quantity import Picture, Quantity


class ViewPairs(SampledRows):
    """The first two views of a few samples, below the samples without augmentation.

    Observes the views, the images without augmentation, if known, and the index of each image in the data set. The
    result (3, count, C, H, W) has a row for the images, the first views and the second views. Without images, the first
    row is NaN. Pictures have at most 48 x 48 pixels, and one channel if the images have neither one nor three. Memory:
    O(count), at most 83 kB for each sample.

    Args:
        count: Number of samples, >= 2.
        seed: Determines which samples are kept.
    """

    section = "data"
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Pairs of views",
            text="Some samples, and the two views of each that the diagnostics compare. A loss that makes the "
            "embeddings of such views equal discards what differs between the views, such as the size of an object. "
            f"{STRETCHED}",
            picture=Picture("gallery", names=("image", "view 1", "view 2")),
        )
    }

    def __init__(self, count: int = 8, seed: int = 0) -> None:
        at_least(2, count=count)
        super().__init__(("image", "view_1", "view_2"), count, seed)

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        views = observation.get("views", ())
        return len(views) > 1 and all(map(are_images, views[:2]))

    def update(self, views: Sequence[Tensor], image: Tensor | None = None, index: Tensor | None = None) -> None:
        """Add V >= 2 `views` (N, C, H, W) of N samples, their `image` (N, C, H, W) and their `index` (N,)."""
        if not self.sees({"views": views}):
            shapes = [tuple(view.shape) for view in views]
            raise ValueError(f"Expected `views` of V >= 2 tensors of shape (N, C, H, W), but got {shapes}.")
        index, rows = self.contenders(index, views[0])
        if len(rows):
            first, second = views[0][rows], views[1][rows]
            clean = torch.full_like(first, torch.nan) if image is None else image[rows]
            columns = {"image": clean, "view_1": first, "view_2": second}
            self.keep(index[rows], **{name: thumbnails(each, like=first) for name, each in columns.items()})

    def compute(self) -> Tensor:
        rows = self.rows()
        return torch.stack([rows[name] for name in self.columns])
