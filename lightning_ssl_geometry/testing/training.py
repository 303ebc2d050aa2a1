"""The contracts of a method on its training: what moves the weights, and what leaves them alone."""

__all__ = [
    "accumulated",
    "bfloat16",
    "clipped",
    "compiled",
    "gradients",
    "observed",
    "repeatable",
    "statistics",
    "views",
]

import functools
from collections.abc import Iterable, Mapping
from typing import Any

import lightning as L
import torch
from torch import Tensor, nn

from lightning_ssl_geometry.callbacks import GeometryMonitor, KNNProbe, LinearProbe
from lightning_ssl_geometry.methods import SSLModule
from lightning_ssl_geometry.testing.fits import MethodCase, same_weights


def gradients(case: MethodCase) -> str | None:
    """Ask that each parameter gets a gradient that is finite and not 0 in all steps."""
    seen = _Gradients()
    module = case.fit(seen).module
    wanted = {name for name, each in module.named_parameters() if each.requires_grad}
    assert not (without := sorted(wanted - seen.found)), f"{without} got no gradient in the fit."
    assert not (zero := sorted(wanted - seen.moving)), f"{zero} got only gradients that are 0 in the fit."
    assert not seen.infinite, f"{sorted(seen.infinite)} got a gradient that is not finite."
    return None


def views(case: MethodCase) -> str | None:
    """Ask that the weights depend on each view of the batches."""
    noted = _Mixed()
    case.fit(change=noted, max_epochs=1, limit_train_batches=1, limit_val_batches=0)
    if noted.count < 2:
        return "the batches have no two views"
    unmoved = [view for view in range(noted.count) if _equal_parameters(case.fit(change=_Mixed(view)).module, case)]
    if len(unmoved) == noted.count:
        return "the training uses no view of the batches"
    assert not unmoved, f"The weights are the same with other values in view {unmoved[0]} of {noted.count} (from 0)."
    return None


def statistics(case: MethodCase) -> str | None:
    """Ask that layers with running statistics, such as batch norm, change them where they count batches."""
    before = dict(case.module.named_modules())
    counting = [
        (name, each, before[name])
        for name, each in case.plain.module.named_modules()
        if name in before and isinstance(getattr(each, "running_mean", None), Tensor) and _batches(each)
    ]
    counting = [(name, now, was) for name, now, was in counting if _batches(now) > _batches(was)]
    if not counting:
        return "no layer in training mode has running statistics"
    still = [name for name, now, was in counting if torch.equal(now.running_mean.cpu(), was.running_mean.cpu())]
    assert not still, f"The running mean of {still} is that of the start, though its layer is in training mode."
    return None


def repeatable(case: MethodCase) -> str | None:
    """Ask that a second fit from the same seed ends with the same weights."""
    same_weights(case.fit().module, case.plain.module, "after a second fit from the same seed")
    return None


def observed(case: MethodCase) -> str | None:
    """Ask that a fit that is observed ends with the same weights."""
    if case.callbacks is None and not isinstance(case.module, SSLModule):
        return "the module is no SSLModule, and `callbacks` does not say what observes it"
    made = (case.callbacks or _callbacks)()
    assert isinstance(made, Iterable), f"`callbacks` returns {made!r}, not a list of callbacks."
    same_weights(case.fit(*made).module, case.plain.module, "after a fit that was observed")
    return None


def bfloat16(case: MethodCase) -> str | None:
    """Ask that a fit in bfloat16 ends with finite weights."""
    state = case.fit(precision="bf16-mixed").module.state_dict()
    wrong = [name for name, value in state.items() if isinstance(value, Tensor) and not value.isfinite().all()]
    assert not wrong, f"{wrong} are not finite."
    return None


def accumulated(case: MethodCase) -> str | None:
    """Ask that gradients of two batches are accumulated, or that the Trainer refuses."""
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


def clipped(case: MethodCase) -> str | None:
    """Ask that gradients are clipped, or that the Trainer refuses."""
    try:
        fit = case.fit(gradient_clip_val=1e-3)
    except Exception as error:
        _refused(error, "clip")
        return None
    assert not _equal_parameters(fit.module, case), (
        "The gradients were not clipped: all weights are those of the fit without clipping."
    )
    return None


def compiled(case: MethodCase) -> str | None:
    """Ask that the first loss is the same with a compiled `backbone`."""
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


def _refused(error: Exception, word: str) -> None:
    if word not in str(error):
        raise AssertionError(f"It raises {type(error).__name__}, which does not say why: {error}") from error


def _callbacks() -> list[L.Callback]:
    return [GeometryMonitor(stages=["train", "val"], every_n_steps=1), LinearProbe(), KNNProbe(k=1)]


def _equal_parameters(module: nn.Module, case: MethodCase) -> bool:
    pairs = zip(module.parameters(), case.plain.module.parameters(), strict=True)
    return all(torch.equal(*pair) for pair in pairs)


def _batches(layer: nn.Module) -> int:
    return int(getattr(layer, "num_batches_tracked", None) or 0)


class _Gradients(L.Callback):
    """Note the parameters with a gradient before each step of an optimizer."""

    def __init__(self) -> None:
        self.found: set[str] = set()
        self.moving: set[str] = set()
        self.infinite: set[str] = set()

    def on_before_optimizer_step(self, trainer: L.Trainer, pl_module: L.LightningModule, optimizer: Any) -> None:
        known = {name: each.grad for name, each in pl_module.named_parameters() if each.grad is not None}
        self.found |= known.keys()
        self.moving |= {name for name, gradient in known.items() if gradient.any()}
        self.infinite |= {name for name, gradient in known.items() if not gradient.isfinite().all()}


class _Mixed:
    """Let `training_step` see batches in which each sample of one view is mixed with another sample.

    Attributes:
        count: The number of views of the latest batch.
    """

    def __init__(self, view: int | None = None) -> None:
        self.view, self.count = view, 0

    def __call__(self, module: L.LightningModule) -> None:
        step = module.training_step

        @functools.wraps(step)
        def mixed(batch: Any, *further: Any, **named: Any) -> Any:
            return step(self.of(batch), *further, **named)

        module.training_step = mixed  # type: ignore[method-assign]

    def of(self, batch: Any) -> Any:
        """Return a batch with the same views but one, which is mixed."""
        if isinstance(batch, Mapping):
            return {**batch, "views": self.of(batch["views"])} if "views" in batch else batch
        if not isinstance(batch, list | tuple) or not batch:
            return batch
        if isinstance(batch[0], list | tuple):  # ((view, view), label)
            return type(batch)([self.of(batch[0]), *batch[1:]])
        shape = getattr(batch[0], "shape", ())
        found = [k for k, each in enumerate(batch) if len(shape) > 1 and _is_like(each, shape)]
        self.count, changed = len(found), list(batch)
        if self.view is not None and self.view < self.count:
            view = batch[found[self.view]]
            changed[found[self.view]] = (view + view.roll(1, 0)) / 2
        return type(batch)(changed)


def _is_like(value: Any, shape: Any) -> bool:
    return isinstance(value, Tensor) and value.is_floating_point() and value.shape == shape
