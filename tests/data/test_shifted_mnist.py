import lightning as L
import numpy as np
import pytest
import torch
from hosts import quiet
from torch import nn

from lightning_ssl_geometry.data import DigitsDataModule, Images, MNISTDataModule, ShiftedMNISTDataModule
from lightning_ssl_geometry.data.loader import GlobalBatchSampler
from lightning_ssl_geometry.data.resize import check_box, place

SPLITS = ("train", "val", "test")


def shifted(**arguments):
    return ShiftedMNISTDataModule(**({"source": "digits", "batch_size": 50, "subset": 500} | arguments))


def batches(data, loader):
    return [data.on_after_batch_transfer(batch, 0) for batch in loader]


def whole(data, split, key):
    return torch.cat([batch[key] for batch in batches(data, data.unaugmented_dataloader(split))])


def pixels(data, split):
    """The composed images as uint8 again."""
    image = whole(data, split, "image") * data.std[:, None, None] + data.mean[:, None, None]
    return (255 * image).round().byte()


def composed(digit, box, size):
    """Put each digit in the middle of its box, one after the other."""
    canvas = torch.zeros(*digit.shape[:2], size, size, dtype=digit.dtype)
    h, w = digit.shape[2:]
    for n, (top, left, bottom, right) in enumerate(box.tolist()):
        y, x = top + (bottom - top - h) // 2, left + (right - left - w) // 2
        canvas[n, :, y : y + h, x : x + w] = digit[n]
    return canvas


@pytest.mark.parametrize("dtype", [torch.uint8, torch.float64])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("height", "width"), [(8, 8), (5, 7)])
def test_placing_equals_a_slow_loop(height, width, channels, dtype):
    digit = torch.randint(1, 256, (40, channels, height, width)).to(dtype)
    corner, side = torch.randint(20, (40, 2)), torch.randint(8, 14, (40, 2))
    box = torch.cat([corner, corner + side], 1)
    check_box(box, digit, 33, 33)
    placed = place(digit, box, 33, 33)
    assert placed.dtype == dtype
    assert torch.equal(placed, composed(digit, box, 33))


def test_placing_on_an_oblong_canvas_fills_it_to_the_last_row_and_column():
    box = torch.tensor([[0, 0, 2, 2], [1, 3, 3, 5]])
    placed = place(torch.ones(2, 1, 2, 2), box, 3, 5)
    assert placed[:, 0].nonzero().tolist() == [
        [n, top + y, left + x] for n, (top, left, _, _) in enumerate(box.tolist()) for y in (0, 1) for x in (0, 1)
    ]


@pytest.mark.parametrize("split", SPLITS)
def test_the_digit_is_in_its_cell_and_zeros_are_elsewhere(split):
    data, digits = shifted(), DigitsDataModule(subset=500)
    box, made, index = (whole(data, split, "box"), pixels(data, split), whole(data, split, "index"))
    assert torch.equal(index, whole(digits, split, "index"))
    assert torch.equal(whole(data, split, "label"), whole(digits, split, "label"))
    assert (box[:, 2:] - box[:, :2] == 8).all()
    assert torch.equal(made, composed(pixels(digits, split), box, 24))
    assert (box % 8 == 0).all()


@pytest.mark.parametrize(
    ("grid", "cell", "canvas", "start", "before", "side"),
    [(3, None, None, 0, 0, 24), (3, 11, None, 0, 1, 33), (2, 9, 21, 1, 0, 21), (1, None, 11, 1, 0, 11)],
)
def test_larger_cells_and_canvases_leave_the_odd_pixel_at_the_bottom_and_right(grid, cell, canvas, start, before, side):
    data = shifted(grid=grid, cell=cell, canvas=canvas)
    made, box = pixels(data, "train"), whole(data, "train", "box")
    assert data.image_shape == made.shape[1:] == (1, side, side)
    length = cell or 8
    assert set(box[:, 0].tolist()) == set(box[:, 1].tolist()) == {start + length * i for i in range(grid)}
    inside = [(top + before, left + before) for top, left, _, _ in box.tolist()]
    digit = torch.stack([image[:, y : y + 8, x : x + 8] for image, (y, x) in zip(made, inside, strict=True)])
    assert torch.equal(digit, pixels(DigitsDataModule(subset=500), "train"))
    assert torch.equal(made.flatten(1).long().sum(1), digit.flatten(1).long().sum(1))


