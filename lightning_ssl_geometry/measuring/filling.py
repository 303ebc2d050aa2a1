"""Choose the training batches on which diagnostics are computed."""

__all__ = ["Filling"]

import math
from collections.abc import Mapping
from typing import Any

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.observe.feed import space_in

_LEAST, _PER_DIMENSION, _LONGEST = 1024, 4, 50


class Filling:
    """Chooses every n-th batch of an epoch, including the first.

    If `every_n_steps` is None, n is the largest number up to 50 that gives enough rows per epoch. A row is the
    representation h of one view of one sample, or its embedding z if there is no h. If a row has D numbers, max(4 D,
    1,024) rows on all ranks are enough. If an epoch has fewer rows, n is 1. If the number of batches is unknown, every
    batch is chosen until there are enough rows, and then every 50th.

    Args:
        every_n_steps: n >= 1, or None.
    """

    def __init__(self, every_n_steps: int | None) -> None:
        if every_n_steps is not None:
            at_least(1, every_n_steps=every_n_steps)
        self.every_n_steps = every_n_steps
        self.restart()

    def begin(self, batches: float) -> None:
        """Begin an epoch. `batches` is the number of its batches, or infinity if unknown."""
        self._batches = batches
        self._n = self.every_n_steps
        self._rows = 0

    def restart(self) -> None:
        """Begin an epoch with an unknown number of batches."""
        self.begin(math.inf)

    def wants(self, batch_idx: int) -> bool:
        """Whether the batch number `batch_idx` is chosen."""
        return self._n is None or batch_idx % self._n == 0

    def saw(self, observation: Mapping[str, Any]) -> None:
        """Record that a batch was used. `observation` has h or z (V, N, D) of the V views of its N samples."""
        space = space_in(observation)
        if self._n is not None or space is None:
            return
        rows = len(space) * space.shape[1] * distributed.world_size()
        wanted = max(_PER_DIMENSION * space.shape[-1], _LEAST)
        self._rows += rows
        if math.isfinite(self._batches):
            self._n = max(1, min(_LONGEST, int(self._batches) // math.ceil(wanted / max(rows, 1))))
        elif self._rows >= wanted:
            self._n = _LONGEST
