"""The modality gap between two towers (Liang et al. 2022)."""

__all__ = ["ModalityGap"]

from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import by_sample
from lightning_ssl_geometry.diagnostics.diagnostic import Diagnostic
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.papers import LIANG
from lightning_ssl_geometry.precision import unit_directions
from lightning_ssl_geometry.quantity import Chart, Quantity

_quantity = partial(
    Quantity, invariances=("rotation", "scale", "permutation"), comparable=("temperature", "batch size")
)
_GAP = Chart(
    "modality_gap",
    "Modality gap",
    "distance",
    remark="The dotted line is the gap that this number of pairs has by chance.",
)
_SHARE = Chart("modality_gap_share", "Variance between the towers", "share of the variance")
_ROUNDING = 1e-12  # of unit rows in float32, squared


class ModalityGap(Diagnostic):
    """Distance between the centroids of two towers' embeddings, scaled to length 1 (Liang et al. 2022).

    Observes the embeddings z: view 1 is of tower 1, and view 2 of tower 2. Further views are not used. Results:

    - `gap` in [0, 2]: the distance between the centroids.
    - `gap_chance`: the gap that N pairs would have if a coin swapped the two embeddings of each pair, which makes the
      towers alike. It falls with N as 1 / sqrt(N). The value is the root of the mean square over all swaps.
    - `share` in [0, 1]: the share of the variance of all embeddings that lies between the two centroids. It is NaN if
      all embeddings are equal.
    - `share_chance`: the mean of `share` over all swaps.

    An embedding that is 0 stays 0. All results are NaN if all embeddings are 0 or one is not finite. Memory: O(P). An
    update costs O(N P) for N samples with P dimensions. Equations: :func:`functional.modality_gap`,
    :func:`functional.modality_gap_by_chance`, :func:`functional.modality_gap_share`.
    """

    section = "hypersphere"
    cost = Cost(update="n D", compute="D", memory="D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "gap": _quantity(
            title="Modality gap",
            text="Distance between the centroids of the normalised embeddings of the two towers.",
            low="Near the value of chance: the two towers fill the same region of the sphere.",
            high="Up to 2: each tower keeps to a region of its own, whatever its inputs show.",
            paper=LIANG,
            bounds=(0, 2),
            null="gap_chance",
            chart=_GAP,
            label="gap",
            headline=True,
        ),
        "gap_chance": _quantity(
            title="Gap by chance",
            text="The gap if a coin swapped the two embeddings of each pair. It falls as more pairs are observed.",
            bounds=(0, 2),
            chart=_GAP,
            label="by chance",
            baseline=True,
        ),
        "share": _quantity(
            title="Variance between the towers",
            text="Share of the variance of all normalised embeddings that lies between the centroids of the towers.",
            low="Near the value of chance: which tower an embedding is from hardly matters.",
            high="Near 1: embeddings differ by their tower, and hardly by their content.",
            bounds=(0, 1),
            null="share_chance",
            chart=_SHARE,
            label="share",
        ),
        "share_chance": _quantity(
            title="Share by chance",
            text="The share if a coin swapped the two embeddings of each pair.",
            bounds=(0, 1),
            chart=_SHARE,
            label="by chance",
            baseline=True,
        ),
    }
    full_state_update = False
    pairs: Tensor
    directed: Tensor
    square: Tensor
    apart: Tensor
    total: Tensor
    difference: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.add_sums("pairs", "directed", "square", "apart")
        self.add_sums("total", "difference", shape=(0,))

    def update(self, z: Tensor) -> None:
        """Add `z` (V, N, P) for V >= 2 towers and N samples. Only the first two are used."""
        z1, z2 = unit_directions(by_sample("z", z, views=2)[:, :2].transpose(0, 1))
        self.as_wide(self.total, z=z)
        if not self.total.numel():
            self.total, self.difference = z1.new_zeros(2, z1.shape[1])
        self.pairs += len(z1)
        self.directed += z1.any(dim=1).sum() + z2.any(dim=1).sum()
        self.square += z1.square().sum() + z2.square().sum()
        self.apart += (z1 - z2).square().sum()
        self.total += (z1 + z2).sum(0)
        self.difference += (z1 - z2).sum(0)

    def compute(self) -> dict[str, Tensor]:
        self.require(self.pairs, "pairs")
        if not self.directed or not self.square.isfinite():
            nan = undefined(self, "all of `z` is 0, which has no direction, or a value is not finite")
            return dict.fromkeys(self.quantities, nan)
        gap, chance = torch.linalg.vector_norm(self.difference) / self.pairs, self.apart.sqrt() / self.pairs
        centre = self.total / (2 * self.pairs)
        variance = self.square / (2 * self.pairs) - centre.square().sum()
        if not variance > _ROUNDING:
            variance = undefined(self, "all of `z` is one direction but for rounding: the share has no variance")
        shares = {"share": gap**2 / 4 / variance, "share_chance": chance**2 / 4 / variance}
        return {"gap": gap, "gap_chance": chance} | shares
