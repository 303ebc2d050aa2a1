"""Hostile archives, IDX files, images and checkpoints are loaded, or end in one error that names the file."""

import gzip
import hashlib
import pickle
import shutil
from zipfile import ZipFile

import numpy as np
import pytest
import safetensors.torch  # noqa: F401 - imported here, and not anew in each child
import torch
import torchvision.datasets
import torchvision.transforms.v2  # noqa: F401
from fuzzing import COUNT, Failures, chance, numbers
from hostile_files import (
    TINY,
    changed_archive,
    changed_checkpoint,
    changed_idx,
    changed_picture,
    gzip_bomb,
    idx,
    network,
    payloads,
    picture,
    tiny_imagenet,
)
from PIL import Image
from watched import CAUGHT, read_outcome, said, wrong

from lightning_ssl_geometry.data import ImageFolderDataModule, MNISTDataModule, TinyImageNetDataModule
from lightning_ssl_geometry.data.folder import common_size
from lightning_ssl_geometry.diagnose import load_weights

Image.init()  # imported here, and not anew in each child
TIMES = 10  # cases of each kind of files, for one of a config


@pytest.fixture
def check(tmp_path, request):
    """Read the files that `write(chance, folder)` leaves in a folder, in a child for each case."""

    def checked(write, reader):
        failures = Failures(request)
        for number in numbers(TIMES * COUNT):
            folder = tmp_path / str(number)
            folder.mkdir()
            change = write(chance(request.node.name, number), folder)
            if reason := wrong(read_outcome(reader, folder), folder):
                failures.add(number, change, reason)
            if (tmp_path / "canary").exists():
                failures.add(number, change, "wrote a file beside its folder")
                (tmp_path / "canary").unlink()
            shutil.rmtree(folder)
        failures.check()

    return checked


def unpacked(folder):
    archive = folder / f"{TINY}.zip"
    # the worst case: the archive has the checksum that is expected
    TinyImageNetDataModule.md5 = hashlib.md5(archive.read_bytes()).hexdigest()
    data = TinyImageNetDataModule(str(folder), batch_size=2, val_fraction=0, download=True)
    data.prepare_data()
    data.setup()


@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_archives(check):
    check(lambda chance, folder: changed_archive(chance, folder / f"{TINY}.zip"), unpacked)


def mnist(folder):
    raw = folder / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part in ("train", "t10k"):
        (raw / f"{part}-images-idx3-ubyte").write_bytes(idx(np.arange(20 * 28 * 28).reshape(20, 28, 28)))
        (raw / f"{part}-labels-idx1-ubyte").write_bytes(idx(np.arange(20) % 10))
    return raw


def with_changed_idx(chance, folder):
    file = chance.choice(sorted(mnist(folder).iterdir()))
    content, ending, change = changed_idx(chance, file.read_bytes())
    file.unlink()
    if ending == "bomb":
        gzip_bomb(file.with_name(f"{file.name}.gz"), content)
    else:
        file.with_name(file.name + ending).write_bytes(content)
    return f"{file.name}{ending}: {change}"


def test_idx_files(check):
    check(with_changed_idx, lambda folder: MNISTDataModule(str(folder)).setup())


def with_changed_picture(chance, folder):
    for place in range(4):
        path = folder / "images" / "ab"[place % 2] / f"{place}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(value=place))
    content, ending, change = changed_picture(chance)
    (folder / "images" / "a" / f"x{ending}").write_bytes(content)
    return change


def images_of(folder):
    ImageFolderDataModule(str(folder / "images"), image_size=8, test_fraction=1.0, cache=str(folder / "cache")).setup()


def test_images(check):
    check(with_changed_picture, images_of)


def test_images_whose_sizes_alone_are_read(check):
    check(with_changed_picture, lambda folder: common_size(folder / "images"))


def test_checkpoints(check):
    paths = {}

    def write(chance, folder):
        paths[folder], change = changed_checkpoint(chance, folder)
        return change

    check(write, lambda folder: load_weights(network(), paths[folder]))


@pytest.mark.parametrize("place", range(7))
def test_the_watch_sees_what_a_pickle_runs(place, tmp_path):
    (tmp_path / "a").mkdir()
    held = pickle.dumps(payloads(tmp_path / "canary")[place])
    found = read_outcome(lambda folder: pickle.loads(held), tmp_path / "a")
    assert found.status == CAUGHT
    assert not (tmp_path / "canary").exists()


def test_whole_files_are_loaded(tmp_path):
    """Each reader, without a change; the watch lets through what a reader needs."""
    for name in ("archive", "idx", "images", "weights"):
        (tmp_path / name).mkdir()
    with ZipFile(tmp_path / "archive" / f"{TINY}.zip", "w") as packed:
        for name, content in tiny_imagenet().items():
            packed.writestr(name, content)
    for file in mnist(tmp_path / "idx").iterdir():
        file.with_name(f"{file.name}.gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    for place in range(4):
        path = tmp_path / "images" / "images" / "ab"[place % 2] / f"{place}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(picture(kind="JPEG", value=place))
    torch.save(network().state_dict(), tmp_path / "weights" / "x.pt")
    readers = {
        "archive": unpacked,
        "idx": lambda folder: MNISTDataModule(str(folder)).setup(),
        "images": images_of,
        "weights": lambda folder: load_weights(network(), folder / "x.pt"),
    }
    for name, reader in readers.items():
        assert said(read_outcome(reader, tmp_path / name)) == "loaded", name
