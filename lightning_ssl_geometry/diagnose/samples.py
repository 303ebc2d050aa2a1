"""Samples: turns the batches of any loader into batches of this package."""

__all__ = ["Normalization", "Reading", "Samples", "checksum", "in_words", "of_all_processes"]

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence, Sized
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, cast

import torch
from lightning.fabric.utilities import move_data_to_device
from lightning.pytorch import LightningDataModule
from torch import Tensor, nn
from torch.utils.data import DataLoader, IterableDataset

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import class_numbers
from lightning_ssl_geometry.diagnose.diagnosed_model import NAMES
from lightning_ssl_geometry.observe.batch_keys import (
    BatchKeys,
    contents,
    image_place,
    in_short,
    views_place,
)
from lightning_ssl_geometry.observe.batch_reader import BatchReader
from lightning_ssl_geometry.types import Batch
from lightning_ssl_geometry.views import NormalizedViews, SimCLRViews, batch_entries, image_range

Normalization = tuple[Sequence[float], Sequence[float]]
_CHANNELS = (1, 3, 4)
_MOST_LISTED = 4  # moments in the record of a run


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The arguments of :func:`diagnose` that say how the images are read.

    Attributes:
        views: The argument `views`.
        normalization: The argument `normalization`.
        batch_size: The argument `batch_size`.
        image_size: The argument `image_size`.
        augment: Makes views if `views` is None and the batches have none. None: `SimCLRViews()`.
        batch_keys: Where batches hold their parts. If it is empty, this is found from the first batch.
        cache: Folder for decoded images.
    """

    views: nn.Module | None
    normalization: Normalization | None
    batch_size: int | None
    image_size: int | None
    augment: nn.Module | None
    batch_keys: BatchKeys
    cache: Path

    def refuse(self, *names: str, beside: str) -> None:
        """Raise a ValueError if one of these arguments is given. `beside` names the data in the message."""
        for name in names:
            if (given := getattr(self, name)) is not None:
                got = type(given).__name__ if isinstance(given, nn.Module) else given
                raise ValueError(f"Expected `{name}` None beside {beside}, but got {got}.")

    @property
    def maker(self) -> nn.Module:
        """The module that makes views."""
        return self.views or self.augment or SimCLRViews()


class Samples(LightningDataModule):
    """A test set of the batches of a loader, as batches of this package. Views are made on the device.

    Args:
        loader: Yields the batches.
        kind: Name of the data in errors and in the run's record.
        reading: How the batches are read.

    Attributes:
        has_views: Whether the batches have views.
        has_labels: Whether the batches have labels.
        has_images: Whether the batches have images without augmentation.
        image_shape: Shape of an image, or of a view if there are no images.

    Raises:
        ValueError: If there is no batch, or the first batch has neither views nor images.
    """

    def __init__(self, loader: DataLoader, kind: str, reading: Reading) -> None:
        super().__init__()
        self.loader = loader
        self.kind = kind
        self.normalization = reading.normalization
        batches = iter(loader)
        first = next(batches, None)
        if first is None:
            raise ValueError(f"Expected `data` to have samples, but the {kind} is empty.")
        if isinstance(loader.dataset, Sized) and len(loader.dataset) < 2:
            raise ValueError("Expected `data` to have at least 2 samples, but got 1.")
        stream = isinstance(loader.dataset, IterableDataset)  # which may not begin again
        self._batches: DataLoader | _Stream = _Stream(first, batches, loader) if stream else loader
        self._seen, self._sum = 0, torch.zeros((), dtype=torch.int64)
        keys = reading.batch_keys or _guessed_keys(_parts(first))
        self.reader = BatchReader(keys, None, NAMES, only=True)
        self.has_views = self.reader.has_views(_parts(first), "test")
        if self.has_views:
            reading.refuse("views", "normalization", beside="batches that have views")
        self.views = None if self.has_views else reading.maker
        found = self._found(first)
        self.has_labels, self.has_images = "label" in found, "image" in found
        self.image_shape = tuple((found["views"][0] if self.has_views else found["image"]).shape[1:])
        if self.normalization is not None:
            mean, std = map(list, self.normalization)
            if len(mean) != self.image_shape[0]:
                raise ValueError(f"Expected `normalization` of {self.image_shape[0]} channels, but got {len(mean)}.")
            self.views = NormalizedViews(mean, std, self.views)

    @property
    def about(self) -> dict[str, Any]:
        """Entries for run.json."""
        found: dict[str, Any] = {"data": self.kind, "image_shape": " x ".join(map(str, self.image_shape))}
        if self.normalization is not None:
            found["normalization"] = in_words(self.normalization)
        return found | {"views": repr(self.views) if self.views is not None else "those of the batches"}

    def seen(self) -> tuple[int, str]:
        """Return the number of samples of a pass over all processes, and a checksum of their images by index.

        The checksum does not depend on the order or the size of the batches. Samples without images give their views.
        """
        assert self.trainer is not None
        device = self.trainer.strategy.root_device
        return distributed.total(self._seen, device), of_all_processes(self._sum, device)

    def test_dataloader(self) -> Any:
        self.reader.restart("test")
        self._seen, self._sum = 0, torch.zeros((), dtype=torch.int64)
        return self._batches

    def on_after_batch_transfer(self, batch: Any, dataloader_idx: int) -> Batch:
        """Make the views, and give samples without an index a number in the order of their arrival."""
        found = self._found(batch)
        n = len(found["views"][0] if self.has_views else found["image"])
        if "index" not in found:
            assert self.trainer is not None
            device = (found["views"][0] if self.has_views else found["image"]).device
            found["index"] = self.reader.numbers(n, "test", device=device)
            self.reader.count(n, "test")
        self._count(batch, found["index"])
        if self.views is not None:
            found |= self._made(found["image"], found["index"].cpu())
        made = cast(Batch, found)
        return made if self.trainer is None else self.trainer.precision_plugin.convert_input(made)

    def _count(self, batch: Any, index: Tensor) -> None:
        parts = _parts(batch)
        given = self.reader.views(parts, "test") if self.has_views else [self.reader.image(parts, "test")]
        self._seen += len(index)
        self._sum = self._sum + checksum(index, given)

    def _made(self, image: Tensor, index: Tensor) -> dict[str, Any]:
        assert self.views is not None
        if self.normalization is not None:
            mean, std = (torch.tensor(list(moment), device=image.device) for moment in self.normalization)
            image = (image - mean[:, None, None]) / std[:, None, None]
        entries = batch_entries(self.views, index, 0, *image.shape[-2:])
        made = {"image": image, "views": self.views(image, index, 0)}
        return made | cast(dict[str, Any], move_data_to_device(entries, image.device))

    def _found(self, batch: Any) -> dict[str, Any]:
        batch = _parts(batch)
        found = self.reader.read(batch, "test")
        if self.has_views:
            found["views"] = tuple(_numbers("views", view) for view in self.reader.views(batch, "test"))
        if not self.has_views:
            self._refuse_bad_images(self.reader.image(batch, "test"))
        if "image" in found:
            found["image"] = _numbers("images", found["image"])
        n = len(found["views"][0] if self.has_views else found["image"])
        for name in {"label", "coarse_label"} & found.keys():
            if len(class_numbers(name, found[name])) != n:
                raise ValueError(f"Expected a `{name}` for each of {n} images, but got {len(found[name])}.")
        return found

    def _refuse_bad_images(self, given: Any) -> None:
        image = _numbers("images", given)
        if image.ndim != 4:
            hint = " Add the axis of channels: `images.unsqueeze(1)`." if image.ndim == 3 else ""
            raise ValueError(f"Expected images (N, C, H, W) in `data`, but got {in_short(given)}.{hint}")
        if image.shape[-1] in _CHANNELS and image.shape[1] not in _CHANNELS:
            raise ValueError(
                f"Expected images (N, C, H, W) in `data`, but got {in_short(given)}. The channels come before height "
                "and width: `images.permute(0, 3, 1, 2)`."
            )
        bounds = (0.0, 1.0) if self.normalization is not None else image_range(cast(nn.Module, self.views))
        low, high = (float(bound) for bound in image.aminmax())
        if bounds is not None and not (low >= bounds[0] and high <= bounds[1]):
            hint = "If they are normalised, say so: `views=NormalizedViews(mean, std)`."
            if low >= 0 and 1 < high <= 255:
                hint = "Divide them by their largest possible value. If this is 255, uint8 needs no division."
            raise ValueError(
                f"Expected images in [{bounds[0]:g}, {bounds[1]:g}] in `data`, but got values from {low:.3g} to "
                f"{high:.3g}. {hint}"
            )


class _Stream:
    """The batches of a stream, of which the first was already read."""

    def __init__(self, first: Any, rest: Iterator[Any], loader: DataLoader) -> None:
        self._begun: Iterator[Any] | None = chain([first], rest)
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        begun, self._begun = self._begun, None  # at the first batch: Lightning also calls `iter` to check the type
        yield from self._loader if begun is None else begun


def of_all_processes(checksum: Tensor, device: torch.device) -> str:
    """Return the sum of the processes' checksums as 16 hexadecimal digits."""
    found = int(distributed.all_reduce_sum(checksum.to(device)))  # int64 wraps around
    return found.to_bytes(8, signed=True).hex()


