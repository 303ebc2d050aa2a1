r"""Gradient flow of a contrastive loss with and without a network (Calder & Lee 2025, Sec. 4).

The same loss is descended from the same random cloud on the sphere in two ways: by the weights of a network, so that
the neural kernel mixes the points' gradients (Eq. 15), or by the embedded points themselves (Eq. 14), which know
nothing of the data.
"""

__all__ = ["ContrastiveFlowModule"]

import copy
from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar

import torch
from lightning.pytorch.cli import LRSchedulerCallable, OptimizerCallable
from torch import Tensor, nn
from torch.nn.functional import normalize
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd

from lightning_ssl_geometry.losses import VariationalLoss
from lightning_ssl_geometry.methods.base import CONTRASTIVE_LOSS, SSLModule
from lightning_ssl_geometry.methods.two_views import two_views
from lightning_ssl_geometry.papers import CALDER_LEE
from lightning_ssl_geometry.quantity import Quantity
from lightning_ssl_geometry.random import counter_hash, uniform_sphere
from lightning_ssl_geometry.types import Batch, Observation

_OF_CHANCE = (_BatchNorm, _DropoutNd)


class ContrastiveFlowModule(SSLModule):
    r"""Descend a contrastive loss over embedded points of a data set, with a network or without.

    .. math:: h_i(x) = f_w(x) - f_{w(0)}(x) + r\, b_i, \quad z_i = h_i / \|h_i\| \qquad \text{or} \qquad z_i = p_i

    b is a random cloud on the unit sphere, a function of (seed, index). A network starts from it whatever its weights,
    since what it says at first is subtracted; at that moment it is invariant under every augmentation, as in Eq. 17.
    Without a network the points are the parameters: they start at b, and return to the sphere after each step. Their
    gradient counts n times, which is :math:`K_{ij} = n \delta_{ij} I` in place of the neural kernel, so that, with all
    points in a batch, one learning rate sigma is that of Eq. 14 and 15.

    h is the output before and z after the projection onto the sphere; in evaluation `h_image` and `z_image` are those
    of the points without augmentation. :meth:`forward` is f_w, which a module without a network does not have.

    Args:
        num_points: n, the number of points; `index` in a batch says which they are.
        dim: d, of the embedding, >= 2.
        network: Maps x (N, ...) to (N, d), without batch norm and dropout: what it said at first is asked again in each
            step. None: the points are free.
        loss: Maps (z1, z2), each (N, d), to a scalar; None: :class:`VariationalLoss` at temperature 0.5.
        radius: r > 0: how far a network has to move a point before it says where that is; not looked at without one.
        bunching: In [0, 1): moves the uniform cloud along the first axis before it is projected; 0: it stays uniform.
        seed: Of the cloud.
        optimizer: Makes the optimizer; None: gradient descent with learning rate 0.1.
        lr_scheduler: Makes a scheduler, stepped once per epoch; None: the rate is constant.

    Raises:
        ValueError: If an argument is out of range, or the network has batch norm or dropout; in a step, if a batch has
            not two views, or an index is not of the points, or the network does not return (N, d).

    >>> flow = ContrastiveFlowModule(num_points=3)
    >>> x, index = torch.zeros(3, 5), torch.arange(3)
    >>> flow.step({"views": (x, x), "index": index})["z"].shape
    torch.Size([2, 3, 2])
    """

    quantities: ClassVar[dict[str, Quantity]] = {"loss": replace(CONTRASTIVE_LOSS, paper=CALDER_LEE)}

    cloud: Tensor

    def __init__(
        self,
        num_points: int,
        dim: int = 2,
        network: nn.Module | None = None,
        loss: nn.Module | None = None,
        radius: float = 0.2,
        bunching: float = 0.0,
        seed: int = 0,
        optimizer: OptimizerCallable | None = None,
        lr_scheduler: LRSchedulerCallable | None = None,
    ) -> None:
        for name, value, least in (("num_points", num_points, 2), ("dim", dim, 2)):
            if value < least:
                raise ValueError(f"Expected `{name}` >= {least}, but got {value}.")
        if not 0 < radius < torch.inf:
            raise ValueError(f"Expected `radius` > 0 and finite, but got {radius}.")
        if wrong := [module for module in (network or nn.Identity()).modules() if isinstance(module, _OF_CHANCE)]:
            raise ValueError(f"Expected `network` without batch norm and dropout, but got {wrong[0]}.")
        cloud = _random_cloud(num_points, dim, bunching, seed)
        backbone = _FreePoints(cloud) if network is None else network
        super().__init__(
            backbone, _UnitSphere(), optimizer=optimizer or _descent, lr_scheduler=lr_scheduler or _constant
        )
        self.start = None if network is None else copy.deepcopy(network).requires_grad_(False)
        self.loss = loss or VariationalLoss(temperature=0.5)
        self.radius = radius
        self.register_buffer("cloud", cloud)

    def forward(self, x: Tensor) -> Tensor:
        """Map x (N, ...) by the network to (N, d), without the cloud.

        Raises:
            ValueError: If there is no network.
        """
        if self.start is None:
            raise ValueError("Expected a ContrastiveFlowModule with a `network` to map x, but its points are free.")
        return self.backbone(x)

    def step(self, batch: Batch) -> Observation:
        """Contrast the points' two views; those of free points are equal."""
        views, index = two_views(batch), batch["index"]
        if len(index) and not 0 <= int(index.min()) <= int(index.max()) < len(self.cloud):
            got = f"{int(index.min())} to {int(index.max())}"
            raise ValueError(f"Expected `index` from 0 to {len(self.cloud) - 1}, as `num_points` says, but got {got}.")
        h = self.place(torch.cat(views), index.repeat(2)).unflatten(0, (2, -1))
        z = self.project(h)
        observation: Observation = {"loss": self.loss(z[0], z[1]), "h": h, "z": z}
        if "image" in batch and not self.training:
            observation["h_image"] = self.place(batch["image"], index)
            observation["z_image"] = self.project(observation["h_image"])
        return observation

    def place(self, x: Tensor, index: Tensor) -> Tensor:
        """Where points are before they are projected, h (N, d): by their x (N, ...) and their index (N,)."""
        if self.start is None:
            return self.backbone(index)
        moved = self.backbone(x)
        if moved.shape != (len(x), self.cloud.shape[1]):
            expected = (len(x), self.cloud.shape[1])
            raise ValueError(f"Expected `network` to return (N, dim) = {expected}, but got {tuple(moved.shape)}.")
        return moved - self.start(x) + self.radius * self.cloud[index]

    def optimizer_step(
        self, epoch: int, batch_idx: int, optimizer: Any, optimizer_closure: Callable[[], Any] | None = None
    ) -> None:
        """Take a step, and bring free points back to the sphere."""
        super().optimizer_step(epoch, batch_idx, optimizer, optimizer_closure)
        if isinstance(self.backbone, _FreePoints):
            self.backbone.project()


