"""TorchvisionDataModule, the base class of data sets with published files."""

__all__ = ["LATE", "TorchvisionDataModule", "TorchvisionSettings"]

from abc import abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Unpack

from lightning_ssl_geometry.checks import pathlike
from lightning_ssl_geometry.data.base import ImageDataModule, ImageSettings
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on

LATE = ("views", "val_fraction", "subset", "channels", "seed", "drop_last", "download", "image_size")
"""Arguments that were accepted by position."""


class TorchvisionSettings(ImageSettings, total=False):
    """All arguments of :class:`TorchvisionDataModule` except `root` and `batch_size`."""

    download: bool


class TorchvisionDataModule(ImageDataModule):
    """Base class of data sets that are read from published files and can be downloaded.

    Args:
        root: The folder that contains the folder of the data set, as in torchvision.
        batch_size: Samples per process.
        download: Whether to download the files if they are missing.
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed`, `drop_last` and `image_size` of
            :class:`ImageDataModule`.

    Raises:
        ValueError: If a setting is out of range, or a file is not as published.
        FileNotFoundError: If a file is missing.
    """

    @by_position(*LATE)
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
        pathlike(root=root)
        self.root = root
        self.download = download

    def prepare_data(self) -> None:
        if self.download:
            self.fetch()

    @contextmanager
    def _expecting(self, name: str, folder: str) -> Iterator[None]:
        try:
            yield
        except (RuntimeError, OSError) as error:
            said = " ".join(str(error).split()).removesuffix(".") + "."
            raise OSError(
                f"Expected to download {name} to `root`, which is {self.root!r}, but got: {said} "
                f"Without a network, put the published files into the folder {Path(self.root) / folder}, where "
                "torchvision expects them."
            ) from error

    @abstractmethod
    def fetch(self) -> None:
        """Download the missing files to `root`."""
