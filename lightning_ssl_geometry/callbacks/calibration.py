"""Give new batch norms the statistics of training batches before the first training step."""

__all__ = ["calibrated"]

import itertools
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightning as L
import torch
from lightning.pytorch.utilities import rank_zero_warn
from torch import Tensor
from torch.nn.modules.batchnorm import _NormBase

from lightning_ssl_geometry import distributed
from lightning_ssl_geometry.callbacks.host_copy import HostCopy
from lightning_ssl_geometry.callbacks.loaders import first_batches, is_repeatable, on_device
from lightning_ssl_geometry.observe.undisturbed import random_state_kept

# In eval mode, a new batch norm is the identity: diagnostics would observe another function than the trained one.
_ROWS, _BATCHES = 1024, 16
_BUFFERS = ("running_mean", "running_var", "num_batches_tracked")


@contextmanager
def calibrated(trainer: L.Trainer, host: L.LightningModule) -> Iterator[None]:
    """Give new batch norm layers the statistics of training batches, inside this block.

    A batch norm layer is new if it is in training mode and has seen no batch. A copy of the module `host` runs on
    training batches until 1,024 samples (on all ranks) or 16 batches have passed. New layers get the mean of the
    statistics of these batches. After the block, all buffers have their old values. All ranks must call this function
    together, outside inference mode.
    """
    fresh = {name: layer for name, layer in host.named_modules() if _is_fresh(layer)}
    found = _statistics(trainer, host, fresh) if fresh else {}
    kept = {name: _buffers(fresh[name]) for name in found}
    try:
        for name, buffers in found.items():
            _fill(fresh[name], buffers)
        yield
    finally:
        for name, buffers in kept.items():
            _fill(fresh[name], buffers)


def _is_fresh(layer: torch.nn.Module) -> bool:
    if not isinstance(layer, _NormBase) or not layer.training or layer.running_mean is None:
        return False
    return layer.num_batches_tracked is not None and int(layer.num_batches_tracked) == 0


def _buffers(layer: torch.nn.Module) -> dict[str, Tensor]:
    return {name: getattr(layer, name).clone() for name in _BUFFERS}


def _fill(layer: torch.nn.Module, buffers: Mapping[str, Tensor]) -> None:
    with torch.no_grad():
        for name, value in buffers.items():
            getattr(layer, name).copy_(value)


def _statistics(
    trainer: L.Trainer, host: L.LightningModule, fresh: Mapping[str, torch.nn.Module]
) -> dict[str, dict[str, Tensor]]:
    try:
        twin = HostCopy(trainer, host, in_place=True)
        with twin.apart(), random_state_kept():
            found = _passed(trainer, twin, fresh)
    except Exception as error:
        rank_zero_warn(
            "Readouts before training take batch norm as the identity: its statistics could not be estimated, since a "
            f"copy of {type(host).__name__} could not take training steps ({type(error).__name__}: {error})."
        )
        return {}
    return {name: _averaged(buffers) for name, buffers in found.items()}


def _passed(trainer: L.Trainer, twin: HostCopy, fresh: Iterable[str]) -> dict[str, dict[str, Tensor]]:
    layers: dict[str, Any] = {name: twin.module.get_submodule(name) for name in fresh}
    momenta = {name: layer.momentum for name, layer in layers.items()}
    try:
        for layer in layers.values():
            layer.momentum = None  # the mean over all batches
        _pass_batches(trainer, twin)
        return {name: _buffers(layer) for name, layer in layers.items() if int(layer.num_batches_tracked)}
    finally:
        for name, layer in layers.items():
            layer.momentum = momenta[name]


def _averaged(buffers: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: distributed.all_reduce_mean(v) if v.is_floating_point() else v for name, v in buffers.items()}


def _pass_batches(trainer: L.Trainer, twin: HostCopy) -> None:
    if trainer.train_dataloader is None:
        trainer.fit_loop.setup_data()
    if not is_repeatable(trainer.train_dataloader):
        raise ValueError("Expected a training loader that can be read twice: of torch's, with a map-style data set.")
    batches, rows = first_batches(trainer.train_dataloader, _BATCHES), 0
    for place in itertools.count():
        batch = next(batches, None)
        ready = torch.tensor([int(batch is not None), _size(batch)], device=twin.module.device)
        ranks, size = distributed.all_reduce_sum(ready).tolist()
        if ranks < distributed.world_size():  # some rank has no further batch, so all ranks stop
            return
        twin.training_pass(on_device(batch, trainer), place)
        rows += size
        if rows >= _ROWS:
            return


def _size(batch: Any) -> int:
    if isinstance(batch, Tensor):
        return len(batch) if batch.ndim else 0
    parts = batch.values() if isinstance(batch, Mapping) else batch if isinstance(batch, list | tuple) else ()
    return next((size for size in map(_size, parts) if size), 0)
