"""The numbers of a run as a pandas DataFrame."""

__all__ = ["COLUMNS", "frame", "pandas_for"]

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import numpy as np

from lightning_ssl_geometry.manifest import Declared
from lightning_ssl_geometry.report.members import split
from lightning_ssl_geometry.report.run import Run

if TYPE_CHECKING:
    from pandas import DataFrame

COLUMNS = ("stage", "name", "key", "epoch", "step", "value")


def frame(run: Run, vectors: bool) -> "DataFrame":
    """Return one row per value, as :meth:`Run.to_frame` describes it."""
    pd = pandas_for("to_frame")
    columns = (*COLUMNS[:-1], "position", COLUMNS[-1]) if vectors else COLUMNS
    parts = [*_scalars(run), *(_vectors(run) if vectors else ())]
    tables = [pd.DataFrame({name: part[name] for name in columns}) for part in parts]
    if not tables:
        return pd.DataFrame(columns=list(columns))
    found = pd.concat(tables, ignore_index=True)
    return found.astype({"step": "int64"} | ({"position": "Int64"} if vectors else {}))


def pandas_for(method: str) -> Any:
    """Return the module pandas, or raise a ModuleNotFoundError that names the method which needs it."""
    try:
        import pandas
    except ModuleNotFoundError as error:
        raise ModuleNotFoundError(
            f"Expected pandas to be installed for `{method}`, but it is not. Install it with `pip install pandas`.",
            name="pandas",
        ) from error
    return pandas


def _scalars(run: Run) -> Iterator[dict[str, Any]]:
    for name, series in run.scalars.items():
        done = np.zeros(len(series.done)) if run.is_diagnosis else series.done  # Lightning counts a test as a step
        times = {"epoch": series.epoch, "step": done}
        yield {**_named(name, run.declared.get(name)), **times, "position": np.nan, "value": series.value}


def _vectors(run: Run) -> Iterator[dict[str, Any]]:
    for name, readouts in run.arrays.items():
        count, width = readouts.values.shape
        times = {"epoch": np.repeat(readouts.epoch, width), "step": np.repeat(readouts.done, width)}
        places = np.tile(np.arange(width), count)
        yield {**_named(name, run.declared.get(name)), **times, "position": places, "value": readouts.values.ravel()}


def _named(logged: str, declared: Declared | None) -> dict[str, str]:
    stage, base = split(logged)
    known = [declared.key, declared.part] if declared and not declared.silent else []
    key = "_".join(filter(None, known))
    name = base.removesuffix(f"_{key}") if key else base
    return {"stage": stage, "name": name, "key": base.removeprefix(name).removeprefix("_")}
