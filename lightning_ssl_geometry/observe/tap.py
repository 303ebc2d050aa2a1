"""Tap: the path of a submodule, and the part of its output that is recorded."""

__all__ = ["PickedModule", "Tap", "tower_names"]

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from lightning_ssl_geometry.observe.batch_keys import in_short, near
from lightning_ssl_geometry.observe.tokens import TOKENS, read_tokens


@dataclass(frozen=True)
class Tap:
    """Names a submodule and, after colons, the part of its output that is recorded.

    "backbone" is the output of the submodule `backbone`, and "backbone:cls" the first token of its output (N, T, D).
    :func:`read_tokens` lists the other choices for tokens and feature maps. If the output is a dict, a tuple or an
    object, a key, a position or an attribute comes first, as in "backbone:last_hidden_state:cls" or "backbone:0:mean".

    Args:
        name: Name of the recorded tensor, such as "h".
        text: The dotted path, and the parts after colons.

    Raises:
        ValueError: If the path or a part is empty.

    >>> import torch
    >>> Tap("h", "encoder:0:mean")((torch.ones(4, 7, 3), "more")).shape
    torch.Size([4, 3])
    """

    name: str
    text: str

    def __post_init__(self) -> None:
        if not isinstance(self.text, str) or not all(self.text.split(":")):
            raise ValueError(
                f"Expected `taps` {self.name} as 'path' or 'path:part', such as 'encoder:cls', but got {self.text!r}."
            )

    @property
    def path(self) -> str:
        """Dotted path of the submodule."""
        return self.text.partition(":")[0]

    @property
    def parts(self) -> list[str]:
        """The keys, positions and choices after the path."""
        return self.text.split(":")[1:]

    def __call__(self, output: Any) -> Tensor:
        """Return the recorded part of an output as rows (N, D). A feature map (N, C, H, W) is flattened.

        Raises a ValueError if the output has no such part, or if the part is no tensor with one row per sample. Tokens
        (N, T, D) without a choice are an error, too, unless T or D is 1.
        """
        for part in self.parts:
            output = self._of_tokens(output, part) if isinstance(output, Tensor) else self._entry(output, part)
        return self._rows(output)

    def _entry(self, output: Any, part: str) -> Any:
        entries = _entries(output)
        if part not in entries:
            has = f" with {', '.join(map(repr, entries))}" if entries else ""
            raise ValueError(
                f"Expected {self._said} to have a part {part!r}, but got {in_short(output)}{has}.{near(part, entries)}"
            )
        return entries[part]

    def _of_tokens(self, output: Tensor, part: str) -> Tensor:
        if part not in TOKENS:
            raise ValueError(
                f"Expected {self._said} to name one of {', '.join(TOKENS)}, but got {part!r}.{near(part, TOKENS)}"
            )
        return read_tokens(output, part, self._said)

    def _rows(self, output: Any) -> Tensor:
        if not isinstance(output, Tensor):
            such = "".join(f" Name a part of it, such as '{self.text}:{key}'." for key in list(_entries(output))[:1])
            raise ValueError(f"Expected {self._said} to return a tensor, but got {in_short(output)}.{such}")
        if output.ndim < 2:
            raise ValueError(f"Expected {self._said} to return rows (N, D), but got shape {tuple(output.shape)}.")
        if output.ndim == 3 and 1 not in output.shape[1:]:
            choices = ", ".join(
                f"'{self.text}:{name}' ({each.words})" for name, each in TOKENS.items() if 3 in each.axes
            )
            raise ValueError(
                f"Expected {self._said} to return rows (N, D), but got tokens of shape {tuple(output.shape)}. Say what "
                f"{self.name} is: {choices}."
            )
        return output.flatten(1)

    @property
    def _said(self) -> str:
        return f"tap {self.name!r} ({self.text!r})"


class PickedModule(nn.Module):
    """Calls a module, and returns the part of its output that a :class:`Tap` names.

    Args:
        module: The submodule at the path of `tap`.
        tap: The submodule's name and the parts after it.
    """

    def __init__(self, module: nn.Module, tap: Tap) -> None:
        super().__init__()
        self.module = module
        self.tap = tap

    def forward(self, *x: Tensor) -> Tensor:
        """Return the part of the module's output as rows (N, D)."""
        return self.tap(self.module(*x))


def tower_names(texts: Sequence[str]) -> list[str]:
    """Return a name for each of several taps: the parts of their texts that differ.

    >>> tower_names(["model.visual.head", "model.text.head"])
    ['visual', 'text']
    >>> tower_names(["backbone", "backbone_momentum"])
    ['backbone', 'backbone_momentum']
    """
    split = [re.split("[.:]", text) for text in texts]
    begin = _alike(split)
    split = [parts[begin:] for parts in split]
    end = _alike([parts[::-1] for parts in split])
    return ["_".join(parts[: len(parts) - end]) for parts in split]


def _alike(split: Sequence[Sequence[str]]) -> int:
    equal = [len(set(parts)) == 1 for parts in zip(*split, strict=False)]
    return min([*equal, False].index(False), min(map(len, split)) - 1)  # a name keeps one part at least


def _entries(output: Any) -> dict[str, Any]:
    if isinstance(output, Mapping):
        return {str(key): value for key, value in output.items()}
    if isinstance(output, Sequence) and not isinstance(output, str):
        return {str(place): each for place, each in enumerate(output)}
    return {name: value for name, value in getattr(output, "__dict__", {}).items() if not name.startswith("_")}
