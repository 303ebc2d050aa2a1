"""Load the weights of a checkpoint without running any code in it."""

__all__ = ["load_weights"]

import pickle
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import dense


def load_weights(network: nn.Module, checkpoint: str | Path, prefix: str = "", ignore: Sequence[str] = ()) -> None:
    """Load a state dict from a file into a network, in place.

    A file of safetensors holds tensors only. Any other file is read with `weights_only=True`. So no code in it can run.

    Args:
        network: The network that gets the weights. The file must have all keys of the network's state dict.
        checkpoint: A file of `torch.save` or of Lightning, or, if its name ends with ".safetensors", of safetensors.
            The file is a state dict, or has one under the key `state_dict`, `model_state_dict` or `model`. Keys of a
            network that `torch.compile` had wrapped are read as those of the network itself, without "_orig_mod.".
        prefix: Prefix of the network's keys in the file, such as "backbone.". It is removed from the keys. Keys without
            the prefix are ignored.
        ignore: Prefixes of further keys to ignore, such as "fc.", after `prefix` is removed.

    Raises:
        FileNotFoundError: If the file does not exist.
        ValueError: If the file is broken, cannot be read with `weights_only=True`, has no state dict, or has wrong keys
            or shapes.
    """
    state = _state_dict(Path(checkpoint))
    prefix, ignore = _uncompiled(prefix), [_uncompiled(start) for start in ignore]
    found = {key.removeprefix(prefix): value for key, value in state.items() if key.startswith(prefix)}
    found = {key: value for key, value in found.items() if not key.startswith(tuple(ignore))}
    own = {_uncompiled(key): value for key, value in network.state_dict().items()}
    missing = [key for key in own if key not in found]
    surplus = [key for key in found if key not in own]
    if missing or surplus:
        raise ValueError(
            f"Expected `checkpoint` {checkpoint} to have the keys of {type(network).__name__}, but {_some(missing)} "
            f"are missing and {_some(surplus)} too many (see `ignore`).{_hint(own, state, prefix)}"
        )
    for key, value in own.items():
        _refuse_unusable(key, value, found[key], checkpoint=checkpoint)
    if wrong := [key for key, value in own.items() if value.shape != found[key].shape]:
        key, shapes = wrong[0], (tuple(own[wrong[0]].shape), tuple(found[wrong[0]].shape))
        raise ValueError(f"Expected {key!r} in `checkpoint` {checkpoint} of shape {shapes[0]}, but got {shapes[1]}.")
    network.load_state_dict({key: found[_uncompiled(key)] for key in network.state_dict()})


def _state_dict(path: Path) -> Mapping[str, Tensor]:
    if not path.is_file():
        raise FileNotFoundError(f"Expected `checkpoint` to be a file, but there is none at {path}.")
    if path.suffix == ".safetensors":
        return _all_uncompiled(_safetensors(path), path)
    with path.open("rb") as file:
        try:
            held = torch.load(file, map_location="cpu", weights_only=True)
        except Exception as error:  # a broken file may raise anything: a struct.error, or an OSError if it is cut
            raise ValueError(
                f"Expected `checkpoint` {path} to load with weights_only=True, but it {_reason(error)}"
            ) from error
    for name in ("state_dict", "model_state_dict", "model"):
        if isinstance(held, Mapping) and isinstance(held.get(name), Mapping):
            held = held[name]
    if not isinstance(held, Mapping) or not held or not all(_is_weight(*item) for item in held.items()):
        kind = f"{', '.join(map(str, list(held)[:5]))}" if isinstance(held, Mapping) else type(held).__name__
        raise ValueError(f"Expected `checkpoint` {path} to hold a state dict, but it holds {kind or 'nothing'}.")
    return _all_uncompiled(held, path)


def _all_uncompiled(held: Mapping[str, Tensor], path: Path) -> Mapping[str, Tensor]:
    found: dict[str, Tensor] = {}
    for key, value in held.items():
        if (plain := _uncompiled(key)) in found:
            raise ValueError(
                f"Expected `checkpoint` {path} to have each weight once, but {plain!r} is there with and without "
                '"_orig_mod.". Save the state dict of the network alone.'
            )
        found[plain] = value
    return found


def _refuse_unusable(key: str, own: Tensor, found: Tensor, checkpoint: str | Path) -> None:
    try:
        dense(**{key: found})
    except ValueError as error:
        raise ValueError(f"{error} It is in `checkpoint` {checkpoint}.") from error
    if found.is_complex() and not own.is_complex():
        raise ValueError(
            f"Expected {key!r} in `checkpoint` {checkpoint} to be real, as the network's is, but got {found.dtype}. "
            "Save its real part, or make the network complex."
        )


def _uncompiled(key: str) -> str:
    return key.replace("_orig_mod.", "")  # torch.compile's wrapper puts this in front of the keys of what it wraps


def _safetensors(path: Path) -> Mapping[str, Tensor]:
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    try:
        held = load_file(path)
    except SafetensorError as error:
        raise ValueError(f"Expected `checkpoint` {path} to hold safetensors, but it is broken: {error}.") from error
    if not held:
        raise ValueError(f"Expected `checkpoint` {path} to hold a state dict, but it holds nothing.")
    return held


def _is_weight(key: Any, value: Any) -> bool:
    return isinstance(key, str) and isinstance(value, Tensor)


_ADVICE = (
    " Such objects run code of their own when they are read, so the file was refused. If you trust where it comes "
    "from, load it in Python with weights_only=False and save its `state_dict` alone."
)


def _reason(error: Exception) -> str:
    # torch's own message hides the reason among advice
    if named := re.search(r"(?:GLOBAL|Unsupported class) (\S+)", str(error)):
        return (
            f"holds {named[1]}, which is no tensor and no plain container: the file is a pickle of Python objects "
            f"beyond tensors.{_ADVICE}"
        )
    if isinstance(error, pickle.UnpicklingError) and "weights_only" in str(error) and "persistent" not in str(error):
        return f"is broken, or no checkpoint, or a pickle of Python objects beyond tensors.{_ADVICE}"
    return "is broken, or no checkpoint."


def _some(keys: list[str]) -> str:
    if not keys:
        return "none"
    return ", ".join(map(repr, keys[:3])) + (f" and {len(keys) - 3} more" if len(keys) > 3 else "")


def _hint(own: Mapping[str, Any], state: Mapping[str, Any], prefix: str) -> str:
    first = next(iter(own), "")
    starts = [key.removesuffix(first) for key in state if key.endswith(first)]
    fits = [start for start in starts if start != prefix and all(start + key in state for key in own)]
    return f" They are there with `prefix` {fits[0]!r}." if fits else ""
