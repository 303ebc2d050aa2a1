"""ImageDataModule: images as one uint8 tensor, batches as slices of it, views made on the training device."""

__all__ = [
    "ImageDataModule",
    "ImageSettings",
    "Images",
    "Source",
    "Split",
    "SplitSettings",
    "ViewSettings",
    "random_split",
]

from abc import abstractmethod
from typing import Any, Literal, NamedTuple, TypedDict, get_args

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.resize import check_box, fit, place
from lightning_ssl_geometry.data.resumable import ResumableDataModule, check_training_size
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views import GroupViews, SimCLRViews

Split = Literal["train", "val", "test"]
_GREY = (0.2989, 0.587, 0.114)  # ITU-R BT.601 luma, as torchvision has it


class Images(NamedTuple):
    """The images of a part of a data set.

    Attributes:
        image: uint8 (M, C, H, W).
        label: int64 (M,); None: nobody labelled them.
        coarse_label: int64 (M,), superclasses, where there are some.
        rows: int64 (N,), which rows of the above are of this part: two parts then share one tensor; None: all.
        box: integers (M, 4), top, left, bottom and right (exclusive) of the cell that each image lies in, the rest of
            `image_size` x `image_size` pixels being zeros, which then count in `mean` and `std`; None: no cells.
    """

    image: Tensor
    label: Tensor | None
    coarse_label: Tensor | None = None
    rows: Tensor | None = None
    box: Tensor | None = None


class Source(NamedTuple):
    """What a data set holds; `class_names` by label, none where there are no labels."""

    train: Images
    test: Images
    class_names: list[str]


class SplitSettings(TypedDict, total=False):
    """Settings of :class:`ImageDataModule` that say which samples it has."""

    val_fraction: float
    subset: int | None
    channels: int | None
    drop_last: bool


class ViewSettings(SplitSettings, total=False):
    """These, and its views and seed."""

    views: nn.Module | None
    seed: int


class ImageSettings(ViewSettings, total=False):
    """All settings of :class:`ImageDataModule` but its batch size."""

    image_size: int | None