def test_what_each_batch_has():
    data = shifted()
    loaders = (
        data.train_dataloader(),
        data.val_dataloader(),
        data.test_dataloader(),
        data.unaugmented_dataloader("train"),
    )
    train, val, test, clean = (batches(data, loader)[0] for loader in loaders)
    seen = {"label", "index", "box"}
    assert set(train) == seen | {"views", "g"}
    assert set(val) == set(test) == seen | {"views", "g", "image"}
    assert set(clean) == set(batches(data, data.predict_dataloader())[0]) == seen | {"image"}
    for batch in (train, val, test, clean):
        assert (batch["box"].dtype, batch["box"].shape) == (torch.int64, (len(batch["label"]), 4))
    (view,) = val["views"]
    torch.testing.assert_close(view, val["image"])  # the only view is the normalised image


def test_digits_and_not_canvases_are_held_and_sent_to_the_device(monkeypatch):
    source = DigitsDataModule().load()
    monkeypatch.setattr(DigitsDataModule, "load", lambda self: source)
    data = shifted()
    data.setup()
    for images in data._images.values():
        assert images.image.data_ptr() == source.train.image.data_ptr()
        assert images.image.shape == (1797, 1, 8, 8)
        assert images.box.nbytes == 8 * 1797
    batch = next(iter(data.train_dataloader()))
    assert (batch["image"].shape, batch["image"].dtype) == ((50, 1, 8, 8), torch.uint8)
    assert batch["box"].shape == (50, 4)


def boxes(data, loader):
    """The box of each index."""
    made = batches(data, loader)
    pairs = (zip(batch["index"].tolist(), batch["box"].tolist(), strict=True) for batch in made)
    return {index: box for pair in pairs for index, box in pair}


def test_the_cell_is_a_function_of_seed_set_and_index():
    data = shifted(subset=None)
    train, val, test = (boxes(data, data.unaugmented_dataloader(split)) for split in SPLITS)
    published = train | val
    loader = data.train_dataloader()
    for epoch in (0, 5):
        loader.sampler.set_epoch(epoch)
        assert boxes(data, loader).items() <= train.items()
    for arguments in ({"subset": 200}, {"batch_size": 7}, {"val_fraction": 0.5}, {"drop_last": False}):
        other = shifted(**({"subset": None} | arguments))
        assert boxes(other, other.train_dataloader()).items() <= published.items()
        assert boxes(other, other.val_dataloader()).items() <= published.items()
        assert boxes(other, other.test_dataloader()) == test
    before = torch.get_rng_state()
    assert torch.equal(shifted().load().train.box, data.load().train.box)
    assert torch.equal(torch.get_rng_state(), before)
    assert not torch.equal(shifted(seed=1).load().train.box, data.load().train.box)


def test_two_processes_see_the_batches_of_one():
    data = shifted()
    alone = boxes(data, data.train_dataloader())
    loader, seen = data.train_dataloader(), {}
    for rank in range(2):
        loader.sampler = GlobalBatchSampler(450, 25, shuffle=True, drop_last=True, world_size=2, rank=rank)
        seen |= boxes(data, loader)
    assert seen == alone


def test_train_and_test_are_two_streams():
    source = shifted().load()
    same = (source.train.box == source.test.box).all(1).double().mean()
    assert same == pytest.approx(1 / 9, abs=0.03)  # 4 standard deviations of 1797 draws


