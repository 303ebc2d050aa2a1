"""The contracts of a method: its training does not change when it is observed, resumed or copied."""

__all__ = ["METHOD_CONTRACTS", "check_method"]

import copy
import logging
import pickle
import tempfile
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from functools import cached_property
from pathlib import Path
from typing import Any, NamedTuple

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.methods import SSLModule
from lightning_ssl_geometry.testing.contract import kept, of_all

_QUIET: dict[str, Any] = {
    "accelerator": "cpu",
    "devices": 1,
    "max_epochs": 2,
    "logger": False,
    "enable_checkpointing": False,
    "enable_progress_bar": False,
    "enable_model_summary": False,
    "num_sanity_val_steps": 0,
}


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
    and some hundred samples: there are about ten fits. Dropout and random views are allowed.

    ========================  ==========================================================================================
    name                      contract
    ========================  ==========================================================================================
    gradients                 each parameter that requires a gradient gets one, and it is finite
    repeatable                a second fit from the same seed ends with the same weights, bit by bit
    observed                  so does a fit with `GeometryMonitor`, `LinearProbe` and `KNNProbe`, or with `callbacks`
    resumed                   so does a fit that is resumed after its first epoch
    resumed_within_an_epoch   so does a fit that ended in the middle of an epoch, and is resumed there
    checkpoint                a checkpoint is read with `weights_only=True`, and holds all weights of the module
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
        case = _Case(module, datamodule, Path(folder))
        case.callbacks, case.settings = callbacks, _QUIET | trainer
        return kept(METHOD_CONTRACTS, case, expected_failures, only=only)


@contextmanager
def _silent() -> Iterator[None]:
    """Silence what Lightning logs about devices, limits and checkpoints."""
    logger = logging.getLogger("lightning.pytorch")
    level = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(level)


class _Fit(NamedTuple):
    """A fit that has ended."""

    module: L.LightningModule
    trainer: L.Trainer


class _Case:
    """A method with its data, and its fits."""

    callbacks: Callable[[], Iterable[L.Callback]] | None = None
    settings: Mapping[str, Any] = _QUIET

    def __init__(self, module: L.LightningModule, datamodule: L.LightningDataModule, folder: Path) -> None:
        for argument, given, kind in (
            ("module", module, L.LightningModule),
            ("datamodule", datamodule, L.LightningDataModule),
        ):
            if not isinstance(given, kind):
                raise ValueError(f"Expected `{argument}` to be a {kind.__name__}, but got {given!r}.")
        self.name, self.folder = type(module).__name__, folder
        self.module, self.datamodule = module, datamodule

    def fit(self, *callbacks: L.Callback, change: Any = None, resume: Path | None = None, **settings: Any) -> _Fit:
        """Fit a copy from the seed 0. `change` is called with the copy before the fit."""
        L.seed_everything(0, verbose=False)
        module, data = copy.deepcopy(self.module), copy.deepcopy(self.datamodule)
        if change:
            change(module)
        with warnings.catch_warnings(), _silent():
            warnings.simplefilter("ignore")
            given = {**self.settings, **settings} | {"default_root_dir": self.folder, "callbacks": list(callbacks)}
            trainer = L.Trainer(**given)
            trainer.fit(module, datamodule=data, ckpt_path=resume)
        return _Fit(module, trainer)

    @cached_property
    def plain(self) -> _Fit:
        return self.fit()

    def begin(self) -> None:
        """Fit once, without any contract."""
        assert self.plain.trainer.global_step, "Its fit ended without a step of an optimizer."

    def renew(self) -> None:
        """Do nothing: each fit trains copies."""

    def resumed(self, epoch: int, batch: int) -> _Fit:
        """Save a checkpoint after a batch of an epoch, end the fit there, and go on with it."""
        path = self.folder / f"{epoch}-{batch}.ckpt"
        ended = _EndAfter(path, epoch, batch)
        with suppress(_EndedError):
            self.fit(ended)
        return self.fit(resume=path)


class _EndedError(Exception):
    """A fit was ended in the middle on purpose."""