def checksum(index: Tensor, images: Sequence[Tensor]) -> Tensor:
    """Return an int64 scalar of N samples whose sum over batches does not depend on their order. It may wrap around.

    `index` (N,) numbers the samples, and each of `images` is (N, ...).
    """
    rows = zip(index.tolist(), *map(_bytes, images), strict=True)
    return torch.tensor([_digest(*row) for row in rows], dtype=torch.int64).sum()


def in_words(normalization: Normalization) -> str:
    """Return a normalisation for the record of a run. More than 4 values are not listed.

    >>> in_words(([0.5], [0.25])), in_words(([0.0] * 500, [1.0] * 500))
    ('mean 0.500; std 0.250', 'mean and std per feature (500 features)')
    """
    mean, std = normalization
    if len(mean) > _MOST_LISTED:
        return f"mean and std per feature ({len(mean)} features)"
    shown = [", ".join(f"{value:.3f}" for value in moment) for moment in (mean, std)]
    return f"mean {shown[0]}; std {shown[1]}"


def _parts(batch: Any) -> Any:
    return [batch] if isinstance(batch, Tensor) else batch


def _guessed_keys(batch: Any) -> BatchKeys:
    """Return where a batch holds its views or images. In a sequence, what comes after them is the label."""
    if isinstance(batch, Mapping):
        return {} if {"views", "image"} & batch.keys() else _image_key(batch)
    if not isinstance(batch, Sequence) or isinstance(batch, str):
        raise ValueError(f"Expected batches with images in `data`, but got {in_short(batch)}.")
    views = views_place(batch)
    keys: BatchKeys = _image_key(batch) if views is None else {"views": views}
    (place,) = keys.values()
    last = place[-1] if isinstance(place, list) else place
    if not isinstance(last, int) or last + 1 == len(batch):
        return keys
    try:
        class_numbers("label", batch[last + 1])
    except ValueError as error:
        ignored = f"`DiagnosedModel(model, batch_keys={json.dumps(keys)})` ignores them."
        raise ValueError(f"{error} If they are no labels, {ignored}") from error
    return keys | {"label": last + 1}


