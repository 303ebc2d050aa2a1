"""What all observing callbacks share: one observation of a step, from our methods' outputs or from taps."""

__all__ = ["NotFiniteError", "Observer"]

from collections.abc import Mapping, Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.batch_reader import BatchReader, with_clean
from lightning_ssl_geometry.observe.taps import Taps, ViewLayout
from lightning_ssl_geometry.types import COLUMNS, SAMPLE_AXIS


class NotFiniteError(ValueError):
    """The host's outputs hold NaN or infinity: a fault of the moment, not of the settings."""


class Observer:
    """Turns a step into a mapping with h, z, label, index, encoder, projector, ... as far as they are there.

    Args:
        taps: None for a module whose steps return a mapping with these names; else as in :class:`Taps`.
        views: As in :class:`Taps`.
        batch_keys: Name of the observation -> its place in the batch, such as {"label": 1}: a key, a position, a dotted
            path ("views.0.image"), or a list of these. Where the batches of a stage differ from the others, its name
            goes before: {"label": "views.0.label", "val/label": "label"}.
        finite: Refuse values of h and z that are not finite; an accelerator is waited for.
        augment: As in :class:`GeometryMonitor`.
        one_view: Where `batch_keys` has "image" and not "views", :meth:`look` at the image as the only view.

    Raises:
        ValueError: If `batch_keys` names no stage, or `views` is none of the choices.
    """

    def __init__(
        self,
        taps: dict[str, str] | None = None,
        views: ViewLayout = "calls",
        batch_keys: BatchKeys | None = None,
        finite: bool = True,
        augment: nn.Module | None = None,
        one_view: bool = False,
    ) -> None:
        self.one_view = one_view
        self.finite = finite
        self.taps = Taps(taps, views) if taps else None
        self.reader = BatchReader(batch_keys, augment)

    @property
    def augment(self) -> nn.Module | None:
        """Makes views of a batch's image."""
        return self.reader.augment

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

    def cancel(self) -> None:
        """End to observe a step without an observation."""
        if self.taps:
            self.taps.cancel()

    def restart(self, stage: str) -> None:
        """Begin a new pass of a stage: samples without an index are numbered from 0 again."""
        self.reader.restart(stage)

    def close(self, outputs: Any, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """End it: the observation, with every tensor detached.

        Samples of a batch without an index are numbered as they arrive, each rank's apart from the others'.

        Raises:
            ValueError: If h or z hold a value that is not finite, or the shapes do not fit each other.
        """
        found = dict(outputs) if isinstance(outputs, Mapping) and not self.taps else {}
        if self.taps:
            found |= self.taps.close()
        found |= self.reader.read(batch, stage)
        observation = {name: value.detach() if isinstance(value, Tensor) else value for name, value in found.items()}
        spaces = {name: observation[name] for name in ("h", "z") if name in observation}
        if spaces:
            self._check(observation, spaces, trainer)
            self._number(observation, next(iter(spaces.values())), trainer, stage)
        return observation

    def look(self, host: L.LightningModule, batch: Any, trainer: L.Trainer, stage: str) -> dict[str, Any]:
        """Pass a batch's views through the host, and return the observation, with `image` and `h_image` if it has one.

        The caller sees to modes, gradients and random state.

        Raises:
            ValueError: As :meth:`close`; if the batch has no views, and no image to make them of.
        """
        if self.taps is None:
            with trainer.precision_plugin.forward_context():
                outputs = host.observe(batch)  # type: ignore[operator]
            return self.close(outputs, batch, trainer, stage)
        views = trainer.precision_plugin.convert_input(self._views(batch, trainer, stage))
        self.open()
        with trainer.precision_plugin.forward_context():
            for call in self.taps.calls(views):
                self.taps.forward(host, call)
        observation = self.close(None, batch, trainer, stage) | {"views": tuple(views)}
        if "image" not in observation and isinstance(batch, Mapping) and "image" in batch:
            observation["image"] = batch["image"]
        with trainer.precision_plugin.forward_context():
            return with_clean(observation)

    def _views(self, batch: Any, trainer: L.Trainer, stage: str) -> Sequence[Tensor]:
        if self.augment is not None:
            image = self.reader.image(batch, stage)
            index = self.reader.read(batch, stage).get("index")
            if index is None:
                index = self.reader.numbers(len(image), trainer, stage, torch.device("cpu"))
            return self.reader.augmented(image, index)
        if not self.one_view:
            return self.reader.views(batch, stage)
        if not self.reader.has_views(batch, stage) and "image" in (named := self.reader.read(batch, stage)):
            return [named["image"]]
        return self.reader.views(batch, stage, 'or "image"')

    def _check(self, observation: dict[str, Any], spaces: dict[str, Tensor], trainer: L.Trainer) -> None:
        for name, value in spaces.items():
            if self.finite and not torch.isfinite(value).all():
                bad = int((~torch.isfinite(value)).sum())
                raise NotFiniteError(
                    f"Expected finite `{name}`, but got {bad} of {value.numel()} values that are not, "
                    f"at step {trainer.global_step} (epoch {trainer.current_epoch})."
                )
        shapes = {name: tuple(value.shape[:2]) for name, value in spaces.items()}
        if len(set(shapes.values())) > 1:
            raise ValueError(f"Expected taps with the same (V, N), but got {shapes}.")
        n = next(iter(shapes.values()))[1]
        for name in (name for name in COLUMNS if SAMPLE_AXIS[name] == 0):
            if observation.get(name) is not None and (rows := len(observation[name])) != n:
                one_call = self.taps and self.taps.views == "calls" and n == 2 * rows
                hint = " One call on both views is `views='halves'` or `'interleaved'`." if one_call else ""
                raise ValueError(f"Expected `{name}` with {n} rows, as h and z have, but got {rows}.{hint}")

    def _number(self, observation: dict[str, Any], space: Tensor, trainer: L.Trainer, stage: str) -> None:
        if "index" in observation:
            return
        n = space.shape[1]
        observation["index"] = self.reader.numbers(n, trainer, stage, space.device)
        self.reader.count(n, stage)
