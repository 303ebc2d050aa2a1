"""TinyImageNetDataModule, which decodes the images of Tiny ImageNet only once."""

__all__ = ["TinyImageNetDataModule"]

import errno
import shutil
import stat
import zlib
from collections import Counter
from http.client import HTTPException
from pathlib import Path, PureWindowsPath
from tempfile import TemporaryDirectory
from typing import IO, Any, Unpack
from urllib.error import HTTPError
from urllib.request import Request, urlopen
from zipfile import BadZipFile, ZipFile, ZipInfo

from torch import Tensor

from lightning_ssl_geometry.checks import integer
from lightning_ssl_geometry.data.base import Source
from lightning_ssl_geometry.data.image_cache import Listing, content_key, mapped_images, read_rgb
from lightning_ssl_geometry.data.torchvision_files import LATE, TorchvisionDataModule, TorchvisionSettings
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.settings import passed_on

_FOLDER = "tiny-imagenet-200"
_SIZE = 64
_MOST = 1 << 30  # bytes of the unpacked archive, which has 248 million: images in JPEG hardly shrink


class TinyImageNetDataModule(TorchvisionDataModule):
    """Tiny ImageNet: 100,000 training and 10,000 test images in colour, 64 x 64 pixels, 200 classes.

    `root` contains the published folder `tiny-imagenet-200`. The published test set has no labels. Therefore the test
    set here is the published validation set. The fraction `val_fraction` of the training set is for validation. Labels
    are in the order of the WordNet identifiers. A class name is the first word of its line in `words.txt`. All images
    are decoded once into the file `tiny-imagenet-200/.ssl_geometry-64.npy` (1.4 GB). An interrupted download is
    continued, and the archive is kept.

    Args:
        root: The folder that contains the folder of the data set, as in torchvision.
        batch_size: Samples per process.
        workers: Number of processes that decode the images. 0: threads of the process of the run, one for each CPU
            core. Where Python spawns processes (macOS, Windows, and Linux from Python 3.14 on), the script has to begin
            its work below `if __name__ == "__main__":`.
        **settings: `download` and all further arguments of :class:`TorchvisionDataModule`.

    Raises:
        ValueError: If a setting is out of range, if the archive has a wrong checksum or a file outside its folder, or
            if images, annotations and identifiers contradict each other.
        FileNotFoundError: If the folder or one of its files is missing.
        OSError: If the download fails, or the decoded file cannot be written.
    """

    url = "http://cs231n.stanford.edu/tiny-imagenet-200.zip"
    md5 = "90528d7ca1a48142e341f4ef8d21d0de"

    @by_position(*LATE)
    @passed_on
    def __init__(
        self,
        root: str = "data",
        batch_size: int = 256,
        *,
        workers: int = 0,
        **settings: Unpack[TorchvisionSettings],
    ) -> None:
        super().__init__(root, batch_size, **settings)
        integer(0, workers=workers)
        self.workers = workers

    def prepare_data(self) -> None:
        """Download the files if `download` is true, and decode the images if necessary."""
        super().prepare_data()
        self._decoded()

    def fetch(self) -> None:
        root = Path(self.root)
        if not (root / _FOLDER).is_dir():
            archive = root / f"{_FOLDER}.zip"
            _download(self.url, archive, self.md5)
            _unpack(archive, root / _FOLDER)

    def load(self) -> Source:
        listing, image = self._decoded()
        return listing.source(image)

    def _decoded(self) -> tuple[Listing, Tensor]:
        folder = Path(self.root) / _FOLDER
        listing = _list(folder)
        key = content_key(folder, listing.files, _SIZE)
        remedy = "Let `root` be a folder that can be written, with space for them."
        path = folder / f".ssl_geometry-{_SIZE}.npy"
        image = mapped_images(
            path, key, listing.files, size=_SIZE, decode_one=_decode_one, workers=self.workers, remedy=remedy
        )
        return listing, image


def _list(folder: Path) -> Listing:
    if not folder.is_dir():
        raise FileNotFoundError(
            f"Expected `root` to have {folder} as published, but there is none. Set `download` to True to fetch it."
        )
    wnids = sorted(_read(folder / "wnids.txt").split())
    train = _training_images(folder / "train", wnids)
    test = _annotated_images(folder / "val", wnids)
    files, label = [file for file, _ in train + test], [label for _, label in train + test]
    return Listing(files, label, train_size=len(train), classes=_words(folder / "words.txt", wnids))


