"""TensorDataModule: arrays of images, vectors or signals, in memory or in files."""

__all__ = ["TensorDataModule"]

from collections.abc import Sequence
from typing import Unpack, get_args

from lightning_ssl_geometry.checks import one_of, switch
from lightning_ssl_geometry.data.base import Images, ImageSettings
from lightning_ssl_geometry.data.parts import Parts, PartsDataModule
from lightning_ssl_geometry.data.samples import NUMBERED, Array, Kind, as_labels, as_samples, read_array
from lightning_ssl_geometry.settings import passed_on


class TensorDataModule(PartsDataModule):
    """Arrays of images, vectors or signals, with or without labels.

    An array is a numpy array, a torch tensor, or the path of a file: `x.npy`, `x.npz` with one array in it, or
    `x.npz:name`. An `x.npy` is memory-mapped if it holds uint8 images, or float32 samples of any kind. Other dtypes,
    and samples with `channels_last`, are copied into memory.

    Images are uint8, or floating point in [0, 1]. Vectors and signals may have any finite values. They are kept as
    float32, and standardised by the mean and the standard deviation of each feature of the vectors, or of each channel
    of the signals, over the training set. A constant feature keeps the standard deviation 1.

    Args:
        train: The training samples: images (N, C, H, W) or (N, H, W), vectors (N, D), or signals (N, C, T).
        train_label: (N,) integers, the classes 0, 1 and so on. None: no labels.
        val: The validation samples. None: they are drawn from the training samples, `val_fraction` of them.
        val_label: The classes of `val`.
        test: The test samples. None: they are drawn from the training samples, `test_fraction` of them.
        test_label: The classes of `test`.
        kind: "image", "vector" or "signal". None: arrays with 2 axes are vectors, and arrays with 4 axes are images.
        channels_last: Whether the last axis of images with 4 axes, or of signals, is C.
        batch_size: Samples per process.
        test_fraction: Fraction of the training samples to hold out if `test` is None, in [0, 1]. Use 0 for no test set,
            and 1 for a network that is not trained.
        class_names: Names of the classes. None: their numbers.
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed`, `drop_last` and `image_size` of
            :class:`ImageDataModule`. `seed` also draws the test set. If `views` is None, images have `SimCLRViews()`,
            vectors `VectorViews()`, and signals `SignalViews()`. `channels` and `image_size` are for images only.

    Raises:
        ValueError: If an argument is out of range or contradicts another one. `setup` raises it if arrays do not fit
            together, or hold other values than described above.
        FileNotFoundError: If a file does not exist.

    >>> import torch
    >>> data = TensorDataModule(torch.randn(100, 5), torch.arange(100) % 2, batch_size=32)
    >>> data.setup()
    >>> data.image_shape, data.num_classes
    ((5,), 2)
    """

    @passed_on
    def __init__(
        self,
        train: Array,
        train_label: Array | None = None,
        *,
        val: Array | None = None,
        val_label: Array | None = None,
        test: Array | None = None,
        test_label: Array | None = None,
        kind: Kind | None = None,
        channels_last: bool = False,
        batch_size: int = 256,
        test_fraction: float = 0.2,
        class_names: Sequence[str] | None = None,
        **settings: Unpack[ImageSettings],
    ) -> None:
        super().__init__(batch_size, test_fraction=test_fraction, class_names=class_names, **settings)
        one_of((None, *get_args(Kind)), kind=kind)
        switch(channels_last=channels_last)
        for name, array, label in (("val", val, val_label), ("test", test, test_label)):
            if array is None and label is not None:
                raise ValueError(f"Expected `{name}` beside `{name}_label`, but got None.")
        self.kind = kind
        self.channels_last = channels_last
        self._given = {"train": (train, train_label), "val": (val, val_label), "test": (test, test_label)}

    def parts(self) -> Parts:
        """Read and check the arrays."""
        return Parts(
            **{
                name: self._part(name)
                for name, (array, _) in self._given.items()
                if name == "train" or array is not None
            }
        )

    def _part(self, name: str) -> Images:
        array, label = self._given[name]
        image = as_samples(read_array(array, name), name, self.kind, channels_last=self.channels_last)
        if label is None:
            return Images(image, None)
        name = f"{name}_label"
        return Images(image, as_labels(read_array(label, name, NUMBERED), name, len(image)))
