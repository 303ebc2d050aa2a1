"""EmbeddingWriter: writes the embeddings of a data set to a file during `Trainer.predict`."""

__all__ = ["EmbeddingWriter"]

import itertools
import os
from collections.abc import Mapping, Sequence, Sized
from contextlib import suppress
from functools import partial
from numbers import Integral
from pathlib import Path
from typing import Any, Protocol, runtime_checkable
from uuid import uuid4

import lightning as L
import numpy as np
import torch
from torch import Tensor
from torch.utils.data import DataLoader, IterableDataset, RandomSampler

from lightning_ssl_geometry.callbacks.row_files import RowFiles, rows_read, write_sorted
from lightning_ssl_geometry.callbacks.run_callback import on_rank_zero, run_folder
from lightning_ssl_geometry.observe.batch_keys import BatchKeys
from lightning_ssl_geometry.observe.batch_reader import BatchReader

_NAME = "embeddings"
_NO_INDEX = 'but got none. Say where it is, such as `batch_keys={"index": 2}`.'


@runtime_checkable
class _Projects(Protocol):
    def project_image(self, h: Tensor, batch: Any) -> Tensor | None: ...


class EmbeddingWriter(L.Callback):
    """Write the embeddings of all samples to the file `embeddings.npz` during `Trainer.predict`.

    The file has one row for each sample: `index` (n,), `h` (n, D), `z` (n, P) if the module has a projector, and
    `label` (n,) if the batches have labels. The rows are sorted by `index`, and no index is repeated. Several processes
    write one file, in a folder that they share. The file is in the folder of the run, or without a logger in the
    Trainer's `default_root_dir`. If there is a file of this name, the new one is `embeddings-1.npz`, and so on. With
    `fast_dev_run`, nothing is written.

    h is what `predict_step` returns. This package's modules compute z from h in `project_image`. The `predict_step` of
    another module can return a dict of `h` and `z`. The embeddings are collected on disk: the memory needed is that of
    one batch, or 64 MiB and 32 bytes for each sample. Call `Trainer.predict` with `return_predictions=False`, as the
    Trainer would otherwise keep them in memory.

    Args:
        batch_keys: Where a batch holds "label" and "index", such as {"label": 1}. Batches of this package need no
            `batch_keys`. Samples without an index get their position in the data set, which a DataLoader's sampler says
            in any order. Of a loader of another kind, they are numbered as they come.

    Attributes:
        path: The file that was written, on all processes. None if no file was written yet.

    Raises:
        ValueError: In `Trainer.predict`, if there are several data loaders, `predict_step` returns something else, or
            batches without an index come in an order that nothing says.
    """

    def __init__(self, batch_keys: BatchKeys | None = None) -> None:
        self.reader = BatchReader(batch_keys, names=("label", "index"))
        self.path: Path | None = None
        self._rows: RowFiles | None = None

    def on_predict_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self.path = self._rows = None
        if trainer.fast_dev_run:  # type: ignore[attr-defined]
            return
        if len(trainer.num_predict_batches) != 1:
            raise ValueError(f"Expected one data loader to predict, but got {len(trainer.num_predict_batches)}.")
        folder = trainer.strategy.broadcast(_folder(trainer) / f".{_NAME}.{uuid4().hex}.part")
        self._rows = RowFiles(folder, trainer.global_rank)
        self.reader.restart("test")

    def on_predict_batch_end(
        self,
        trainer: L.Trainer,
        pl_module: L.LightningModule,
        outputs: Any,
        batch: Any,
        batch_idx: int,
        dataloader_idx: int = 0,
    ) -> None:
        if self._rows is None:
            return
        found = _spaces(outputs)
        if "z" not in found and isinstance(pl_module, _Projects):
            with trainer.precision_plugin.forward_context():
                z = pl_module.project_image(found["h"], batch)
            found |= {} if z is None else {"z": z}
        n = len(found["h"])
        read = self.reader.read(batch, "test")
        index = read.get("index")
        if index is None:
            index = _drawn(_loader(trainer), batch_idx, n)
        if index is None:
            index = self.reader.numbers(n, "test", device=torch.device("cpu"))
            self.reader.count(n, "test")
        columns = {"index": index, **found} | ({"label": read["label"]} if "label" in read else {})
        for name, each in columns.items():
            if not isinstance(each, Tensor) or not each.ndim or len(each) != n:
                got = tuple(each.shape) if isinstance(each, Tensor) else f"a {type(each).__name__}"
                raise ValueError(f"Expected `{name}` of the batch to be a tensor of {n} rows, as h has, but got {got}.")
        self._rows.append({name: _array(each) for name, each in columns.items()})

    def on_predict_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self._rows is None:
            return
        self._rows.close()
        trainer.strategy.barrier()
        try:
            on_rank_zero(trainer, partial(self._write, trainer, self._rows.folder))
        finally:
            if trainer.is_global_zero:
                self._rows.discard()
            self._rows = None
        self.path = trainer.strategy.broadcast(self.path)

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        if self._rows is not None:
            self._rows.discard()
            self._rows = None

    def _write(self, trainer: L.Trainer, rows: Path) -> None:
        whole = rows / f"{_NAME}.npz"
        n = write_sorted(rows, trainer.world_size, whole)
        if trainer.world_size > 1:
            _refuse_missing_samples(_loader(trainer), n, read=rows_read(rows, trainer.world_size))
        self.path = _moved(whole, rows.parent)
        print(f"The embeddings of {n} samples: {self.path}")


