"""SIGReg's isotropy statistic of embeddings (Balestriero & LeCun 2025)."""

__all__ = ["SIGReg"]

from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledEmbeddings
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.sigreg import sigreg
from lightning_ssl_geometry.papers import LEJEPA
from lightning_ssl_geometry.quantity import Chart, Quantity


class SIGReg(SampledEmbeddings):
    """Epps-Pulley statistic of embeddings projected on random lines, averaged over lines and views.

    Observes the embeddings z, with P dimensions, and the index of each sample in the data set. The statistic, >= 0,
    measures the distance from the standard normal distribution. It is about 1.06 for this distribution, and 0.41 times
    contrast_size if all embeddings are 0. If all embeddings are the same point far from 0, it is up to 3.95 times
    contrast_size. It is high on the unit sphere, unless `standardize` is true. The lines are always the same. The value
    is NaN if an embedding is not finite. With `standardize`, it is also NaN if all embeddings are equal up to rounding.
    Memory: O(contrast_size P). `compute` costs O(contrast_size num_slices P). Equation: :func:`functional.sigreg`.

    Args:
        num_slices: Number of lines, >= 1.
        standardize: Give the embeddings mean 0 and variance 1 first. This is not in the paper.
        contrast_size: Number of samples kept, >= 2. The value depends on it.
        seed: Determines which samples are kept, and the lines.
    """

    section = "hypersphere"
    cost = Cost(update="n D + N D", compute="N D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": Quantity(
            title="Distance from an isotropic Gaussian (SIGReg)",
            short="SIGReg",
            text="Mean Epps-Pulley statistic of random one-dimensional projections. Where the cloud is not Gaussian, "
            "it grows with the number of samples: compare only at the same number.",
            low="Near 1: the embeddings look like draws of an isotropic Gaussian of mean 0 and variance 1.",
            high="The cloud of embeddings has another shape, place or size than that Gaussian.",
            paper=LEJEPA,
            where="Algorithm 1",
            bounds=(0, None),
            invariances=("permutation",),
            comparable=("temperature", "batch size"),
            better="low",
            chart=Chart("sigreg", "SIGReg", "statistic"),
        )
    }

    def __init__(
        self, num_slices: int = 256, standardize: bool = False, contrast_size: int = 1024, seed: int = 0
    ) -> None:
        super().__init__(contrast_size, seed)
        at_least(1, num_slices=num_slices)
        self.num_slices = num_slices
        self.standardize = standardize

    def compute(self) -> Tensor:
        return torch.stack([self._statistic(z) for z in self.sample()]).mean()

    def _statistic(self, z: Tensor) -> Tensor:
        if not z.isfinite().all():
            return undefined(self, "`z` is not finite")
        if self.standardize and all_alike(z[:, None]):
            return undefined(self, "all of `z` is one point but for rounding, which cannot be standardised")
        generator = torch.Generator().manual_seed(self.seed)
        return sigreg(z, self.num_slices, standardize=self.standardize, generator=generator)
