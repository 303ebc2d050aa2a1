"""DatasetDataModule: any map-style data set of torch or Hugging Face, decoded once."""

__all__ = ["DatasetDataModule"]

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Unpack, get_args

import torch
from lightning.pytorch.utilities import rank_zero_only
from torch import Tensor
from torch.utils.data import Dataset, IterableDataset

from lightning_ssl_geometry.checks import integer, one_of, pathlike, switch
from lightning_ssl_geometry.data.base import Images, ViewSettings
from lightning_ssl_geometry.data.decoding import Decoder, Key, decoded, is_grey, sample
from lightning_ssl_geometry.data.parts import Parts, PartsDataModule
from lightning_ssl_geometry.data.samples import Kind
from lightning_ssl_geometry.data.tensor_cache import key_of, mapped_tensors
from lightning_ssl_geometry.settings import passed_on

_COMPARED, _READ_TWICE = 1024, 16  # samples of each set, evenly spaced
_VAL_NAMES = ("validation", "val", "valid")


class DatasetDataModule(PartsDataModule):
    """Any map-style data set: a torch `Dataset`, a Hugging Face `Dataset`, or a list of samples.

    A sample is an image, an array or a tensor, alone, in a tuple such as (image, label), or in a dict such as {"image":
    image, "label": label}. Images are PIL images, arrays (H, W, C) or tensors (C, H, W). Arrays and tensors of images
    are uint8, or floating point in [0, 1]. Arrays with 1 axis are vectors, as in :class:`TensorDataModule`.

    All samples are decoded once, before the training. So transforms of the data set must not be random: views are made
    later, on the training device. With `cache`, the decoded samples are saved in a file, which is memory-mapped during
    a run. The file is written again if the arguments, the number of samples, or the fingerprint of a Hugging Face data
    set have changed. The content of the samples is compared, too: of all samples of a set with up to 1,024, and of
    1,024 evenly spaced samples of a larger set. Each run decodes these samples again. A change of other samples of a
    larger set without a fingerprint is not seen: then delete the file or name another one.

    Args:
        train: The training samples. A Hugging Face `DatasetDict` can have the splits "train", "validation" and "test".
            A text is the path of a folder that Hugging Face's `save_to_disk` wrote.
        val: The validation samples. None: they are drawn from the training samples, `val_fraction` of them.
        test: The test samples. None: they are drawn from the training samples, `test_fraction` of them.
        image_size: Height and width of the images in pixels. The short side of each image is resized, and the centre is
            cropped. None: no change. Then all images must have one size.
        kind: "image", "vector" or "signal", which says what arrays are. None: arrays with 1 axis are vectors, and
            arrays with 3 axes are images.
        image_key: Key of the image in a dict, or its place in a tuple. None: "image", "img" or 0.
        label_key: Key of the label in a dict, or its place in a tuple. None: "label", "labels" or 1.
        labels: Whether to read labels.
        cache: File for the decoded samples, such as "cache/pets.pt". None: the samples are decoded again in each run,
            by each process, and kept in memory.
        workers: Number of processes that decode. 0: the process of the run.
        progress: Whether to show a progress bar while samples are decoded.
        batch_size: Samples per process.
        test_fraction: Fraction of the training samples to hold out if there is no test set, in [0, 1]. Use 0 for no
            test set, and 1 for a network that is not trained.
        class_names: Names of the classes. None: those of the data set, if it has some, or else their numbers.
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed` and `drop_last` of :class:`ImageDataModule`.
            `seed` also draws the test set. If `views` is None, images have `SimCLRViews()`, vectors `VectorViews()`,
            and signals `SignalViews()`. PIL images are decoded in the colours that `channels` says. With None, they are
            decoded in grey if the first image is grey.

    Raises:
        ValueError: If an argument is out of range, or `train` is no map-style data set. `setup` raises it if a sample
            is not as described above. The message names the sample.
        FileNotFoundError: If a folder does not exist.
        OSError: If the file of decoded samples cannot be written, or `cache` is a file that this class did not write.

    >>> samples = [(torch.rand(3, 8, 8), i % 2) for i in range(20)]
    >>> data = DatasetDataModule(samples, batch_size=4, progress=False)
    >>> data.setup()
    >>> data.image_shape, data.num_classes
    ((3, 8, 8), 2)
    """

    @passed_on
    def __init__(
        self,
        train: Dataset[Any] | str | Any,
        val: Dataset[Any] | str | Any | None = None,
        test: Dataset[Any] | str | Any | None = None,
        *,
        image_size: int | None = None,
        kind: Kind | None = None,
        image_key: Key | None = None,
        label_key: Key | None = None,
        labels: bool = True,
        cache: str | None = None,
        workers: int = 0,
        progress: bool = True,
        batch_size: int = 256,
        test_fraction: float = 0.2,
        class_names: Sequence[str] | None = None,
        **settings: Unpack[ViewSettings],
    ) -> None:
        own: dict[str, Any] = {"test_fraction": test_fraction, "class_names": class_names}
        super().__init__(batch_size, image_size=None, **own, **settings)
        integer(1, image_size=1 if image_size is None else image_size)
        integer(0, workers=workers)
        pathlike(cache="" if cache is None else cache)
        one_of((None, *get_args(Kind)), kind=kind)
        switch(labels=labels, progress=progress)
        self.image_size = image_size
        self.cache = None if cache is None else Path(cache)
        self.workers = workers
        self.progress = progress
        self._datasets = _sets({"train": train, "val": val, "test": test})
        self._keys: dict[str, Any] = {"kind": kind, "image_key": image_key, "label_key": label_key, "labels": labels}

    def prepare_data(self) -> None:
        """Write the file of decoded samples, if it is missing or out of date."""
        if self.cache is not None:
            self._tensors()

    def parts(self) -> Parts:
        """Decode the samples, or memory-map the decoded samples."""
        found = self._tensors()
        return Parts(**{name: Images(found[name], found.get(f"{name}_label")) for name in self._datasets})

    def names(self) -> Sequence[str] | None:
        """Return `classes` of a torchvision data set, or the names of a Hugging Face `ClassLabel`, or None."""
        train = self._datasets["train"]
        feature = getattr(train, "features", None)
        if isinstance(feature, Mapping):
            key = self._keys["label_key"] or next((key for key in ("label", "labels") if key in feature), None)
            return getattr(feature.get(key), "names", None)
        names = getattr(train, "classes", None)
        return names if isinstance(names, list | tuple) else None  # it may be their number

    def _tensors(self) -> dict[str, Tensor]:
        decoder = self._decoder()
        if self.cache is None:
            return self._decode(decoder)
        remedy = "Name another file as `cache`."
        return mapped_tensors(self.cache, self._identity(decoder), lambda: self._decode(decoder), remedy=remedy)

    def _decoder(self) -> Decoder:
        plain = Decoder(**self._keys, grey=self.channels == 1, any_color=True, image_size=self.image_size)
        if self.channels is not None:
            return plain
        first = plain.value(sample(self._datasets["train"], 0, "train"), "train[0]")
        return plain._replace(grey=is_grey(first), any_color=False)

    def _decode(self, decoder: Decoder) -> dict[str, Tensor]:
        found: dict[str, Tensor] = {}
        shown = self.progress and getattr(rank_zero_only, "rank", 0) == 0
        for name, dataset in self._datasets.items():
            first, second = (_digest(dataset, decoder, name, most=_READ_TWICE) for _ in range(2))
            if first != second:
                raise ValueError(
                    f"Expected a sample of `{name}` to be equal each time it is read, as it is decoded only once, but "
                    "it differs. Leave random transforms to `views`."
                )
            part = decoded(dataset, decoder, name, workers=self.workers, progress=shown)
            found |= {name: part.image} | ({} if part.label is None else {f"{name}_label": part.label})
        return found

    def _identity(self, decoder: Decoder) -> str:
        shown = {
            name: [
                len(dataset),
                str(getattr(dataset, "_fingerprint", "")),
                _digest(dataset, decoder, name, most=_COMPARED),
            ]
            for name, dataset in self._datasets.items()
        }
        return key_of(decoder._asdict(), shown)


