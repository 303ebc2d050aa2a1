"""SimCLR: A Simple Framework for Contrastive Learning of Visual Representations (Chen et al. 2020).

Backbone and projector embed two random views of each image. The loss InfoNCE (NT-Xent) pulls the two embeddings of an
image together, and pushes embeddings of different images apart. Cosentino et al. (Toward a Geometrical Understanding of
Self-supervised Contrastive Learning, 2022) study SimCLR with a linear projector and inverse temperature 2.
"""

__all__ = ["SimCLRModule"]

from typing import ClassVar

from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS
from lightning_ssl_geometry.methods.two_views import TwoViewModule
from lightning_ssl_geometry.quantity import Quantity


class SimCLRModule(TwoViewModule):
    """SimCLR. The default loss is NT-Xent at temperature 0.5."""

    quantities: ClassVar[dict[str, Quantity]] = {"loss": CONTRASTIVE_LOSS, "batch_size": BATCH_SIZE}
