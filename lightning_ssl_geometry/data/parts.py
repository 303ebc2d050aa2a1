"""PartsDataModule, the base class of DataModules over samples that a user brings."""

__all__ = ["Parts", "PartsDataModule"]

from abc import abstractmethod
from collections.abc import Sequence
from itertools import islice
from typing import NamedTuple, Unpack

import torch
from torch import nn

from lightning_ssl_geometry.checks import inside, listed
from lightning_ssl_geometry.data.base import ImageDataModule, Images, ImageSettings, Source, random_split
from lightning_ssl_geometry.data.samples import NUMBERED
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.views import SignalViews, SimCLRViews, VectorViews

_VIEWS: dict[int, type[nn.Module]] = {2: VectorViews, 3: SignalViews, 4: SimCLRViews}


class Parts(NamedTuple):
    """The sets that a user gave. `val` and `test` are None if they are to be drawn from `train`."""

    train: Images
    val: Images | None = None
    test: Images | None = None


class PartsDataModule(ImageDataModule):
    """Base class of DataModules over images, vectors or signals of one's own. A subclass implements :meth:`parts`.

    Args:
        batch_size: Samples per process.
        test_fraction: Fraction of the training samples to hold out if there is no test set, in [0, 1]. Use 0 for no
            test set, and 1 for a network that is not trained.
        class_names: Names of the classes. None: those of the samples, or else their numbers.
        **settings: `views`, `val_fraction`, `subset`, `channels`, `seed`, `drop_last` and `image_size` of
            :class:`ImageDataModule`. `seed` also draws the test set. If `views` is None, images have `SimCLRViews()`,
            vectors `VectorViews()`, and signals `SignalViews()`.
    """

    @passed_on
    def __init__(
        self,
        batch_size: int = 256,
        *,
        test_fraction: float = 0.2,
        class_names: Sequence[str] | None = None,
        **settings: Unpack[ImageSettings],
    ) -> None:
        super().__init__(batch_size, **settings)
        inside("[0, 1]", test_fraction=test_fraction)
        listed(class_names=[] if class_names is None else class_names)
        if test_fraction == 1 and self.subset is not None:
            raise ValueError(
                f"Expected `subset` None with `test_fraction=1`, which leaves nothing for training, but got "
                f"{self.subset}."
            )
        self.test_fraction = test_fraction
        self._named = class_names
        self._default_views = self.views if settings.get("views") is None else None

    @abstractmethod
    def parts(self) -> Parts:
        """Return the sets, images (M, C, H, W), vectors (M, D) or signals (M, C, T)."""

    def load(self) -> Source:
        """Check that the sets fit together, and draw a test set if there is none."""
        parts = self.parts()
        given = {name: part for name, part in parts._asdict().items() if part is not None}
        _alike(given)
        self._refuse_image_settings(parts.train.image.ndim)
        if self.views is self._default_views:  # nobody has set others meanwhile
            self.views = _VIEWS[parts.train.image.ndim]()
        names = [] if parts.train.label is None else self._class_names(given)
        if parts.test is not None:
            return Source(parts.train, parts.test, names, val=parts.val)
        m = len(parts.train.image)
        train, test = torch.arange(m), torch.arange(0)
        if self.test_fraction == 1:
            train, test = test, train
        elif self.test_fraction:
            train, test = random_split(m, self.test_fraction, self.seed)
        return Source(parts.train._replace(rows=train), parts.train._replace(rows=test), names, val=parts.val)

    def names(self) -> Sequence[str] | None:
        """Return the names of the classes that the samples bring, or None."""
        return None

    def _refuse_image_settings(self, axes: int) -> None:
        for name, value in (("channels", self.channels), ("image_size", self.image_size)):
            if value is not None and axes != 4:
                raise ValueError(f"Expected `{name}` None for samples that are no images, but got {value}.")

    def _class_names(self, given: dict[str, Images]) -> list[str]:
        seen = {name: part.label.unique().tolist() for name, part in given.items() if part.label is not None}
        largest = max(labels[-1] for labels in seen.values())
        names = self.names() if self._named is None else self._named
        if names is not None:
            if largest >= len(names):
                raise ValueError(f"Expected `class_names` for labels up to {largest}, but got {len(names)} names.")
            return list(names)
        there = set(seen["train"])
        if missing := list(islice((label for label in range(largest + 1) if label not in there), 5)):
            raise ValueError(
                f"Expected training labels 0 to {largest}, each at least once, but {missing} are missing."
                f"{NUMBERED} If the classes exist, give all `class_names`."
            )
        return [str(place) for place in range(largest + 1)]


def _alike(given: dict[str, Images]) -> None:
    kinds = {name: (tuple(part.image.shape[1:]), part.image.dtype) for name, part in given.items()}
    if len(set(kinds.values())) > 1:
        said = ", ".join(f"{shape} {dtype} in `{name}`" for name, (shape, dtype) in kinds.items())
        raise ValueError(f"Expected samples of one shape and dtype in all sets, but got {said}.")
    labelled = [name for name, part in given.items() if part.label is not None]
    if labelled and len(labelled) < len(given):
        raise ValueError(
            f"Expected labels for all of the sets {', '.join(given)} or for none, but got them for "
            f"{', '.join(labelled)} only."
        )
