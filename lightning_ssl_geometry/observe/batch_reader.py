"""BatchReader: finds labels, images and views in the batches of any data set."""

__all__ = ["BatchReader", "with_clean"]

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.distributed import unique_numbers
from lightning_ssl_geometry.observe.batch_keys import (
    STAGES,
    BatchKeys,
    Place,
    augmented,
    contents,
    image_place,
    place,
    stage_keys,
    views_place,
)


class BatchReader:
    """Finds labels, images and views in a batch, and numbers samples that have no index.

    Args:
        batch_keys: Name of a part -> its key or position in the batch, such as {"label": 1}. An entry "val/label"
            applies to the stage "val" only. A ValueError is raised if the stage is unknown.
        augment: Makes views of images. It is called with (image, index, epoch).
        names: Names of parts that need no entry in `batch_keys` if the batch has them as keys.
        only: Raise a ValueError if `batch_keys` has a name that is not in `names`.
    """

    def __init__(
        self,
        batch_keys: BatchKeys | None = None,
        augment: nn.Module | None = None,
        names: Sequence[str] = (),
        only: bool = False,
    ) -> None:
        self.batch_keys = batch_keys or {}
        for key in self.batch_keys:
            stage, slash, name = key.rpartition("/")
            if slash and stage not in STAGES:
                raise ValueError(f"Expected `batch_keys` of one of the stages {STAGES}, but got {key!r}.")
            if only and name not in names:
                raise ValueError(f"Expected `batch_keys` of {', '.join(names)}, but got {key!r}.")
        self.augment = augment
        self.names = names
        self._rows: dict[str, int] = {}

    def restart(self, stage: str) -> None:
        """Number the samples of a stage from 0 again."""
        self._rows[stage] = 0

    def count(self, n: int, stage: str) -> None:
        """Record that n further samples of a stage have an index."""
        self._rows[stage] = self._rows.get(stage, 0) + n

    def numbers(self, n: int, stage: str, device: torch.device) -> Tensor:
        """Return indices (n,) for the next n samples of a stage. No two processes share an index."""
        return unique_numbers(self._rows.get(stage, 0), n, device)

    def read(self, batch: Any, stage: str) -> dict[str, Any]:
        """Return the parts of a batch by name, except the views. Raises a ValueError if a part is missing."""
        keys = self._places(batch, stage)
        return {name: place(batch, key, name) for name, key in keys.items() if name != "views"}

    def samples(self, batch: Any, stage: str) -> int | None:
        """Return the number of samples of a batch, from the parts that `batch_keys` names. None: they do not say it."""
        keys = self._places(batch, stage)
        for name in ("views", "index", "label", "image"):
            part = None
            if name in keys:
                with suppress(ValueError):  # a missing part is an error where it is read
                    part = place(batch, keys[name], name)
            part = part[0] if isinstance(part, Sequence) and part else part
            if isinstance(part, Tensor) and part.ndim:
                return len(part)
        return None

    def has_views(self, batch: Any, stage: str) -> bool:
        """Whether `batch_keys`, or the batch itself, has an entry "views"."""
        return "views" in self._places(batch, stage)

    def views(self, batch: Any, stage: str, beside: str = " beside `augment`") -> Sequence[Tensor]:
        """Return the list of V views (N, ...) of a batch of N samples.

        Raises a ValueError if the batch has no list of tensors as its views. The message suggests to name the views in
        `batch_keys`, or the images. `beside` says what images need besides.
        """
        if isinstance(batch, Tensor) and "views" not in stage_keys(self.batch_keys, stage):
            raise ValueError(
                f"Expected the views of each sample, but the batch is one tensor, of shape {tuple(batch.shape)}. "
                'Let the data set return a pair (view 1, view 2), and say `batch_keys={"views": [0, 1]}`.'
            )
        found = self._named(batch, stage, "views", what=f"the views are, or the images{beside}")
        if not isinstance(found, Sequence) or not all(isinstance(view, Tensor) for view in found):
            likely = views_place(batch)
            hint = "Let the data set return a list of views, not one tensor. " if isinstance(found, Tensor) else ""
            hint = hint if likely is None else f"Say {_example('views', likely)}. "
            raise ValueError(
                f"Expected `batch_keys` views to be a list of tensors, but got {type(found).__name__}. "
                f"{hint}{contents(batch)}"
            )
        return found

    def image(self, batch: Any, stage: str) -> Any:
        """Return the images of a batch. Raises a ValueError if there are none."""
        return self._named(batch, stage, "image", what="the images are")

    def augmented(self, image: Tensor, index: Tensor) -> Sequence[Tensor]:
        """Make views of images (N, C, H, W). The sample indices (N,) seed the random augmentations."""
        assert self.augment is not None
        return augmented(self.augment, image, index)

    def _named(self, batch: Any, stage: str, name: str, what: str) -> Any:
        keys = stage_keys(self.batch_keys, stage)
        if name in keys or (isinstance(batch, Mapping) and name in batch):
            return place(batch, keys.get(name, name), name)
        raise ValueError(
            f"Expected `batch_keys` to say where {what}{_such_as(batch, name)}, but got "
            f"{', '.join(map(repr, keys)) or 'none'}. {contents(batch)}"
        )

    def _places(self, batch: Any, stage: str) -> BatchKeys:
        own = {name: name for name in self.names if isinstance(batch, Mapping) and name in batch}
        return {**own, **stage_keys(self.batch_keys, stage)}


def with_clean(observation: dict[str, Any]) -> dict[str, Any]:
    """If the observation has `image` and `encoder`, add `h_image` (N, D), the encoder's output for `image`."""
    if "h_image" in observation or not {"image", "encoder"} <= observation.keys():
        return observation
    return observation | {"h_image": observation["encoder"](observation["image"]).flatten(1)}


def _such_as(batch: Any, name: str) -> str:
    views, image = views_place(batch) if name == "views" else None, image_place(batch)
    if views is None and image is None:
        return ""
    return ", such as " + (_example("image", image) if views is None else _example("views", views))


def _example(name: str, where: Place | list[Place] | None) -> str:
    return f'`batch_keys={{"{name}": {json.dumps(where, default=str)}}}`'