class _FreePoints(nn.Module):
    """Points on the sphere that are parameters themselves: index (N,) -> (N, d).

    Args:
        points: (n, d), where they start.
    """

    def __init__(self, points: Tensor) -> None:
        super().__init__()
        self.points = nn.Parameter(points.clone())

    def forward(self, index: Tensor) -> Tensor:
        """Look up points; a gradient with respect to them counts n times."""
        still = self.points.detach()
        return (still + len(still) * (self.points - still))[index]

    @torch.no_grad()
    def project(self) -> None:
        """Move each to the unit sphere, along its radius."""
        self.points.copy_(normalize(self.points, dim=-1))


class _UnitSphere(nn.Module):
    """Projects h (..., d) onto the unit sphere."""

    def forward(self, h: Tensor) -> Tensor:
        """Divide by the length."""
        return normalize(h, dim=-1)


def _random_cloud(num_points: int, dim: int, bunching: float, seed: int) -> Tensor:
    """Draw points on the unit sphere, (n, d).

    Raises:
        ValueError: If `bunching` is not in [0, 1).
    """
    if not 0 <= bunching < 1:
        raise ValueError(f"Expected `bunching` in [0, 1), but got {bunching}.")
    points = uniform_sphere(counter_hash(seed, torch.arange(num_points)), dim)
    points[:, 0] += bunching
    return normalize(points, dim=-1).float()


def _descent(parameters: Any) -> torch.optim.Optimizer:
    return torch.optim.SGD(parameters, lr=0.1)


def _constant(optimizer: torch.optim.Optimizer) -> torch.optim.lr_scheduler.LRScheduler:
    return torch.optim.lr_scheduler.ConstantLR(optimizer, factor=1.0)
