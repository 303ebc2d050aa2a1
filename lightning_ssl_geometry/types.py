"""The entries of a batch and of a step's result (observation), shared by data, methods and diagnostics.

    image x -> views (V) -> backbone -> representation h -> projector -> embedding z -> loss

Axes, everywhere: V views, N samples of a batch, D representation, P projection, C channels.
"""

__all__ = ["COLUMNS", "SAMPLE_AXIS", "Batch", "Observation"]

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypedDict

from torch import Tensor, nn


class Batch(TypedDict, total=False):
    """A batch on the training device.

    Attributes:
        views: V tensors (N, C, H, W), the normalised, augmented views. Synthetic data has anchors and positives (N, D).
        image: (N, C, H, W), the normalised samples without augmentation. Synthetic data has anchors (N, D).
        label: (N,) integers, the classes.
        coarse_label: (N,) integers, the superclasses of CIFAR-100.
        index: (N,) integers, the position of each sample in its data set.
        latent: (V, N, d), the true latent variables of synthetic data.
        content: (d,) booleans. True: a content variable, equal in all views of a sample. False: a style variable.
        g: V tensors with N rows, the group element that made each view.
        box: (N, 4) integers, the object's cell in pixels: top, left, bottom (exclusive), right (exclusive).
    """

    views: tuple[Tensor, ...]
    image: Tensor
    label: Tensor
    coarse_label: Tensor
    index: Tensor
    latent: Tensor
    content: Tensor
    g: tuple[Tensor, ...]
    box: Tensor


class Observation(TypedDict, total=False):
    """The result of a step, which diagnostics read. All tensors except `loss` are detached.

    `label`, `coarse_label`, `index`, `box`, `latent` and `content` are the same as in :class:`Batch`.

    Attributes:
        loss: The loss, a scalar.
        h: (V, N, D) representations, the backbone's output for each view. If the views of z are no images, but parts of
            one feature map, V is 1 here.
        z: (V, N, P) embeddings, the projector's output for each view.
        views: The views of the batch. Only in evaluation.
        image: The samples without augmentation. Only in evaluation.
        h_image: (N, D) representations of `image`.
        h_layers: Name of a layer of the backbone -> its outputs (V, N, D_l) for each view, in the order of the layers.
        h_layers_image: Name of a layer of the backbone -> its outputs (N, D_l) for `image`.
        z_image: (N, P) embeddings of `image`. Only for some methods.
        fibers: (V, N, b C) inputs of the projector if they are not h. b is the `base_size` of HSSLModule.
        encoder: The module that maps an image to h.
        projector: The module that maps h or fibers to z.
        feature_extractor: The module that maps an image to an equivariant feature map (N, C, |G|, H, W) for a group G.
        log_policy: (N, K), log P(T | X) for N samples X and the K augmentations T of `family`.
        family: The `AugmentationFamily` that applies the augmentations.
        temperature: (P,), one temperature for each dimension of z. Only for methods that have them.
        scores: Further scalars to log, by name. Each is a mean over the samples of this rank.
    """

    loss: Tensor
    h: Tensor
    z: Tensor
    views: tuple[Tensor, ...]
    image: Tensor
    h_image: Tensor
    h_layers: dict[str, Tensor]
    h_layers_image: dict[str, Tensor]
    z_image: Tensor
    label: Tensor
    coarse_label: Tensor
    index: Tensor
    box: Tensor
    latent: Tensor
    content: Tensor
    temperature: Tensor
    fibers: Tensor
    encoder: nn.Module
    projector: nn.Module
    feature_extractor: nn.Module
    log_policy: Tensor
    family: nn.Module
    scores: dict[str, Tensor]


SAMPLE_AXIS: Mapping[str, int | None] = MappingProxyType(
    {
        **dict.fromkeys(("views", "g"), 0),  # the axis of each of the V tensors
        **dict.fromkeys(("image", "h_image", "h_layers_image", "z_image", "log_policy"), 0),
        **dict.fromkeys(("label", "coarse_label", "index", "box"), 0),
        **dict.fromkeys(("h", "h_layers", "z", "fibers", "latent"), 1),
        **dict.fromkeys(("loss", "scores", "content", "temperature"), None),
        **dict.fromkeys(("encoder", "projector", "feature_extractor", "family"), None),
    }
)
"""The axis of the samples for every key of a batch and of an observation; None if a key has no such axis."""

COLUMNS: tuple[Literal["label", "coarse_label", "index", "box", "latent", "content"], ...] = (
    "label",
    "coarse_label",
    "index",
    "box",
    "latent",
    "content",
)
"""The keys that an observation takes over from its batch."""
