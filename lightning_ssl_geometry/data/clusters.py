"""ClusterDataModule: clusters of points on a linear subspace, and views with noise orthogonal to it."""

__all__ = ["ClusterDataModule", "cluster_centers"]

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least, finite, inside
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.resumable import Split, SyntheticDataModule
from lightning_ssl_geometry.random import counter_hash, counter_uniform
from lightning_ssl_geometry.types import Batch

Arrangement = Literal["collinear", "orthogonal"]
_POINT, _NOISE, _ORDER = 0, 1, 2  # streams of draws


class ClusterDataModule(SyntheticDataModule):
    r"""Clusters of points around centres xi_q on a manifold M. A view adds noise orthogonal to M to a point.

    .. math:: x_i = \xi_{q(i)} + \epsilon_i, \quad T(x_i) = x_i + \alpha_i, \quad
        \epsilon_i \in \mathcal{M}, \; \alpha_i \in \mathcal{M}^\perp

    Here x_i is a point of the cluster q(i), and T(x_i) a view (Calder & Lee 2025, Sec. 4.2, Eq. 16). M is the span of
    the first `manifold_dim` coordinates. Batches have `views` (two tensors (N, D) with different noise), `label` (the
    cluster) and `index`; for validation and test also `image`, the points x. All splits have the same points, because
    :class:`ContrastiveFlowModule` can train the embedding of each point by itself. Points depend only on (seed, index),
    and noise on (seed, epoch, position in the epoch, view).

    Args:
        centers: "collinear": centres on the first axis, `spacing` apart and symmetric about 0, such as -3, -1, 1, 3 in
            Fig. 5. "orthogonal": the q-th centre on the q-th axis, at distance `spacing` from 0, as the theorems of
            Sec. 4.2 assume. Or a list of centres, each with `manifold_dim` coordinates.
        clusters: Number of clusters. None: 4 for "collinear", `manifold_dim` for "orthogonal", else the list's length.
        dim: D, the number of coordinates of a point.
        manifold_dim: Dimension of M, below `dim` unless `noise` is 0.
        points_per_cluster: Number of points of every cluster, or a list with one number per cluster; >= 1.
        spacing: Distance between neighbouring collinear centres, or of orthogonal centres from 0; > 0.
        spread: Each coordinate of epsilon on M is uniform on [-`spread`, `spread`]; >= 0. The largest |epsilon|,
            `spread` sqrt(`manifold_dim`), is the delta of the theorems.
        noise: Each coordinate of alpha orthogonal to M is uniform on [-`noise`, `noise`]; >= 0.
        batch_size: Points per process and step. None: all points in every step, in their order, as gradient flow needs.
        passes: How often an epoch goes through the points, each time in a new order. With `batch_size=None`, the number
            of steps in an epoch.
        seed: Seed of points, noise and order.

    Attributes:
        points: x, (n, D), in the order of the clusters.
        labels: (n,), the cluster of each point.
        centers: xi, (N, D).
        num_classes: N.
        class_names: "0", "1" and so on.

    Raises:
        ValueError: If an argument is out of range or contradicts another; when a loader is made with `batch_size` None,
            if the number of points is no multiple of the number of processes.

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
        at_least(1, passes=passes)
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
        """Return the number of points, multiplied by `passes` if the split is "train"."""
        return self.passes * len(self.points) if split == "train" else len(self.points)

    def training_loader(self) -> BatchLoader:
        """Make the training loader. Each step gets all points if `batch_size` is None, else a shuffled batch."""
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
        """Make a loader of all points, the same for all splits: each once, in order, with `image` and fixed views."""
        if self._all_points:
            self.batch_size = len(self.points)
        return super().unaugmented_dataloader("val" if split == "train" else split)

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        """Make the batch from indices, on their device: look up the points, and add noise to make the views."""
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
        """Map positions in the epoch to indices of points. Each pass is ordered by (seed, epoch, pass)."""
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
    """Return the centres (N, dim) of a :class:`ClusterDataModule` with `manifold_dim` = dim.

    `centers`, `clusters` and `spacing` are arguments of that class. If they are invalid, a ValueError is raised.
    """
    if not isinstance(centers, str):
        return _given(centers, clusters, dim)
    if centers not in get_args(Arrangement):
        raise ValueError(f"Expected `centers` to be one of {get_args(Arrangement)} or a list, but got {centers!r}.")
    inside("(0, inf)", spacing=spacing)
    count = (4 if centers == "collinear" else dim) if clusters is None else clusters
    at_least(2, clusters=count)
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
    sizes = [points_per_cluster] * clusters if isinstance(points_per_cluster, int) else list(points_per_cluster)
    if len(sizes) != clusters:
        raise ValueError(f"Expected `points_per_cluster` for {clusters} clusters, but got {len(sizes)} numbers.")
    at_least(1, points_per_cluster=min(sizes))
    return torch.tensor(sizes)