@pytest.mark.parametrize("grid", [2, 3])
def test_cells_are_uniform_and_independent_of_the_label_and_of_their_neighbour(grid):
    images = shifted(grid=grid).load().train
    row, column = (images.box[:, :2].long() // 8).unbind(1)
    cell = grid * row + column
    following = grid**2 * cell[:-1] + cell[1:]
    for counts in (cell.bincount(), following.bincount(), (10 * cell + images.label).bincount()):
        expected = counts.sum() / len(counts)
        degrees = len(counts) - 1
        statistic = ((counts - expected).square() / expected).sum().item()
        assert abs(statistic - degrees) < 4 * (2 * degrees) ** 0.5 + 2  # chi-squared: mean d, variance 2 d


@pytest.mark.parametrize("channels", [None, 1, 3])
def test_mean_and_std_are_those_of_the_composed_images(channels):
    data = shifted(channels=channels, cell=9, canvas=30)
    made = pixels(data, "train").double() / 255
    assert made.shape[1:] == data.image_shape == (channels or 1, 30, 30)
    torch.testing.assert_close(data.mean, made.mean((0, 2, 3)).float())
    torch.testing.assert_close(data.std, made.std((0, 2, 3), correction=0).float())


def test_one_cell_is_the_digits_themselves():
    data, digits = shifted(grid=1), DigitsDataModule(subset=500)
    for split in SPLITS:
        assert torch.equal(whole(data, split, "image"), whole(digits, split, "image"))
    assert (whole(data, "test", "box") == torch.tensor([0, 0, 8, 8])).all()


def write_mnist(root):
    generator = np.random.default_rng(0)
    raw = root / "MNIST" / "raw"
    raw.mkdir(parents=True)
    for part, n in (("train", 40), ("t10k", 20)):
        for kind, array in (
            ("images-idx3", generator.integers(256, size=(n, 28, 28))),
            ("labels-idx1", np.arange(n) % 10),
        ):
            header = bytes([0, 0, 8, array.ndim]) + np.array(array.shape, ">i4").tobytes()
            (raw / f"{part}-{kind}-ubyte").write_bytes(header + array.astype(np.uint8).tobytes())


def test_mnist_in_its_published_layout(tmp_path, monkeypatch):
    fetched = []
    monkeypatch.setattr("torchvision.datasets.MNIST", lambda root, download: fetched.append((root, download)))
    ShiftedMNISTDataModule(str(tmp_path)).prepare_data()
    ShiftedMNISTDataModule(str(tmp_path), download=True).prepare_data()
    assert fetched == [(str(tmp_path), True)]
    with pytest.raises(FileNotFoundError, match=r"`root` to have .*train-images-idx3-ubyte or .*gz. Set `download`"):
        ShiftedMNISTDataModule(str(tmp_path)).setup()
    write_mnist(tmp_path)
    data, plain = ShiftedMNISTDataModule(str(tmp_path), batch_size=6), MNISTDataModule(str(tmp_path))
    assert batches(data, data.train_dataloader())[0]["views"][0].shape == (6, 1, 84, 84)
    assert torch.equal(pixels(data, "test"), composed(pixels(plain, "test"), whole(data, "test", "box"), 84))


def test_the_real_mnist(real_data):
    data, plain = ShiftedMNISTDataModule(str(real_data), batch_size=256), MNISTDataModule(str(real_data))
    data.setup()
    plain.setup()
    train, test = data._images["train"], data._images["test"]
    assert (train.image.shape, test.image.shape) == ((60_000, 1, 28, 28), (10_000, 1, 28, 28))
    assert train.image.nbytes + train.box.nbytes == 60_000 * (28 * 28 + 8)
    torch.testing.assert_close(data.mean, plain.mean / 9)
    torch.testing.assert_close(data.std**2, (plain.std**2 + plain.mean**2) / 9 - (plain.mean / 9) ** 2)
    cells = (train.box[:, :2].long() // 28) @ torch.tensor([3, 1])
    share = cells.bincount() / 60_000
    assert share.sub(1 / 9).abs().max() < 0.005  # 4 standard deviations
    batch = next(iter(data.test_dataloader()))
    made = data.on_after_batch_transfer(batch, 0)
    image = (255 * (made["image"] * data.std[:, None, None] + data.mean[:, None, None])).round().byte()
    assert torch.equal(image, composed(test.image[: len(image)], made["box"], 84))


class Sink(L.LightningModule):
    """Takes everything, learns nothing."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(576, 1)

    def training_step(self, batch, batch_idx):
        assert batch["box"].dtype == torch.int64
        return self.layer(batch["views"][0].flatten(1)).mean()

    def validation_step(self, batch, batch_idx):
        return self.layer(batch["image"].flatten(1)).mean()

    def test_step(self, batch, batch_idx):
        return self.validation_step(batch, batch_idx)

    def predict_step(self, batch, batch_idx):
        return batch["index"], batch["box"]

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=1e-9)


def test_every_stage_runs_without_a_warning(tmp_path):
    data = shifted()
    quiet(tmp_path).fit(Sink(), datamodule=data)
    quiet(tmp_path).test(Sink(), datamodule=data, verbose=False)
    predicted = quiet(tmp_path).predict(Sink(), datamodule=data)
    assert torch.equal(torch.cat([index for index, _ in predicted]), data._positions["test"])
    assert torch.cat([box for _, box in predicted]).shape == (359, 4)


@pytest.mark.parametrize("precision", ["bf16-true", "64-true"])
def test_batches_come_in_the_precision_of_the_run(precision, tmp_path):
    quiet(tmp_path, precision=precision, fast_dev_run=True).fit(Sink(), datamodule=shifted())


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"source": "fashion"}, r"`source` to be one of \('mnist', 'digits'\), but got 'fashion'\."),
        ({"grid": 0}, r"`grid` to be an integer >= 1, but got 0\."),
        ({"cell": 7}, r"`cell` >= 8, the side of a digit of 'digits', but got 7\."),
        ({"source": "mnist", "cell": 8}, r"`cell` >= 28, the side of a digit of 'mnist', but got 8\."),
        ({"canvas": 23}, r"`canvas` >= 24, `grid` x `cell`, but got 23\."),
        ({"grid": 2, "cell": 10, "canvas": 19}, r"`canvas` >= 20, `grid` x `cell`, but got 19\."),
        ({"batch_size": 0}, "`batch_size` to be an integer >= 1, but got 0"),
        ({"val_fraction": 1.0}, r"`val_fraction` in \[0, 1\), but got 1.0"),
        ({"subset": 1}, "`subset` to be an integer >= 2, but got 1"),
        ({"channels": 2}, r"`channels` to be one of \(None, 1, 3\), but got 2"),
        ({"test_fraction": 1}, r"`test_fraction` in \(0, 1\), but got 1"),
    ],
)
def test_bad_arguments(arguments, message):
    with pytest.raises(ValueError, match=message):
        shifted(**arguments)


def test_bad_data(monkeypatch):
    source = DigitsDataModule().load()
    with pytest.raises(ValueError, match="`subset` of at most 1438, the size of the training set, but got 2000"):
        shifted(subset=2000).setup()
    empty = source._replace(train=source.train._replace(image=torch.zeros_like(source.train.image)))
    monkeypatch.setattr(DigitsDataModule, "load", lambda self: empty)
    with pytest.raises(ValueError, match="images that differ, but every pixel of a channel has one value"):
        shifted().setup()
    larger = Images(torch.ones(20, 1, 9, 9, dtype=torch.uint8), torch.arange(20) % 10)
    monkeypatch.setattr(DigitsDataModule, "load", lambda self: source._replace(train=larger))
    with pytest.raises(ValueError, match=r"`box` to hold images of 9 x 9 pixels and lie within 24 x 24, but got \["):
        shifted(subset=None).setup()


@pytest.mark.parametrize(
    ("box", "message"),
    [
        ([[0, 0, 2, 2]] * 2, r"`box` of shape \(N, 4\), N = 3, but got \(2, 4\)"),
        ([[0, 0, 2]] * 3, r"`box` of shape \(N, 4\), N = 3, but got \(3, 3\)"),
        ([[0, 0, 2, 2]] * 2 + [[0, 0, 1, 2]], r"images of 2 x 2 pixels .*, but got \[0, 0, 1, 2\]"),
        ([[0, 0, 2, 2]] * 2 + [[1, 3, 3, 4]], r"but got \[1, 3, 3, 4\]"),
        ([[0, 0, 2, 2]] * 2 + [[2, 0, 4, 2]], r"lie within 3 x 5, but got \[2, 0, 4, 2\]"),
        ([[0, 0, 2, 2]] * 2 + [[0, 4, 2, 6]], r"but got \[0, 4, 2, 6\]"),
        ([[0, 0, 2, 2], [-1, 0, 2, 2], [0, -1, 2, 2]], r"but got \[-1, 0, 2, 2\]"),
        ([[0, 0, 2, 2], [0, 0, 2, 2], [0, -1, 2, 2]], r"but got \[0, -1, 2, 2\]"),
    ],
)
def test_boxes_that_images_do_not_fit_are_refused(box, message):
    with pytest.raises(ValueError, match=message):
        check_box(torch.tensor(box), torch.zeros(3, 1, 2, 2), 3, 5)
