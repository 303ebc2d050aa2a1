"""CIFAR-10 and CIFAR-100, read by torchvision."""

__all__ = ["CIFAR10DataModule", "CIFAR100DataModule"]

import pickle
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from lightning_ssl_geometry.data.base import Images, Source
from lightning_ssl_geometry.data.torchvision_files import TorchvisionDataModule


class CIFAR10DataModule(TorchvisionDataModule):
    """CIFAR-10: 50,000 training and 10,000 test images in colour, 32 x 32 pixels, 10 classes.

    `root` contains the published folder `cifar-10-batches-py`. See :class:`TorchvisionDataModule` for the arguments.
    """

    def fetch(self) -> None:
        with self._expecting("CIFAR-10", "cifar-10-batches-py"):
            _read("CIFAR10", self.root, True, download=True)

    def load(self) -> Source:
        train, test = (_read("CIFAR10", self.root, train) for train in (True, False))
        return Source(_images(train), _images(test), list(train.classes))


class CIFAR100DataModule(TorchvisionDataModule):
    """CIFAR-100: 50,000 training and 10,000 test images in colour, 32 x 32 pixels, 100 classes, 20 superclasses.

    `root` contains the published folder `cifar-100-python`. Batches have `coarse_label`, the superclass. See
    :class:`TorchvisionDataModule` for the arguments.
    """

    def fetch(self) -> None:
        with self._expecting("CIFAR-100", "cifar-100-python"):
            _read("CIFAR100", self.root, True, download=True)

    def load(self) -> Source:
        train, test = (_read("CIFAR100", self.root, train) for train in (True, False))
        return Source(
            _images(train)._replace(coarse_label=_coarse(self.root, "train")),
            _images(test)._replace(coarse_label=_coarse(self.root, "test")),
            list(train.classes),
        )


def _read(name: str, root: str, train: bool, download: bool = False) -> Any:
    from torchvision import datasets

    data_set = getattr(datasets, name)
    try:
        return data_set(root, train=train, download=download)
    except RuntimeError as error:
        if download:  # then the error is not that files are missing
            raise
        raise FileNotFoundError(
            f"Expected `root` to have {Path(root) / data_set.base_folder} with the files of {name} as published, but "
            "some are missing or differ. Set `download` to True to fetch them."
        ) from error


def _images(data_set: Any) -> Images:
    image = torch.from_numpy(data_set.data).permute(0, 3, 1, 2).contiguous()
    return Images(image, torch.tensor(data_set.targets))


def _coarse(root: str, part: str) -> Tensor:
    # Safe to unpickle: torchvision has just compared the file's checksum with the published one.
    with (Path(root) / "cifar-100-python" / part).open("rb") as file:
        return torch.tensor(pickle.load(file, encoding="latin1")["coarse_labels"])