class _EndAfter(L.Callback):
    """Save a checkpoint after a training batch, or after an epoch if `batch` is -1, and raise an error there."""

    def __init__(self, path: Path, epoch: int, batch: int) -> None:
        self.path, self.epoch, self.batch = path, epoch, batch

    def on_train_batch_end(
        self, trainer: L.Trainer, pl_module: L.LightningModule, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if (trainer.current_epoch, batch_idx) == (self.epoch, self.batch):
            self._end(trainer)

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if (trainer.current_epoch, -1) == (self.epoch, self.batch):
            trainer.should_stop = True

    def on_train_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if self.batch == -1:
            self._end(trainer)

    def _end(self, trainer: L.Trainer) -> None:
        trainer.save_checkpoint(self.path)
        raise _EndedError


class _Gradients(L.Callback):
    """Note the parameters with a gradient before each step of an optimizer."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.infinite: set[str] = set()

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        known = {name: each.grad for name, each in pl_module.named_parameters() if each.grad is not None}
        self.found |= known.keys()
        self.infinite |= {name for name, gradient in known.items() if not gradient.isfinite().all()}


def _same(found: L.LightningModule, expected: L.LightningModule, when: str) -> None:
    ours, theirs = found.state_dict(), expected.state_dict()
    assert ours.keys() == theirs.keys(), f"The state has other keys {when}: {sorted(ours.keys() ^ theirs.keys())}."
    wrong = [name for name, value in theirs.items() if isinstance(value, Tensor) and not torch.equal(ours[name], value)]
    assert not wrong, f"{len(wrong)} of {len(theirs)} weights and buffers differ {when}, such as {wrong[0]!r}."


def _refused(error: Exception, word: str) -> None:
    if word not in str(error):
        raise AssertionError(f"The Trainer refuses, but does not say why: {error}") from error


def gradients(case: _Case) -> str | None:
    seen = _Gradients()
    module = case.fit(seen).module
    wanted = {name for name, each in module.named_parameters() if each.requires_grad}
    assert not (without := sorted(wanted - seen.found)), f"{without} got no gradient in two epochs."
    assert not seen.infinite, f"{sorted(seen.infinite)} got a gradient that is not finite."
    return None


def repeatable(case: _Case) -> str | None:
    _same(case.fit().module, case.plain.module, "after a second fit from the same seed")
    return None


def observed(case: _Case) -> str | None:
    if case.callbacks is None and not isinstance(case.module, SSLModule):
        return "the module is no SSLModule, and `callbacks` does not say what observes it"
    _same(case.fit(*(case.callbacks or _callbacks)()).module, case.plain.module, "after a fit that was observed")
    return None


def _callbacks() -> list[L.Callback]:
    return [GeometryMonitor(stages=["train", "val"], every_n_steps=1), LinearProbe(), KNNProbe(k=1)]


def resumed(case: _Case) -> str | None:
    _same(case.resumed(0, -1).module, case.plain.module, "after a resume between two epochs")
    return None


def resumed_within_an_epoch(case: _Case) -> str | None:
    steps = int(case.plain.trainer.num_training_batches)
    if steps < 2:
        return "an epoch has one batch"
    _same(case.resumed(1, steps // 2 - 1).module, case.plain.module, "after a resume within an epoch")
    return None


def checkpoint(case: _Case) -> str | None:
    path = case.folder / "whole.ckpt"
    case.plain.trainer.save_checkpoint(path)
    weights = torch.load(path, weights_only=True, map_location="cpu")["state_dict"]
    fresh = copy.deepcopy(case.module)
    fresh.load_state_dict(weights)
    _same(fresh.cpu(), copy.deepcopy(case.plain.module).cpu(), "after loading a checkpoint")
    return None


def copies(case: _Case) -> str | None:
    trained = case.plain.module
    for name, made in (("pickle", pickle.loads(pickle.dumps(trained))), ("deepcopy", copy.deepcopy(trained))):
        _same(made, trained, f"in a copy by {name}")
    return None


def bfloat16(case: _Case) -> str | None:
    state = case.fit(precision="bf16-mixed").module.state_dict()
    wrong = [name for name, value in state.items() if isinstance(value, Tensor) and not value.isfinite().all()]
    assert not wrong, f"{wrong} are not finite."
    return None


def accumulated(case: _Case) -> str | None:
    usual = case.plain.trainer
    if int(usual.num_training_batches) < 2:
        return "an epoch has one batch"
    if int(usual.num_training_batches) % 2:
        usual = case.fit(limit_train_batches=int(usual.num_training_batches) - 1).trainer
    try:
        fit = case.fit(accumulate_grad_batches=2, limit_train_batches=int(usual.num_training_batches))
    except Exception as error:
        _refused(error, "accumul")
        return None
    steps = fit.trainer.global_step
    assert 2 * steps == usual.global_step, f"There were {steps} steps, and {usual.global_step} without accumulation."
    return None


def clipped(case: _Case) -> str | None:
    try:
        fit = case.fit(gradient_clip_val=1e-3)
    except Exception as error:
        _refused(error, "clip")
        return None
    pairs = zip(fit.module.parameters(), case.plain.module.parameters(), strict=True)
    assert not all(torch.equal(*pair) for pair in pairs), (
        "The gradients were not clipped: all weights are those of the fit without clipping."
    )
    return None


def compiled(case: _Case) -> str | None:
    if not isinstance(getattr(case.module, "backbone", None), nn.Module):
        return "the module has no `backbone`"

    def compile_backbone(module: nn.Module) -> None:  # traces and differentiates, but needs no compiler of C++
        module.get_submodule("backbone").compile(backend="aot_eager")

    once: dict[str, Any] = {"max_epochs": 1, "limit_train_batches": 1, "limit_val_batches": 0}
    pair = [case.fit(change=change, **once).trainer.callback_metrics for change in (compile_backbone, None)]
    for name, value in pair[1].items():
        found = pair[0][name]
        close = torch.allclose(found, value, rtol=1e-5, atol=1e-6)
        assert close, f"{name!r} is {found.item():.7g} with a compiled backbone, and {value.item():.7g} without."
    return None


METHOD_CONTRACTS = of_all(
    gradients,
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
