"""ImageDataModule, which keeps all samples in one tensor and makes views on the training device."""

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

import math
from abc import abstractmethod
from functools import partial
from typing import Any, NamedTuple, TypedDict, cast, get_args

import torch
from lightning.fabric.utilities import move_data_to_device
from torch import Tensor, nn

from lightning_ssl_geometry.checks import inside, integer, one_of, switch
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.moments import moments
from lightning_ssl_geometry.data.read_ahead import read_ahead
from lightning_ssl_geometry.data.resize import check_box, fit, place
from lightning_ssl_geometry.data.resumable import ResumableDataModule, Split
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views import SimCLRViews, batch_entries, learn

_GREY = (0.2989, 0.587, 0.114)  # ITU-R BT.601 luma, as torchvision has it


class Images(NamedTuple):
    """The images of a training set or of a test set.

    Attributes:
        image: uint8 (M, C, H, W), M images, or float32 (M, C, H, W) in [0, 1]. Other samples are float32: vectors
            (M, D) or signals (M, C, T).
        label: int64 (M,). None: the data set has no labels.
        coarse_label: int64 (M,), the superclasses. None: the data set has no superclasses.
        rows: int64 (N,), positions of this set's images among the M images. None: all images belong to the set.
        box: Integers (M, 4), the cell of each image in a larger black image: top, left, bottom and right in pixels.
            Bottom and right are exclusive. `mean` and `std` include the black pixels. None: images are not placed.
        is_mapped: Whether `image` is a file that is memory-mapped, from which a loader reads ahead.
    """

    image: Tensor
    label: Tensor | None
    coarse_label: Tensor | None = None
    rows: Tensor | None = None
    box: Tensor | None = None
    is_mapped: bool = False


class Source(NamedTuple):
    """The sets of a data set.

    Attributes:
        train: The training set.
        test: The test set.
        class_names: Names of the classes in the order of the labels. Empty if there are no labels.
        val: The validation set. None: it is held out from the training set.
    """

    train: Images
    test: Images
    class_names: list[str]
    val: Images | None = None


class SplitSettings(TypedDict, total=False):
    """Arguments of :class:`ImageDataModule` that choose its samples."""

    val_fraction: float
    subset: int | None
    channels: int | None
    drop_last: bool


class ViewSettings(SplitSettings, total=False):
    """Arguments of :class:`ImageDataModule` that choose samples, views and seed."""

    views: nn.Module | None
    seed: int


class ImageSettings(ViewSettings, total=False):
    """All arguments of :class:`ImageDataModule` except `batch_size`."""

    image_size: int | None


