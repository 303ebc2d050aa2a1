"""What methods on fibers share: the base spaces they draw, their representation h, and a classifier beside them."""

__all__ = ["OnFibers", "fiber_head"]

from torch import Tensor, nn

from lightning_ssl_geometry import checks
from lightning_ssl_geometry.methods.base import SSLModule
from lightning_ssl_geometry.methods.classification import classification
from lightning_ssl_geometry.methods.fiber_pairs import FiberPairs
from lightning_ssl_geometry.nn import MLPProjector
from lightning_ssl_geometry.nn.equivariant import GroupPool
from lightning_ssl_geometry.types import Batch, Observation


class OnFibers(SSLModule):
    """Base of methods whose positive pairs are fiber bundles of the backbone's feature map.

    A subclass calls :meth:`on_fibers` in its constructor, and :meth:`observed` at the end of its `step`.
    """

    pairs: FiberPairs
    classifier: nn.Module | None

    def on_fibers(
        self, pairs: FiberPairs, group_shape: tuple[int, int] | None, classifier: nn.Module | None, *, seed: int
    ) -> None:
        """Take the pairs, (S, R) or None for that of the backbone, the classifier, and the seed of the base spaces.

        Raises:
            ValueError: If the pairs are of other orientations than the backbone's attribute `orientation`, or another
                argument is wrong.
        """
        checks.seed(seed=seed)
        if group_shape is not None:
            checks.counts(2, group_shape=group_shape)
        if not isinstance(classifier, nn.Module | None):
            raise ValueError(f"Expected `classifier` to be a module or None, but got {classifier!r}.")
        kind = getattr(self.backbone, "orientation", None)
        if kind is not None and not {"rotation", "dihedral", "hue"}.isdisjoint(pairs.group) and kind not in pairs.group:
            raise ValueError(f"Expected `group` with {kind!r}, the backbone's orientations, but got {pairs.group}.")
        self.pairs, self.mode, self.group, self.group_shape, self.seed = (
            pairs,
            pairs.mode,
            pairs.group,
            group_shape,
            seed,
        )
        self.classifier = classifier
        self.pool = GroupPool()

    def forward(self, x: Tensor) -> Tensor:
        return self.pool(self.backbone(x))

    def project_image(self, h: Tensor, batch: Batch) -> Tensor | None:
        """Return None: the projector maps fibers at base spaces that are drawn at random."""
        return None

    def base_draws(self, features: Tensor, batch: Batch) -> Tensor:
        """Draw the uniform numbers (N, 2) from which :meth:`fibers` takes the base spaces."""
        return self._uniform(batch, features[: len(features) // self.pairs.num_views], 2, seed=self.seed)

    def fibers(self, features: Tensor, batch: Batch, draws: Tensor | None = None) -> Tensor:
        """Draw base spaces and return their fiber bundles (2, N, b C), the positive pairs.

        For "hybrid", the shape is (3, N, b C), and the first bundle forms a pair with each of the others. `features` is
        the backbone's output for all views, one after the other. If the batch has no `index`, `torch.rand` is used.
        `draws` are those of :meth:`base_draws`, for the same base spaces in several networks.
        """
        uniform = self.base_draws(features, batch) if draws is None else draws
        shape = self.group_shape or getattr(self.backbone, "group_shape", None)
        return self.pairs(features, uniform, shape, getattr(self.backbone, "scales", None))

    def observed(self, loss: Tensor, features: Tensor, fibers: Tensor, *, z: Tensor, batch: Batch) -> Observation:
        """Return the observation of a step, and add the loss of the classifier."""
        h = self.pool(features).unflatten(0, (self.pairs.num_views, -1))
        observation: Observation = {
            "loss": loss,
            "h": h,
            "z": z[:2],
            "fibers": fibers[:2],
            "feature_extractor": self.backbone,
        }
        if "image" in batch and not self.training:
            features = self.backbone(batch["image"])
            observation["h_image"] = self.pool(features)
        if self.classifier is not None:
            error, accuracy = classification(self.classifier(features.detach()), batch)
            observation["scores"] = {"ssl_loss": loss.detach(), "classifier_loss": error.detach(), "accuracy": accuracy}
            observation["loss"] = loss + error
        return observation


def fiber_head(backbone: nn.Module, base_size: int) -> nn.Module:
    """Make the head of Keller et al. 2022 for MNIST: three linear layers of 128 outputs, each with batch norm."""
    channels = getattr(backbone, "out_dim", None)
    if not isinstance(channels, int):
        raise ValueError(f"Expected `projector` for a {type(backbone).__name__}, which has no `out_dim`, but got None.")
    return MLPProjector(base_size * channels, 128, 128, depth=3, last_norm=True)
