"""ClusterDataModule: points in clusters on a flat manifold, seen through noise that is orthogonal to it."""

__all__ = ["ClusterDataModule", "cluster_centers"]

from collections.abc import Sequence
from typing import Any, Literal, get_args

import torch
from torch import Tensor

from lightning_ssl_geometry.data.base import Split
from lightning_ssl_geometry.data.loader import BatchLoader
from lightning_ssl_geometry.data.resumable import ResumableDataModule
from lightning_ssl_geometry.random import counter_hash, counter_uniform
from lightning_ssl_geometry.types import Batch

Arrangement = Literal["collinear", "orthogonal"]
_POINT, _NOISE, _ORDER = 0, 1, 2  # what a draw is for


class ClusterDataModule(ResumableDataModule):
    r"""Clusters about centres xi_q in the plane of the first coordinates, with views off that plane.

    .. math:: x_i = \xi_{q(i)} + \epsilon_i, \quad T(x_i) = x_i + \alpha_i, \quad
        \epsilon_i \in \mathcal{M}, \; \alpha_i \in \mathcal{M}^\perp

    Sec. 4.2 of Calder & Lee (2025), Eq. 16: the manifold M is the span of the first `manifold_dim` coordinates. Batches
    have `views`, two tensors (N, D) with noise of their own, `label` (the cluster) and `index`; those for validation
    and test also `image`, the points x themselves. There is one set of points and three loaders of it: what a flow does
    to points cannot be asked of others. Points are functions of (seed, index), noise of (seed, epoch, draw, view).

    Args:
        centers: "collinear": on the first axis, `spacing` apart and about 0, as -3, -1, 1, 3 in the paper's Fig. 5;
            "orthogonal": the q-th on the q-th axis, `spacing` from 0, as the theorems of Sec. 4.2 want them; or a list
            of centres, each with `manifold_dim` coordinates.
        clusters: Their number where `centers` is a word; where it is a list, its length or None.
        dim: D, the length of a point.
        manifold_dim: Dimension of M, below `dim` unless `noise` is 0.
        points_per_cluster: A number, or one for each cluster.
        spacing: See `centers`; > 0.
        spread: Half width of a cluster: epsilon is uniform on a cube of M, so that |epsilon| is at most
            `spread` sqrt(`manifold_dim`), the theorems' delta.
        noise: Half width of alpha, uniform on a cube orthogonal to M.
        batch_size: Points per process and step; None: all points in every step, in their order, as a flow wants it.
        passes: How often an epoch goes through the points, in an order of its own each time; with `batch_size=None`,
            its number of steps.
        seed: Of points, noise and order.

    Attributes:
        points: x, (n, D), in the order of the clusters.
        labels: (n,), the cluster of each.
        centers: xi, (N, D).
        num_classes: N.
        class_names: "0", "1" and so on.

    Raises:
        ValueError: If an argument is out of range or contradicts another, or there are more orthogonal centres than
            dimensions; in a loader, if the points do not divide by the processes where `batch_size` is None.

    >>> data = ClusterDataModule(points_per_cluster=2, spread=0.0, noise=0.5)
    >>> data.points[:, 0].tolist()
    [-3.0, -3.0, -1.0, -1.0, 1.0, 1.0, 3.0, 3.0]
    >>> batch = data.on_after_batch_transfer(next(iter(data.train_dataloader())), 0)
    >>> first, second = batch["views"]
    >>> torch.equal(first[:, 0], second[:, 0]), torch.equal(first[:, 1], second[:, 1])
    (True, False)
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
        for name, value in {"spread": spread, "noise": noise}.items():
            if not 0 <= value < torch.inf:
                raise ValueError(f"Expected `{name}` >= 0 and finite, but got {value}.")
        if passes < 1:
            raise ValueError(f"Expected `passes` >= 1, but got {passes}.")
        if not 1 <= manifold_dim <= dim - (noise > 0):
            room = "below" if noise else "at most"
            raise ValueError(f"Expected `manifold_dim` from 1, {room} `dim` = {dim}, but got {manifold_dim}.")
        on_manifold = cluster_centers(centers, clusters, manifold_dim, spacing)
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

    def training_loader(self) -> BatchLoader:
        """An epoch's steps: all points in each, or batches in an order of their own."""
        size = self.passes * len(self.points)
        if not self._all_points:
            return self._batches(_Draws(clean=False), size, drop_last=True)
        processes = 1 if self.trainer is None else self.trainer.world_size
        if len(self.points) % processes:
            raise ValueError(
                f"Expected points that divide by {processes} processes for `batch_size` None, "
                f"but got {len(self.points)}."
            )
        self.batch_size = len(self.points) // processes
        return self._batches(_Draws(clean=False), size, drop_last=True)

    def val_dataloader(self) -> BatchLoader:
        """The points, each once, with views and `image`."""
        return self.unaugmented_dataloader("val")

    def test_dataloader(self) -> BatchLoader:
        """The same points."""
        return self.unaugmented_dataloader("test")

    def predict_dataloader(self) -> BatchLoader:
        """The same points."""
        return self.unaugmented_dataloader("test")

    def unaugmented_dataloader(self, split: Split) -> BatchLoader:
        """The points, each once, in order, with `image` and with the same views at any time.

        Raises:
            ValueError: If there is no such split.
        """
        if split not in get_args(Split):
            raise ValueError(f"Expected `split` to be one of {get_args(Split)}, but got {split!r}.")
        if self._all_points:
            self.batch_size = len(self.points)
        return self._batches(_Draws(clean=True), len(self.points))

    def on_after_batch_transfer(self, batch: dict[str, Any], dataloader_idx: int) -> Batch:
        """Take the points, and add noise, on the device of the indices."""
        draw, clean = batch["draw"], batch["clean"]
        epoch = -1 if clean else 0 if self._overfits else batch["epoch"]
        index = draw % len(self.points) if clean or self._all_points else self._shuffled(draw, epoch)
        point = self.points.to(draw.device)[index]
        views = tuple(self._noisy(point, epoch, draw, view) for view in range(2))
        made: Batch = {"views": views, "label": self.labels.to(draw.device)[index], "index": index}
        if clean:
            made["image"] = point
        return made if self.trainer is None else self.trainer.precision_plugin.convert_input(made)

    def _shuffled(self, draw: Tensor, epoch: int) -> Tensor:
        """Which point each draw takes: pass by pass, in an order that the pass and its epoch give."""
        n = len(self.points)
        index = draw % n
        for turn in (draw // n).unique().tolist():
            key = int(counter_hash(self.seed, _ORDER, epoch, turn)) & ((1 << 63) - 1)
            order = torch.randperm(n, generator=torch.Generator().manual_seed(key)).to(draw.device)
            index = torch.where(draw // n == turn, order[draw % n], index)
        return index

    def _noisy(self, point: Tensor, epoch: int, draw: Tensor, view: int) -> Tensor:
        size = point.shape[1] - self.manifold_dim
        alpha = self.noise * (2 * counter_uniform(self.seed, _NOISE, epoch, draw, view, size=size) - 1)
        return torch.cat([point[:, : self.manifold_dim], alpha], 1)


def cluster_centers(
    centers: Arrangement | Sequence[Sequence[float]], clusters: int | None, dim: int, spacing: float = 2.0
) -> Tensor:
    """Arrange centres, (N, dim), as :class:`ClusterDataModule` says.

    Raises:
        ValueError: If there are fewer than 2, more orthogonal ones than dimensions, or an argument is out of its range.

    >>> cluster_centers("orthogonal", 2, 3, spacing=1.0)
    tensor([[1., 0., 0.],
            [0., 1., 0.]])
    """
    if not isinstance(centers, str):
        return _given(centers, clusters, dim)
    if centers not in get_args(Arrangement):
        raise ValueError(f"Expected `centers` to be one of {get_args(Arrangement)} or a list, but got {centers!r}.")
    if not 0 < spacing < torch.inf:
        raise ValueError(f"Expected `spacing` > 0 and finite, but got {spacing}.")
    count = (4 if centers == "collinear" else dim) if clusters is None else clusters
    if count < 2:
        raise ValueError(f"Expected `clusters` >= 2, but got {count}.")
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
    if not torch.isfinite(found).all():
        raise ValueError("Expected `centers` that are finite, but got one that is not.")
    return found


def _sizes(points_per_cluster: int | Sequence[int], clusters: int) -> Tensor:
    sizes = [points_per_cluster] * clusters if isinstance(points_per_cluster, int) else list(points_per_cluster)
    if len(sizes) != clusters:
        raise ValueError(f"Expected `points_per_cluster` for {clusters} clusters, but got {len(sizes)} numbers.")
    if min(sizes) < 1:
        raise ValueError(f"Expected `points_per_cluster` >= 1, but got {min(sizes)}.")
    return torch.tensor(sizes)


class _Draws:
    """Numbers of draws; what they draw is made from them on the device."""

    def __init__(self, clean: bool) -> None:
        self.clean = clean

    def __getitem__(self, positions: Tensor) -> dict[str, Any]:
        return {"draw": positions, "clean": self.clean}
