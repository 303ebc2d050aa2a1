"""The number of samples behind a result, and the greatest value that this number allows."""

__all__ = ["Cap", "cap_of", "few_rows", "sizes_of", "without_seen"]

from collections.abc import Mapping
from math import inf, isfinite, isnan, nan
from typing import TYPE_CHECKING, NamedTuple

from lightning_ssl_geometry.quantity import cap_at
from lightning_ssl_geometry.report.logs import Readouts

if TYPE_CHECKING:
    from lightning_ssl_geometry.report.run import Run

_FILE, _COLUMNS = "rows_seen", (4, 5)  # four: of earlier versions
_MORE = "Observe more steps (`every_n_steps`), or a larger set."


class Cap(NamedTuple):
    """The greatest value that a result can have."""

    most: int
    by_rows: bool  # more samples would allow more
    samples: int
    views: int  # of each sample

    @property
    def in_words(self) -> str:
        """A sentence with the numbers of samples and views, and the greatest value."""
        return f"{self.samples:,} samples in {self.views} views were seen: at most {self.most:,} here."


def without_seen(arrays: Mapping[str, Readouts]) -> tuple[dict[str, Readouts], dict[str, Readouts]]:
    """Return the arrays without `{stage}/rows_seen`, which counts the samples, and these counts by stage."""
    tables = {name for name in arrays if name.endswith(f"/{_FILE}") and arrays[name].values.shape[1] in _COLUMNS}
    rest = {name: array for name, array in arrays.items() if name not in tables}
    return rest, {name.removesuffix(f"/{_FILE}"): arrays[name] for name in sorted(tables)}


def cap_of(run: "Run", name: str) -> Cap | None:
    """Return the greatest value that a log can have at its end, or None if it is unknown."""
    known = run.declared.get(name)
    if known is None or not known.quantity.cap or known.part:
        return None
    sizes = sizes_of(run, name)
    samples, views = sizes["N"], sizes["V"]
    if isnan(samples) or isnan(views):
        return None
    most, without_rows = (cap_at(known.quantity.cap, **sizes | {"N": n}) for n in (samples, inf))
    return Cap(int(most), most < without_rows, int(samples), views=int(views)) if isfinite(most) else None


def sizes_of(run: "Run", name: str) -> dict[str, float]:
    """Return N, V, D and P of the last readout of a log. NaN: unknown.

    They are the number of samples, that of views in the log's own space, its width, and the width of z.
    """
    known, table = run.declared.get(name), run.seen.get(name.rpartition("/")[0])
    row = table.values[-1].tolist() if table is not None and len(table.values) else [nan] * 4
    samples, views, h, z, views_z = (float(int(value)) if isfinite(value) and 0 < value < 2**53 else nan
                                     for value in (*row, nan)[:5])  # fmt: skip
    if known is not None and known.space == "z" and not isnan(views_z):
        views = views_z
    return {"N": samples, "V": views, "D": h if known is None or known.width is None else float(known.width), "P": z}


def few_rows(run: "Run") -> list[str]:
    """Return one sentence for each stage in which the number of samples limits a rank or a spectrum."""
    notes = []
    for stage in run.seen:
        names = [name for name in run.declared if name.rpartition("/")[0] == stage]
        caps = (cap_of(run, name) for name in names)
        if bounds := sorted({cap.most for cap in caps if cap is not None and cap.by_rows}):
            notes.append(
                f"Readouts of {stage} saw few samples. Their number, not the network, limits some ranks and spectra to "
                f"{' or '.join(f'{most:,}' for most in bounds)}. "
                + ("Take more samples." if run.is_diagnosis else _MORE)
            )
    return notes
