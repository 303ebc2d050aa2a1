"""What the guard's part of the recipe writes for each epoch of a run."""

__all__ = ["EPOCHS", "READOUTS", "Readout"]

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
