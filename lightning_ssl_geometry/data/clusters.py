"""ClusterDataModule: clusters of points on a linear subspace. The views add noise orthogonal to the subspace."""

__all__ = ["ClusterDataModule", "cluster_centers"]

from collections.abc import Sequence
from numbers import Real
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import finite, inside, integer
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.resumable import Split, SyntheticDataModule
from lightning_ssl_geometry.random import counter_hash, counter_uniform
from lightning_ssl_geometry.types import Batch

Arrangement = Literal["collinear", "orthogonal"]
_POINT, _NOISE, _ORDER = 0, 1, 2  # streams of draws


class ClusterDataModule(SyntheticDataModule):
    r"""Clusters of points on a linear subspace M. The views of a point add noise orthogonal to M.

    .. math:: x_i = \xi_{q(i)} + \epsilon_i, \quad T(x_i) = x_i + \alpha_i, \quad
        \epsilon_i \in \mathcal{M}, \; \alpha_i \in \mathcal{M}^\perp

    Here q(i) is the cluster of the point x_i, and xi_q the centre of cluster q. The random offset epsilon_i lies in M.
    A view T(x_i) adds the noise alpha_i orthogonal to M (Calder & Lee 2025, Sec. 4.2, Eq. 16). M is the span of the
    first `manifold_dim` coordinates.

    Batches have two `views` (N, D) of N points, their `index`, and `label`, which is the cluster. Validation and test
    batches also have `image`, the points x. All splits have the same points. Points depend only on (seed, index). Noise
    depends only on (seed, epoch, position in the epoch, view).

    Args:
        centers: "collinear": on the first axis, `spacing` apart and symmetric about 0, such as -3, -1, 1, 3 in Fig. 5
            of the paper. "orthogonal": each on its own axis, at distance `spacing` from 0, as in the paper's theorems.
            A list gives the centres, with `manifold_dim` coordinates each.
        clusters: Number of clusters. None: 4 for "collinear", `manifold_dim` for "orthogonal", or the length of the
            list.
        dim: D, the number of coordinates of a point.
        manifold_dim: Dimension of M. It must be less than `dim` if there is noise.
        points_per_cluster: Number of points of every cluster, or a list with one number per cluster, each >= 1.
        spacing: Distance > 0 between neighbouring collinear centres, or between an orthogonal centre and 0.
        spread: At least 0. epsilon is uniform on [-`spread`, `spread`] in each coordinate of M. The paper's delta, the
            largest possible |epsilon|, is `spread` sqrt(`manifold_dim`).
        noise: At least 0. alpha is uniform on [-`noise`, `noise`] in each coordinate orthogonal to M.
        batch_size: Points per process and step. None: every step has all points in order, as gradient flow needs.
        passes: How often an epoch goes through all points, each time in a new order. With `batch_size=None`, it is the
            number of steps in an epoch.
        seed: Seed of the points, the noise and the order.

    Attributes:
        points: x, (number of points, D), in the order of the clusters.
        labels: The cluster of each point.
        centers: xi, (number of clusters, D).
        num_classes: Number of clusters.
        class_names: "0", "1" and so on.

    Raises:
        ValueError: If an argument is out of range or contradicts another one. With `batch_size=None`, the training
            loader raises it if the number of points is not a multiple of the number of processes.

    >>> ClusterDataModule(points_per_cluster=2, spread=0.0).points[:, 0].tolist()
    [-3.0, -3.0, -1.0, -1.0, 1.0, 1.0, 3.0, 3.0]
    """

    def __init__(
        self,
        centers: Arrangement | list[list[float]] = "collinear",
        clusters: int | None = None,
        dim: int = 2,
        manifold_dim: int = 1,
        points_per_cluster: int | list[int] = 50,
        spacing: float = 2.0,
        spread: float = 0.2,
        noise: float = 0.2,
        batch_size: int | None = None,
        passes: int = 100,
        seed: int = 0,
    ) -> None:
        super().__init__(1 if batch_size is None else batch_size, seed)
        inside("[0, inf)", spread=spread, noise=noise)
        integer(1, passes=passes)
        if not 1 <= manifold_dim <= dim - (noise > 0):
            room = "below" if noise else "at most"
            raise ValueError(f"Expected `manifold_dim` from 1, {room} `dim` = {dim}, but got {manifold_dim}.")
        on_manifold = cluster_centers(centers, clusters, dim=manifold_dim, spacing=spacing)
        self.labels = torch.arange(len(on_manifold)).repeat_interleave(_sizes(points_per_cluster, len(on_manifold)))
        self.centers = torch.cat([on_manifold, torch.zeros(len(on_manifold), dim - manifold_dim)], 1)
        self.points = self.centers[self.labels]
        offset = counter_uniform(seed, _POINT, torch.arange(len(self.points)), size=manifold_dim)
        self.points[:, :manifold_dim] += spread * (2 * offset - 1)
        self.num_classes = len(on_manifold)
        self.class_names = [str(place) for place in range(self.num_classes)]
        self.manifold_dim = manifold_dim
        self.noise = noise
        self.passes = passes
        self._all_points = batch_size is None
        if not self._all_points and self.batch_size > len(self.points):
            raise ValueError(f"Expected `batch_size` of at most {len(self.points)} points, but got {batch_size}.")

    def size(self, split: Split) -> int:
        """Return the number of points in a split. For "train", this is `passes` times the number of all points."""
        return self.passes * len(self.points) if split == "train" else len(self.points)

    def training_loader(self) -> BatchLoader:
        """Make the training loader: all points in every batch if `batch_size` is None, otherwise shuffled batches."""
        if self._all_points:
            processes = 1 if self.trainer is None else self.trainer.world_size
            if len(self.points) % processes:
                raise ValueError(
                    f"Expected points that divide by {processes} processes for `batch_size` None, "
                    f"but got {len(self.points)}."
                )
            self.batch_size = len(self.points) // processes
        return super().training_loader()

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """Make a loader of all points in order, without noise. All splits have the same points."""
        if self._all_points:
            self.batch_size = len(self.points)
        return super().unaugmented_dataloader("val" if split == "train" else split)

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        draw, clean = batch["index"], batch["clean"]
        epoch = -1 if clean else 0 if self._overfits else batch["epoch"]
        index = draw % len(self.points) if clean or self._all_points else self._shuffled(draw, epoch)
        point = self.points.to(draw.device)[index]
        views = tuple(self._noisy(point, epoch=epoch, draw=draw, view=view) for view in range(2))
        made: Batch = {"views": views, "label": self.labels.to(draw.device)[index], "index": index}
        if clean:
            made["image"] = point
        return made if self.trainer is None else self.trainer.precision_plugin.convert_input(made)

    def _shuffled(self, draw: Tensor, epoch: int) -> Tensor:
        n = len(self.points)
        index = draw % n
        for turn in (draw // n).unique().tolist():
            key = int(counter_hash(self.seed, _ORDER, epoch, turn)) & ((1 << 63) - 1)
            order = torch.randperm(n, generator=torch.Generator().manual_seed(key)).to(draw.device)
            index = torch.where(draw // n == turn, order[draw % n], index)
        return index

    def _noisy(self, point: Tensor, *, epoch: int, draw: Tensor, view: int) -> Tensor:
        size = point.shape[1] - self.manifold_dim
        alpha = self.noise * (2 * counter_uniform(self.seed, _NOISE, epoch, draw, view, size=size) - 1)
        return torch.cat([point[:, : self.manifold_dim], alpha], 1)


def cluster_centers(
    centers: Arrangement | Sequence[Sequence[float]], clusters: int | None, dim: int, spacing: float = 2.0
) -> Tensor:
    """Return the centres of clusters in the subspace of a :class:`ClusterDataModule`, (number of clusters, `dim`).

    `dim` is the dimension of the subspace. The other arguments are those of :class:`ClusterDataModule`. A ValueError is
    raised if an argument is invalid.
    """
    if not isinstance(centers, str):
        return _given(centers, clusters, dim)
    if centers not in get_args(Arrangement):
        raise ValueError(f"Expected `centers` to be one of {get_args(Arrangement)} or a list, but got {centers!r}.")
    inside("(0, inf)", spacing=spacing)
    count = (4 if centers == "collinear" else dim) if clusters is None else clusters
    integer(2, clusters=count)
    if centers == "orthogonal" and count > dim:
        raise ValueError(
            f"Expected `clusters` of at most `manifold_dim` = {dim}, as they are orthogonal, but got {count}."
        )
    if centers == "orthogonal":
        return spacing * torch.eye(count, dim)
    found = torch.zeros(count, dim)
    found[:, 0] = spacing * (torch.arange(count) - (count - 1) / 2)
    return found


def _given(centers: Sequence[Sequence[float]], clusters: int | None, dim: int) -> Tensor:
    lengths = {len(center) for center in centers}
    if len(centers) < 2 or lengths != {dim}:
        raise ValueError(
            f"Expected `centers` with at least 2 of `manifold_dim` = {dim} coordinates, "
            f"but got {len(centers)} of {sorted(lengths)}."
        )
    if clusters not in (None, len(centers)):
        raise ValueError(f"Expected `clusters` = {len(centers)}, as `centers` has, or None, but got {clusters}.")
    found = torch.tensor(centers, dtype=torch.float32)
    finite(centers=found)
    return found


def _sizes(points_per_cluster: int | Sequence[int], clusters: int) -> Tensor:
    one = isinstance(points_per_cluster, Real)
    sizes: list[Any] = [points_per_cluster] * clusters if one else list(points_per_cluster)  # type: ignore[arg-type]
    if len(sizes) != clusters:
        raise ValueError(f"Expected `points_per_cluster` for {clusters} clusters, but got {len(sizes)} numbers.")
    for size in sizes:
        integer(1, points_per_cluster=size)
    return torch.tensor([int(size) for size in sizes])
