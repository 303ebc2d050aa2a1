"""DatasetDataModule: samples of any form are decoded once, into the images that the data set has."""

import os

import numpy as np
import pytest
import torch
from PIL import Image
from torch.utils.data import IterableDataset, TensorDataset
from torchvision.datasets import FakeData
from torchvision.transforms import v2

from lightning_ssl_geometry.data import DatasetDataModule, ImageFolderDataModule, SklearnDataModule
from lightning_ssl_geometry.views import SignalViews, SimCLRViews, VectorViews

GENERATOR = np.random.default_rng(0)
PIXELS = [GENERATOR.integers(0, 255, (10, 12, 3), dtype=np.uint8) for _ in range(20)]
PIL = [Image.fromarray(pixels) for pixels in PIXELS]
GREY = [image.convert("L") for image in PIL]
LABELS = [i % 2 for i in range(20)]
WHOLE = torch.stack([torch.from_numpy(pixels).permute(2, 0, 1) for pixels in PIXELS])


def module(train, **settings):
    return DatasetDataModule(train, **({"batch_size": 4, "progress": False} | settings))


def pairs(images, labels=LABELS):
    return list(zip(images, labels, strict=True))


FORMS = {
    "pairs of PIL": (pairs(PIL), {}),
    "PIL alone": (PIL, {}),
    "arrays (H, W, C)": (pairs(PIXELS), {}),
    "tensors (C, H, W)": (pairs(WHOLE), {}),
    "dicts": ([{"img": image, "label": label} for image, label in pairs(PIL)], {}),
    "dicts with keys": ([{"a": image, "b": n} for image, n in pairs(PIL)], {"image_key": "a", "label_key": "b"}),
    "dicts without labels": ([{"image": image, "fine": 1.5} for image in PIL], {"labels": False}),
    "triples": ([(label, "x", image) for image, label in pairs(PIL)], {"image_key": 2, "label_key": 0}),
    "TensorDataset": (TensorDataset(WHOLE, torch.tensor(LABELS)), {}),
}


@pytest.mark.parametrize("form", FORMS)
def test_the_form_of_a_sample_does_not_matter(form):
    samples, settings = FORMS[form]
    part = module(samples, **settings).parts().train
    assert part.image.dtype == torch.uint8
    assert torch.equal(part.image, WHOLE)
    unlabelled = form in ("PIL alone", "dicts without labels")
    assert part.label is None if unlabelled else part.label.tolist() == LABELS


def test_processes_decode_in_the_order_of_the_samples():
    state = torch.get_rng_state()
    part = module(pairs(PIL), workers=2).parts().train
    assert torch.equal(part.image, WHOLE)
    assert part.label.tolist() == LABELS
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.parametrize(
    ("images", "channels", "shape"),
    [(PIL, None, 3), (GREY, None, 1), (PIL, 1, 1), (GREY, 3, 3), ([GREY[0], *PIL[1:]], 3, 3)],
)
def test_colours_of_pil_images(images, channels, shape):
    data = module(pairs(images), channels=channels)
    data.setup()
    assert data.image_shape == (shape, 10, 12)


def test_image_size_resizes_and_crops_like_a_folder(tmp_path):
    images = [Image.fromarray(GENERATOR.integers(0, 255, (10 + i, 14, 3), dtype=np.uint8)) for i in range(8)]
    for i, image in enumerate(images):
        image.save(tmp_path / f"{i}.png")
    folder = ImageFolderDataModule(str(tmp_path), image_size=9)
    folder.setup()
    assert torch.equal(module(images, image_size=9).parts().train.image, folder._images["train"].image)


@pytest.mark.parametrize(
    ("shape", "kind", "views"),
    [((5,), None, VectorViews), ((2, 9), "signal", SignalViews), ((3, 8, 8), None, SimCLRViews)],
)
def test_arrays_of_each_kind(shape, kind, views):
    x = torch.rand(20, *shape)
    data = module(TensorDataset(x, torch.tensor(LABELS)), kind=kind)
    batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    assert type(data.views) is views
    assert batch["views"][0].shape == (4, *shape)
    assert torch.equal(data.parts().train.image, x)


def test_classes_may_be_their_number():
    samples = TensorDataset(WHOLE, torch.tensor(LABELS))
    samples.classes = 2
    data = module(samples)
    data.setup()
    assert data.class_names == ["0", "1"]


def test_names_of_the_classes():
    samples = FakeData(20, (3, 8, 8), 2)
    assert_names(module(samples), ["0", "1"])
    samples.classes = ["cat", "dog"]
    assert_names(module(samples), ["cat", "dog"])
    assert_names(module(samples, class_names=["a", "b"]), ["a", "b"])


