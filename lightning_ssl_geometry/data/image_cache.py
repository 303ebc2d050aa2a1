"""Decode the images of a folder once, into one file that is memory-mapped during a run.

The file `x.npy` has the images, and `x.json` says how many of them are decoded. Each thread or process writes an image
to its place as soon as it is decoded. So the memory holds an image for each of them, whatever the size of the data set.
After each block the disk has the images and the record, and a decoding that was ended goes on after its last block.
"""

__all__ = ["Listing", "content_key", "mapped_images", "opened_image", "read_rgb"]

import ctypes
import json
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import numpy as np
import torch
from lightning.pytorch.utilities import rank_zero_info
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
_BLOCK = 2**25  # bytes of images that are decoded before the disk has them
_SENT = 64  # images that a process decodes before it says so
_QUEUED = 4096  # images that threads have before them
_ERROR = 300  # characters; a pipe must hold the errors of `_SENT` images, or a process does not end with its parent
_PDEATHSIG = 1  # of Linux's prctl: the signal that a process gets when its parent ends
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
        return Source(
            Images(image[:cut], train, is_mapped=True), Images(image[cut:], test, is_mapped=True), self.classes
        )


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
        ValueError: If images cannot be decoded. It names up to five of them. Or if this is a daemonic process, and
            `workers` is not 0.
        OSError: If the file cannot be written.
        RuntimeError: If one of the `workers` is ended from outside, or if their start runs this again.
    """
    shape = (len(files), 3, size, size)
    if _decoded(path, key, shape) < len(files):
        if workers:
            _refuse_within_process(workers)
        with about_writing(path, remedy):
            path.parent.mkdir(parents=True, exist_ok=True)
            locked = path.with_suffix(".lock").open("a")
        with locked, _alone(locked, path):
            begun = _decoded(path, key, shape)
            if begun < len(files):
                _decode(path, key, files, shape=shape, begun=begun, one=decode_one, workers=workers, remedy=remedy)
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


def is_deep(image: Any) -> bool:
    """Whether an image of Pillow has more than 8 bits per channel. In colour, only a file that is not yet read says so.

    Pillow reads a colour of 16 bits without a word as one of 8 bits.
    """
    if image.mode[0] in "IF":
        return True
    for decoder, _, _, given in getattr(image, "tile", ()):
        settings = given if isinstance(given, tuple) else (given,)
        if any(isinstance(each, str) and ";16" in each for each in settings):
            return True
        if decoder.startswith("ppm") and any(isinstance(each, int) and each > 255 for each in settings):
            return True
    return False


def read_rgb(file: Path) -> Tensor:
    """Read an image as uint8 (3, H, W). Raise a ValueError if it has more than 8 bits per channel."""
    import numpy as np

    with opened_image(file) as opened:
        if is_deep(opened):
            raise ValueError(f"it has more than 8 bits per channel (Pillow's mode is {opened.mode!r})")
        return torch.from_numpy(np.array(opened.convert("RGB"))).permute(2, 0, 1)


def _decoded(path: Path, key: str, shape: tuple[int, ...]) -> int:
    """The number of images in the file that are decoded; -1 if it was not written with this key."""
    try:
        record = json.loads(path.with_suffix(".json").read_text())
        if record["key"] != key or record["mark"] != _mark(path, shape):
            return -1
        return min(int(record["decoded"]), shape[0])
    except (OSError, ValueError, KeyError, TypeError, OverflowError):
        return -1


def _mark(path: Path, shape: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        np.lib.format.read_magic(file)
        found, _, _ = np.lib.format.read_array_header_1_0(file)
        if found != shape:
            raise ValueError("It has images of another shape.")
        file.seek(int(np.prod(shape)), os.SEEK_CUR)
        return file.read(_MARK).hex()


class _Decode(Dataset[str]):
    """Decodes a file, and writes it to its place in `path`. Returns an empty text, or the text of an error.

    Raises an OSError if it cannot be written, or if `path` is no longer the file with this `mark`.
    """

    def __init__(
        self,
        decode_one: Callable[[Path], Tensor],
        files: Sequence[Path],
        path: Path,
        *,
        mark: str,
        shape: tuple[int, ...],
        remedy: str,
    ) -> None:
        self.decode_one, self.files, self.path, self.mark, self.shape = decode_one, files, path, mark, shape
        self.remedy = remedy
        self.start = os.path.getsize(path) - _MARK - int(np.prod(shape))

    def __len__(self) -> int:
        return len(self.files)

    def __getitem__(self, place: int) -> str:
        file = self.files[place]
        try:
            pixels = _pixels(self.decode_one(file), self.shape[1:])
        except Exception as error:  # for broken files, Pillow raises not only OSError
            return f"{file} ({error})"[:_ERROR]
        with about_writing(self.path, self.remedy), self.path.open("r+b") as opened:
            opened.seek(-_MARK, os.SEEK_END)
            if opened.read(_MARK).hex() != self.mark:
                raise OSError("another process has begun a file of this name")
            opened.seek(self.start + place * len(pixels))
            opened.write(pixels)
        return ""


def _decode(
    path: Path,
    key: str,
    files: list[Path],
    *,
    shape: tuple[int, ...],
    begun: int,
    one: Callable[[Path], Tensor],
    workers: int,
    remedy: str,
) -> None:
    """Decode the files from number `begun` on; -1: into a new file."""
    from rich.progress import Progress

    at_once = max(_BLOCK // int(np.prod(shape[1:])), 1)
    bad: list[str] = []
    try:
        with about_writing(path, remedy):
            mark = _mark(path, shape) if begun >= 0 else _new(path, key, shape)
        begun = max(begun, 0)
        decode = _Decode(one, files, path, mark=mark, shape=shape, remedy=remedy)
        places = range(begun, len(files))
        with Progress() as progress, _each(decode, places, workers=workers) as results:
            bar = progress.add_task(f"Decoding {len(files)} images", total=len(files), completed=begun)
            for first in range(begun, len(files), at_once):
                for error in islice(results, at_once):
                    bad += [error] if error else []
                    progress.advance(bar)
                with about_writing(path, remedy):
                    _synchronize(path)
                    if not bad:
                        _record(path, key, mark, decoded=min(first + at_once, len(files)))
    except OSError:
        if _decoded(path, key, shape) >= 0:  # otherwise it is not ours
            _remove(path)  # a full disk
        raise
    if bad:
        _remove(path)
        more = f", and {len(bad) - 5} more" if len(bad) > 5 else ""
        raise ValueError(f"Expected `root` to hold whole images only, but got {', '.join(sorted(bad)[:5])}{more}.")


@contextmanager
def _each(decode: _Decode, places: range, *, workers: int) -> Iterator[Iterator[str]]:
    """Results of `decode` for these places, in their order."""
    if workers:
        yield _by_processes(decode, places, workers=min(workers, -(-len(places) // _SENT)))
        return
    pool = ThreadPoolExecutor(max_workers=os.cpu_count())
    try:
        blocks = (places[first : first + _QUEUED] for first in range(0, len(places), _QUEUED))
        yield (result for block in blocks for result in pool.map(decode.__getitem__, block))
    finally:
        pool.shutdown(cancel_futures=True)  # an interrupted run does not wait for the other files


def _by_processes(decode: _Decode, places: range, *, workers: int) -> Iterator[str]:
    drawn = torch.Generator()  # the loader draws from it, and not from the global random state
    loader: Any = DataLoader(
        decode,
        _SENT,
        sampler=places,
        num_workers=workers,
        collate_fn=list,
        generator=drawn,
        worker_init_fn=_end_with_parent,
    )
    try:
        for part in loader:
            yield from part
    except RuntimeError as error:
        if "exited unexpectedly" not in str(error):
            raise
        raise RuntimeError(
            f"A process that decodes images into {decode.path} ended: {error}. If it had an error of its own, this is "
            "printed above; otherwise the system may have ended it for lack of memory. Start again to go on after the "
            "last block, if need be with fewer `workers`."
        ) from error


def _end_with_parent(_: int) -> None:
    """Let this process end when its parent is killed.

    The DataLoader sees to this only from a moment on at which its process has started. `is_alive` is true for a parent
    that has ended as long as another process that it forked is there. So the parent's number is compared, too. Behind a
    forkserver it is another one: there, the server is the parent.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PDEATHSIG, signal.SIGKILL)
    parent = multiprocessing.parent_process()
    forked = multiprocessing.get_start_method() != "forkserver"
    if parent is not None and (not parent.is_alive() or (forked and os.getppid() != parent.pid)):
        os._exit(1)


