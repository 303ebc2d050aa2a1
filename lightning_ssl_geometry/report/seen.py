"""How many rows a readout rests on, and what a rank of them can be at most."""

__all__ = ["BOUNDED", "at_most", "few_rows", "in_words", "without_seen"]

from collections.abc import Mapping
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from lightning_ssl_geometry.report.logs import Readouts

if TYPE_CHECKING:
    from lightning_ssl_geometry.report.run import Run

_FILE, _COLUMNS = "rows_seen", 4


class _Bounded(NamedTuple):
    """A quantity that rows bound: of which space its rows are, and whether each view of a sample is a row."""

    space: str
    views: bool = True


BOUNDED = {
    "effective_rank_h": _Bounded("h"),
    "effective_rank_z": _Bounded("z"),
    "spectrum_h": _Bounded("h"),
    "spectrum_z": _Bounded("z"),
    "augmentation_rank": _Bounded("h", views=False),
    "augmentation_spectrum": _Bounded("h", views=False),
}


class _Seen(NamedTuple):
    samples: int
    views: int
    width: Mapping[str, float]

    def rows(self, bounded: _Bounded) -> int:
        return self.samples * (self.views if bounded.views else 1)


def without_seen(arrays: Mapping[str, Readouts]) -> tuple[dict[str, Readouts], dict[str, Readouts]]:
    """Part the arrays from the tables `{stage}/rows_seen`: samples, views, width of h and of z of each readout."""
    tables = {name for name in arrays if name.endswith(f"/{_FILE}") and arrays[name].values.shape[1] == _COLUMNS}
    rest = {name: array for name, array in arrays.items() if name not in tables}
    return rest, {name.removesuffix(f"/{_FILE}"): arrays[name] for name in sorted(tables)}


def at_most(run: "Run", stage: str, key: str) -> int | None:
    """Return what a quantity can be at most because of the rows of a stage's last readout.

    None where its width is the smaller bound, or nothing is known of the rows.
    """
    seen = _last(run, stage)
    if seen is None or key not in BOUNDED:
        return None
    rows, width = seen.rows(BOUNDED[key]), seen.width.get(BOUNDED[key].space, np.nan)
    return rows if rows < width else None


def in_words(run: "Run", stage: str, key: str) -> str:
    """Say in a sentence what the rows leave a quantity at most; empty where they do not bound it."""
    most, seen = at_most(run, stage, key), _last(run, stage)
    if most is None or seen is None:
        return ""
    return f"In {stage}, {seen.samples:,} samples in {seen.views} views were seen: at most {most:,} here."


def few_rows(run: "Run") -> list[str]:
    """Say for each stage, and each named monitor, whose rows bound ranks that these are not those of the network."""
    notes = []
    for stage in run.seen:
        bounds = {f"{most:,}": None for key in BOUNDED if (most := at_most(run, stage, key)) is not None}
        if bounds:
            words = f"{' or '.join(bounds)} by the rows, not by the network"
            notes.append(
                f"Readouts of {stage} saw fewer rows than dimensions: some ranks and spectra are bounded to {words}. "
                "Observe more steps (`every_n_steps`), or a larger set."
            )
    return notes


def _last(run: "Run", stage: str) -> _Seen | None:
    if stage not in run.seen or not len(run.seen[stage].values):
        return None
    samples, views, h, z = run.seen[stage].values[-1]
    if not (np.isfinite(samples) and np.isfinite(views) and 0 < samples < 2**53 and 0 < views < 2**53):
        return None
    return _Seen(int(samples), int(views), {"h": float(h), "z": float(z)})
