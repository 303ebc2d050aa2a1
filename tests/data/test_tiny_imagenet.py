import errno
import hashlib
import stat
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from zipfile import ZipFile, ZipInfo

import numpy as np
import pytest
import torch
from PIL import Image

from lightning_ssl_geometry.data import TinyImageNetDataModule
from lightning_ssl_geometry.data import tiny_imagenet as module

NAME = "tiny-imagenet-200"
WNIDS = {"n03": "lamp, light", "n01": "goldfish, Carassius auratus", "n02": "bullfrog"}  # not sorted, as published
PER_CLASS = 12


def write_jpeg(path, value, mode="RGB", size=(64, 64)):
    path.parent.mkdir(parents=True, exist_ok=True)
    pixels = np.full((*size, 3), value, np.uint8)
    pixels[:8] = 255  # images that differ
    Image.fromarray(pixels).convert(mode).save(path)


def write_published(root):
    """The published layout: a value of grey says which image it is."""
    folder = root / NAME
    for c, wnid in enumerate(sorted(WNIDS)):
        for i in range(PER_CLASS):
            mode = "L" if i == 3 else "RGB"
            write_jpeg(folder / "train" / wnid / "images" / f"{wnid}_{i}.JPEG", 60 * c + 4 * i, mode)
        (folder / "train" / wnid / f"{wnid}_boxes.txt").write_text(f"{wnid}_0.JPEG\t0\t10\t63\t58\n")
    lines = []
    for i in range(12):
        write_jpeg(folder / "val" / "images" / f"val_{i}.JPEG", 10 * i)
        lines.append(f"val_{i}.JPEG\t{sorted(WNIDS)[i * 2 % 3]}\t0\t32\t44\t62\n")
    (folder / "val" / "val_annotations.txt").write_text("".join(lines))
    write_jpeg(folder / "test" / "images" / "test_0.JPEG", 0)
    (folder / "wnids.txt").write_text("".join(f"{wnid}\n" for wnid in WNIDS))
    (folder / "words.txt").write_text("n00\tentity\n" + "".join(f"{wnid}\t{words}\n" for wnid, words in WNIDS.items()))
    return folder


@pytest.fixture(scope="module")
def archive(tmp_path_factory):
    """The bytes of an archive in the published layout."""
    root = tmp_path_factory.mktemp("published")
    folder = write_published(root)
    with ZipFile(root / "x.zip", "w") as packed:
        for path in sorted(folder.rglob("*")):
            packed.write(path, path.relative_to(root))
    return (root / "x.zip").read_bytes()


class Handler(BaseHTTPRequestHandler):
    """Serves `server.content`; each request takes one of `server.lengths`, after so many bytes it breaks off."""

    def do_GET(self):
        server, asked = self.server, self.headers["Range"]
        server.asked.append(asked)
        start = int(asked.removeprefix("bytes=").removesuffix("-")) if asked and server.ranges else 0
        rest = server.content[start:]
        if asked and server.ranges and not rest:
            self.send_response(416)
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        self.send_response(206 if asked and server.ranges else 200)
        self.send_header("Content-Length", str(len(rest)))
        self.end_headers()
        self.wfile.write(rest[: server.lengths.pop(0) if server.lengths else None])

    def log_message(self, *_):
        pass


@contextmanager
def served(content, monkeypatch, ranges=True, lengths=()):
    monkeypatch.setenv("no_proxy", "*")
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.content, server.ranges, server.lengths, server.asked = content, ranges, list(lengths), []
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        monkeypatch.setattr(TinyImageNetDataModule, "url", f"http://127.0.0.1:{server.server_port}/{NAME}.zip")
        monkeypatch.setattr(TinyImageNetDataModule, "md5", hashlib.md5(content).hexdigest())
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()


def left_in(root):
    return sorted(path.name for path in root.iterdir())


def made(root, **arguments):
    return TinyImageNetDataModule(str(root), **({"batch_size": 4} | arguments))