class ImageDataModule(ResumableDataModule):
    """Base of the image data sets: a subclass says in :meth:`load` where the images come from.

    Training batches have `views`, validation and test batches `views` (the same in every epoch) and `image`
    (without augmentation); all have `index`, the position in the training or the test set as published, or in the
    whole set where nobody published a split, `label` where the set has labels, and `box` where each image lies in a
    cell of its own. Images are brought to their size and views made in `on_after_batch_transfer`, so on the training
    device; views are functions of (views' seed, epoch, index, view). Nothing is left to worker processes.

    Args:
        batch_size: Samples per process.
        views: Called with (image, index, epoch, mean, std); SimCLR's large views by default.
        val_fraction: Fraction of the training set that is held out for validation, in [0, 1).
        subset: Number of training samples to use, chosen by seed before the split; None: all.
        channels: 3 repeats grey images, 1 turns colour into grey; None leaves them as they are.
        seed: Of subset, split and order.
        drop_last: Leave out the training samples that do not fill a batch.
        image_size: Height and width of the images in a batch: larger ones are made by zero padding on all sides, the
            odd pixel at the bottom and right; smaller ones by antialiased resizing; None leaves them. `mean` and
            `std` stay those of the original images.

    Attributes:
        num_classes: Number of classes, after `setup`, where the set has labels.
        class_names: Their names, after `setup`; empty where it has none.
        image_shape: (C, H, W) of an image in a batch, after `setup`.
        mean: (C,), of the training images in [0, 1], after `setup`.
        std: (C,), likewise.

    Raises:
        ValueError: If an argument is out of range; in `setup`, if the set has fewer samples than `subset`, has only
            one class, or leaves nothing for training or validation; where a split is asked for that has no images.
    """

    num_classes: int
    class_names: list[str]
    image_shape: tuple[int, int, int]
    mean: Tensor
    std: Tensor

    @by_position("views", "val_fraction", "subset", "channels", "seed", "drop_last", "image_size")
    def __init__(
        self,
        batch_size: int = 256,
        *,
        views: nn.Module | None = None,
        val_fraction: float = 0.1,
        subset: int | None = None,
        channels: int | None = None,
        seed: int = 0,
        drop_last: bool = True,
        image_size: int | None = None,
    ) -> None:
        super().__init__(batch_size, seed)
        if not 0 <= val_fraction < 1:
            raise ValueError(f"Expected `val_fraction` in [0, 1), but got {val_fraction}.")
        if subset is not None and subset < 2:
            raise ValueError(f"Expected `subset` >= 2, but got {subset}.")
        if channels not in (None, 1, 3):
            raise ValueError(f"Expected `channels` to be one of None, 1, 3, but got {channels}.")
        if image_size is not None and image_size < 1:
            raise ValueError(f"Expected `image_size` >= 1, but got {image_size}.")
        if views is not None and (not isinstance(views, nn.Module) or type(views) is nn.Module):
            raise ValueError(f"Expected `views` to be a module with a `forward`, or None, but got {views!r}.")
        self.views = SimCLRViews() if views is None else views
        self.val_fraction = val_fraction
        self.subset = subset
        self.channels = channels
        self.drop_last = drop_last
        self.image_size = image_size
        self._images: dict[Split, Images] = {}
        self._positions: dict[Split, Tensor] = {}

    @abstractmethod
    def load(self) -> Source:
        """Read the images."""

    def setup(self, stage: str | None = None) -> None:
        """Read the images and split them; once, whatever the stage."""
        if self._images:
            return
        source = self.load()
        if source.train.label is not None:
            if len(source.class_names) < 2:
                raise ValueError(f"Expected images of at least 2 classes, but got only {source.class_names}.")
            self.num_classes = len(source.class_names)
        rows, test = _all_rows(source.train), _all_rows(source.test)
        train, val = self._split(rows) if len(rows) else (rows, rows)
        check_training_size(len(train))
        height, width = source.train.image.shape[2:] if self.image_size is None else (self.image_size, self.image_size)
        for part in (source.train, source.test):
            if part.box is not None:
                check_box(part.box, part.image, height, width)
        around = 0 if source.train.box is None else height * width - source.train.image[0, 0].numel()
        seen = (source.train.image, train) if len(train) else (source.test.image, test)
        self.mean, self.std = _moments(*seen, self.channels, around)
        self.image_shape = (len(self.mean), height, width)
        self.class_names = source.class_names
        self._positions = {"train": train, "val": val, "test": test}
        self._images = {"train": source.train, "val": source.train, "test": source.test}

    def training_loader(self) -> BatchLoader:
        """Batches in an order of their own for each epoch; the same in every epoch under `overfit_batches`."""
        return self._loader("train", augmented=True, shuffle=not self._overfits, drop_last=self.drop_last)

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        """Batches of the validation set, in order, each sample once; nothing with `val_fraction=0`."""
        self.setup()
        return self._loader("val", augmented=True) if len(self._positions["val"]) else []

    def test_dataloader(self) -> BatchLoader:
        """Batches of the test set, in order, each sample once."""
        return self._loader("test", augmented=True)

    def predict_dataloader(self) -> BatchLoader:
        """Batches of the test set without views."""
        return self.unaugmented_dataloader("test")

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """Batches of a split without views, in order, each sample once: `image`, `label`, `index` and any `box`.

        Raises:
            ValueError: If there is no such split.
        """
        if split not in get_args(Split):
            raise ValueError(f"Expected `split` to be one of {get_args(Split)}, but got {split!r}.")
        return self._loader(split, augmented=False)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        """Move the batch, and leave a copy of the index behind: views draw from it without waiting for the device."""
        return super().transfer_batch_to_device(batch, device, dataloader_idx) | {"host_index": batch["index"]}

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        """Bring the images to their size, make views and normalise, on the device of the images."""
        split, augmented, image = batch["split"], batch["augmented"], batch["image"]
        made: Batch = {"index": batch["index"]}
        if "label" in batch:
            made["label"] = batch["label"]
        if "box" in batch:
            made["box"] = batch["box"].long()
            image = place(image, made["box"], *self.image_shape[1:])
        image = fit(image, self.image_size).expand(-1, self.image_shape[0], -1, -1)
        mean, std = (moment.to(image.device, non_blocking=True) for moment in (self.mean, self.std))
        if "coarse_label" in batch:
            made["coarse_label"] = batch["coarse_label"]
        if augmented:
            epoch = batch["epoch"] if split == "train" else 0
            host_index = batch.get("host_index", batch["index"])
            made["views"] = self.views(image, host_index, epoch, mean, std)
            if isinstance(self.views, GroupViews):
                g = self.views.elements(host_index, epoch, *image.shape[-2:])
                made["g"] = tuple(value.to(image.device, non_blocking=True) for value in g)
        if not augmented or split != "train":
            made["image"] = (image / 255 - mean[:, None, None]) / std[:, None, None]
        # Lightning has converted the uint8 images to the precision of the run already, to no effect.
        return made if self.trainer is None else self.trainer.precision_plugin.convert_input(made)

    def _split(self, rows: Tensor) -> tuple[Tensor, Tensor]:
        n = len(rows)
        if self.subset is not None and self.subset > n:
            raise ValueError(f"Expected `subset` of at most {n}, the size of the training set, but got {self.subset}.")
        chosen = rows[torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))[: self.subset]]
        held_out = round(self.val_fraction * len(chosen))
        if held_out == len(chosen) or (self.val_fraction and not held_out):
            raise ValueError(
                f"Expected `val_fraction` to leave some of {len(chosen)} samples for training and some for "
                f"validation, but got {self.val_fraction}."
            )
        return chosen[held_out:].sort().values, chosen[:held_out].sort().values

    def _loader(self, split: Split, augmented: bool, shuffle: bool = False, drop_last: bool = False) -> BatchLoader:
        self.setup()
        if not len(self._positions[split]):
            raise ValueError(f"Expected images in the split {split!r}, but it has none.")
        slices = _Slices(self._images[split], self._positions[split], self.channels, split, augmented)
        return self._batches(slices, len(self._positions[split]), shuffle, drop_last)


