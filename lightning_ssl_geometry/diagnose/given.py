"""Turn the argument `data` of :func:`diagnose` into a DataModule."""

__all__ = ["DiagnosisData", "datamodule_of", "folder_of_images", "place_and_views"]

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, Dataset, RandomSampler, SequentialSampler, TensorDataset, default_collate

from lightning_ssl_geometry.checks import class_numbers, integer
from lightning_ssl_geometry.data import ImageDataModule, ImageFolderDataModule
from lightning_ssl_geometry.data.folder import common_size
from lightning_ssl_geometry.diagnose.samples import Reading, Samples
from lightning_ssl_geometry.either_lightning import package_of
from lightning_ssl_geometry.observe.batch_keys import contents, in_short

DiagnosisData = LightningDataModule | DataLoader | Dataset | Tensor | Sequence[Tensor] | str | Path
_BATCH_SIZE = 256


def datamodule_of(data: Any, reading: Reading) -> LightningDataModule:
    """Return a DataModule with the test set of `data`. The argument `data` of :func:`diagnose` lists what it may be.

    Raises a ValueError if `data` is anything else, is empty, or has no images.
    """
    if isinstance(data, LightningDataModule):
        reading.refuse("views", "batch_size", "image_size", beside=f"{type(data).__name__}, which has its own")
        return data.for_diagnosis() if isinstance(data, ImageFolderDataModule) else data
    if isinstance(data, str | Path):
        return _folder(Path(data), reading)
    reading.refuse("image_size", beside="images that are not in a folder")
    if isinstance(data, DataLoader):
        reading.refuse("batch_size", beside="a DataLoader, which has its own")
        return Samples(_in_order(data), type(data.dataset).__name__, reading)
    batch_size = _BATCH_SIZE if reading.batch_size is None else reading.batch_size
    integer(1, batch_size=batch_size)
    if isinstance(data, Dataset):
        return Samples(DataLoader(data, batch_size, collate_fn=_collate), type(data).__name__, reading)
    tensors = [data] if isinstance(data, Tensor) else list(data) if isinstance(data, tuple | list) else []
    if len(tensors) not in (1, 2) or not all(isinstance(each, Tensor) for each in tensors):
        raise ValueError(_refusal(data))
    return Samples(_tensors(tensors, batch_size), f"tensors with the checksum {_checksum(tensors)}", reading)


def folder_of_images(
    root: str | Path, image_size: int, batch_size: int, cache: str | Path, channels: int | None = None
) -> ImageFolderDataModule:
    """Return a DataModule whose test set is all images in a folder. Names of subfolders are the labels.

    Args:
        root: The folder. If it has a subfolder `test`, the images are read from there. A FileNotFoundError is raised if
            the folder does not exist, a ValueError if it has no images.
        image_size: Height and width to which images are resized.
        batch_size: Samples per process.
        cache: Folder for decoded images. Each `root` gets its own subfolder.
        channels: 1: convert colours to grey. None: keep the channels of the images.
    """
    if not Path(root).is_dir():
        raise FileNotFoundError(f"Expected `images` to be a folder, but there is none at {root}.")
    place = hashlib.sha256(str(Path(root).resolve()).encode()).hexdigest()[:16]
    return ImageFolderDataModule(
        str(root),
        image_size,
        batch_size,
        val_fraction=0.0,
        channels=channels,
        test_fraction=1.0,
        cache=str(Path(cache) / place),
    )


def place_and_views(data: LightningDataModule, image_shape: Sequence[int] | None) -> dict[str, str]:
    """Return entries for `run.json`: the path of the data and, of an ImageDataModule, the images' shape and views."""
    root = getattr(data, "root", None)
    found = {"data_path": str(Path(root).resolve())} if root else {}
    if isinstance(data, ImageDataModule) and image_shape is not None:
        found |= {"views": repr(data.views), "image_shape": " x ".join(map(str, image_shape))}
    return found


def _refusal(data: Any) -> str:
    got, hint = in_short(data), ""
    if isinstance(data, type):
        got, hint = f"the class {data.__name__}", f" Make an object of it: `{data.__name__}(...)`."
    elif package_of(data) == "pytorch-lightning":
        got = f"a {type(data).__name__} of `pytorch_lightning`"
        hint = " Hand over its `test_dataloader()`, or derive it from `lightning.LightningDataModule`."
    elif any(type(each).__module__ == "numpy" for each in (data if isinstance(data, tuple | list) else [data])):
        hint = " Make tensors of arrays: `torch.from_numpy(images)`."
    elif hasattr(data, "__getitem__") and hasattr(data, "__len__") and not isinstance(data, Mapping | Sequence):
        hint = " A data set of another library works as `DataLoader(data, batch_size=256)`."
    return (
        "Expected `data` to be a DataModule, a DataLoader, a Dataset, a folder of images, a tensor of images or a "
        f"tuple of tensors (images, labels), but got {got}.{hint}"
    )


def _folder(root: Path, reading: Reading) -> ImageFolderDataModule:
    if not root.is_dir():
        raise FileNotFoundError(f"Expected `data` to be a folder of images, but there is none at {root}.")
    size = common_size(root) if reading.image_size is None else reading.image_size
    batch_size = _BATCH_SIZE if reading.batch_size is None else reading.batch_size
    images = folder_of_images(root, size, batch_size, cache=reading.cache)
    images.views = reading.maker
    return images


def _tensors(tensors: Sequence[Tensor], batch_size: int) -> DataLoader:
    images = tensors[0]
    if images.ndim and not len(images):
        raise ValueError(f"Expected `data` to have samples, but got images of shape {tuple(images.shape)}.")
    if not images.ndim or images.ndim < 3:
        raise ValueError(f"Expected images (N, C, H, W) in `data`, but got {in_short(images)}.")
    for label in tensors[1:]:
        if len(class_numbers("label", label)) != len(images):
            raise ValueError(f"Expected a `label` for each of {len(images)} images, but got {len(label)}.")
    return DataLoader(TensorDataset(*(each.detach() for each in tensors)), batch_size)


def _checksum(tensors: Sequence[Tensor]) -> str:
    found = hashlib.sha256()
    for each in tensors:
        found.update(each.detach().cpu().contiguous().view(torch.uint8).numpy())
    return found.hexdigest()[:8]


def _in_order(loader: DataLoader) -> DataLoader:
    """Return a loader of the same samples without shuffling, and with the last batch."""
    sampler = loader.sampler
    whole = isinstance(sampler, SequentialSampler) or (
        isinstance(sampler, RandomSampler) and not sampler.replacement and sampler.num_samples == len(loader.dataset)  # type: ignore[arg-type]
    )
    plain = type(loader) is DataLoader and loader.batch_size is not None
    if not (plain and whole) or (isinstance(sampler, SequentialSampler) and not loader.drop_last):
        return loader
    return DataLoader(
        loader.dataset,
        loader.batch_size,
        num_workers=loader.num_workers,
        collate_fn=loader.collate_fn,
        pin_memory=loader.pin_memory,
        worker_init_fn=loader.worker_init_fn,
        multiprocessing_context=loader.multiprocessing_context,
    )


def _collate(items: list[Any]) -> Any:
    try:
        return default_collate(items)
    except (TypeError, RuntimeError, KeyError) as error:
        item = items[0]
        held = contents(item).replace("The batch", "The first of them", 1)
        raise ValueError(
            "Expected the samples of `data` to be tensors of one shape and numbers, such as (image, label). Give the "
            f"data set a `transform` that makes them. {held} torch says: {str(error).splitlines()[0]}"
        ) from error
