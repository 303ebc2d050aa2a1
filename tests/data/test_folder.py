import json
import multiprocessing
import os
import struct
import subprocess
import sys
import tarfile
import zlib
from pathlib import Path
from time import monotonic, sleep
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_ssl_geometry.data import DatasetDataModule, ImageFolderDataModule, image_cache
from lightning_ssl_geometry.data import folder as module


def write(path, size=(8, 8), value=None, mode="RGB"):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.random.default_rng(abs(hash(path.name)) % 1000).integers(
        256, size=(size[1], size[0], 3), dtype=np.uint8
    )
    if value is not None:
        pixels[:] = value
    Image.fromarray(pixels).convert(mode).save(path)


def tree(root, parts=("train", "test"), n=6):
    for part in parts:
        for c, name in enumerate(("cat", "dog")):
            for i in range(n):
                write(root / part / name / f"{i}.png", value=100 * c + i)
    return root


def folder(root, **arguments):
    return ImageFolderDataModule(str(root), **({"image_size": 8, "batch_size": 4} | arguments))


def test_two_parts(tmp_path):
    data = folder(tree(tmp_path))
    data.prepare_data()
    data.setup()
    assert data.class_names == ["cat", "dog"]
    train, test = data._images["train"], data._images["test"]
    assert train.image.shape == test.image.shape == (12, 3, 8, 8)
    assert train.image[:, 0, 0, 0].tolist() == [*range(6), *range(100, 106)]
    assert train.label.tolist() == [0] * 6 + [1] * 6
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert batch["views"][0].shape == (4, 3, 8, 8)


def deep_png(path, pixels, color):
    """Write a PNG of 16 bits per channel, which Pillow cannot."""

    def chunk(kind, data):
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    height, width = pixels.shape[:2]
    rows = b"".join(b"\0" + row.astype(">u2").tobytes() for row in pixels)
    head = chunk(b"IHDR", struct.pack(">IIBBBBB", width, height, 16, color, 0, 0, 0))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + head + chunk(b"IDAT", zlib.compress(rows)) + chunk(b"IEND", b""))


@pytest.mark.parametrize(("color", "channels"), [(2, 3), (4, 2), (6, 4)], ids=["RGB", "LA", "RGBA"])
def test_colours_of_16_bits_are_refused_as_greys_are(color, channels, tmp_path):
    """Pillow would give their upper 8 bits without a word."""
    tree(tmp_path, ("train",))
    deep_png(tmp_path / "train" / "dog" / "deep.png", np.full((8, 8, channels), 300), color)
    with pytest.raises(ValueError, match=r"deep\.png.*more than 8 bits per channel"):
        folder(tmp_path).setup()
    with (
        Image.open(tmp_path / "train" / "dog" / "deep.png") as image,
        pytest.raises(ValueError, match="with 8 bits per channel"),
    ):
        DatasetDataModule([(image, 0), (image, 1)], batch_size=2, progress=False).setup()


def test_a_ppm_of_16_bits_is_refused(tmp_path):
    tree(tmp_path, ("train",))
    pixels = np.full((8, 8, 3), 300, dtype=">u2").tobytes()
    (tmp_path / "train" / "cat" / "deep.ppm").write_bytes(b"P6 8 8 65535\n" + pixels)
    with pytest.raises(ValueError, match=r"deep\.ppm.*more than 8 bits per channel"):
        folder(tmp_path).setup()


@pytest.mark.parametrize("name", ["bus", "validation"])
def test_folders_of_images_beside_train_are_not_left_out_silently(name, tmp_path):
    tree(tmp_path, ("train",))
    (tmp_path / "notes").mkdir()
    folder(tmp_path).setup()
    write(tmp_path / name / "0.png")
    with pytest.raises(ValueError, match=f"no folders of images beside .*train but test or val, but got '{name}'"):
        folder(tmp_path).setup()


def test_links_are_followed_and_dangling_ones_named(tmp_path):
    tree(tmp_path / "root", ("train",))
    write(tmp_path / "elsewhere" / "deep" / "0.png", value=77)
    (tmp_path / "root" / "train" / "cat" / "more").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "elsewhere" / "back").symlink_to(tmp_path / "root" / "train" / "cat")  # a loop
    data = folder(tmp_path / "root")
    data.setup()
    assert len(data._images["train"].label) + len(data._images["test"].label) >= 13
    (tmp_path / "root" / "train" / "dog" / "lost.png").symlink_to(tmp_path / "nowhere.png")
    with pytest.raises(ValueError, match=r"lost\.png links to a missing file"):
        folder(tmp_path / "root").setup()