def assert_names(data, names):
    data.setup()
    assert data.class_names == names


class Counted(list):
    """Samples that count how often they are read."""

    reads = 0

    def __getitem__(self, place):
        Counted.reads += 1
        return super().__getitem__(place)


def reads(samples, path, **settings):
    Counted.reads = 0
    data = module(Counted(samples), cache=str(path), **settings)
    data.prepare_data()
    data.setup()
    return Counted.reads


def test_the_cache_is_read_again_and_written_again_if_something_changed(tmp_path):
    path, samples = tmp_path / "new" / "x.pt", pairs(PIL)
    first = reads(samples, path)
    probes = reads(samples, path)
    assert probes == 2 * (len(samples) + 1)  # the first, and all to compare them, in `prepare_data` and in `setup`
    assert first > probes + 15
    for change in (
        lambda: reads(samples[:18], path),
        lambda: reads(samples, path, image_size=8),
        lambda: reads(samples, path, channels=1),
        lambda: reads(samples, path, labels=False),
        lambda: reads([*samples[:-1], samples[0]], path),
        lambda: reads([(image, 1 - label) for image, label in samples], path),
    ):
        assert change() > probes + 15
    assert [file.name for file in path.parent.iterdir()] == ["x.pt"]
    data = module(samples, cache=str(path))
    data.setup()
    assert torch.equal(data._images["train"].image, WHOLE)


def foreign(path, kind):
    if kind == "folder":
        path.mkdir()
    elif kind == "text":
        path.write_bytes(b"not a file of torch")
    elif kind == "weights":
        torch.save({"weight": torch.ones(3)}, path)
    else:
        module(PIL, cache=str(path)).prepare_data()
        whole = path.read_bytes()
        path.write_bytes(whole[:-300] if kind == "torn" else whole.replace(b"key", b"\xb1ey"))


@pytest.mark.parametrize("kind", ["folder", "text", "weights", "torn", "flipped"])
def test_a_file_that_is_no_cache_is_never_replaced(tmp_path, kind):
    path = tmp_path / "x.pt"
    foreign(path, kind)
    before = None if path.is_dir() else path.read_bytes()
    with pytest.raises(
        FileExistsError, match=r"x\.pt to be a file of decoded samples, .* Name another file as `cache`"
    ):
        module(PIL, cache=str(path)).prepare_data()
    assert [file.name for file in tmp_path.iterdir()] == ["x.pt"]
    assert before is None or path.read_bytes() == before


def test_samples_of_another_process_in_the_cache_are_not_taken(tmp_path, monkeypatch):
    path = tmp_path / "x.pt"
    data, write = module(PIL, cache=str(path)), torch.save
    monkeypatch.setattr(torch, "save", lambda held, file: write(held | {"key": "of another"}, file))
    with pytest.raises(OSError, match=r"another process wrote other samples there\. Name another file as `cache`"):
        data.prepare_data()


def test_an_empty_cache_is_filled_and_a_failed_one_leaves_nothing(tmp_path):
    path = tmp_path / "x.pt"
    path.touch()
    assert torch.equal(module(PIL, cache=str(path)).parts().train.image, WHOLE)
    path.unlink()
    with pytest.raises(ValueError, match=r"`train\[19\]`"):
        module([*PIL[:-1], None], cache=str(path)).prepare_data()
    assert not list(tmp_path.iterdir())
    (tmp_path / "file").touch()
    with pytest.raises(OSError, match=r"Expected to write the decoded samples to .* Name another file as `cache`"):
        module(PIL, cache=str(tmp_path / "file" / "x.pt")).prepare_data()


@pytest.mark.parametrize("error", [FileNotFoundError("no cat.png"), RuntimeError("no decoder")], ids=repr)
def test_an_error_of_the_data_set_is_not_one_of_the_cache(error, tmp_path, monkeypatch):
    def refuse(*_):
        raise error

    data = module(PIL, cache=str(tmp_path / "x.pt"))
    monkeypatch.setattr(data, "_decode", refuse)
    with pytest.raises(type(error), match=f"^{error}$"):
        data.prepare_data()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("place", range(20))
def test_a_change_of_any_sample_of_a_small_set_is_seen(place, tmp_path):
    before, after = [torch.zeros(20, 3) for _ in range(2)]
    after[place, 2] = 1.0
    for rows in (before, after):
        data = module(list(rows), cache=str(tmp_path / "x.pt"))
        assert torch.equal(data.parts().train.image, rows)


