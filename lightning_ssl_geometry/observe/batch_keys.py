"""Find labels, images and views in the batches of any data set, and make views of images."""

__all__ = ["STAGES", "BatchKeys", "Place", "augmented", "class_numbers", "near", "numbers", "place", "stage_keys"]

from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.views import image_range

Place = str | int
BatchKeys = dict[str, Place | list[Place]]
STAGES = ("train", "val", "test", "probe")


def stage_keys(batch_keys: BatchKeys, stage: str) -> BatchKeys:
    """Return the entries of `batch_keys` for one stage. In the stage "val", the entry "val/label" replaces "label".

    >>> stage_keys({"label": 1, "val/label": 0, "test/image": 2}, "val")
    {'label': 0}
    """
    own = {name.partition("/")[2]: key for name, key in batch_keys.items() if name.startswith(f"{stage}/")}
    return {name: key for name, key in batch_keys.items() if "/" not in name} | own


def place(batch: Any, key: Place | Sequence[Place], name: str) -> Any:
    """Return the part of a batch at a key, a position or a dotted path. For a list of these, return a list of parts.

    Raises a ValueError if the batch has no such part. `name` is the name of the part in the message.

    >>> place({"views": [{"image": 5}]}, "views.0.image", "image")
    5
    """
    if isinstance(key, Sequence) and not isinstance(key, str):
        return [place(batch, each, name) for each in key]
    if isinstance(key, int) or (isinstance(batch, Mapping) and key in batch):
        return _item(batch, key, name, whole=key)
    for part in key.split("."):
        batch = _item(batch, part if isinstance(batch, Mapping) or not part.isdecimal() else int(part), name, whole=key)
    return batch


def near(name: object, known: Iterable[object]) -> str:
    """Return a hint with the name in `known` that is most similar to `name`, or "" if none is similar.

    >>> near("lable", ["image", "label", 3])
    ' Near: `label`.'
    """
    found = get_close_matches(str(name), [each for each in known if isinstance(each, str)], n=1)
    return f" Near: `{found[0]}`." if found else ""


def class_numbers(name: str, label: Any) -> Tensor:
    """Return `label` if it is an integer tensor (N,), else raise a ValueError. `name` is its name in the message."""
    expected = f"Expected `{name}` as class numbers, an integer tensor (N,), but got"
    if not isinstance(label, Tensor):
        what = f"a {type(label).__name__}"
        if isinstance(label, Sequence) and len(label):
            what += f" of {type(label[0]).__name__}"
        raise ValueError(f"{expected} {what}. Number the classes in the data set.")
    if label.ndim != 1:
        fix = "Of one-hot labels, hand over `label.argmax(1)`; several labels per sample are not supported."
        raise ValueError(f"{expected} shape {tuple(label.shape)}. {fix}")
    if label.is_floating_point() or label.is_complex():
        raise ValueError(f"{expected} {label.dtype}. Hand over `label.long()` if these are classes.")
    return label


def numbers(trainer: L.Trainer, start: int, n: int, device: torch.device) -> Tensor:
    """Return n indices that no other process uses. `start` is the number of indices that this process has used."""
    return torch.arange(start, start + n, device=device) * trainer.world_size + trainer.global_rank


def augmented(augment: nn.Module, image: Tensor, index: Tensor) -> tuple[Tensor, ...]:
    """Make views of images (N, C, H, W). Raises a ValueError if `augment` does not accept the range of their values."""
    bounds = image_range(augment)
    if bounds is not None and image.is_floating_point():
        low, high = (float(bound) for bound in image.aminmax())
        if not (low >= bounds[0] and high <= bounds[1]):
            raise ValueError(
                f"Expected images in [{bounds[0]:g}, {bounds[1]:g}] for `augment`, but got values from "
                f"{low:.3g} to {high:.3g}. NormalizedViews makes views of normalised images."
            )
    return augment(image, index, 0)


def _item(holder: Any, part: Place, name: str, whole: Place) -> Any:
    try:
        return holder[part]
    except (KeyError, IndexError, TypeError) as error:
        if isinstance(holder, Mapping):
            places = ", ".join(map(repr, holder)) + "." + near(part, holder)
        else:
            places = f"{len(holder)} positions" if isinstance(holder, Sequence) else f"a {type(holder).__name__}"
            places += "."
        raise ValueError(f"Expected `batch_keys` {name}={whole!r} to be in the batch, which has {places}") from error
