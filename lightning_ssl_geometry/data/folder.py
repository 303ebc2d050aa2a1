"""A folder of images, decoded once."""

__all__ = ["ImageFolderDataModule"]

from pathlib import Path
from typing import NamedTuple, Unpack

import torch
from torch import Tensor

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source, ViewSettings, random_split
from lightning_ssl_geometry.data.image_cache import content_key, decode_files, mapped_images, read_rgb
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolderDataModule(ImageDataModule):
    """Images in `root/train/<class>/*` and `root/test/<class>/*`, or in `root/<class>/*`; without labels, in `root/*`.

    Every image is decoded once, its short side resized to `image_size` and its centre cropped, with a progress bar,
    into one file (`.ssl_geometry-<image_size>.pt`) that every run maps into memory. A changed folder is decoded
    anew.

    Args:
        root: The folder. Without `train` in it, its folders are the classes; a folder that has images and no folders
            has no labels. A folder `val` stands for `test` where
            there is none of that name, and is left alone where there is; without both, the test set is chosen by
            seed.
        image_size: Height and width of the images in pixels.
        batch_size: Samples per process.
        test_fraction: Fraction held out as the test set where the folder has none, in (0, 1]. 1: all images are the
            test set, for a network that is only looked at; `mean` and `std` are then theirs.
        cache: Folder of the decoded file, one for each data set; None: `root` itself.
        **settings: Those of :class:`ImageDataModule`: `views`, `val_fraction`, `subset`, `channels` (images are
            decoded as colour), `seed`, by which the test set is drawn too, `drop_last`.

    Raises:
        ValueError: As :class:`ImageDataModule`; if the folder has no images, has one class, holds a file that is no
            whole image of 8 bits, or its parts differ in their classes.
        FileNotFoundError: If `root` does not exist.
        OSError: If the decoded file cannot be written, before anything is decoded where that shows.
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
        test_fraction: float = 0.2,
        cache: str | None = None,
        **settings: Unpack[ViewSettings],
    ) -> None:
        super().__init__(batch_size, image_size=None, **settings)
        if image_size < 1:
            raise ValueError(f"Expected `image_size` >= 1, but got {image_size}.")
        if not 0 < test_fraction <= 1:
            raise ValueError(f"Expected `test_fraction` in (0, 1], but got {test_fraction}.")
        if test_fraction == 1 and settings.get("subset") is not None:
            raise ValueError(
                f"Expected `subset` None with `test_fraction=1`, which leaves nothing for training, but got "
                f"{settings['subset']}."
            )
        self.root = Path(root)
        self.image_size = image_size
        self.test_fraction = test_fraction
        self.cache = Path(cache) if cache is not None else self.root

    def prepare_data(self) -> None:
        """Decode the images, on one process, if that was not done before."""
        self._decoded()

    def load(self) -> Source:
        """Map the decoded images into memory, and choose a test set where the folder has none."""
        listing, image = self._decoded()
        label, cut = torch.tensor(listing.label) if listing.classes else None, listing.train_size
        if cut < len(image):
            train_label, test_label = (None, None) if label is None else (label[:cut], label[cut:])
            return Source(Images(image[:cut], train_label), Images(image[cut:], test_label), listing.classes)
        if self.test_fraction == 1:
            train, test = torch.arange(0), torch.arange(len(image))
        else:
            train, test = random_split(len(image), self.test_fraction, self.seed)
        return Source(Images(image, label, rows=train), Images(image, label, rows=test), listing.classes)

    def _decoded(self) -> tuple["_Listing", Tensor]:
        listing = _list(self.root)
        key = content_key(self.root, listing.files, self.image_size, listing.train_size, listing.classes)
        path = self.cache / f".ssl_geometry-{self.image_size}.pt"
        remedy = "Name another folder as `cache`."
        return listing, mapped_images(path, key, lambda: _decode(listing.files, self.image_size), remedy)


class _Listing(NamedTuple):
    """Files, those for training first, with their labels; no classes: no labels."""

    files: list[Path]
    label: list[int]
    train_size: int
    classes: list[str]


def _list(root: Path) -> _Listing:
    if not root.is_dir():
        raise FileNotFoundError(f"Expected `root` to be a folder of images, but there is none at {root}.")
    train, test = root, None
    if (root / "train").is_dir():
        train = root / "train"
        test = next((part for part in (root / "test", root / "val") if part.is_dir()), None)
    for part in (train, test):
        if part is not None:
            _check_apart(part)
    classes = _folders(train)
    if not classes and test is not None and _folders(test):
        raise ValueError(f"Expected {train} and {test} of `root` to be alike, but only the second has folders.")
    if not classes and _images_in(train):
        parts = [_images_in(part) for part in (train, test) if part is not None]
        return _Listing([file for part in parts for file in part], [], len(parts[0]), [])
    if len(classes) < 2:
        raise ValueError(f"Expected `root` to have a folder for each of 2 classes or more, but {train} has {classes}.")
    if test is not None and _folders(test) != classes:
        odd = sorted(set(classes) ^ set(_folders(test)))
        raise ValueError(f"Expected {train} and {test} of `root` to have the same classes, but they differ in {odd}.")
    found = [
        [(file, label) for label, name in enumerate(classes) for file in _images_in(part / name)]
        for part in (train, test)
        if part is not None
    ]
    files, labels = zip(*(pair for part in found for pair in part), strict=True)
    return _Listing(list(files), list(labels), len(found[0]), classes)


def _check_apart(folder: Path) -> None:
    """Images beside folders would have no class."""
    loose = [f for f in folder.iterdir() if f.is_file() and f.suffix.lower() in _ENDINGS and not f.name.startswith(".")]
    if loose and (classes := _folders(folder)):
        raise ValueError(
            f"Expected `root` to have images or folders of images, but {folder} has {len(loose)} images beside the "
            f"folders {classes}."
        )


def _folders(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))


def _images_in(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
    if not files:
        raise ValueError(f"Expected `root` to have images, in every class if it has classes, but {folder} has none.")
    return files


def _decode(files: list[Path], size: int) -> Tensor:
    return decode_files(files, size, lambda file: _decode_one(file, size))


def _decode_one(file: Path, size: int) -> Tensor:
    from torchvision.transforms.v2 import functional as transforms

    if file.suffix.lower() not in _ENDINGS:
        raise ValueError(f"its ending is none of {', '.join(_ENDINGS)}")
    image = read_rgb(file)
    if image.shape[1:] == (size, size):
        return image
    return transforms.center_crop(transforms.resize(image, [size], antialias=True), [size, size])
