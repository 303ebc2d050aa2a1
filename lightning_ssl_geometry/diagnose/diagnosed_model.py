"""DiagnosedModel: makes any network a LightningModule for diagnostics."""

__all__ = ["NAMES", "DiagnosedModel"]

import copy
import re
from collections.abc import Sequence
from typing import Any, get_args

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.checks import one_of
from lightning_ssl_geometry.diagnose.tokens import vectors_of
from lightning_ssl_geometry.introspection import layer_outputs, matching_submodules, submodule
from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.batch_reader import BatchReader
from lightning_ssl_geometry.observe.tokens import Token
from lightning_ssl_geometry.types import Observation

_OF_SHAPES = re.compile("shape|size|channel|dimension|height|width|numel", re.IGNORECASE)
NAMES = ("views", "image", "label", "coarse_label", "index")


class DiagnosedModel(L.LightningModule):
    """Makes any network a LightningModule for diagnostics. A backbone maps images to h, and a projector maps h to z.

    Args:
        network: Any `torch.nn.Module` that contains the backbone, and the projector if there is one. If `backbone` is
            given, the `forward` of `network` is not called.
        backbone: Dotted name of the submodule that maps images (N, C, H, W) to h (N, D), or to an output of which
            `token` makes h. None: `network` itself.
        layer: Dotted name of a submodule of the backbone whose output is h, such as "avgpool". None: the output of the
            backbone is h.
        projector: Dotted name of the submodule that maps h to z (N, P).
        batch_keys: Where a batch holds "views", "image", "label" and "index", such as {"label": 1}. A place is a key, a
            position or a dotted path. Batches of this package need no `batch_keys`.
        augment: Makes two views of the images if a batch has no views. It is called with (image, index, epoch).
        layers: Patterns of dotted names of submodules of the backbone, such as "blocks.*" for all blocks of a vision
            transformer. A wildcard stands for letters of one part of a name. The step then also returns `h_layers` and
            `h_layers_image`, which :class:`lightning_ssl_geometry.callbacks.LayerGeometry` compares. All are outputs of
            the same forward pass as h, and only their vectors (N, D_l) are kept.
        token: The vector that stands for an output that is not (N, D) or (N, D, 1, 1), for h and for `layers`:
            "cls", "mean", "patch_mean", "mean_nhwc" or "flatten" of
            :func:`lightning_ssl_geometry.observe.tokens.read_tokens`. None: such outputs are an error.

    Raises:
        ValueError: If a submodule does not exist, `layers` matches none, `token` is unknown, or `batch_keys` has an
            unknown key. In the forward pass, if h, z or the output of a layer has a wrong shape, if a batch has neither
            views nor images, or if `augment` cannot take the images.
    """

    def __init__(
        self,
        network: nn.Module,
        backbone: str | None = None,
        layer: str | None = None,
        projector: str | None = None,
        batch_keys: BatchKeys | None = None,
        augment: nn.Module | None = None,
        layers: str | Sequence[str] = (),
        token: Token | None = None,
    ) -> None:
        super().__init__()
        one_of((None, *get_args(Token)), token=token)
        self.backbone = network if backbone is None else submodule(network, backbone, "backbone")
        if layer is not None:
            submodule(self.backbone, layer, "layer")
        self.layer = layer
        patterns = [layers] if isinstance(layers, str) else list(layers)
        found = matching_submodules(self.backbone, patterns, "layers")
        self.layers = [name for name in found if name != layer]  # h has a row of its own
        self.token = token
        self.projector = None if projector is None else submodule(network, projector, "projector")
        self.augment = augment
        self.reader = BatchReader(batch_keys, augment, NAMES, only=True)

    @property
    def batch_keys(self) -> BatchKeys:
        """The argument `batch_keys`."""
        return self.reader.batch_keys

    def of_our_batches(self) -> "DiagnosedModel":
        """Return a copy with the same networks that reads batches of this package, without `batch_keys`."""
        made = copy.copy(self)
        made.reader = BatchReader(None, None, NAMES, only=True)
        return made

    def forward(self, x: Tensor) -> Tensor:
        """Map images (N, C, H, W) to h (N, D)."""
        return self._represent(x, ())[0]

    def _represent(self, x: Tensor, layers: Sequence[str]) -> tuple[Tensor, dict[str, Tensor]]:
        def read(name: str, z: object) -> Tensor:
            if isinstance(z, tuple) and z and name != own:  # of hidden states and attention
                z = z[0]
            return vectors_of(z, self.token, name or "backbone", n=len(x)).clone()  # the other tokens are freed

        own = self.layer or ""  # of the backbone itself
        with layer_outputs(self.backbone, list(dict.fromkeys([*layers, own])), read) as run:
            try:
                found = run(x)
            except torch.OutOfMemoryError:
                raise
            except (AssertionError, RuntimeError) as error:  # how networks refuse a size
                said = str(error) or type(error).__name__
                hint = "" if _OF_SHAPES.search(said) else ". It takes other images, or the network has an error."
                raise ValueError(
                    f"Expected `backbone` to take images of shape {tuple(x.shape[1:])}, but "
                    f"{type(self.backbone).__name__} says: {said}{hint}"
                ) from error
        return found[own], {name: found[name] for name in layers}

    def on_test_epoch_start(self) -> None:
        self.reader.restart("test")

    def test_step(self, batch: Any, batch_idx: int) -> Observation:
        """Return h, z and the outputs of `layers` for the views of a batch, and for unaugmented images if it has any.

        There is no z of unaugmented images.
        """
        views, found = self._read(batch)
        n = len(found["index"])
        rows, inner = self._represent(torch.cat(list(views)), self.layers)
        h = rows.unflatten(0, (-1, n))
        observation: dict[str, Any] = {"encoder": self, "h": h, "views": tuple(views), **found}
        if self.layers:
            observation["h_layers"] = {name: value.unflatten(0, (-1, n)) for name, value in inner.items()}
        if self.projector is not None:
            observation["projector"] = self.projector
            z = vectors_of(self.projector(rows), None, "projector", n=len(rows))
            observation["z"] = z.unflatten(0, h.shape[:2])
        if "image" in found:
            observation["h_image"], clean = self._represent(found["image"], self.layers)
            observation |= {"h_layers_image": clean} if self.layers else {}
        return observation  # type: ignore[return-value]

    def predict_step(self, batch: Any, batch_idx: int) -> Tensor:
        """Return h (N, D) of the unaugmented images of a batch."""
        return self(self.reader.image(batch, "test"))

    def project_image(self, h: Tensor, batch: Any) -> Tensor | None:
        """Map h (N, D) to z (N, P). Return None if there is no projector."""
        return None if self.projector is None else vectors_of(self.projector(h), None, "projector", n=len(h))

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
