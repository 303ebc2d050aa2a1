"""Effective ranks of parts of the rows: of nested sets, which show whether the rank has settled, and of each class."""

__all__ = ["ClassRank", "RankConvergence"]

from collections.abc import Sequence
from functools import partial
from itertools import pairwise
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import class_numbers
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import SampledRows, by_sample, first_view
from lightning_ssl_geometry.diagnostics.spectrum import EffectiveRank
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.rounding import rounding_floor
from lightning_ssl_geometry.functional.spectrum import singular_values_effective_rank
from lightning_ssl_geometry.papers import RANKME
from lightning_ssl_geometry.precision import in_float64
from lightning_ssl_geometry.quantity import Chart, Picture, Quantity

_CONVERGENCE = Chart("rank_convergence", "Effective rank over the number of rows", "directions")
_CLASSES = Chart("class_ranks", "Effective rank of each class", "directions")
_nested = partial(
    Quantity, paper=RANKME, bounds=(1, None), chart=_CONVERGENCE, picture=Picture("profile"), xlabel="rows"
)
_of_class = partial(
    Quantity, bounds=(1, None), chart=_CLASSES, picture=Picture("profile"), xlabel="class, in order of its label"
)
_CLASS_MEAN = Chart("class_rank", "Effective rank within classes", "directions")