def test_val_stands_for_test_and_a_bare_tree_is_split_by_seed(tmp_path):
    data = folder(tree(tmp_path / "a", ("train", "val")))
    data.setup()
    assert len(data._images["test"].label) == 12
    for c, name in enumerate(("cat", "dog")):
        for i in range(10):
            write(tmp_path / "b" / name / f"{i}.png", value=100 * c + i)
    splits = []
    for seed in (0, 0, 1):
        data = folder(tmp_path / "b", seed=seed)
        data.setup()
        assert data._images["train"].image is data._images["test"].image
        splits.append(data._positions["test"].tolist())
        assert len(splits[-1]) == 4
        others = torch.cat([data._positions[split] for split in ("train", "val", "test")])
        assert sorted(others.tolist()) == list(range(20))
    assert splits[0] == splits[1] != splits[2]


def test_it_is_decoded_once_and_again_when_the_folder_changed(tmp_path, monkeypatch):
    decoded, decode = [], module._decode_one
    monkeypatch.setattr(module, "_decode_one", lambda file, size: decoded.append(file) or decode(file, size))
    tree(tmp_path)
    for _ in range(3):
        folder(tmp_path).setup()
    assert len(decoded) == 24
    write(tmp_path / "train" / "cat" / "new.png", value=200)
    data = folder(tmp_path)
    data.setup()
    assert len(decoded) == 24 + 25
    assert len(data._images["train"].label) == 13
    folder(tmp_path, image_size=4).setup()
    assert len(decoded) == 24 + 25 + 25
    folder(tmp_path, cache=str(tmp_path / "elsewhere")).setup()
    assert (tmp_path / "elsewhere" / ".ssl_geometry-8.npy").exists()
    assert not list(tmp_path.rglob("*.part"))


def test_other_sizes_are_resized_and_cropped_and_other_modes_are_colour(tmp_path):
    tree(tmp_path)
    write(tmp_path / "train" / "cat" / "wide.jpg", size=(40, 16), value=50)
    write(tmp_path / "train" / "cat" / "grey.png", size=(8, 20), value=60, mode="L")
    data = folder(tmp_path)
    data.setup()
    images = data._images["train"].image
    assert images.shape == (14, 3, 8, 8)
    assert {50, 60} <= set(images[:, 1, 4, 4].tolist())


def test_postscript_is_refused_and_starts_no_program(tmp_path, monkeypatch):
    """Pillow would start Ghostscript for it, whatever the ending of the file's name."""
    monkeypatch.setattr(subprocess, "Popen", lambda *_, **__: pytest.fail("a program was started"))
    path = tree(tmp_path) / "train" / "cat" / "0.png"
    Image.new("RGB", (8, 8)).save(path, "EPS")
    for read in (lambda: folder(tmp_path).setup(), lambda: module.common_size(tmp_path)):
        with pytest.raises(ValueError, match=r"whole images only, but got .*cat/0.png \(cannot identify"):
            read()


@pytest.mark.parametrize(
    ("spoil", "message"),
    [
        (lambda root: None, "`root` to have images, in every class if it has classes, but .* has none"),
        (
            lambda root: tree(root).joinpath("train/cat/5.png").write_bytes(b"no image"),
            r"train/cat/5.png \(cannot identify",
        ),
        (lambda root: tree(root).joinpath("train/dog/x.txt").write_text("hello"), r"dog/x.txt \(its ending is none of"),
        (lambda root: truncate(tree(root) / "test/cat/0.png"), r"whole images only, but got .*test/cat/0.png"),
        (
            lambda root: Image.new("I;16", (8, 8), 1000).save(tree(root) / "test/dog/0.png"),
            r"dog/0.png \(it has more than 8 bits per channel \(.*'I;16'",
        ),
        (lambda root: write(root / "train/cat/0.png"), r"2 classes or more, but .*train has \['cat'\]"),
        (lambda root: loose(tree(root, ("",))), r"folders of images, but .* has 2 images beside the folders \['cat'"),
        (lambda root: loose(tree(root) / "test"), r"folders of images, but .*test has 2 images beside the folders"),
        (
            lambda root: loose(tree(root, ("test",)) / "train"),
            "train and .*test of `root` to be alike, but only the second has folders",
        ),
        (
            lambda root: tree(root).joinpath("train/emu").mkdir(),
            r"to have the same classes, but they differ in \['emu'\]",
        ),
        (
            lambda root: (tree(root, ("train",)) / "train/emu").mkdir(),
            "images, in every class .* but .*train/emu has none",
        ),
    ],
)
def test_bad_folders_are_named(tmp_path, spoil, message):
    spoil(tmp_path)
    with pytest.raises(ValueError, match=message):
        folder(tmp_path).setup()
    assert not list(tmp_path.rglob("*.pt*"))


