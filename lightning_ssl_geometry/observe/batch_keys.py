"""Find labels, images and views in the batches of any data set, and make views of images."""

__all__ = [
    "STAGES",
    "BatchKeys",
    "Place",
    "augmented",
    "contents",
    "image_place",
    "in_short",
    "near",
    "place",
    "stage_keys",
    "views_place",
]

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from lightning_ssl_geometry.spelling import did_you_mean
from lightning_ssl_geometry.views import image_range

Place = str | int
BatchKeys = dict[str, Place | list[Place]]
STAGES = ("train", "val", "test", "probe")
_MOST = 6


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
        return _item(batch, key, f"{name}={key!r}", batch=batch)
    held = batch
    for part in key.split("."):
        number = part.isdecimal() and not isinstance(held, Mapping)
        held = _item(held, int(part) if number else part, f"{name}={key!r}", batch=batch)
    return held


def contents(batch: Any) -> str:
    """Return a sentence on what a batch holds at its keys or positions.

    >>> import torch
    >>> contents(([torch.ones(4, 3), torch.ones(4, 3)], torch.arange(4), ("a", "b", "c", "d")))
    'The batch has 0: a list of 2 tensors (4, 3); 1: int64 (4,); 2: a tuple of str.'
    """
    parts = _parts(batch)
    if not parts:
        return f"The batch is {in_short(batch)}."
    said = [f"{key!r}: {in_short(part)}" for key, part in list(parts.items())[:_MOST]]
    more = [f"{len(parts) - _MOST} more"] if len(parts) > _MOST else []
    return f"The batch has {'; '.join(said + more)}."


def in_short(part: Any) -> str:
    """Return what a part of a batch is, in a few words.

    >>> import torch
    >>> in_short({"image": torch.ones(4, 3), "label": torch.arange(4)})
    "a dict of 'image', 'label'"
    """
    kind = type(part).__name__
    if isinstance(part, Tensor):
        return f"{_dtype(part)} {tuple(part.shape)}"
    if isinstance(part, Mapping) and part:
        return f"a {kind} of {', '.join(map(repr, list(part)[:_MOST]))}{', ...' if len(part) > _MOST else ''}"
    if not isinstance(part, Sequence) or isinstance(part, str) or not part:
        return f"one {kind}"
    if not _are_tensors(part):
        return f"a {kind} of {type(part[0]).__name__}"
    shapes = list(dict.fromkeys(str(tuple(each.shape)) for each in part))
    return f"a {kind} of {len(part)} tensors {shapes[0]}{' and others' if len(shapes) > 1 else ''}"


def views_place(batch: Any) -> Place | list[Place] | None:
    """Return the place in a batch where views may be: a list of tensors, or two tensors of one shape. None: nowhere.

    >>> import torch
    >>> views_place((torch.ones(4, 3), torch.ones(4, 3), torch.arange(4)))
    [0, 1]
    """
    shapes: dict[tuple[int, ...], list[Place]] = {}
    for key, part in _parts(batch).items():
        if _are_tensors(part):
            return key
        if isinstance(part, Tensor) and part.ndim > 1:
            shapes.setdefault(tuple(part.shape), []).append(key)
    return next((found[:2] for found in shapes.values() if len(found) > 1), None)


def near(name: object, known: Iterable[object]) -> str:
    """Return a hint with the name in `known` that is most similar to `name`, or "" if none is similar.

    >>> near("lable", ["image", "label", 3])
    ' Did you mean `label`?'
    """
    names = [each for each in known if isinstance(each, str)]
    return did_you_mean(str(name), names)


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


def image_place(batch: Any) -> Place | None:
    """Return the place in a batch where images may be: the first tensor with two or more axes. None: nowhere."""
    return next((key for key, part in _parts(batch).items() if isinstance(part, Tensor) and part.ndim > 1), None)


def _item(holder: Any, part: Place, given: str, batch: Any) -> Any:
    try:
        return holder[part]
    except (KeyError, IndexError, TypeError) as error:
        if isinstance(holder, Mapping):
            places = ", ".join(map(repr, holder)) + "." + near(part, holder)
        elif isinstance(holder, Sequence):
            places = f"{len(holder)} positions." + (" Name a position." if isinstance(part, str) else "")
        else:
            places = f"a {type(holder).__name__}."
        raise ValueError(
            f"Expected `batch_keys` {given} to be in the batch, which has {places} {contents(batch)}"
        ) from error


def _parts(batch: Any) -> dict[Any, Any]:
    if isinstance(batch, Mapping):
        return dict(batch)
    return dict(enumerate(batch)) if isinstance(batch, Sequence) and not isinstance(batch, str) else {}


def _are_tensors(part: Any) -> bool:
    return isinstance(part, Sequence) and len(part) > 0 and all(isinstance(each, Tensor) for each in part)


def _dtype(part: Tensor) -> str:
    return str(part.dtype).removeprefix("torch.")
