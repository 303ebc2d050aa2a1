"""LiDAR, an effective rank for representations with several views of each sample (Thilak et al. 2023)."""

__all__ = ["LiDAR"]

from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import positive
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import by_sample
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.lidar import scatter_lidar
from lightning_ssl_geometry.functional.rounding import moments_floor, rounding_eps
from lightning_ssl_geometry.papers import LIDAR
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Quantity


class LiDAR(Diagnostic):
    """Effective rank of the covariance between samples, relative to the covariance between the views of a sample.

    Observes h, with D dimensions, of V >= 2 augmented views of each sample. The value is in [1, min(n - 1, D)] for n
    samples. It depends on V, which must be the same in every update. A sample that is observed twice counts twice. The
    value is NaN if h is not finite, or if the means of all samples are equal up to rounding. Memory: O(D^2). An update
    of N samples costs O(V N D^2), `compute` O(D^3). Equation: :func:`functional.lidar`.

    Args:
        delta: Added to the variance between views of a sample, > 0.
        eps: Added to the normalised eigenvalues, to avoid log(0) in their entropy.
    """

    section = "ranks"
    cost = Cost(update="n D^2", compute="D^3", memory="D^2")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="LiDAR",
            picks="high",
            text="Effective rank of the spread between samples, measured in each direction relative to the spread "
            "between the views of one sample.",
            low="Near 1: hardly more than one direction tells samples apart and is stable under augmentation.",
            high="Up to the number of dimensions: many directions tell samples apart and are stable under "
            "augmentation.",
            paper=LIDAR,
            where="Eq. 1 to 4",
            bounds=(1, None),
            cap="min(N - 1, D)",
            invariances=("rotation", "translation", "permutation"),
            comparable=("temperature", "batch size"),
            chart=Chart(
                "lidar",
                "LiDAR",
                "directions",
                remark="It depends on the number of views: compare only at the same number.",
            ),
            headline=True,
        )
    }
    full_state_update = False
    samples: Tensor
    total: Tensor
    outer: Tensor
    within: Tensor
    rounding: Tensor

    def __init__(self, delta: float = 1e-4, eps: float = 1e-8) -> None:
        super().__init__()
        positive(delta=delta)
        self.delta = delta
        self.eps = eps
        self.views = 0
        self.add_sums("samples", "rounding")
        self.add_sums("total", shape=(0,))
        self.add_sums("outer", "within", shape=(0, 0))

    def update(self, h: Tensor) -> None:
        """Add `h` (V, N, D) for V >= 2 views of N samples."""
        by_sample("h", h, views=2)  # checks the shape
        if len(h) != self.views and self.views:
            raise ValueError(f"Expected `h` with {self.views} views, as before, but got {len(h)}.")
        self.as_wide(self.total, h=h)
        self.afford(h.shape[-1], h.shape[-1], h.shape[-1], argument="h")
        eps, h, self.views = rounding_eps(h.dtype), in_float64(h), len(h)
        mean = h.mean(0)
        rest = (h - mean).flatten(0, 1)
        if not self.outer.numel():
            self.total = h.new_zeros(h.shape[-1])
            self.outer = h.new_zeros(h.shape[-1], h.shape[-1])
            self.within = h.new_zeros(h.shape[-1], h.shape[-1])
        self.samples += len(mean)
        self.total += mean.sum(0)
        outer = mean.T @ mean
        self.outer += outer
        self.rounding += eps**2 * outer.trace()
        self.within += rest.T @ rest / len(h)

    def compute(self) -> Tensor:
        self.require(self.samples, "samples", least=2)
        mean = self.total / self.samples
        between = self.outer / self.samples - torch.outer(mean, mean)
        if not (between + self.within).isfinite().all():
            return undefined(self, "`h` is not finite")
        floor = moments_floor(self.samples, self.outer, self.rounding)
        if not between.trace() > len(mean) * floor:
            return undefined(self, "all samples have one mean but for rounding")
        return scatter_lidar(between, self.within / self.samples, delta=self.delta, eps=self.eps, floor=floor)

    def reset(self) -> None:
        super().reset()
        self.views = 0
