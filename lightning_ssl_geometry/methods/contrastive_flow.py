"""Gradient flow of a contrastive loss with and without a network (Calder & Lee 2025, Sec. 4).

Points on the sphere minimise a contrastive loss by gradient descent. With a network, its weights are trained, and its
neural kernel mixes the gradients of the points (Eq. 15). Without a network, the points themselves are trained (Eq. 14),
independently of the data. Both variants start with the same random points.
"""

__all__ = ["ContrastiveFlowModule"]

import copy
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Unpack

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim.lr_scheduler import ConstantLR

from lightning_ssl_geometry.checks import at_least, inside
from lightning_ssl_geometry.deprecation import by_position
from lightning_ssl_geometry.losses import VariationalLoss
from lightning_ssl_geometry.methods.base import BATCH_SIZE, CONTRASTIVE_LOSS, SSLModule, SSLSettings, loss_or
from lightning_ssl_geometry.methods.two_views import two_views
from lightning_ssl_geometry.papers import CALDER_LEE
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.random import counter_hash, uniform_sphere
from lightning_ssl_geometry.settings import passed_on
from lightning_ssl_geometry.types import Batch, Observation

_OF_CHANCE = (_BatchNorm, _DropoutNd)


class ContrastiveFlowModule(SSLModule):
    r"""Minimise a contrastive loss over the embedded points of a data set, with or without a network.

    .. math:: h_i(x) = f_w(x) - f_{w(0)}(x) + r\, b_i, \quad z_i = h_i / \|h_i\| \qquad \text{or} \qquad z_i = p_i

    The points :math:`b_i` are random on the unit sphere, and depend only on (seed, index). With a network f, the first
    formula holds (Eq. 17 of Calder & Lee 2025). At the start, h is then r b, so z does not depend on the augmentation.
    Without a network, the second formula holds, and the points :math:`p_i` are the parameters. They start at
    :math:`b_i`, and are projected onto the sphere after each step. Their gradient is multiplied by n, as if the neural
    kernel were :math:`K_{ij} = n \delta_{ij} I`. If a batch has all points, the learning rate is sigma in Eq. 14 and
    15.

    In evaluation, `h_image` and `z_image` are h and z of the points without augmentation. The default optimizer is
    gradient descent with a constant learning rate of 0.1.

    Args:
        num_points: n, the number of points in the data set, >= 2.
        dim: d, the dimension of the embedding, >= 2.
        network: f, maps x (N, ...) to (N, d), without batch norm and dropout. A copy with the initial weights is
            evaluated in each step. None: the points are the parameters.
        loss: Maps (z1, z2), each (N, d), to a scalar. None: :class:`VariationalLoss` at temperature 0.5.
        radius: r > 0, the length of h at the start. With a larger r, the network takes longer to change z.
        bunching: Number in [0, 1). It is added to the first coordinate of each b before the projection onto the sphere.
        seed: Seed of the points b.
        **settings: The arguments of :class:`SSLModule` except the networks.
            `warmup_epochs` must be 0.

    Raises:
        ValueError: If an argument is not valid. A step raises it if a batch does not have two views, if an `index` is
            not in 0 to n - 1, or if the network does not return (N, d).
    """

    quantities: ClassVar[dict[str, Quantity]] = {
        "loss": replace(CONTRASTIVE_LOSS, paper=CALDER_LEE),
        "batch_size": BATCH_SIZE,
    }
    default_optimizer: ClassVar[OptimizerCallable] = staticmethod(partial(torch.optim.SGD, lr=0.1))
    default_lr_scheduler: ClassVar[LRSchedulerCallable | None] = staticmethod(partial(ConstantLR, factor=1.0))

    cloud: Tensor

    @by_position("optimizer", "lr_scheduler")
    @passed_on
    def __init__(
        self,
        num_points: int,
        dim: int = 2,
        network: nn.Module | None = None,
        loss: nn.Module | None = None,
        radius: float = 0.2,
        bunching: float = 0.0,
        seed: int = 0,
        **settings: Unpack[SSLSettings],
    ) -> None:
        at_least(2, num_points=num_points, dim=dim)
        inside("(0, inf)", radius=radius)
        inside("[0, 1)", bunching=bunching)
        if wrong := [module for module in (network or nn.Identity()).modules() if isinstance(module, _OF_CHANCE)]:
            raise ValueError(f"Expected `network` without batch norm and dropout, but got {wrong[0]}.")
        cloud = _random_cloud(num_points, dim, bunching=bunching, seed=seed)
        backbone = _FreePoints(cloud) if network is None else network
        super().__init__(backbone, _UnitSphere(), **settings)
        if network is None and self.chunk_size is not None:
            raise ValueError(f"Expected `chunk_size` beside a `network`, but got {self.chunk_size} for free points.")
        self.start = None if network is None else copy.deepcopy(network).requires_grad_(False)
        self.loss = loss_or(partial(VariationalLoss, temperature=0.5), loss)
        self.radius = radius
        self.register_buffer("cloud", cloud)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (N, ...) to the network's output (N, d). Raise a ValueError if there is no network."""
        if self.start is None:
            raise ValueError("Expected a ContrastiveFlowModule with a `network` to map x, but its points are free.")
        return self.backbone(x)

    def predict_step(self, batch: Batch, batch_idx: int) -> Tensor:
        """Return h (N, d) of the batch's `image`, or of the points at `index` if there is no network."""
        return self.place(batch["image"], self._index(batch))

    def setup(self, stage: str) -> None:
        super().setup(stage)
        if self.start is not None:
            self.start.requires_grad_(False)  # `unfreeze` may have set it

    def step(self, batch: Batch) -> Observation:
        views, index = two_views(batch), self._index(batch)
        h = self.place(torch.cat(views), index.repeat(2)).unflatten(0, (2, -1))
        z = self.project(h)
        observation: Observation = {"loss": self.loss(z[0], z[1]), "h": h, "z": z}
        if "image" in batch and not self.training:
            observation["h_image"] = self.place(batch["image"], index)
            observation["z_image"] = self.project(observation["h_image"])
        return observation

    def _index(self, batch: Batch) -> Tensor:
        index = batch["index"]
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.cloud):
            got = f"{int(index.min())} to {int(index.max())}"
            raise ValueError(f"Expected `index` from 0 to {len(self.cloud) - 1}, as `num_points` says, but got {got}.")
        return index

    def place(self, x: Tensor, index: Tensor) -> Tensor:
        """Map N samples x (N, ...) and their `index` (N,) to h (N, d)."""
        if self.start is None:
            return self.backbone(index)
        moved = self.features(x.clone())  # a network may change its input
        if moved.shape != (len(x), self.cloud.shape[1]):
            expected = (len(x), self.cloud.shape[1])
            raise ValueError(f"Expected `network` to return (N, dim) = {expected}, but got {tuple(moved.shape)}.")
        return moved - self.start(x.clone()) + self.radius * self.cloud[index]

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Take an optimizer step. A module without a network then projects its trained points onto the sphere."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure=optimizer_closure)
        if isinstance(self.backbone, _FreePoints):
            self.backbone.project()


class _FreePoints(nn.Module):
    def __init__(self, points: Tensor) -> None:
        super().__init__()
        self.points = nn.Parameter(points.clone())

    def forward(self, index: Tensor) -> Tensor:
        # The value is that of the points; their gradient counts n times.
        still = self.points.detach()
        return (still + len(still) * (self.points - still))[index]

    @torch.no_grad()
    def project(self) -> None:
        self.points.copy_(normalize(self.points, dim=-1))


class _UnitSphere(nn.Module):
    def forward(self, h: Tensor) -> Tensor:
        return normalize(h, dim=-1)


def _random_cloud(num_points: int, dim: int, *, bunching: float, seed: int) -> Tensor:
    points = uniform_sphere(counter_hash(seed, torch.arange(num_points)), dim)
    points[:, 0] += bunching
    return normalize(points, dim=-1).float()
