"""How far a representation has moved since the first and the last readout, by CKA (Kornblith et al. 2019)."""

__all__ = ["CKADrift"]

from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from lightning_ssl_geometry.diagnostics.accumulate import SampledRows
from lightning_ssl_geometry.diagnostics.neighbors import all_alike
from lightning_ssl_geometry.diagnostics.undefined import undefined
from lightning_ssl_geometry.functional.cka import linear_cka
from lightning_ssl_geometry.papers import KORNBLITH
from lightning_ssl_geometry.quantity import Chart, Quantity

_CHART = Chart("cka_drift", "CKA with earlier readouts", "linear CKA")


class CKADrift(SampledRows):
    """Linear CKA of `contrast_size` representations with those of the same samples at earlier readouts.

    Observes h and index; of several views the first: rename for images without augmentation,
    `GeometryMonitor(rename={"cka_drift": {"h": "h_image"}})`, since another draw of the views is drift too. From 0 to 1
    (`unbiased`: from -1): high means that the representation is the same up to rotation and scale, low that it is
    another. `first` falls over training, `last` rises to 1 as it settles. Both are NaN at the first readout, and where
    representations are all equal but for rounding, or not finite.
    It needs the same samples at every readout: the stages "val", "test" and "probe" have them, training batches have
    not. What a readout compared is kept in CPU memory by the `reset` behind it, and so outlives `reset`, but not a
    resumed run, which begins anew.
    O(contrast_size D) memory, three times, O(contrast_size D min(contrast_size, D)) to compute.
    Equation: :func:`lightning_ssl_geometry.functional.linear_cka`.

    Args:
        unbiased: As in the function.
        contrast_size: As in :class:`SampledRows`; part of the value, unless `unbiased`.
        seed: As in :class:`SampledRows`.

    Raises:
        ValueError: If `contrast_size` is too small; in `update`, if shapes do not fit; in `compute`, if the samples are
            others than at the first readout, or too few.
    """

    section = "change"
    quantities: ClassVar[dict[str, Quantity]] = {
        "first": Quantity(
            title="CKA with the first readout",
            text="Linear CKA between the representations of the same samples now and at the first readout.",
            low="Training has changed the representations.",
            high="Near 1: the representations are the same up to rotation and scale.",
            paper=KORNBLITH,
            where="Sec. 3",
            bounds=(0, 1),
            invariances=("rotation", "scale", "translation", "permutation"),
            chart=_CHART,
            label="first",
        ),
        "last": Quantity(
            title="CKA with the readout before",
            text="Linear CKA between the representations of the same samples now and at the readout before.",
            low="The representation is still changing.",
            high="Near 1: the representation has settled.",
            paper=KORNBLITH,
            where="Sec. 3",
            bounds=(0, 1),
            invariances=("rotation", "scale", "translation", "permutation"),
            chart=_CHART,
            label="one before",
        ),
    }

    def __init__(self, unbiased: bool = False, contrast_size: int = 1024, seed: int = 0) -> None:
        super().__init__(("h", "sample"), contrast_size, seed)
        if unbiased and contrast_size < 4:
            raise ValueError(f"Expected `contrast_size` >= 4 for `unbiased`, but got {contrast_size}.")
        self.unbiased = unbiased
        if unbiased:  # which can be below 0
            wide = {key: replace(each, bounds=(-1, 1)) for key, each in type(self).quantities.items()}
            self.quantities = wide  # type: ignore[misc]
        self._kept: dict[str, dict[str, Tensor]] = {}  # "now", "first", "last" -> columns; no state: reset keeps it

    def update(self, h: Tensor, index: Tensor) -> None:
        """Offer samples: h (V, N, D), or (N, D) for one view, and the position of each in its data set, index (N,)."""
        self.offer(index, h=h[0] if h.ndim == 3 else h, sample=index)

    def compute(self) -> dict[str, Tensor]:
        """Compute the scalars `first` and `last`."""
        now = {name: column.detach().cpu() for name, column in self.rows().items()}
        found = {name: self._similarity(self._kept[name], now) for name in ("first", "last") if name in self._kept}
        self._kept["now"] = now
        nan = torch.full((), torch.nan, dtype=torch.float64)
        return {name: found.get(name, nan).to(self.device) for name in ("first", "last")}

    def reset(self) -> None:
        """Forget the observed rows, but for those that the readout before compared."""
        super().reset()
        if "now" in self._kept:
            now = self._kept.pop("now")
            self._kept = {"first": self._kept.get("first", now), "last": now}

    def _similarity(self, then: dict[str, Tensor], now: dict[str, Tensor]) -> Tensor:
        if not torch.equal(then["sample"], now["sample"]):
            same = int(torch.isin(now["sample"], then["sample"]).sum())
            raise ValueError(
                f"Expected CKADrift to observe the same {len(then['sample'])} samples at every readout, but got "
                f"{len(now['sample'])}, of which {same} are the same. Observe this diagnostic in the stages 'val', "
                "'test' or 'probe'."
            )
        if not all(rows["h"].isfinite().all() and not all_alike(rows["h"][:, None]) for rows in (then, now)):
            return undefined(self, "all of `h` is one point but for rounding, or not finite, at one of two readouts")
        return linear_cka(now["h"], then["h"], unbiased=self.unbiased)
