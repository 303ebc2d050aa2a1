"""Rows of arrays that do not fit into memory: each process appends to files, which one process then sorts."""

__all__ = ["RowFiles", "rows_read", "write_sorted"]

import json
import shutil
import warnings
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import BinaryIO, NamedTuple

import numpy as np

from lightning_ssl_geometry.files import replacing

_CHUNK = 2**26  # bytes
_ROUNDING = 0.01  # share of a row's largest value: a batch of another size, in bfloat16, changes a row by less


class RowFiles:
    """Appends the rows of one process to files in a folder, one file for each array.

    Args:
        folder: The folder of all processes. It is created if it does not exist.
        rank: The number of the process.
    """

    def __init__(self, folder: Path, rank: int) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder, self.rank = folder, rank
        self._files: dict[str, BinaryIO] = {}
        self._kinds: dict[str, tuple[str, list[int]]] = {}

    def append(self, arrays: Mapping[str, np.ndarray]) -> None:
        """Append N rows to each array.

        `arrays` maps names to arrays (N, ...). Except for N, all calls need the same names, dtypes and shapes.
        """
        kinds = {name: (array.dtype.str, list(array.shape[1:])) for name, array in arrays.items()}
        if not self._kinds:
            self._kinds = kinds
            self._files = {name: (self.folder / f"{self.rank}.{name}").open("wb") for name in kinds}
        if kinds != self._kinds:
            raise ValueError(f"Expected batches with the same arrays, {self._kinds}, but got {kinds}.")
        for name, array in arrays.items():
            self._files[name].write(array.tobytes())

    def close(self) -> None:
        """Finish the files, and record which arrays they hold."""
        self._close()
        (self.folder / f"{self.rank}.json").write_text(json.dumps(self._kinds))

    def discard(self) -> None:
        """Remove the folder with the files of all processes."""
        with suppress(OSError):  # a full disk, on which the files are of no more use
            self._close()
        shutil.rmtree(self.folder, ignore_errors=True)

    def _close(self) -> None:
        with ExitStack() as files:
            for file in self._files.values():
                files.callback(file.close)  # each of them, also if the disk is full


def rows_read(folder: Path, ranks: int) -> int:
    """Return the number of rows of all processes, with those of equal `index`."""
    return sum(len(part.arrays["index"]) for part in (_read(folder, rank) for rank in range(ranks)) if part.arrays)


def write_sorted(folder: Path, ranks: int, path: Path) -> int:
    """Write the rows of all processes to a file `.npz`, sorted by the array `index`. Return the number of rows.

    Of rows with equal `index`, the first is kept, because a DistributedSampler can hand a sample to several processes.
    If such rows differ by more than rounding, a UserWarning says how many rows are dropped. Besides 64 MiB, this takes
    32 bytes of memory for each row, and 32 bytes more for each row that is dropped.

    Args:
        folder: The folder of the :class:`RowFiles`.
        ranks: The number of processes.
        path: The new file. If there is a file of this name, it is replaced.

    Raises:
        ValueError: If the files of a process are missing, the processes have different arrays, or there is no row.
    """
    parts = [part for part in (_read(folder, rank) for rank in range(ranks)) if part.arrays]
    if not parts:
        raise ValueError("Expected at least one row, but got none.")
    if any(part.kinds != parts[0].kinds for part in parts):
        raise ValueError(f"Expected the same arrays from all processes, but got {[part.kinds for part in parts]}.")
    index = np.concatenate([part.arrays["index"] for part in parts])
    kept = np.unique(index, return_index=True)[1]
    _warn_of_conflicts(parts, index, kept)
    with replacing(path) as file, zipfile.ZipFile(file, "w") as archive:
        for name, (dtype, shape) in parts[0].kinds.items():
            with archive.open(f"{name}.npy", "w", force_zip64=True) as entry:
                header = {"descr": dtype, "fortran_order": False, "shape": (len(kept), *shape)}
                np.lib.format.write_array_header_2_0(entry, header)
                arrays = [part.arrays[name] for part in parts]
                for chunk in _chunks(len(kept), arrays):
                    entry.write(_taken(arrays, kept[chunk]).tobytes())
    return len(kept)


class _Part(NamedTuple):
    kinds: dict[str, tuple[str, list[int]]]
    arrays: dict[str, np.ndarray]


def _read(folder: Path, rank: int) -> _Part:
    record = folder / f"{rank}.json"
    if not record.exists():
        raise ValueError(f"Expected the rows of process {rank} in {folder}, but there are none. Use a shared folder.")
    kinds = json.loads(record.read_text())
    arrays = {
        name: np.fromfile(file, dtype) if name == "index" else np.memmap(file, dtype, "r").reshape(-1, *shape)
        for name, (dtype, shape) in kinds.items()
        if (file := folder / f"{rank}.{name}").stat().st_size
    }
    return _Part(kinds, arrays)


def _warn_of_conflicts(parts: Sequence[_Part], index: np.ndarray, kept: np.ndarray) -> None:
    dropped = np.delete(np.arange(len(index)), kept)
    first = kept[np.searchsorted(index[kept], index[dropped])]
    differ = np.zeros(len(dropped), dtype=bool)
    for name in parts[0].kinds:
        arrays = [part.arrays[name] for part in parts]
        for chunk in _chunks(len(dropped), arrays):
            differ[chunk] |= _differ(_taken(arrays, first[chunk]), _taken(arrays, dropped[chunk]))
    if count := int(differ.sum()):
        warnings.warn(
            f"Expected an `index` of its own for each sample, but {count} of {len(index)} rows have the index of "
            f"another row with other values, such as {index[dropped[differ][0]]}. These {count} rows are not written.",
            stacklevel=3,
        )


def _differ(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Compare the rows of two arrays (N, ...). Floating-point rows are equal up to 1 % of their largest value."""
    a, b = (each.reshape(len(each), -1) for each in (a, b))
    if a.dtype.kind != "f" or not a.shape[1]:
        return (a != b).any(1)
    a, b = a.astype(np.float64), b.astype(np.float64)
    scale = np.maximum(np.abs(a).max(1), np.abs(b).max(1))[:, None]
    scale[~np.isfinite(scale)] = 0  # such rows are compared exactly
    with np.errstate(invalid="ignore"):  # inf - inf
        close = np.abs(a - b) <= _ROUNDING * scale
    return ~(close | (a == b) | (np.isnan(a) & np.isnan(b))).all(1)


def _chunks(n: int, arrays: Sequence[np.ndarray]) -> Iterator[slice]:
    """Cut n rows into parts of at most `_CHUNK` bytes, but of at least one row."""
    step = max(1, _CHUNK // max(1, arrays[0].dtype.itemsize * int(np.prod(arrays[0].shape[1:]))))
    return (slice(start, start + step) for start in range(0, n, step))


def _taken(arrays: Sequence[np.ndarray], rows: np.ndarray) -> np.ndarray:
    """As `np.concatenate(arrays)[rows]`, without the whole in memory."""
    found = np.empty((len(rows), *arrays[0].shape[1:]), arrays[0].dtype)
    start = 0
    for array in arrays:
        own = (rows >= start) & (rows < start + len(array))
        found[own] = array[rows[own] - start]
        start += len(array)
    return found