def _image_key(batch: Any) -> BatchKeys:
    place = image_place(batch)
    if place is None:
        raise ValueError(
            f"Expected images in the batches of `data`. {contents(batch)} If they are there, say where: "
            '`DiagnosedModel(model, batch_keys={"image": ...})`.'
        )
    return {"image": place}


def _numbers(name: str, held: Any) -> Tensor:
    """Return pixels as floating-point numbers. Those of uint8 are divided by 255."""
    if not isinstance(held, Tensor):
        raise ValueError(f"Expected {name} as a tensor in `data`, but got {in_short(held)}.")
    if held.dtype == torch.uint8:
        return held.float() / 255
    if not held.is_floating_point():
        raise ValueError(f"Expected {name} of torch.uint8 or floating point in `data`, but got {held.dtype}.")
    if bad := int((~held.reshape(len(held), -1).isfinite().all(1)).sum()):
        raise ValueError(f"Expected finite {name} in `data`, but {bad} of {len(held)} in a batch have NaN or infinity.")
    return held.float()


def _bytes(image: Tensor) -> Iterator[bytes]:
    rows = image.detach().cpu().contiguous().flatten(1).view(torch.uint8)
    return (row.numpy().tobytes() for row in rows)


def _digest(index: int, *images: bytes) -> int:
    found = hashlib.sha256(str(index).encode())
    for image in images:
        found.update(image)
    return int.from_bytes(found.digest()[:8], signed=True)
