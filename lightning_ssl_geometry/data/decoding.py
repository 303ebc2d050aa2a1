"""Decode the samples of a map-style data set into one tensor."""

__all__ = ["Decoder", "Key", "decoded", "is_grey", "sample"]

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from lightning_ssl_geometry.checks import dense
from lightning_ssl_geometry.data.base import Images
from lightning_ssl_geometry.data.image_cache import is_deep
from lightning_ssl_geometry.data.samples import NUMBERED, TOO_LARGE, Kind, as_samples, read_array

Key = str | int
_IMAGE_KEYS, _LABEL_KEYS = ("image", "img"), ("label", "labels")
_KINDS: dict[int, Kind] = {1: "vector", 3: "image"}
_CHANNELS = (1, 3, 4)
_GREY_MODES = ("1", "L", "LA")


class Decoder(NamedTuple):
    """Reads a sample as a tensor and a label.

    Attributes:
        kind: What arrays are. None: arrays with 1 axis are vectors, and arrays with 3 axes are images.
        image_key: Where the array or image is in a dict or tuple. None: "image" or "img", or 0.
        label_key: Where the label is. None: "label" or "labels", or 1 if there is a second entry.
        labels: Whether to read labels.
        grey: Whether PIL images are read in grey.
        any_color: Whether PIL images in colour may be read in grey.
        image_size: Height and width to which images are resized and cropped. None: no change.
    """

    kind: Kind | None
    image_key: Key | None
    label_key: Key | None
    labels: bool
    grey: bool
    any_color: bool
    image_size: int | None

    def __call__(self, sample: Any, name: str) -> tuple[Tensor, int]:
        """Return the array (C, H, W), (D,) or (C, T) of a sample, and its label, or -1 if the sample has none.

        `name` is used in messages.
        """
        value, label = self._pair(sample, name)
        image = self._image(value, name)
        return image, -1 if label is None else _label(label, name)

    def value(self, sample: Any, name: str) -> Any:
        """Return the image or array of a sample as the data set has it."""
        return self._pair(sample, name)[0]

    def _pair(self, sample: Any, name: str) -> tuple[Any, Any]:
        if isinstance(sample, Mapping):
            image_key = _key(sample, self.image_key, among=_IMAGE_KEYS, what="image_key", name=name)
            if not self.labels or len(sample) == 1:
                return sample[image_key], None
            label_key = _key(sample, self.label_key, among=_LABEL_KEYS, what="label_key", name=name)
            return sample[image_key], sample[label_key]
        if not isinstance(sample, tuple | list):
            return sample, None
        at = {"image_key": 0 if self.image_key is None else self.image_key}
        if self.labels and (len(sample) > 1 or self.label_key is not None):
            at["label_key"] = 1 if self.label_key is None else self.label_key
        for what, place in at.items():
            if not isinstance(place, int) or not -len(sample) <= place < len(sample):
                raise ValueError(
                    f"Expected `{what}` to be a place in `{name}`, a tuple of {len(sample)}, but got {place!r}."
                )
        found = [sample[place] for place in at.values()]  # type: ignore[index]
        return found[0], found[1] if len(found) > 1 else None

    def _image(self, value: Any, name: str) -> Tensor:
        from PIL import Image

        if isinstance(value, Image.Image):
            return self._resized(self._pixels(value, name))
        if isinstance(value, list | tuple):
            value = np.asarray(value)
        if isinstance(value, Tensor):
            dense(**{name: value})
        axes = value.ndim if isinstance(value, np.ndarray | Tensor) else 0
        if not axes:
            said = f"an object of type {type(value).__name__}"
            raise ValueError(f"Expected `{name}` to be a PIL image, an array or a tensor, but got {said}.")
        kind = self.kind or _KINDS.get(axes)
        if kind is None:
            shape = tuple(value.shape)
            raise ValueError(f"Expected `kind` 'image' or 'signal' for `{name}` of shape {shape}, but got None.")
        # as torchvision's ToTensor has it: arrays are (H, W, C), tensors are (C, H, W)
        last = kind == "image" and isinstance(value, np.ndarray) and axes == 3
        if last and value.shape[2] not in _CHANNELS and value.shape[0] in (1, 3):
            raise ValueError(
                f"Expected `{name}` of shape (H, W, C), as it is an array, but got {tuple(value.shape)}. If it is "
                "(C, H, W), transpose it by `array.transpose(1, 2, 0)`, or make a tensor of it by `torch.from_numpy`."
            )
        array = as_samples(read_array(value, name)[None], name, kind, channels_last=last)[0]
        return self._resized(array) if kind == "image" else array

    def _pixels(self, image: Any, name: str) -> Tensor:
        if is_deep(image):
            raise ValueError(
                f"Expected `{name}` with 8 bits per channel, but its mode is {image.mode!r}. Use a transform that "
                "makes a tensor in [0, 1]."
            )
        if self.grey and not self.any_color and image.mode not in _GREY_MODES:
            raise ValueError(
                f"Expected `{name}` in grey like the first image, but its mode is {image.mode!r}. Set `channels` to 3, "
                "or to 1 for grey."
            )
        pixels = torch.from_numpy(np.array(image.convert("L" if self.grey else "RGB")))
        return pixels[None] if self.grey else pixels.permute(2, 0, 1)

    def _resized(self, image: Tensor) -> Tensor:
        from torchvision.transforms.v2 import functional as transforms

        size = self.image_size
        if size is None or image.shape[1:] == (size, size):
            return image
        return transforms.center_crop(transforms.resize(image, [size], antialias=True), [size, size])


