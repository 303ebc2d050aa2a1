"""Cross entropy and accuracy, for methods that train a classifier."""

__all__ = ["ACCURACY", "CROSS_ENTROPY", "classification"]

from dataclasses import replace

import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.methods.base import LOSS
from lightning_ssl_geometry.quantity import CLASSIFIER_ACCURACY, CLASSIFIER_LOSS
from lightning_ssl_geometry.types import Batch

CROSS_ENTROPY = replace(CLASSIFIER_LOSS, chart=LOSS.chart, headline=LOSS.headline)
ACCURACY = replace(
    CLASSIFIER_ACCURACY,
    title="Classifier",
    text="Accuracy of the method's own classifier, on images without augmentation outside of training.",
    low="Near chance: it does not tell the classes apart (yet).",
    high="It tells the classes apart.",
    label="classifier",
    headline=False,
    section="probes",
)


def classification(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Return the cross entropy over the samples of all processes, and the accuracy on this process, in [0, 1].

    `logits` (V N, classes) belong to V views of N samples, one view after the other. The batch must have `label` (N,).
    A ValueError is raised if there is no label or a shape is wrong.
    """
    if "label" not in batch:
        raise ValueError(f"Expected `label` in a batch for the classifier, but got {sorted(batch)}.")
    label = batch["label"]
    if logits.ndim != 2 or len(logits) % len(label):
        wanted = f"(V N, classes) for {len(label)} labels"
        raise ValueError(f"Expected `classifier` to return {wanted}, but got {tuple(logits.shape)}.")
    label = label.repeat(len(logits) // len(label))
    full = logits.to(torch.promote_types(logits.dtype, torch.float32))
    loss = cross_entropy(distributed.gather(full), distributed.gather(label))
    return loss, (logits.argmax(-1) == label).float().mean()
