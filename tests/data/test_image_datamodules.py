import lightning as L
import pytest
import torch
from hosts import quiet
from sklearn.datasets import load_digits
from torch import nn
from torchvision.transforms.v2.functional import resize

from lightning_ssl_geometry.data import (
    DigitsDataModule,
    ImageDataModule,
    Images,
    Source,
)


class Made(ImageDataModule):
    """Twenty colour images whose first pixel is their position."""

    def __init__(self, batch_size=4, val_fraction=0.2, **settings):
        super().__init__(batch_size, val_fraction=val_fraction, **settings)

    def load(self):
        image = torch.randint(256, (30, 3, 6, 6), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        image[:, :, 0, 0] = torch.arange(30, dtype=torch.uint8)[:, None]
        label = torch.arange(30) % 2
        return Source(Images(image[:20], label[:20]), Images(image[20:], label[20:]), ["a", "b"])


class Echo(nn.Module):
    """Views that say what they were called with."""

    def forward(self, image, index, epoch, mean, std):
        return image.float() + 1000 * epoch, image.float() + 1000 * epoch


def batches(data, loader):
    return [data.on_after_batch_transfer(batch, 0) for batch in loader]


def test_splits_are_disjoint_and_index_says_which_sample_it_is():
    data = Made(views=Echo())
    seen = {}
    for split in ("train", "val", "test"):
        made = batches(data, data.unaugmented_dataloader(split))
        seen[split] = torch.cat([batch["index"] for batch in made])
        image = torch.cat([batch["image"] for batch in made]) * data.std[:, None, None] + data.mean[:, None, None]
        pixel = (255 * image[:, 0, 0, 0]).round().long()
        assert torch.equal(pixel, seen[split] + (20 if split == "test" else 0))
        assert torch.equal(torch.cat([batch["label"] for batch in made]), seen[split] % 2)
    assert sorted(torch.cat([seen["train"], seen["val"]]).tolist()) == list(range(20))
    assert len(seen["val"]) == 4
    assert seen["test"].tolist() == list(range(10))


def test_what_each_batch_has():
    data = Made(views=Echo())
    (train, *_), (val, *_), (test, *_) = (
        batches(data, loader) for loader in (data.train_dataloader(), data.val_dataloader(), data.test_dataloader())
    )
    clean = batches(data, data.unaugmented_dataloader("train"))[0]
    assert set(train) == {"views", "label", "index"}
    assert set(val) == set(test) == {"views", "image", "label", "index"}
    assert set(clean) == {"image", "label", "index"}
    assert set(batches(data, data.predict_dataloader())[0]) == {"image", "label", "index"}
    assert [len(b["label"]) for b in batches(data, data.train_dataloader())] == [4, 4, 4, 4]


def test_normalisation_uses_the_training_images():
    data = Made()
    image = torch.cat([batch["image"] for batch in batches(data, data.unaugmented_dataloader("train"))])
    torch.testing.assert_close(image.mean((0, 2, 3)), torch.zeros(3), atol=1e-5, rtol=0)
    torch.testing.assert_close(image.std((0, 2, 3), correction=0), torch.ones(3))


def test_views_are_new_in_every_epoch_of_training_and_the_same_in_validation(tmp_path):
    class Look(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))
            self.seen = {"train": [], "val": []}

        def training_step(self, batch, batch_idx):
            self.seen["train"].append(batch["views"][0].amax().item() // 1000)
            return self.weight * 1.0

        def validation_step(self, batch, batch_idx):
            self.seen["val"].append(batch["views"][0].amax().item() // 1000)

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    model = Look()
    quiet(tmp_path, max_epochs=3).fit(model, datamodule=Made(batch_size=8, views=Echo()))
    assert model.seen == {"train": [0, 0, 1, 1, 2, 2], "val": [0, 0, 0]}


def test_a_loader_without_its_data_module_resumes_too(tmp_path):
    class Look(L.LightningModule):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.zeros(()))
            self.seen = []

        def training_step(self, batch, batch_idx):
            self.seen.append((self.current_epoch, batch_idx, batch["index"].tolist()))
            return self.weight * 1.0

        def configure_optimizers(self):
            return torch.optim.SGD(self.parameters(), lr=0.1)

    class Interrupt(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            if trainer.global_step == 7:  # two of the five batches of the second epoch
                trainer.save_checkpoint(tmp_path / "x.ckpt")
                raise KeyError("interrupted")

    def fit(model, *callbacks, ckpt_path=None):
        trainer = quiet(tmp_path, max_epochs=3, callbacks=list(callbacks))
        trainer.fit(model, Made(val_fraction=0.0).train_dataloader(), ckpt_path=ckpt_path)

    whole, first, second = Look(), Look(), Look()
    fit(whole)
    with pytest.raises(KeyError, match="interrupted"):
        fit(first, Interrupt())
    fit(second, ckpt_path=tmp_path / "x.ckpt")
    assert len(whole.seen) == 15
    assert first.seen + second.seen == whole.seen


class Sink(L.LightningModule):
    """Takes everything, learns nothing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(108, 1)
        self.index = []

    def training_step(self, batch, batch_idx):
        self.index.append(batch["index"].tolist())
        return self.layer(batch["views"][0].flatten(1)).mean()

    def validation_step(self, batch, batch_idx):
        return self.layer(batch["views"][0].flatten(1)).mean()

    def test_step(self, batch, batch_idx):
        return self.validation_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        assert "views" not in batch
        return self.layer(batch["image"].flatten(1)), batch["index"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-9)


def test_every_stage_runs_without_a_warning(tmp_path):
    quiet(tmp_path, num_sanity_val_steps=1).fit(Sink(), datamodule=Made())
    quiet(tmp_path).validate(Sink(), datamodule=Made(), verbose=False)
    quiet(tmp_path).test(Sink(), datamodule=Made(), verbose=False)
    predicted = quiet(tmp_path).predict(Sink(), datamodule=Made())
    assert torch.cat([index for _, index in predicted]).tolist() == list(range(10))


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_batches_come_in_the_precision_of_the_run(precision, tmp_path):
    quiet(tmp_path, precision=precision, fast_dev_run=True).fit(Sink(), datamodule=Made())


@pytest.mark.filterwarnings("ignore:You requested to overfit but enabled:UserWarning")
def test_overfit_batches_are_the_same_in_every_epoch(tmp_path):
    model = Sink()
    quiet(tmp_path, overfit_batches=2, max_epochs=2).fit(model, datamodule=Made())
    assert len(model.index) == 4
    assert model.index[:2] == model.index[2:]


def test_clean_batches_can_be_made_in_the_middle_of_training(tmp_path):
    class Judge(L.Callback):
        def on_train_batch_end(self, trainer, *_):
            data = trainer.datamodule
            made = batches(data, data.unaugmented_dataloader("train"))
            assert set(made[0]) == {"image", "label", "index"}
            assert sum(len(batch["index"]) for batch in made) == 16

    watched, alone = Sink(), Sink()
    quiet(tmp_path, max_epochs=2, callbacks=[Judge()]).fit(watched, datamodule=Made())
    quiet(tmp_path, max_epochs=2).fit(alone, datamodule=Made())
    assert watched.index == alone.index


def test_a_copy_of_the_index_stays_on_the_host_for_the_views():
    data = Made()
    batch = next(iter(data.train_dataloader()))
    moved = data.transfer_batch_to_device(batch, torch.device("meta"), 0)
    assert moved["image"].is_meta
    assert moved["index"].is_meta
    assert torch.equal(moved["host_index"], batch["index"])


def test_the_split_is_fixed_by_the_seed():
    def train(**arguments):
        data = Made(**arguments)
        data.setup()
        return data._positions["train"].tolist()

    assert train() == train()
    assert train() != train(seed=1)
    assert len(train(subset=10)) == 8
    assert set(train(subset=10)) <= set(range(20))


def test_channels():
    data = Made(channels=1)
    image = batches(data, data.unaugmented_dataloader("train"))[0]["image"]
    assert image.shape[1] == 1
    assert data.mean.shape == (1,)
    data = DigitsDataModule(channels=3, batch_size=50)
    batch = batches(data, data.train_dataloader())[0]
    assert batch["views"][0].shape == (50, 3, 8, 8)
    assert data.mean.shape == (3,)


def test_digits():
    data = DigitsDataModule(batch_size=64)
    data.setup()
    assert data.num_classes == 10
    assert [len(data._positions[split]) for split in ("train", "val", "test")] == [1294, 144, 359]
    assert data._images["train"].image.amax() == 255
    assert (data.class_names[3], data.image_shape) == ("3", (1, 8, 8))
    batch = batches(data, data.train_dataloader())[0]
    assert len(batch["views"]) == 2
    assert batch["views"][0].shape == (64, 1, 8, 8)
    assert batch["label"].unique().numel() == 10


def test_the_index_of_a_digit_names_it_whatever_the_split():
    published = load_digits()
    for seed in (0, 1):
        data = DigitsDataModule(seed=seed, subset=500)
        for split in ("train", "val", "test"):
            for batch in data.unaugmented_dataloader(split):
                assert torch.equal(batch["label"], torch.from_numpy(published.target)[batch["index"]])
                pixels = torch.from_numpy(published.images)[batch["index"]] * (255 / 16)
                assert torch.equal(batch["image"][:, 0], pixels.round().byte())
    positions = torch.cat(list(data._positions.values()))
    assert len(positions.unique()) == len(positions) == 500 + 359


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"batch_size": 0}, "`batch_size` to be an integer >= 1, but got 0"),
        ({"val_fraction": 1.0}, r"`val_fraction` in \[0, 1\), but got 1.0"),
        ({"subset": 1}, "`subset` to be an integer >= 2, but got 1"),
        ({"channels": 2}, r"`channels` to be one of \(None, 1, 3\), but got 2"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        Made(**arguments)


class OneClass(Made):
    def load(self):
        return super().load()._replace(class_names=["a"])


class Black(Made):
    def load(self):
        source = super().load()
        return source._replace(train=source.train._replace(image=source.train.image * 0))


_BAD_DATA = [
    (lambda: Made(subset=21).setup(), "`subset` of at most 20, the size of the training set, but got 21"),
    (lambda: Made(val_fraction=0.01).setup(), r"`val_fraction` to leave some of 20 samples .* but got 0\.01"),
    (lambda: Made(subset=2, val_fraction=0.9).setup(), r"`val_fraction` to leave some of 2 samples .* but got 0\.9"),
    (lambda: Made(subset=2, val_fraction=0.5).setup(), "at least 2 training samples, .* but got 1"),
    (lambda: Made(subset=5, val_fraction=0.8).setup(), "at least 2 training samples, .* but got 1"),
    (lambda: DigitsDataModule(test_fraction=1e-4).setup(), r"`test_fraction` to leave some of 1797 .* but got 0\.0001"),
    (lambda: DigitsDataModule(test_fraction=1), r"`test_fraction` in \(0, 1\), but got 1"),
    (lambda: DigitsDataModule(image_size=0), "`image_size` to be an integer >= 1, but got 0"),
    (lambda: Made().unaugmented_dataloader("x"), r"`split` to be one of \('train', 'val', 'test'\), but got 'x'"),
    (lambda: Made(batch_size=17).train_dataloader(), "`batch_size` x processes of at most 16, .* samples, but got 17"),
    (lambda: OneClass().setup(), r"at least 2 classes, but got only \['a'\]"),
    (lambda: Black().setup(), "images that differ, but every pixel of a channel has one value"),
]


def test_two_training_samples_are_enough():
    Made(subset=2, val_fraction=0.0).setup()


@pytest.mark.parametrize(("call", "message"), _BAD_DATA, ids=[message for _, message in _BAD_DATA])
def test_bad_data(call, message):
    with pytest.raises(ValueError, match=message):
        call()


def test_no_validation_set():
    assert Made(val_fraction=0.0).val_dataloader() == []


class Sized(ImageDataModule):
    """Ten colour images of any shape."""

    def __init__(self, height, width, **arguments):
        super().__init__(batch_size=8, views=Echo(), val_fraction=0.0, **arguments)
        self.size = (10, 3, height, width)

    def load(self):
        image = torch.randint(256, self.size, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
        images = Images(image, torch.arange(10) % 2)
        return Source(images, images, ["a", "b"])


def sized(height, width, image_size, **arguments):
    """The data, its images as they were, and as uint8 again after they went through a batch."""
    data = Sized(height, width, image_size=image_size, **arguments)
    batch = batches(data, data.test_dataloader())[0]
    assert data.image_shape[1:] == batch["image"].shape[2:] == batch["views"][0].shape[2:]
    made = (255 * (batch["image"] * data.std[:, None, None] + data.mean[:, None, None])).round().byte()
    assert torch.equal(made, batch["views"][0].byte())  # views are made of the very same images
    assert batch["views"][0].frac().count_nonzero() == 0
    return data, data._images["test"].image[batch["index"]], made


@pytest.mark.parametrize(("size", "image_size", "before"), [(8, 9, 0), (28, 29, 0), (28, 32, 2), (5, 10, 2), (8, 8, 0)])
def test_larger_images_are_padded_with_zeros_the_odd_pixel_at_the_bottom_and_right(size, image_size, before):
    data, image, made = sized(size, size, image_size)
    inside = slice(before, before + size)
    assert data.image_shape == (3, image_size, image_size)
    assert torch.equal(made[:, :, inside, inside], image)
    made[:, :, inside, inside] = 0
    assert not made.any()


def test_smaller_images_are_resized_with_antialiasing():
    _, image, made = sized(12, 12, 5)
    assert torch.equal(made, resize(image, [5, 5], antialias=True))
    assert not torch.equal(made, resize(image, [5, 5], antialias=False))


def test_each_axis_of_an_oblong_image_is_padded_or_resized():
    _, image, made = sized(6, 12, 9)
    assert torch.equal(made[:, :, 1:7], resize(image, [6, 9], antialias=True))
    assert not made[:, :, [0, 7, 8]].any()
    assert sized(6, 12, None)[0].image_shape == (3, 6, 12)


def test_mean_and_std_stay_those_of_the_original_images():
    original, *_ = sized(8, 8, None)
    for image_size in (4, 16):
        data, *_ = sized(8, 8, image_size)
        assert torch.equal(data.mean, original.mean)
        assert torch.equal(data.std, original.std)


def test_size_and_channels_together():
    data, _, made = sized(8, 8, 9, channels=1)
    assert data.image_shape == made.shape[1:] == (1, 9, 9)
    data = DigitsDataModule(batch_size=16, channels=3, image_size=9)
    train = batches(data, data.train_dataloader())[0]
    test = batches(data, data.test_dataloader())[0]
    assert [view.shape for view in train["views"]] == [(16, 3, 9, 9)] * 2
    assert test["image"].shape[1:] == test["views"][0].shape[1:] == data.image_shape == (3, 9, 9)


@pytest.mark.parametrize("views", [{}, [], nn.Module(), "SimCLRViews"], ids=["mapping", "list", "module", "name"])
def test_views_that_are_none_are_refused(views):
    with pytest.raises(ValueError, match=r"Expected `views` to be a module with a `forward`, or None, but got"):
        DigitsDataModule(views=views)
