"""The order of a Trainer's callbacks, and those of a kind among them."""

__all__ = ["Turn", "callbacks_of", "put_in_order"]

from enum import IntEnum
from typing import TypeVar

import lightning as L
from lightning.pytorch.callbacks import Checkpoint

_Kind = TypeVar("_Kind", bound=L.Callback)


class Turn(IntEnum):
    """When Lightning calls a callback, compared with the others."""

    OBSERVES = 0  # logs what EarlyStopping and ModelCheckpoint read
    OTHER = 1  # keeps its place among its like
    REPORTS = 2  # reads what all others have written
    SAVES = 3  # Lightning, too, calls checkpoints last


def put_in_order(trainer: L.Trainer, callback: L.Callback) -> None:
    """Sort a Trainer's callbacks by their turns, and put one callback first among those of its turn.

    Callbacks of this package say their turn in the attribute `turn`.
    """
    others = [each for each in callbacks_of(trainer, L.Callback) if each is not callback]
    trainer.callbacks = sorted([callback, *others], key=_turn)  # type: ignore[attr-defined]


def callbacks_of(trainer: L.Trainer, kind: type[_Kind]) -> list[_Kind]:
    """List the callbacks of a kind that a Trainer has."""
    found: list[L.Callback] = trainer.callbacks  # type: ignore[attr-defined]
    return [callback for callback in found if isinstance(callback, kind)]


def _turn(callback: L.Callback) -> Turn:
    turn = Turn.SAVES if isinstance(callback, Checkpoint) else getattr(callback, "turn", Turn.OTHER)
    return turn if isinstance(turn, Turn) else Turn.OTHER
