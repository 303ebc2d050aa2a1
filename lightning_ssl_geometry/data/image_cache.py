"""Decode the images of a folder once, into one file that is memory-mapped during a run.

The file `x.npy` has the images, and `x.json` says how many of them are decoded. The images are written block by block.
So the memory holds one block, whatever the size of the data set, and a decoding that was ended goes on after its last
block.
"""

__all__ = ["Listing", "content_key", "mapped_images", "opened_image", "read_rgb"]

import json
import os
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.data.base import Images, Source
from lightning_ssl_geometry.data.tensor_cache import about_writing, key_of
from lightning_ssl_geometry.files import replacing

try:
    import fcntl
except ImportError:  # Windows has no such lock; two processes then decode the same images twice
    fcntl = None  # type: ignore[assignment]

_FORMATS = ("BMP", "GIF", "JPEG", "PNG", "PPM", "TIFF", "WEBP")
_BLOCK = 2**28  # bytes of images that are decoded before they are written
_SENT = 64  # images that a process decodes before it sends them
_MARK = 16  # bytes behind the images: a number of this file, which its record repeats


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


def mapped_images(
    path: Path,
    key: str,
    files: list[Path],
    *,
    size: int,
    decode_one: Callable[[Path], Tensor],
    workers: int,
    remedy: str,
) -> Tensor:
    """Return the images in the file `path`, memory-mapped: uint8 (M, 3, size, size) in the order of the M files.

    If the file is not there, or was not written with this `key`, the files are decoded, with a progress bar. If this
    was begun before, it goes on after the last block.

    Args:
        path: An `.npy` file. A `.json` file and a `.lock` file lie beside it.
        key: A result of :func:`content_key`.
        files: The images.
        size: Height and width of the decoded images.
        decode_one: Decodes a file to uint8 (3, size, size).
        workers: Number of processes that decode. 0: threads of this process, one for each CPU core.
        remedy: A sentence that ends the message of an OSError, if the file cannot be written.

    Raises:
        ValueError: If images cannot be decoded. It names up to five of them.
        OSError: If the file cannot be written.
    """
    shape = (len(files), 3, size, size)
    one = _Decode(decode_one, shape[1:])
    if _decoded(path, key, shape) < len(files):
        with about_writing(path, remedy):
            path.parent.mkdir(parents=True, exist_ok=True)
            locked = path.with_suffix(".lock").open("a")
        with locked, _alone(locked):
            begun = _decoded(path, key, shape)
            if begun < len(files):
                _decode(path, key, files, begun=begun, one=one, workers=workers, remedy=remedy)
        if _decoded(path, key, shape) < len(files):
            raise OSError(f"Expected {path} as it was written, but another process wrote other images there. {remedy}")
    return torch.from_numpy(np.load(path, mmap_mode="c"))


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


def _decoded(path: Path, key: str, shape: tuple[int, ...]) -> int:
    """The number of images in the file that are decoded; -1 if it was not written with this key."""
    try:
        record = json.loads(path.with_suffix(".json").read_text())
        if record["key"] != key or record["mark"] != _mark(path, shape):
            return -1
        return min(int(record["decoded"]), shape[0])
    except (OSError, ValueError, KeyError, TypeError):
        return -1


