"""PublishedDataModule: data sets that come as files, which it can fetch."""

__all__ = ["PublishedDataModule"]

from abc import abstractmethod

from torch import nn

from lightning_ssl_geometry.data.base import ImageDataModule


class PublishedDataModule(ImageDataModule):
    """Base of the data sets that lie in a folder as they were published.

    Args:
        root: The folder that has the data set's own folder in it, as torchvision lays it out.
        batch_size: Samples per process.
        views: Called with (image, index, epoch, mean, std); SimCLR's large views by default.
        val_fraction: Fraction of the training set that is held out for validation, in [0, 1).
        subset: Number of training samples to use, chosen by seed before the split; None: all.
        channels: 3 repeats grey images, 1 turns colour into grey; None leaves them as they are.
        seed: Of subset, split and order.
        drop_last: Leave out the training samples that do not fill a batch.
        download: Fetch the files where they are missing.
        image_size: Height and width of the images in a batch: larger ones are made by zero padding on all sides, the
            odd pixel at the bottom and right; smaller ones by antialiased resizing; None leaves them. `mean` and
            `std` stay those of the original images.

    Raises:
        ValueError: As :class:`ImageDataModule`, or if a file is not as published.
        FileNotFoundError: If a file is missing.
    """

    def __init__(
        self,
        root: str = "data",
        batch_size: int = 256,
        views: nn.Module | None = None,
        val_fraction: float = 0.1,
        subset: int | None = None,
        channels: int | None = None,
        seed: int = 0,
        drop_last: bool = True,
        download: bool = False,
        image_size: int | None = None,
    ) -> None:
        super().__init__(batch_size, views, val_fraction, subset, channels, seed, drop_last, image_size)
        self.root = root
        self.download = download

    def prepare_data(self) -> None:
        """Download, on one process, if asked to."""
        if self.download:
            self.fetch()

    @abstractmethod
    def fetch(self) -> None:
        """Download what is missing in `root`."""
