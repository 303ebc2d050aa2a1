"""What the guard's part of the recipe writes for each epoch of a run."""

__all__ = ["EPOCHS", "PATIENCES", "READOUTS", "Readout"]

from typing import NamedTuple

EPOCHS = 20
PATIENCES = (1, 3, 5)
READOUTS = "readouts.csv"


class Readout(NamedTuple):
    """What the guards read after an epoch. `warned_3` is 1 if the guard of patience 3 has warned by then.

    Epochs count from 0 here, and from 1 in the README's table. The accuracies are of the last epoch.
    """

    arm: str
    seed: int
    epoch: int
    cosine_h: float
    cosine_z: float
    participation_h: float
    participation_z: float
    warned_1: int
    warned_3: int
    warned_5: int
    accuracy_h: float
    accuracy_z: float
