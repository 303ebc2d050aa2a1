"""The base class of modules that make views, and defaults for modules that do not derive from it."""

__all__ = ["ImageViews", "batch_entries", "image_range"]

from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import shaped
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views.validation import check_image, expect_axes

Normalization = tuple[Tensor, Tensor]


class ImageViews(nn.Module, ABC):
    """Base class of random views that depend only on the image and (seed, epoch, sample index, number of the view).

    Any module that is called with (image, index, epoch, mean, std) and returns V views can be used instead. It may
    define `image_range`. The default is [0, 1]. The method `batch_entries` is called only on subclasses of this class.

    Attributes:
        image_range: Smallest and largest value of floating-point images. None: the module checks its images itself.
    """

    image_range: tuple[float, float] | None = (0.0, 1.0)

    def batch_entries(self, index: Tensor, epoch: int, height: int, width: int) -> Batch:
        """Return {key: entry} to add to a batch, by default {}. An entry is a tensor or a tuple of V tensors.

        An entry replaces the batch's entry with the same key. `index` (N,) int64 is the index of each sample in its
        data set. Images have `height` x `width` pixels.
        """
        return {}

    @torch.no_grad()
    def forward(
        self, image: Tensor, index: Tensor, epoch: int = 0, mean: Tensor | None = None, std: Tensor | None = None
    ) -> tuple[Tensor, ...]:
        """Make V views of every image.

        Args:
            image: (N, C, H, W), uint8, or floating point in [0, 1]. C = 1 or 3 if colours change, H = W for rotations.
            index: (N,) int64, the position of each sample in its data set.
            epoch: Epoch of the training. The views differ between epochs.
            mean: (C,), subtracted from views in [0, 1]. None: 0.
            std: (C,), by which the views are then divided. None: 1.

        Returns:
            V tensors (N, C, h, w), of the image's dtype if that is floating point, else float32.

        Raises:
            ValueError: If an argument has a wrong shape or dtype, or a blur's kernel is too large for the view.
        """
        expect_axes("N, C, H, W", image)
        check_image(image, allow_uint8=True, color=self._changes_colors)
        if index.shape != image.shape[:1] or index.dtype != torch.int64:
            got = f"shape {tuple(index.shape)} and {index.dtype}"
            raise ValueError(f"Expected `index` of shape ({len(image)},) and torch.int64, but got {got}.")
        moments = {name: value for name, value in (("mean", mean), ("std", std)) if value is not None}
        shaped("C,", {"C": image.shape[1]}, **moments)
        if mean is None and std is None:
            return self._views(image, index, epoch, normalize=None)
        c = image.shape[1]
        pair = torch.zeros(c) if mean is None else mean, torch.ones(c) if std is None else std
        shift, by = (value.to(image.device, non_blocking=True) for value in pair)
        return self._views(image, index, epoch, normalize=(shift, by))

    @property
    def _changes_colors(self) -> bool:
        return False

    @abstractmethod
    def _views(
        self, image: Tensor, index: Tensor, epoch: int, normalize: Normalization | None
    ) -> tuple[Tensor, ...]: ...


def batch_entries(views: nn.Module, index: Tensor, epoch: int, height: int, width: int) -> Batch:
    """Return `views.batch_entries(index, epoch, height, width)`, or {} if `views` is no ImageViews."""
    return views.batch_entries(index, epoch, height, width) if isinstance(views, ImageViews) else {}


def image_range(views: nn.Module) -> tuple[float, float] | None:
    """Return the module's `image_range`, or (0, 1) if it has no such attribute."""
    return getattr(views, "image_range", ImageViews.image_range)