def check(data):
    data.prepare_data()
    data.setup()
    train, test = data._images["train"], data._images["test"]
    assert data.class_names == ["goldfish", "bullfrog", "lamp"]
    assert train.image.shape == (36, 3, 64, 64)
    assert test.image.shape == (12, 3, 64, 64)
    assert train.label.tolist() == [0] * 12 + [1] * 12 + [2] * 12
    assert test.label.tolist() == [0, 2, 1] * 4
    # in the order of the images' numbers; JPEG keeps a value of grey to within one
    expected = torch.tensor([60 * c + 4 * i for c in range(3) for i in range(12)])
    assert (train.image[:, :, 40, 40].int() - expected[:, None]).abs().max() <= 1
    assert (test.image[:, :, 40, 40].int() - 10 * torch.arange(12)[:, None]).abs().max() <= 1
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert batch["views"][0].shape == (4, 3, 64, 64)


def test_the_published_layout_decoded_once(tmp_path, monkeypatch):
    folder = write_published(tmp_path)
    (folder / "train" / "n01" / "images" / ".DS_Store").write_text("hidden")
    check(made(tmp_path))
    with monkeypatch.context() as patch:
        patch.setattr(module, "_decode_one", lambda *_: pytest.fail("decoded again"))
        check(made(tmp_path))
    annotations = folder / "val" / "val_annotations.txt"
    annotations.write_text(annotations.read_text().replace("val_0.JPEG\tn01", "val_0.JPEG\tn02"))
    data = made(tmp_path, image_size=65)
    data.setup()
    assert data._images["test"].label[:3].tolist() == [1, 2, 1]
    assert data.image_shape == (3, 65, 65)
    write_jpeg(folder / "val" / "images" / "val_0.JPEG", 200, size=(64, 64))
    data = made(tmp_path)
    data.setup()
    assert abs(int(data._images["test"].image[0, 0, 40, 40]) - 200) <= 1


def test_it_is_fetched_unpacked_and_not_fetched_again(tmp_path, monkeypatch, archive):
    root = tmp_path / "new"
    with served(archive, monkeypatch) as server:
        check(made(root, download=True))
        assert left_in(root) == [NAME, f"{NAME}.zip"]
        check(made(root, download=True))
        assert server.asked == [None]
    assert (root / NAME / "test" / "images" / "test_0.JPEG").is_file()


@pytest.mark.parametrize("ranges", [True, False])
def test_an_interrupted_download_goes_on_where_it_stopped(ranges, tmp_path, monkeypatch, archive):
    part = tmp_path / f"{NAME}.zip.part"
    with served(archive, monkeypatch, ranges, lengths=[1000, 500]) as server:
        for kept in (1000, 1500 if ranges else 500):
            with pytest.raises(OSError, match=r"Expected to fetch http.*, but got: \d+ of \d+ bytes\. Run again"):
                made(tmp_path, download=True).prepare_data()
            assert left_in(tmp_path) == [part.name]
            assert part.read_bytes() == archive[:kept]
        check(made(tmp_path, download=True))
        assert server.asked == [None, "bytes=1000-", "bytes=1500-" if ranges else "bytes=500-"]
    assert left_in(tmp_path) == [NAME, f"{NAME}.zip"]


def test_a_whole_part_is_taken_and_a_longer_one_is_fetched_anew(tmp_path, monkeypatch, archive):
    part = tmp_path / f"{NAME}.zip.part"
    with served(archive, monkeypatch) as server:
        part.write_bytes(archive)
        made(tmp_path, download=True).prepare_data()
        assert server.asked == []
        (tmp_path / f"{NAME}.zip").unlink()
        (tmp_path / NAME).rename(tmp_path / "elsewhere")
        part.write_bytes(archive + b"more")
        check(made(tmp_path, download=True))
        assert server.asked == [f"bytes={len(archive) + 4}-", None]


