"""Similarity (CKA) of a representation to the same representation earlier in training (Kornblith et al. 2019)."""

__all__ = ["CKADrift"]

from dataclasses import replace
from functools import partial
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.checks import at_least
from lightning_ssl_geometry.cost import Cost
from lightning_ssl_geometry.diagnostics.accumulate import ComparedRows, first_view
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.cka import linear_cka
from lightning_ssl_geometry.papers import KORNBLITH
from lightning_ssl_geometry.precision import float64_device
from lightning_ssl_geometry.quantity import Chart, Quantity

_similarity = partial(
    Quantity,
    paper=KORNBLITH,
    where="Sec. 3",
    bounds=(0, 1),
    invariances=("rotation", "scale", "translation", "permutation"),
    chart=Chart("cka_drift", "CKA with earlier readouts", "linear CKA"),
)


class CKADrift(ComparedRows):
    """Similarity (linear CKA) of representations to those of the same samples at earlier calls of `compute`.

    Observes the first view of h, with D dimensions, and the index of each sample in the data set. For images without
    augmentation, use `GeometryMonitor(rename={"cka_drift": {"h": "h_image"}})`. Results in [0, 1]: `first` is the
    similarity to the first call of `compute`, and `last` the similarity to the previous call. At 1, the representations
    are equal up to rotation and scale. Both results are NaN at the first call. They are also NaN if all representations
    are equal or one is not finite. If the samples differ from those of the first call, a ValueError is raised. The
    monitor's stages "val", "test" and "probe" repeat the same samples. `reset` keeps the earlier representations, but a
    checkpoint does not contain them. Memory (CPU): O(contrast_size D). `compute` costs
    O(contrast_size D min(contrast_size, D)). Equation: :func:`functional.linear_cka`.

    Args:
        unbiased: Use the estimator HSIC_1, with values in [-1, 1]. It needs `contrast_size` >= 4.
        contrast_size: Number of samples kept, >= 2. The biased value depends on it.
        seed: Determines which samples are kept.
    """

    section = "change"
    cost = Cost(update="n D + N D", compute="N D^2", memory="N D")
    quantities: ClassVar[dict[str, Quantity]] = {
        "first": _similarity(
            title="CKA with the first readout",
            text="Linear CKA between the representations of the same samples now and at the first readout.",
            low="Training has changed the representations.",
            high="Near 1: the representations are the same up to rotation and scale.",
            label="first",
        ),
        "last": _similarity(
            title="CKA with the readout before",
            text="Linear CKA between the representations of the same samples now and at the readout before.",
            low="The representation is still changing.",
            high="Near 1: the representation has settled.",
            label="one before",
        ),
    }

    def __init__(self, unbiased: bool = False, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h",), contrast_size, seed)
        if unbiased:
            at_least(4, contrast_size=contrast_size)
            wide = {key: replace(each, bounds=(-1, 1)) for key, each in type(self).quantities.items()}
            self.quantities = wide  # type: ignore[misc]
        self.unbiased = unbiased

    def update(self, h: Tensor, index: Tensor | None = None) -> None:
        """Add `h` (V, N, D) or (N, D) for V views of N samples, and `index` (N,), their indices in the data set."""
        h = first_view("h", h)
        index = self.numbers.of(index, h)
        self.keep(index, h=h, sample=index)

    def compute(self) -> dict[str, Tensor]:
        now = {name: column.detach().cpu() for name, column in self.rows().items()}
        found = {name: self._similarity(self.earlier(name, now["sample"]), now) for name in ("first", "last")}
        self.remember(**now)
        return {name: value.to(float64_device(self.device)) for name, value in found.items()}

    def _similarity(self, then: dict[str, Tensor] | None, now: dict[str, Tensor]) -> Tensor:
        if then is None:
            return torch.full((), torch.nan, dtype=torch.float64)
        if not all(rows["h"].isfinite().all() and not all_alike(rows["h"][:, None]) for rows in (then, now)):
            return undefined(self, "all of `h` is one point but for rounding, or not finite, at one of two readouts")
        return linear_cka(now["h"], then["h"], unbiased=self.unbiased)