class ImageDataModule(ResumableDataModule):
    """Base class of the image data sets. A subclass implements :meth:`load`.

    All batches have `views`. Validation and test batches have the same views in every epoch. They also have `image`,
    the images without augmentation. `index` is the position of an image in the published training or test set. If no
    test set was published, it is the position in the whole set. Batches have `label` if the images have labels. They
    have `box` if the images are placed in larger images (see :class:`Images`). The method `setup` sets the attributes.

    Images are resized and views are made on the training device, without worker processes. A view depends only on (seed
    of the views, epoch, index, number of the view).

    Args:
        batch_size: Samples per process.
        views: Makes the views from (image, index, epoch, mean, std). If it derives from
            :class:`lightning_ssl_geometry.views.ImageViews`, its method `batch_entries` adds entries to the batch.
            None: `SimCLRViews()`.
        val_fraction: Fraction of the training set to hold out for validation, in [0, 1). Unused if the source has a
            validation set.
        subset: Number of training samples to use, including the ones held out for validation. None: all.
        channels: 3 repeats grey images to 3 channels. 1 converts colour images to grey. None: no change.
        seed: Seed of the subset, of the held-out validation samples and of the order.
        drop_last: Leave out the last training samples if they do not fill a batch.
        image_size: Height and width of the images in a batch. Smaller images are padded with zeros. Larger images are
            resized with antialiasing. None: no change.

    Attributes:
        num_classes: Number of classes, if there are labels.
        class_names: Names of the classes.
        image_shape: (C, H, W) of an image in a batch. (D,) of a vector, and (C, T) of a signal.
        mean: (C,), mean of the training pixels, in [0, 1], before images are resized. (D,) for vectors.
        std: (C,), standard deviation of these pixels. (D,) for vectors.

    Raises:
        ValueError: If an argument is out of range. `setup` raises it if there is only one class, or if there are too
            few samples for `subset` or `val_fraction`. A loader raises it if its set is empty.
    """

    num_classes: int
    class_names: list[str]
    image_shape: tuple[int, ...]
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
        inside("[0, 1)", val_fraction=val_fraction)
        integer(2, subset=2 if subset is None else subset)
        integer(1, image_size=1 if image_size is None else image_size)
        switch(drop_last=drop_last)
        one_of((None, 1, 3), channels=channels)
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
        """Read and return the images, their labels and the names of the classes."""

    def setup(self, stage: str | None = None) -> None:
        """Read the images and split them into training, validation and test sets. Later calls do nothing."""
        if self._images:
            return
        source = self.load()
        if source.train.label is not None:
            if len(source.class_names) < 2:
                raise ValueError(f"Expected images of at least 2 classes, but got only {source.class_names}.")
            self.num_classes = len(source.class_names)
        rows, test = _all_rows(source.train), _all_rows(source.test)
        train, val = self._split(rows, hold_out=source.val is None) if len(rows) else (rows, rows)
        if len(train) == 1:
            raise ValueError("Expected at least 2 training samples, to be contrasted with each other, but got 1.")
        size = tuple(source.train.image.shape[2:]) if self.image_size is None else (self.image_size, self.image_size)
        for part in (source.train, source.test):
            if part.box is not None:
                check_box(part.box, part.image, height=size[0], width=size[1])
        around = 0 if source.train.box is None else math.prod(size) - source.train.image[0, 0].numel()
        self._seen = (source.train.image, train) if len(train) else (source.test.image, test)
        self.mean, self.std = moments(*self._seen, recolour=partial(_recolour, channels=self.channels), around=around)
        if self.channels == 3:
            self.mean, self.std = self.mean.expand(3), self.std.expand(3)
        self.image_shape = (len(self.mean), *size)
        self.class_names = source.class_names
        self._positions = {"train": train, "val": val if source.val is None else _all_rows(source.val), "test": test}
        self._images = {"train": source.train, "val": source.val or source.train, "test": source.test}

    def training_loader(self) -> BatchLoader:
        """Make the training loader. It shuffles the samples in each epoch, except with `overfit_batches`."""
        return self._loader("train", augmented=True, shuffle=not self._overfits, drop_last=self.drop_last)

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        """Make the validation loader. If `val_fraction` is 0, return []."""
        self.setup()
        return self._loader("val", augmented=True) if len(self._positions["val"]) else []

    def test_dataloader(self) -> BatchLoader:
        return self._loader("test", augmented=True)

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        one_of(get_args(Split), split=split)
        return self._loader(split, augmented=False)

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        # Drawing views from the copy of `index` on the CPU does not wait for the GPU. The copy of the images does not
        # either, if it is from pinned memory.
        pinned = {"image": batch["image"].pin_memory()} if device.type == "cuda" else {}
        sent = super().transfer_batch_to_device(batch | pinned, device, dataloader_idx)
        return sent | {"host_index": batch["index"]}

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        """Resize the images, make the views and normalise them."""
        split, augmented, image = batch["split"], batch["augmented"], _values(batch["image"])
        made: Batch = {"index": batch["index"]}
        entries: Batch = {}
        if "label" in batch:
            made["label"] = batch["label"]
        if "box" in batch:
            made["box"] = batch["box"].long()
            image = place(image, made["box"], *self.image_shape[1:])
        if image.ndim == 4:
            image = fit(image, self.image_size).expand(-1, self.image_shape[0], -1, -1)
        mean, std = (moment.to(image.device, non_blocking=True) for moment in (self.mean, self.std))
        if "coarse_label" in batch:
            made["coarse_label"] = batch["coarse_label"]
        if augmented:
            epoch = batch["epoch"] if split == "train" else 0
            host_index = batch.get("host_index", batch["index"])
            learn(self.views, *self._seen)  # here, as another DataModule may have the same views
            made["views"] = self.views(image, host_index, epoch, mean, std)
            entries = batch_entries(self.views, host_index, epoch, *image.shape[-2:])
            entries = move_data_to_device(entries, image.device)
        if not augmented or split != "train":
            column = (-1, *[1] * (image.ndim - 2))
            plain = image / 255 if image.dtype == torch.uint8 else image
            made["image"] = (plain - mean.view(column)) / std.view(column)
        # Lightning's own conversion to the precision of the run came earlier, when the samples were still integers.
        # Entries of the views, such as their angles, stay exact.
        found = made if self.trainer is None else self.trainer.precision_plugin.convert_input(made)
        return cast(Batch, found | entries)

    def _split(self, rows: Tensor, hold_out: bool) -> tuple[Tensor, Tensor]:
        n = len(rows)
        if self.subset is not None and self.subset > n:
            raise ValueError(f"Expected `subset` of at most {n}, the size of the training set, but got {self.subset}.")
        chosen = rows[torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))[: self.subset]]
        if not hold_out:
            return chosen.sort().values, chosen[:0]
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
        if augmented:
            learn(self.views, *self._seen)  # refuses samples of another kind before the training
        slices = _Slices(self._images[split], self._positions[split], self.channels, split=split, augmented=augmented)
        return self._batches(slices, len(self._positions[split]), shuffle=shuffle, drop_last=drop_last)