class RankConvergence(SampledRows):
    """Effective rank of 2, 4, 8, ... samples of one readout: has it settled, or would more rows raise it?

    Observes h, with D dimensions and V views, and the index of each sample in the data set. The sets of samples are
    nested, and random: a hash of the index orders the samples. `rank` (K,) is :class:`EffectiveRank` of all views of
    2^k samples, for k = 1, 2, ..., K with 2^K <= n, the number of kept samples. It should be the same at each readout,
    as in the stages "val", "test" and "probe". `rows` (K,) has the numbers of rows, V times those of samples, and `cap`
    (K,) the largest possible ranks, min(rows, D). `growth` is the rank of all n samples divided by that of n // 2 of
    them, minus 1. A result is NaN if a value of h is not finite, or all of its rows are 0 up to rounding. Memory:
    O(contrast_size V D + D^2). `compute` costs O(contrast_size V D^2 + K D^3).

    Args:
        contrast_size: Number of samples kept, >= 2.
        seed: Determines the order of the samples.
    """

    section = "ranks"
    cost = Cost(update="n D + N D", compute="N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "rank": _nested(
            title="Effective rank over the number of rows",
            text="Effective rank of random parts of the rows of one readout. Each part contains the smaller ones.",
            low="The rows use few directions.",
            high="The rows use many directions. If the line still rises at its end, more rows would raise the rank.",
            invariances=("rotation", "scale", "permutation"),
            cap="min(V * N, D)",
            label="rank",
        ),
        "rows": _nested(
            title="Rows",
            text="The number of rows: all views of the samples of a part.",
            paper=None,
            unit="rows",
            picture=Picture("profile", role="x"),
        ),
        "cap": _nested(
            title="Largest possible rank",
            text="The smaller of the number of rows and of dimensions.",
            paper=None,
            baseline=True,
            label="at most",
        ),
        "growth": Quantity(
            title="Growth of the rank",
            text="How much higher the effective rank of all rows is than that of half of them.",
            low="Near 0: the rank has settled. More rows would hardly change it.",
            high="Near 100%: twice the rows have twice the rank. The rank then says how many rows were seen.",
            paper=RANKME,
            bounds=(-1, None),
            percent=True,
            invariances=("rotation", "scale", "permutation"),
        ),
    }

    def __init__(self, contrast_size: int = 4096, seed: int = 0) -> None:
        super().__init__(("h",), contrast_size, seed)

    def update(self, h: Tensor, index: Tensor | None = None) -> None:
        """Add `h` (V, N, D) or (N, D), and `index` (N,), the samples' indices in the data set.

        Without `index`, the samples are numbered as they come.
        """
        self.offer(index, h=by_sample("h", h))

    def compute(self) -> dict[str, Tensor]:
        h = self.rows()["h"]  # (n, V, D), in the order of the hash
        n, views, dim = h.shape
        sizes = [2**power for power in range(1, n.bit_length())]
        ranks = self._ranks(h, sorted({n, n // 2, *sizes}))
        rank = torch.stack([ranks[size] for size in sizes])
        rows = rank.new_tensor([size * views for size in sizes]).where(rank.isfinite(), torch.nan)
        return {"rank": rank, "rows": rows, "cap": rows.clamp(max=dim), "growth": ranks[n] / ranks[n // 2] - 1}

    def _ranks(self, h: Tensor, sizes: Sequence[int]) -> dict[int, Tensor]:
        known, found = EffectiveRank().to(h.device), {}
        finite = bool(h.isfinite().all())
        for start, end in pairwise([0, *sizes]):
            EffectiveRank.update(known, h[start:end].transpose(0, 1))  # of these rows alone: `compute` would gather
            sigma = known.singular_values() if finite else undefined(self, "`h` is not finite")
            if finite and not sigma.any():
                sigma = undefined(self, "all of `h` is 0 but for rounding")
            found[end] = sigma if sigma.isnan().any() else singular_values_effective_rank(sigma)
        return {size: rank if not rank.ndim else rank[0] for size, rank in found.items()}


class ClassRank(SampledRows):
    """Effective rank of the rows of each class around their mean, beside the largest rank that its size allows.

    Observes the first view of h, with D dimensions, labels, and the index of each sample in the data set. Results for C
    classes, of which class c has n_c samples among those kept: `ranks` (C,), the effective ranks of the centred rows,
    `caps` (C,), min(n_c - 1, D), and their means over classes, `mean` and `mean_cap`. A class of one sample, or of
    equal rows, has a rank of NaN and is not in the means. All results are NaN if all classes are such, or if h is not
    finite. Memory: O(contrast_size D). `compute` costs O(contrast_size min(n_c, D) D).

    Args:
        contrast_size: Number of samples kept, >= 2.
        seed: Determines which samples are kept.
    """

    section = "ranks"
    cost = Cost(update="n D + N D", compute="N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "mean": Quantity(
            title="Effective rank within classes",
            text="Effective rank of the rows of one class around their mean, averaged over classes.",
            low="Near 1: the rows of a class vary along one direction.",
            high="Near the value that the sizes of the classes allow: the rows of a class vary in all directions.",
            paper=RANKME,
            bounds=(1, None),
            cap="min(N - 1, D)",
            invariances=("rotation", "scale", "translation", "permutation"),
            chart=_CLASS_MEAN,
        ),
        "mean_cap": Quantity(
            title="Largest possible rank within classes",
            text="Mean over classes of the smaller of D and the number of samples of a class minus 1.",
            bounds=(1, None),
            chart=_CLASS_MEAN,
            label="at most",
            baseline=True,
        ),
        "ranks": _of_class(
            title="Effective rank of each class",
            text="Effective rank of the rows of one class around their mean.",
            low="The rows of this class vary along few directions.",
            high="Near its largest possible value: few samples of this class were seen, or its rows vary in all "
            "directions.",
            paper=RANKME,
            cap="min(N - 1, D)",
            invariances=("rotation", "scale", "translation", "permutation"),
            label="rank",
        ),
        "caps": _of_class(
            title="Largest possible rank of each class",
            text="The smaller of the number of dimensions and of the samples of the class minus 1.",
            label="at most",
            baseline=True,
        ),
    }

    def __init__(self, contrast_size: int = 4096, seed: int = 0) -> None:
        super().__init__(("h", "label"), contrast_size, seed)

    def update(self, h: Tensor, label: Tensor, index: Tensor | None = None) -> None:
        """Add `h` (V, N, D) or (N, D), the integer labels `label` (N,), and `index` (N,), the samples' indices.

        Without `index`, the samples are numbered as they come.
        """
        self.offer(index, h=first_view("h", h), label=class_numbers("label", label))

    def compute(self) -> dict[str, Tensor]:
        kept = self.rows()
        h, label = kept["h"], kept["label"]
        classes = label.unique()
        parts = [h[label.to(h.device) == each.to(h.device)] for each in classes]
        finite = bool(h.isfinite().all())
        ranks = torch.stack(
            [_rank_around_mean(part) if finite else in_float64(part).new_tensor(torch.nan) for part in parts]
        )
        caps = ranks.new_tensor([min(len(part) - 1, h.shape[1]) for part in parts]).where(ranks.isfinite(), torch.nan)
        if not ranks.isfinite().any():
            undefined(self, "`h` is not finite, or the rows of each class are one row but for rounding")
        return {"mean": ranks.nanmean(), "mean_cap": caps.nanmean(), "ranks": ranks, "caps": caps}


def _rank_around_mean(h: Tensor) -> Tensor:
    floor, h = rounding_floor(h), in_float64(h)
    sigma = torch.linalg.svdvals(h - h.mean(0))
    sigma = sigma.where(sigma > floor, 0)
    return singular_values_effective_rank(sigma) if sigma.any() else sigma.new_tensor(torch.nan)
