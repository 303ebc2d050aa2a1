"""Read a user's arrays of samples and labels, and say what is wrong with them."""

__all__ = ["NUMBERED", "TOO_LARGE", "Array", "Kind", "as_labels", "as_samples", "read_array"]

from pathlib import Path
from typing import Any, Literal

import numpy as np
import torch
from torch import Tensor

from lightning_ssl_geometry.checks import dense, finite

Kind = Literal["image", "vector", "signal"]
Array = str | Path | np.ndarray | Tensor
NUMBERED = " `np.unique(label, return_inverse=True)` numbers the classes."
_DIVIDE = "Divide them by their largest possible value, such as 255."
_NORMALIZED = (
    "If they are normalized, leave that out of the data set's transform, or undo it by `image * std + mean`. The "
    "DataModule normalizes the views."
)
TOO_LARGE = 2**63  # for a label, which is int64
_AXES: dict[Kind, str] = {"image": "(N, C, H, W) or (N, H, W)", "vector": "(N, D)", "signal": "(N, C, T)"}
_KINDS: dict[int, Kind] = {2: "vector", 4: "image"}


def read_array(given: Any, name: str, hint: str = "") -> Tensor:
    """Return an array as a tensor on the CPU.

    Args:
        given: An array, a tensor, or a path: `x.npy`, which is memory-mapped until :func:`as_samples` converts it,
            `x.npz` or `x.npz:key`.
        name: Name of the argument in messages.
        hint: Added to the message if the array does not hold numbers.
    """
    if isinstance(given, str | Path):
        given = _read(str(given), name)
    if isinstance(given, Tensor):
        dense(**{name: given})
        return given.detach().cpu()
    if not isinstance(given, np.ndarray):
        raise ValueError(f"Expected `{name}` to be an array, a tensor or a path, but got a {type(given).__name__}.")
    if np.ma.is_masked(given):
        raise ValueError(
            f"Expected `{name}` without missing values, but {np.ma.count_masked(given)} values are masked. Fill them, "
            "such as by `array.filled(value)`, or leave out their rows."
        )
    if given.dtype.kind not in "biuf":
        hint = hint or (" Do all rows have one length?" if given.dtype == object else "")
        raise ValueError(f"Expected `{name}` to hold numbers, but got an array of dtype {given.dtype}.{hint}")
    return torch.from_numpy(_as_torch_has_it(given))


def as_samples(values: Tensor, name: str, kind: Kind | None, channels_last: bool = False) -> Tensor:
    """Check the samples of one set. Return images (M, C, H, W), vectors (M, D) or signals (M, C, T).

    Args:
        values: The samples, first axis M.
        name: Name of the argument in messages.
        kind: What the samples are. None: vectors if `values` has 2 axes, images if it has 4.
        channels_last: Whether the last axis of images or signals is C.

    Returns:
        uint8 images, or float32 samples. Images in float32 are in [0, 1].

    Raises:
        ValueError: If the axes do not fit `kind`, or a value is not finite or out of range.
    """
    shape = tuple(values.shape)
    if kind is None and values.ndim not in _KINDS:
        raise ValueError(
            f"Expected `kind` for `{name}` of shape {shape}: 'image' for {_AXES['image']}, 'vector' for "
            f"{_AXES['vector']}, or 'signal' for {_AXES['signal']}."
        )
    kind = kind or _KINDS[values.ndim]
    if not values.numel():
        raise ValueError(f"Expected `{name}` with samples, but got shape {shape}.")
    if kind == "image" and values.ndim == 3:
        values = values[:, None]
    elif channels_last:
        values = values.movedim(-1, 1)
    if values.ndim != {"image": 4, "vector": 2, "signal": 3}[kind]:
        raise ValueError(f"Expected `{name}` of shape {_AXES[kind]} for kind {kind!r}, but got {shape}.")
    return _pixels(values, name, shape) if kind == "image" else _numbers(values, name)


