"""DigitsDataModule: the 8 x 8 digits of scikit-learn, which need no download."""

__all__ = ["DigitsDataModule"]

from typing import Unpack

import torch

from lightning_ssl_geometry.checks import inside
from lightning_ssl_geometry.data.base import ImageDataModule, Images, ImageSettings, Source, random_split
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on


class DigitsDataModule(ImageDataModule):
    """1,797 grey images of 8 x 8 pixels, 10 classes: the test part of UCI's handwritten digits.

    Args:
        batch_size: Samples per process.
        test_fraction: Fraction of the images to hold out as the test set, in (0, 1).
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed`, `drop_last` and `image_size` of
            :class:`ImageDataModule`. `seed` also draws the test set.

    Raises:
        ValueError: If an argument is out of range.
    """

    @by_position(
        *("views", "val_fraction", "subset", "channels", "seed", "drop_last", "test_fraction", "image_size"),
    )
    @passed_on
    def __init__(self, batch_size: int = 256, *, test_fraction: float = 0.2, **settings: Unpack[ImageSettings]) -> None:
        super().__init__(batch_size, **settings)
        inside("(0, 1)", test_fraction=test_fraction)
        self.test_fraction = test_fraction

    def load(self) -> Source:
        """Read the digits and scale their values from [0, 16] to [0, 255]."""
        from sklearn.datasets import load_digits

        digits = load_digits()
        image = torch.from_numpy(digits.images * (255 / 16)).round().byte()[:, None]
        all_images = Images(image, torch.from_numpy(digits.target).long())
        train, test = random_split(len(all_images.image), self.test_fraction, self.seed)
        return Source(all_images._replace(rows=train), all_images._replace(rows=test), [*map(str, range(10))])