def _sets(given: dict[str, Any]) -> dict[str, Any]:
    opened = {name: _opened(value, name) for name, value in given.items() if name == "train" or value is not None}
    if isinstance(splits := opened["train"], Mapping):
        if len(opened) > 1:
            raise ValueError("Expected `val` and `test` None beside `train` with several splits, but got both.")
        found = {"train": ("train",), "val": _VAL_NAMES, "test": ("test",)}
        opened = {name: splits[key] for name, keys in found.items() for key in keys if key in splits}
        if "train" not in opened:
            raise ValueError(f"Expected `train` to have a split 'train', but it has only {list(splits)}.")
    for name, dataset in opened.items():
        sized = hasattr(dataset, "__len__") and hasattr(dataset, "__getitem__")
        if isinstance(dataset, IterableDataset) or not sized:
            said = f"an object of type {type(dataset).__name__}"
            raise ValueError(
                f"Expected `{name}` to be a data set with a length and an index, but got {said}. "
                "Make a list of its samples, or write them to an array for TensorDataModule."
            )
        if not _length(dataset, name):
            raise ValueError(f"Expected `{name}` with samples, but it is empty.")
    return opened


def _length(dataset: Any, name: str) -> int:
    try:
        return len(dataset)
    except (TypeError, ValueError) as error:
        raise ValueError(f"Expected `{name}` with a length that is an integer >= 0, but: {error}.") from error


def _opened(given: Any, name: str) -> Any:
    if not isinstance(given, str | Path):
        return given
    try:
        from datasets import load_from_disk
    except ImportError as error:
        raise ImportError(
            f"Expected the package `datasets` to read the folder `{name}`, but it is not installed: "
            "pip install 'lightning-ssl-geometry[datasets]'"
        ) from error
    return load_from_disk(str(given))


def _digest(dataset: Any, decoder: Decoder, name: str, *, most: int) -> str:
    content = hashlib.sha256()
    last = len(dataset) - 1
    for place in torch.linspace(0, last, min(len(dataset), most), dtype=torch.float64).long().tolist():
        array, label = decoder(sample(dataset, place, name), f"{name}[{place}]")
        content.update(f"{tuple(array.shape)} {array.dtype} {label};".encode())
        content.update(array.contiguous().numpy().tobytes())
    return content.hexdigest()
