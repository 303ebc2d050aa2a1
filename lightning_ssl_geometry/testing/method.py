"""The contracts of a method: its training does not change when it is observed, resumed or copied."""

__all__ = ["METHOD_CONTRACTS", "check_method"]

import tempfile
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import lightning as L

from lightning_ssl_geometry.testing.checkpoints import checkpoint, copies, resumed, resumed_within_an_epoch
from lightning_ssl_geometry.testing.contract import kept, of_all
from lightning_ssl_geometry.testing.fits import QUIET, MethodCase
from lightning_ssl_geometry.testing.training import (
    accumulated,
    bfloat16,
    clipped,
    compiled,
    gradients,
    observed,
    repeatable,
    statistics,
    views,
)


def check_method(
    module: L.LightningModule,
    datamodule: L.LightningDataModule,
    expected_failures: Mapping[str, str] | None = None,
    *,
    callbacks: Callable[[], Iterable[L.Callback]] | None = None,
    only: Iterable[str] | None = None,
    **trainer: Any,
) -> dict[str, str]:
    """Check that a method keeps the contracts of this package, by short fits in a temporary folder.

    Each fit trains a copy of `module` on a copy of `datamodule` for two epochs, from the same seed. Use a small network
    and some hundred samples: there are about twelve fits. Random views are allowed. Dropout breaks the contracts on a
    resume, because a checkpoint of Lightning has no random state.

    ========================  ==========================================================================================
    name                      contract
    ========================  ==========================================================================================
    gradients                 each parameter that requires a gradient gets one that is finite, and not 0 in all steps
    views                     the weights depend on each view: `batch["views"]`, or tensors of one shape in a tuple
    statistics                layers in training mode that count batches, such as batch norm, change their running mean
    repeatable                a second fit from the same seed ends with the same weights, bit by bit
    observed                  so does a fit with `GeometryMonitor`, `LinearProbe` and `KNNProbe`, or with `callbacks`
    resumed                   so does a fit that is resumed after its first epoch
    resumed_within_an_epoch   so does a fit that ended in the middle of an epoch, and is resumed there
    checkpoint                a checkpoint is read with `weights_only=True`, and holds all weights of the module. After
                              `save_hyperparameters`, `load_from_checkpoint` builds the module again from the file and
                              from the networks that are no hyper-parameters
    copies                    after the fit, the module's copies by pickle and by deepcopy have its weights
    bfloat16                  a fit with the precision "bf16-mixed" ends with finite weights
    accumulated               gradients of two batches are accumulated, with half as many steps, or the Trainer refuses
    clipped                   gradients are clipped, or the Trainer refuses
    compiled                  with a compiled `backbone`, the loss of the first step is the same to 1e-5
    ========================  ==========================================================================================

    Args:
        module: The LightningModule, not trained yet.
        datamodule: A LightningDataModule with at least two training batches. For `observed`, it has validation data.
        expected_failures: Maps names of contracts that the method breaks to the reason. Such a contract must be broken:
            if it is kept, this is an error.
        callbacks: Makes the callbacks of the contract `observed`, such as a `GeometryMonitor` with `taps`. None:
            `GeometryMonitor`, `LinearProbe` and `KNNProbe` for an `SSLModule`. For another module, `observed` is then
            left out.
        only: Names of the contracts to check. None: all.
        **trainer: Further arguments of the Trainer, such as `accelerator="gpu"`. The default is the CPU.

    Returns:
        Maps each contract to "kept", or to "left out" or "fails as expected" with the reason.

    Raises:
        AssertionError: If a contract is broken. The message names every broken contract, and what was found.
        ValueError: If an argument is wrong: a class, the name of a contract, or a reason that is missing.
    """
    if not (callbacks is None or callable(callbacks)):
        raise ValueError(f"Expected `callbacks` to be a function that returns callbacks, but got {callbacks!r}.")
    with tempfile.TemporaryDirectory() as folder:
        case = MethodCase(module, datamodule, Path(folder))
        case.callbacks, case.settings = callbacks, QUIET | trainer
        return kept(METHOD_CONTRACTS, case, expected_failures, only=only)


METHOD_CONTRACTS = of_all(
    gradients,
    views,
    statistics,
    repeatable,
    observed,
    resumed,
    resumed_within_an_epoch,
    checkpoint,
    copies,
    bfloat16,
    accumulated,
    clipped,
    compiled,
)
"""The contracts of :func:`check_method` by name."""
