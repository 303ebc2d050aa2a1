"""MNISTDataModule, which reads MNIST's original files."""

__all__ = ["MNISTDataModule"]

import gzip
import math
import zlib
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from lightning_ssl_geometry.data.base import Images, Source
from lightning_ssl_geometry.data.torchvision_files import TorchvisionDataModule

_MOST = 1 << 30  # bytes of a file; MNIST has 47 million
_IMAGES, _LABELS = "{}-images-idx3-ubyte", "{}-labels-idx1-ubyte"


class MNISTDataModule(TorchvisionDataModule):
    """MNIST: 60,000 training and 10,000 test images in grey, 28 x 28 pixels, 10 classes.

    `root` contains the four files `MNIST/raw/train-images-idx3-ubyte` and so on, compressed (`.gz`) or not. The
    arguments are those of :class:`TorchvisionDataModule`.
    """

    def fetch(self) -> None:
        if not all(_found(self._raw / name.format(part)) for part in ("train", "t10k") for name in (_IMAGES, _LABELS)):
            from torchvision.datasets import MNIST

            with self._expecting("MNIST", "MNIST/raw"):
                MNIST(self.root, download=True)

    def load(self) -> Source:
        return Source(self._part("train"), self._part("t10k"), [*map(str, range(10))])

    @property
    def _raw(self) -> Path:
        return Path(self.root) / "MNIST" / "raw"

    def _part(self, part: str) -> Images:
        image = _read_idx(self._raw / _IMAGES.format(part), 3)[:, None]
        label = _read_idx(self._raw / _LABELS.format(part), 1).long()
        if len(image) != len(label):
            raise ValueError(
                f"Expected as many images as labels for {part!r} in {self._raw}, got {len(image)} and {len(label)}."
            )
        return Images(image, label)


def _found(path: Path) -> Path | None:
    packed = path.with_name(path.name + ".gz")
    return next((file for file in (path, packed) if file.is_file()), None)


def _read_idx(path: Path, axes: int) -> Tensor:
    found = _found(path)
    if found is None:
        raise FileNotFoundError(f"Expected `root` to have {path} or {path}.gz. Set `download` to True to fetch them.")
    # IDX: bytes 0, 0, 8 and the number of axes; the sizes of the axes as big-endian uint32; uint8 values
    try:
        with gzip.open(found) if found.suffix == ".gz" else found.open("rb") as file:
            header = file.read(4 + 4 * axes)
            shape = [int.from_bytes(header[at : at + 4], "big") for at in range(4, 4 + 4 * axes, 4)]
            size = math.prod(shape)
            content = file.read(size + 1) if size <= _MOST else b""  # a small file can unpack to any size
    except (EOFError, OSError, zlib.error) as error:
        raise ValueError(f"Expected {found} to be a whole gzip file, but reading it failed: {error}.") from error
    if header[:4] != bytes([0, 0, 8, axes]) or not 0 < len(content) == size:
        raise ValueError(f"Expected {found} to be a whole IDX file of bytes with {axes} axes, but it is not.")
    return torch.from_numpy(np.frombuffer(content, np.uint8).reshape(shape).copy())
