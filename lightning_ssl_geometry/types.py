"""The vocabulary that data, methods and diagnostics share.

    image x -> views (V) -> backbone -> representation h -> projector -> embedding z -> loss

Axes, everywhere: V views, N samples of a batch, D representation, P projection, C channels.
"""

__all__ = ["COLUMNS", "SAMPLE_AXIS", "Batch", "Observation"]

from collections.abc import Mapping
from types import MappingProxyType
from typing import Literal, TypedDict

from torch import Tensor, nn


class Batch(TypedDict, total=False):
    """What a DataModule yields once a batch is on the training device.

    Attributes:
        views: V tensors of shape (N, C, H, W): augmented, normalised versions of the same N samples; of a synthetic
            process (N, D): the anchors' observations and the positives'.
        image: (N, C, H, W): the samples without augmentation, normalised; of a synthetic process (N, D): the anchors.
        label: (N,) integer classes.
        coarse_label: (N,) integer superclasses, where the data set has them (CIFAR-100).
        index: (N,) integers, the position of each sample in its data set, whatever the order or the rank.
        latent: (V, N, d): the true latent variables of a synthetic process.
        content: (d,) booleans: which of these are content, the same in all views of a sample; the others are style.
        g: the group element of each view, V tensors with N rows.
        box: (N, 4) integers: top, left, bottom and right (exclusive) of the object's cell in the image, in pixels.
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
    """What a training or validation step returns, and what diagnostics observe; all but `loss` detached.

    Attributes:
        loss: a scalar, the one that is descended.
        h: (V, N, D): representations, the backbone's output for each view.
        z: (V, N, P): embeddings, the projector's output for each view.
        views: as in a batch, in evaluation.
        image: as in a batch, in evaluation.
        h_image: (N, D): their representations.
        z_image: (N, P): their embeddings, where the method has such.
        label: (N,) integer classes.
        coarse_label: (N,) integer superclasses.
        index: (N,) integers, the position of each sample in its data set.
        fibers: (V, N, b C): the fiber bundles that the projector saw, where it saw these and not h.
        encoder: the module that maps an image to h.
        projector: the module that maps h, or fibers, to z.
        feature_extractor: the module that maps an image to an equivariant feature map (N, C, |G|, H, W).
        log_policy: (N, K): log P(T | X), of a family's members for each sample.
        family: the module that applies these members to images, an `AugmentationFamily`.
        box: (N, 4) integers: top, left, bottom and right (exclusive) of the object's cell in the image, in pixels.
        latent: (V, N, d): the true latent variables of a synthetic process.
        content: (d,) booleans: which of these are content; the others are style.
        temperature: (P,): the temperature of each dimension of z, where the method has one per dimension.
        scores: further scalars, each a mean over the samples of this rank, to log by their names.
    """

    loss: Tensor
    h: Tensor
    z: Tensor
    views: tuple[Tensor, ...]
    image: Tensor
    h_image: Tensor
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
        **dict.fromkeys(("views", "g"), 0),  # of each of V tensors
        **dict.fromkeys(("image", "h_image", "z_image", "log_policy"), 0),
        **dict.fromkeys(("label", "coarse_label", "index", "box"), 0),
        **dict.fromkeys(("h", "z", "fibers", "latent"), 1),
        **dict.fromkeys(("loss", "scores", "content", "temperature"), None),
        **dict.fromkeys(("encoder", "projector", "feature_extractor", "family"), None),
    }
)
"""Which axis is the samples', of every key of a batch and of an observation; None of what is not one per sample."""

COLUMNS: tuple[Literal["label", "coarse_label", "index", "box", "latent", "content"], ...] = (
    "label",
    "coarse_label",
    "index",
    "box",
    "latent",
    "content",
)
"""What a batch says of its samples, and an observation of them likewise."""
