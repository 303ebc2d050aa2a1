"""What the benchmarks of whole epochs share: a silent Trainer for one epoch, and a clock."""

import logging
import tempfile
import time
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import lightning as L


class Clock(L.Callback):
    """Seconds from the start of an epoch, before its first batch is fetched, to the end of its last hook."""

    def __init__(self, now: Callable[[], float]) -> None:
        self.now = now

    def on_train_epoch_start(self, *_: Any) -> None:
        self.began = self.now()

    def on_train_epoch_end(self, *_: Any) -> None:
        self.seconds = self.now() - self.began


def one_epoch(
    model: L.LightningModule,
    *,
    callbacks: Sequence[L.Callback] = (),
    logger: Any = False,
    now: Callable[[], float] = time.perf_counter,
    accelerator: str = "cpu",
    precision: Any = "32-true",
    profiler: Any = None,
    **data: Any,
) -> float:
    """Train for one epoch, and return its seconds by the clock `now`."""
    clock = Clock(now)
    trainer = L.Trainer(
        max_epochs=1,
        accelerator=accelerator,
        devices=1,
        precision=precision,
        profiler=profiler,
        logger=logger,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        callbacks=[*callbacks, clock],
        default_root_dir=tempfile.mkdtemp(),
    )
    trainer.fit(model, **data)
    return clock.seconds


def silence() -> None:
    """Hide warnings, and what Lightning prints at the start of a fit."""
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
