"""The order of a Trainer's callbacks."""

__all__ = ["Turn", "callbacks_of", "put_in_order"]

from enum import IntEnum
from typing import TypeVar

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

from lightning_ssl_geometry.either_lightning import either

_Kind = TypeVar("_Kind", bound=L.Callback)


class Turn(IntEnum):
    """Groups of callbacks, in the order in which the Trainer calls them."""

    OBSERVES = 0  # logs what EarlyStopping and ModelCheckpoint read
    OTHER = 1  # keeps its position among the callbacks of this group
    REPORTS = 2  # reads what all others have written
    SAVES = 3  # checkpoints, which Lightning also calls last


def put_in_order(trainer: L.Trainer, callback: L.Callback) -> None:
    """Sort a Trainer's callbacks by `turn`. `callback` becomes the first of the callbacks with the same `turn`."""
    others = [each for each in _all(trainer) if each is not callback]
    trainer.callbacks = sorted([callback, *others], key=_turn)  # type: ignore[attr-defined]


def callbacks_of(trainer: L.Trainer, kind: type[_Kind]) -> list[_Kind]:
    """Return the Trainer's callbacks of a class."""
    return [callback for callback in _all(trainer) if isinstance(callback, either(kind))]


def _all(trainer: L.Trainer) -> list[L.Callback]:
    return trainer.callbacks  # type: ignore[attr-defined]


def _turn(callback: L.Callback) -> Turn:
    turn = Turn.SAVES if isinstance(callback, either(Checkpoint)) else getattr(callback, "turn", Turn.OTHER)
    return turn if isinstance(turn, Turn) else Turn.OTHER
