"""What may be handed to `diagnose` as data, and what the network then sees of it."""

import warnings

import lightning
import numpy as np
import pandas as pd
import pytest
import torch
from diagnose.test_diagnosis import write_images
from torch import nn
from torch.utils.data import (
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    Subset,
    SubsetRandomSampler,
    TensorDataset,
)
from torchvision.datasets import FakeData
from torchvision.transforms import ToTensor

from lightning_ssl_geometry.data import DigitsDataModule, ImageFolderDataModule
from lightning_ssl_geometry.diagnose import DiagnosedModel, diagnose
from lightning_ssl_geometry.diagnose.comparison import similarity
from lightning_ssl_geometry.methods import SimCLRModule
from lightning_ssl_geometry.nn import MLPProjector, SmallCNN
from lightning_ssl_geometry.views import NormalizedViews, SimCLRViews

N = 40
BYTES = torch.randint(0, 256, (N, 3, 8, 8), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
IMAGES = BYTES / 255
LABELS = torch.arange(N) % 4
VIEWS = (IMAGES, IMAGES.flip(3))


class Pixels(nn.Module):
    """Returns some pixels as h, and remembers all that it saw."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(x)
        return x.flatten(1)[:, :6]


class Made(Dataset):
    def __init__(self, make):
        self.make = make

    def __len__(self):
        return N

    def __getitem__(self, place):
        return self.make(place)


class Stream(IterableDataset):
    def __iter__(self):
        return iter(zip(IMAGES, LABELS, strict=True))


def look(data, folder, model=None, **arguments):
    """The network, with the clean images and the views that it saw in one batch, and the run."""
    network = Pixels() if model is None else model
    return network, diagnose(network, data, folder, accelerator="cpu", progress=False, **arguments)


def loader(*tensors, **arguments):
    return DataLoader(TensorDataset(*tensors), **({"batch_size": 64} | arguments))


LABELLED = {
    "uint8 and labels": lambda: (BYTES, LABELS),
    "floats and labels": lambda: (IMAGES, LABELS),
    "a list": lambda: [IMAGES, LABELS.int()],
    "a Dataset": lambda: TensorDataset(IMAGES, LABELS),
    "a Dataset of dicts": lambda: Made(lambda i: {"image": IMAGES[i], "label": int(LABELS[i])}),
    "a DataLoader": lambda: loader(IMAGES, LABELS),
    "a DataLoader that shuffles": lambda: loader(IMAGES, LABELS, shuffle=True, batch_size=16, drop_last=True),
    "a DataLoader that drops": lambda: loader(IMAGES, LABELS, batch_size=16, drop_last=True),
    "a stream": lambda: Stream(),
}
UNLABELLED = {
    "uint8": lambda: BYTES,
    "floats": lambda: IMAGES,
    "float64": lambda: IMAGES.double(),
    "a Dataset of images": lambda: Made(lambda i: IMAGES[i]),
    "a dict with other keys": lambda: Made(lambda i: {"pixel_values": IMAGES[i], "labels": int(LABELS[i])}),
    "a list of one": lambda: [IMAGES],
}


@pytest.mark.parametrize("kind", [*LABELLED, *UNLABELLED])
def test_every_kind_of_data_is_the_same_images(kind, tmp_path):
    network, run = look((LABELLED | UNLABELLED)[kind](), tmp_path)
    rows = [torch.cat(part) for part in (network.seen[0::2], network.seen[1::2])]  # views and clean images take turns
    views, clean = max(rows, key=len), min(rows, key=len)
    torch.testing.assert_close(clean, IMAGES)
    assert views.shape == (2 * N, 3, 8, 8)
    assert ("test/label_agreement_fine" in run.scalars) == (kind in LABELLED)
    held = np.load(run / "representations.npz")
    order = held["index"].argsort()
    assert sorted(held["index"]) == list(range(N))
    np.testing.assert_allclose(held["h"][order], IMAGES.flatten(1)[:, :6], rtol=1e-6)
    if kind in LABELLED:
        assert held["label"][order].tolist() == LABELS.tolist()


def test_the_views_of_a_sample_depend_on_its_place_alone(tmp_path):
    # SimCLRViews draws them from (seed, index, number of the view)
    expected = torch.cat(SimCLRViews()(IMAGES, torch.arange(N)))
    for size in (64, 7):
        network, _ = look(IMAGES, tmp_path, batch_size=size)
        views = [batch.chunk(2) for batch in network.seen[0::2]]
        found = torch.cat([torch.cat([view[part] for view in views]) for part in (0, 1)])
        torch.testing.assert_close(found, expected)


def test_samples_that_have_views_keep_them(tmp_path):
    batches = {
        "pairs": loader(*VIEWS, LABELS),
        "a list and a label": Made(lambda i: ([view[i] for view in VIEWS], LABELS[i])),
        "dicts": Made(lambda i: {"views": [view[i] for view in VIEWS], "label": LABELS[i]}),
    }
    for data in batches.values():
        network, run = look(data, tmp_path)
        torch.testing.assert_close(network.seen[0], torch.cat(VIEWS))
        assert "test/label_agreement_fine" in run.scalars
        assert not [name for name in run.scalars if "alpha_req" in name]  # of clean images, which there are none of
    *_, run = look(loader(*VIEWS), tmp_path, normal_model())
    assert {"test/loss", "test/lidar"} <= run.scalars.keys()
    with pytest.raises(ValueError, match="`views` None beside batches that have views, but got SimCLRViews"):
        look(loader(*VIEWS), tmp_path, views=SimCLRViews())
    with pytest.raises(ValueError, match="`normalization` None beside batches that have views"):
        look(loader(*VIEWS), tmp_path, normalization=([0.5] * 3, [0.5] * 3))


def normal_model():
    torch.manual_seed(0)
    return SimCLRModule(SmallCNN(3, 4), MLPProjector(32, 16, 8))


def test_tensors_and_a_datamodule_of_them_give_a_method_the_same_numbers(tmp_path):
    data = DigitsDataModule(batch_size=400, channels=3)
    data.setup()
    (batch,) = data.unaugmented_dataloader("test")
    moments = data.mean.tolist(), data.std.tolist()
    image = batch["image"].expand(-1, 3, -1, -1)
    _, tensors = look((image, batch["label"]), tmp_path, normal_model(), batch_size=400, normalization=moments)
    _, ours = look(data, tmp_path, normal_model())
    shared = tensors.scalars.keys() & ours.scalars.keys()
    assert "test/loss" in shared
    assert tensors.scalars.keys() == ours.scalars.keys()
    clean = [name for name in shared if name.partition("/")[2].startswith(("alpha_req", "intrinsic"))]
    for name in clean:  # the views differ, since the indices do
        assert tensors.scalars[name].value[0] == pytest.approx(ours.scalars[name].value[0], rel=1e-3), name


def test_normalization_and_normalised_images(tmp_path):
    mean, std = [0.4, 0.5, 0.6], [0.25, 0.5, 0.2]
    normalised = (IMAGES - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    given, run = look(IMAGES, tmp_path, normalization=(mean, std))
    assert run.info["normalization"] == "mean 0.400, 0.500, 0.600; std 0.250, 0.500, 0.200"
    already, _ = look(normalised, tmp_path, views=NormalizedViews(mean, std))
    torch.testing.assert_close(given.seen[1], normalised)
    for first, second in zip(given.seen, already.seen, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-4, atol=1e-5)


def test_a_diagnosed_model_says_what_samples_hold_and_stays_as_it_is(tmp_path):
    data = Made(lambda i: {"deep": {"x": IMAGES[i]}, "text": "a", "target": int(LABELS[i])})
    views = SimCLRViews(strength="small")
    model = DiagnosedModel(Pixels(), batch_keys={"image": "deep.x", "label": "target"}, augment=views)
    before = model.batch_keys, model.augment, model.training
    _, run = look(data, tmp_path, model)
    assert "test/label_agreement_fine" in run.scalars
    assert run.info["views"] == repr(views)
    assert (model.batch_keys, model.augment, model.training) == before
    _, run = look(data, tmp_path, model, views=SimCLRViews())
    assert run.info["views"] == repr(SimCLRViews())


def test_a_sampler_of_ones_own_is_kept(tmp_path):
    network, _ = look(loader(IMAGES, sampler=SubsetRandomSampler(range(5))), tmp_path)
    assert len(network.seen[1]) == 5
    network, _ = look(DataLoader(Subset(TensorDataset(IMAGES), range(9)), batch_size=64), tmp_path)
    torch.testing.assert_close(network.seen[1], IMAGES[:9])


def test_a_subclass_of_a_diagnosed_model_stays_one(tmp_path):
    class Doubled(DiagnosedModel):
        def test_step(self, batch, batch_idx):
            found = super().test_step(batch, batch_idx)
            return found | {"h_image": 2 * found["h_image"]}

    model = Doubled(Pixels(), batch_keys={"image": 0}, augment=SimCLRViews())
    _, run = look(loader(IMAGES), tmp_path, model)
    held = np.load(run / "representations.npz")
    np.testing.assert_allclose(held["h"][held["index"].argsort()], 2 * IMAGES.flatten(1)[:, :6], rtol=1e-6)
    assert model.batch_keys == {"image": 0}


def test_images_in_memory_need_no_advice_on_workers(tmp_path):
    with warnings.catch_warnings():
        warnings.filterwarnings("error", message=".*does not have many workers")
        look(IMAGES, tmp_path)


def test_a_folder_by_its_name(tmp_path):
    write_images(tmp_path / "flat", classes=0)
    write_images(tmp_path / "named", classes=3)
    for name, labels in (("flat", False), ("named", True)):
        network, run = look(str(tmp_path / name), tmp_path / "out")
        assert run.info["samples"] == len(network.seen[1]) == 24
        assert network.seen[1].shape[1:] == (3, 10, 10)
        assert ("test/label_agreement_fine" in run.scalars) == labels
    network, _ = look(tmp_path / "flat", tmp_path / "out", image_size=8, batch_size=5)
    assert network.seen[1].shape == (5, 3, 8, 8)
    assert not list((tmp_path / "flat").rglob("*.pt"))


def test_a_datamodule_of_a_flat_folder_is_used_whole(tmp_path):
    write_images(tmp_path / "images", classes=0)
    data = ImageFolderDataModule(str(tmp_path / "images"), 8)
    assert look(data, tmp_path)[1].info["samples"] == 24
    data.setup()  # its test set is drawn: a network may have been trained on the rest
    assert look(data, tmp_path)[1].info["samples"] == 5


def test_the_data_decide_what_compare_takes_as_the_same(tmp_path):
    names = [look(data, tmp_path)[1].info["data"] for data in (BYTES, BYTES, BYTES.flip(0), (BYTES, LABELS))]
    assert names[0] == names[1]
    assert len(set(names)) == 3


def numbered(images, index):
    return {"image": images, "index": index}


def backwards(place):
    return numbered(IMAGES[N - 1 - place], N - 1 - place)


TO_COMPARE = {
    "the same Dataset": (TensorDataset(IMAGES), TensorDataset(IMAGES.clone()), True),
    "batches of another size": (loader(IMAGES), loader(IMAGES, batch_size=7), True),
    "another order, with an index": (Made(lambda i: numbered(IMAGES[i], i)), Made(backwards), True),
    "another order, without": (TensorDataset(IMAGES), TensorDataset(IMAGES.flip(0)), False),
    "other images": (loader(IMAGES), loader(1 - IMAGES), False),
    "other views": (loader(*VIEWS), loader(VIEWS[0], IMAGES.flip(2)), False),
    "the same views": (loader(*VIEWS), loader(*VIEWS, batch_size=9), True),
}


@pytest.mark.parametrize(("first", "second", "same"), TO_COMPARE.values(), ids=TO_COMPARE.keys())
def test_models_are_compared_on_the_same_images_alone(first, second, same, tmp_path):
    folders = {name: look(data, tmp_path, name=name)[1].folder for name, data in (("a", first), ("b", second))}
    if same:
        np.testing.assert_allclose(similarity(folders), 1, rtol=1e-5)
    else:
        with pytest.raises(
            ValueError, match=r"of the same data, but .* 'a' is of .*checksum \w{16}; 'b' is of .*checksum"
        ):
            similarity(folders)


class RandomViews(TensorDataset):
    """Two noisy views of an image, drawn anew each time."""

    def __getitem__(self, i):
        (image,) = super().__getitem__(i)
        return [(image + 0.1 * torch.randn_like(image)).clamp(0, 1) for _ in range(2)], i % 3


def test_random_views_are_compared_if_they_are_seeded_as_the_error_says(tmp_path):
    folders = {}
    for name, seed in (("a", 0), ("b", 0), ("c", 1)):
        lightning.seed_everything(seed, verbose=False)
        folders[name] = look(RandomViews(IMAGES), tmp_path, name=name)[1].folder
    np.testing.assert_allclose(similarity({name: folders[name] for name in "ab"}), 1, rtol=1e-5)
    with pytest.raises(ValueError, match=r"random views, call `lightning.seed_everything\(0\)` before each `diagnose`"):
        similarity(folders)


def test_a_stream_that_does_not_begin_again_is_read_whole(tmp_path):
    class Once(Stream):
        def __init__(self):
            self.held = super().__iter__()

        def __iter__(self):
            return self.held

    network, run = look(DataLoader(Once(), batch_size=16), tmp_path)
    torch.testing.assert_close(torch.cat(network.seen[1::2]), IMAGES)
    assert run.info["samples"] == N


FIVES = [list(range(5)), list(range(5, 10))]
SIZES = {
    "a sampler": (lambda: loader(IMAGES, sampler=SubsetRandomSampler(range(10))), 10),
    "a sampler, and the last batch is dropped": (
        lambda: loader(IMAGES, sampler=SubsetRandomSampler(range(10)), batch_size=4, drop_last=True),
        8,
    ),
    "a random part": (lambda: loader(IMAGES, sampler=RandomSampler(range(N), num_samples=10)), 10),
    "a batch sampler": (lambda: DataLoader(TensorDataset(IMAGES), batch_sampler=FIVES), 10),
    "batches made by the data set": (lambda: DataLoader(TensorDataset(IMAGES.unflatten(0, (4, 10))), None), N),
}


@pytest.mark.filterwarnings(
    "ignore:Your `test_dataloader`'s sampler has shuffling enabled"
)  # which is Lightning's view
@pytest.mark.parametrize(("make", "size"), SIZES.values(), ids=SIZES.keys())
def test_the_record_has_the_number_of_samples_that_were_seen(make, size, tmp_path):
    network, run = look(make(), tmp_path)
    assert run.info["samples"] == size == sum(map(len, network.seen[1::2]))


NAN = IMAGES.clone().index_fill(0, torch.tensor([1, 5]), torch.nan)
BAD = {
    "nothing": (None, "`data` to be a DataModule, a DataLoader, .* but got one NoneType"),
    "a number": (5, "but got one int"),
    "a dict": ({"a": IMAGES}, "but got a dict of 'a'"),
    "a class": (DigitsDataModule, r"got the class DigitsDataModule. Make an object of it: `DigitsDataModule\(...\)`"),
    "an array": (IMAGES.numpy(), r"but got one ndarray. Make tensors of arrays: `torch.from_numpy\(images\)`"),
    "arrays": ((IMAGES.numpy(), LABELS.numpy()), "but got a tuple of ndarray. Make tensors of arrays"),
    "three tensors": ((IMAGES, LABELS, LABELS), "but got a tuple of 3 tensors"),
    "a table": (pd.DataFrame({"a": [1]}), r"but got one DataFrame. A data set of another library works as `DataLoader"),
    "no images": (IMAGES[:0], r"to have samples, but got images of shape \(0, 3, 8, 8\)"),
    "an empty Dataset": (TensorDataset(IMAGES[:0]), "to have samples, but the TensorDataset is empty"),
    "one image": (IMAGES[:1], "to have at least 2 samples, but got 1"),
    "NaN": (NAN, "finite images in `data`, but 2 of 40 in a batch have NaN or infinity"),
    "infinity": (IMAGES.clone().fill_(torch.inf), "finite images in `data`, but 40 of 40 in a batch"),
    "255": (BYTES.float(), r"images in \[0, 1\] in `data`, .* Divide them by their largest possible value"),
    "normalised": (4 * IMAGES - 2, r"from -2 to 2. If they are normalised, .* `views=NormalizedViews\(mean, std\)`"),
    "integers": (BYTES.long(), "images of torch.uint8 or floating point in `data`, but got torch.int64"),
    "no channels": (IMAGES[:, 0], r"images \(N, C, H, W\) in `data`, but got .*: `images.unsqueeze\(1\)`"),
    "channels last": (IMAGES.permute(0, 2, 3, 1), r"come before height and width: `images.permute\(0, 3, 1, 2\)`"),
    "vectors": (IMAGES.flatten(1), r"images \(N, C, H, W\) in `data`, but got float32 \(40, 192\)"),
    "a scalar": (torch.tensor(1.0), r"images \(N, C, H, W\) in `data`, but got float32 \(\)"),
    "float labels": ((IMAGES, LABELS.float()), r"`label` as class numbers, .* but got torch.float32"),
    "one-hot labels": ((IMAGES, torch.eye(4)[LABELS]), r"`label` as class numbers, .* but got shape \(40, 4\)"),
    "too few labels": ((IMAGES, LABELS[1:]), "a `label` for each of 40 images, but got 39"),
    "targets": (loader(IMAGES, LABELS / 4), r'no labels, `DiagnosedModel\(model, batch_keys={"image": 0}\)` ignores'),
    "captions": (Made(lambda i: (IMAGES[i], "a cat")), "class numbers, .* got a tuple of str"),
    "no image in a dict": (Made(lambda i: {"text": "a"}), r"in the batches of `data`. The batch has 'text': a list"),
    "texts": (Made(lambda i: "a cat"), "images in the batches of `data`"),
    "PIL": (FakeData(4, (3, 8, 8)), r"to be tensors of one shape .* Give the data set a `transform` .* 0: one Image"),
    "sizes": (Made(lambda i: torch.rand(3, 8 + i, 8)), r"to be tensors of one shape .*\[3, 9, 8\]"),
}  # fmt: skip


@pytest.mark.parametrize("kind", BAD)
def test_bad_data(kind, tmp_path):
    data, message = BAD[kind]
    with pytest.raises(ValueError, match=f"Expected .*{message}"):
        look(data, tmp_path)
    assert not list(tmp_path.iterdir())  # before anything is written


@pytest.mark.parametrize(
    ("data", "arguments", "message"),
    [
        (IMAGES, {"image_size": 8}, "`image_size` None beside images that are not in a folder, but got 8"),
        (IMAGES, {"batch_size": 0}, "`batch_size` to be an integer >= 1, but got 0"),
        (loader(IMAGES), {"batch_size": 8}, "`batch_size` None beside a DataLoader, which has its own, but got 8"),
        (DigitsDataModule(), {"batch_size": 8}, "`batch_size` None beside DigitsDataModule, which has its own"),
        (DigitsDataModule(), {"views": SimCLRViews()}, "`views` None beside Digits.*, but got SimCLRViews"),
        (IMAGES, {"normalization": ([0.5], [0.5])}, "`normalization` of 3 channels, but got 1"),
        (IMAGES, {"normalization": ([0.5] * 3, [0.0] * 3)}, "`std` > 0 for each channel"),
        ((IMAGES, LABELS), {"linear_evaluation": True}, "ImageDataModule beside `linear_evaluation`, but got tensors"),
    ],
)  # fmt: skip
def test_arguments_that_do_not_go_with_the_data(data, arguments, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        look(data, tmp_path, **arguments)


def test_bad_folders(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"`data` to be a folder of images, but there is none at .*nowhere"):
        look(str(tmp_path / "nowhere"), tmp_path)
    with pytest.raises(ValueError, match=r"`root` to have images, .* but .* has none"):
        look(tmp_path, tmp_path)
    write_images(tmp_path / "images", n=2, classes=0)
    (tmp_path / "images" / "0.png").write_bytes(b"no image")
    with pytest.raises(ValueError, match=r"`root` to hold whole images only, but got .*0\.png \("):
        look(tmp_path / "images", tmp_path)


def test_images_that_become_bad_in_a_later_batch_are_refused_too(tmp_path):
    with pytest.raises(ValueError, match="finite images in `data`, but 1 of 10 in a batch have NaN"):
        look(IMAGES.clone().index_fill(0, torch.tensor([25]), torch.nan), tmp_path, batch_size=10)


def test_data_from_a_transform_of_torchvision(tmp_path):
    network, run = look(FakeData(12, (3, 8, 8), num_classes=3, transform=ToTensor()), tmp_path)
    assert (run.info["data"], run.info["samples"], run.info["image_shape"]) == ("FakeData", 12, "3 x 8 x 8")
    assert network.seen[1].aminmax().max <= 1
