"""The laws of every DataModule of the package. A new class enters by itself; ARGUMENTS says what it must be given."""

import inspect

import lightning as L
import pytest
import torch
from hosts import quiet
from PIL import Image
from torch import nn
from torch.utils._pytree import tree_leaves

from lightning_ssl_geometry import data
from lightning_ssl_geometry.data import Images, Source

GLOBAL = 12  # samples in a global batch, of any number of processes
SMALL = {"val_fraction": 0.25, "drop_last": False}
ARGUMENTS = {
    "CIFAR10DataModule": SMALL,
    "CIFAR100DataModule": SMALL,
    "ClusterDataModule": {"passes": 1, "points_per_cluster": 13},
    "DatasetDataModule": SMALL | {"progress": False},
    "DigitsDataModule": SMALL | {"subset": 60},
    "ImageFolderDataModule": SMALL | {"image_size": 8},
    "LatentDGPDataModule": {"dim": 4, "content_dim": 2, "epoch_size": 60, "val_size": 24, "test_size": 24},
    "MNISTDataModule": SMALL,
    "ShiftedMNISTDataModule": SMALL | {"source": "digits", "subset": 60},
    "SklearnDataModule": SMALL | {"subset": 60},
    "TensorDataModule": SMALL,
    "TinyImageNetDataModule": SMALL,
}
PUBLISHED = ("CIFAR10DataModule", "CIFAR100DataModule", "MNISTDataModule", "TinyImageNetDataModule")
SAME_POINTS = ("ClusterDataModule",)  # its parts are the same points, with other noise
DRAWN = ("LatentDGPDataModule",)  # it draws new samples, in the order of their numbers
FOUND = [getattr(data, name) for name in data.__all__]
CLASSES = [
    one.__name__
    for one in FOUND
    if inspect.isclass(one) and issubclass(one, L.LightningDataModule) and not inspect.isabstract(one)
]


