"""Take batches from data loaders without changing the batches of the training."""

__all__ = [
    "first_batches",
    "has_validation",
    "is_repeatable",
    "on_device",
    "one_pass",
    "spread_batches",
    "validation_batches",
    "validation_loader",
]

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from typing import Any

import lightning as L
import torch
from lightning.pytorch.trainer.states import RunningStage
from lightning.pytorch.utilities.combined_loader import CombinedLoader
from torch.utils.data import DataLoader, IterableDataset

from lightning_ssl_geometry.either_lightning import either


def on_device(batch: Any, trainer: L.Trainer) -> Any:
    """Convert a batch to the Trainer's precision, and move it to the Trainer's device."""
    return trainer.strategy.batch_to_device(trainer.precision_plugin.convert_input(batch))


def has_validation(host: L.LightningModule) -> bool:
    """Whether a module defines `validation_step`."""
    # by name, for the packages lightning and pytorch_lightning
    return getattr(host.validation_step, "__qualname__", "") != "LightningModule.validation_step"


def validation_loader(trainer: L.Trainer) -> Any:
    """Return the loader of the first validation set, or None. Each process gets its own samples.

    This function may draw random numbers. The caller must restore the random state.
    """
    loaders = trainer.val_dataloaders
    if loaders is not None:
        return loaders[0] if isinstance(loaders, Sequence) else loaders
    source = trainer.fit_loop.epoch_loop.val_loop._data_source
    if not source.is_defined():
        return None
    loaders = source.dataloader()
    loader = loaders[0] if isinstance(loaders, Sequence) else loaders
    return trainer._data_connector._prepare_dataloader(loader, shuffle=False, mode=RunningStage.VALIDATING)


def validation_batches(trainer: L.Trainer, loader: Any) -> Iterator[Any]:
    """Yield the batches of a validation loader that the Trainer's `limit_val_batches` allows."""
    limit: Any = trainer.limit_val_batches  # `fast_dev_run` sets it, too
    if isinstance(limit, float):  # a share, of a loader that may have no length
        limit = None if limit == 1 else int(len(loader) * limit)
    if limit != 0:
        yield from islice(one_pass(loader), limit)


def is_repeatable(loader: Any) -> bool:
    """Whether a loader can be read once more without changing the batches of the training.

    This is true for torch's DataLoader with a map-style data set, for loaders of this package, and for sequences.
    """
    if isinstance(loader, DataLoader):
        return not isinstance(loader.dataset, IterableDataset)
    if isinstance(loader, either(CombinedLoader)):
        return all(map(is_repeatable, loader.flattened))
    if isinstance(loader, Mapping):
        return all(map(is_repeatable, loader.values()))
    if isinstance(loader, Sequence):
        return all(is_repeatable(each) for each in loader if isinstance(each, DataLoader | Iterator))
    return bool(getattr(loader, "repeatable", False))


def one_pass(loader: Any) -> Iterable[Any]:
    """Return an iterable over all batches of a loader. It leaves the loader's persistent workers to the training."""
    if isinstance(loader, DataLoader) and loader.persistent_workers:
        return _again(loader, loader.num_workers)
    return loader


def first_batches(loader: Any, count: int) -> Iterator[Any]:
    """Yield the first `count` batches of a loader, on the CPU. The loader's random generators are restored.

    `loader` may be a list or dict of loaders. The caller must restore the global random state (:func:`undisturbed`).
    """
    if not isinstance(loader, DataLoader):
        source = CombinedLoader(loader, "max_size_cycle") if isinstance(loader, dict | list | tuple) else loader
        batches = islice(iter(source), count)
        yield from (batch[0] for batch in batches) if isinstance(source, CombinedLoader) else batches
        return
    with _generators_kept(loader):
        yield from islice(_alone(loader), count)


def _alone(loader: DataLoader[Any]) -> Iterator[Any]:
    return iter(loader) if loader.num_workers == 0 else iter(_again(loader, 0))


def _again(loader: DataLoader[Any], workers: int) -> DataLoader[Any]:
    sampling: dict[str, Any] = {"batch_sampler": loader.batch_sampler}
    if loader.batch_sampler is None:  # an iterable data set, or samples that are batches already
        sampling = {"batch_size": loader.batch_size, "drop_last": loader.drop_last}
        if loader.batch_size is None:
            sampling = {"batch_size": None, "sampler": loader.sampler}
    own = {"collate_fn": loader.collate_fn, "generator": loader.generator, "worker_init_fn": loader.worker_init_fn}
    return DataLoader(loader.dataset, num_workers=workers, **own, **sampling)


@contextmanager
def _generators_kept(loader: DataLoader[Any]) -> Iterator[None]:
    holders = (loader, loader.sampler, getattr(loader.batch_sampler, "sampler", None), loader.batch_sampler)
    found = [getattr(holder, "generator", None) for holder in holders]
    kept = [(each, each.get_state()) for each in found if isinstance(each, torch.Generator)]
    try:
        yield
    finally:
        for generator, state in kept:
            generator.set_state(state)


def spread_batches(loader: Any, count: int) -> Sequence[int]:
    """Return the positions of `count` evenly spaced batches of a loader, or of all batches if there are fewer."""
    try:
        length = len(loader)
    except TypeError:  # an iterable data set has no length: take the first batches
        return range(count)
    # evenly spaced, because a data set may be sorted by class
    return range(length) if count >= length else [place * length // count for place in range(count)]
