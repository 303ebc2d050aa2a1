"""MNIST, from its original files, packed or not."""

__all__ = ["MNISTDataModule"]

import gzip
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source


class MNISTDataModule(ImageDataModule):
    """60,000 + 10,000 grey images of 28 x 28 pixels, 10 classes.

    Args:
        root: The folder that has `MNIST/raw/train-images-idx3-ubyte` and its three companions, each as it is or as
            `.gz` (torchvision's layout).
        batch_size: As in :class:`ImageDataModule`.
        views: As in :class:`ImageDataModule`.
        val_fraction: As in :class:`ImageDataModule`.
        subset: As in :class:`ImageDataModule`.
        channels: As in :class:`ImageDataModule`.
        seed: As in :class:`ImageDataModule`.
        drop_last: As in :class:`ImageDataModule`.
        download: Fetch the files with torchvision where they are missing.

    Raises:
        ValueError: As :class:`ImageDataModule`, or if a file is no IDX file.
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
    ) -> None:
        super().__init__(batch_size, views, val_fraction, subset, channels, seed, drop_last)
        self.root = root
        self.download = download

    def prepare_data(self) -> None:
        """Download, if asked to."""
        if self.download:
            from torchvision.datasets import MNIST

            MNIST(self.root, download=True)

    def load(self) -> Source:
        """Read the four files."""
        raw = Path(self.root) / "MNIST" / "raw"
        train, test = (
            Images(
                _idx(raw / f"{part}-images-idx3-ubyte", 3)[:, None], _idx(raw / f"{part}-labels-idx1-ubyte", 1).long()
            )
            for part in ("train", "t10k")
        )
        return Source(train, test, [*map(str, range(10))])


def _idx(path: Path, axes: int) -> Tensor:
    """Read an IDX file of bytes: 0, 0, 8, the number of axes, their lengths as big-endian int32, and the values."""
    packed = path.with_name(path.name + ".gz")
    if path.is_file():
        content = path.read_bytes()
    elif packed.is_file():
        content = gzip.decompress(packed.read_bytes())
    else:
        raise FileNotFoundError(f"Expected `root` to have {path} or {packed}. Set `download` to True to fetch them.")
    shape = np.frombuffer(content[4 : 4 + 4 * axes], ">i4")
    if content[:4] != bytes([0, 0, 8, axes]) or len(content) != 4 + 4 * axes + int(np.prod(shape)):
        raise ValueError(f"Expected {path} to be a whole IDX file of bytes with {axes} axes, but it is not.")
    values = np.frombuffer(content, np.uint8, offset=4 + 4 * axes).reshape(shape)
    return torch.from_numpy(values.copy())