def is_grey(value: Any) -> bool:
    """Whether a value is a PIL image without colours."""
    return getattr(value, "mode", None) in _GREY_MODES


def decoded(dataset: Any, decoder: Decoder, name: str, workers: int, progress: bool) -> Images:
    """Decode all samples of a data set, in their order.

    Args:
        dataset: Has a length, and a sample for each index.
        decoder: Reads a sample.
        name: Name of the set in messages.
        workers: Number of processes that decode. 0: this process.
        progress: Whether to show a progress bar.

    Raises:
        ValueError: If the samples differ in shape or dtype, or only some have labels.
    """
    from rich.progress import track

    one = _Decoded(dataset, decoder, name)
    first, _ = one[0]
    image, label = first.new_empty(len(one), *first.shape), torch.empty(len(one), dtype=torch.int64)
    generator = torch.Generator()  # the loader draws from it, and not from the global random state
    loader: Any = DataLoader(one, None, num_workers=workers, collate_fn=_same, generator=generator) if workers else one
    bar = track(loader, f"Decoding {len(one):,} samples of {name}", len(one), disable=not progress)
    for place, (array, number) in enumerate(bar):
        if array.shape != first.shape or array.dtype != first.dtype:
            hint = " Set `image_size` for images of different sizes." if array.ndim == first.ndim == 3 else ""
            raise ValueError(
                f"Expected all samples like `{name}[0]`, {tuple(first.shape)} {first.dtype}, but "
                f"`{name}[{place}]` is {tuple(array.shape)} {array.dtype}.{hint}"
            )
        image[place], label[place] = array, number
    without = label < 0
    if without.any() and not without.all():
        lack = int(without.sum())
        raise ValueError(f"Expected labels for all samples of `{name}` or for none, but {lack} have none.")
    return Images(image, None if without.any() else label)


def _key(sample: Mapping[Any, Any], given: Key | None, *, among: tuple[str, ...], what: str, name: str) -> Key:
    found = [key for key in among if key in sample] if given is None else [given]
    if len(found) != 1 or found[0] not in sample:
        hint = " Set `labels` to False if there are none." if what == "label_key" else ""
        raise ValueError(
            f"Expected `{what}` to be one of the keys {list(sample)} of `{name}`, but got {given!r}.{hint}"
        )
    return found[0]


def _label(label: Any, name: str) -> int:
    value = label.item() if isinstance(label, Tensor | np.generic | np.ndarray) and label.ndim == 0 else label
    if not isinstance(value, int) or isinstance(value, bool):
        said = f"of type {type(label).__name__}" if value is label else repr(value)
        hint = f"{NUMBERED} Set `labels` to False if this entry is no label."
        raise ValueError(f"Expected the label of `{name}` to be an integer, the class, but got one {said}.{hint}")
    if not 0 <= value < TOO_LARGE:
        bound = ">= 0" if value < 0 else "< 2**63"
        raise ValueError(f"Expected the label of `{name}` {bound}, but got {value}.")
    return value


class _Decoded(Dataset[tuple[Tensor, int]]):
    def __init__(self, dataset: Any, decoder: Decoder, name: str) -> None:
        self.dataset, self.decoder, self.name = dataset, decoder, name

    def __len__(self) -> int:
        return len(self.dataset)

    def __getitem__(self, place: int) -> tuple[Tensor, int]:
        return self.decoder(sample(self.dataset, place, self.name), f"{self.name}[{place}]")

    def __iter__(self) -> Iterator[tuple[Tensor, int]]:
        return (self[place] for place in range(len(self)))


def sample(dataset: Any, place: int, name: str) -> Any:
    """Return a sample of a data set. Raises a ValueError if the set has fewer samples than its length says."""
    try:
        return dataset[place]
    except IndexError as error:
        raise ValueError(
            f"Expected `{name}` to have {len(dataset)} samples, as its `__len__` says, but reading `{name}[{place}]` "
            f"raised an IndexError: {error}."
        ) from error


def _same(sample: Any) -> Any:
    return sample
