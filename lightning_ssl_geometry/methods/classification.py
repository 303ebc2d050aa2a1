"""Cross entropy and accuracy of methods with labels."""

__all__ = ["ACCURACY", "CROSS_ENTROPY", "classification"]

from dataclasses import replace

from torch import Tensor
from torch.nn.functional import cross_entropy

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.methods.base import LOSS
from lightning_ssl_geometry.quantity import PROBES, Quantity
from lightning_ssl_geometry.types import Batch

CROSS_ENTROPY = replace(
    LOSS,
    text="The cross entropy of the classifier, which training lowers.",
    low="Near 0: the classifier is sure of the right classes.",
    high="Near the logarithm of the number of classes and above: the classifier does not know the classes.",
    unit="nats",
    bounds=(0.0, None),
)
ACCURACY = Quantity(
    title="Classifier",
    text="Accuracy of the method's own classifier, on images without augmentation outside of training.",
    low="Near chance: it does not tell the classes apart (yet).",
    high="It tells the classes apart.",
    unit="accuracy",
    bounds=(0.0, 1.0),
    comparable=("width", "temperature", "batch size", "method"),
    better="high",
    percent=True,
    chart=PROBES,
    label="classifier",
    section="probes",
)


def classification(logits: Tensor, batch: Batch) -> tuple[Tensor, Tensor]:
    """Compute the cross entropy over the samples of all ranks, and the accuracy over those of this rank.

    `logits` (V N, classes) are those of V views, one view after the other, of the N samples with `label` (N,). A
    missing label or a wrong shape raises a ValueError.
    """
    if "label" not in batch:
        raise ValueError(f"Expected `label` in a batch for the classifier, but got {sorted(batch)}.")
    label = batch["label"]
    if logits.ndim != 2 or len(logits) % len(label):
        wanted = f"(V N, classes) for {len(label)} labels"
        raise ValueError(f"Expected `classifier` to return {wanted}, but got {tuple(logits.shape)}.")
    label = label.repeat(len(logits) // len(label))
    loss = cross_entropy(distributed.gather(logits.float()), distributed.gather(label))
    return loss, (logits.argmax(-1) == label).float().mean()
