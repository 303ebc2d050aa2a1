"""A network that is looked at and not trained."""

__all__ = ["Subject"]

from collections.abc import Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.introspection import layer_outputs, submodule
from lightning_ssl_geometry.observe.batch_keys import BatchKeys, augmented, check_keys, numbers, place, stage_keys
from lightning_ssl_geometry.types import Observation

_NAMES = ("views", "image", "label", "coarse_label", "index")


class Subject(L.LightningModule):
    """Any network, as the diagnostics see it: images to h by its backbone, and to z by its projector, if it has one.

    Args:
        network: Has the two; any `torch.nn.Module`, a LightningModule too. Its own `forward` is not called where
            `backbone` is given.
        backbone: Dotted name of the submodule of `network` that maps images (N, C, H, W) to h (N, D) or (N, D, 1, 1);
            None: `network` itself.
        layer: Dotted name of a submodule of the backbone whose output is h instead, such as "avgpool".
        projector: Dotted name of the submodule of `network` that maps h to z (N, P); None: there is none.
        batch_keys: Where a foreign batch has its "views", "image", "label" and "index", as in
            :class:`lightning_ssl_geometry.callbacks.GeometryMonitor`; batches of this package need none.
        augment: Makes two views of a batch's image where it has no views: called with (image, index, epoch).

    Raises:
        ValueError: If a name is of no submodule, or unknown in `batch_keys`; in a pass, if h or z is not of such a
            shape, the batch has neither views nor an image, or `augment` cannot work on that.

    >>> model = Subject(nn.Sequential(nn.Flatten(), nn.Linear(12, 5), nn.ReLU()))
    >>> model(torch.ones(2, 3, 2, 2)).shape
    torch.Size([2, 5])
    """

    def __init__(
        self,
        network: nn.Module,
        backbone: str | None = None,
        layer: str | None = None,
        projector: str | None = None,
        batch_keys: BatchKeys | None = None,
        augment: nn.Module | None = None,
    ) -> None:
        super().__init__()
        self.backbone = network if backbone is None else submodule(network, backbone, "backbone")
        if layer is not None:
            submodule(self.backbone, layer, "layer")
        self.layer = layer
        self.projector = None if projector is None else submodule(network, projector, "projector")
        self.batch_keys = batch_keys or {}
        check_keys(self.batch_keys, _NAMES)
        self.augment = augment
        self._seen = 0

    def forward(self, x: Tensor) -> Tensor:
        """Represent images: (N, C, H, W) to h (N, D)."""
        try:
            return self._represent(x)
        except (AssertionError, RuntimeError) as error:  # how networks refuse a size
            raise ValueError(
                f"Expected `backbone` to take images of shape {tuple(x.shape[1:])}, but {type(self.backbone).__name__} "
                f"says: {str(error) or type(error).__name__}"
            ) from error

    def _represent(self, x: Tensor) -> Tensor:
        if self.layer is None:
            return _rows("backbone", self.backbone(x), len(x))
        with layer_outputs(self.backbone, [self.layer]) as run:
            return _rows(self.layer, run(x)[self.layer], len(x))

    def on_test_epoch_start(self) -> None:
        """Number samples without an index from 0."""
        self._seen = 0

    def test_step(self, batch: Any, batch_idx: int) -> Observation:
        """Observe a batch: its views, and its images without augmentation where it has them."""
        found = self._found(batch)
        views, n = found.pop("views"), len(found["index"])
        h = self(torch.cat(list(views))).unflatten(0, (-1, n))
        observation: Observation = {"encoder": self, "h": h, **found}  # type: ignore[typeddict-item]
        if "image" in found:
            observation["h_image"] = self(found["image"])
        if self.projector is not None:
            observation["projector"] = self.projector
            z = _rows("projector", self.projector(h.flatten(0, 1)), len(h) * n)
            observation["z"] = z.unflatten(0, h.shape[:2])
        return observation

    def _found(self, batch: Any) -> dict[str, Any]:
        """Take what there is out of a batch."""
        known, keys = batch if isinstance(batch, Mapping) else {}, stage_keys(self.batch_keys, "test")
        found: dict[str, Any] = {
            name: place(batch, keys.get(name, name), name) for name in _NAMES if name in keys or name in known
        }
        if "views" not in found and ("image" not in found or self.augment is None):
            raise ValueError(
                "Expected batches with `views`, or with an `image` beside `augment`, but they have "
                f"{', '.join(found) or 'nothing'} that is known. Say in `batch_keys` where they are."
            )
        if "index" not in found:
            found["index"] = self._numbers(len(found["views"][0] if "views" in found else found["image"]))
        if "views" not in found:
            assert self.augment is not None
            found["views"] = augmented(self.augment, found["image"], found["index"].cpu())
        return found

    def _numbers(self, n: int) -> Tensor:
        """Number the next n samples, on each rank its own."""
        self._seen += n
        return numbers(self.trainer, self._seen - n, n, self.device)


def _rows(name: str, output: Any, n: int) -> Tensor:
    """(N, D) of what may have more axes of length 1."""
    if isinstance(output, Tensor) and output.ndim >= 2 and len(output) == n and output[0].numel() == output.shape[1]:
        return output.flatten(1)
    what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    raise ValueError(
        f"Expected `{name}` to return (N, D) or (N, D, 1, 1), but got {what}. Name a submodule that does by `backbone` "
        "or `layer`."
    )
