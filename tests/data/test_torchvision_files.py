import gzip
import pickle

import numpy as np
import pytest
import torch

from lightning_ssl_geometry.data import CIFAR10DataModule, CIFAR100DataModule, MNISTDataModule


def batches(data, loader):
    return [data.on_after_batch_transfer(batch, 0) for batch in loader]


def write_idx(path, array):
    path.parent.mkdir(parents=True, exist_ok=True)
    header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
    path.write_bytes(header + array.astype(np.uint8).tobytes())


def write_mnist(root, n=20):
    generator = np.random.default_rng(0)
    for part in ("train", "t10k"):
        raw = root / "MNIST" / "raw"
        write_idx(raw / f"{part}-images-idx3-ubyte", generator.integers(256, size=(n, 28, 28)))
        write_idx(raw / f"{part}-labels-idx1-ubyte", np.arange(n) % 10)


def test_mnist_in_its_published_layout(tmp_path):
    write_mnist(tmp_path)
    data = MNISTDataModule(str(tmp_path), batch_size=6)
    batch = batches(data, data.train_dataloader())[0]
    assert batch["views"][0].shape == (6, 1, 28, 28)


def test_broken_mnist_is_named(tmp_path):
    write_mnist(tmp_path)
    raw = tmp_path / "MNIST" / "raw"
    images, labels = raw / "train-images-idx3-ubyte", raw / "train-labels-idx1-ubyte"
    whole = images.read_bytes()
    write_idx(labels, np.arange(19))
    with pytest.raises(ValueError, match=r"as many images as labels for 'train' in .*, got 20 and 19"):
        MNISTDataModule(str(tmp_path)).setup()
    for short in (whole[:-5], whole[:7]):
        images.write_bytes(short)
        with pytest.raises(ValueError, match=r"train-images-idx3-ubyte to be a whole IDX file of bytes with 3 axes"):
            MNISTDataModule(str(tmp_path)).setup()
    images.unlink()
    with pytest.raises(FileNotFoundError, match=r"`root` to have .*train-images-idx3-ubyte or .*gz. Set `download`"):
        MNISTDataModule(str(tmp_path)).setup()
    images.with_name(images.name + ".gz").write_bytes(gzip.compress(whole)[:-20])
    with pytest.raises(ValueError, match=r"train-images-idx3-ubyte.gz to be a whole gzip file, but"):
        MNISTDataModule(str(tmp_path)).setup()


@pytest.mark.parametrize(
    ("sizes", "length"), [((2**31, 2**31, 4), 0), ((0, 28, 28), 0), ((20, 28, 28), 20 * 28 * 28 + 1), ((2**31,) * 3, 9)]
)
@pytest.mark.parametrize("pack", [bytes, gzip.compress])
def test_an_idx_file_whose_sizes_lie_is_named(sizes, length, pack, tmp_path):
    """The product of the first sizes is 0 in 64 bits."""
    write_mnist(tmp_path)
    path = tmp_path / "MNIST" / "raw" / "train-images-idx3-ubyte"
    path.unlink()
    packed = path.with_name(path.name + ("" if pack is bytes else ".gz"))
    packed.write_bytes(pack(bytes([0, 0, 8, 3]) + np.array(sizes, ">u4").tobytes() + bytes(length)))
    with pytest.raises(ValueError, match=rf"Expected {packed} to be a whole IDX file of bytes with 3 axes, but"):
        MNISTDataModule(str(tmp_path)).setup()


def test_mnist_is_only_fetched_where_it_is_missing(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr("torchvision.datasets.MNIST", lambda root, download: fetched.append((root, download)))
    MNISTDataModule(str(tmp_path)).prepare_data()
    MNISTDataModule(str(tmp_path), download=True).prepare_data()
    assert fetched == [(str(tmp_path), True)]
    write_mnist(tmp_path)
    for file in (tmp_path / "MNIST" / "raw").iterdir():
        file.with_name(file.name + ".gz").write_bytes(gzip.compress(file.read_bytes()))
        file.unlink()
    data = MNISTDataModule(str(tmp_path), download=True)
    data.prepare_data()
    data.setup()
    assert len(fetched) == 1


def test_the_real_mnist(real_data):
    data = MNISTDataModule(str(real_data))
    data.setup()
    assert len(data._images["train"].label) == 60_000
    assert len(data._images["test"].label) == 10_000
    assert data._images["train"].label[:5].tolist() == [5, 0, 4, 1, 9]
    assert data.mean.item() == pytest.approx(0.1307, abs=2e-3)  # 0.1307 over all of the training images
    assert data.std.item() == pytest.approx(0.3081, abs=2e-3)


def write_cifar(folder, files, keys, n=12):
    folder.mkdir(parents=True)
    generator = np.random.default_rng(0)
    for name in files:
        content = {"data": generator.integers(256, size=(n, 3072), dtype=np.uint8)}
        content |= {key: [i % classes for i in range(n)] for key, classes in keys.items()}
        (folder / name).write_bytes(pickle.dumps(content))


def test_cifar_10_in_its_published_layout(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-10-batches-py"
    write_cifar(folder, [*(f"data_batch_{i}" for i in range(1, 6)), "test_batch"], {"labels": 10})
    (folder / "batches.meta").write_bytes(pickle.dumps({"label_names": [f"class {i}" for i in range(10)]}))
    with pytest.raises(FileNotFoundError, match=r"files of CIFAR10 as published, but some are missing or differ"):
        CIFAR10DataModule(str(tmp_path)).setup()
    CIFAR10DataModule(str(tmp_path)).prepare_data()  # reads nothing without `download`
    monkeypatch.setattr("torchvision.datasets.CIFAR10._check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
    data = CIFAR10DataModule(str(tmp_path), batch_size=8, download=True)
    data.prepare_data()  # the files are there
    batch = batches(data, data.train_dataloader())[0]
    assert batch["views"][0].shape == (8, 3, 32, 32)
    assert data.class_names[3] == "class 3"
    assert len(data._images["train"].label) == 60
    pixels = pickle.loads((folder / "data_batch_1").read_bytes())["data"]
    assert torch.equal(data._images["train"].image[5], torch.from_numpy(pixels[5]).reshape(3, 32, 32))


def test_cifar_100_has_coarse_labels(tmp_path, monkeypatch):
    folder = tmp_path / "cifar-100-python"
    write_cifar(folder, ["train", "test"], {"fine_labels": 100, "coarse_labels": 5})
    (folder / "meta").write_bytes(pickle.dumps({"fine_label_names": [f"fine {i}" for i in range(100)]}))
    monkeypatch.setattr("torchvision.datasets.CIFAR100._check_integrity", lambda self: True)
    monkeypatch.setattr("torchvision.datasets.cifar.check_integrity", lambda path, md5: True)
    data = CIFAR100DataModule(str(tmp_path), batch_size=4)
    batch = batches(data, data.train_dataloader())[0]
    assert torch.equal(batch["coarse_label"], batch["index"] % 5)
    assert torch.equal(batch["label"], batch["index"])
    assert data.num_classes == 100