def as_labels(given: Tensor, name: str, count: int) -> Tensor:
    """Check the labels of one set with `count` samples. Return them as int64 (M,)."""
    if given.is_floating_point() or given.is_complex() or given.dtype == torch.bool:
        raise ValueError(f"Expected `{name}` to be integers, the classes, but got {given.dtype}.{NUMBERED}")
    if given.shape != (count,):
        raise ValueError(f"Expected `{name}` of shape ({count},), one per sample, but got {tuple(given.shape)}.")
    label = given.long()
    if (least := int(label.min())) < 0:
        if given.dtype == torch.uint64:  # it wrapped around
            raise ValueError(f"Expected `{name}` < 2**63, but got {least + 2 * TOO_LARGE}.{NUMBERED}")
        raise ValueError(f"Expected `{name}` >= 0, but got {least}.")
    return label


def _read(path: str, name: str) -> Any:
    file, _, key = path.rpartition(".npz:")
    file = f"{file}.npz" if file else path
    if not Path(file).is_file():
        raise FileNotFoundError(f"Expected `{name}` to be an existing .npy or .npz file, but there is none at {file}.")
    try:
        keys, found = _found(file, None if path.endswith(".npz") else key)
    except Exception as error:  # a broken file may raise anything, such as a TokenError or a BadZipFile
        raise ValueError(f"Expected `{name}` to be a .npy or .npz file of numbers, but got: {error}") from error
    if found is not None:
        return found
    raise ValueError(f"Expected `{name}` to be {file}:KEY with one of the keys {keys}, but got {path!r}.")


def _found(file: str, key: str | None) -> tuple[list[str], Any]:
    with open(file, "rb") as opened:  # numpy leaves a broken archive open
        if opened.read(2) != b"PK":
            return [], np.load(file, mmap_mode="c", allow_pickle=False)
        opened.seek(0)
        with np.load(opened, allow_pickle=False) as read:
            keys = list(read)
            if key is None and len(keys) == 1:
                key = keys[0]
            return keys, read[key] if key in keys else None


def _as_torch_has_it(array: np.ndarray) -> np.ndarray:
    kind, size = array.dtype.kind, array.dtype.itemsize
    if kind == "u" and 1 < size < 8:
        array = array.astype(np.int64)
    elif kind == "f" and size > 8:
        array = array.astype(np.float64)
    elif not array.dtype.isnative:
        array = array.astype(array.dtype.newbyteorder("="))
    elif kind in "iu":
        array = array.view(f"{kind}{size}")  # the type of this size: torch knows none by the names of C
    return array if array.flags.writeable and min(array.strides, default=0) >= 0 else array.copy()


def _pixels(values: Tensor, name: str, shape: tuple[int, ...]) -> Tensor:
    if values.shape[1] not in (1, 3) and values.shape[3] in (1, 3, 4):
        raise ValueError(
            f"Expected `{name}` of shape {_AXES['image']}, but got {shape}. Set `channels_last` to True for "
            "(N, H, W, C)."
        )
    if values.dtype == torch.uint8:
        return values.contiguous()
    if not values.is_floating_point():
        raise ValueError(f"Expected `{name}` to be uint8, or floating point in [0, 1], but got {values.dtype}.")
    values = _numbers(values, name)
    low, high = (float(bound) for bound in values.aminmax())
    if low < 0 or high > 1:
        remedy = _DIVIDE if low >= 0 and high <= 255 else _NORMALIZED
        raise ValueError(
            f"Expected `{name}` in [0, 1], as it is floating point, but got values in [{low}, {high}]. {remedy}"
        )
    return values


def _numbers(values: Tensor, name: str) -> Tensor:
    if values.is_complex():
        raise ValueError(f"Expected `{name}` to hold real numbers, but got {values.dtype}.")
    numbers = values.float().contiguous()
    finite(**{name: numbers})
    return numbers
