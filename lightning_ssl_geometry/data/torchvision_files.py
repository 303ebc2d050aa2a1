"""TorchvisionDataModule: data sets that come as files, which it can fetch."""

__all__ = ["TorchvisionDataModule"]

from abc import abstractmethod
from typing import Unpack

from lightning_ssl_geometry.data.base import ImageDataModule, ImageSettings
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on


class TorchvisionDataModule(ImageDataModule):
    """Base of the data sets that lie in a folder as they were published.

    Args:
        root: The folder that has the data set's own folder in it, as torchvision lays it out.
        batch_size: Samples per process.
        download: Fetch the files where they are missing.
        **settings: Those of :class:`ImageDataModule`: `views`, `val_fraction`, `subset`, `channels`, `seed`,
            `drop_last`, `image_size`.

    Raises:
        ValueError: As :class:`ImageDataModule`, or if a file is not as published.
        FileNotFoundError: If a file is missing.
    """

    @by_position(
        *("views", "val_fraction", "subset", "channels", "seed", "drop_last", "download", "image_size"),
    )
    @passed_on
    def __init__(
        self,
        root: str = "data",
        batch_size: int = 256,
        *,
        download: bool = False,
        **settings: Unpack[ImageSettings],
    ) -> None:
        super().__init__(batch_size, **settings)
        self.root = root
        self.download = download

    def prepare_data(self) -> None:
        """Download, on one process, if asked to."""
        if self.download:
            self.fetch()

    @abstractmethod
    def fetch(self) -> None:
        """Download what is missing in `root`."""