class _Slices:
    def __init__(self, images: Images, rows: Tensor, channels: int | None, **kind: Any) -> None:
        self.images = images
        self.rows = rows
        self.channels = channels
        self.kind = kind

    def announce(self, positions: Tensor) -> None:
        if self.images.is_mapped:
            read_ahead(self.images.image, self.rows[positions])

    def __getitem__(self, positions: Tensor) -> dict[str, Any]:
        index = self.rows[positions]
        columns = {name: column for name, column in self.images._asdict().items() if isinstance(column, Tensor)}
        columns.pop("rows", None)
        # index_select copies whole images, where image[index] would go byte by byte
        batch = {name: column.index_select(0, index) for name, column in columns.items()}
        return batch | {"image": _bits(_recolour(batch["image"], self.channels)), "index": index} | self.kind


def random_split(n: int, test_fraction: float, seed: int) -> tuple[Tensor, Tensor]:
    """Split the positions 0 to n - 1 at random. Return the training positions and the test positions, each sorted.

    `test_fraction`, in (0, 1), is the fraction of test positions. A ValueError is raised if a part is empty.
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
    if channels is not None and image.ndim == 4 and image.shape[1] not in (1, 3):
        raise ValueError(f"Expected `channels` None for images of {image.shape[1]} channels, but got {channels}.")
    if channels != 1 or image.shape[1] == 1:
        return image
    grey = (image * torch.tensor(_GREY)[:, None, None]).sum(1, keepdim=True)
    return grey.round().byte() if image.dtype == torch.uint8 else grey


# In half precision, Lightning would round the samples of a loader before they are standardised. It leaves integers.
def _bits(image: Tensor) -> Tensor:
    return image.float().view(torch.int32) if image.is_floating_point() else image


def _values(bits: Tensor) -> Tensor:
    return bits.view(torch.float32) if bits.dtype == torch.int32 else bits
