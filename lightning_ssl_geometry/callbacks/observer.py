"""What all observing callbacks share: one observation of a step, from our methods' outputs or from taps."""

__all__ = ["Observer", "run_folder", "undisturbed"]

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import CSVLogger
from torch import Tensor, nn

from lightning_ssl_geometry.callbacks.taps import Taps, ViewLayout


class Observer:
    """Turns a step into a mapping with h, z, label, index, encoder, projector, ... as far as they are there.

    Args:
        taps: None for a module whose steps return a mapping with these names; else as in :class:`Taps`.
        views: As in :class:`Taps`.
        batch_keys: Name of the observation -> its place in the batch (a key, or a position), such as {"label": 1}.
        finite: Refuse values of h and z that are not finite; an accelerator is waited for.
    """

    def __init__(
        self,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: dict[str, str | int] | None = None,
        finite: bool = True,
    ) -> None:
        self.finite = finite
        self.taps = Taps(taps, views) if taps else None
        self.batch_keys = batch_keys or {}
        self._rows: dict[str, int] = {}

    def attach(self, host: L.LightningModule) -> None:
        """Register the hooks of the taps, if there are any."""
        if self.taps:
            self.taps.attach(host)

    def detach(self) -> None:
        """Remove them."""
        if self.taps:
            self.taps.detach()

    def open(self) -> None:
        """Begin to observe a step."""
        if self.taps:
            self.taps.open()

    def restart(self, stage: str) -> None:
        """Begin a new pass of a stage: samples without an index are numbered from 0 again."""
        self._rows[stage] = 0

    def close(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """End it: the observation, with every tensor detached.

        Samples of a batch without an index are numbered as they arrive, each rank's apart from the others'.

        Raises:
            ValueError: If h or z hold a value that is not finite, or the shapes do not fit each other.
        """
        found = dict(outputs) if isinstance(outputs, Mapping) and not self.taps else {}
        if self.taps:
            found |= self.taps.close()
        found |= {name: _place(batch, key, name) for name, key in self.batch_keys.items()}
        observation = {name: value.detach() if isinstance(value, Tensor) else value for name, value in found.items()}
        spaces = {name: observation[name] for name in ("h", "z") if name in observation}
        if spaces:
            self._check(observation, spaces, trainer)
            self._number(observation, next(iter(spaces.values())), trainer, stage)
        return observation

    def _check(self, observation: dict[str, Any], spaces: dict[str, Tensor], trainer: L.Trainer) -> None:
        for name, value in spaces.items():
            if self.finite and not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value)).sum())
                raise ValueError(
                    f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not, "
                    f"at step {trainer.global_step} (epoch {trainer.current_epoch})."
                )
        shapes = {name: tuple(value.shape[:2]) for name, value in spaces.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"Expected taps with the same (V, N), but got {shapes}.")
        n = next(iter(shapes.values()))[1]
        for name in ("label", "index"):
            if name in observation and len(observation[name]) != n:
                raise ValueError(f"Expected `{name}` with {n} rows, as h and z have, but got {len(observation[name])}.")

    def _number(self, observation: dict[str, Any], space: Tensor, trainer: L.Trainer, stage: str) -> None:
        if "index" in observation:
            return
        start, n = self._rows.get(stage, 0), space.shape[1]
        place = torch.arange(start, start + n, device=space.device)
        observation["index"] = place * trainer.world_size + trainer.global_rank
        self._rows[stage] = start + n


def run_folder(trainer: L.Trainer) -> Path:
    """Folder of the run's files: that of the first CSVLogger, of the first logger, or the `default_root_dir`.

    All ranks must call, and get rank 0's.
    """
    logs = [logger.log_dir for logger in trainer.loggers if isinstance(logger, CSVLogger)]
    return Path(trainer.strategy.broadcast(logs[0] if logs else trainer.log_dir or trainer.default_root_dir))


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Run in eval mode without gradients, and leave modes and random state as they were."""
    modes = [(child, child.training) for child in module.modules()]
    devices = [module.device] if getattr(module, "device", torch.device("cpu")).type == "cuda" else []
    module.eval()
    try:
        with torch.random.fork_rng(devices), torch.no_grad():
            yield
    finally:
        for child, training in modes:
            child.training = training


def _place(batch: Any, key: str | int, name: str) -> Any:
    try:
        return batch[key]
    except (KeyError, IndexError, TypeError) as error:
        places = sorted(batch) if isinstance(batch, Mapping) else f"{len(batch)} positions"
        raise ValueError(f"Expected `batch_keys` {name}={key!r} to be in the batch, which has {places}.") from error
