"""CIFAR-10 and CIFAR-100, read by torchvision."""

__all__ = ["CIFAR10DataModule", "CIFAR100DataModule"]

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source


class CIFAR10DataModule(ImageDataModule):
    """50,000 + 10,000 colour images of 32 x 32 pixels, 10 classes.

    Args:
        root: The folder that has `cifar-10-batches-py`, as published.
        batch_size: As in :class:`ImageDataModule`.
        views: As in :class:`ImageDataModule`.
        val_fraction: As in :class:`ImageDataModule`.
        subset: As in :class:`ImageDataModule`.
        channels: As in :class:`ImageDataModule`.
        seed: As in :class:`ImageDataModule`.
        drop_last: As in :class:`ImageDataModule`.
        download: Fetch the archive with torchvision where it is missing.

    Raises:
        ValueError: As :class:`ImageDataModule`.
        FileNotFoundError: If the files are missing or not as published.
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
        _read("CIFAR10", self.root, self.download)

    def load(self) -> Source:
        """Read both parts."""
        train, test = _read("CIFAR10", self.root, download=False)
        return Source(_images(train), _images(test), list(train.classes))


class CIFAR100DataModule(ImageDataModule):
    """50,000 + 10,000 colour images of 32 x 32 pixels, 100 classes in 20 superclasses (`coarse_label`).

    Args:
        root: The folder that has `cifar-100-python`, as published.
        batch_size: As in :class:`ImageDataModule`.
        views: As in :class:`ImageDataModule`.
        val_fraction: As in :class:`ImageDataModule`.
        subset: As in :class:`ImageDataModule`.
        channels: As in :class:`ImageDataModule`.
        seed: As in :class:`ImageDataModule`.
        drop_last: As in :class:`ImageDataModule`.
        download: Fetch the archive with torchvision where it is missing.

    Raises:
        ValueError: As :class:`ImageDataModule`.
        FileNotFoundError: If the files are missing or not as published.
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
        _read("CIFAR100", self.root, self.download)

    def load(self) -> Source:
        """Read both parts, and the superclasses, which torchvision leaves out."""
        train, test = _read("CIFAR100", self.root, download=False)
        return Source(
            _images(train)._replace(coarse_label=_coarse(self.root, "train")),
            _images(test)._replace(coarse_label=_coarse(self.root, "test")),
            list(train.classes),
        )


def _read(name: str, root: str, download: bool) -> tuple[Any, Any]:
    from torchvision import datasets

    data_set = getattr(datasets, name)
    try:
        return data_set(root, train=True, download=download), data_set(root, train=False)
    except RuntimeError as error:
        raise FileNotFoundError(
            f"Expected `root` to have {Path(root) / data_set.base_folder} with the files of {name} as published, but "
            "some are missing or differ. Set `download` to True to fetch them."
        ) from error


def _images(data_set: Any) -> Images:
    image = torch.from_numpy(data_set.data).permute(0, 3, 1, 2).contiguous()
    return Images(image, torch.tensor(data_set.targets))


def _coarse(root: str, part: str) -> torch.Tensor:
    # torchvision compared the file's checksum with the published one just before: this pickle is that one.
    with (Path(root) / "cifar-100-python" / part).open("rb") as file:
        return torch.tensor(pickle.load(file, encoding="latin1")["coarse_labels"])
