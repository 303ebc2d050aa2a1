"""ImageFolderDataModule: images of a folder, decoded only once."""

__all__ = ["ImageFolderDataModule", "common_size", "number_of_images"]

import copy
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import inside, integer, pathlike
from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source, ViewSettings, random_split
from lightning_ssl_geometry.data.image_cache import (
    Listing,
    content_key,
    mapped_images,
    opened_image,
    read_rgb,
)
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on

_PARTS = ("train", "test", "val")
_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolderDataModule(ImageDataModule):
    """Images in `root/train/<class>/*` and `root/test/<class>/*`, or in `root/<class>/*`.

    Images without labels have no class folders, as in `root/*`. The short side of each image is resized to
    `image_size`, and the centre is cropped. The decoded images are saved in the file `.ssl_geometry-<image_size>.npy`,
    which is memory-mapped during a run. This file is written again if names, sizes or times of the files change. A
    decoding that is ended goes on after its last whole block of 32 MiB.

    Args:
        root: The folder. The training set is in its folder `train`, or in `root` itself. The test set is in `test` or
            else in `val`. If both are missing, the test set is drawn with `seed`.
        image_size: Height and width of the images in pixels.
        batch_size: Samples per process.
        test_fraction: Fraction of the images to hold out if the folder has no test set, in (0, 1]. Use 1 for a network
            that is not trained. Then all images are in the test set, and `mean` and `std` are computed from them. None:
            0.2, but 1 for a diagnosis of images without class folders (see :meth:`for_diagnosis`).
        cache: Folder for the decoded images. Two data sets must not share this folder. None: `root`.
        workers: Number of processes that decode the images. 0: threads of the process of the run, one for each CPU
            core. Processes are faster for images of few pixels. Where Python spawns processes (macOS, Windows, and
            Linux from Python 3.14 on), the script has to begin its work below `if __name__ == "__main__":`.
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed` and `drop_last` of :class:`ImageDataModule`.
            `seed` also draws the test set.

    Raises:
        ValueError: If an argument is out of range, if the folder has no images or only one class, if a file is not an
            8-bit image, or if training and test set have different classes.
        FileNotFoundError: If `root` does not exist.
        OSError: If the decoded file cannot be written.
    """

    image_size: int

    @by_position(
        *("views", "val_fraction", "subset", "channels", "seed", "drop_last", "test_fraction", "cache"),
    )
    @passed_on
    def __init__(
        self,
        root: str,
        image_size: int,
        batch_size: int = 256,
        *,
        test_fraction: float | None = None,
        cache: str | None = None,
        workers: int = 0,
        **settings: Unpack[ViewSettings],
    ) -> None:
        super().__init__(batch_size, image_size=None, **settings)
        integer(1, image_size=image_size)
        integer(0, workers=workers)
        pathlike(root=root, cache=root if cache is None else cache)
        self._may_be_whole = test_fraction is None
        test_fraction = 0.2 if test_fraction is None else test_fraction
        inside("(0, 1]", test_fraction=test_fraction)
        if test_fraction == 1 and settings.get("subset") is not None:
            raise ValueError(
                f"Expected `subset` None with `test_fraction=1`, which leaves nothing for training, but got "
                f"{settings['subset']}."
            )
        self.root = Path(root)
        self.image_size = image_size
        self.test_fraction = test_fraction
        self.cache = Path(cache) if cache is not None else self.root
        self.workers = workers

    def prepare_data(self) -> None:
        self._decoded()

    def load(self) -> Source:
        """Memory-map the decoded images. If the folder has no test set, draw one at random."""
        listing, image = self._decoded()
        if listing.train_size < len(image):
            return listing.source(image)
        label = torch.tensor(listing.label) if listing.classes else None
        if self.test_fraction == 1:
            train, test = torch.arange(0), torch.arange(len(image))
        else:
            train, test = random_split(len(image), self.test_fraction, self.seed)
        every = Images(image, label, is_mapped=True)
        return Source(every._replace(rows=train), every._replace(rows=test), listing.classes)

    def for_diagnosis(self) -> "ImageFolderDataModule":
        """Return the data for a network that is not trained on them.

        If the folder has neither classes nor a test set, these are all its images, else the same DataModule. A
        DataModule with a given `test_fraction` or with a test set that is already drawn is returned as it is, since a
        network may have been trained on the other images.
        """
        if not self._may_be_whole or self._images:
            return self
        listing = _list(self.root)
        if listing.classes or listing.train_size < len(listing.files):
            return self
        whole = copy.copy(self)
        whole.test_fraction = 1.0
        return whole

    def _decoded(self) -> tuple[Listing, Tensor]:
        listing = _list(self.root)
        key = content_key(self.root, listing.files, self.image_size, listing.train_size, listing.classes)
        path = self.cache / f".ssl_geometry-{self.image_size}.npy"
        remedy = "Name another folder as `cache`."
        decode = partial(_decode_one, size=self.image_size)
        image = mapped_images(
            path, key, listing.files, size=self.image_size, decode_one=decode, workers=self.workers, remedy=remedy
        )
        return listing, image