def _loader(trainer: L.Trainer) -> Any:
    loaders = trainer.predict_dataloaders
    return loaders[0] if isinstance(loaders, Sequence) and isinstance(loaders[0], DataLoader) else loaders


def _refuse_missing_samples(loader: Any, n: int, read: int) -> None:
    samples = getattr(loader, "dataset", None)
    if isinstance(samples, Sized) and n < min(read, len(samples)):
        raise ValueError(
            f"Expected each of {len(samples)} samples once, but {read} rows are of only {n} samples. The processes "
            "drew different random orders, or an `index` is repeated. Use `shuffle=False`."
        )


def _drawn(loader: Any, batch_idx: int, n: int) -> Tensor | None:
    """Return the positions (n,) of a batch in the data set, which Lightning notes in `predict`. None: nothing says it.

    Raises a ValueError if the samples are not n, or come in a random order that nothing says.
    """
    if not isinstance(loader, DataLoader) or isinstance(loader.dataset, IterableDataset):
        return None
    batches = getattr(loader.batch_sampler, "seen_batch_indices", None)
    if batches is None:  # `batch_size=None`: the samples of the data set are batches
        if isinstance(loader.sampler, RandomSampler):
            raise ValueError(f"Expected `index` in the batches of a loader that shuffles whole batches, {_NO_INDEX}")
        return None
    drawn = batches[batch_idx]
    if not all(isinstance(position, Integral) for position in drawn):  # of a data set with keys
        return None
    if len(drawn) != n:
        said = f"Expected `index` in a batch whose {n} rows are not the {len(drawn)} samples that the loader drew"
        raise ValueError(f"{said}, {_NO_INDEX}")
    return torch.tensor(drawn)


def _folder(trainer: L.Trainer) -> Path:
    folder = run_folder(trainer)
    return Path(trainer.default_root_dir) if folder is None else folder


def _moved(whole: Path, folder: Path) -> Path:
    """Move a file to the first of embeddings.npz, embeddings-1.npz, ... that is free. Nobody sees a part of it."""
    for number in itertools.count():
        path = folder / (f"{_NAME}-{number}.npz" if number else f"{_NAME}.npz")
        with suppress(FileExistsError):
            _link(whole, path)
            return path
    raise AssertionError


def _link(whole: Path, path: Path) -> None:
    try:
        os.link(whole, path)  # fails if the name is taken, also by another process meanwhile
    except FileExistsError:
        raise
    except OSError:  # a file system without links
        path.open("xb").close()
        os.replace(whole, path)


def _spaces(outputs: Any) -> dict[str, Tensor]:
    given = outputs if isinstance(outputs, Mapping) else {"h": outputs}
    spaces = {name: given[name] for name in ("h", "z") if name in given}
    if "h" not in spaces or not all(isinstance(each, Tensor) and each.ndim == 2 for each in spaces.values()):
        got = {name: tuple(each.shape) if isinstance(each, Tensor) else type(each) for name, each in given.items()}
        raise ValueError(f"Expected `predict_step` to return h (N, D), or a dict of h and z, but got {got}.")
    return spaces


def _array(column: Tensor) -> np.ndarray:
    column = column.detach().cpu()
    return (column.float() if column.dtype == torch.bfloat16 else column).contiguous().numpy()
