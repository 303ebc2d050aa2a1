"""Whether a network is invariant to augmentations, also after a training step (Calder & Lee 2025, Theorem 4.2)."""

__all__ = ["StepInvariance"]

from collections.abc import Sequence
from functools import partial
from typing import ClassVar, Unpack

import torch
from torch import Tensor, nn
from torch.nn.functional import normalize as unit

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, Standing, evaluating
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.stationarity import OldSettings, symmetric_form
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.groups.equivariance import invariance_error
from lightning_ssl_geometry.functional.output_velocity import output_velocity, step_invariance_error
from lightning_ssl_geometry.functional.variational.loss import first_variation
from lightning_ssl_geometry.losses.variational import VariationalLoss
from lightning_ssl_geometry.papers import CALDER_LEE
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity

_quantity = partial(Quantity, paper=CALDER_LEE, where="Theorem 4.2", bounds=(0.0, None), invariances=("permutation",))
_CHUNK = 256  # images per pass


class StepInvariance(SampledRows):
    r"""Compares the embeddings of augmented views with those of the images, and their velocities in a training step.

    f(x) is the network's output for image x, scaled to length 1. T_v x is the augmented view v of x, for V views.
    Results for n samples (Calder & Lee 2025, Theorem 4.2):

    - `distance` >= 0. It is 0 if f is invariant to the augmentations. Its value is :math:`\frac1{Vn} \sum_{v,i} \|f(T_v
      x_i) - f(x_i)\|^2 / (2 \operatorname{tr} \operatorname{Cov} f)`.
    - `step` >= 0: the root mean square of :math:`\dot f(T_v x_i) - \dot f(x_i)`, divided by the root mean square of
      :math:`\dot f(x_i)`. :math:`\dot f` is the velocity of f in a gradient step on the first two views.

    Both results are NaN if the embeddings of all samples are equal. `step` is also NaN if the step moves no sample. The
    networks run in eval mode, and their weights must not change between updates. Memory: n (V + 1) images. `compute`
    costs two forward passes over these images, one backward pass and O(n^2 P) for P dimensions of z. Equations:
    :func:`functional.invariance_error`, :func:`functional.output_velocity`, :func:`functional.step_invariance_error`.

    Args:
        loss: The loss, made symmetric in its views. None: `VariationalLoss()`.
        contrast_size: Number of samples kept, >= 2. The values depend on it.
        seed: Determines which samples are kept.
        **old: Deprecated: settings of the loss.
    """

    section = "dynamics"
    cost = Cost(update="n D + n X + N D + N X", compute="N^2 D + N F", memory="N D + N X")
    quantities: ClassVar[dict[str, Quantity]] = {
        "distance": _quantity(
            title="Distance of views from their sample",
            text="Mean squared distance between the embeddings of a sample and of its views, as a share of that "
            "between two samples.",
            low="Near 0: the network is invariant to the augmentations.",
            high="Near 1: a view is as far from its sample as another sample is.",
            unit="of that between samples",
            comparable=("width", "temperature", "batch size", "method"),
            better="low",
        ),
        "step": _quantity(
            title="How differently a step moves views",
            text="Difference between how a step of gradient descent moves the embeddings of a sample and of its views, "
            "relative to how far it moves samples.",
            low="Near 0: a step keeps a sample and its views together, as it would points without a network.",
            high="Near 1.4: a step moves them unrelatedly, so that the network cannot stay invariant.",
            chart=Chart("step_invariance", "How differently a step moves views", "relative to the samples' moves"),
        ),
    }

    @by_position("temperature", "psi", "eta", "negatives", "include_self", "contrast_size", "seed")
    def __init__(
        self,
        *,
        loss: VariationalLoss | None = None,
        contrast_size: int = 256,
        seed: int = 0,
        **old: Unpack[OldSettings],
    ) -> None:
        super().__init__(("x", "h"), contrast_size, seed)
        self.form = symmetric_form(loss, old)
        self.encoder = Standing()
        self.projector = Standing()

    @by_position("encoder", "projector")
    def update(
        self,
        image: Tensor,
        views: Sequence[Tensor],
        h: Tensor,
        h_image: Tensor,
        index: Tensor | None = None,
        *,
        encoder: nn.Module,
        projector: nn.Module | None = None,
    ) -> None:
        """Add N images (N, ...) and V >= 2 views of the same shape, with their representations and `index` (N,).

        `h` (V, N, D) belongs to the views, and `h_image` (N, D) to the images. If they differ from the outputs of the
        encoder, the difference is treated as a constant.
        """
        if len(views) < 2 or any(view.shape != image.shape for view in views):
            shapes = [tuple(view.shape) for view in views]
            raise ValueError(f"Expected `views` of V >= 2 tensors of image's shape {[*image.shape]}, but got {shapes}.")
        if h.ndim != 3 or len(h) != len(views) or h.shape[1:] != h_image.shape:
            got = f"{tuple(h.shape)} and {tuple(h_image.shape)}"
            raise ValueError(f"Expected `h` (V, N, D) for V = {len(views)} and `h_image` (N, D), but got {got}.")
        self.encoder.hold(encoder)
        if projector is not None:
            self.projector.hold(projector)
        self.offer(index, x=torch.stack([image, *views], 1), h=torch.stack([h_image, *h], 1))

    def compute(self) -> dict[str, Tensor]:
        rows = self.rows()
        x, h = (rows[name].transpose(0, 1).flatten(0, 1) for name in ("x", "h"))  # the images, then each view
        n = len(rows["x"])
        embedding = _Embedding(self.encoder.module(), self.projector.module() if self.projector else None)
        with evaluating(embedding), torch.no_grad():
            represented = torch.cat([embedding.encoded(part.clone()) for part in x.split(_CHUNK)])
            shift = h.to(represented) - represented  # rounding, or the part of h that the encoder did not compute
            image, *views = in_float64(embedding.embedded(represented + shift)).split(n)
            gradient = first_variation(views[0], views[1], **vars(self.form)).flatten(0, 1)  # n times the gradient
            gradient = gradient.to(represented)
            pair = x[n : 3 * n], shift[n : 3 * n]
            at, *moved = output_velocity(embedding, pair, 2 * gradient, at=(x, shift), chunk_size=_CHUNK).split(n)
        if not all(each.isfinite().all() for each in (image, *views)):
            nan = undefined(self, "the embeddings are not finite")
            return {"distance": nan, "step": nan}
        if all_alike(image[:, None]):
            nan = undefined(self, "the embeddings of all samples are equal but for rounding")
            return {"distance": nan, "step": nan}
        distance = torch.stack([invariance_error(image, view) for view in views]).mean()
        if at.shape[1] == 1 or not at.any():
            return {"distance": distance, "step": undefined(self, "the step moves the embedding of no sample")}
        return {"distance": distance, "step": step_invariance_error(at, torch.stack(moved))}


class _Embedding(nn.Module):
    def __init__(self, encoder: nn.Module, projector: nn.Module | None) -> None:
        super().__init__()
        self.encoder = encoder
        self.projector = nn.Identity() if projector is None else projector

    def forward(self, x: Tensor, shift: Tensor) -> Tensor:
        return self.embedded(self.encoded(x) + shift)

    def encoded(self, x: Tensor) -> Tensor:
        h: Tensor = self.encoder(x).flatten(1)
        return h

    def embedded(self, h: Tensor) -> Tensor:
        return unit(self.projector(h), dim=1)
