"""What the guard's part of the recipe writes for each epoch of a run, and when a guard warns by it."""

__all__ = ["EPOCHS", "READOUTS", "Readout", "first_warning"]

from collections.abc import Sequence
from typing import NamedTuple

EPOCHS = 20
READOUTS = "readouts.csv"


class Readout(NamedTuple):
    """The guard's values after an epoch. `found` is 1 if it has warned by then; accuracies are of the last epoch."""

    arm: str
    seed: int
    epoch: int
    cosine_h: float
    cosine_z: float
    participation_h: float
    participation_z: float
    found: int
    accuracy_h: float
    accuracy_z: float


def first_warning(rows: Sequence[Readout], patience: int) -> int | None:
    """Return the number of epochs after which a guard with this patience warns, from the readouts of one run in order.

    The thresholds are those that MeanCosine and VarianceRank declare.
    """
    within = [0] * 4
    for row in rows:
        passed = (row.cosine_h >= 0.995, row.cosine_z >= 0.995, row.participation_h < 1.5, row.participation_z < 1.5)
        within = [count + 1 if now else 0 for count, now in zip(within, passed, strict=True)]
        if max(within) >= patience:
            return row.epoch + 1
    return None
