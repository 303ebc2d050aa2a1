"""DiagnosedModel: makes any network a LightningModule for diagnostics."""

__all__ = ["NAMES", "DiagnosedModel"]

from collections.abc import Sequence
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.introspection import layer_outputs, submodule
from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.batch_reader import BatchReader, with_clean
from lightning_ssl_geometry.types import Observation

NAMES = ("views", "image", "label", "coarse_label", "index")


class DiagnosedModel(L.LightningModule):
    """Makes any network a LightningModule for diagnostics. A backbone maps images to h, and a projector maps h to z.

    Args:
        network: Any `torch.nn.Module` that contains the backbone, and the projector if there is one. If `backbone` is
            given, the `forward` of `network` is not called.
        backbone: Dotted name of the submodule that maps images (N, C, H, W) to h (N, D) or (N, D, 1, 1). None:
            `network` itself.
        layer: Dotted name of a submodule of the backbone whose output is h, such as "avgpool". None: the output of the
            backbone is h.
        projector: Dotted name of the submodule that maps h to z (N, P).
        batch_keys: Where a batch holds "views", "image", "label" and "index", such as {"label": 1}. A place is a key, a
            position or a dotted path. Batches of this package need no `batch_keys`.
        augment: Makes two views of the images if a batch has no views. It is called with (image, index, epoch).

    Raises:
        ValueError: If a submodule does not exist, or `batch_keys` has an unknown key. In the forward pass, if h or z
            has a wrong shape, if a batch has neither views nor images, or if `augment` cannot take the images.
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
        self.augment = augment
        self.reader = BatchReader(batch_keys, augment, NAMES, only=True)

    @property
    def batch_keys(self) -> BatchKeys:
        """The argument `batch_keys`."""
        return self.reader.batch_keys

    def of_our_batches(self) -> "DiagnosedModel":
        """Return a module of the same networks that reads batches of this package, without `batch_keys`."""
        made = DiagnosedModel(self.backbone, layer=self.layer)
        made.projector = self.projector
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to h (N, D)."""
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
        self.reader.restart("test")

    def test_step(self, batch: Any, batch_idx: int) -> Observation:
        """Return h and z of the views of a batch. If the batch has unaugmented images, also return h of these."""
        views, found = self._read(batch)
        n = len(found["index"])
        h = self(torch.cat(list(views))).unflatten(0, (-1, n))
        observation: dict[str, Any] = {"encoder": self, "h": h, **found}
        if self.projector is not None:
            observation["projector"] = self.projector
            z = _rows("projector", self.projector(h.flatten(0, 1)), len(h) * n)
            observation["z"] = z.unflatten(0, h.shape[:2])
        return with_clean(observation)  # type: ignore[return-value]

    def _read(self, batch: Any) -> tuple[Sequence[Tensor], dict[str, Any]]:
        found = self.reader.read(batch, "test")
        has_views = self.reader.has_views(batch, "test")
        if not has_views and ("image" not in found or self.augment is None):
            raise ValueError(
                "Expected batches with `views`, or with an `image` beside `augment`, but they have "
                f"{', '.join(found) or 'nothing'} that is known. Say in `batch_keys` where they are."
            )
        views = self.reader.views(batch, "test") if has_views else []
        if "index" not in found:
            n = len(views[0] if has_views else found["image"])
            found["index"] = self.reader.numbers(n, "test", self.device)
            self.reader.count(n, "test")
        return views if has_views else self.reader.augmented(found["image"], found["index"].cpu()), found


def _rows(name: str, output: Any, n: int) -> Tensor:
    if isinstance(output, Tensor) and output.ndim >= 2 and len(output) == n and output[0].numel() == output.shape[1]:
        return output.flatten(1)
    what = tuple(output.shape) if isinstance(output, Tensor) else type(output).__name__
    raise ValueError(
        f"Expected `{name}` to return (N, D) or (N, D, 1, 1), but got {what}. Name a submodule that does by `backbone` "
        "or `layer`."
    )
