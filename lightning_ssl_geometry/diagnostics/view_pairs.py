"""Pairs of views of a few samples, as pictures."""

__all__ = ["ViewPairs"]

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import whole
from lightning_ssl_geometry.cost import Cost
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
    cost = Cost(update="n X + N X", compute="N X", memory="N X")
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
        whole(2, count=count)
        super().__init__(("image", "view_1", "view_2"), count, seed)

    @classmethod
    def sees(cls, observation: Mapping[str, Any]) -> bool:
        return _pair(observation.get("views")) is not None

    def update(self, views: Sequence[Tensor], image: Tensor | None = None, index: Tensor | None = None) -> None:
        """Add V >= 2 `views` (N, C, H, W) of N samples, their `image` (N, C, H, W) and their `index` (N,)."""
        if (pair := _pair(views)) is None:
            shapes = [tuple(getattr(view, "shape", ())) for view in views or ()]
            raise ValueError(f"Expected `views` of V >= 2 tensors of shape (N, C, H, W), but got {shapes}.")
        if image is not None and not are_images(image):
            raise ValueError(f"Expected `image` of shape (N, C, H, W), but got {tuple(image.shape)}.")
        first, second = pair
        index, columns = self.contenders(
            index, view_1=first, view_2=second, **({} if image is None else {"image": image})
        )
        if len(index):
            small = {name: thumbnails(each, like=first) for name, each in columns.items()}
            small.setdefault("image", torch.full_like(small["view_1"], torch.nan))
            self.keep(index, **small)

    def compute(self) -> Tensor:
        rows = self.rows()
        return torch.stack([rows[name] for name in self.columns])


def _pair(views: Sequence[Any] | None) -> tuple[Tensor, Tensor] | None:
    pair = () if views is None else tuple(views[:2])
    return pair if len(pair) == 2 and all(map(are_images, pair)) else None