def _pixels(image: Tensor, shape: tuple[int, ...]) -> bytes:
    if image.shape != shape or image.dtype != torch.uint8:
        raise ValueError(f"it is decoded to {tuple(image.shape)} of {image.dtype}, not to {shape} of uint8")
    return image.contiguous().numpy().tobytes()


def _synchronize(path: Path) -> None:
    """Wait until the disk has what this and other processes wrote to the file."""
    with path.open("r+b") as file:
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
    try:
        _record(path, key, mark.hex(), decoded=0)
    except OSError:
        _remove(path)
        raise
    return mark.hex()


def _record(path: Path, key: str, mark: str, *, decoded: int) -> None:
    with replacing(path.with_suffix(".json")) as file:
        file.write(json.dumps({"key": key, "mark": mark, "decoded": decoded}).encode())


def _remove(path: Path) -> None:
    for ending in (".json", path.suffix):
        with suppress(OSError):  # such as a folder of this name, of which the error told
            path.with_suffix(ending).unlink(missing_ok=True)


def _refuse_within_process(workers: int) -> None:
    process = multiprocessing.current_process()
    if getattr(process, "_inheriting", False):  # of multiprocessing: the main module is imported again
        raise RuntimeError(
            f"Expected the script to begin its work below `if __name__ == '__main__':`, because each of the {workers} "
            "`workers` that decode images imports the script first. Without this line, set `workers` to 0."
        )
    if process.daemon:
        raise ValueError(
            f"Expected `workers` 0 in a daemonic process, which can have no processes of its own, but got {workers}."
        )


@contextmanager
def _alone(file: Any, path: Path) -> Iterator[None]:
    if fcntl is not None:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            rank_zero_info(f"Waiting for another process, which decodes images into {path}.")
            fcntl.flock(file, fcntl.LOCK_EX)
    yield
