"""The 8 x 8 digits that scikit-learn ships: nothing to download."""

__all__ = ["DigitsDataModule"]

import torch
from torch import nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source, random_split


class DigitsDataModule(ImageDataModule):
    """1,797 grey images of 8 x 8 pixels, 10 classes (UCI's optical recognition of handwritten digits, test part).

    Args:
        batch_size: Samples per process.
        views: Called with (image, index, epoch, mean, std); SimCLR's large views by default.
        val_fraction: Fraction of the training set that is held out for validation, in [0, 1).
        subset: Number of training samples to use, chosen by seed before the split; None: all.
        channels: 3 repeats the grey images; None or 1 leaves them as they are.
        seed: Of test set, subset, split and order.
        drop_last: Leave out the training samples that do not fill a batch.
        test_fraction: Fraction held out as the test set, in (0, 1).
        image_size: Height and width of the images in a batch: larger ones are made by zero padding on all sides, the
            odd pixel at the bottom and right; smaller ones by antialiased resizing; None leaves them. `mean` and
            `std` stay those of the original images.

    Raises:
        ValueError: As :class:`ImageDataModule`, and if `test_fraction` is out of range.
    """

    def __init__(
        self,
        batch_size: int = 256,
        views: nn.Module | None = None,
        val_fraction: float = 0.1,
        subset: int | None = None,
        channels: int | None = None,
        seed: int = 0,
        drop_last: bool = True,
        test_fraction: float = 0.2,
        image_size: int | None = None,
    ) -> None:
        super().__init__(batch_size, views, val_fraction, subset, channels, seed, drop_last, image_size)
        if not 0 < test_fraction < 1:
            raise ValueError(f"Expected `test_fraction` in (0, 1), but got {test_fraction}.")
        self.test_fraction = test_fraction

    def load(self) -> Source:
        """Read the digits, their values 0 to 16 spread over 0 to 255."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        image = torch.from_numpy(digits.images * (255 / 16)).round().byte()[:, None]
        all_images = Images(image, torch.from_numpy(digits.target).long())
        train, test = random_split(len(all_images.image), self.test_fraction, self.seed)
        return Source(all_images._replace(rows=train), all_images._replace(rows=test), [*map(str, range(10))])
