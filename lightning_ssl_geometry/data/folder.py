"""A folder of images, decoded once."""

__all__ = ["ImageFolderDataModule"]

import hashlib
import json
import os
import pickle
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source, random_split

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")
_FORMAT = 1  # of the decoded file: another number has every folder decoded anew


class ImageFolderDataModule(ImageDataModule):
    """Images in `root/train/<class>/*` and `root/test/<class>/*`, or in `root/<class>/*`.

    Every image is decoded once, its short side resized to `image_size` and its centre cropped, with a progress bar,
    into one file (`.ssl_geometry-<image_size>.pt`) that every run maps into memory. A changed folder is decoded
    anew.

    Args:
        root: The folder. Without `train` in it, its folders are the classes. A folder `val` stands for `test` where
            there is none of that name, and is left alone where there is; without both, the test set is chosen by
            seed.
        image_size: Height and width of the images in pixels.
        batch_size: Samples per process.
        views: Called with (image, index, epoch, mean, std); SimCLR's large views by default.
        val_fraction: Fraction of the training set that is held out for validation, in [0, 1).
        subset: Number of training samples to use, chosen by seed before the split; None: all.
        channels: 1 turns colour into grey; None or 3 leaves it: images are decoded as colour.
        seed: Of test set, subset, split and order.
        drop_last: Leave out the training samples that do not fill a batch.
        test_fraction: Fraction held out as the test set where the folder has none, in (0, 1).
        cache: Folder of the decoded file, one for each data set; None: `root` itself.

    Raises:
        ValueError: As :class:`ImageDataModule`; if the folder is empty, has one class, holds a file that is no
            whole image of 8 bits, or its parts differ in their classes.
        FileNotFoundError: If `root` does not exist.
        OSError: If the decoded file cannot be written, before anything is decoded where that shows.
    """

    def __init__(
        self,
        root: str,
        image_size: int,
        batch_size: int = 256,
        views: nn.Module | None = None,
        val_fraction: float = 0.1,
        subset: int | None = None,
        channels: int | None = None,
        seed: int = 0,
        drop_last: bool = True,
        test_fraction: float = 0.2,
        cache: str | None = None,
    ) -> None:
        super().__init__(batch_size, views, val_fraction, subset, channels, seed, drop_last)
        if image_size < 1:
            raise ValueError(f"Expected `image_size` >= 1, but got {image_size}.")
        if not 0 < test_fraction < 1:
            raise ValueError(f"Expected `test_fraction` in (0, 1), but got {test_fraction}.")
        self.root = Path(root)
        self.image_size = image_size
        self.test_fraction = test_fraction
        self.cache = Path(cache) if cache is not None else self.root

    def prepare_data(self) -> None:
        """Decode the images, on one process, if that was not done before."""
        self._decoded()

    def load(self) -> Source:
        """Map the decoded images into memory, and choose a test set where the folder has none."""
        decoded = self._decoded()
        names, image, label, cut = (decoded[key] for key in ("classes", "image", "label", "train_size"))
        if cut < len(label):
            return Source(Images(image[:cut], label[:cut]), Images(image[cut:], label[cut:]), names)
        train, test = random_split(label, self.test_fraction, self.seed)
        return Source(Images(image, label, rows=train), Images(image, label, rows=test), names)

    def _decoded(self) -> dict[str, Any]:
        listing = _list(self.root)
        shown = [[str(f.relative_to(self.root)), f.stat().st_size, f.stat().st_mtime_ns] for f in listing.files]
        content = [_FORMAT, self.image_size, listing.train_size, listing.classes, shown]
        key = hashlib.sha256(json.dumps(content).encode()).hexdigest()
        path = self.cache / f".ssl_geometry-{self.image_size}.pt"
        if (decoded := _load(path, key)) is None:
            _write(listing, self.image_size, key, path)
            decoded = _load(path, key)
        assert decoded is not None, "another process decoded another version of the folder meanwhile"
        return decoded


class _Listing(NamedTuple):
    """Files, those for training first, with their labels."""

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
    classes = _folders(train)
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


def _folders(folder: Path) -> list[str]:
    return sorted(f.name for f in folder.iterdir() if f.is_dir() and not f.name.startswith("."))


def _images_in(folder: Path) -> list[Path]:
    files = sorted(f for f in folder.rglob("*") if f.is_file() and not f.name.startswith("."))
    if not files:
        raise ValueError(f"Expected `root` to have images in every class, but {folder} is empty.")
    return files


def _decode(files: list[Path], size: int) -> Tensor:
    from rich.progress import track

    image = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    bad: list[str] = []

    def decode(place: int) -> None:
        try:
            image[place] = _decode_one(files[place], size)
        except Exception as error:  # for a broken file, Pillow raises much besides OSError
            bad.append(f"{files[place]} ({error})")

    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        for _ in track(pool.map(decode, range(len(files))), f"Decoding {len(files)} images", len(files)):
            pass
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run does not wait for the other files
    if bad:
        more = f", and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(f"Expected `root` to hold whole images only, but got {', '.join(sorted(bad)[:5])}{more}.")
    return image


def _decode_one(file: Path, size: int) -> Tensor:
    import numpy as np
    from PIL import Image
    from torchvision.transforms.v2 import functional as transforms

    if file.suffix.lower() not in _ENDINGS:
        raise ValueError(f"its ending is none of {', '.join(_ENDINGS)}")
    with Image.open(file) as opened:
        if opened.mode[0] in "IF":
            raise ValueError(f"its mode is {opened.mode!r}, not 8 bits per channel")
        image = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)
    if image.shape[1:] == (size, size):
        return image
    return transforms.center_crop(transforms.resize(image, [size], antialias=True), [size, size])


def _load(path: Path, key: str) -> dict[str, Any] | None:
    """Map a decoded file into memory; None if there is none, or not of this key, or not whole."""
    if not path.is_file():
        return None
    try:
        decoded = torch.load(path, weights_only=True, mmap=True)
    except (OSError, RuntimeError, EOFError, pickle.UnpicklingError):
        return None
    return decoded if isinstance(decoded, dict) and decoded.get("key") == key else None


def _write(listing: _Listing, size: int, key: str, path: Path) -> None:
    """Decode, and put the file in place when it is whole."""
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        part.touch()  # fails before the images were decoded
        decoded = {"key": key, "classes": listing.classes, "train_size": listing.train_size}
        torch.save(decoded | {"image": _decode(listing.files, size), "label": torch.tensor(listing.label)}, part)
        part.replace(path)
    except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError where the disk is full
        raise OSError(
            f"Expected to write the decoded images to {path}, but got: {error}. Name another folder as `cache`."
        ) from error
    finally:
        part.unlink(missing_ok=True)