class _Slices:
    """Whole batches by a tensor of positions."""

    def __init__(self, images: Images, rows: Tensor, channels: int | None, split: Split, augmented: bool) -> None:
        self.images = images
        self.rows = rows
        self.channels = channels
        self.kind = {"split": split, "augmented": augmented}

    def __getitem__(self, positions: Tensor) -> dict[str, Any]:
        index = self.rows[positions]
        columns = {name: column for name, column in self.images._asdict().items() if column is not None}
        columns.pop("rows", None)
        # index_select copies whole images, where image[index] would go byte by byte
        batch = {name: column.index_select(0, index) for name, column in columns.items()}
        return batch | {"image": _recolour(batch["image"], self.channels), "index": index} | self.kind


def random_split(n: int, test_fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Choose a test set where nobody published one.

    Args:
        n: Number of samples.
        test_fraction: Fraction of them, in (0, 1).
        seed: Of the choice.

    Returns:
        The rows for training and those for testing, each in order.

    Raises:
        ValueError: If `test_fraction` is out of range, or leaves nothing for one of both.

    >>> [len(rows) for rows in random_split(10, 0.2, seed=0)]
    [8, 2]
    """
    held_out = round(test_fraction * n)
    if not 0 < held_out < n:
        raise ValueError(
            f"Expected `test_fraction` to leave some of {n} samples for training and some for testing, "
            f"but got {test_fraction}."
        )
    order = torch.randperm(n, generator=torch.Generator().manual_seed(seed))
    return order[held_out:].sort().values, order[:held_out].sort().values


def _all_rows(images: Images) -> Tensor:
    return torch.arange(len(images.image)) if images.rows is None else images.rows


def _recolour(image: Tensor, channels: int | None) -> Tensor:
    """Turn colour into grey for one channel; the reverse is a mere expand, left to the device."""
    if channels != 1 or image.shape[1] == 1:
        return image
    return (image * torch.tensor(_GREY)[:, None, None]).sum(1, keepdim=True).round().byte()


def _moments(image: Tensor, rows: Tensor, channels: int | None, around: int) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel of chosen images, in [0, 1], exact from the counts of the 256 values.

    `around` is the number of zeros about each image.
    """
    value = torch.arange(256, dtype=torch.float64) / 255
    counts: Tensor = torch.zeros((), dtype=torch.float64)
    for chunk in rows.split(4096):
        planes = _recolour(image.index_select(0, chunk), channels).unbind(1)
        counts = counts + torch.stack([plane.flatten().bincount(minlength=256) for plane in planes])
    counts[:, 0] += around * len(rows)
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ value
    variance = (share * (value - mean[:, None]).square()).sum(1)
    if not variance.all():
        raise ValueError("Expected training images that differ, but every pixel of a channel has one value.")
    repeats = 3 if channels == 3 and len(mean) == 1 else 1
    return mean.float().repeat(repeats), variance.sqrt().float().repeat(repeats)
