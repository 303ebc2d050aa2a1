"""What all observing callbacks share: one observation of a step, from our methods' outputs or from taps."""

__all__ = ["NotFiniteError", "Observer", "undisturbed"]

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.observe.batch_keys import BatchKeys, augmented, check_keys, numbers, place, stage_keys
from lightning_ssl_geometry.observe.random_state import random_state_kept
from lightning_ssl_geometry.observe.taps import Taps, ViewLayout


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
        self.augment = augment
        self.taps = Taps(taps, views) if taps else None
        self.batch_keys = batch_keys or {}
        check_keys(self.batch_keys)
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

    def cancel(self) -> None:
        """End to observe a step without an observation."""
        if self.taps:
            self.taps.cancel()

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
        keys = stage_keys(self.batch_keys, stage)
        found |= {name: place(batch, key, name) for name, key in keys.items() if name != "views"}
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
        if "image" in observation and "encoder" in observation and "h_image" not in observation:
            with trainer.precision_plugin.forward_context():
                observation["h_image"] = observation["encoder"](observation["image"]).flatten(1)
        return observation

    def _views(self, batch: Any, trainer: L.Trainer, stage: str) -> Sequence[Tensor]:
        if self.augment is not None:
            return self._augmented(batch, trainer, stage)
        keys = stage_keys(self.batch_keys, stage)
        if self.one_view and "image" in keys and "views" not in keys:
            return [place(batch, keys["image"], "image")]
        try:
            found = place(batch, keys.get("views", "views"), "views")
        except ValueError as error:
            other = 'or "image"' if self.one_view else 'or "image" beside `augment`'
            raise ValueError(f'{error} Name the place of a list of views in `batch_keys`: "views", {other}.') from error
        if not isinstance(found, Sequence) or not all(isinstance(view, Tensor) for view in found):
            hint = " Let the data set return a list of views, not one tensor." if isinstance(found, Tensor) else ""
            raise ValueError(
                f"Expected `batch_keys` views to be a list of tensors, but got {type(found).__name__}.{hint}"
            )
        return found

    def _augmented(self, batch: Any, trainer: L.Trainer, stage: str) -> Sequence[Tensor]:
        """Make the views of a batch that has one image per sample."""
        assert self.augment is not None
        keys = stage_keys(self.batch_keys, stage)
        image = place(batch, keys.get("image", "image"), "image")
        if "index" in keys:
            index = place(batch, keys["index"], "index")
        else:
            index = self._numbers(len(image), trainer, stage, torch.device("cpu"))
        return augmented(self.augment, image, index)

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
        for name in ("label", "index"):
            if name in observation and (rows := len(observation[name])) != n:
                one_call = self.taps and self.taps.views == "calls" and n == 2 * rows
                hint = " One call on both views is `views='halves'` or `'interleaved'`." if one_call else ""
                raise ValueError(f"Expected `{name}` with {n} rows, as h and z have, but got {rows}.{hint}")

    def _number(self, observation: dict[str, Any], space: Tensor, trainer: L.Trainer, stage: str) -> None:
        if "index" in observation:
            return
        n = space.shape[1]
        observation["index"] = self._numbers(n, trainer, stage, space.device)
        self._rows[stage] = self._rows.get(stage, 0) + n

    def _numbers(self, n: int, trainer: L.Trainer, stage: str, device: torch.device) -> Tensor:
        """Number the next n samples of a stage, on each rank its own."""
        return numbers(trainer, self._rows.get(stage, 0), n, device)


@contextmanager
def undisturbed(module: nn.Module) -> Iterator[None]:
    """Run in eval mode without gradients, and leave modes and random state as they were."""
    modes = [(child, child.training) for child in module.modules()]
    module.eval()
    try:
        with random_state_kept(module), torch.no_grad():  # numpy's too: transforms of data sets draw from it
            yield
    finally:
        for child, training in modes:
            child.training = training