def number_of_images(root: Path) -> int:
    """Return the number of images in a folder. No file is read."""
    return len(_list(root).files)


def common_size(root: Path) -> int:
    """Return the height and width of all images in a folder, in pixels. Only the heads of the files are read.

    Raises a ValueError if the images are not squares of one size, or a file is no image.
    """
    first: tuple[Path, int] | None = None
    for file in _list(root).files:
        width, height = _size(file)
        first = first or (file, width)
        if not width == height == first[1]:
            other = "" if file == first[0] else f", {first[0].name} has {first[1]} x {first[1]}"
            raise ValueError(
                f"Expected `image_size`, as the images in {root} are not squares of one size: {file.name} has {width} "
                f"x {height} pixels{other}."
            )
    assert first is not None, "a list of images is never empty"
    return first[1]


def _size(file: Path) -> tuple[int, int]:
    try:
        with opened_image(file) as opened:
            size: tuple[int, int] = opened.size
            return size
    except Exception as error:  # for broken files, Pillow raises not only OSError
        raise ValueError(f"Expected `root` to hold whole images only, but got {file} ({error}).") from error


def _list(root: Path) -> Listing:
    if not root.is_dir():
        raise FileNotFoundError(f"Expected `root` to be a folder of images, but there is none at {root}.")
    train, test = root, None
    if (root / "train").is_dir():
        train = root / "train"
        test = next((part for part in (root / "test", root / "val") if part.is_dir()), None)
        beside = [part for part in _folders(root) if part.name not in _PARTS and _has_images(part)]
        if beside:
            raise ValueError(
                f"Expected no folders of images beside {train} but test or val, but got {beside[0].name!r}. If 'train' "
                "is a class, name it otherwise."
            )
    classes, test_classes = _classes(train), None if test is None else _classes(test)
    if not classes and test_classes:
        raise ValueError(f"Expected {train} and {test} of `root` to be alike, but only the second has folders.")
    if not classes and _images_in(train):
        parts = [_images_in(part) for part in (train, test) if part is not None]
        return Listing([file for part in parts for file in part], [], train_size=len(parts[0]), classes=[])
    if len(classes) < 2:
        raise ValueError(f"Expected `root` to have a folder for each of 2 classes or more, but {train} has {classes}.")
    if test_classes is not None and test_classes != classes:
        odd = sorted(set(classes) ^ set(test_classes))
        raise ValueError(f"Expected {train} and {test} of `root` to have the same classes, but they differ in {odd}.")
    found = [
        [(file, label) for label, name in enumerate(classes) for file in _images_in(part / name)]
        for part in (train, test)
        if part is not None
    ]
    files, labels = zip(*(pair for part in found for pair in part), strict=True)
    return Listing(list(files), list(labels), train_size=len(found[0]), classes=classes)


def _classes(folder: Path) -> list[str]:
    inside = [entry for entry in folder.iterdir() if not entry.name.startswith(".")]
    classes = sorted(entry.name for entry in inside if entry.is_dir())
    loose = [entry for entry in inside if entry.is_file() and entry.suffix.lower() in _ENDINGS]
    if loose and classes:
        raise ValueError(
            f"Expected `root` to have images or folders of images, but {folder} has {len(loose)} images beside the "
            f"folders {classes}."
        )
    return classes


def _images_in(folder: Path) -> list[Path]:
    files = sorted(_walked(folder))
    if lost := [file for file in files if not file.exists()]:
        raise ValueError(f"Expected `root` to have whole images only, but {lost[0]} links to a missing file.")
    if not files:
        raise ValueError(f"Expected `root` to have images, in every class if it has classes, but {folder} has none.")
    return files


def _folders(folder: Path) -> list[Path]:
    return sorted(entry for entry in folder.iterdir() if entry.is_dir() and not entry.name.startswith("."))


def _has_images(folder: Path) -> bool:
    return any(file.suffix.lower() in _ENDINGS for file in _walked(folder))


def _walked(folder: Path) -> Iterator[Path]:
    """Yield the files in a folder, also behind links to folders, but for hidden ones."""
    seen = set()
    for place, folders, files in os.walk(folder, followlinks=True):
        folders[:] = [name for name in folders if not name.startswith(".")]
        if (real := os.path.realpath(place)) in seen:  # a link to a folder above
            folders.clear()
            continue
        seen.add(real)
        yield from (Path(place, name) for name in files if not name.startswith("."))


def _decode_one(file: Path, size: int) -> Tensor:
    from torchvision.transforms.v2 import functional as transforms

    if file.suffix.lower() not in _ENDINGS:
        raise ValueError(f"its ending is none of {', '.join(_ENDINGS)}")
    image = read_rgb(file)
    if image.shape[1:] == (size, size):
        return image
    return transforms.center_crop(transforms.resize(image, [size], antialias=True), [size, size])