def _mark(path: Path, shape: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        found, _, _ = np.lib.format.read_array_header_1_0(file)
        if found != shape:
            raise ValueError("It has images of another shape.")
        file.seek(int(np.prod(shape)), os.SEEK_CUR)
        return file.read(_MARK).hex()


class _Decode:
    """Decodes a file to the bytes of its pixels and an empty text, or to zeros and the text of an error."""

    def __init__(self, decode_one: Callable[[Path], Tensor], shape: tuple[int, ...]) -> None:
        self.decode_one, self.shape = decode_one, shape

    def __call__(self, file: Path) -> tuple[bytes, str]:
        try:
            return _pixels(self.decode_one(file), self.shape), ""
        except Exception as error:  # for broken files, Pillow raises not only OSError
            return bytes(int(np.prod(self.shape))), f"{file} ({error})"


def _decode(path: Path, key: str, files: list[Path], *, begun: int, one: _Decode, workers: int, remedy: str) -> None:
    """Decode the files from number `begun` on; -1: into a new file."""
    from rich.progress import Progress

    shape = (len(files), *one.shape)
    bytes_of_one = int(np.prod(one.shape))
    at_once = max(_BLOCK // bytes_of_one, 1)
    bad: list[str] = []
    try:
        with about_writing(path, remedy):
            mark = _mark(path, shape) if begun >= 0 else _new(path, key, shape)
        begun = max(begun, 0)
        start = os.path.getsize(path) - _MARK - len(files) * bytes_of_one
        with Progress() as progress, _each(files[begun:], one, at_once=at_once, workers=workers) as results:
            bar = progress.add_task(f"Decoding {len(files)} images", total=len(files), completed=begun)
            for first in range(begun, len(files), at_once):
                block = []
                for pixels, error in islice(results, at_once):
                    block.append(pixels)
                    bad += [error] if error else []
                    progress.advance(bar)
                with about_writing(path, remedy):
                    _put(path, start + first * bytes_of_one, block)
                    if not bad:
                        _record(path, key, mark, decoded=first + len(block))
    except OSError:
        _remove(path)  # a full disk
        raise
    if bad:
        _remove(path)
        more = f", and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(f"Expected `root` to hold whole images only, but got {', '.join(sorted(bad)[:5])}{more}.")


@contextmanager
def _each(files: list[Path], one: _Decode, *, at_once: int, workers: int) -> Iterator[Iterator[tuple[bytes, str]]]:
    """Results of `one` in the order of the files, of which threads have `at_once` in memory."""
    if workers:
        drawn = torch.Generator()  # the loader draws from it, and not from the global random state
        loader: Any = DataLoader(_Files(files, one), _SENT, num_workers=workers, collate_fn=list, generator=drawn)
        yield (result for part in loader for result in part)
        return
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        blocks = (files[first : first + at_once] for first in range(0, len(files), at_once))
        yield (result for block in blocks for result in pool.map(one, block))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run does not wait for the other files


class _Files(Dataset[tuple[bytes, str]]):
    def __init__(self, files: Sequence[Path], one: _Decode) -> None:
        self.files, self.one = files, one

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> tuple[bytes, str]:
        return self.one(self.files[place])


def _pixels(image: Tensor, shape: tuple[int, ...]) -> bytes:
    if image.shape != shape or image.dtype != torch.uint8:
        raise ValueError(f"it is decoded to {tuple(image.shape)} of {image.dtype}, not to {shape} of uint8")
    return image.contiguous().numpy().tobytes()


def _put(path: Path, place: int, block: list[bytes]) -> None:
    """Write bytes at a place of the file, and wait until the disk has them."""
    with path.open("r+b") as file:
        file.seek(place)
        file.write(b"".join(block))
        file.flush()
        os.fsync(file.fileno())


def _new(path: Path, key: str, shape: tuple[int, ...]) -> str:
    """Make the file with room for the images, and return its mark. A process that maps the old file keeps it."""
    mark, beside = uuid4().bytes, path.with_name(f"{path.name}.{uuid4().hex}.part")
    try:
        with beside.open("xb") as file:
            header = {"descr": "|u1", "fortran_order": False, "shape": shape}
            np.lib.format.write_array_header_1_0(file, header)
            room = int(np.prod(shape))
            if hasattr(os, "posix_fallocate"):  # a disk that is too small is known now
                os.posix_fallocate(file.fileno(), file.tell(), room + _MARK)
            file.seek(room, os.SEEK_CUR)
            file.write(mark)
        os.replace(beside, path)
    finally:
        beside.unlink(missing_ok=True)
    _record(path, key, mark.hex(), decoded=0)
    return mark.hex()


def _record(path: Path, key: str, mark: str, *, decoded: int) -> None:
    with replacing(path.with_suffix(".json")) as file:
        file.write(json.dumps({"key": key, "mark": mark, "decoded": decoded}).encode())


def _remove(path: Path) -> None:
    for ending in (".json", path.suffix):
        path.with_suffix(ending).unlink(missing_ok=True)


@contextmanager
def _alone(file: Any) -> Iterator[None]:
    if fcntl is not None:
        fcntl.flock(file, fcntl.LOCK_EX)
    yield