def test_a_large_set_is_compared_at_evenly_spaced_samples(tmp_path, monkeypatch):
    monkeypatch.setattr("lightning_ssl_geometry.data.dataset._COMPARED", 5)
    samples = list(torch.zeros(41, 3))
    data = module(samples, cache=str(tmp_path / "x.pt"))
    keys = [data._identity(data._decoder())]
    for place in (10, 11):  # 0, 10, 20, 30 and 40 are compared
        changed = module([*samples[:place], torch.ones(3), *samples[place + 1 :]])
        keys.append(changed._identity(changed._decoder()))
    assert keys[0] == keys[2] != keys[1]


class Long:
    """A data set of many equal samples."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, place):
        if place >= self.length:
            raise IndexError(place)
        return torch.zeros(2), 0


@pytest.mark.parametrize("length", [1, 16, 2**25 + 4, 2**40 + 1])
def test_the_samples_that_are_compared_are_in_the_data_set(length, tmp_path):
    data = module(Long(length), cache=str(tmp_path / "x.pt"))
    assert data._identity(data._decoder())


def test_the_progress_bar_can_be_off(capsys):
    module(PIL).setup()
    assert "Decoding" not in capsys.readouterr().out
    module(PIL, progress=True).setup()
    assert "Decoding 20 samples of train" in capsys.readouterr().out


class Stream(IterableDataset):
    def __iter__(self):
        yield from PIL


class Lying(list):
    """A list whose length is not that of its samples."""

    def __init__(self, samples, length):
        super().__init__(samples)
        self.length = length

    def __len__(self):
        return self.length


WRONG = [
    (
        Lying(PIL, 25),
        {},
        r"`train` to have 25 samples, as its `__len__` says, but reading `train\[\d+\]` raised an Index",
    ),
    (
        Lying([], 5),
        {},
        r"`train` to have 5 samples, as its `__len__` says, but reading `train\[0\]` raised an IndexError",
    ),
    (Lying(PIL, -1), {}, r"`train` with a length that is an integer >= 0, but: "),
    (Lying(PIL, 2.5), {}, r"`train` with a length that is an integer >= 0, but: "),
    ([torch.eye(8)[None].to_sparse()] * 9, {}, r"`train\[0\]` to be a dense tensor"),
    (Stream(), {}, "`train` to be a data set with a length and an index, .* type Stream. Make a list of its samples"),
    (iter(PIL), {}, "`train` to be a data set .* type list_iterator"),
    ([], {}, "`train` with samples, but it is empty"),
    ([*PIL[:5], None], {}, r"`train\[5\]` to be a PIL image, an array or a tensor, but got .* NoneType"),
    (["cat.png"] * 9, {}, r"`train\[0\]` to be a PIL image, an array or a tensor, but got .* str"),
    ([*GREY[:3], *PIL], {}, r"`train\[\d+\]` in grey like the first image, but its mode is 'RGB'. Set `channels`"),
    ([*PIL, PIL[0].resize((5, 5))], {}, r"like `train\[0\]`, \(3, 10, 12\) .* \(3, 5, 5\) .* Set `image_size`"),
    ([Image.new("F", (5, 5))] * 9, {}, r"`train\[0\]` with 8 bits per channel, but its mode is 'F'"),
    ([np.full((8, 8), np.nan)] * 9, {"kind": "image"}, r"finite `train\[0\]`, but got 64 of 64"),
    ([np.zeros((8, 8))] * 9, {}, r"`kind` 'image' or 'signal' for `train\[0\]` of shape \(8, 8\), but got None"),
    ([2 * np.ones((8, 8, 3))] * 9, {}, r"`train\[0\]` in \[0, 1\], as it is floating point, .* such as 255"),
    ([-np.ones((8, 8, 3))] * 9, {}, r"got values in \[-1.0, -1.0\]\. If they are normalized, leave that out of"),
    (pairs(PIL, np.linspace(0, 1, 20).tolist()), {}, r"label of `train\[0\]` to be an integer, .* type float"),
    (pairs(PIL, list("ab") * 10), {}, r"label of `train\[0\]` to be an integer, .* type str.*np.unique"),
    (pairs(PIL, [None, *LABELS[1:]]), {}, r"labels for all samples of `train` or for none, but 1 have none"),
    ([np.zeros((3, 16, 16))] * 9, {}, r"`train\[0\]` of shape \(H, W, C\), .* got \(3, 16, 16\)\. .*torch.from_numpy"),
    ([np.zeros((1, 16, 16))] * 9, {}, r"`train\[0\]` of shape \(H, W, C\), .* but got \(1, 16, 16\)"),
    (pairs(PIL, [2**63] * 20), {}, r"label of `train\[0\]` < 2\*\*63, but got 9223372036854775808"),
    (pairs(PIL, [-1] * 20), {}, r"label of `train\[0\]` >= 0, but got -1"),
    (pairs(PIL, PIL), {}, r"the label of `train\[0\]` .* Set `labels` to False if this entry is no label"),
    ([{"pic": PIL[0], "label": 1}] * 9, {}, r"`image_key` to be one of the keys \['pic', 'label'\] of `train\[0\]`"),
    ([{"image": PIL[0], "y": 1}] * 9, {}, r"`label_key` to be one of the keys .*but got None. Set `labels` to False"),
    (pairs(PIL), {"label_key": 2}, r"`label_key` to be a place in `train\[0\]`, a tuple of 2, but got 2"),
    (pairs(PIL), {"test": PIL}, "labels for all of the sets train, test or for none"),
    (torch.rand(9, 5), {"image_size": 4}, "`image_size` None for samples that are no images, but got 4"),
    (PIL, {"workers": -1}, "`workers` to be an integer >= 0, but got -1"),
    (PIL, {"progress": "no"}, "`progress` to be True or False, but got 'no'"),
    (PIL, {"kind": "x"}, "`kind` to be one of"),
    (
        FakeData(20, (3, 8, 8), 2, v2.RandomCrop(6)),
        {},
        "equal each time it is read, .* Leave random",
    ),
    ({"valid": PIL}, {}, r"`train` to have a split 'train', but it has only \['valid'\]"),
    ({"train": PIL}, {"test": PIL}, "`val` and `test` None beside `train` with several splits"),
]


@pytest.mark.parametrize(("samples", "settings", "message"), WRONG, ids=[message for *_, message in WRONG])
def test_what_is_wrong_with_the_samples(samples, settings, message):
    with pytest.raises(ValueError, match=message):
        module(samples, **settings).setup()


@pytest.fixture
def pets():
    datasets = pytest.importorskip("datasets")
    names = datasets.ClassLabel(names=["cat", "dog"])
    features = datasets.Features({"image": datasets.Image(), "label": names})
    return datasets.Dataset.from_dict({"image": PIL, "label": LABELS}, features=features)


def test_hugging_face(pets, tmp_path):
    data = module(pets, cache=str(tmp_path / "x.pt"))
    data.setup()
    assert data.class_names == ["cat", "dog"]
    assert torch.equal(data._images["train"].image, WHOLE)
    before = os.stat(tmp_path / "x.pt").st_mtime_ns
    module(pets, cache=str(tmp_path / "x.pt")).prepare_data()
    assert os.stat(tmp_path / "x.pt").st_mtime_ns == before
    swapped = pets.select([0, 2, 1, *range(3, 20)])  # none of the samples that are compared
    module(swapped, cache=str(tmp_path / "x.pt")).prepare_data()
    assert os.stat(tmp_path / "x.pt").st_mtime_ns > before


def test_splits_of_hugging_face_in_memory_and_in_a_folder(pets, tmp_path):
    splits = pets.train_test_split(0.3, seed=0)
    splits["validation"] = pets.select(range(4))
    splits.save_to_disk(tmp_path / "pets")
    for train in (splits, str(tmp_path / "pets")):
        data = module(train)
        data.setup()
        assert [len(data._positions[split]) for split in ("train", "val", "test")] == [14, 4, 6]
        assert torch.equal(data._images["val"].image, WHOLE[:4])
    with pytest.raises(ValueError, match="`train` to be a data set with a length and an index"):
        module(pets.to_iterable_dataset())
    with pytest.raises(FileNotFoundError):
        module(str(tmp_path / "no"))


def test_a_missing_package_is_named(monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "datasets", None)
    with pytest.raises(ImportError, match=r"package `datasets` .*pip install 'lightning-ssl-geometry\[datasets\]'"):
        module("folder")


@pytest.mark.parametrize(
    ("name", "sizes", "classes"),
    [("breast_cancer", (409, 46, 114, 30), 2), ("iris", (108, 12, 30, 4), 3), ("wine", (128, 14, 36, 13), 3)],
)
def test_the_tables_of_scikit_learn(name, sizes, classes):
    data = SklearnDataModule(name)
    data.setup()
    found = [len(data._positions[split]) for split in ("train", "val", "test")]
    assert (*found, *data.image_shape) == sizes
    assert data.num_classes == len(data.class_names) == classes
    with pytest.raises(ValueError, match="`name` to be one of"):
        SklearnDataModule("digits")
