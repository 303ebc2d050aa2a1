"""A folder of images, decoded once."""

__all__ = ["ImageFolderDataModule"]

import hashlib
import json
import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.data.base import ImageDataModule, Images, Source

_ENDINGS = (".bmp", ".jpeg", ".jpg", ".pgm", ".png", ".ppm", ".tif", ".tiff", ".webp")


class ImageFolderDataModule(ImageDataModule):
    """Images in `root/train/<class>/*` and `root/test/<class>/*`, or in `root/<class>/*`.

    Every image is decoded once, its short side resized to `image_size` and its centre cropped, with a progress bar,
    into one file (`.ssl_geometry-<image_size>.pt`) that later runs map into memory. A changed folder is decoded
    anew.

    Args:
        root: The folder. Without `train` in it, its folders are the classes and the test set is chosen by seed; a
            folder `val` stands for `test` where there is none of that name.
        image_size: Height and width of the images in pixels.
        batch_size: As in :class:`ImageDataModule`.
        views: As in :class:`ImageDataModule`.
        val_fraction: As in :class:`ImageDataModule`.
        subset: As in :class:`ImageDataModule`.
        channels: As in :class:`ImageDataModule`; images are decoded as colour.
        seed: As in :class:`ImageDataModule`.
        drop_last: As in :class:`ImageDataModule`.
        test_fraction: Fraction held out as the test set where the folder has none, in (0, 1).
        cache: Folder of the decoded file; None: `root` itself.

    Raises:
        ValueError: As :class:`ImageDataModule`; if the folder is empty, has one class, holds a file that is no
            whole image, or its parts differ in their classes.
        FileNotFoundError: If `root` does not exist.
        PermissionError: If the decoded file cannot be written.
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
        """Map the decoded images into memory, and split off a test set where the folder has none."""
        decoded = self._decoded()
        names, image, label, is_test = (decoded[key] for key in ("classes", "image", "label", "test"))
        if not is_test.any():
            order = torch.randperm(len(label), generator=torch.Generator().manual_seed(self.seed))
            is_test[order[: round(self.test_fraction * len(label))]] = True
        cut = int((~is_test).sum())
        if is_test[:cut].any():  # else the parts lie behind one another, and are slices
            train, test = image[~is_test], image[is_test]
        else:
            train, test = image[:cut], image[cut:]
        return Source(Images(train, label[~is_test]), Images(test, label[is_test]), names)

    def _decoded(self) -> dict:
        files, classes = self._files()
        shown = [[str(f.relative_to(self.root)), f.stat().st_size, f.stat().st_mtime_ns] for f, _, _ in files]
        key = hashlib.sha256(json.dumps([self.image_size, shown]).encode()).hexdigest()
        path = self.cache / f".ssl_geometry-{self.image_size}.pt"
        if path.exists():
            decoded = torch.load(path, weights_only=True, mmap=True)
            if decoded.get("key") == key:
                return decoded | {"test": decoded["test"].clone()}
        image = _decode([file for file, _, _ in files], self.image_size)
        decoded = {
            "key": key,
            "classes": classes,
            "image": image,
            "label": torch.tensor([label for _, label, _ in files]),
            "test": torch.tensor([is_test for _, _, is_test in files]),
        }
        _save(decoded, path)
        return decoded

    def _files(self) -> tuple[list[tuple[Path, int, bool]], list[str]]:
        """List (file, label, whether it is of the test set), training files first, and the names of the classes."""
        if not self.root.is_dir():
            raise FileNotFoundError(f"Expected `root` to be a folder of images, but there is none at {self.root}.")
        parts = {name: self.root / name for name in ("train", "test", "val") if (self.root / name).is_dir()}
        if "train" not in parts:
            train, test = self.root, None
        else:
            train, test = parts["train"], parts.get("test", parts.get("val"))
        classes = _folders(train)
        if len(classes) < 2:
            raise ValueError(
                f"Expected `root` to have a folder for each of 2 classes or more, but {train} has {classes}."
            )
        if test is not None and _folders(test) != classes:
            odd = sorted(set(classes) ^ set(_folders(test)))
            raise ValueError(
                f"Expected {train} and {test} of `root` to have the same classes, but they differ in {odd}."
            )
        files = [(file, label, False) for label, name in enumerate(classes) for file in _images_in(train / name)]
        if test is not None:
            files += [(file, label, True) for label, name in enumerate(classes) for file in _images_in(test / name)]
        return files, classes


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
        except (OSError, SyntaxError) as error:  # what Pillow raises for a file that is no whole image
            bad.append(f"{files[place]} ({error})")

    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        for _ in track(pool.map(decode, range(len(files))), f"Decoding {len(files)} images", len(files)):
            pass
    if bad:
        more = f", and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(f"Expected `root` to hold whole images only, but got {', '.join(sorted(bad)[:5])}{more}.")
    return image


def _decode_one(file: Path, size: int) -> Tensor:
    import numpy as np
    from PIL import Image
    from torchvision.transforms.v2 import functional as transforms

    if file.suffix.lower() not in _ENDINGS:
        raise OSError(f"its ending is none of {', '.join(_ENDINGS)}")
    with Image.open(file) as opened:
        image = torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)
    if image.shape[1:] == (size, size):
        return image
    return transforms.center_crop(transforms.resize(image, [size], antialias=True), [size, size])


def _save(decoded: dict, path: Path) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        torch.save(decoded, part)
        os.replace(part, path)
    except OSError as error:
        raise PermissionError(
            f"Expected to write the decoded images to {path}, but got: {error}. Name another folder as `cache`."
        ) from error