def _training_images(folder: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    inside = folder.iterdir() if folder.is_dir() else ()
    found = sorted(f.name for f in inside if f.is_dir() and not f.name.startswith("."))
    if found != wnids:
        odd = sorted(set(found) ^ set(wnids))
        raise ValueError(f"Expected {folder} to have a folder for each of wnids.txt, but they differ in {odd}.")
    images = [(file, label) for label, wnid in enumerate(wnids) for file in _jpegs(folder / wnid / "images")]
    counts = Counter(label for _, label in images)
    most = max(counts.values(), default=1)
    if fewer := {wnid: counts[label] for label, wnid in enumerate(wnids) if counts[label] < most}:
        raise ValueError(f"Expected {most} images in each folder of {folder}, but some have fewer: {fewer}.")
    return images


def _annotated_images(folder: Path, wnids: list[str]) -> list[tuple[Path, int]]:
    annotations = folder / "val_annotations.txt"
    labels = {wnid: label for label, wnid in enumerate(wnids)}
    images: dict[str, int] = {}
    for number, line in enumerate(_read(annotations).splitlines(), 1):
        name, wnid, *_ = [*line.split("\t"), ""]
        if wnid not in labels or name in images:
            raise ValueError(
                f"Expected {annotations} to give each image once, with an identifier of wnids.txt, "
                f"but line {number} is {line!r}."
            )
        images[name] = labels[wnid]
    if odd := sorted({file.name for file in _jpegs(folder / "images")} ^ images.keys()):
        lack = "no such image" if odd[0] in images else "no line"
        more = f", and {len(odd) - 1} more like it" if len(odd) > 1 else ""
        raise ValueError(
            f"Expected {annotations} to have a line for each image beside it, but there is {lack} for {odd[0]}{more}."
        )
    return [(folder / "images" / name, label) for name, label in images.items()]


def _jpegs(folder: Path) -> list[Path]:
    files = folder.iterdir() if folder.is_dir() else ()
    # by the number in the name
    return sorted((f for f in files if not f.name.startswith(".")), key=lambda file: (len(file.name), file.name))


def _words(path: Path, wnids: list[str]) -> list[str]:
    words = dict(line.split("\t", 1) for line in _read(path).splitlines() if "\t" in line)
    if missing := [wnid for wnid in wnids if wnid not in words]:
        raise ValueError(f"Expected {path} to have words for every identifier of wnids.txt, but not for {missing}.")
    return [words[wnid].split(",")[0].strip() for wnid in wnids]


def _read(path: Path) -> str:
    if not path.is_file():
        raise FileNotFoundError(f"Expected `root` to have {path} as published, but there is no such file.")
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeError as error:
        raise ValueError(f"Expected {path} to be text in UTF-8, but reading it failed: {error}.") from error


def _decode_one(file: Path) -> Tensor:
    image = read_rgb(file)
    if image.shape[1:] != (_SIZE, _SIZE):
        raise ValueError(f"its size is {image.shape[2]} x {image.shape[1]}, not {_SIZE} x {_SIZE}")
    return image


def _download(url: str, path: Path, md5: str) -> None:
    from torchvision.datasets.utils import check_integrity

    if path.is_file():
        _compare(path, md5, "Remove it to fetch it again.")
        return
    part = path.with_name(f"{path.name}.part")
    if not check_integrity(part, md5):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            with _open(url, part) as response, part.open("ab" if response.status == 206 else "wb") as file:
                _receive(response, file, f"Fetching {path.name}")
        except (OSError, HTTPException) as error:
            raise OSError(
                f"Expected to fetch {url}, but got: {error}. Run again to go on where it stopped, or put "
                f"the file into `root` as {path}."
            ) from error
    try:
        _compare(part, md5, "It was removed: run again to fetch it anew.")
    except ValueError:
        part.unlink()
        raise
    part.replace(path)


def _open(url: str, part: Path) -> Any:
    # The response holds the bytes that `part` lacks. If its status is not 206, it holds the whole file.
    start = part.stat().st_size if part.is_file() else 0
    headers = {"User-Agent": "lightning_ssl_geometry"}
    try:
        return urlopen(Request(url, headers=headers | ({"Range": f"bytes={start}-"} if start else {})), timeout=60)
    except HTTPError as error:
        error.close()
        if error.code != 416:  # 416: the partial file is too long already, and wrong
            raise
    return urlopen(Request(url, headers=headers), timeout=60)


def _receive(response: Any, file: IO[bytes], description: str) -> None:
    from rich.progress import wrap_file

    begin, length = file.tell(), response.length
    with wrap_file(response, length or 0, description=description) as reader:
        shutil.copyfileobj(reader, file, 1 << 20)
    if length is not None and file.tell() - begin != length:  # http.client raises nothing at an early end
        raise ConnectionError(f"{file.tell() - begin} of {length} bytes")


def _compare(path: Path, md5: str, remedy: str) -> None:
    from torchvision.datasets.utils import calculate_md5

    if (found := calculate_md5(path)) != md5:
        raise ValueError(f"Expected {path} to have the MD5 checksum {md5}, but got {found}. {remedy}")


def _unpack(archive: Path, folder: Path) -> None:
    with TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as scratch:
        try:
            _extract(archive, scratch)
        except (BadZipFile, EOFError, OSError, RuntimeError, UnicodeError, zlib.error) as error:
            if isinstance(error, OSError) and error.errno != errno.EINVAL:  # that is a place before the beginning
                raise OSError(error.errno, f"Unpacking {archive} failed: {error.strerror}") from error
            raise ValueError(
                f"Expected {archive} to be a whole zip archive, but reading it failed: {error}."
            ) from error
        if not (unpacked := Path(scratch) / folder.name).is_dir():
            raise ValueError(f"Expected {archive} to have a folder {folder.name}, but it has none.")
        unpacked.rename(folder)


def _extract(archive: Path, scratch: str) -> None:
    from rich.progress import track

    with ZipFile(archive) as packed:
        members = packed.infolist()
        for member in members:
            if what := _unwanted(member):
                wanted = "only files and folders within it"
                raise ValueError(f"Expected {archive} to have {wanted}, but got {what}: {member.filename[:80]!r}.")
        if (size := sum(member.file_size for member in members)) > _MOST:  # no more than this is unpacked
            raise ValueError(f"Expected {archive} to unpack to at most {_MOST:,} bytes, but got {size:,}.")
        for member in track(members, f"Unpacking {archive.name}"):
            packed.extract(member, scratch)


def _unwanted(member: ZipInfo) -> str:
    path = PureWindowsPath(member.filename)  # knows both kinds of slashes, and drives
    if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
        return "a link or device"
    if any(len(part.encode(errors="replace")) > 255 for part in path.parts):
        return "a name of more than 255 bytes"
    return "a path outside of it" if path.anchor or ".." in path.parts else ""