def loose(folder):
    for name in ("a.png", "b.PNG"):
        write(folder / name)


def truncate(path):
    write(path, size=(64, 64))
    path.write_bytes(path.read_bytes()[:2000])


def test_bad_arguments(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`root` to be a folder of images, but there is none at .*nowhere"):
        folder(tmp_path / "nowhere").setup()
    with pytest.raises(ValueError, match="`cache` to be a path, but got 5"):
        ImageFolderDataModule(str(tmp_path), image_size=8, cache=5)
    with pytest.raises(ValueError, match="`image_size` to be an integer >= 1, but got 0"):
        folder(tmp_path, image_size=0)
    with pytest.raises(ValueError, match=r"`test_fraction` in \(0, 1\], but got 0"):
        folder(tmp_path, test_fraction=0)
    with pytest.raises(ValueError, match=r"`subset` None with `test_fraction=1`.*, but got 5"):
        folder(tmp_path, test_fraction=1, subset=5)


@pytest.mark.parametrize("parts", [(), ("train", "test")])
def test_a_folder_without_labels(tmp_path, parts):
    for part in parts or ("",):
        for i in range(6):
            write(tmp_path / part / f"{i}.png", value=10 * i)
    data = folder(tmp_path, val_fraction=0.0, test_fraction=0.5, drop_last=False)
    data.prepare_data()
    batches = list(data.test_dataloader())
    made = data.on_after_batch_transfer(batches[0], 0)
    assert sorted(made) == ["image", "index", "views"]
    assert sum(len(batch["image"]) for batch in batches) == (6 if parts else 3)
    assert data.class_names == []
    assert not hasattr(data, "num_classes")
    assert "label" not in next(iter(data.train_dataloader()))


def test_all_images_as_the_test_set(tmp_path):
    data = folder(tree(tmp_path, parts=("",)), test_fraction=1.0)
    batches = list(data.test_dataloader())
    assert torch.cat([batch["index"] for batch in batches]).tolist() == list(range(12))
    assert torch.cat([batch["label"] for batch in batches]).tolist() == [0] * 6 + [1] * 6
    images = torch.cat([batch["image"] for batch in batches]) / 255
    torch.testing.assert_close(data.mean, images.mean(dim=(0, 2, 3)))
    assert data.val_dataloader() == []
    with pytest.raises(ValueError, match="images in the split 'train', but it has none"):
        data.train_dataloader()


def test_a_folder_that_cannot_be_written_is_named_before_anything_is_decoded(tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise PermissionError("read-only file system")

    tree(tmp_path)
    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(module, "_decode_one", lambda file, size: pytest.fail("decoded"))
    with pytest.raises(OSError, match=r"Expected to write the decoded samples to .*Name another folder as `cache`"):
        folder(tmp_path).setup()


@pytest.mark.parametrize("function", ["posix_fallocate", "fsync"])
def test_a_full_disk_leaves_nothing_behind(function, tmp_path, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    tree(tmp_path)
    monkeypatch.setattr(image_cache.os, function, full)
    with pytest.raises(OSError, match="but got: no space left"):
        folder(tmp_path).setup()
    left = [path for path in tmp_path.rglob(".ssl*") if path.stat().st_size]
    assert not left


@pytest.mark.parametrize("content", [b"", b"not a file of torch", None])
def test_a_broken_cache_is_made_anew(content, tmp_path):
    folder(tree(tmp_path)).setup()
    for name in (".ssl_geometry-8.npy", ".ssl_geometry-8.json"):
        path = tmp_path / name
        path.write_bytes(path.read_bytes()[:-7] if content is None else content)
        data = folder(tmp_path)
        data.setup()
        assert data._images["train"].image[:, 0, 0, 0].tolist() == [*range(6), *range(100, 106)]


def test_a_decoding_that_was_ended_goes_on_after_the_last_block(tmp_path, monkeypatch):
    tree(tmp_path)
    folder(tmp_path).setup()
    whole = (tmp_path / ".ssl_geometry-8.npy").read_bytes()[:-16]
    for path in tmp_path.glob(".ssl*"):
        path.unlink()
    monkeypatch.setattr(image_cache, "_BLOCK", 5 * 3 * 8 * 8)  # 5 of 24 images
    decoded, decode = [], module._decode_one

    def ended(file, size):
        decoded.append(file)
        if len(decoded) == 13:
            raise KeyboardInterrupt
        return decode(file, size)

    monkeypatch.setattr(module, "_decode_one", ended)
    with pytest.raises(KeyboardInterrupt):
        folder(tmp_path).setup()
    assert json.loads((tmp_path / ".ssl_geometry-8.json").read_text())["decoded"] == 10
    decoded.clear()
    monkeypatch.setattr(module, "_decode_one", lambda file, size: decoded.append(file) or decode(file, size))
    folder(tmp_path).setup()
    assert len(decoded) == 14
    assert (tmp_path / ".ssl_geometry-8.npy").read_bytes()[:-16] == whole


def test_images_that_changed_while_a_decoding_was_ended_are_decoded_anew(tmp_path, monkeypatch):
    tree(tmp_path)
    monkeypatch.setattr(image_cache, "_BLOCK", 1)
    record = image_cache._record

    def killed(*given, decoded):
        record(*given, decoded=decoded)
        if decoded == 8:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(image_cache, "_record", killed)
        with pytest.raises(KeyboardInterrupt):
            folder(tmp_path).setup()
    write(tmp_path / "train" / "cat" / "0.png", value=200)
    data = folder(tmp_path)
    data.setup()
    assert data._images["train"].image[0, 0, 0, 0] == 200


def test_a_process_that_maps_the_old_images_keeps_them(tmp_path):
    data = folder(tree(tmp_path))
    data.setup()
    before = data._images["train"].image.clone()
    write(tmp_path / "train" / "cat" / "0.png", value=200)
    folder(tmp_path).setup()
    assert torch.equal(data._images["train"].image, before)


def test_two_processes_decode_one_folder_once(tmp_path, two_processes):
    tree(tmp_path)
    found = two_processes(decoded_by, tmp_path)
    assert sum(count for count, _ in found) == 24
    assert torch.equal(found[0][1], found[1][1])


def decoded_by(rank, path):
    """How many images this process decodes, and what it then has."""
    decoded, decode = [], module._decode_one
    try:
        module._decode_one = lambda file, size: decoded.append(file) or sleep(0.01) or decode(file, size)
        data = folder(path)
        data.setup()
    finally:
        module._decode_one = decode
    return len(decoded), data._images["train"].image.clone()


@pytest.mark.parametrize("workers", [1, 2])
def test_processes_decode_what_threads_decode(tmp_path, workers, monkeypatch):
    monkeypatch.setattr(image_cache, "_BLOCK", 7 * 3 * 8 * 8)  # 7 of 24 images
    monkeypatch.setattr(image_cache, "_SENT", 5)
    folder(tree(tmp_path)).setup()
    (written,) = tmp_path.glob(".ssl_geometry-*.npy")
    whole = written.read_bytes()[:-16]
    for path in tmp_path.glob(".ssl*"):
        path.unlink()
    state = torch.get_rng_state()
    folder(tmp_path, workers=workers).setup()
    assert written.read_bytes()[:-16] == whole
    assert torch.equal(torch.get_rng_state(), state)


def test_processes_name_what_they_cannot_decode_and_go_on_after_a_kill(tmp_path, monkeypatch):
    tree(tmp_path)
    monkeypatch.setattr(image_cache, "_BLOCK", 5 * 3 * 8 * 8)
    decode = module._decode_one

    def killed(file, size):
        if file.name == "5.png":
            sleep(1.0)  # until the run has the results before
            os._exit(1)
        return decode(file, size)

    with monkeypatch.context() as patch:
        patch.setattr(image_cache, "_SENT", 1)
        patch.setattr(module, "_decode_one", killed)
        with pytest.raises(RuntimeError, match=r"A process that decodes images into .* Start again to go on"):
            folder(tmp_path, workers=1).setup()
    record = tmp_path / ".ssl_geometry-8.json"
    assert json.loads(record.read_text())["decoded"] == 5
    (tmp_path / "train" / "cat" / "5.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"Expected `root` to hold whole images only, but got .*5\.png \(cannot ident"):
        folder(tmp_path, workers=2).setup()
    write(tmp_path / "train" / "cat" / "5.png", value=200)
    folder(tmp_path, workers=2).setup()
    assert json.loads(record.read_text())["decoded"] == 24


def test_after_a_kill_no_process_is_left_and_a_new_start_goes_on(tmp_path):
    """Killed from outside, a run cannot end its processes. Images are larger than what a pipe holds."""
    root = tree(tmp_path / "images", n=30)
    command = [sys.executable, "-c", DECODING, str(root)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as killed:
        assert killed.stdout.readline() == "decoding\n"
        killed.kill()
    until = monotonic() + 60
    while is_left(killed.pid) and monotonic() < until:
        sleep(0.1)
    assert not is_left(killed.pid)
    subprocess.run(command, capture_output=True, timeout=300, check=True)
    data = folder(root, image_size=256)
    data.setup()
    assert sorted(data._images["train"].image[:, 0, 0, 0].tolist()) == [*range(30), *range(100, 130)]


@pytest.mark.parametrize(
    ("alive", "is_parent", "method", "ends"),
    [
        (True, True, "fork", False),
        (False, True, "fork", True),
        (True, False, "fork", True),  # a sibling has its pipe
        (True, False, "forkserver", False),
        (False, False, "forkserver", True),
    ],
)
def test_a_process_ends_at_once_if_its_parent_has_ended(alive, is_parent, method, ends, monkeypatch):
    parent = SimpleNamespace(pid=os.getppid() + 1 - is_parent, is_alive=lambda: alive)
    left = []
    monkeypatch.setattr(image_cache.ctypes, "CDLL", lambda _: SimpleNamespace(prctl=lambda *_: 0))
    monkeypatch.setattr(multiprocessing, "parent_process", lambda: parent)
    monkeypatch.setattr(multiprocessing, "get_start_method", lambda: method)
    monkeypatch.setattr(os, "_exit", left.append)
    image_cache._end_with_parent(0)
    assert left == [1] * ends


def is_left(group):
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def test_a_wait_for_another_process_is_said(tmp_path, monkeypatch, caplog):
    def flock(file, how):
        if how & fcntl.LOCK_NB:
            raise BlockingIOError

    fcntl = image_cache.fcntl or pytest.skip("no lock")
    monkeypatch.setattr(fcntl, "flock", flock)
    with caplog.at_level("INFO"):
        folder(tree(tmp_path)).setup()
    assert "Waiting for another process, which decodes images into " in caplog.text


DECODING = """
import os, sys, time
from lightning_ssl_geometry.data import ImageFolderDataModule, folder
decode = folder._decode_one
def slow(file, size):
    os.write(1, b"decoding\\n")  # at once: several processes write
    time.sleep(0.05)
    return decode(file, size)
folder._decode_one = slow
ImageFolderDataModule(sys.argv[1], 256, workers=2).prepare_data()
"""


def test_processes_in_a_process_are_refused(tmp_path, monkeypatch):
    tree(tmp_path)
    monkeypatch.setattr(multiprocessing.current_process(), "_inheriting", True, raising=False)
    with pytest.raises(RuntimeError, match=r"Expected the script to begin its work below `if __name__"):
        folder(tmp_path, workers=2).setup()
    monkeypatch.delattr(multiprocessing.current_process(), "_inheriting")
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)
    with pytest.raises(ValueError, match=r"Expected `workers` 0 in a daemonic process, .* but got 2"):
        folder(tmp_path, workers=2).setup()
    folder(tmp_path).setup()


@pytest.mark.parametrize("workers", [-1, 1.0, True, "2"])
def test_a_number_of_processes_is_checked(tmp_path, workers):
    with pytest.raises(ValueError, match=f"Expected `workers` to be an integer >= 0, but got {workers!r}"):
        folder(tmp_path, workers=workers)


def test_an_interruption_does_not_wait_for_the_other_files(tmp_path, monkeypatch):
    decoded = []

    def decode_one(file, size):
        decoded.append(file)
        if len(decoded) == 1:
            raise KeyboardInterrupt
        sleep(0.01)

    monkeypatch.setattr(module, "_decode_one", decode_one)
    with pytest.raises(KeyboardInterrupt):
        folder(tree(tmp_path, n=50)).setup()
    assert len(decoded) < 200


def test_some_of_the_real_cifar_10(real_data, tmp_path):
    seen = {}
    with tarfile.open(real_data / "cifar10-jpeg.tar.xz") as archive:
        for member in archive:
            if member.isfile():
                *_, part, name, _ = member.name.split("/")
                seen[name] = seen.get(name, 0) + 1
                if seen[name] <= 20:
                    archive.extract(member, tmp_path, filter="data")
                if len(seen) == 2 and min(seen.values()) >= 20:
                    break
    data = folder(tmp_path / part, image_size=32)
    data.setup()
    assert data.class_names == ["airplane", "automobile"]
    assert data._images["train"].image.shape == (40, 3, 32, 32)
    assert [len(data._positions[split]) for split in ("train", "val", "test")] == [29, 3, 8]
    assert data._images["train"].image.unique().numel() > 200