class Record(L.LightningModule):
    """Keeps the batches."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))
        self.trained, self.validated = [], []

    def training_step(self, batch, _):
        self.trained.append(copied(batch))
        return 0 * self.weight

    def validation_step(self, batch, _):
        self.validated.append(copied(batch))

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


def copied(batch):
    """The entries that have a row for each sample, as matrices, and the positions of the samples, if there are any."""
    rows = len(batch["views"][0] if "views" in batch else batch["image"])
    leaves = [leaf.detach() for leaf in tree_leaves(batch) if isinstance(leaf, torch.Tensor) and leaf.ndim]
    leaves = [leaf for leaf in leaves if rows in leaf.shape[:2]]  # not what says which dimensions are content
    leaves = [leaf if len(leaf) == rows else leaf.movedim(1, 0) for leaf in leaves]  # latents: one row for each view
    return [leaf.reshape(rows, -1).double() for leaf in leaves], batch.get("index")


def published():
    """Fifty images in the place of files that somebody else has published."""
    generator = torch.Generator().manual_seed(3)
    image = torch.randint(256, (50, 3, 8, 8), dtype=torch.uint8, generator=generator)
    label = torch.arange(50) % 2
    return Source(Images(image[:40], label[:40]), Images(image[40:], label[40:]), ["a", "b"])


def made(name, folder, batch_size=GLOBAL, **more):
    """A DataModule of the class, and what it reads."""
    given = dict(ARGUMENTS.get(name, {}))
    if name == "DatasetDataModule":
        given["train"] = [(image, int(label)) for image, label in zip(*published().train[:2], strict=True)]
    if name == "TensorDataModule":
        given["train"], given["train_label"] = torch.rand(50, 5, generator=torch.Generator().manual_seed(1)), None
    if name == "ImageFolderDataModule":
        given["root"] = str(folder / "images")
        for place, (image, label) in enumerate(zip(*published().train[:2], strict=True)):
            path = folder / "images" / "ab"[label] / f"{place}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            if not path.exists():
                Image.fromarray(image.permute(1, 2, 0).numpy()).save(path)
    one = getattr(data, name)(batch_size=batch_size, **given, **more)
    if name in PUBLISHED:
        one.load, one.prepare_data = published, lambda: None
    return one


def batches(rank, name, folder, processes):
    """The batches of two epochs of training, and of validation, that a process of so many sees."""
    devices = {} if processes == 1 else {"devices": processes, "strategy": "ddp"}
    model = Record()
    torch.manual_seed(17 + (rank or 0))
    trainer = quiet(folder, max_epochs=2, num_sanity_val_steps=0, **devices)
    trainer.fit(model, datamodule=made(name, folder, GLOBAL // processes))
    return model.trained, model.validated


def identified(batch):
    """Rows that tell samples apart: their positions, or all entries together."""
    leaves, index = batch
    return torch.cat(leaves, dim=1) if index is None else index[:, None]


def joined(found):
    return torch.cat([identified(batch) for batch in found])


def distinct(rows):
    return len(rows.unique(dim=0))


@pytest.mark.parametrize("name", CLASSES)
def test_batches_depend_on_the_seed_alone(name, tmp_path):
    def epochs(**settings):
        one = made(name, tmp_path, **settings)
        return [copied(one.on_after_batch_transfer(batch, 0)) for batch in one.train_dataloader()]

    torch.manual_seed(1)
    first = epochs()
    torch.manual_seed(2)
    before = torch.get_rng_state()
    again = epochs()
    assert torch.equal(torch.get_rng_state(), before)
    compare(first, [again])
    other = epochs(seed=5)
    if name in DRAWN:
        assert not torch.equal(first[0][0][0], other[0][0][0])
    else:  # the samples differ, since the split does, and so does their order
        assert not torch.equal(joined(first)[:, 0].argsort(), joined(other)[:, 0].argsort())


@pytest.mark.parametrize("name", CLASSES)
def test_each_sample_comes_once_in_an_epoch_and_in_one_part(name, tmp_path):
    trained, validated = batches(None, name, tmp_path, 1)
    half, checked = len(trained) // 2, len(validated) // 2
    for epoch in (trained[:half], trained[half:], validated[:checked]):
        assert distinct(joined(epoch)) == len(joined(epoch)) > 1
    assert torch.equal(joined(validated[:checked]), joined(validated[checked:]))
    if name in SAME_POINTS:
        return
    one = made(name, tmp_path)
    one.setup("fit")
    parts = {split: copied_epoch(one, split) for split in ("train", "val", "test")}
    assert len(parts["train"]) == len(joined(trained[:half]))
    assert len(parts["val"]) == len(joined(validated[:checked]))
    assert distinct(torch.cat(list(parts.values()))) == sum(map(len, parts.values()))


def copied_epoch(one, split):
    """The samples of a part without augmentation; their positions count from 0 in each part that is published."""
    found = [one.on_after_batch_transfer(batch, 0) for batch in one.unaugmented_dataloader(split)]
    return torch.cat([identified(copied({k: v for k, v in batch.items() if k != "index"})) for batch in found])


def compare(whole, ranks):
    """Ranks hold every R-th row of the batches of one process, so that together they hold each row once."""
    assert {len(found) for found in ranks} == {len(whole)}
    for batch, *parts in zip(whole, *ranks, strict=True):
        for rank, (leaves, _) in enumerate(parts):
            for found, leaf in zip(leaves, batch[0], strict=True):
                torch.testing.assert_close(found, leaf[rank :: len(parts)], rtol=0, atol=1e-5)


@pytest.mark.parametrize("name", CLASSES)
@pytest.mark.parametrize(("processes", "count"), [("two_processes", 2), ("four_processes", 4)])
def test_processes_share_the_batches_of_one(processes, count, name, tmp_path, request):
    alone = batches(None, name, tmp_path, 1)
    together = request.getfixturevalue(processes)(batches, name, tmp_path, count)
    for part in range(2):  # of training, of validation
        compare(alone[part], [found[part] for found in together])
