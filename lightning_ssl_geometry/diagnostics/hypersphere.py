"""Alignment and uniformity of embeddings on the hypersphere (Wang & Isola 2020)."""

__all__ = ["Alignment", "GaussianPotential", "Uniformity"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledEmbeddings, by_sample
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import directions, undefined
from lightning_ssl_geometry.functional.hypersphere import alignment, gaussian_potential
from lightning_ssl_geometry.papers import CRL_TAC, WANG_ISOLA
from lightning_ssl_geometry.precision import unit_directions
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity
from lightning_ssl_geometry.settings import names_its_class

_quantity = partial(
    Quantity, invariances=("rotation", "scale", "permutation"), comparable=("temperature", "batch size")
)
_TRAJECTORY = Chart(
    "trajectory",
    "Alignment against uniformity",
    remark="Good embeddings move to the lower left. The lower right corner, where all coincide, is collapse.",
)


class Alignment(Diagnostic):
    """Mean of ||z1 - z2||^alpha over the samples, for the first two views z1 and z2, scaled to length 1.

    Observes the embeddings z. For `alpha` = 2, the value is in [0, 4]. It is 0 for equal views, 2 for unrelated views
    and 4 for opposite views. An embedding that is 0 stays 0. The value is NaN if all embeddings are 0 or one is not
    finite. Cost: O(N P) for N samples with P dimensions. Equation: :func:`functional.alignment`.

    Args:
        alpha: Exponent of the distance.
    """

    section = "hypersphere"
    cost = Cost(update="n D", compute="1", memory="1")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": _quantity(
            title="Alignment",
            picks="low",
            text="Mean squared distance between the normalised embeddings of two views of a sample.",
            low="0: the views coincide.",
            high="2: the views have nothing in common. At 4 they are opposite.",
            paper=WANG_ISOLA,
            unit="mean squared distance",
            bounds=(0, None),
            chart=_TRAJECTORY,
            picture=Picture("path"),
        )
    }
    full_state_update = False
    total: Tensor
    pairs: Tensor
    directed: Tensor

    def __init__(self, alpha: float = 2.0) -> None:
        super().__init__()
        self.alpha = alpha
        self.add_sums("total", "pairs", "directed")

    def update(self, z: Tensor) -> None:
        """Add `z` (V, N, P) for V >= 2 views of N samples. Only the first two views are used."""
        z = unit_directions(by_sample("z", z, views=2)[:, :2].transpose(0, 1))
        if not z.shape[1]:
            return  # the mean of no pairs is NaN
        self.total += alignment(z[0], z[1], alpha=self.alpha) * z.shape[1]
        self.pairs += z.shape[1]
        self.directed += z.any(dim=2).all(dim=0).sum()

    def compute(self) -> Tensor:
        self.require(self.pairs, "pairs")
        if not self.directed or not self.total.isfinite():
            return undefined(self, "all of `z` is 0, which has no direction, or a value is not finite")
        return self.total / self.pairs


class _KernelMean(SampledEmbeddings):
    @names_its_class
    def __init__(self, t: float = 2.0, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(contrast_size, seed)
        self.t = t

    def potentials(self) -> Tensor:
        return torch.stack([gaussian_potential(z, self.t) for z in directions(self, self.sample())])  # (V,)


class GaussianPotential(_KernelMean):
    """Mean of exp(-t ||z_i - z_j||^2) over pairs of samples with ||z|| = 1, averaged over views.

    Observes the embeddings z, with P dimensions, and the index of each sample in the data set. The value is in [0, 1].
    It is 1 if all embeddings coincide, and NaN if all embeddings are 0 or one is not finite. Memory:
    O(contrast_size P). `compute` costs O(contrast_size^2 P). Equation: :func:`functional.gaussian_potential`.

    Args:
        t: Inverse squared width of the kernel, > 0.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "hypersphere"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": _quantity(
            title="Gaussian potential",
            text="Mean Gaussian kernel between the normalised embeddings of two samples: the uniformity without its "
            "logarithm.",
            low="Near 0.02: embeddings spread evenly over a sphere of many dimensions.",
            high="Near 1: embeddings crowd on one spot.",
            paper=CRL_TAC,
            where="Sec. 5.5",
            unit="mean kernel",
            bounds=(0, 1),
        )
    }

    def compute(self) -> Tensor:
        return self.potentials().mean()


class Uniformity(_KernelMean):
    """Logarithm of the mean of exp(-t ||z_i - z_j||^2) over pairs of samples with ||z|| = 1, averaged over views.

    Observes the embeddings z, with P dimensions, and the index of each sample in the data set. The value is at most 0.
    It is 0 if all embeddings coincide, and NaN if all embeddings are 0 or one is not finite. Memory:
    O(contrast_size P). `compute` costs O(contrast_size^2 P). Equation: :func:`functional.uniformity`.

    Args:
        t: Inverse squared width of the kernel, > 0.
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "hypersphere"
    cost = Cost(update="n D + N D", compute="N^2 D", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "": _quantity(
            title="Uniformity",
            picks="low",
            text="Logarithm of the mean Gaussian kernel between the normalised embeddings of two samples.",
            low="About -4: embeddings spread evenly over a sphere of many dimensions.",
            high="0: all embeddings coincide (collapse).",
            paper=WANG_ISOLA,
            unit="log of the mean kernel",
            bounds=(None, 0),
            chart=_TRAJECTORY,
            picture=Picture("path", role="x"),
        )
    }

    def compute(self) -> Tensor:
        return self.potentials().log().mean()