def test_another_checksum_is_named(tmp_path, monkeypatch, archive):
    with served(archive, monkeypatch):
        good, bad = hashlib.md5(archive).hexdigest(), hashlib.md5(archive[:-1] + b"x").hexdigest()
        (tmp_path / f"{NAME}.zip.part").write_bytes(b"other bytes")  # of a file that has changed since
        spoilt = hashlib.md5(b"other bytes" + archive[11:]).hexdigest()
        message = rf"{NAME}.zip.part to have the MD5 checksum {good}, but got {spoilt}\. It was removed: run again"
        with pytest.raises(ValueError, match=message):
            made(tmp_path, download=True).prepare_data()
        assert left_in(tmp_path) == []
        (tmp_path / f"{NAME}.zip").write_bytes(archive[:-1] + b"x")
        with pytest.raises(ValueError, match=rf"{NAME}.zip to have the MD5 .* {good}, but got {bad}\. Remove it"):
            made(tmp_path, download=True).prepare_data()
        assert left_in(tmp_path) == [f"{NAME}.zip"]


def test_a_server_that_refuses_is_named(tmp_path, monkeypatch):
    with served(b"", monkeypatch):
        monkeypatch.setattr(Handler, "do_GET", lambda self: self.send_error(404))
        with pytest.raises(OSError, match=r"Expected to fetch http://127.*zip, but got: HTTP Error 404"):
            made(tmp_path, download=True).prepare_data()
    assert left_in(tmp_path) == []


def zipped(path, *members):
    with ZipFile(path, "w") as packed:
        packed.writestr(f"{NAME}/wnids.txt", "n01\n")
        for name, mode in members:
            info = ZipInfo(name)
            info.external_attr = mode << 16
            packed.writestr(info, "content")


@pytest.mark.parametrize(
    ("name", "mode", "what"),
    [
        ("/etc/x", 0, "a path outside of it: '/etc/x'"),
        (f"{NAME}/../../x", stat.S_IFREG, rf"a path outside of it: '{NAME}/\.\./\.\./x'"),
        (f"{NAME}\\..\\..\\x", 0, "a path outside of it"),
        ("C:/x", 0, "a path outside of it: 'C:/x'"),
        (f"{NAME}/train", stat.S_IFLNK | 0o777, f"a link or device: '{NAME}/train'"),
        (f"{NAME}/fifo", stat.S_IFIFO, "a link or device"),
        (f"{NAME}/{'x' * 256}", 0, "a name of more than 255 bytes"),
    ],
)
def test_members_that_would_lie_elsewhere_are_refused(name, mode, what, tmp_path):
    root = tmp_path / "root"
    root.mkdir()
    zipped(root / "x.zip", (name, mode))
    with pytest.raises(ValueError, match=rf"x.zip to have only files and folders within it, but got {what}"):
        module._unpack(root / "x.zip", root / NAME)
    assert left_in(root) == ["x.zip"]
    assert left_in(tmp_path) == ["root"]


def test_a_broken_archive_is_named_and_one_that_unpacks_to_too_much(tmp_path, monkeypatch):
    path = tmp_path / "x.zip"
    zipped(path)
    whole = path.read_bytes()
    for broken in (b"", whole[1:], whole[:-30], whole.replace(b"n01\n", b"n02\n")):
        path.write_bytes(broken)
        with pytest.raises(ValueError, match=r"x.zip to be a whole zip archive, but reading it failed: .*\."):
            module._unpack(path, tmp_path / NAME)
    path.write_bytes(whole)
    monkeypatch.setattr(module, "_MOST", 3)
    with pytest.raises(ValueError, match=r"x.zip to unpack to at most 3 bytes, but got 4\."):
        module._unpack(path, tmp_path / NAME)
    assert left_in(tmp_path) == ["x.zip"]


