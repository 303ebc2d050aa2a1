"""ImageDataModule: images as one uint8 tensor, batches as slices of it, views made on the training device."""

__all__ = ["ImageDataModule", "Images", "Source", "Split"]

from abc import abstractmethod
from typing import Any, Literal, NamedTuple, get_args

import lightning as L
import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.data.loader import BatchLoader, GlobalBatchSampler
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views import SimCLRViews

Split = Literal["train", "val", "test"]
_GREY = (0.2989, 0.587, 0.114)  # ITU-R BT.601 luma, as torchvision has it


class Images(NamedTuple):
    """Images uint8 (N, C, H, W) with their labels int64 (N,), and superclasses where there are some."""

    image: Tensor
    label: Tensor
    coarse_label: Tensor | None = None


class Source(NamedTuple):
    """What a data set holds."""

    train: Images
    test: Images
    class_names: list[str]


class ImageDataModule(L.LightningDataModule):
    """Base of the image data sets: a subclass says in :meth:`load` where the images come from.

    Training batches have `views`, validation and test batches `views` (the same in every epoch) and `image`
    (without augmentation); all have `label` and `index`, the position in the training or the test set as published.
    Views are made in `on_after_batch_transfer`, so on the training device, and are functions of (views' seed, epoch,
    index, view). Nothing is left to worker processes.

    Args:
        batch_size: Samples per process.
        views: Called with (image, index, epoch, mean, std); SimCLR's large views by default.
        val_fraction: Fraction of the training set that is held out for validation, in [0, 1).
        subset: Number of training samples to use, chosen by seed before the split; None: all.
        channels: 3 repeats grey images, 1 turns colour into grey; None leaves them as they are.
        seed: Of subset, split and order.
        drop_last: Leave out the training samples that do not fill a batch.

    Attributes:
        num_classes: Number of classes, after `setup`.
        class_names: Their names, after `setup`.
        mean: (C,), of the training images in [0, 1], after `setup`.
        std: (C,), likewise.

    Raises:
        ValueError: If an argument is out of range; in `setup`, if the set has fewer samples than `subset`, or has
            only one class.
    """

    num_classes: int
    class_names: list[str]
    mean: Tensor
    std: Tensor

    def __init__(
        self,
        batch_size: int,
        views: nn.Module | None,
        val_fraction: float,
        subset: int | None,
        channels: int | None,
        seed: int,
        drop_last: bool,
    ) -> None:
        super().__init__()
        if batch_size < 1:
            raise ValueError(f"Expected `batch_size` >= 1, but got {batch_size}.")
        if not 0 <= val_fraction < 1:
            raise ValueError(f"Expected `val_fraction` in [0, 1), but got {val_fraction}.")
        if subset is not None and subset < 2:
            raise ValueError(f"Expected `subset` >= 2, but got {subset}.")
        if channels not in (None, 1, 3):
            raise ValueError(f"Expected `channels` to be one of None, 1, 3, but got {channels}.")
        self.batch_size = batch_size
        self.views = SimCLRViews() if views is None else views
        self.val_fraction = val_fraction
        self.subset = subset
        self.channels = channels
        self.seed = seed
        self.drop_last = drop_last
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
        if len(source.class_names) < 2:
            raise ValueError(f"Expected images of at least 2 classes, but got only {source.class_names}.")
        if self.channels == 1:
            source = Source(_grey(source.train), _grey(source.test), source.class_names)
        n = len(source.train.label)
        if self.subset is not None and self.subset > n:
            raise ValueError(f"Expected `subset` of at most {n}, the size of the training set, but got {self.subset}.")
        chosen = torch.randperm(n, generator=torch.Generator().manual_seed(self.seed))[: self.subset]
        held_out = round(self.val_fraction * len(chosen))
        if self.val_fraction and not held_out:
            raise ValueError(f"Expected `val_fraction` to hold out a sample of {len(chosen)}, got {self.val_fraction}.")
        self.num_classes, self.class_names = len(source.class_names), source.class_names
        self._images = {"train": source.train, "val": source.train, "test": source.test}
        self._positions = {
            "train": chosen[held_out:].sort().values,
            "val": chosen[:held_out].sort().values,
            "test": torch.arange(len(source.test.label)),
        }
        self.mean, self.std = _moments(source.train.image, self._positions["train"])
        if self.channels == 3:
            self.mean, self.std = self.mean.expand(3), self.std.expand(3)

    def train_dataloader(self) -> BatchLoader:
        """Batches in an order of their own for each epoch."""
        return self._loader("train", augmented=True, shuffle=True, drop_last=self.drop_last)

    def val_dataloader(self) -> BatchLoader | list[BatchLoader]:
        """Batches of the validation set, in order, each sample once; nothing with `val_fraction=0`."""
        return self._loader("val", augmented=True) if self.val_fraction else []

    def test_dataloader(self) -> BatchLoader:
        """Batches of the test set, in order, each sample once."""
        return self._loader("test", augmented=True)

    def predict_dataloader(self) -> DataLoader:
        """Batches of the test set without views."""
        clean = self.clean_dataloader("test")
        return DataLoader(clean.dataset, batch_size=None, sampler=clean.sampler)  # Lightning builds this one anew

    def clean_dataloader(self, split: Split) -> BatchLoader:
        """Batches of a split without views, in order, each sample once: `image`, `label` and `index`.

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
        """Make views and normalise, on the device of the batch."""
        split, augmented, image = batch["split"], batch["augmented"], batch["image"]
        if self.channels == 3:
            image = image.expand(-1, 3, -1, -1)
        mean, std = self.mean.to(image.device), self.std.to(image.device)
        made: Batch = {name: batch[name] for name in ("label", "coarse_label", "index") if name in batch}  # type: ignore[assignment]
        if augmented:
            epoch = self.trainer.current_epoch if split == "train" and self.trainer is not None else 0
            made["views"] = self.views(image, batch.get("host_index", batch["index"]), epoch, mean, std)
        if not augmented or split != "train":
            made["image"] = (image / 255 - mean[:, None, None]) / std[:, None, None]
        return made

    def _loader(self, split: Split, augmented: bool, shuffle: bool = False, drop_last: bool = False) -> BatchLoader:
        self.setup()
        dataset = _Slices(self._images[split], self._positions[split], split, augmented)
        world_size, rank = (self.trainer.world_size, self.trainer.global_rank) if self.trainer is not None else (1, 0)
        sampler = GlobalBatchSampler(len(dataset), self.batch_size, shuffle, drop_last, self.seed, world_size, rank)
        return BatchLoader(dataset, sampler)


class _Slices(Dataset):
    """Whole batches by a tensor of positions."""

    def __init__(self, images: Images, positions: Tensor, split: Split, augmented: bool) -> None:
        self.images = images
        self.positions = positions
        self.split = split
        self.augmented = augmented

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, place: Tensor) -> dict[str, Any]:
        index = self.positions[place]
        columns = {name: column[index] for name, column in self.images._asdict().items() if column is not None}
        return columns | {"index": index, "split": self.split, "augmented": self.augmented}


def _grey(images: Images) -> Images:
    if images.image.shape[1] == 1:
        return images
    weight = torch.tensor(_GREY)[:, None, None]
    grey = [(chunk * weight).sum(1, keepdim=True).round().byte() for chunk in images.image.split(4096)]
    return images._replace(image=torch.cat(grey))


def _moments(image: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
    """Mean and standard deviation per channel of chosen images, in [0, 1], exact from the counts of the 256 values."""
    value = torch.arange(256, dtype=torch.float64) / 255
    counts = torch.zeros(image.shape[1], 256, dtype=torch.float64)
    for chunk in positions.split(8192):
        counts += torch.stack([channel.flatten().bincount(minlength=256) for channel in image[chunk].unbind(1)])
    share = counts / counts.sum(1, keepdim=True)
    mean = share @ value
    variance = (share * (value - mean[:, None]).square()).sum(1)
    if not variance.all():
        raise ValueError("Expected training images that differ, but every pixel of a channel has one value.")
    return mean.float(), variance.sqrt().float()
