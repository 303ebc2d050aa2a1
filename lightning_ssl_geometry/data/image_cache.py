"""Decode images once, and save them in one file that is memory-mapped during a run."""

__all__ = [
    "Listing",
    "content_key",
    "decode_files",
    "key_of",
    "mapped_images",
    "mapped_tensors",
    "opened_image",
    "read_rgb",
]

import hashlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor

from lightning_ssl_geometry.data.base import Images, Source

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_FORMAT = 1  # of the decoded file; with another number, every folder is decoded again


class Listing(NamedTuple):
    """The image files of a data set, training files first. If there are no classes, `label` is empty."""

    files: list[Path]
    label: list[int]
    train_size: int
    classes: list[str]

    def source(self, image: Tensor) -> Source:
        """Make the training set and the test set from the decoded images (M, C, H, W), one per file."""
        cut, label = self.train_size, torch.tensor(self.label) if self.classes else None
        train, test = (None, None) if label is None else (label[:cut], label[cut:])
        return Source(Images(image[:cut], train), Images(image[cut:], test), self.classes)


def content_key(root: Path, files: list[Path], *also: Any) -> str:
    """Return a hash of the relative paths, sizes and modification times of files, and of all values in `also`."""
    shown = [[str(file.relative_to(root)), (stat := file.stat()).st_size, stat.st_mtime_ns] for file in files]
    return key_of(*also, shown)


def key_of(*values: Any) -> str:
    """Return a hash of values that JSON can write, and of the format of the decoded file."""
    return hashlib.sha256(json.dumps([_FORMAT, *values]).encode()).hexdigest()


def mapped_images(path: Path, key: str, decode: Callable[[], Tensor], remedy: str) -> Tensor:
    """Return the images in the file `path`, memory-mapped. If the file was not written with this `key`, write it first.

    `key` is a result of :func:`content_key`. `decode` returns the M images, uint8 (M, C, H, W). If the file cannot be
    written, an OSError is raised, and its message ends with `remedy`.
    """
    return _mapped(path, key, lambda: {"image": decode()}, remedy=remedy)["image"]


def mapped_tensors(path: Path, key: str, make: Callable[[], dict[str, Tensor]], remedy: str) -> dict[str, Tensor]:
    """Return the tensors in the file `path`, memory-mapped. If it was not written with this `key`, write it first.

    `key` is a result of :func:`key_of`. `make` returns the tensors. An OSError is raised if the file cannot be written,
    or if a file is there that this function did not write. The message ends with `remedy`.
    """
    if os.path.lexists(path) and not _is_decoded(path):
        raise FileExistsError(
            f"Expected {path} to be a file of decoded samples, which may be replaced, but another or a broken file is "
            f"there. {remedy} If you do not need the file, delete it."
        )
    return _mapped(path, key, make, remedy=remedy)


def decode_files(files: list[Path], size: int, decode_one: Callable[[Path], Tensor]) -> Tensor:
    """Decode M files on all CPU cores. Return uint8 (M, 3, size, size) in the order of the files.

    `decode_one` decodes a file to uint8 (3, size, size). If it fails for some files, a ValueError names up to five of
    them.
    """
    from rich.progress import track

    image = torch.empty(len(files), 3, size, size, dtype=torch.uint8)
    bad: list[str] = []

    def decode(place: int) -> None:
        try:
            image[place] = decode_one(files[place])
        except Exception as error:  # for broken files, Pillow raises not only OSError
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


def opened_image(file: Path) -> Any:
    """Open an image with Pillow, without its pixels. Only formats that Pillow decodes itself are read.

    Pillow tells the format from the contents. It would start another program, Ghostscript, for a file of PostScript,
    whatever the ending of its name.
    """
    from PIL import Image

    return Image.open(file, formats=_FORMATS)


def read_rgb(file: Path) -> Tensor:
    """Read an image as uint8 (3, H, W). Raise a ValueError if it has more than 8 bits per channel."""
    import numpy as np

    with opened_image(file) as opened:
        if opened.mode[0] in "IF":
            raise ValueError(f"its mode is {opened.mode!r}, not 8 bits per channel")
        return torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)


def _mapped(path: Path, key: str, make: Callable[[], dict[str, Tensor]], remedy: str) -> dict[str, Tensor]:
    if (found := _load(path, key)) is None:
        _write(path, key, make, remedy=remedy)
        found = _load(path, key)
    if found is None:
        raise OSError(f"Expected {path} as it was written, but another process wrote other samples there. {remedy}")
    return found


def _is_decoded(path: Path) -> bool:
    return path.is_file() and (not path.stat().st_size or isinstance(_held(path).get("key"), str))


def _load(path: Path, key: str) -> dict[str, Tensor] | None:
    decoded = _held(path)
    return decoded if decoded.pop("key", None) == key else None


def _held(path: Path) -> dict[str, Any]:
    if not path.is_file():
        return {}
    try:
        held = torch.load(path, weights_only=True, mmap=True)
    except Exception:  # a broken file may raise anything, even a TypeError
        return {}
    return held if isinstance(held, dict) else {}


def _write(path: Path, key: str, make: Callable[[], dict[str, Tensor]], *, remedy: str) -> None:
    part = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        with _about_writing(path, remedy):
            path.parent.mkdir(parents=True, exist_ok=True)
            part.touch()  # fails before the images are decoded
        made = make()  # its errors are those of the data set
        with _about_writing(path, remedy):
            torch.save({"key": key} | made, part)
            part.replace(path)
    finally:
        with suppress(NotADirectoryError):
            part.unlink(missing_ok=True)


@contextmanager
def _about_writing(path: Path, remedy: str) -> Iterator[None]:
    try:
        yield
    except (OSError, RuntimeError) as error:  # torch.save raises RuntimeError where the disk is full
        raise OSError(f"Expected to write the decoded images to {path}, but got: {error}. {remedy}") from error