def test_a_full_disk_is_an_error_that_names_the_archive(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    zipped(tmp_path / "x.zip")
    monkeypatch.setattr(ZipFile, "extract", full)
    with pytest.raises(OSError, match=r"Unpacking .*x.zip failed: No space left on device") as caught:
        module._unpack(tmp_path / "x.zip", tmp_path / NAME)
    assert caught.value.errno == errno.ENOSPC
    assert left_in(tmp_path) == ["x.zip"]


def test_an_interrupted_unpacking_leaves_no_folder(tmp_path, monkeypatch):
    zipped(tmp_path / "x.zip", (f"{NAME}/words.txt", 0))
    extract = ZipFile.extract

    def interrupted(self, member, path):
        if member.filename.endswith("words.txt"):
            raise KeyboardInterrupt
        return extract(self, member, path)

    with monkeypatch.context() as patch:
        patch.setattr(ZipFile, "extract", interrupted)
        with pytest.raises(KeyboardInterrupt):
            module._unpack(tmp_path / "x.zip", tmp_path / NAME)
    assert left_in(tmp_path) == ["x.zip"]
    module._unpack(tmp_path / "x.zip", tmp_path / NAME)
    assert left_in(tmp_path) == [NAME, "x.zip"]
    assert left_in(tmp_path / NAME) == ["wnids.txt", "words.txt"]
    with pytest.raises(ValueError, match=r"x.zip to have a folder other, but it has none"):
        module._unpack(tmp_path / "x.zip", tmp_path / "other")


def test_nothing_there(tmp_path):
    for act in (TinyImageNetDataModule.prepare_data, TinyImageNetDataModule.setup):
        with pytest.raises(FileNotFoundError, match=rf"`root` to have .*{NAME} as published.* Set `download` to True"):
            act(made(tmp_path))


def change(name, old, new):
    def act(folder):
        text = (folder / name).read_text()
        assert old in text
        (folder / name).write_text(text.replace(old, new))

    return act


VAL = "val/val_annotations.txt"


@pytest.mark.parametrize(
    ("spoil", "error", "message"),
    [
        (
            lambda folder: (folder / "val/images/val_3.JPEG").unlink(),
            ValueError,
            r"val_annotations.txt to have a line for each image beside it, but there is no such image for val_3.JPEG\.",
        ),
        (
            change(VAL, "val_4.JPEG\tn03\t0\t32\t44\t62\n", ""),
            ValueError,
            r"to have a line for each image beside it, but there is no line for val_4.JPEG\.",
        ),
        (
            lambda folder: [(folder / f"val/images/val_{i}.JPEG").unlink() for i in (3, 5)],
            ValueError,
            "no such image for val_3.JPEG, and 1 more like it",
        ),
        (change(VAL, "val_4.JPEG\tn03", "val_4.JPEG\tn09"), ValueError, r"but line 5 is 'val_4.JPEG\\tn09\\t0"),
        (change(VAL, "val_4.JPEG\tn03\t", "val_4.JPEG "), ValueError, "but line 5 is 'val_4.JPEG 0"),
        (change(VAL, "val_4.JPEG", "val_3.JPEG"), ValueError, r"give each image once, .* but line 5 is 'val_3.JPEG"),
        (
            lambda folder: (folder / VAL).write_bytes(b"\xff"),
            ValueError,
            r"val_annotations.txt to be text in UTF-8, but",
        ),
        (lambda folder: (folder / VAL).unlink(), FileNotFoundError, r"`root` to have .*val_annotations.txt as publi"),
        (lambda folder: (folder / "wnids.txt").unlink(), FileNotFoundError, r"`root` to have .*wnids.txt as publish"),
        (change("words.txt", "n02\t", "n20\t"), ValueError, r"words for every identifier .* but not for \['n02'\]"),
        (change("wnids.txt", "n02\n", ""), ValueError, r"train to have a folder for each .* they differ in \['n02'\]"),
        (
            lambda folder: (folder / "train/n02/images/n02_11.JPEG").unlink(),
            ValueError,
            r"Expected 12 images in each folder of .*train, but some have fewer: \{'n02': 11\}",
        ),
        (
            lambda folder: write_jpeg(folder / "train/n02/images/n02_3.JPEG", 0, size=(32, 64)),
            ValueError,
            r"whole images only, but got .*n02_3.JPEG \(its size is 64 x 32, not 64 x 64\)",
        ),
        (
            lambda folder: (folder / "train/n02/images/n02_3.JPEG").write_bytes(b"no image"),
            ValueError,
            r"whole images only, but got .*n02_3.JPEG \(cannot identify",
        ),
    ],
)
def test_files_that_are_not_as_published_are_named(spoil, error, message, tmp_path):
    spoil(write_published(tmp_path))
    with pytest.raises(error, match=message):
        made(tmp_path).prepare_data()
    assert not list(tmp_path.rglob("*.pt*"))
